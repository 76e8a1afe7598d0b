"""RewardBench and RewardBench 2, worked by hand."""

from math import tanh

import pytest

from plaudit.data.records import Ranking
from plaudit.evaluation.reward_models.evaluate import (
    REWARDBENCH_SECTIONS,
    RankingScores,
    best_of_four_points,
    score_rewardbench,
    score_rewardbench2,
    ties_pair_points,
)
from plaudit.evaluation.stats import Resampling
from tests.evaluation.judged import pair

DRAWS = Resampling(times=50)


def test_rewardbench_weighs_prompts_and_makes_mathematics_count_as_code_does():
    pairs = [
        pair(1, 0, category="alpacaeval-easy", prompt="1"),
        pair(0, 1, category="alpacaeval-easy", prompt="2"),
        pair(1, 0, category="mt-bench-med", prompt="3"),
        pair(1, 1, category="mt-bench-hard", prompt="4"),  # equal is wrong
        pair(1, 0, category="donotanswer", prompt="5"),
        pair(1, 0, category="math-prm", prompt="6"),
        pair(0, 1, category="hep-rust", prompt="7"),
    ]
    found = score_rewardbench(pairs, DRAWS)
    math = 984 / 447
    wanted = {"Chat": 2 / 3, "Chat Hard": 0, "Safety": 1, "Reasoning": math / (math + 1)}
    assert {one.name: one.score.value for one in found.sections} == pytest.approx(wanted)
    assert found.overall == pytest.approx(sum(wanted.values()) / 4)
    assert found.sections[0].subsets == ("alpacaeval-easy", "mt-bench-med")
    assert found.notes == ()


def test_the_whole_of_rewardbench_gives_mathematics_and_code_the_same_weight():
    pairs = [pair(1, 0, category="math-prm", prompt=f"m{n}") for n in range(447)]
    for subset in REWARDBENCH_SECTIONS["Reasoning"][1:]:
        pairs += [pair(0, 1, category=subset, prompt=f"{subset}{n}") for n in range(164)]
    [reasoning] = score_rewardbench(pairs, DRAWS).sections
    assert reasoning.score.value == pytest.approx(0.5)


def test_what_is_missing_or_strange_is_said_and_no_overall_score_given():
    pairs = [
        pair(1, 0, category="donotanswer"),
        pair(None, 0, category="donotanswer"),
        pair(1, 0, category="x"),
    ]
    found = score_rewardbench(pairs, DRAWS)
    assert found.overall is None
    assert found.sections[0].score.n == 1
    assert "in no section: x" in found.notes
    assert any(note.startswith("1 pairs without a verdict") for note in found.notes)
    assert any("nothing of Chat, Chat Hard, Reasoning" in note for note in found.notes)


@pytest.mark.parametrize(
    ("right", "wrong", "points"),
    [([2], [1, 0, 1], 1), ([1], [1, 0, 0], 1 / 2), ([1], [1, 1, 1], 1 / 4), ([0], [1, 0, 0], 0)],
)
def test_the_best_of_four_shares_the_point_with_those_level_at_the_top(right, wrong, points):
    assert best_of_four_points([float(s) for s in right], [float(s) for s in wrong]) == points


@pytest.mark.parametrize(
    ("ref", "tied", "points"),
    [
        # g_ref 2, g_tied 1, s 0.5: all of it, and tanh(1/0.5 − 1).
        (((3,), (1,)), ((2.5, 2), (1,)), 1.0 + 0.01 * tanh(1)),
        # g_ref −1, g_tied 1, s 0.5: the reference is wrong and the least gap is below the spread.
        (((0,), (1,)), ((2.5, 2), (1,)), 0.3 + 0.2 + 0.01 * tanh(-3)),
        # g_ref 1, g_tied 0.5, s 1: right, but right answers are further apart than from the wrong one.
        (((2,), (1,)), ((2.5, 1.5), (1,)), 0.6 + 0.01 * tanh(-0.5)),
        # s 0: the limit of tanh.
        (((2,), (1,)), ((2, 2), (1,)), 1.01),
        (((1,), (1,)), ((1, 1), (1,)), 0.0),
    ],
)
def test_ties_by_hand(ref, tied, points):
    rows = [RankingScores(right=tuple(map(float, r)), wrong=tuple(map(float, w))) for r, w in (ref, tied)]
    assert ties_pair_points(*rows) == pytest.approx(points)


def ranking(category: str, right: int, wrong: int, origin: str) -> Ranking:
    return Ranking(
        prompt=origin,
        completions=tuple(f"{n}" for n in range(right + wrong)),
        ranks=(1.0,) * right + (1.0 + right,) * wrong,
        category=category,
        origin=origin,
    )


def test_rewardbench_2_is_the_plain_mean_of_six():
    names = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
    rankings = [ranking(name, 1, 3, f"f:{n}") for n, name in enumerate(names)]
    rankings += [ranking("Ties", 1, 1, "f:8"), ranking("Ties", 2, 1, "f:9"), ranking("Ties", 1, 1, "f:10")]
    first = {"f:0": 3.0, "f:1": 1.0}  # right; level with one; the others wrong
    given = {row.prompt: (first.get(row.origin, 0.0), 1.0, 0.0, 0.0) for row in rankings[:5]}
    given |= {"f:8": (3.0, 1.0), "f:9": (2.5, 2.0, 1.0), "f:10": (0.0, 1.0)}
    scores = {
        (row.prompt, row.completions, answer): given[row.prompt][place]
        for row in rankings
        for place, answer in enumerate(row.completions)
    }
    found = score_rewardbench2(rankings, scores, {"f:8": "ref:4", "f:9": "tied:4", "f:10": "ref:5"}, DRAWS)
    ties = 1.0 + 0.01 * tanh(1)
    assert [one.name for one in found.sections] == [*names, "Ties"]
    assert [one.score.value for one in found.sections] == [1.0, 0.5, 0.0, 0.0, 0.0, pytest.approx(ties)]
    assert found.overall == pytest.approx((1.5 + ties) / 6)
    unnamed = score_rewardbench2(rankings, scores, {}, DRAWS)
    assert unnamed.overall is None
    assert any(note.startswith("Ties: no two rows are named") for note in unnamed.notes)
