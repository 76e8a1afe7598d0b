"""Over-optimisation curves: planted coefficients, another fitter, and no word beyond what was measured."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.evaluation.policies.over_optimisation import best_of_n_over_optimisation, fit_over_optimisation
from plaudit.evaluation.stats import Resampling
from tests.evaluation.policies.duels import DRAWS

D = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0])


def best_of_n(d, alpha, beta):
    return d * (alpha - beta * d)


def policy(d, alpha, beta):
    return d * (alpha - beta * np.log(np.where(d > 0, d, 1.0)))


CURVES = {"best-of-n": (best_of_n, 1.0, 0.1), "policy": (policy, 1.0, 0.5)}


def gains(form, noise=0.3, prompts=200, seed=0, *, d=D):
    curve, alpha, beta = CURVES[form]
    chance = np.random.default_rng(seed)
    own = chance.normal(0, noise, (prompts, 1)) * d
    return curve(d, alpha, beta) + own + chance.normal(0, noise, (prompts, len(d))) * (d > 0)


@pytest.mark.parametrize("form", CURVES)
def test_without_noise_the_planted_coefficients_come_back_to_the_last_digits(form):
    curve, alpha, beta = CURVES[form]
    found = fit_over_optimisation(D**2, gains(form, noise=0.0), form, DRAWS)
    assert (found.alpha.value, found.beta.value) == pytest.approx((alpha, beta), rel=1e-12)
    assert found.error == pytest.approx(0, abs=1e-12)
    fine = np.linspace(0.01, 8, 100_000)
    assert found.peak.value == pytest.approx(fine[np.argmax(curve(fine, alpha, beta))], abs=1e-3)
    assert found.height == pytest.approx(curve(fine, alpha, beta).max(), rel=1e-6)
    closed = (5.0, 2.5) if form == "best-of-n" else (np.exp(1.0), 0.5 * np.exp(1.0))
    assert (found.peak.value, found.height) == pytest.approx(closed)
    assert found.note is None
    assert found.gain_at(0) == 0
    assert found.gain_at(3.0) == pytest.approx(curve(np.array(3.0), alpha, beta))
    assert found.gain_at(8.1) is None
    assert f"d = {closed[0]:.2f} (" in found.sentence
    assert f"with {closed[1]:+.3f}; the curve misses the measured gains by 0.000" in found.sentence


@pytest.mark.parametrize("form", CURVES)
def test_it_is_the_least_squares_that_scipy_finds_step_by_step(form):
    gain_PS = gains(form)
    found = fit_over_optimisation(D**2, gain_PS, form, DRAWS)
    peer, _ = curve_fit(CURVES[form][0], D, gain_PS.mean(0), p0=(0.3, 0.3), xtol=1e-14, ftol=1e-14)
    assert (found.alpha.value, found.beta.value) == pytest.approx(tuple(peer), rel=1e-6)


@pytest.mark.parametrize("form", ["best-of-n", pytest.param("policy", marks=pytest.mark.slow)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(form):
    _, alpha, beta = CURVES[form]
    held = []
    for seed in range(60):
        found = fit_over_optimisation(D**2, gains(form, prompts=80, seed=seed), form, DRAWS)
        held.append([x.low <= truth <= x.high for x, truth in ((found.alpha, alpha), (found.beta, beta))])
    assert np.mean(held) >= 0.88
    assert (found.alpha.n, found.alpha.prompts) == (80 * 7, 80)


def test_a_curve_that_has_not_turned_has_no_peak():
    near = D[:4]
    found = fit_over_optimisation(near**2, gains("best-of-n", noise=0.0, d=near), "best-of-n", DRAWS)
    assert found.peak is found.height is None
    assert found.note == "the gain has not turned: a peak would lie beyond what was measured, √KL 2"
    assert found.sentence == found.note
    rising = fit_over_optimisation(D**2, np.tile(D + D**2, (5, 1)), "best-of-n", DRAWS)
    assert rising.beta.value == pytest.approx(-1)
    assert "has not turned" in rising.note


def test_a_curve_that_falls_from_the_start_is_said_to():
    found = fit_over_optimisation(D**2, np.tile(-D, (5, 1)) - 0.1 * D**2, "best-of-n", DRAWS)
    assert found.peak is None
    assert found.note == "the gain falls from the first distance that was measured, √KL 0.5"
    steep = fit_over_optimisation(D**2, np.tile(policy(D, -3.0, 0.5), (5, 1)), "policy", DRAWS)
    assert "falls from the first" in steep.note


def test_an_end_of_the_peaks_interval_that_was_not_measured_is_none():
    """Half of the prompts turn at 1 and half never: together at 4, and in many a draw beyond 8."""
    turning, rising = (best_of_n(D, 1.0, beta) for beta in (0.5, -0.25))
    found = fit_over_optimisation(D**2, np.stack([turning, rising] * 10), "best-of-n", DRAWS)
    assert found.peak.value == pytest.approx(4)
    assert 1 < found.peak.low < 4
    assert found.peak.high is None
    assert "to beyond what was measured)" in found.sentence


def test_one_prompt_has_no_interval():
    found = fit_over_optimisation(D**2, gains("policy", prompts=1, noise=0.0), "policy", DRAWS)
    assert (found.alpha.low, found.beta.high, found.peak.low) == (None, None, None)


@pytest.mark.parametrize(
    ("kl", "gain", "error", "why"),
    [
        ([0.0, 1.0, 4.0], [[0.0, 1.0, 1.0]], UserError, "three policies or more"),
        ([1.0, 1.0, 4.0], [[0.0, 1.0, 1.0]], UserError, "three policies or more"),
        ([1.0, 2.0, 4.0], np.zeros((0, 3)), UserError, "and a prompt"),
        ([-0.1, 1.0, 4.0, 9.0], [[0.0, 1.0, 1.0, 1.0]], ValueError, "never below 0"),
        ([1.0, 4.0, 9.0], [[0.0, float("nan"), 1.0]], ValueError, "no finite number"),
    ],
)
def test_what_gives_no_curve_is_refused(kl, gain, error, why):
    with pytest.raises(error, match=why):
        fit_over_optimisation(np.array(kl), np.array(gain, dtype=float), "policy", DRAWS)


def test_best_of_n_by_a_proxy_that_is_wrong_at_the_top_rises_and_falls():
    chance = np.random.default_rng(0)
    tasks, proxies, truths = [], {}, {}
    for prompt in range(300):
        answers = tuple(f"a{n}" for n in range(64))
        tasks.append(Task(prompt=f"q{prompt}", answers=answers, ended=(True,) * 64))
        for answer, proxy in zip(answers, chance.normal(size=64), strict=True):
            key = (f"q{prompt}", answers, answer)
            proxies[key] = float(proxy)
            truths[key] = float(min(proxy, 2.4 - proxy) + chance.normal(0, 0.1))
    found = best_of_n_over_optimisation(tasks, proxies, truths, Resampling(times=100))
    assert found.form == "best-of-n"
    assert found.furthest == pytest.approx(np.sqrt(np.log(64) - 63 / 64))
    assert 0.8 < found.peak.low < found.peak.value < found.furthest
    assert found.height > 0.5
    proxies[tasks[0].prompt, tasks[0].answers, "a7"] = None
    assert best_of_n_over_optimisation(tasks, proxies, truths, DRAWS).alpha.prompts == 299


def test_four_answers_to_a_prompt_give_no_curve():
    task = Task(prompt="q", answers=("a", "b", "c", "d"), ended=(True,) * 4)
    scores = {("q", task.answers, answer): 1.0 for answer in task.answers}
    assert best_of_n_over_optimisation([task], scores, scores, DRAWS) is None
    assert best_of_n_over_optimisation([], {}, {}, DRAWS) is None
