"""Answers shown to the annotators of a pool: rows made of what they say, and comparisons on request.

``plaudit train rlhf --comparisons plaudit.lab.world.verdicts:crowd`` has each pair compared by somebody of
the crowd.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from plaudit.data.judging import Judge, Verdict, to_comparison, to_ranking, to_ratings, to_thumbs
from plaudit.data.records import Comparison, Ranking, Rating, Task, Text
from plaudit.errors import UserError
from plaudit.lab.world.annotators import annotator_pool


def make_comparisons(judges: Sequence[Judge], tasks: Sequence[Task], seed: int = 0) -> list[Comparison]:
    return [to_comparison(task, verdict) for task, verdict in _task_verdicts(tasks, judges, seed)]


def make_rankings(judges: Sequence[Judge], tasks: Sequence[Task], seed: int = 0) -> list[Ranking]:
    return [to_ranking(task, verdict) for task, verdict in _task_verdicts(tasks, judges, seed)]


def make_ratings(judges: Sequence[Judge], tasks: Sequence[Task], seed: int = 0) -> list[Rating]:
    return [row for task, verdict in _task_verdicts(tasks, judges, seed) for row in to_ratings(task, verdict)]


def make_thumbs(judges: Sequence[Judge], tasks: Sequence[Task], seed: int = 0) -> list[Rating]:
    """Thumbs of each task's answers by an annotator of the pool: up for ratings of 4 and 5."""
    return [row for task, verdict in _task_verdicts(tasks, judges, seed) for row in to_thumbs(task, verdict)]


def _task_verdicts(
    tasks: Sequence[Task], judges: Sequence[Judge], seed: int
) -> Iterator[tuple[Task, Verdict]]:
    """Each task with the verdict of a judge drawn for it, or of the next one where that judge has none."""
    if not judges:
        raise UserError("a pool without annotators cannot judge")
    rng = random.Random(f"turns {seed}")
    for task in tasks:
        # Seeds for all, also for those who are not asked: a judge without a verdict shifts nobody else's.
        turns = [(judge, rng.getrandbits(32)) for judge in rng.sample(judges, len(judges))]
        verdicts = (judge.verdicts([task], turn)[0] for judge, turn in turns)
        verdict = next((verdict for verdict in verdicts if verdict is not None), None)
        if verdict is None:
            raise UserError(f"none of {len(judges)} judges gives a verdict on {task.prompt}")
        yield task, verdict


CompareAnswers = Callable[[Text, Text, Text, int], Verdict]
"""From a prompt, the first answer, the second one and a seed to a verdict."""


def pool_comparison(name: str) -> CompareAnswers:
    """A comparison function: an annotator of the pool, chosen by the seed, compares two answers.

    >>> verdict = pool_comparison("experts")("What does the owl eat?", "Bark.", "Mice.", 0)
    >>> [mark.rank for mark in verdict.marks], verdict.group
    ([2, 1], 'experts')
    """
    judges = annotator_pool(name)

    def compare(prompt: Text, first: Text, second: Text, seed: int) -> Verdict:
        rng = random.Random(f"compared {seed}")
        task = Task(prompt=prompt, answers=(first, second), ended=(True, True))
        return rng.choice(judges).verdict(task, rng.getrandbits(32))

    return compare


experts = pool_comparison("experts")
crowd = pool_comparison("crowd")
hurried = pool_comparison("hurried")
length_lovers = pool_comparison("length-lovers")
flattered = pool_comparison("flattered")
cautious = pool_comparison("cautious")
trusting = pool_comparison("trusting")
villages = pool_comparison("villages")
sabotaged = pool_comparison("sabotaged")
