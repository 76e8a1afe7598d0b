"""Pictures of tasks: opened when they come in, made anew, and stored with their project by their pixels.

A task names one as the rows of an export do, ``pictures/<hash>-<width>x<height>.webp``: no path of a machine
gets into a store, and nothing of a sender's file but what it shows.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import bound
from plaudit.collect.refusals import FieldError, NotFoundError
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import picture as table, task
from plaudit.data.fields import BadRowError, shorten
from plaudit.data.records import Part, Record, Text, pictures, text_to_json
from plaudit.errors import UserError
from plaudit.files.atomic import AtomicFile, make_folder
from plaudit.files.pictures import open_picture, pixels_id, resolved

MOST_SIDE = 2048
"""The longest side of a picture that is stored, in pixels; a larger one is made smaller."""
MEDIA_TYPE = "image/webp"
_NAME = re.compile(r"pictures/([0-9a-f]{32})-([1-9]\d{0,3})x([1-9]\d{0,3})\.webp")
_MOST_BYTES = 1_500_000
# Without loss where that is not too large for a phone: what is judged should be what was made.
_WAYS: tuple[dict[str, Any], ...] = (
    {"lossless": True, "quality": 50, "method": 2},
    {"quality": 95},
    {"quality": 80},
)
_EXPECTED = "data:image/…;base64,…, or rows for `plaudit collect add`: what is sent opens no file here"
_TEXTS = ("prompt", "completion", "chosen", "rejected", "completions")
_AT_ONCE = 500
_CONTENT = select(table.c.content).where(bound(table, project="p", hash="h"))
_THERE = select(table.c.hash).where(
    table.c.project == bindparam("p"), table.c.hash.in_(bindparam("hashes", expanding=True))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The pictures of some tasks, on their way into a store."""

    folder: Path | None = None
    """Where their paths begin; None: nothing that is sent opens a file here."""
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """Where each comes from, by its name."""

    def body(self, body: object) -> object:
        """A task as it was sent, with the names of its pictures, which are remembered; refused by field.

        A candidate may be ``{"picture": …, "alt": …}`` for an answer that is a picture and nothing else.
        """
        if not isinstance(body, Mapping):
            return body
        task: dict[str, Any] = {**body}
        if isinstance(listed := body.get("candidates"), list):
            task["candidates"] = [self._candidate(item, place) for place, item in enumerate(listed)]
            drawn = any(isinstance(item, Mapping) and "picture" in item for item in listed)
            if drawn and isinstance(body.get("prompt"), str):
                task["prompt"] = [{"role": "user", "content": body["prompt"]}]
        return task | {name: self._value(task[name], name) for name in ("prompt", "draft") if name in task}

    def _candidate(self, item: object, place: int) -> object:
        if not isinstance(item, Mapping):
            return item
        candidate: dict[str, Any] = {**item}
        if "picture" in item and "text" not in item:
            part = {"type": "image", "image": candidate.pop("picture"), "alt": candidate.pop("alt", None)}
            candidate["text"] = [{"role": "assistant", "content": [part]}]
        return candidate | {"text": self._value(candidate.get("text"), f"candidates[{place}].text")}

    def _value(self, value: Any, field: str) -> Any:
        try:
            text = text_of(value)
        except BadRowError:
            # Said where the task is checked, by its own place.
            return value
        return text_to_json(self._text(text, field)) if pictures(text) else value

    def record(self, record: Record) -> Record:
        """The same of a row's record."""
        if not any(map(pictures, _texts_in(record))):
            return record
        named = {name: getattr(record, name) for name in _TEXTS if hasattr(record, name)}
        for name, value in named.items():
            is_many = name == "completions"
            texts = tuple(self._text(text, name) for text in (value if is_many else (value,)))
            named[name] = texts if is_many else texts[0]
        return replace(record, **named)

    def _text(self, text: Text, field: str) -> Text:
        if isinstance(text, str):
            return text
        return tuple(
            turn
            if isinstance(turn.content, str)
            else replace(turn, content=tuple(self._part(part, field) for part in turn.content))
            for turn in text
        )

    def _part(self, part: Part, field: str) -> Part:
        source = part.source or ""
        if part.kind == "text" or self._is_stored(source):
            return part
        if self.folder is None and not source.startswith("data:"):
            raise FieldError(field=field, found=f"a picture at {shorten(source)}", expected=_EXPECTED)
        source = resolved(source, self.folder or Path())
        try:
            _, name = _opened(source)
        except UserError as error:
            expected = "a picture that pages can show"
            raise FieldError(field=field, found=f"none: {error}", expected=expected) from error
        self.sources.setdefault(name, source)
        return replace(part, source=name)

    def _is_stored(self, source: str) -> bool:
        # Rows of an export name files that way too: those beside the rows are looked at.
        return parse_name(source) is not None and not (self.folder and (self.folder / source).is_file())

    def keep(self, store: LabelStore, project: str) -> None:
        """Put those into a store that are not there yet: one by one, so that nobody else waits for long."""
        with store.looking() as moment:
            there = _there(moment.connection, project, self.sources)
        for name in self.sources.keys() - there:
            store.write(_put, project, name, _made_anew(self.sources[name], name))


def stored_bodies(
    store: LabelStore, project: str, bodies: Iterable[object], folder: Path | None = None
) -> list[Any]:
    """Tasks whose pictures are in the store from now on; without a folder only data URLs are opened."""
    incoming, named = Pictures(folder=folder), list[Any]()
    for number, body in enumerate(bodies, start=1):
        try:
            named.append(incoming.body(body))
        except FieldError as fault:
            raise fault.under(f"task {number}, {fault.field}") from fault
    incoming.keep(store, project)
    return named


def parse_name(source: str) -> tuple[str, int, int] | None:
    """Hash, width and height of a picture's name; None of another text.

    >>> parse_name("pictures/0123456789abcdef0123456789abcdef-640x480.webp")
    ('0123456789abcdef0123456789abcdef', 640, 480)
    """
    match = _NAME.fullmatch(source)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def _opened(source: str) -> tuple[Any, str]:
    # As large as it is stored, and the name of that: what comes out of a store goes in as the same.
    picture = open_picture(source)
    scale = min(1, MOST_SIDE / max(picture.size))
    picture = picture.resize([max(1, round(side * scale)) for side in picture.size])
    return picture, f"pictures/{pixels_id(picture)}-{picture.width}x{picture.height}.webp"


def _made_anew(source: str, name: str) -> bytes:
    (picture, now), content = _opened(source), BytesIO()
    if now != name:
        raise UserError(f"the picture {shorten(source)} was changed while it was added; add the rows again")
    # Profiles and comments of the sender's file, which would be written along.
    picture.info = {}
    for way in _WAYS:
        content = BytesIO()
        picture.save(content, "WEBP", **way)
        if content.tell() <= _MOST_BYTES:
            break
    return content.getvalue()


def _put(change: Transaction, project: str, name: str, content: bytes) -> None:
    # Two may have added the same at once.
    if not _there(change.connection, project, [name]):
        row = {"project": project, "hash": _hash(name), "content": content}
        change.connection.execute(insert(table), row)


def _hash(name: str) -> str:
    return name[9:41]


def _there(connection: Connection, project: str, names: Iterable[str]) -> set[str]:
    listed, there = [*names], set[str]()
    for start in range(0, len(listed), _AT_ONCE):
        hashes = {_hash(name): name for name in listed[start : start + _AT_ONCE]}
        rows = connection.execute(_THERE, {"p": project, "hashes": [*hashes]})
        there |= {hashes[row.hash] for row in rows}
    return there


def texts_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    """The conversations of a task by field: what may hold pictures."""
    candidates = enumerate(body.get("candidates", ()))
    places = {f"candidates[{place}].text": candidate["text"] for place, candidate in candidates}
    for name, value in {"prompt": body["prompt"], "draft": body.get("draft", ""), **places}.items():
        if not isinstance(value, str):
            yield name, text_of(value)


def pictures_of(body: Mapping[str, Any]) -> dict[str, str]:
    """The names of a task's pictures, each with its field; what is no name is refused."""
    named = {source: name for name, text in texts_of(body) for source in pictures(text)}
    for source, name in named.items():
        if parse_name(source) is None:
            raise FieldError(field=name, found=f"a picture at {shorten(source)}", expected=_EXPECTED)
    return named


def refuse_missing(change: Transaction, project: str, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Complain about tasks whose pictures nobody has put into the store."""
    named = {name: field for body in bodies for name, field in pictures_of(body).items()}
    for name in named.keys() - _there(change.connection, project, named):
        raise FieldError(field=named[name], found=name, expected="a picture of this project's store")


def picture_faults(moment: Transaction) -> list[str]:
    """Which pictures tasks name and the store has not."""
    faults = list[str]()
    for row in moment.connection.execute(select(task.c.project, task.c.id, task.c.body)):
        named = pictures_of(json.loads(row.body))
        missing = named.keys() - _there(moment.connection, row.project, named)
        faults += [f"task {row.id} of {row.project}: {name} is missing" for name in sorted(missing)]
    return faults


def picture_content(moment: Transaction, project: str, name: str) -> bytes:
    """A picture's bytes by its hash."""
    content = moment.connection.execute(_CONTENT, {"p": project, "h": name}).scalar_one_or_none()
    if content is None:
        raise NotFoundError(f"project {project} has no picture {shorten(name)}")
    return content


def _texts_in(row: Record) -> Iterator[Text]:
    for name in _TEXTS:
        value = getattr(row, name, "")
        yield from value if name == "completions" else (value,)


def write_pictures(moment: Transaction, project: str, rows: Iterable[Record], folder: Path) -> None:
    """The pictures that rows name, as files: those that are there already are left."""
    named = {source for row in rows for text in _texts_in(row) for source in pictures(text)}
    for name in sorted(filter(parse_name, named)):
        content, path = picture_content(moment, project, _hash(name)), folder / name
        if not path.is_file() or path.stat().st_size != len(content):
            make_folder(path.parent)
            with AtomicFile(path) as file:
                file.stream.write(content)
