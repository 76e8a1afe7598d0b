"""Losses that learn a policy from pairs of answers: one number for every pair.

Δ_w and Δ_l are the preferred and the other answer's ``shift_B``, how much likelier they have become, and
h = Δ_w − Δ_l. The sum over the batch, the count that divides it, soft labels and weights are the caller's.
Reference-free methods (SimPO, CPO, ORPO) are the same functions of records whose reference is 0.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.answers import Answers


def gap(chosen: Answers, rejected: Answers) -> Float[Tensor, " B"]:
    """h = Δ_w − Δ_l.

    >>> from plaudit.losses.answers import answers
    >>> gap(*(answers(torch.tensor([x]), torch.zeros(1), torch.ones(1)) for x in (-1.0, -3.0))).item()
    2.0
    """
    return chosen.shift_B - rejected.shift_B


def dpo(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βh): the likelihood of the choice, were βΔ the reward. Rafailov et al. 2023, arXiv:2305.18290.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(dpo(same, same, beta=0.1).item(), 4)
    0.6931
    """
    return -logsigmoid(beta * gap(chosen, rejected))


def cdpo(
    chosen: Answers, rejected: Answers, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """−(1 − ε) log σ(βh) − ε log σ(−βh): a share ε of the labels is believed to be swapped.

    Mitchell 2023, "A note on DPO with noisy preferences and relationship to IPO".

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(cdpo(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    logit_B = beta * gap(chosen, rejected)
    return -(1 - smoothing) * logsigmoid(logit_B) - smoothing * logsigmoid(-logit_B)


def robust(
    chosen: Answers, rejected: Answers, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """(−(1 − ε) log σ(βh) + ε log σ(−βh)) / (1 − 2ε): on average DPO's loss on labels that were not swapped.

    Chowdhury et al. 2024, arXiv:2403.00409.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(robust(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    logit_B = beta * gap(chosen, rejected)
    clean_B = -(1 - smoothing) * logsigmoid(logit_B) + smoothing * logsigmoid(-logit_B)
    return clean_B / (1 - 2 * smoothing)


def hinge(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """max(0, 1 − βh): no push beyond a margin. Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> hinge(same, same, beta=0.1).item()
    1.0
    """
    return (1 - beta * gap(chosen, rejected)).clamp(min=0)


def ipo(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """(h − 1/2β)²: h goes to a finite value also where all agree. β is the paper's τ.

    Azar et al. 2023, arXiv:2310.12036.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> ipo(same, same, beta=0.25).item()
    4.0
    """
    return (gap(chosen, rejected) - 1 / (2 * beta)).square()


def exo(
    chosen: Answers, rejected: Answers, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """Reverse KL from σ(±βh) to (1 − ε, ε), where DPO has forward KL. Ji et al. 2024, arXiv:2402.00856.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> exo(same, same, beta=0.1, smoothing=0.5).abs().item() < 1e-6
    True
    """
    logit_B = beta * gap(chosen, rejected)
    win_B, lose_B = logsigmoid(logit_B), logsigmoid(-logit_B)
    return win_B.exp() * (win_B - math.log1p(-smoothing)) + lose_B.exp() * (lose_B - math.log(smoothing))


def nca(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βΔ_w) − ½ log σ(−βΔ_w) − ½ log σ(−βΔ_l): absolute likelihoods, so y_w is not lowered.

    Chen et al. 2024, arXiv:2402.05369.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(nca(same, same, beta=0.1).item(), 4)
    1.3863
    """
    win_B, lose_B = beta * chosen.shift_B, beta * rejected.shift_B
    return -logsigmoid(win_B) - 0.5 * logsigmoid(-win_B) - 0.5 * logsigmoid(-lose_B)


def bco_pair(
    chosen: Answers, rejected: Answers, *, beta: int | float, baseline: int | float
) -> Float[Tensor, " B"]:
    """−log σ(βΔ_w − δ) − log σ(δ − βΔ_l): a classifier of good and bad whose threshold is the mean reward δ.

    Jung et al. 2024, arXiv:2404.04656. δ is kept by the caller.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(bco_pair(same, same, beta=0.1, baseline=0.0).item(), 4)
    1.3863
    """
    return -logsigmoid(beta * chosen.shift_B - baseline) - logsigmoid(baseline - beta * rejected.shift_B)


def sppo(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """(Δ_w − 1/2β)² + (Δ_l + 1/2β)²: self-play towards a winner of every pair, with hard labels.

    Wu et al. 2024, arXiv:2405.00675; their η is 1/β.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> sppo(same, same, beta=0.5).item()
    2.0
    """
    wanted = 1 / (2 * beta)
    return (chosen.shift_B - wanted).square() + (rejected.shift_B + wanted).square()


def apo_zero(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """(1 − σ(βΔ_w)) + σ(βΔ_l): y_w up, y_l down; for pairs whose winner is better than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> apo_zero(same, same, beta=0.1).item()
    1.0
    """
    return (-beta * chosen.shift_B).sigmoid() + (beta * rejected.shift_B).sigmoid()


def apo_down(chosen: Answers, rejected: Answers, *, beta: int | float) -> Float[Tensor, " B"]:
    """σ(βΔ_w) + (1 − σ(βh)): both down, y_l further; for pairs whose winner is worse than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> apo_down(same, same, beta=0.1).item()
    1.0
    """
    return (beta * chosen.shift_B).sigmoid() + (-beta * gap(chosen, rejected)).sigmoid()


def discopop(
    chosen: Answers, rejected: Answers, *, beta: int | float, tau: int | float
) -> Float[Tensor, " B"]:
    """(1 − s)·(−log σ(βh)) + s·exp(−βh), s = σ(βh/τ): a loss that a language model proposed.

    Lu et al. 2024, arXiv:2406.08414.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(discopop(same, same, beta=0.1, tau=0.05).item(), 4)
    0.8466
    """
    logit_B = beta * gap(chosen, rejected)
    share_B = (logit_B / tau).sigmoid()
    # Far below 0 its share falls faster than exp(−βh) grows, so the product is formed as one power.
    power_B = (logsigmoid(logit_B / tau) - logit_B).exp()
    return -(1 - share_B) * logsigmoid(logit_B) + power_B


def simpo(
    chosen: Answers, rejected: Answers, *, beta: int | float, margin: int | float
) -> Float[Tensor, " B"]:
    """−log σ(βh − γ), h of mean log-probs and no reference. Meng et al. 2024, arXiv:2405.14734.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(simpo(same, same, beta=2.0, margin=0.0).item(), 4)
    0.6931
    """
    return -logsigmoid(beta * gap(chosen, rejected) - margin)


def odds_ratio(chosen: Answers, rejected: Answers, *, odds: int | float) -> Float[Tensor, " B"]:
    """−λ log σ(log odds_w − log odds_l), odds of e^Δ, the mean token's probability; ORPO adds the NLL.

    Hong et al. 2024, arXiv:2403.07691.

    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.tensor([-1.0]), torch.zeros(1), torch.ones(1))
    >>> round(odds_ratio(same, same, odds=0.1).item(), 4)
    0.0693
    """
    return -odds * logsigmoid(_log_odds(chosen.shift_B) - _log_odds(rejected.shift_B))


def _log_odds(logp_B: Tensor) -> Tensor:
    """log p − log(1 − p); a probability of 1 is taken for the largest one below it."""
    eps = torch.finfo(logp_B.dtype).eps
    safe_B = logp_B.clamp(max=-eps)
    return safe_B - (-safe_B.expm1()).log()
