"""What a tiny language lets us know without sampling: the optimum, KL, the objective and its gradient.

The objective is J(π) = E_π r − β KL(π ‖ π_ref), a mean over the prompts; its optimum is
π*(y|x) ∝ π_ref(y|x) exp(r(x, y) / β).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.proof.language import Language


def optimum(spoken: Language, beta: float) -> Float[Tensor, "P Y"]:
    """log π*.

    >>> from plaudit.proof.language import language
    >>> spoken = language(seed=0)
    >>> objective_gradient(optimum(spoken, 0.5), spoken, 0.5).abs().max().item() < 1e-12
    True
    """
    return tilted(spoken.ref_logp_PY, spoken.reward_PY / beta)


def tilted(logp_PY: Float[Tensor, "P Y"], gain_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P Y"]:
    """log of π(y|x) ∝ exp(log π + gain)."""
    return (logp_PY + gain_PY).log_softmax(-1)


def levelled(
    family: Callable[[Float[Tensor, "P 1"]], Float[Tensor, "P Y"]], prompts: int
) -> Float[Tensor, "P Y"]:
    """The member of a family of log-probs, rising in its constant c, whose probabilities add up to 1.

    Where the family has no value (nan) c is too large. Losses of mean log-probs leave c open, and only the
    sum over all answers settles it.

    >>> logp_PY = levelled(lambda c_P1: c_P1 + torch.zeros(1, 4, dtype=torch.float64), 1)
    >>> logp_PY.exp().round(decimals=6).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    low_P1 = torch.full((prompts, 1), -1e3, dtype=torch.float64)
    high_P1 = -low_P1
    for _ in range(200):
        middle_P1 = (low_P1 + high_P1) / 2
        sum_P1 = family(middle_P1).exp().sum(-1, keepdim=True)
        fits_P1 = sum_P1 <= 1
        low_P1 = torch.where(fits_P1, middle_P1, low_P1)
        high_P1 = torch.where(fits_P1, high_P1, middle_P1)
    return family(low_P1)


def preferences(spoken: Language) -> Float[Tensor, "P Y Y"]:
    """p(y ≻ z | x) = σ(r(x, y) − r(x, z)), Bradley and Terry's chance of every ordered pair."""
    return (spoken.reward_PY[:, :, None] - spoken.reward_PY[:, None, :]).sigmoid()


def kl(logp_PY: Float[Tensor, "P Y"], other_logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, " P"]:
    """KL(π ‖ other) in nats, a sum over all answers.

    >>> same = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()
    >>> kl(same, same).item()
    0.0
    """
    return (logp_PY.exp() * (logp_PY - other_logp_PY)).sum(-1)


def total_variation(logp_PY: Float[Tensor, "P Y"], other_logp_PY: Float[Tensor, "P Y"]) -> float:
    """½ Σ |π − other|, for the prompt where it is largest: the share of answers that would be others.

    >>> one, other = (torch.tensor([row], dtype=torch.float64).log() for row in ([0.5, 0.5], [0.9, 0.1]))
    >>> round(total_variation(one, other), 6)
    0.4
    """
    return 0.5 * (logp_PY.exp() - other_logp_PY.exp()).abs().sum(-1).max().item()


def mean_reward(logp_PY: Float[Tensor, "P Y"], spoken: Language) -> float:
    """E_π r over prompts and answers."""
    return (logp_PY.exp() * spoken.reward_PY).sum(-1).mean().item()


def objective(logp_PY: Float[Tensor, "P Y"], spoken: Language, beta: float) -> float:
    """J(π) = E_π r − β KL(π ‖ π_ref)."""
    return mean_reward(logp_PY, spoken) - beta * kl(logp_PY, spoken.ref_logp_PY).mean().item()


def objective_gradient(logp_PY: Float[Tensor, "P Y"], spoken: Language, beta: float) -> Float[Tensor, "P Y"]:
    """∂J / ∂(logit of y) = π(y) (a(y) − E_π a) / P, with a = r − β log(π / π_ref)."""
    worth_PY = spoken.reward_PY - beta * (logp_PY - spoken.ref_logp_PY)
    prob_PY = logp_PY.exp()
    return prob_PY * (worth_PY - (prob_PY * worth_PY).sum(-1, keepdim=True)) / len(prob_PY)
