"""Answers of a model's server as they are written: several at one pace, so that none looks quicker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.files.chat import read_completion
from plaudit.files.posting import TransientError, excerpt_of

Piece = tuple[int, str]
"""Which of the answers goes on, and with which words."""


def in_step(answers: Sequence[Iterator[str]]) -> Iterator[Piece]:
    """The pieces of several answers in rounds: one of each that has not ended, and none before all are there.

    >>> [*in_step([iter(["a", "b"]), iter(["x"])])]
    [(0, 'a'), (1, 'x'), (0, 'b')]
    """
    going = dict(enumerate(answers))
    while going:
        pieces = {place: next(answer, None) for place, answer in going.items()}
        for place, words in pieces.items():
            if words is None:
                del going[place]
            else:
                yield place, words


def words_of_stream(url: str, pieces: Iterator[bytes]) -> Iterator[str]:
    """The words of a streamed chat completion; of a server that does not stream, all of them at once."""
    rest, has_ended = b"", False
    for piece in pieces:
        rest += piece
        # One object and no events: it is whole when the last piece is there.
        if rest.lstrip().startswith(b"{"):
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            words, is_end = _event(url, line)
            has_ended = has_ended or is_end
            if words:
                yield words
    if rest.lstrip().startswith(b"{"):
        yield read_completion(url, rest).text
    elif not has_ended:
        raise TransientError("the answer was cut off")


def _event(url: str, line: bytes) -> tuple[str, bool]:
    """The words of a line of events, and whether it ends the answer."""
    content = line.strip().removeprefix(b"data:").strip()
    # Comments that keep the connection open, names of events, and the empty lines between them.
    if not line.startswith(b"data:") or not content:
        return "", False
    if content == b"[DONE]":
        return "", True
    try:
        choices: Any = exact_json.loads_foreign(content)["choices"]
        # A last event may hold nothing but the usage.
        choice = choices[0] if choices else {"delta": {}}
        words = choice["delta"].get("content") or ""
        if not isinstance(words, str):
            raise ValueError(f"its content is {words!r:.40}, not text")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{url} streams {excerpt_of(content)}; expected events of a chat completion"
        ) from error
    return words, choice.get("finish_reason") is not None
