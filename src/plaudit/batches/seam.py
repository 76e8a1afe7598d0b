"""Text in pieces → tokens in pieces, so that the prompt's tokens are a true prefix.

Tokenising a whole conversation may glue the prompt's last character to the answer's first. The
model that answers never sees that: it gets the prompt's tokens and goes on. So the prompt is
always tokenised as it will be asked, and the answer continues it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.batches.tokenizer import TokenizerInfo
from plaudit.errors import UserError

_ANCHORS = ("", "\n", "a", ".", "<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text after the prompt.

    Example: ``Piece(text="Paris.<|im_end|>", trained=True)``
    """

    text: str
    """The characters."""
    trained: bool
    """Whether the assistant said them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A prompt and what follows it, as tokens.

    Example: ``Tokens(prompt=(1, 5), ids=(7, 2), mask=(True, True), own=False)``
    """

    prompt: tuple[int, ...]
    """The prompt as it is asked."""
    ids: tuple[int, ...]
    """What follows."""
    mask: tuple[bool, ...]
    """True where the assistant spoke."""
    own: bool
    """True when the pieces had to be tokenised on their own, since the whole text glues a seam."""


def tokens_of(info: TokenizerInfo, prompt_text: str, pieces: Sequence[Piece], opening: int | None) -> Tokens:
    """The tokens of the prompt and of its pieces; those of the whole text whenever it has clean seams."""
    prompt = info.begin(prompt_text, opening)
    if not prompt:
        raise UserError(
            f"the prompt {prompt_text[:40]!r} has no tokens; give the row a prompt that the model can read"
        )
    whole = info.begin(prompt_text + "".join(piece.text for piece in pieces), opening)
    parts = None
    if whole[: len(prompt)] == prompt:
        rest = whole[len(prompt) :]
        parts = [rest] if len(pieces) == 1 else _cut_along(info, rest, pieces)
    own = parts is None
    if parts is None:
        parts = _continued(info, prompt_text, pieces, opening)
    ids = tuple(i for part in parts for i in part)
    mask = tuple(piece.trained for piece, part in zip(pieces, parts, strict=True) for _ in part)
    return Tokens(prompt=prompt, ids=ids, mask=mask, own=own)


def _cut_along(
    info: TokenizerInfo, rest: tuple[int, ...], pieces: Sequence[Piece]
) -> list[tuple[int, ...]] | None:
    """The tokens ``rest`` cut at the pieces' borders; None when a token lies across one."""
    parts: list[tuple[int, ...]] = []
    for piece in pieces[:-1]:
        part = next((part for part in _readings(info, piece.text) if rest[: len(part)] == part), None)
        if part is None:
            return None
        parts.append(part)
        rest = rest[len(part) :]
    last = pieces[-1].text
    if not any(rest == part for part in _readings(info, last)):
        return None
    return [*parts, rest]


def _continued(
    info: TokenizerInfo, prompt_text: str, pieces: Sequence[Piece], opening: int | None
) -> list[tuple[int, ...]]:
    """Each piece tokenised as a continuation, proven by decoding all that stands so far."""
    text = prompt_text
    sofar = info.begin(prompt_text, opening)
    parts: list[tuple[int, ...]] = []
    for piece in pieces:
        text += piece.text
        wanted = info.decode(info.begin(text, opening))
        part = next(
            (part for part in _readings(info, piece.text) if info.decode(sofar + part) == wanted), None
        )
        if part is None:
            raise UserError(
                f"the tokenizer cannot continue the prompt with {piece.text[:40]!r}: no tokens for it decode "
                "back to the same text; move the blanks between prompt and answer to the other side"
            )
        parts.append(part)
        sofar += part
    return parts


def _readings(info: TokenizerInfo, text: str) -> Iterator[tuple[int, ...]]:
    """The tokens of a text in the middle of another, as far as they can be had.

    Tokenizers of the SentencePiece family put a blank before every text; behind a short anchor
    they do not, and the anchor's tokens are taken off again.
    """
    for anchor in _ANCHORS:
        before = info.encode(anchor) if anchor else ()
        ids = info.encode(anchor + text)
        if ids[: len(before)] == before:
            yield ids[len(before) :]
