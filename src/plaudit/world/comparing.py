"""The annotators of each pool as functions that compare two answers, for ``plaudit train rlhf``.

``--comparisons plaudit.world.comparing:crowd`` has each pair compared by somebody of the crowd.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from plaudit.records.judging import Task, Verdict
from plaudit.records.messages import Text
from plaudit.world.pools import pool

Compare = Callable[[Text, Text, Text, int], Verdict]
"""From a prompt, the first answer, the second one and a seed to a verdict."""


def compared_by_one_of(name: str) -> Compare:
    """Somebody of a pool compares; the seed says who, and how they feel today.

    >>> verdict = compared_by_one_of("experts")("What does the owl eat?", "Bark.", "Mice.", 0)
    >>> [mark.rank for mark in verdict.marks], verdict.group
    ([2, 1], 'experts')
    """
    judges = pool(name)

    def compare(prompt: Text, first: Text, second: Text, seed: int) -> Verdict:
        chance = random.Random(f"compared {seed}")
        task = Task(prompt=prompt, answers=(first, second), ended=(True, True))
        return chance.choice(judges).judge(task, chance.getrandbits(32))

    return compare


experts = compared_by_one_of("experts")
"""Nearly without noise."""
crowd = compared_by_one_of("crowd")
"""Ordinary people, each with a weakness."""
hurried = compared_by_one_of("hurried")
"""Who hardly read."""
length_lovers = compared_by_one_of("length-lovers")
"""Who like it long."""
flattered = compared_by_one_of("flattered")
"""Who like to be praised."""
cautious = compared_by_one_of("cautious")
"""Who like evasion."""
villages = compared_by_one_of("villages")
"""Three groups with tastes of their own."""
sabotaged = compared_by_one_of("sabotaged")
"""The crowd, with saboteurs among them."""
