"""Pictures of rows, in every layout: where turns or words have a place for one, or before the first question.

Rows hold pictures in fields of their own (``image``, ``images``) or within the parts of a turn. A place is a
part of the type image without a picture, or the word ``<image>`` in what is no answer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from plaudit.data.fields import BadRowError, Node
from plaudit.data.formats.layout import PICTURE_FIELDS
from plaudit.data.records import (
    Demonstration,
    Message,
    Part,
    Record,
    Text,
    parts_of,
    pictures,
    plain_text,
    turns_of,
)
from plaudit.files.pictures import part_of, resolved

_PLACE = re.compile(r"\n?<image>\n?")


def placed(record: Record, row: Node, folder: Path) -> tuple[Message, ...]:
    """The turns of a record's prompt, and of a demonstration's answer behind it, with the row's pictures."""
    turns = (*turns_of(record.prompt), *_later_turns(record))
    sources = [resolved(source, folder) for source in _sources(row)]
    left = iter(sources)
    places = sum(_places(turn) for turn in turns) if sources else 0
    if places not in (0, len(sources)):
        expected = f"{places} pictures, as the words have places"
        raise BadRowError("wrong value", PICTURE_FIELDS[0], expected=expected, found=f"{len(sources)}")
    made = [replace(turn, content=_content(turn, left, folder, marked=places > 0)) for turn in turns]
    if sources and not places:
        if pictures(turns):
            expected = "pictures in a field of the row or in its turns, and not in both without a place"
            raise BadRowError("wrong value", PICTURE_FIELDS[0], expected=expected, found="both")
        first = next((n for n, turn in enumerate(made) if turn.role == "user"), 0)
        parts = tuple(Part(kind="image", source=source) for source in sources)
        made[first] = replace(made[first], content=(*parts, *parts_of(made[first])))
    return tuple(made)


def _later_turns(record: Record) -> tuple[Message, ...]:
    if not isinstance(record, Demonstration) or isinstance(record.completion, str):
        return ()
    return record.completion


def _sources(row: Node) -> Iterator[str]:
    for name in PICTURE_FIELDS:
        node = row.optional(name)
        if node is None:
            continue
        for item in node.items() if isinstance(node.value, list | tuple) else (node,):
            inner = item.optional("url") or item.optional("path") if isinstance(item.value, Mapping) else item
            if inner is None or not isinstance(inner.value, str) or not inner.value:
                raise item.wrong_type_error("a picture: a path, a data URL, bytes, or an object with one")
            yield inner.text()


def _is_place(part: Part) -> bool:
    return part.kind == "image" and part.source is None


def _places(turn: Message) -> int:
    marks = (
        0
        if turn.role == "assistant"
        else sum(len(_PLACE.findall(part.text or "")) for part in parts_of(turn))
    )
    return marks + sum(map(_is_place, parts_of(turn)))


def _content(turn: Message, left: Iterator[str], folder: Path, *, marked: bool) -> str | tuple[Part, ...]:
    """What a turn says, with the next pictures in its places and whole paths in its other ones."""
    if isinstance(turn.content, str) and (turn.role == "assistant" or not (marked and _places(turn))):
        return turn.content
    parts: list[Part] = []
    for part in parts_of(turn):
        if part.kind == "image":
            source = next(left, None) if part.source is None else resolved(part.source, folder)
            if source is None:
                expected = "a picture for each part of the type image"
                raise BadRowError("missing field", PICTURE_FIELDS[0], expected=expected, found="none")
            parts.append(replace(part, source=source))
            continue
        words = [part.text or ""] if turn.role == "assistant" or not marked else _PLACE.split(part.text or "")
        for n, piece in enumerate(words):
            parts += [Part(kind="image", source=next(left))] if n else []
            parts += [Part(kind="text", text=piece)] if piece else []
    return tuple(parts)


def with_part_of_pictures(text: Text, share: float) -> Text:
    """The turns with so large a share of each picture, cut out where the words of the turns decide."""
    key = plain_text(text)

    def changed(turn: Message) -> Message:
        parts = (
            part if part.source is None else replace(part, source=part_of(part.source, share, key))
            for part in parts_of(turn)
        )
        return replace(turn, content=tuple(parts))

    return text if isinstance(text, str) else tuple(map(changed, text))
