"""Losses of group preferences: closed forms, signs, limits, and gradients by finite differences."""

import math

import pytest
import torch
from torch.distributions import Categorical, Normal

from plaudit.losses.reward import bradley_terry, gaussian_rating_nll, group_choice_nll
from tests.models.group_modules import normal


def test_a_choice_is_bradley_and_terrys_of_two_and_a_cross_entropy_without_level_of_several() -> None:
    score_B2, chance_B = normal(7, 2), torch.rand(7, dtype=torch.float64)
    share_B2 = torch.stack((chance_B, 1 - chance_B), dim=-1)
    wanted_B = bradley_terry(score_B2[:, 0], score_B2[:, 1], label=chance_B)
    torch.testing.assert_close(group_choice_nll(score_B2, share_B2), wanted_B, rtol=0, atol=1e-12)
    score_BK, share_BK = normal(5, 4), normal(5, 4, seed=1).softmax(-1)
    law = Categorical(logits=score_BK)
    wanted_B = -sum(share_BK[:, k] * law.log_prob(torch.tensor(k)) for k in range(4))
    torch.testing.assert_close(group_choice_nll(score_BK, share_BK), wanted_B)
    torch.testing.assert_close(group_choice_nll(score_BK + 9, share_BK), wanted_B)


def test_the_preferred_answer_is_pushed_up_by_what_is_missing_to_certainty() -> None:
    score_B2 = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    group_choice_nll(score_B2, torch.tensor([[1.0, 0.0]], dtype=torch.float64)).sum().backward()
    assert score_B2.grad is not None
    assert score_B2.grad.tolist() == [[-0.5, 0.5]]


def test_ratings_are_normal_around_the_prediction_and_the_best_spread_is_the_error_itself() -> None:
    mean_N, log_std_N, rating_N = normal(6), normal(6, seed=1), normal(6, seed=2)
    wanted_N = -Normal(mean_N, log_std_N.exp()).log_prob(rating_N)
    torch.testing.assert_close(gaussian_rating_nll(mean_N, log_std_N, rating_N), wanted_N)
    half_N = gaussian_rating_nll(mean_N, torch.zeros_like(mean_N), rating_N) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(half_N, 0.5 * (rating_N - mean_N).square())
    log_std_N = torch.tensor([math.log(3.0)], dtype=torch.float64, requires_grad=True)
    gaussian_rating_nll(
        torch.zeros(1, dtype=torch.float64), log_std_N, torch.full((1,), -3.0).double()
    ).sum().backward()
    assert log_std_N.grad is not None
    assert float(log_std_N.grad) == pytest.approx(0.0, abs=1e-12)


def test_gradients_by_finite_differences() -> None:
    share_BK, rating_N = normal(3, 4, seed=3).softmax(-1), normal(5, seed=4)
    assert torch.autograd.gradcheck(
        lambda score: group_choice_nll(score, share_BK), normal(3, 4).requires_grad_()
    )
    inputs = (normal(5, seed=5).requires_grad_(), normal(5, seed=6).requires_grad_())
    assert torch.autograd.gradcheck(
        lambda mean, log_std: gaussian_rating_nll(mean, log_std, rating_N), inputs
    )
