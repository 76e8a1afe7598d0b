"""Bradley-Terry ratings: against a maximum likelihood of our own, and where there are none."""

from itertools import combinations
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from plaudit.errors import UserError
from plaudit.evaluation.policies.corrected import PAIR, PeopleLabels
from plaudit.evaluation.policies.judge_card import contest_correction
from plaudit.evaluation.policies.win_rate import (
    contest_result,
    elo_ratings,
    verdict_array,
    why_unrated,
    with_verdict,
)
from plaudit.evaluation.stats import Estimate, wilson_interval
from tests.evaluation.policies.duels import DRAWS, duel

NAMES = ("base", "sft", "dpo", "ppo")
SCALE = 400 / log(10)


def tournament(prompts=80, seed=0, *, soft=False):
    chance = np.random.default_rng(seed)
    strength = dict(zip(NAMES, (0.0, 0.7, 1.2, 1.5), strict=True))
    table = {}
    for one, other in combinations(NAMES, 2):
        p = 1 / (1 + np.exp(strength[other] - strength[one]))
        said = (
            chance.random(prompts)
            if soft
            else chance.choice([0, 0.5, 1], prompts, p=[0.8 * (1 - p), 0.2, 0.8 * p])
        )
        table[one, other] = [duel(float(v), prompt=f"q{n}") for n, v in enumerate(said)]
    return table


def likeliest(table):
    """Log-strengths by minimising the cross-entropy with BFGS, in float64."""
    names = list(dict.fromkeys(name for pair in table for name in pair))
    rows = [(names.index(a), names.index(b), d.verdict) for (a, b), some in table.items() for d in some]
    first, second, won = (np.array(column) for column in zip(*rows, strict=True))

    def loss(s):
        gap = s[first] - s[second]
        return float((np.logaddexp(0, gap) - won * gap).sum())

    def slope(s):
        off = 1 / (1 + np.exp(-(s[first] - s[second]))) - won
        return np.bincount(first, off, len(names)) - np.bincount(second, off, len(names))

    best = minimize(loss, np.zeros(len(names)), jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    return dict(zip(names, 1000 + SCALE * (best - best.mean()), strict=True))


@pytest.mark.parametrize("soft", [False, True])
def test_ratings_are_the_maximum_of_the_likelihood(soft):
    table = tournament(soft=soft)
    assert {x.name: x.elo for x in elo_ratings(table, DRAWS)} == pytest.approx(likeliest(table), abs=1e-4)


@pytest.mark.slow
def test_intervals_draw_prompts_and_hold_the_planted_strengths():
    table = tournament(prompts=150, seed=4)
    found = elo_ratings(table, DRAWS)
    assert all(one.low < one.elo < one.high for one in found)
    again = elo_ratings({pair: some * 3 for pair, some in table.items()}, DRAWS)
    for one, other in zip(found, again, strict=True):
        assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=1e-4)
    assert found == elo_ratings(table, DRAWS)


def test_pairs_without_a_verdict_are_left_out():
    table = tournament()
    more = {pair: [*some, duel(None, prompt="new")] for pair, some in table.items()}
    assert [one.elo for one in elo_ratings(more, DRAWS)] == pytest.approx(
        [one.elo for one in elo_ratings(table, DRAWS)]
    )


def test_policies_that_never_met_have_no_common_scale():
    mixed = [duel(1.0, prompt="a"), duel(0.0, prompt="b")]
    table = {("a", "b"): mixed, ("c", "d"): mixed}
    assert elo_ratings(table, DRAWS) == ()
    assert why_unrated(table) == "there is no verdict that joins a, b and c, d: have them compared"
    table["b", "c"] = mixed
    assert why_unrated(table) is None
    assert len(elo_ratings(table, DRAWS)) == 4


def test_whoever_never_lost_is_named():
    mixed = [duel(1.0, prompt="a"), duel(0.0, prompt="b")]
    won = [duel(1.0, prompt="a"), duel(1.0, prompt="b")]
    table = {("a", "b"): mixed, ("a", "c"): won, ("b", "c"): won}
    assert elo_ratings(table, DRAWS) == ()
    assert why_unrated(table).startswith("a, b never lost to the others")
    table["b", "c"] = [*won, duel(0.5, prompt="c")]
    assert why_unrated(table) is None


def test_a_rating_that_hangs_on_one_prompt_has_no_interval():
    found = elo_ratings({("a", "b"): [duel(float(n > 0), prompt=f"{n}") for n in range(20)]}, DRAWS)
    assert found[0].elo - found[1].elo == pytest.approx(SCALE * log(19))
    assert {(one.low, one.high) for one in found} == {(None, None)}


def test_nobody_and_oneself_cannot_be_rated():
    assert elo_ratings({}, DRAWS) == ()
    for table in ({}, {("a", "b"): [duel(None)]}):
        assert why_unrated(table) == "there is no verdict on any two policies"
    with pytest.raises(UserError, match="a cannot be rated against itself"):
        elo_ratings({("a", "a"): [duel(1.0)]}, DRAWS)


def judged_wrongly(chance, *, biased):
    """Three policies by a judge who likes the base in place of the better one, or errs in a quarter of pairs;
    people labelled a third of them, or there is a card of 400 pairs."""
    strength, duels, labels = dict(zip(NAMES, (0.0, 0.5, 1.0), strict=False)), {}, {}
    for one, other in combinations(strength, 2):
        people = chance.random(360) < 1 / (1 + np.exp(strength[other] - strength[one]))
        agrees = chance.random(360) < 0.75
        said = np.where(agrees, people, one == "base") if biased else people == agrees
        words = [{"prompt": f"q{n}", "mine": f"{one} {n}", "theirs": f"{other} {n}"} for n in range(360)]
        duels[one, other] = [duel(float(v), **word) for v, word in zip(said, words, strict=True)]
        labels |= {(PAIR, *word.values()): float(v) for v, word in zip(people[:120], words, strict=False)}
    right = chance.binomial(400, 0.75)
    low, high = wilson_interval(right / 400, 400)
    card = SimpleNamespace(agreement=Estimate(value=right / 400, low=low, high=high, n=400, prompts=400))
    corrected = {}
    for pair, some in duels.items():
        contest = contest_result((*pair, "judge"), some, DRAWS, sees_order=False)
        given = (PeopleLabels(source="", values=labels), None) if biased else (None, card)
        _, corrected[pair] = contest_correction(contest, some, *given)
    return duels, corrected, {name: 1000 + SCALE * (each - 0.5) for name, each in strength.items()}


@pytest.mark.parametrize("biased", [True, False])
def test_ratings_of_corrected_win_rates_are_nearer_to_the_truth_and_their_intervals_hold_it(biased):
    off, held = {"raw": [], "corrected": []}, {"raw": [], "corrected": []}
    for seed in range(12):
        duels, corrected, truth = judged_wrongly(np.random.default_rng(seed), biased=biased)
        for name, used in (("raw", None), ("corrected", corrected)):
            for one in elo_ratings(duels, DRAWS, used):
                off[name].append(abs(one.elo - truth[one.name]))
                held[name].append(one.low <= truth[one.name] <= one.high)
    assert np.mean(off["corrected"]) < 0.7 * np.mean(off["raw"])
    # Of 36 at 95 %, three of a world and so not independent.
    assert np.mean(held["corrected"]) >= 0.85 > np.mean(held["raw"]) + 0.2


@pytest.mark.parametrize(
    ("forward", "backward", "verdict"),
    [
        (1.0, 1.0, 1.0),
        (0, 0, 0.0),
        (1.0, 0.0, 0.5),
        (0.875, 0.25, 0.5),
        (0.875, 0.625, 0.75),
        (1.0, 0.5, 0.75),
        (0.5, 0.5, 0.5),
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_both_orders_are_averaged_and_a_contradiction_is_a_tie(forward, backward, verdict):
    one = duel(forward, backward, category="fact", reason="refused")
    assert one.verdict == pytest.approx(verdict) if verdict is not None else one.verdict is None
    turned = one.swapped.verdict
    assert turned == pytest.approx(1 - verdict) if verdict is not None else turned is None
    assert one.swapped.swapped == one
    assert (one.swapped.mine, one.swapped.category, one.swapped.reason) == ("other", "fact", "refused")


@pytest.mark.parametrize("chance", [1.1, -0.1, float("nan")])
def test_what_is_no_chance_is_refused(chance):
    with pytest.raises(ValueError, match="no chance"):
        duel(0.5, chance)


def test_only_pairs_with_a_verdict_are_counted():
    assert verdict_array(with_verdict([duel(1.0), duel(None), duel(0.5)])).tolist() == [1.0, 0.5]
