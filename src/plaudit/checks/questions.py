"""The user's own prompts, as samplers and rewards are asked them: a few, the short ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from plaudit.batches.question import Question, questions_of
from plaudit.batches.template import answers_of
from plaudit.checks.subject import FEW, Subject
from plaudit.records.feedback import Prompt, Record, Steps
from plaudit.records.messages import Text, words

LOOKED_THROUGH = 4 * FEW
"""Rows among which the shortest prompts are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt and what its row answers.

    Example: ``Asked(question=question, answers=("Mice.",))``
    """

    question: Question
    """What is asked."""
    answers: tuple[Text, ...]
    """The row's own answers; none where it is a bare prompt."""


def asked(subject: Subject, few: int, room: int) -> list[Asked]:
    """The rows with the shortest prompts that can be answered in so many tokens, no two prompts alike."""
    longest = _context(subject) - room
    found: dict[tuple[int, ...], Asked] = {}
    for record in islice(subject.records, LOOKED_THROUGH):
        if _asks(record.prompt):
            for question in questions_of([record], subject.encoder, longest).examples:
                found.setdefault(question.prompt, Asked(question=question, answers=own_answers(record)))
    return sorted(found.values(), key=lambda one: len(one.question.prompt))[:few]


def own_answers(record: Record) -> tuple[Text, ...]:
    """What a row answers itself; labelled steps are an answer, a line each."""
    match record:
        case Prompt():
            return ()
        case Steps():
            return ("\n".join(record.steps),)
        case _:
            return answers_of(record)


def declared_specials(subject: Subject) -> Iterator[int]:
    """The numbers of all control tokens."""
    tokenizer = subject.encoder.info.tokenizer
    for token in subject.encoder.info.specials:
        number = tokenizer.convert_tokens_to_ids(token)
        if isinstance(number, int):
            yield number


def origins(rows: Sequence[Asked]) -> str:
    """Where they stand, shortened.

    >>> origins([])
    'no row'
    """
    if not rows:
        return "no row"
    first = rows[0].question.origin or repr(words(rows[0].question.text)[:40])
    return first if len(rows) == 1 else f"{first} and {len(rows) - 1} other rows"


def _asks(prompt: Text) -> bool:
    """Whether a sampler can be given it: it ends with words of somebody else."""
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return bool(prompt) and prompt[-1].role in ("user", "tool") and bool(words(prompt[-1:]).strip())


def _context(subject: Subject) -> int:
    """The tokens that a row may have and that the model can read."""
    model = subject.policy or subject.scorer
    config = None if model is None else model.base.config.get_text_config()
    most = getattr(config, "max_position_embeddings", None)
    return subject.max_length if most is None else min(subject.max_length, most)
