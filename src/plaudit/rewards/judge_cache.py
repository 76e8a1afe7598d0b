"""Replies of a judge, kept on disk by what was asked: whoever goes on asks nothing twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from plaudit.errors import UserError
from plaudit.sources.atomic import AtomicFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model replied to one question.

    Example: ``Reply(text="… <verdict-7f>A</verdict-7f>", number="7f", refused=False, cut=False)``
    """

    text: str
    """Its words."""
    number: str
    """Of the delimiters that it was asked to use."""
    refused: bool
    """Whether the server says that it refused."""
    cut: bool
    """Whether it was longer than it was allowed to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCache:
    """A folder with a file for each reply.

    Example: ``ReplyCache(folder=Path("judged")).find(key_of({"model": "m", "first": "…"}))``
    """

    folder: Path
    """Where they lie."""

    def __post_init__(self) -> None:
        """Refuse a place where nothing can be kept, before anything is asked."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.folder}: replies of the judge cannot be kept there ({error.strerror})"
            ) from error

    def find(self, key: str) -> Reply | None:
        """The reply to what has this key; None where there is none, or its file is damaged."""
        try:
            return _reply_of(json.loads(self._path(key).read_bytes()))
        except (OSError, ValueError):
            return None

    def keep(self, key: str, reply: Reply) -> None:
        """Put a reply on the disk for good."""
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        with AtomicFile(path) as file:
            file.stream.write(json.dumps(asdict(reply), ensure_ascii=True).encode())

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def key_of(asked: Mapping[str, object]) -> str:
    """The hash of what was asked.

    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}), len(key_of({}))
    (True, 64)
    """
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def usual_cache() -> Path:
    """Where replies are kept unless the user says otherwise."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "plaudit" / "judged"


def _reply_of(found: object) -> Reply:
    if not isinstance(found, dict) or set(found) != set(Reply.__dataclass_fields__):
        raise ValueError("no reply")
    if not all(isinstance(found[name], str) for name in ("text", "number")):
        raise ValueError("no reply")
    return Reply(
        text=found["text"],
        number=found["number"],
        refused=found["refused"] is True,
        cut=found["cut"] is True,
    )
