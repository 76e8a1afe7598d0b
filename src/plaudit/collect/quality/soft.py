"""Rows on one scale: of each pair of answers, the chance that people prefer one, by all labels together.

A row a label says of a pair on which two of three agree that it is as clear as one on which all agree, and of
who clicks the first answer that it is worth a reader. Here each label counts by the skill of its person.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from plaudit.collect.answers import rows_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.project import Project
from plaudit.collect.quality.gathering import gather_rows
from plaudit.collect.quality.skill import fit_skill
from plaudit.data.records import Comparison, Record
from plaudit.errors import UserError

DIGITS = 6
"""Digits of a probability: the same on every machine."""


def soft_rows(
    found: Sequence[Any], settings: Project
) -> tuple[list[Record], list[int], list[tuple[int, ...]]]:
    """A row for each pair of answers, its newest label, and all its labels, in the order of their tasks.

    What a reviewer decided stays as it was decided. Labels of items with a known answer say nothing here.
    """
    if KINDS[settings.ask].compared is None:
        raise UserError(
            f"project {settings.name} asks for {settings.ask}: soft rows are of pairs and rankings; export "
            "without soft"
        )
    voting = [row for row in found if row.purpose == "work"]
    gathered = gather_rows(settings, voting)
    rows = dict[str, list[tuple[Record, tuple[int, ...]]]]()
    if gathered.choices is not None:
        votes = gathered.choices.votes
        first_U = fit_skill(votes).first_U
        events = [list[int]() for _ in range(votes.pairs)]
        for pair, item in zip(votes.pair_B.tolist(), gathered.choices.item_B.tolist(), strict=True):
            events[pair].append(voting[item].seq)
        bodies = {row.task: json.loads(row.body) for row in voting}
        for (task, first, other), probability, own in zip(
            gathered.keys, first_U.tolist(), events, strict=True
        ):
            row = _soft_row(bodies[task], first, other, round(probability, DIGITS))
            rows.setdefault(task, []).append((row, tuple(own)))
    for row in (row for row in found if row.purpose == "adjudicated"):
        rows[row.task] = [(record, (row.seq,)) for record in _decided_rows(row, settings)]
    order = dict.fromkeys(row.task for row in found)
    flat = [pair for task in order for pair in rows.get(task, ())]
    return [row for row, _ in flat], [max(own) for _, own in flat], [own for _, own in flat]


def _soft_row(body: dict[str, Any], first: int, other: int, probability: float) -> Comparison:
    """The row of a pair, for which of its answers more speaks; of even ones the earlier in the task."""
    if probability < 0.5 or (probability == 0.5 and other < first):
        first, other, probability = other, first, round(1 - probability, DIGITS)
    texts = [text_of(body["candidates"][place]["text"]) for place in (first, other)]
    origin = body.get("metadata", {}).get("origin")
    return Comparison(
        prompt=text_of(body["prompt"]),
        chosen=texts[0],
        rejected=texts[1],
        probability=probability,
        group="people",
        category=body.get("category"),
        origin=origin if isinstance(origin, str) else "",
    )


def _decided_rows(row: Any, settings: Project) -> list[Record]:
    body, label, order = (json.loads(text) for text in (row.body, row.label, row.shown))
    return rows_of(body, label, order, annotator=row.annotator, group="people", project=settings)
