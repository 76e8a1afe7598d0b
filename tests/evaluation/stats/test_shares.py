"""Shares with intervals by prompts: by their definition, and on rows whose truth is set."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import t

from plaudit.collect.quality.agreement import agreements
from plaudit.evaluation.shares import share_estimate
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from tests.collect.quality.test_agreement import values_of


def ends(found: Estimate) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_ends_are_the_shares_from_which_the_measured_one_is_t_deviations_off() -> None:
    found = share_estimate(np.array([1.0, 1, 1, 0, 1, 0, 1, 1]), np.arange(8))
    # Of rows that are each a prompt of its own the variance is p(1 − p)/(n − 1): they are worth n − 1.
    for end in ends(found):
        assert abs(0.75 - end) == pytest.approx(t.ppf(0.975, 7) * sqrt(end * (1 - end) / 7))


def test_rows_that_say_the_same_of_one_prompt_are_worth_one_row() -> None:
    value_B, prompt_B = np.array([1.0, 1, 1, 0, 1, 0, 1, 1]), np.arange(8)
    once, thrice = (share_estimate(value_B.repeat(n), prompt_B.repeat(n)) for n in (1, 3))
    assert ends(thrice) == pytest.approx(ends(once))
    assert (thrice.n, thrice.prompts) == (24, 8)


def test_where_all_say_the_same_each_prompt_counts_once_and_one_prompt_gives_no_interval() -> None:
    never = share_estimate(np.zeros(40), np.arange(10).repeat(4))
    assert ends(never) == (0.0, pytest.approx(t.ppf(0.975, 9) ** 2 / (10 + t.ppf(0.975, 9) ** 2)))
    single = share_estimate(np.array([1.0, 0.0]), np.zeros(2, dtype=np.int64))
    assert (single.value, single.low, single.high) == (0.5, None, None)


def test_what_cannot_vary_has_no_width() -> None:
    """Of a fair judge asked in both orders exactly one of two readings prefers the first shown."""
    assert ends(share_estimate(np.array([1.0, 0.0] * 5), np.arange(5).repeat(2))) == (0.5, 0.5)


@pytest.mark.parametrize("true", [0.5, 0.8, 0.9])
def test_intervals_hold_what_is_set_where_rows_of_a_prompt_go_together(true: float) -> None:
    rng, held = np.random.default_rng(3), 0
    prompt_B = np.arange(60).repeat(3)
    for _ in range(1000):
        # Half of the rows say what their prompt says, the other half is drawn for itself.
        shared_B = (rng.random(60) < true).repeat(3)
        value_B = np.where(rng.random(180) < 0.5, shared_B, rng.random(180) < true).astype(float)
        low, high = ends(share_estimate(value_B, prompt_B))
        held += low <= true <= high
    assert 0.93 <= held / 1000 <= 0.98


@pytest.mark.parametrize(("prompts", "labels"), [(10, 1), (15, 3)])
def test_intervals_of_few_prompts_hold_the_truth(prompts: int, labels: int) -> None:
    """Plain percentiles of the draws hold it nine times in ten."""
    rng, inside, alphas = np.random.default_rng(1), 0, 0
    for seed in range(400):
        value_P = rng.beta(5, 1.5, size=prompts)
        draws = Resampling(times=400, seed=seed)
        found = bootstrap_mean(value_P, np.arange(prompts), draws)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 5 / 6.5 <= found.high
        if labels > 1:
            right_B = rng.random(prompts * labels) < 0.9
            truth_B = (np.arange(prompts) % 2).repeat(labels)
            said_BL = np.where(right_B, truth_B, 1 - truth_B).reshape(prompts, labels)
            alpha = agreements(values_of(1 + said_BL.T, 2, "nominal"), draws).alpha
            alphas += (alpha.low or 0.0) <= 0.64 <= (alpha.high or 1.0)
    assert 0.925 <= inside / 400 <= 0.985
    assert labels == 1 or 0.92 <= alphas / 400 <= 0.995
