"""SFT: learn to say what the demonstrations say (Ouyang et al. 2022, arXiv:2203.02155, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.batches.rows import encode_rows
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.rows import Prepared
from plaudit.recipes.supervised import Method, by_likelihood, run_supervised
from plaudit.records.feedback import Demonstration, Record
from plaudit.training.sinks.summary import Summary


def sft(config: RunConfig) -> Summary | None:
    """Maximum likelihood of demonstrations: −Σ log π(y_t | x, y_<t) / tokens."""
    return run_supervised(config, SFT)


def answers(records: Sequence[Record], encoder: Encoder, max_tokens: int) -> Prepared[Example]:
    """The demonstrations as they are."""
    return Prepared(encoding=encode_rows(demonstrations(records, "sft"), encoder, max_tokens))


SFT = Method(name="sft", recipe=answers, objective=by_likelihood)
"""The method."""


def demonstrations(records: Sequence[Record], method: str) -> Sequence[Demonstration]:
    """The records, when all of them are demonstrations."""
    for record in records:
        if not isinstance(record, Demonstration):
            kind = type(record).__name__.lower()
            what = f"{record.origin}: this row is a {kind}, and {method} learns from demonstrations"
            raise UserError(f"{what}; {_advice(kind)}")
    return [record for record in records if isinstance(record, Demonstration)]


def _advice(kind: str) -> str:
    if kind == "prompt":
        return "every row needs an answer to learn"
    return "to learn from the preferred answers: plaudit train preferred"
