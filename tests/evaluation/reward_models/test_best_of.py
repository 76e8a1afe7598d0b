"""Best-of-n: the estimator against all choices and orders of answers, and the curve of known rewards."""

import numpy as np
import pytest

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.accuracy import best_of_n_curve, best_of_n_truth
from plaudit.evaluation.reward_models.pairs import score_tasks
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.base import FunctionReward

DRAWS = Resampling(times=100)


def test_many_answers_do_not_overflow():
    proxy_N = np.arange(2000.0)
    assert best_of_n_truth(proxy_N, proxy_N, [1, 2000]).tolist() == pytest.approx([999.5, 1999.0])


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
