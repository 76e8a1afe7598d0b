"""The same row twice: as the run encodes it, and as transformers alone would write and cut it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from plaudit.batches.template import Answered, Encoder, answers_of
from plaudit.batches.tokens import Example
from plaudit.checks.subject import FEW, Subject
from plaudit.errors import UserError
from plaudit.records.feedback import Prompt, Steps
from plaudit.records.messages import Message, Text, assistant_says, user_says, words

SHORT = 120
"""Characters of a text that a finding shows."""
_TRIED = 8 * FEW
_ANSWER = "plauditSaysThis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A row, what its answers say, and the tokens that the run makes of it.

    Example: ``Written(record=record, answers=("Paris.",), example=encoder.encode(…))``
    """

    record: Answered | Steps
    """The row."""
    answers: tuple[Text, ...]
    """Its answers, in the order of the completions."""
    example: Example
    """The tokens."""


def written(subject: Subject) -> list[Written]:
    """The first few rows with answers; those that cannot be encoded are left out, as the run leaves them."""
    found: list[Written] = []
    refused: list[UserError] = []
    held = (record for record in subject.records if not isinstance(record, Prompt))
    for record in islice(held, _TRIED):
        answers = _answers(record)
        try:
            example = subject.encoder.encode(record.prompt, answers, record.origin)
        except UserError as error:
            refused.append(error)
            continue
        found.append(Written(record=record, answers=answers, example=example))
        if len(found) == FEW:
            break
    if refused and not found:
        raise refused[0]
    return found


def asked(subject: Subject) -> list[tuple[str, Text, tuple[int, ...]]]:
    """The first few bare prompts that can be asked: where each stands, its text, the tokens shown for it."""
    found: list[tuple[str, Text, tuple[int, ...]]] = []
    refused: list[UserError] = []
    for record in islice((one for one in subject.records if isinstance(one, Prompt)), FEW):
        text = as_turns(record.prompt) if subject.encoder.manner is not None else record.prompt
        try:
            found.append((record.origin, text, subject.encoder.encode_prompt(text)))
        except UserError as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return found


def as_turns(prompt: Text) -> tuple[Message, ...]:
    """A string as the user's turn; a conversation as it is.

    >>> as_turns("Hi")[0].role
    'user'
    """
    return user_says(prompt) if isinstance(prompt, str) else prompt


def rendered(encoder: Encoder, turns: Sequence[Message], *, ask: bool) -> str:
    """What transformers' own apply_chat_template makes of the turns."""
    assert encoder.manner is not None, "a tokenizer with a template"
    tokenizer: Any = encoder.info.tokenizer
    return tokenizer.apply_chat_template(
        [{"role": turn.role, "content": words((turn,))} for turn in turns],
        chat_template=encoder.template,
        add_generation_prompt=ask,
        tokenize=False,
        **encoder.manner.template.variables,
    )


def template_end(encoder: Encoder) -> int | None:
    """The first control token behind a last answer; None where no template writes one."""
    if encoder.manner is None:
        return encoder.info.eos
    turns = (*user_says("plauditAsksThis"), *assistant_says(_ANSWER))
    behind = rendered(encoder, turns, ask=False).partition(_ANSWER)[2].lstrip()
    added = encoder.info.tokenizer.added_tokens_decoder.items()
    found = [(len(one.content), number) for number, one in added if behind.startswith(one.content)]
    return max(found)[1] if found else None


def all_ends(encoder: Encoder) -> set[int]:
    """Every token that may end an answer: those that the model's files name, and the template's own."""
    own = template_end(encoder)
    return {*encoder.info.stops, *(() if own is None else (own,))}


def cut_up(encoder: Encoder, text: str) -> tuple[int, ...]:
    """The tokens that the tokenizer makes of the text, with one BOS where it begins texts with one."""
    info = encoder.info
    tokenizer: Any = info.tokenizer
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    while info.bos is not None and ids[:2] == (info.bos, info.bos):
        ids = ids[1:]
    missing = info.adds_bos and info.bos is not None and ids[:1] != (info.bos,)
    return (info.bos, *ids) if missing and info.bos is not None else ids


def said(encoder: Encoder, ids: Iterable[int]) -> str:
    """The text of the tokens without its blanks: tokenizers differ in those that they give back."""
    tokenizer: Any = encoder.info.tokenizer
    text = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return "".join(text.split())


def kept(encoder: Encoder, text: str) -> str:
    """The text as far as the tokenizer can write it, without its blanks."""
    tokenizer: Any = encoder.info.tokenizer
    return said(encoder, tokenizer(text, add_special_tokens=False)["input_ids"])


def unended(text: str, ends: Sequence[str]) -> str:
    """The text without end-of-turn tokens that the row itself brought along.

    >>> unended("Paris.</s> </s>", ("</s>",))
    'Paris.'
    """
    bare = text.rstrip()
    end = next((end for end in ends if end and bare.endswith(end)), None)
    return text if end is None else unended(bare.removesuffix(end), ends)


def unended_turns(answer: Sequence[Message], ends: Sequence[str]) -> tuple[Message, ...]:
    """The turns up to the last answer, the assistant's without ends of their own."""
    last = max(i for i, turn in enumerate(answer) if turn.role == "assistant")
    return tuple(
        Message(role=turn.role, content=unended(words((turn,)), ends)) if turn.role == "assistant" else turn
        for turn in answer[: last + 1]
    )


def shortened(text: str) -> str:
    """The text in quotes, its middle left out when it is long.

    >>> len(shortened("a" * 500)) < 140
    True
    """
    half = SHORT // 2
    return repr(text if len(text) <= SHORT else f"{text[:half]} … {text[-half:]}")


def _answers(record: Answered | Steps) -> tuple[Text, ...]:
    if not isinstance(record, Steps):
        return answers_of(record)
    solution = "\n".join(record.steps)
    return (solution if isinstance(record.prompt, str) else assistant_says(solution),)
