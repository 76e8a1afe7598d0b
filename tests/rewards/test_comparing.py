"""Who compares two answers: rewards with and without noise, and functions of one's own."""

import math
from pathlib import Path

import pytest

from plaudit.data.judging import Task, Verdict, pair_verdict
from plaudit.errors import UserError
from plaudit.rewards.base import FunctionReward
from plaudit.rewards.comparing import FunctionJudge, RewardJudge, first_win_probability, judge_named
from plaudit.rewards.kinds import JudgeSettings

MINE = """
from plaudit.data.judging import pair_verdict

def nearer(prompt, first, second, reference_answer, metadata, seed):
    assert prompt == "Which?" and metadata == {"level": 2} and isinstance(seed, int)
    return "first" if first == reference_answer else "second" if second == reference_answer else None

def loud(first, second):
    return pair_verdict("tie", annotator="ada", group="us")

def rated(answer):
    return float(len(answer))

def anything(**what):
    return float(len(what["answer"]))

def broken(first, second):
    raise KeyError("no idea")

def numbers(first, second):
    return 1

def lonely(first):
    return "first"

def greedy(first, second, mood):
    return "first"
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE, "utf-8")
    return str(tmp_path / "mine.py")


def task(first: str, second: str, **more: object) -> Task:
    return Task(prompt="Which?", answers=(first, second), ended=(True, True), **more)


def ranks(verdict: Verdict | None) -> tuple[int, ...] | None:
    return None if verdict is None else tuple(mark.rank for mark in verdict.marks)


def scored(gap: float) -> FunctionReward:
    return FunctionReward(name="mine", function=lambda _, answer: gap if answer == "a" else 0.0)


@pytest.mark.parametrize("gap", [-3.0, -0.4, 0.0, 1e-3, 2.5])
@pytest.mark.parametrize("noise", [0.3, 1.0, 7.0])
def test_the_chance_is_bradley_and_terrys(gap: float, noise: float) -> None:
    assert first_win_probability(gap, noise) == pytest.approx(1 / (1 + math.exp(-gap / noise)), rel=1e-12)
    assert first_win_probability(gap, noise) + first_win_probability(-gap, noise) == pytest.approx(
        1.0, abs=1e-15
    )


def test_a_gap_that_is_huge_beside_the_noise_is_certain() -> None:
    assert (first_win_probability(1e9, 1e-9), first_win_probability(-1e9, 1e-9)) == (1.0, 0.0)


@pytest.mark.parametrize("gap", [-0.5, 0.0, 0.8])
def test_a_noisy_reward_prefers_as_often_as_it_should(gap: float) -> None:
    n, noise = 4000, 0.7
    judge = RewardJudge(name="mine", reward=scored(gap), noise=noise)
    found = judge.verdicts([task("a", "b")] * n, 0)
    share = sum(ranks(one) == (1, 2) for one in found) / n
    chance = 1 / (1 + math.exp(-gap / noise))
    assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / n)
    assert found == judge.verdicts([task("a", "b")] * n, 0), "a seed says it all"
    assert found != judge.verdicts([task("a", "b")] * n, n)


def test_without_noise_the_higher_score_wins_equal_ones_tie_and_no_score_is_no_verdict() -> None:
    judge = RewardJudge(name="mine", reward=scored(1e-12))
    found = judge.verdicts([task("a", "b"), task("b", "a"), task("b", "c")] * 50, 0)
    assert [ranks(one) for one in found] == [(1, 2), (2, 1), (1, 1)] * 50
    assert {one.annotator for one in found if one is not None} == {"mine"}
    reward = FunctionReward(name="half", function=lambda _, answer: None if answer == "b" else 1.0)
    found = RewardJudge(name="half", reward=reward).verdicts(
        [task("a", "b"), task("b", "a"), task("a", "c")], 0
    )
    assert [ranks(one) for one in found] == [None, None, (1, 1)]


def test_a_function_is_given_what_it_takes(mine: str) -> None:
    judge = judge_named(f"{mine}:nearer")
    assert isinstance(judge, FunctionJudge)
    more = {"reference_answer": "4", "metadata": {"level": 2}}
    asked = [task("4", "5", **more), task("5", "4", **more), task("6", "5", **more)]
    assert [ranks(one) for one in judge.verdicts(asked, 0)] == [(1, 2), (2, 1), None]


def test_a_function_can_give_a_whole_verdict_and_has_its_own_noise(mine: str) -> None:
    [found] = judge_named(f"{mine}:loud").verdicts([task("a", "b")], 0)
    assert found == pair_verdict("tie", annotator="ada", group="us")
    with pytest.raises(UserError, match="compares by itself; leave the noise out"):
        judge_named(f"{mine}:loud", JudgeSettings(noise=0.5))


@pytest.mark.parametrize("name", ["rated", "anything"])
def test_a_function_of_one_answer_is_a_reward(mine: str, name: str) -> None:
    judge = judge_named(f"{mine}:{name}")
    assert isinstance(judge, RewardJudge)
    assert [ranks(one) for one in judge.verdicts([task("long", "a")], 0)] == [(1, 2)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lonely", "it asks for first"),
        ("greedy", "it asks for mood; it is called by name with any of prompt, first, second"),
        ("missing", "there is no 'missing' in "),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(mine: str, name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        judge_named(f"{mine}:{name}")


@pytest.mark.parametrize(
    ("name", "words"),
    [("broken", "it raised KeyError: 'no idea'"), ("numbers", "it gave 1; say first, second or tie")],
)
def test_what_a_function_does_wrong_is_told_with_the_prompt(mine: str, name: str, words: str) -> None:
    with pytest.raises(UserError, match=f"prompt 'Which\\?': {words}"):
        judge_named(f"{mine}:{name}").verdicts([task("a", "b")], 0)
