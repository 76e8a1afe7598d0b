"""Text in pieces → tokens in pieces, so that the prompt's tokens are a true prefix.

Tokenising a whole conversation may glue the prompt's last character to the answer's first. The
model that answers never sees that: it gets the prompt's tokens and goes on. So the prompt is
always tokenised as it will be asked, and the answer continues it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.errors import UserError
from plaudit.tokens.tokenizer import TokenizerInfo

_TEXT_ANCHORS = ("", "\n", "a", ".", "<")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """A stretch of text after the prompt.

    Example: ``TextPiece(text="Paris.<|im_end|>", trained=True)``
    """

    text: str
    """The characters."""
    trained: bool
    """Whether the assistant wrote it, so that it is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContinuation:
    """A prompt and what follows it, as tokens.

    Example: ``PromptContinuation(prompt=(1, 5), ids=(7, 2), mask=(True, True), is_separate=False)``
    """

    prompt: tuple[int, ...]
    """The prompt's tokens."""
    ids: tuple[int, ...]
    """The tokens after the prompt."""
    mask: tuple[bool, ...]
    """True where the assistant wrote the token."""
    is_separate: bool
    """True when the pieces were tokenised separately, since a token of the whole text crosses a boundary."""


def tokenise_pieces(
    info: TokenizerInfo, prompt_text: str, pieces: Sequence[TextPiece], first_token: int | None
) -> PromptContinuation:
    """The tokens of the prompt and of its pieces; those of the whole text whenever it has clean seams."""
    prompt = info.encode_start(prompt_text, first_token)
    if not prompt:
        raise UserError(
            f"the prompt {prompt_text[:40]!r} has no tokens; give the row a prompt that the model can read"
        )
    all_ids = info.encode_start(prompt_text + "".join(piece.text for piece in pieces), first_token)
    parts = None
    if all_ids[: len(prompt)] == prompt:
        rest = all_ids[len(prompt) :]
        parts = [rest] if len(pieces) == 1 else _split_at_pieces(info, rest, pieces)
    is_separate = parts is None
    if parts is None:
        parts = _tokenise_separately(info, prompt_text, pieces, first_token)
    ids = tuple(i for part in parts for i in part)
    mask = tuple(piece.trained for piece, part in zip(pieces, parts, strict=True) for _ in part)
    return PromptContinuation(prompt=prompt, ids=ids, mask=mask, is_separate=is_separate)


def _split_at_pieces(
    info: TokenizerInfo, rest: tuple[int, ...], pieces: Sequence[TextPiece]
) -> list[tuple[int, ...]] | None:
    """The tokens ``rest`` cut at the pieces' borders; None when a token lies across one."""
    parts: list[tuple[int, ...]] = []
    for piece in pieces[:-1]:
        part = next((part for part in _candidate_tokens(info, piece.text) if rest[: len(part)] == part), None)
        if part is None:
            return None
        parts.append(part)
        rest = rest[len(part) :]
    last = pieces[-1].text
    if not any(rest == part for part in _candidate_tokens(info, last)):
        return None
    return [*parts, rest]


def _tokenise_separately(
    info: TokenizerInfo, prompt_text: str, pieces: Sequence[TextPiece], first_token: int | None
) -> list[tuple[int, ...]]:
    """Each piece tokenised as a continuation, proven by decoding all that stands so far."""
    text = prompt_text
    ids_so_far = info.encode_start(prompt_text, first_token)
    parts: list[tuple[int, ...]] = []
    for piece in pieces:
        text += piece.text
        expected_text = info.decode(info.encode_start(text, first_token))
        part = next(
            (
                part
                for part in _candidate_tokens(info, piece.text)
                if info.decode(ids_so_far + part) == expected_text
            ),
            None,
        )
        if part is None:
            raise UserError(
                f"the tokenizer cannot continue the prompt with {piece.text[:40]!r}: no tokens for it decode "
                "back to the same text; move the blanks between prompt and answer to the other side"
            )
        parts.append(part)
        ids_so_far += part
    return parts


def _candidate_tokens(info: TokenizerInfo, text: str) -> Iterator[tuple[int, ...]]:
    """The possible tokenisations of a text in the middle of another.

    Tokenizers of the SentencePiece family put a blank before every text; behind a short anchor
    they do not, and the anchor's tokens are taken off again.
    """
    for anchor in _TEXT_ANCHORS:
        before = info.encode(anchor) if anchor else ()
        ids = info.encode(anchor + text)
        if ids[: len(before)] == before:
            yield ids[len(before) :]
