"""Replies of models on disk, a file for each, by what was asked: nothing is asked or paid for twice."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.files.atomic import AtomicFile
from plaudit.files.stored import cache_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    text: str
    number: str
    """The number in the delimiters that this request asked for."""
    refused: bool
    cut: bool
    odds: Mapping[str, float] | None = None
    """The chance of each word that was asked for, where one of them stands; None without log-probs."""
    prompt_tokens: int | None = None
    """Tokens of the question, as the server counts; None where it does not."""
    reply_tokens: int | None = None


_WORDS = {"text": str, "number": str, "refused": bool, "cut": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCache:
    folder: Path

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
            data = exact_json.loads_foreign(self._path(key).read_bytes())
            # Replies of before log-probs and prices were kept have the first four fields alone.
            if not isinstance(data, dict) or not {*_WORDS} <= {*data} <= {*Reply.__dataclass_fields__}:
                raise ValueError("no reply")
            if not all(isinstance(data[name], kind) for name, kind in _WORDS.items()):
                raise ValueError("no reply")
            return Reply(**{**data, "odds": _parse_odds(data.get("odds"))})
        except (OSError, ValueError):
            return None

    def store(self, key: str, reply: Reply, *, sync: bool = True) -> None:
        """Write a reply to disk, atomically; without ``sync`` it may be lost when the power goes."""
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        with AtomicFile(path, sync=sync) as file:
            file.stream.write(json.dumps(asdict(reply), ensure_ascii=True).encode())

    def cached(
        self, keys: Sequence[str], make: Callable[[Sequence[int]], Sequence[Any]], some: int
    ) -> list[Any]:
        """What belongs to each key, of JSON's kinds: from disk, or made from its place, some at a time.
        So a command that is stopped goes on behind what it has made by then."""
        replies = [self.find(key) for key in keys]
        missing = [place for place, reply in enumerate(replies) if reply is None]
        for start in range(0, len(missing), some):
            places = missing[start : start + some]
            for place, value in zip(places, make(places), strict=True):
                reply = Reply(text=json.dumps(value), number="", refused=False, cut=False)
                self.store(keys[place], reply, sync=False)
                replies[place] = reply
        return [json.loads(reply.text) for reply in replies if reply is not None]

    def losses(self, key: str) -> int:
        """How many requests of this key were sent whose reply never came."""
        try:
            return len(self._path(key).with_suffix(".lost").read_bytes())
        except OSError:
            return 0

    def add_loss(self, key: str) -> int:
        """Note another such request, and say how many there are."""
        path = self._path(key).with_suffix(".lost")
        path.parent.mkdir(exist_ok=True)
        # A byte for each: to add one is a single step, which no kill leaves half done.
        with path.open("ab") as file:
            file.write(b".")
        return self.losses(key)

    def _path(self, key: str) -> Path:
        # Divided by the first byte, as one folder of a million files is slow on many file systems.
        return self.folder / key[:2] / f"{key}.json"


def cache_key(request: Mapping[str, object]) -> str:
    """The hash of a request's fields: the name that its reply is stored under."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def reply_cache(folder: Path | None) -> ReplyCache:
    return ReplyCache(folder=folder or cache_folder() / "judged")


def _parse_odds(value: Any) -> Mapping[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(share, float | int) for share in value.values()):
        raise ValueError("no reply")
    return {str(word): float(share) for word, share in value.items()}
