"""Every judge says what it said when there were three protocols: figures stored before there was one."""

import json
from pathlib import Path
from typing import Any

import pytest

from plaudit.data.judging import BothWays, Judge, Task, Verdict
from plaudit.lab.world.annotators import annotator_pool
from plaudit.rewards.comparing import RewardJudge, judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.registry import resolve_reward
from tests.feedback.judges.judges import both_orders

STORED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("figures.json").read_text("utf-8"))
ANSWERS = (
    "Mice.",
    "Bark.",
    "The owl eats mice, I think, and it hunts at night.",
    "I will not help with that.",
    "An owl eats mice and voles.",
    "Tea.",
)
TASKS = [
    Task(prompt="What does the owl eat?", answers=(first, second), ended=(True, True))
    for first in ANSWERS
    for second in ANSWERS
    if first < second
]


def figures(verdict: Verdict | None) -> list[Any] | None:
    if verdict is None:
        return None
    seconds = None if verdict.seconds is None else round(verdict.seconds, 9)
    return [[mark.rank for mark in verdict.marks], verdict.strength, verdict.probability, seconds]


@pytest.mark.parametrize("who", [name for name in STORED if "/" in name and not name.startswith("reward")])
def test_people_of_the_world(who: str) -> None:
    pool, _, name = who.partition("/")
    person = next(judge for judge in annotator_pool(pool) if judge.name == name)
    assert isinstance(person, Judge)
    # One at a time, as a person over the network is asked: each begins at the very seed.
    found = [person.verdicts([task], 7)[0] for task in TASKS[:12]]
    assert [figures(verdict) for verdict in found] == STORED[who]


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("reward/noise", judge_named("length:1-20", JudgeSettings(noise=2.0))),
        ("reward/sharp", judge_named("length:1-20")),
        ("function", judge_named("plaudit.lab.world.verdicts:crowd")),
    ],
)
def test_words_of_rounds(name: str, judge: Judge) -> None:
    assert [figures(verdict) for verdict in judge.verdicts(TASKS, "5/2")] == STORED[name]


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("both orders", BothWays(judge=judge_named("plaudit.lab.world.verdicts:crowd"))),
        ("score", RewardJudge(name="l", reward=resolve_reward("length:1-20"), log_odds=True)),
    ],
)
def test_words_of_evaluations(name: str, judge: Judge) -> None:
    assert [[said.forward, said.backward] for said in both_orders(judge, TASKS)] == STORED[name]
