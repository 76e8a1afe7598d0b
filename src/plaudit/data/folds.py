"""Rows divided by who judged them, so that a reward can be tried on people whose labels it never saw.

InstructGPT divided its labelers into five groups and tried each reward on the group that it had not learnt
from (Ouyang et al. 2022, arXiv:2203.02155, 4.1). Some prompts are kept from all training rows: those who were
learnt from and those who were held out must be compared on prompts that are new for either.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plaudit.data.records import Comparison, Ranking, Rating, Record, Steps, text_to_json
from plaudit.errors import UserError

Judged = Comparison | Ranking | Rating | Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    held_out: tuple[str, ...]
    """The people of whom no row is learnt from."""
    train: tuple[Record, ...]
    """Rows of all others, on the prompts that are learnt from."""
    test: tuple[Record, ...]
    """Rows of everybody, on the other prompts."""


def annotator_folds(
    records: Sequence[Record], groups: int = 5, *, test_share: float = 0.2, seed: int = 0
) -> list[Fold]:
    """As many folds as groups of people, of about as many rows each; every person is held out once.

    >>> rows = [Comparison(prompt=f"{n}", chosen="a", rejected="b", annotator=f"a{n % 4}") for n in range(40)]
    >>> folds = annotator_folds(rows, 2)
    >>> [fold.held_out for fold in folds], len(folds[0].train) + len(folds[1].train) + len(folds[0].test)
    ([('a0', 'a2'), ('a1', 'a3')], 40)
    """
    judged = [record for record in records if isinstance(record, Judged) and record.annotator is not None]
    counts = Counter(str(record.annotator) for record in judged)
    _refuse_impossible(groups, len(counts), test_share)
    is_test = [_uniform(seed, record) < test_share for record in judged]
    test = tuple(record for record, held in zip(judged, is_test, strict=True) if held)
    learnt = [record for record, held in zip(judged, is_test, strict=True) if not held]
    folds = [
        Fold(
            held_out=names,
            train=tuple(record for record in learnt if record.annotator not in names),
            test=test,
        )
        for names in _groups(counts, groups)
    ]
    if not test or not all(fold.train for fold in folds):
        raise UserError(
            f"{len(judged)} rows of {len(counts)} people are too few for {groups} groups with {test_share:g} "
            "of the prompts kept apart: take fewer groups, or more rows"
        )
    return folds


def _refuse_impossible(groups: int, people: int, test_share: float) -> None:
    if not 0 < test_share < 1:
        raise UserError(f"the share of prompts that are kept apart is between 0 and 1, not {test_share:g}")
    if people < 2:
        raise UserError(
            f"the rows name {people} annotators, and at least two are needed to hold one out: rows say who "
            'judged by "annotator"'
        )
    if not 2 <= groups <= people:
        raise UserError(f"{people} people can be divided into 2 to {people} groups, not {groups}")


def _groups(counts: Counter[str], groups: int) -> list[tuple[str, ...]]:
    members: list[list[str]] = [[] for _ in range(groups)]
    sizes = [0] * groups
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        smallest = sizes.index(min(sizes))
        members[smallest].append(name)
        sizes[smallest] += count
    return [tuple(sorted(names)) for names in members]


def _uniform(seed: int, record: Record) -> float:
    """By the prompt alone: whoever judged it, all its rows are on one side."""
    words = json.dumps([seed, text_to_json(record.prompt)], ensure_ascii=False)
    return int(hashlib.sha256(words.encode()).hexdigest()[:13], 16) / 16**13
