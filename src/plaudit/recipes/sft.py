"""SFT: learn to say what the demonstrations say (Ouyang et al. 2022, arXiv:2203.02155, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.errors import UserError
from plaudit.recipes.config import SupervisedConfig
from plaudit.recipes.supervised import Method, run_supervised
from plaudit.records.feedback import Demonstration, Record
from plaudit.training.sinks.summary import Summary
from plaudit.training.supervised import likelihood


def sft(config: SupervisedConfig) -> Summary | None:
    """Maximum likelihood of demonstrations: −Σ log π(y_t | x, y_<t) / tokens."""
    return run_supervised(config, Method(recipe=demonstrations, objective=likelihood))


def demonstrations(records: Sequence[Record]) -> Sequence[Demonstration]:
    """The records, when all of them are demonstrations."""
    for record in records:
        if not isinstance(record, Demonstration):
            raise UserError(
                f"{record.origin}: this row is a {type(record).__name__.lower()}, and sft learns from "
                "demonstrations; to learn from the preferred answers: plaudit train preferred"
            )
    return [record for record in records if isinstance(record, Demonstration)]
