"""Losses that learn a reward from comparisons, rankings, ratings, labelled steps and judgements of groups.

Each returns one loss for every comparison, prompt, completion, token or judged item; masks, the sum over the
batch or the episodes, and the global count that divides it are the caller's. Rankings come as one row a
prompt: with ``place_PK``, where each answer of a prompt stands among the N completions,
``reward_N[place_PK]`` is such a row, so that a completion is scored once in however many pairs it stands.
Rows of fewer answers are filled with any place and masked. A rank is 1 for the best; equal ranks are ties.
The preference model of GPO (Zhao, Dang and Grover 2023, arXiv:2310.11523) is shown what a group preferred
before; its losses are those of the targets.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def llama_margin(strength: int | float, *, large: bool = False) -> float:
    """The margin for a strength from 0 (negligibly better, unsure) to 3 (significantly better).

    Small: 0, 1/3, 2/3, 1; large: 0, 1, 2, 3. Touvron et al. 2023 (Llama 2), arXiv:2307.09288.

    >>> llama_margin(3), llama_margin(1, large=True)
    (1.0, 1.0)
    """
    if not 0 <= strength <= 3:
        raise ValueError(
            f"strength {strength} has no margin: map your scale to 0 (unsure) … 3 (clearly better)"
        )
    return float(strength) if large else strength / 3


def bradley_terry(
    first_B: Float[Tensor, "*B"],
    second_B: Float[Tensor, "*B"],
    *,
    margin: Float[Tensor, "*B"] | int | float = 0.0,
    label: Float[Tensor, "*B"] | int | float = 1.0,
    smoothing: int | float = 0.0,
    noise: int | float = 0.0,
) -> Float[Tensor, "*B"]:
    """−μ log P − (1 − μ) log(1 − P), P = (1 − ε) σ(r₁ − r₂ − m) + ε/2: the first is better with chance μ.

    One coin, one cross-entropy, so all of it composes. What the coin shows with which chance: the margin m is
    a handicap in its logit (Llama 2, arXiv:2307.09288), the noise ε the share of answers given blindly
    (Christiano et al. 2017, arXiv:1706.03741). What was seen: μ = s + (1 − 2s) label, the label softened by
    the share s of labels believed to be swapped (Mitchell 2023). With the defaults: −log σ(r₁ − r₂).

    >>> score = torch.tensor([0.0])
    >>> round(bradley_terry(score, score).item(), 4)
    0.6931
    """
    gap_B = first_B - second_B - margin
    # Smoothing acts on the label and keeps the minimum finite; noise
    # acts on P and bounds the loss of one pair.
    probability = smoothing + (1 - 2 * smoothing) * label
    sighted, blind = (gap_B.new_full((), share).log() for share in (1 - noise, noise / 2))
    # In logs: with noise 0 the blind term is log 0 = −∞, and logaddexp gives the other side back exactly.
    first_logp_B = torch.logaddexp(sighted + logsigmoid(gap_B), blind)
    second_logp_B = torch.logaddexp(sighted + logsigmoid(-gap_B), blind)
    return -probability * first_logp_B - (1 - probability) * second_logp_B


def centring(
    first_B: Float[Tensor, "*B"], second_B: Float[Tensor, "*B"], *, weight: int | float
) -> Float[Tensor, "*B"]:
    """c (r₁ + r₂)²: comparisons fix differences only, this fixes the level near 0.

    Eisenstein et al. 2023, arXiv:2312.09244.

    >>> centring(torch.tensor([3.0]), torch.tensor([1.0]), weight=0.5).item()
    8.0
    """
    return weight * (first_B + second_B).square()


def k_wise(
    reward_PK: Float[Tensor, "P K"],
    rank_PK: Float[Tensor, "P K"],
    mask_PK: Bool[Tensor, "P K"],
    *,
    tie_weight: int | float = 1.0,
    smoothing: int | float = 0.0,
    noise: int | float = 0.0,
) -> Float[Tensor, " P"]:
    """1/C(K,2) Σ over the pairs of a prompt of −log σ(r_better − r_worse): a prompt counts once.

    A tie is a comparison with label ½, which draws the two together; ``tie_weight=0`` leaves ties out of the
    sum and of the count. A prompt without pairs adds nothing. Ouyang et al. 2022, arXiv:2203.02155.

    >>> reward_N, place_PK = torch.tensor([0.0, 5.0, 0.0]), torch.tensor([[0, 2, 0]])
    >>> mask_PK = torch.tensor([[True, True, False]])
    >>> k_wise(reward_N[place_PK], torch.tensor([[1.0, 2.0, 0.0]]), mask_PK)
    tensor([0.6931])
    """
    # Each of the K(K − 1)/2 pairs once; the rewards themselves were computed once for each answer.
    first, other = torch.triu_indices(*[rank_PK.shape[1]] * 2, offset=1, device=rank_PK.device)
    safe_PK, order_PK = (value_PK.masked_fill(~mask_PK, 0.0) for value_PK in (reward_PK, rank_PK))
    lead_PB = torch.sign(order_PK[:, other] - order_PK[:, first]).to(reward_PK.dtype)
    loss_PB = bradley_terry(
        safe_PK[:, first], safe_PK[:, other], label=0.5 + 0.5 * lead_PB, smoothing=smoothing, noise=noise
    )
    weight_PB = (tie_weight + (1 - tie_weight) * lead_PB.abs()) * (mask_PK[:, first] & mask_PK[:, other])
    total_P = weight_PB.sum(-1)
    # Per prompt: pairs of one prompt are correlated, and K = 9
    # would otherwise weigh 36 times what K = 2 does.
    return (weight_PB * loss_PB).sum(-1) / total_P.masked_fill(total_P == 0, 1.0)


def plackett_luce(
    reward_PK: Float[Tensor, "P K"], rank_PK: Float[Tensor, "P K"], mask_PK: Bool[Tensor, "P K"]
) -> Float[Tensor, " P"]:
    """−Σ_k log(exp r_k / Σ_{j not before k} exp r_j): the best is drawn first, then the best of the rest.

    Of d equal ranks the l-th (l = 0 … d − 1) counts each of the d as 1 − l/d in its sum, what is left on
    average when l of them are drawn (Efron 1977): where they score the same, the loss of any order of them.
    Zhu et al. 2023, arXiv:2301.11270.

    >>> level_PK, seen_PK = torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)
    >>> plackett_luce(level_PK, torch.tensor([[2.0, 3.0, 1.0]]), seen_PK).exp()  # one of 3! orders
    tensor([6.])
    """
    safe_PK = reward_PK.masked_fill(~mask_PK, 0.0)
    # Whatever fills a row comes before all that is ranked, and so is never among what is left.
    order_PK = rank_PK.masked_fill(~mask_PK, -math.inf)
    # [P, k, j]: row k sums over those j that are not ranked before k.
    tied_PKK = (order_PK[:, None, :] == order_PK[:, :, None]).to(reward_PK.dtype)
    later_PKK = order_PK[:, None, :] > order_PK[:, :, None]
    # l / d: of k's d equals, how many stand before it in the row, which is as good an order as any.
    picked_PK = tied_PKK.tril(-1).sum(-1) / tied_PKK.sum(-1)
    remaining_PKK = later_PKK + tied_PKK * (1 - picked_PK[:, :, None])
    rest_PK = (safe_PK[:, None, :] + remaining_PKK.log()).logsumexp(-1)
    return (rest_PK - safe_PK).masked_fill(~mask_PK, 0.0).sum(-1)


def davidson(
    first_B: Float[Tensor, " B"], second_B: Float[Tensor, " B"], *, nu: Float[Tensor, ""] | int | float
) -> Float[Tensor, "B 3"]:
    """Log-chances of win, tie, loss, in proportion to exp r₁, ν exp ½(r₁ + r₂), exp r₂.

    ν = 0 knows no ties. Davidson 1970; for language models Chen et al. 2024, arXiv:2409.17431.

    >>> davidson(torch.zeros(1), torch.zeros(1), nu=2).exp()
    tensor([[0.2500, 0.5000, 0.2500]])
    """
    # Divided by exp ½(r₁ + r₂): one number for all three, which the softmax does not see.
    half_B = 0.5 * (first_B - second_B)
    tie_B = torch.as_tensor(nu, dtype=half_B.dtype, device=half_B.device).log().expand_as(half_B)
    return torch.stack((half_B, tie_B, -half_B), -1).log_softmax(-1)


def rao_kupper(
    first_B: Float[Tensor, " B"], second_B: Float[Tensor, " B"], *, theta: Float[Tensor, ""] | int | float
) -> Float[Tensor, "B 3"]:
    """Log-chances of win σ(Δ − ln θ), tie and loss σ(−Δ − ln θ); of a tie (θ² − 1) times both, Δ = r₁ − r₂.

    A win needs a margin; θ = 1 knows no ties. Rao and Kupper 1967; for language models Chen et al. 2024,
    arXiv:2409.17431.

    >>> rao_kupper(torch.zeros(1), torch.zeros(1), theta=3).exp()
    tensor([[0.2500, 0.5000, 0.2500]])
    """
    gap_B = first_B - second_B
    theta_ = torch.as_tensor(theta, dtype=gap_B.dtype, device=gap_B.device)
    win_B, loss_B = logsigmoid(gap_B - theta_.log()), logsigmoid(-gap_B - theta_.log())
    # log(θ² − 1) as a product: near θ = 1 the square would lose the digits that matter.
    tie_B = (theta_ - 1).log() + (theta_ + 1).log() + win_B + loss_B
    return torch.stack((win_B, tie_B, loss_B), -1)


def win_tie_lose(logp_B3: Float[Tensor, "B 3"], label_B3: Float[Tensor, "B 3"]) -> Float[Tensor, " B"]:
    """−Σ label · log P over win, tie, loss; the label is the one that was seen, or the annotators' shares.

    >>> logp_B3 = rao_kupper(torch.zeros(1), torch.zeros(1), theta=1)  # a tie has no chance, and was not seen
    >>> round(win_tie_lose(logp_B3, torch.tensor([[1.0, 0.0, 0.0]])).item(), 4)
    0.6931
    """
    # 0 · log 0 is NaN: what was not seen is filled before it is weighted.
    return -(label_B3 * logp_B3.masked_fill(label_B3 == 0, 0.0)).sum(-1)


def regression(reward_N: Float[Tensor, " N"], rating_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """(r − rating)²: the reward is the expected rating. Wang et al. 2024 (HelpSteer2), arXiv:2406.08673.

    >>> regression(torch.tensor([1.0]), torch.tensor([4.0])).item()
    9.0
    """
    return (reward_N - rating_N).square()


def binary(
    reward_N: Float[Tensor, "*N"], label_N: Float[Tensor, "*N"], *, positive_weight: int | float = 1.0
) -> Float[Tensor, "*N"]:
    """−w y log σ(r) − (1 − y) log σ(−r): the reward is the log-odds of a good answer; y may be a share.

    Cobbe et al. 2021, arXiv:2110.14168.

    >>> round(binary(torch.tensor([0.0]), torch.tensor([1.0]), positive_weight=2).item(), 4)
    1.3863
    """
    return -positive_weight * label_N * logsigmoid(reward_N) - (1 - label_N) * logsigmoid(-reward_N)


def process_supervision(
    reward_NT: Float[Tensor, "N T"],
    label_NT: Float[Tensor, "N T"],
    step_NT: Bool[Tensor, "N T"],
    *,
    positive_weight: int | float = 1.0,
) -> Float[Tensor, "N T"]:
    """``binary`` where a step ends, 0 elsewhere; Σ / steps is ``token_mean`` with ``step_NT`` as its mask.

    Lightman et al. 2023, arXiv:2305.20050.

    >>> ends = torch.tensor([[False, True]])
    >>> process_supervision(torch.zeros(1, 2), torch.ones(1, 2), ends)
    tensor([[0.0000, 0.6931]])
    """
    # Masked before and after: a NaN between steps must reach neither the value nor the gradient.
    safe_NT, right_NT = (value_NT.masked_fill(~step_NT, 0.0) for value_NT in (reward_NT, label_NT))
    return binary(safe_NT, right_NT, positive_weight=positive_weight).masked_fill(~step_NT, 0.0)


def group_choice_nll(score_BK: Float[Tensor, "*B K"], share_BK: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """−Σ_k y_k log softmax(s)_k: of K answers to a prompt the group prefers each with its share y_k.

    For the preferred one of two answers it is Bradley and Terry's −log σ(s_w − s_l). Scores of answers to
    different prompts never meet.

    >>> round(group_choice_nll(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])).item(), 4)
    0.1269
    """
    return -(share_BK * score_BK.log_softmax(-1)).sum(-1)


def gaussian_rating_nll(
    mean_N: Float[Tensor, "*N"], log_std_N: Float[Tensor, "*N"], rating_N: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """½ ((y − μ) / σ)² + log σ + ½ log 2π: the group's ratings are normal around the prediction.

    With σ = 1 for all it is half the squared error and a constant.

    >>> round(gaussian_rating_nll(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([3.0])).item(), 4)
    2.9189
    """
    # The log of σ is learnt, so σ is above 0 without a constraint.
    gap_N = (rating_N - mean_N) * (-log_std_N).exp()
    return 0.5 * gap_N.square() + log_std_N + 0.5 * math.log(2 * math.pi)
