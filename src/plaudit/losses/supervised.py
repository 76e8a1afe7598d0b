"""Losses that learn from given answers or from a teacher's distribution."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def negative_log_likelihood(logp_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """−log π(y_t | x, y_<t): maximum likelihood of the demonstration.

    >>> negative_log_likelihood(torch.tensor([[-2.0]])).item()
    2.0
    """
    return -logp_NT


def forward_kl(
    teacher_logp_MV: Float[Tensor, "M V"], student_logp_MV: Float[Tensor, "M V"]
) -> Float[Tensor, " M"]:
    """KL(teacher ‖ student) = Σ_v p (log p − log q): the student covers all that the teacher may say.

    A token that the teacher never says (log p = −∞) adds nothing. Hinton et al. 2015, arXiv:1503.02531.

    >>> same = torch.log_softmax(torch.ones(1, 3), -1)
    >>> forward_kl(same, same).item()
    0.0
    """
    # Filled before the product: p = 0 times log p − log q = −∞ is NaN.
    log_ratio_MV = (teacher_logp_MV - student_logp_MV).masked_fill(teacher_logp_MV == -math.inf, 0.0)
    return (teacher_logp_MV.exp() * log_ratio_MV).sum(-1)


def reverse_kl(
    teacher_logp_MV: Float[Tensor, "M V"], student_logp_MV: Float[Tensor, "M V"]
) -> Float[Tensor, " M"]:
    """KL(student ‖ teacher): the student keeps to what the teacher would say.

    Gu et al. 2023 (MiniLLM), arXiv:2306.08543.

    >>> same = torch.log_softmax(torch.ones(1, 3), -1)
    >>> reverse_kl(same, same).item()
    0.0
    """
    return forward_kl(student_logp_MV, teacher_logp_MV)


def jensen_shannon(
    teacher_logp_MV: Float[Tensor, "M V"], student_logp_MV: Float[Tensor, "M V"]
) -> Float[Tensor, " M"]:
    """½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½(p + q): symmetric, at most ln 2.

    Agarwal et al. 2023 (GKD), arXiv:2306.13649.

    >>> apart = torch.tensor([[0.0, -60.0]])
    >>> round(jensen_shannon(apart, apart.flip(-1)).item(), 4)
    0.6931
    """
    # Where both are −∞ the slope of logaddexp is not a number; at the lowest finite one it is.
    lowest = torch.finfo(student_logp_MV.dtype).min
    raised = (teacher_logp_MV.clamp(min=lowest), student_logp_MV.clamp(min=lowest))
    middle_logp_MV = torch.logaddexp(*raised) - math.log(2)
    return 0.5 * (forward_kl(teacher_logp_MV, middle_logp_MV) + forward_kl(student_logp_MV, middle_logp_MV))
