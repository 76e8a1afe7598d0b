"""Answers shown to the annotators of a pool, and rows made of what they say."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from plaudit.errors import UserError
from plaudit.records.feedback import Comparison, Ranking, Rating
from plaudit.records.judging import Judge, Task, Verdict, compared, ranked, rated, thumbed


def compared_by(judges: Sequence[Judge], asked: Sequence[Task], seed: int = 0) -> list[Comparison]:
    """Of two answers the one that an annotator preferred."""
    return [compared(task, verdict) for task, verdict in _judged(asked, judges, seed)]


def ranked_by(judges: Sequence[Judge], asked: Sequence[Task], seed: int = 0) -> list[Ranking]:
    """Answers in an annotator's order."""
    return [ranked(task, verdict) for task, verdict in _judged(asked, judges, seed)]


def rated_by(judges: Sequence[Judge], asked: Sequence[Task], seed: int = 0) -> list[Rating]:
    """Answers with points from 1 to 5."""
    return [row for task, verdict in _judged(asked, judges, seed) for row in rated(task, verdict)]


def thumbed_by(judges: Sequence[Judge], asked: Sequence[Task], seed: int = 0) -> list[Rating]:
    """Answers with a thumb: up for 4 points and 5."""
    return [row for task, verdict in _judged(asked, judges, seed) for row in thumbed(task, verdict)]


def _judged(asked: Sequence[Task], judges: Sequence[Judge], seed: int) -> Iterator[tuple[Task, Verdict]]:
    """Each task with the verdict of a judge drawn for it, or of the next one where that judge has none."""
    if not judges:
        raise UserError("a pool without annotators cannot judge")
    chance = random.Random(f"turns {seed}")
    for task in asked:
        turns = [(judge, chance.getrandbits(32)) for judge in chance.sample(judges, len(judges))]
        verdicts = (judge.judge(task, turn) for judge, turn in turns)
        verdict = next((verdict for verdict in verdicts if verdict is not None), None)
        if verdict is None:
            raise UserError(f"none of {len(judges)} judges gives a verdict on {task.prompt}")
        yield task, verdict
