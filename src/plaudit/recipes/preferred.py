"""Preferred-only: learn the answers that people liked, and nothing from the others."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.batches.rows import encode_rows
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.recipes.config import RunConfig
from plaudit.recipes.rows import Prepared, families_of
from plaudit.recipes.supervised import Method, by_likelihood, run_supervised
from plaudit.records.control import Lesson, liked
from plaudit.records.feedback import Record
from plaudit.training.sinks.summary import Summary


def preferred(config: RunConfig) -> Summary | None:
    """Maximum likelihood of the winner of each comparison, the best of each ranking, each thumb up."""
    return run_supervised(config, PREFERRED)


def winners(records: Sequence[Record], encoder: Encoder, max_tokens: int) -> Prepared[Example]:
    """The liked answers; what is left out is counted."""
    return from_lesson(liked(records), records, encoder, max_tokens)


PREFERRED = Method(name="preferred", recipe=winners, objective=by_likelihood)
"""The method."""


def from_lesson(
    lesson: Lesson, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[Example]:
    """A lesson's demonstrations as tokens, and what it has to say."""
    left_out = (f"{count} answers left out: {reason}" for reason, count in lesson.reasons.items())
    encoding = encode_rows(lesson.demonstrations, encoder, max_tokens)
    return Prepared(
        encoding=encoding, notes=(*lesson.notes, *left_out), families=families_of(records, encoding)
    )
