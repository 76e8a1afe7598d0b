"""Best-of-n: the estimator against all choices and orders of answers, and the curve of known rewards."""

from itertools import combinations

import numpy as np
import pytest

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.accuracy import best_of_n_curve, best_of_n_kl, best_of_n_truth
from plaudit.evaluation.reward_models.pairs import score_tasks
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.base import FunctionReward

DRAWS = Resampling(times=100)


def enumerated(proxy_N, truth_N, n: int) -> float:
    """The mean over all subsets of n; level ones share."""
    found = []
    for chosen in combinations(range(len(proxy_N)), n):
        top = max(proxy_N[i] for i in chosen)
        found.append(np.mean([truth_N[i] for i in chosen if proxy_N[i] == top]))
    return float(np.mean(found))


@pytest.mark.parametrize("levels", [100, 3, 1])
def test_the_estimator_is_the_mean_over_all_choices(levels):
    chance = np.random.default_rng(levels)
    proxy_N = chance.integers(levels, size=7).astype(float)
    truth_N = chance.normal(size=7)
    sizes = range(1, 8)
    wanted = [enumerated(proxy_N, truth_N, n) for n in sizes]
    assert best_of_n_truth(proxy_N, truth_N, sizes).tolist() == pytest.approx(wanted)


def test_many_answers_do_not_overflow():
    proxy_N = np.arange(2000.0)
    assert best_of_n_truth(proxy_N, proxy_N, [1, 2000]).tolist() == pytest.approx([999.5, 1999.0])


@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_distance_of_best_of_n_is_that_of_a_continuous_reward(n):
    """The best of n uniform draws has density n u^(n − 1); its KL by quadrature."""
    density = n * ((np.arange(200_000) + 0.5) / 200_000) ** (n - 1)
    assert best_of_n_kl(n) == pytest.approx(float((density * np.log(density)).mean()), abs=1e-4)


def curve(proxy, truth, prompts: int = 200, answers: int = 8):
    chance = np.random.default_rng(0)
    tasks = [
        Task(
            prompt=f"q{p}", answers=tuple(f"{x:.9f}" for x in chance.random(answers)), ended=(True,) * answers
        )
        for p in range(prompts)
    ]
    scores = [score_tasks(tasks, FunctionReward(name="r", function=f)) for f in (proxy, truth)]
    return best_of_n_curve(tasks, *scores, DRAWS)


@pytest.mark.slow
def test_a_perfect_model_reaches_what_is_possible_and_an_upside_down_one_falls():
    perfect = curve(lambda q, a: float(a), lambda q, a: float(a))
    assert [p.n for p in perfect.points] == [1, 2, 4, 8]
    assert [p.truth.value for p in perfect.points] == [p.possible for p in perfect.points]
    means = [p.truth.value for p in perfect.points]
    assert means == pytest.approx([n / (n + 1) for n in (1, 2, 4, 8)], abs=0.03)
    fallen = curve(lambda q, a: -float(a), lambda q, a: float(a))
    assert [p.truth.value for p in fallen.points] == sorted(
        (p.truth.value for p in fallen.points), reverse=True
    )
    assert [p.proxy for p in fallen.points] == sorted(p.proxy for p in fallen.points)
    point = perfect.points[1].truth
    assert point.low < point.value < point.high
    assert point.prompts == 200


def test_a_prompt_with_an_answer_without_verdict_is_left_out():
    found = curve(lambda q, a: None if q == "q3" else 1.0, lambda q, a: float(a))
    assert (found.prompts, found.left_out) == (199, 1)
    with pytest.raises(UserError, match="no prompt"):
        curve(lambda q, a: None, lambda q, a: 1.0)
