"""Choosing: no verdict is never chosen nor taken for 0, ties are no pair, and RSO reaches its optimum."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from plaudit.errors import UserError
from plaudit.methods.iterative import algorithms
from plaudit.methods.iterative.config import LoopSettings
from plaudit.methods.iterative.rounds import LoopRound, RoundFigures, ScoredAnswer, select_rows
from plaudit.rewards.base import TaskScores

SCORE = st.one_of(st.none(), st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
ROW = st.lists(SCORE, max_size=8).map(tuple)


def picks_of(name: str, row: TaskScores) -> algorithms.Selection:
    choice = algorithms.SelectionSettings(
        threshold=-5.0, keep=6, beta=2.0, gap=0.5, uniforms=(0.4,) * len(row)
    )
    return algorithms.ITERATIVE_ALGORITHMS[name].select(row, choice)


@pytest.mark.one_in(5)
@given(row=ROW)
@pytest.mark.parametrize("name", algorithms.ITERATIVE_ALGORITHMS)
def test_what_has_no_verdict_is_never_chosen_and_better_stands_before_worse(name, row):
    width = 2 if algorithms.ITERATIVE_ALGORITHMS[name].pairs else 1
    for pick in picks_of(name, row):
        scores = [row[place] for place in pick]
        assert len(pick) == width
        assert None not in scores
        if width == 2:
            better, worse = scores
            assert better is not None
            assert worse is not None
            assert better > worse


@pytest.mark.one_in(10)
@given(row=ROW, places=st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", [name for name in algorithms.ITERATIVE_ALGORITHMS if name != "rso"])
def test_answers_without_a_verdict_change_nothing(name: str, row: TaskScores, places: random.Random) -> None:
    """Beside them the same scores are chosen: if None were 0, it would win among negative ones."""
    known = tuple(score for score in row if score is not None)
    mixed: list[float | None] = list(known)
    for _ in range(3):
        mixed.insert(places.randint(0, len(mixed)), None)
    alone = [[known[place] for place in pick] for pick in picks_of(name, known)]
    assert [[mixed[place] for place in pick] for pick in picks_of(name, tuple(mixed))] == alone


@pytest.mark.parametrize("name", algorithms.ITERATIVE_ALGORITHMS)
@pytest.mark.parametrize("row", [(), (None,), (None, None)])
def test_nothing_is_chosen_of_nothing(name: str, row: TaskScores) -> None:
    assert picks_of(name, row) == ()


@pytest.mark.parametrize(
    "name", [name for name, facts in algorithms.ITERATIVE_ALGORITHMS.items() if facts.pairs]
)
@pytest.mark.parametrize("row", [(1.0,), (0.5, 0.5, 0.5), (-1.0, None, -1.0)])
def test_one_answer_and_equal_scores_give_no_pair(name: str, row: TaskScores) -> None:
    assert picks_of(name, row) == ()


@given(row=ROW)
def test_the_best_is_the_first_of_the_highest(row: TaskScores) -> None:
    known = [score for score in row if score is not None]
    if known:
        assert algorithms.best_of_n(row) == ((row.index(max(known)),),)


def test_negative_scores_beat_no_verdict() -> None:
    assert algorithms.best_of_n((None, -2.0, -1.0)) == ((2,),)
    assert algorithms.best_versus_worst((None, -2.0, -1.0)) == ((2, 1),)


@given(row=ROW, threshold=st.floats(-10, 10), keep=st.integers(1, 5))
def test_a_threshold_is_reached_by_what_equals_it(row: TaskScores, threshold: float, keep: int) -> None:
    wanted = [place for place, score in enumerate(row) if score is not None and score >= threshold]
    assert [place for (place,) in algorithms.at_or_above(row, threshold)] == wanted
    assert [place for (place,) in algorithms.at_or_above(row, threshold, keep)] == wanted[:keep]
    assert algorithms.at_or_above((threshold,), threshold) == ((0,),)


@given(row=ROW, gap=st.floats(0, 3))
def test_every_pair_with_a_wide_gap_is_there_once(row: TaskScores, gap: float) -> None:
    found = algorithms.pairs_above_gap(row, gap)
    assert len({frozenset(pair) for pair in found}) == len(found)
    known = {place: score for place, score in enumerate(row) if score is not None}
    assert len(found) == sum(abs(known[a] - known[b]) > gap for a in known for b in known if a < b)


def test_a_gap_is_not_reached_by_what_equals_it() -> None:
    assert algorithms.pairs_above_gap((0.0, 1.0), 1.0) == ()


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_without_a_gap_pairs_are_chosen_in_any_unit(unit: float) -> None:
    answers = [[answer(f"{number}", number * unit) for number in (0, 1, 3)], [answer("same", unit)] * 2]
    picks, figures = chosen("rs-dpo", answers)
    assert (picks, figures.rows) == ([((2, 0), (2, 1)), ()], 2)


def test_twice_the_same_words_are_no_pair() -> None:
    """A tournament may throw the one out earlier than the other."""
    picks, _ = chosen("rso", [[answer("a", 1.0), answer("a ", 0.5), answer("b", 0.4), answer("c", 0.9)]])
    assert picks == [((3, 2),)]


def answer(text: str, score: float) -> ScoredAnswer:
    return ScoredAnswer(text=text, tokens=1, ended=True, score=score)


def chosen(name: str, groups: list[list[ScoredAnswer]]) -> tuple[list[algorithms.Selection], RoundFigures]:
    nowhere = Path("nowhere")
    first = LoopRound(
        number=1, folder=nowhere, model=nowhere, generator=nowhere, generated_in=1, threshold_index=0
    )
    settings = LoopSettings(beta=1e9 if name == "rso" else None)
    return select_rows(algorithms.ITERATIVE_ALGORITHMS[name], settings, first, groups, seed=0)


@given(rows=st.lists(ROW, max_size=4), share=st.floats(0.01, 1))
def test_a_share_of_the_best_answers_reaches_its_threshold(rows: list[TaskScores], share: float) -> None:
    known = [score for row in rows for score in row if score is not None]
    bar = algorithms.top_share_threshold(rows, share)
    assert sum(score >= bar for score in known) >= share * len(known) - 1e-6
    assert sum(score > bar for score in known) < max(1.0, share * len(known) + 1e-6)


def test_a_share_of_tenths_is_not_one_more() -> None:
    assert algorithms.top_share_threshold([tuple(map(float, range(30)))], 0.1) == 27.0


@given(row=ROW, beta=st.floats(0.01, 100), seed=st.integers(0, 9))
def test_the_best_answer_is_always_accepted(row: TaskScores, beta: float, seed: int) -> None:
    chance = random.Random(seed)
    places = algorithms.rejection_sampled(row, beta, [chance.random() for _ in row])
    known = {place: score for place, score in enumerate(row) if score is not None}
    assert {place for place, score in known.items() if score == max(known.values())} <= {*places}
    assert {*places} <= {*known}


def test_accepted_answers_follow_the_optimal_policy() -> None:
    """Of four answers with known chances: χ² with 3 degrees of freedom is above 16.3 once in a thousand."""
    drawn_with, reward, beta, chance = (0.5, 0.3, 0.15, 0.05), (0.0, 0.4, 1.0, 1.5), 0.7, random.Random(3)
    answers = chance.choices(range(4), weights=drawn_with, k=40_000)
    row = tuple(reward[answer] for answer in answers)
    kept = algorithms.rejection_sampled(row, beta, [chance.random() for _ in row], ceiling=max(reward))
    seen = Counter(answers[place] for place in kept)
    weight = [p * math.exp(r / beta) for p, r in zip(drawn_with, reward, strict=True)]
    expected = [len(kept) * one / sum(weight) for one in weight]
    assert sum((seen[a] - e) ** 2 / e for a, e in enumerate(expected)) < 16.3
    from_start = [len(kept) * one for one in drawn_with]
    assert sum((seen[a] - e) ** 2 / e for a, e in enumerate(from_start)) > 1000, "the test must see something"
    rate = sum(p * math.exp((r - 1.5) / beta) for p, r in zip(drawn_with, reward, strict=True))
    assert len(kept) / len(row) == pytest.approx(rate, rel=0.05)


def test_limits_of_beta() -> None:
    row, chances = (0.0, 1.0, 0.5), (0.999, 0.999, 0.999)
    assert algorithms.rejection_sampled(row, 1e-6, chances) == (1,)
    assert algorithms.rejection_sampled(row, 1e6, chances) == (0, 1, 2)
    assert algorithms.rejection_sampled((None,), 1.0, (0.0,)) == ()
    for beta in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="beta must be a number above 0"):
            algorithms.rejection_sampled(row, beta, chances)
    with pytest.raises(UserError, match="above the ceiling"):
        algorithms.rejection_sampled(row, 1.0, chances, ceiling=0.9)


def test_answers_are_paired_as_they_come() -> None:
    row = (0.1, 0.9, None, 0.4, 0.2, 0.2)
    assert algorithms.pairs_in_order(row, (0, 1, 3, 4)) == ((1, 0), (3, 4))
    assert algorithms.pairs_in_order(row, (0, 2, 4, 5)) == ()
    assert algorithms.pairs_in_order(row, (1, 0, 3)) == ((1, 0),)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_distance_of_the_best_of_n_is_that_of_continuous_scores(n: int) -> None:
    """The best of n has density n F^(n−1) beside the drawn one: its KL, by counting over a fine grid."""
    cells = 20_000
    shares = [((k + 1) ** n - k**n) / cells**n for k in range(cells)]
    exact = sum(share * math.log(share * cells) for share in shares)
    assert algorithms.best_of_n_kl(n) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("n", [2, 8])
def test_equal_scores_leave_the_best_of_n_nearer(n: int) -> None:
    """Two scores, each drawn half of the time: the best of n is the low one only if all are."""
    low = 0.5**n
    assert 0 < low * math.log(2 * low) + (1 - low) * math.log(2 * (1 - low)) < algorithms.best_of_n_kl(n)
    with pytest.raises(UserError, match="expected 1 or more"):
        algorithms.best_of_n_kl(0)
