"""Rows as the model will see them: token by token, the trained ones marked."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.data.records import Prompt, Record, Steps
from plaudit.errors import UserError
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.encode import Encoder, encode_record_with_notes, make_encoder
from plaudit.tokens.tokenizer import TokenizerInfo

_MAX_TOKENS_SHOWN = 400
_MAX_TOKENS_PER_CHARACTER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    untrained: str
    """A token of the prompt, or one that others said."""
    trained: str
    end: str
    answer: str
    legend: str


_BRACKET_STYLE = _Style(
    untrained="{}|",
    trained="[{}]",
    end="[{} END]",
    answer="\n>>> ",
    legend="prompt|tokens| then >>> an answer: [trained][tokens], others|, [END] where a turn ends",
)
_COLOUR_STYLE = _Style(
    untrained="\x1b[2m{}\x1b[0m\x1b[90m·\x1b[0m",
    trained="\x1b[32m{}\x1b[0m\x1b[90m·\x1b[0m",
    end="\x1b[1;30;42m{}\x1b[0m",
    answer="\n\x1b[1;34m▶ \x1b[0m",
    legend="\x1b[2mprompt\x1b[0m, then \x1b[1;34m▶\x1b[0m the answer: \x1b[32mtrained\x1b[0m tokens, "
    "\x1b[2mothers\x1b[0m, and the \x1b[1;30;42mtoken that ends a turn\x1b[0m",
)


def show_rows(
    records: Iterable[Record], model: str | Path | TokenizerInfo | Encoder, *, colour: bool | None = None
) -> str:
    """The rows as tokens, trained ones coloured; in brackets where there is no terminal. ``colour`` None asks
    the terminal (and the NO_COLOR variable). In place of a row that cannot be tokenised stands the reason."""
    encoder = model if isinstance(model, Encoder) else make_encoder(model)
    style = _style(colour)
    notes = [f"note: {note}" for note in encoder.notes]
    return "\n\n".join([style.legend, *notes, *(_format_row(record, encoder, style) for record in records)])


def show_examples(examples: Iterable[Example], encoder: Encoder, *, colour: bool | None = None) -> str:
    """Rows that are tokens already, as `show_rows` shows them."""
    style = _style(colour)
    formatted = (_format_example(example, encoder, style, example.origin or "row") for example in examples)
    return "\n\n".join([style.legend, *formatted])


def _style(colour: bool | None) -> _Style:
    if colour is None:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return _COLOUR_STYLE if colour else _BRACKET_STYLE


def _format_row(record: Record, encoder: Encoder, style: _Style) -> str:
    name = record.origin or type(record).__name__.lower()
    try:
        if isinstance(record, Prompt | Steps):
            ids = encoder.encode_prompt(record.prompt)
            steps = isinstance(record, Steps)
            description = "a prompt; its labelled steps are not shown" if steps else "a bare prompt"
            return f"{name}: {len(ids)} tokens, {description}\n{_format_prompt(encoder.info, ids, style)}"
        encoded = encode_record_with_notes(record, encoder)
    except UserError as error:
        return f"cannot be tokenised: {error}"
    return _format_example(encoded.example, encoder, style, name, encoded.notes)


def _format_example(
    example: Example, encoder: Encoder, style: _Style, name: str, notes: Sequence[str] = ()
) -> str:
    lengths = ", ".join(f"{len(c.ids)} ({sum(c.mask)} trained)" for c in example.completions)
    lines = [f"{name}: prompt {len(example.prompt)} tokens, answer {lengths}"]
    lines += [f"note: {note}" for note in notes]
    answers = "".join(
        style.answer + _format_completion(encoder, example.prompt, completion, style)
        for completion in example.completions
    )
    return "\n".join(lines) + "\n" + _format_prompt(encoder.info, example.prompt, style) + answers


def _format_prompt(info: TokenizerInfo, ids: Sequence[int], style: _Style) -> str:
    left_out = len(ids) - _MAX_TOKENS_SHOWN
    head = f"({left_out:,} earlier tokens are not shown) " if left_out > 0 else ""
    return head + "".join(
        style.untrained.format(text) for text, _ in _token_texts(info, (), ids[-_MAX_TOKENS_SHOWN:])
    )


def _format_completion(encoder: Encoder, prompt: Sequence[int], completion: Completion, style: _Style) -> str:
    texts: list[str] = []
    for text, last in _token_texts(encoder.info, prompt[-_MAX_TOKENS_PER_CHARACTER:], completion.ids):
        marking = style.untrained
        if completion.mask[last]:
            marking = style.end if completion.ids[last] in encoder.stop_ids else style.trained
        texts.append(marking.format(text))
    if len(texts) > 2 * _MAX_TOKENS_SHOWN:
        texts[_MAX_TOKENS_SHOWN:-_MAX_TOKENS_SHOWN] = [
            f" ({len(texts) - 2 * _MAX_TOKENS_SHOWN:,} tokens are not shown) "
        ]
    return "".join(texts)


def _token_texts(info: TokenizerInfo, before: Sequence[int], ids: Sequence[int]) -> Iterator[tuple[str, int]]:
    """What each token adds to the text, and where it stands; tokens that share one character go together."""
    # Each is decoded behind what came just before it, since some tokenizers drop the blank of a first token.
    start = 0
    for i in range(len(ids)):
        text = info.decode([*before, *ids[start : i + 1]])[len(info.decode(before)) :]
        # A character of several tokens decodes to � until its last one;
        # broken bytes may never end, hence the bound.
        if text.endswith("�") and i + 1 < len(ids) and i + 1 - start < _MAX_TOKENS_PER_CHARACTER:
            continue
        yield _visible(text), i
        before, start = ids[start : i + 1], i + 1


def _visible(text: str) -> str:
    escaped = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
    return escaped.replace("\n", "⏎\n") if escaped and not escaped.strip("\n") else escaped.replace("\n", "⏎")
