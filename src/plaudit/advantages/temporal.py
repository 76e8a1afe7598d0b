"""Rewards, returns and advantages along a completion: one number for every token, 0 where the mask is False.

Only trained tokens are moments in time. Where the mask has holes (what a tool wrote), the successor of a
token is the next trained one, and neither γ nor λ count what lies between. ``value_NT`` is V before the
token is said. After the last trained token the value is 0, or ``bootstrap_N`` where it is given.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from plaudit.tensors.masked import Moments, broadcast_to_tokens, last_token_mask, whiten


def token_rewards(
    reward_N: Float[Tensor, " N"],
    kl_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    beta: int | float,
) -> Float[Tensor, "N T"]:
    """r_t = −β KL_t, and the score on top at the last trained token. Ziegler et al. 2019, arXiv:1909.08593.

    >>> token_rewards(torch.tensor([1.0]), torch.tensor([[2.0, 4.0]]), torch.tensor([[True, True]]), beta=0.5)
    tensor([[-1., -1.]])
    """
    # The score stands at the last trained token, which an answer that was cut has as well.
    last_NT = last_token_mask(mask_NT)
    return (-beta * kl_NT).masked_fill(~mask_NT, 0.0) + broadcast_to_tokens(reward_N, last_NT)


def step_rewards(score_NS: Float[Tensor, "N S"], end_NT: Bool[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """A process reward: the score of a row's k-th step at the k-th place where a step ends, 0 elsewhere.

    Rows of fewer steps are filled with anything. Their reward-to-go is the advantage of process supervision
    in Shao et al. 2024, arXiv:2402.03300, when the scores are normalised.

    >>> step_rewards(torch.tensor([[1.0, 2.0]]), torch.tensor([[False, True, True, False]]))
    tensor([[0., 1., 2., 0.]])
    """
    # Before the first end the index would be −1: it reads step 0, and the mask takes that away.
    step_NT = (end_NT.cumsum(-1) - 1).clamp(min=0)
    return score_NS.gather(1, step_NT).masked_fill(~end_NT, 0.0)


def reward_to_go(
    reward_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, gamma: int | float
) -> Float[Tensor, "N T"]:
    """R_t = r_t + γ R_{t+1}: the Monte-Carlo return.

    >>> reward_to_go(torch.tensor([[1.0, 9.0, 2.0]]), torch.tensor([[True, False, True]]), gamma=0.5)
    tensor([[2., 0., 2.]])
    """
    return _discounted_suffix_sum(reward_NT, mask_NT, gamma).masked_fill(~mask_NT, 0.0)


def monte_carlo(
    reward_NT: Float[Tensor, "N T"],
    value_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    gamma: int | float,
) -> Float[Tensor, "N T"]:
    """A_t = R_t − V_t: reward-to-go less what was expected. GAE with λ = 1.

    >>> monte_carlo(torch.tensor([[0.0, 2.0]]), torch.ones(1, 2), torch.tensor([[True, True]]), gamma=0.5)
    tensor([[0., 1.]])
    """
    return (reward_to_go(reward_NT, mask_NT, gamma=gamma) - value_NT).masked_fill(~mask_NT, 0.0)


def one_step(
    reward_NT: Float[Tensor, "N T"],
    value_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    gamma: int | float,
    bootstrap_N: Float[Tensor, " N"] | None = None,
) -> Float[Tensor, "N T"]:
    """A_t = δ_t = r_t + γ V_{t+1} − V_t: TD(0), what A2C learns from. Mnih et al. 2016, arXiv:1602.01783.

    >>> one_step(torch.tensor([[0.0, 2.0]]), torch.ones(1, 2), torch.tensor([[True, True]]), gamma=0.5)
    tensor([[-0.5000,  1.0000]])
    """
    bootstrap_N = value_NT.new_zeros(len(value_NT)) if bootstrap_N is None else bootstrap_N
    # A factor of 0 looks no further than the first trained token; the column behind the end always counts.
    padded_NT = pad(value_NT.masked_fill(~mask_NT, 0.0), (0, 1)) + pad(
        bootstrap_N[:, None], (mask_NT.shape[1], 0)
    )
    next_NT = _discounted_suffix_sum(padded_NT, pad(mask_NT, (0, 1), value=True), 0.0)[:, 1:]
    # V of the next trained token is found without γ, which then counts one moment whatever lies in between.
    return (reward_NT + gamma * next_NT - value_NT).masked_fill(~mask_NT, 0.0)


def gae(
    reward_NT: Float[Tensor, "N T"],
    value_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    gamma: int | float,
    lam: int | float,
    bootstrap_N: Float[Tensor, " N"] | None = None,
) -> Float[Tensor, "N T"]:
    """A_t = δ_t + γλ A_{t+1}: between TD(0) at λ = 0 and Monte Carlo at λ = 1.

    Schulman et al. 2015, arXiv:1506.02438.

    >>> reward, value, mask = torch.tensor([[0.0, 2.0]]), torch.ones(1, 2), torch.tensor([[True, True]])
    >>> gae(reward, value, mask, gamma=1, lam=0.5)
    tensor([[0.5000, 1.0000]])
    """
    delta_NT = one_step(reward_NT, value_NT, mask_NT, gamma=gamma, bootstrap_N=bootstrap_N)
    return reward_to_go(delta_NT, mask_NT, gamma=gamma * lam)


def returns(
    advantage_NT: Float[Tensor, "N T"], value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """A_t + V_t: what the critic should have said. The advantages are those before whitening.

    >>> returns(torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([[True]])).item()
    3.0
    """
    return (advantage_NT + value_NT).masked_fill(~mask_NT, 0.0)


def bandit(
    reward_N: Float[Tensor, " N"], value_N: Float[Tensor, " N"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """A_t = score − V(x) at every token: the whole completion is one action.

    >>> bandit(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([[True, True, False]]))
    tensor([[2., 2., 0.]])
    """
    return broadcast_to_tokens(reward_N - value_N, mask_NT)


def reinforce_plus_plus(
    reward_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    gamma: int | float,
    batch_moments: Moments | None = None,
) -> Float[Tensor, "N T"]:
    """Reward-to-go of the token rewards, KL included, whitened over all tokens of the batch.

    ``batch_moments`` are those of the whole batch's ``reward_to_go``. The paper has γ = 1. Hu et al. 2025,
    arXiv:2501.03262.

    >>> reinforce_plus_plus(torch.tensor([[0.0, 1.0], [0.0, 3.0]]), torch.ones(2, 2).bool(), gamma=1)
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    return whiten(reward_to_go(reward_NT, mask_NT, gamma=gamma), mask_NT, batch_moments=batch_moments)


def _discounted_suffix_sum(value_NT: Tensor, mask_NT: Tensor, factor: int | float) -> Tensor:
    """x_t = v_t + factor · x_{t+1} at a trained token, x_t = x_{t+1} elsewhere, in log₂ T steps."""
    # After a step of width w, x holds what the 2w places from t on add, and keep what x beyond them counts.
    # Doubling in place of a loop over T: a recurrence would launch T small kernels one after another.
    x_NT = value_NT.masked_fill(~mask_NT, 0.0)
    # A hole hands on undiscounted what comes after it: its factor is 1.
    keep_NT = torch.full_like(x_NT, factor).masked_fill(~mask_NT, 1.0)
    width = 1
    while width < x_NT.shape[1]:
        x_NT = x_NT + keep_NT * pad(x_NT[:, width:], (0, width))
        # Padded with 0: beyond the end there is nothing to hand on.
        keep_NT = keep_NT * pad(keep_NT[:, width:], (0, width))
        width *= 2
    return x_NT
