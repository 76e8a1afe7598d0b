"""Length-controlled win rates: planted truths, other fitters, and what cannot be told."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from plaudit.evaluation.policies.win_rate import length_controlled_win_rate, verdict_array
from plaudit.evaluation.stats import Resampling, win_rate_at_equal_features
from tests.evaluation.policies.duels import DRAWS, drawn, duel


def growing(verdict):
    """Sixty duels in which mine grows; each is decided by its number."""
    return [duel(float(verdict(n)), prompt=f"{n}", mine="a" * n, theirs="b" * 30) for n in range(60)]


def raw(duels):
    return verdict_array(duels).mean()


def test_a_judge_that_likes_length_makes_a_longer_policy_win_and_the_control_takes_it_back():
    duels = drawn(0.0, 2.0, longer=40)
    assert raw(duels) > 0.65
    found = length_controlled_win_rate(duels, DRAWS).value
    assert found.low < 0.5 < found.high
    assert found.value == pytest.approx(0.5, abs=0.08)


def test_a_policy_that_is_truly_better_stays_better_and_one_that_is_longer_and_worse_is_found_out():
    better = length_controlled_win_rate(drawn(1.0, 1.0, longer=20), DRAWS).value
    assert better.low > 0.6
    assert better.low < 1 / (1 + np.exp(-1.0)) < better.high
    worse = drawn(-0.7, 2.5, longer=60)
    assert raw(worse) > 0.55
    assert length_controlled_win_rate(worse, DRAWS).value.high < 0.5


def columns(duels):
    gap_B = np.array([len(one.mine) - len(one.theirs) for one in duels], dtype=float)
    return np.tanh(gap_B / gap_B.std()), verdict_array(duels)


def test_it_is_the_maximum_of_the_likelihood_that_other_fitters_find():
    duels = drawn(0.4, 1.5, longer=25, prompts=150)
    soft = [replace(one, forward=0.7 * one.verdict + 0.1, backward=0.7 * one.verdict + 0.1) for one in duels]
    for pairs in (duels, soft):
        x_B, y_B = columns(pairs)

        def loss(beta, x_B=x_B, y_B=y_B):
            eta_B = beta[0] + beta[1] * x_B
            return float((np.logaddexp(0, eta_B) - y_B * eta_B).sum())

        best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9, "xrtol": 1e-12})
        found = length_controlled_win_rate(pairs, DRAWS).value.value
        assert found == pytest.approx(1 / (1 + np.exp(-best.x[0])), abs=1e-7)
        # Every row twice, once as a win and once as a loss, with the weights of its chance.
        peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
            np.tile(x_B, 2)[:, None], np.repeat([1, 0], len(x_B)), np.concatenate([y_B, 1 - y_B])
        )
        assert found == pytest.approx(1 / (1 + np.exp(-peer.intercept_[0])), abs=1e-5)


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    truth = 1 / (1 + np.exp(-0.5))
    covered = []
    for seed in range(60):
        one = length_controlled_win_rate(drawn(0.5, 1.0, longer=20, prompts=200, seed=seed), DRAWS).value
        covered.append(one.low <= truth <= one.high)
    assert np.mean(covered) >= 0.88


def test_pairs_that_share_a_prompt_widen_the_interval():
    duels = drawn(0.3, 1.0, prompts=100, each=6, seed=3)
    alone = [replace(one, prompt=f"{n}") for n, one in enumerate(duels)]
    wide, narrow = (length_controlled_win_rate(some, DRAWS).value for some in (duels, alone))
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 1.2 * (narrow.high - narrow.low)


def test_where_all_answers_are_of_one_length_it_is_the_raw_rate():
    duels = [duel(float(n % 3 > 0), prompt=f"q{n}", mine="abc", theirs="xyz") for n in range(30)]
    assert length_controlled_win_rate(duels, DRAWS).value.value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("duels", "why"),
    [
        ([], "no verdict"),
        ([duel(None)], "no verdict"),
        (drawn(0.0, 1.0, prompts=8), "8 prompts are too few"),
        (drawn(0.0, 1.0, prompts=19), "19 prompts are too few for 2 coefficients: it takes 20"),
        (drawn(0.0, 1.0, prompts=5, each=100), "5 prompts are too few"),
        ([duel(n % 2, prompt=f"{n}", mine="abcd", theirs="xy") for n in range(60)], "by the same"),
        (growing(lambda n: True), "every pair is won"),
        (growing(lambda n: False), "every pair is lost"),
        (growing(lambda n: n > 29), "foretells every verdict"),
        (growing(lambda n: n > 40), "foretells every verdict"),
    ],
)
def test_what_cannot_be_told_apart_is_none_with_a_reason_and_never_a_number(duels, why):
    found = length_controlled_win_rate(duels, DRAWS)
    assert found.value is None
    assert why in found.reason


def test_a_fit_that_hangs_on_a_single_pair_gives_no_number():
    """Without that pair length foretells everything, and it is missing from a third of all draws."""
    duels = [one for one in growing(lambda n: n > 29) if one.prompt != "30"]
    duels.append(duel(1.0, prompt="odd", mine="a" * 5, theirs="b" * 30))
    found = length_controlled_win_rate(duels, Resampling(times=1000))
    assert found.value is None
    assert "draws of prompts" in found.reason


def test_features_that_only_together_decide_a_few_pairs_leave_with_these_pairs():
    """Marks that come in two kinds, each won and lost, and three pairs that a weighing of both foretells."""
    chance = np.random.default_rng(0)
    free_BF = np.column_stack([chance.normal(size=197), np.zeros((197, 2))])
    free_BF[:4, 1:] = np.outer([1, 1, 2, 2], [2, 1])
    won_B = (chance.random(197) < 0.7).astype(float)
    won_B[:4] = [0, 1, 0, 1]
    few_BF = np.array([[0.3, 0, 1.0], [0.1, 0, 2.0], [-0.5, 0, 1.0]])
    x_BF, y_B = np.concatenate([free_BF, few_BF]), np.concatenate([won_B, np.ones(3)])
    found = win_rate_at_equal_features(x_BF, y_B, np.arange(200), DRAWS)
    assert found.reason == "3 pairs are left out, whose looks alone decide them"
    # What is left of both kinds is one column, and the likelihood's limit is that of the other 197 pairs.
    left = win_rate_at_equal_features(free_BF[:, :2], won_B, np.arange(197), DRAWS)
    assert found.value.value == pytest.approx(left.value.value, abs=1e-9)
    ever = win_rate_at_equal_features(x_BF * [1, 1, 1 + 1e-3], y_B, np.arange(200), DRAWS)
    assert ever.value.value == pytest.approx(left.value.value, abs=1e-6)


def test_draws_are_solved_together_as_they_are_one_by_one():
    from scipy.stats import norm, t
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    x_B, y_B = columns(drawn(0.5, 1.0, prompts=60))
    draws = Resampling(times=50, seed=3)
    found = win_rate_at_equal_features(x_B[:, None], y_B, np.arange(60), draws).value
    times_SP = np.random.default_rng(3).multinomial(60, np.full(60, 1 / 60), size=50)
    design_BC = np.column_stack([x_B, np.ones(60)])
    thetas = [
        GLM(y_B, design_BC, family=Binomial(), freq_weights=times_P.astype(float)).fit().params[1]
        for times_P in times_SP
    ]
    levels = norm.cdf(np.sqrt(60 / 59) * t.ppf((0.025, 0.975), 59))
    ends = 1 / (1 + np.exp(-np.quantile(thetas, levels)))
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=1e-3)
