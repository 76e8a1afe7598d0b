"""Advantages against other completions of the prompt, or a baseline known before: a number for a completion.

A group of equal rewards has the advantage 0 to the last bit, and so has a completion that is alone. How
``group_N`` counts does not matter here, except where one number is asked for each prompt.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.advantages.temporal import reward_to_go, step_rewards
from plaudit.tensors.groups import (
    group_highest,
    group_lowest,
    group_means,
    mean_of_group,
    mean_of_others,
    std_of_group,
)


def z_score(
    reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, epsilon: int | float = 1e-4
) -> Float[Tensor, " N"]:
    """(r − mean) / (std + ε) within the group: GRPO.

    Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, has no ε and does not say which std; that of TRL is
    taken, Σ (r − mean)² / (K − 1) under the root, with its ε.

    >>> z_score(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1]), epsilon=0.0)[:2]
    tensor([-0.7071,  0.7071])
    """
    centred_N = centred(reward_N, group_N)
    # Without ε a group of equal rewards is 0 / 0; it is 0.
    std_N = (std_of_group(reward_N, group_N) + epsilon).masked_fill(centred_N == 0, 1.0)
    return centred_N / std_N


def steps_z_score(
    reward_NT: Float[Tensor, "N T"],
    end_NT: Bool[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    group_N: Int[Tensor, " N"],
    *,
    epsilon: int | float = 1e-4,
) -> Float[Tensor, "N T"]:
    """Σ of the z-scores of the steps that end at the token or after it: GRPO with process supervision.

    The reward of a step is that of its tokens together, and it is compared with those of all steps of the
    group; each row's last token ends a step. With a step an answer it is ``z_score``. Shao et al. 2024,
    arXiv:2402.03300, section 4.1.3.

    >>> reward, end = torch.tensor([[1.0, 3.0], [0.0, 2.0]]), torch.tensor([[True, True], [False, True]])
    >>> steps_z_score(reward, end, torch.ones(2, 2).bool(), torch.tensor([0, 0]), epsilon=0.0)
    tensor([[0., 1.],
            [0., 0.]])
    """
    # ended − end is the number of steps that are over before this token: the index of its own step.
    ended_NT = end_NT.cumsum(-1)
    reward_NS = torch.zeros_like(reward_NT).scatter_add(
        1, ended_NT - end_NT.long(), reward_NT.masked_fill(~mask_NT, 0.0)
    )
    exists_NS = torch.arange(reward_NT.shape[1], device=reward_NT.device) < ended_NT[:, -1:]
    # The M steps of all rows in one list: the mean of a group runs over steps, not over completions.
    score_M = z_score(reward_NS[exists_NS], group_N[:, None].expand_as(exists_NS)[exists_NS], epsilon=epsilon)
    score_NS = torch.zeros_like(reward_NS).masked_scatter(exists_NS, score_M)
    return reward_to_go(step_rewards(score_NS, end_NT), mask_NT, gamma=1)


def centred(reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """r − mean of the group: Dr. GRPO, where easy and hard prompts are not blown up.

    Liu et al. 2025, arXiv:2503.20783.

    >>> centred(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([-0.5000,  0.5000,  0.0000])
    """
    return reward_N - mean_of_group(reward_N, group_N)


def leave_one_out(reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """r − mean of the others of the group: RLOO, a baseline that does not depend on the completion.

    Of two it is their difference, as P3O has it. Ahmadian et al. 2024, arXiv:2402.14740.

    >>> leave_one_out(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([-1.,  1.,  0.])
    """
    return reward_N - mean_of_others(reward_N, group_N)


def pass_rate(
    reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int, threshold: int | float
) -> Float[Tensor, " P"]:
    """The share of each prompt's completions whose reward reaches the threshold; 0 without completions.

    >>> pass_rate(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0, 0, 1]), groups=2, threshold=1)
    tensor([0.5000, 1.0000])
    """
    return group_means((reward_N >= threshold).to(reward_N.dtype), group_N, groups=groups)


def nonzero_std_groups(
    reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int
) -> Bool[Tensor, " P"]:
    """Which prompts have unlike rewards; the advantages of the others are all 0, and they may be dropped.

    Yu et al. 2025 (DAPO, dynamic sampling), arXiv:2503.14476.

    >>> nonzero_std_groups(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0, 0, 1]), groups=2).tolist()
    [True, False]
    """
    highest_P = group_highest(reward_N, group_N, groups=groups)
    return highest_P > group_lowest(reward_N, group_N, groups=groups)


def greedy_baseline(
    reward_N: Float[Tensor, " N"], greedy_P: Float[Tensor, " P"], group_N: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """r − the reward of the prompt's likeliest completion: ReMax. ``group_N`` is the prompt's place.

    Li et al. 2023, arXiv:2310.10505.

    >>> greedy_baseline(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0]), torch.tensor([0, 1]))
    tensor([ 0.5000, -1.0000])
    """
    return reward_N - greedy_P[group_N]


def win_probability_advantage(
    score_N: Float[Tensor, " N"], rival_N: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """P(y ≻ y′) − ½ against one answer y′ to the same prompt, P = σ(r − r′) by Bradley and Terry: Nash-MD.

    Munos et al. 2023, arXiv:2312.00886, whose P is a model of its own; it is met where r − r′ is its logit.

    >>> win_probability_advantage(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0986]))
    tensor([ 0.0000, -0.2500])
    """
    return (score_N - rival_N).sigmoid() - 0.5


def running_mean_baseline(
    reward_N: Float[Tensor, " N"], *, mean: Float[Tensor, " *N"] | int | float
) -> Float[Tensor, " N"]:
    """r − the mean reward **before** this batch: the baseline of REINFORCE. Williams 1992.

    Where there is none before it the caller gives for each answer the mean of the others: a mean that holds
    the answer's own score would bias the gradient, by a factor of (n − 1) / n.

    >>> running_mean_baseline(torch.tensor([1.0, 2.0]), mean=1.5)
    tensor([-0.5000,  0.5000])
    """
    return reward_N - mean


def updated_running_mean(
    mean: Float[Tensor, ""] | int | float, reward_N: Float[Tensor, " N"], *, share: int | float
) -> Float[Tensor, ""]:
    """(1 − share) · mean + share · the batch's mean: what the next batch is measured against.

    With share = n / (all n so far) it is the mean of all that was ever seen.

    >>> updated_running_mean(1.0, torch.tensor([2.0, 4.0]), share=0.25).item()
    1.5
    """
    return (1 - share) * mean + share * reward_N.mean()
