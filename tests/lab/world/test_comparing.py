"""The pools of the valley as functions that compare: the seed says who judges, and how."""

import math
from collections import Counter
from statistics import fmean

import pytest

from plaudit.data.judging import Task
from plaudit.lab.world.annotators import POOLS, annotator_pool
from plaudit.rewards.comparing import judge_named

TASK = Task(
    prompt="What does the owl eat?",
    answers=("I think that is a very good question. The owl eats mice.", "The owl eats mice!!"),
    ended=(True, True),
)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", POOLS)
def test_each_pool_compares_as_often_as_its_people_would(name: str) -> None:
    n = 3000
    found = judge_named(f"plaudit.lab.world.verdicts:{name.replace('-', '_')}").verdicts([TASK] * n, 0)
    wins = Counter(tuple(mark.rank for mark in one.marks) for one in found if one is not None)
    people = annotator_pool(name)
    chances = [judge.win_probabilities(TASK) for judge in people]
    for ranks, place in (((1, 2), 0), ((2, 1), 1)):
        chance = fmean(both[place] for both in chances)
        spread = math.sqrt(max(chance * (1 - chance), 1e-4) / n)
        assert abs(wins[ranks] / n - chance) < 4 * spread, (ranks, wins, chance)
    asked = {(one.annotator, one.group) for one in found if one is not None}
    assert asked == {(judge.name, judge.group) for judge in people}


def test_the_seed_decides_and_nothing_else() -> None:
    named = judge_named("plaudit.lab.world.verdicts:crowd")
    first = named.verdicts([TASK] * 50, 0)
    assert first[10:20] == named.verdicts([TASK] * 10, 10)
    assert first != named.verdicts([TASK] * 50, 50)
