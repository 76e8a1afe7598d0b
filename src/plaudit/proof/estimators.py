"""Estimators of policy optimisation without sampling: every group of answers that can come, by its chance.

A table policy answers each prompt G times. All groups are written out, so what a loss does *in expectation*
is a finite sum, to be put beside the exact gradient of J(π) = E r − β KL(π ‖ π_ref).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.proof.language import Language, Strings, conditional
from plaudit.proof.policies import Table
from plaudit.tensors.masked import masked_sum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """All groups of all prompts as one batch, each completion with its share of the expectation.

    Example: ``sampled(spoken, spoken.ref_logp_PY, size=2)`` has 2 · 225 groups of 2 where 15 answers exist.
    """

    spoken: Language
    """The language, with rewards and reference."""
    logit_PY: Float[Tensor, "P Y"]
    """The weights by which gradients are taken."""
    logp_NT: Float[Tensor, "N T"]
    """log π of each token, with gradient."""
    old_logp_NT: Float[Tensor, "N T"]
    """The same of who sampled."""
    prompt_N: Int[Tensor, " N"]
    """Which prompt is answered."""
    answer_N: Int[Tensor, " N"]
    """Which answer it is."""
    group_N: Int[Tensor, " N"]
    """Which group it is in."""
    share_N: Float[Tensor, " N"]
    """The group's chance over G and over the prompts; all add up to 1."""

    @property
    def mask_NT(self) -> Bool[Tensor, "N T"]:
        """Which tokens there are."""
        return self.spoken.mask_YT[self.answer_N]

    @property
    def reward_N(self) -> Float[Tensor, " N"]:
        """r of each completion."""
        return self.spoken.reward_PY[self.prompt_N, self.answer_N]

    @property
    def shift_NT(self) -> Float[Tensor, "N T"]:
        """log π − log π_ref of each token, with gradient."""
        return self.logp_NT - self.told(self.spoken.ref_logp_PYT)

    def told(self, value_PYT: Float[Tensor, "P Y T"]) -> Float[Tensor, "N T"]:
        """What is known of an answer's tokens, for each completion."""
        return value_PYT[self.prompt_N, self.answer_N]

    def weighed(self, loss_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Losses times shares: a sum over completions becomes a mean in expectation."""
        return loss_NT * self.share_N[:, None]


APART = 7919
"""What keeps seeds of policies from those of languages."""
Estimator = Callable[[Sampled], Float[Tensor, ""]]
"""A loss in expectation, to be minimised; its gradient is an estimate of −∇J."""


def token_sum(loss_NT: Float[Tensor, "N T"], seen: Sampled) -> Float[Tensor, ""]:
    """Σ over a completion's tokens, mean over completions: the reduction that keeps ∇J as it is."""
    return masked_sum(seen.weighed(loss_NT), seen.mask_NT)


def wandered(
    spoken: Language,
    start_PY: Float[Tensor, "P Y"] | None = None,
    *,
    seed: int = 0,
    width: int | float = 1.0,
) -> Float[Tensor, "P Y"]:
    """log π of a policy beside the start (the reference if not told): noise of that width on its logits.

    >>> from plaudit.proof.language import language
    >>> wandered(language(seed=0)).exp().sum(-1).sub(1).abs().max().item() < 1e-12
    True
    """
    # A language draws its rewards first, in the same shape: with its seed the noise would be those rewards.
    draw = torch.Generator().manual_seed(APART + seed)
    noise_PY = torch.randn(spoken.reward_PY.shape, generator=draw, dtype=torch.float64)
    start_PY = spoken.ref_logp_PY if start_PY is None else start_PY
    return (start_PY + width * noise_PY).log_softmax(-1)


def sampled(
    spoken: Language,
    logp_PY: Float[Tensor, "P Y"],
    *,
    size: int,
    old_PY: Float[Tensor, "P Y"] | None = None,
    ordered: bool = True,
) -> Sampled:
    """Every group of ``size`` answers, by the chance that the old policy (the same one if not told) says it.

    Not ordered, groups of the same answers are one group with all their chance: the same expectation for a
    loss that does not see the order, and few enough for large groups.

    >>> from plaudit.proof.language import language
    >>> spoken = language(seed=0)
    >>> seen = sampled(spoken, spoken.ref_logp_PY, size=3)
    >>> len(seen.share_N), round(seen.share_N.sum().item(), 12)
    (20250, 1.0)
    """
    old_PY = logp_PY if old_PY is None else old_PY
    answer_KG = _groups(logp_PY.shape[-1], size, ordered)
    chance_PK = (old_PY[:, answer_KG].sum(-1) + _ways(answer_KG, ordered)).exp() / len(old_PY)
    prompt_N = torch.arange(len(old_PY)).repeat_interleave(answer_KG.numel())
    answer_N = answer_KG.flatten().repeat(len(old_PY))
    speaker = Table(spoken, logp_PY)
    return Sampled(
        spoken=spoken,
        logit_PY=speaker.logit_PY,
        logp_NT=speaker()[prompt_N, answer_N],
        old_logp_NT=conditional(old_PY, spoken)[0][prompt_N, answer_N].detach(),
        prompt_N=prompt_N,
        answer_N=answer_N,
        group_N=torch.arange(chance_PK.numel()).repeat_interleave(size),
        share_N=chance_PK.flatten().repeat_interleave(size).detach() / size,
    )


def expected_gradient(estimator: Estimator, seen: Sampled) -> Float[Tensor, "P Y"]:
    """Where the estimator sends the logits in expectation: −∇ of its loss."""
    (slope_PY,) = torch.autograd.grad(estimator(seen), seen.logit_PY, retain_graph=True)
    return -slope_PY


def error(found_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """|found − exact| / |exact|: length and direction in one figure.

    >>> error(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    0.5
    """
    return ((found_PY - exact_PY).norm() / exact_PY.norm()).item()


def cosine(found_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """1 where both go the same way.

    >>> cosine(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    1.0
    """
    return ((found_PY * exact_PY).sum() / (found_PY.norm() * exact_PY.norm())).item()


def values(
    logp_PY: Float[Tensor, "P Y"], worth_PY: Float[Tensor, "P Y"], spoken: Language
) -> Float[Tensor, "P Y T"]:
    """V before each token: the mean worth of all answers that begin so; 0 behind the end.

    >>> from plaudit.proof.language import language
    >>> spoken = language(seed=0)
    >>> one_PY = torch.ones_like(spoken.reward_PY)
    >>> bool((values(spoken.ref_logp_PY, one_PY, spoken).sum(-1) - spoken.length_Y).abs().max() < 1e-12)
    True
    """
    begins_YTZ, prob_PY = _begins(spoken.responses), logp_PY.exp()
    worth_PYT, chance_PYT = (
        torch.einsum("ytz,pz->pyt", begins_YTZ, share_PY) for share_PY in (prob_PY * worth_PY, prob_PY)
    )
    return (worth_PYT / chance_PYT).masked_fill(~spoken.mask_YT, 0.0)


@cache
def next_answers(responses: Strings, symbols: int) -> Float[Tensor, "S V Y"]:
    """1 where answer y goes through beginning s and on with token v."""
    beginnings = sorted({said[:t] for said in responses for t in range(len(said))})
    rows = [
        [[said[: len(s) + 1] == (*s, v) for said in responses] for v in range(symbols + 1)]
        for s in beginnings
    ]
    return torch.tensor(rows, dtype=torch.float64)


@cache
def _begins(responses: Strings) -> Tensor:
    """1 where answer z begins with the first t tokens of y."""
    rows = [[[z[:t] == y[:t] for z in responses] for t in range(max(map(len, responses)))] for y in responses]
    return torch.tensor(rows, dtype=torch.float64)


@cache
def _groups(answers: int, size: int, ordered: bool) -> Tensor:
    if ordered:
        return torch.cartesian_prod(*[torch.arange(answers)] * size).reshape(-1, size)
    return torch.tensor(list(combinations_with_replacement(range(answers), size)))


def _ways(answer_KG: Tensor, ordered: bool) -> Tensor:
    """The log of how many orders a group has: G! / Π (how often each answer is in it)!"""
    if ordered:
        return torch.zeros(len(answer_KG), dtype=torch.float64)
    size = answer_KG.shape[1]
    # Rows are sorted: the k-th of equal answers counts k, and the product of those is the factorial.
    same_KGG = answer_KG[:, :, None] == answer_KG[:, None, :]
    rank_KG = same_KGG.tril().sum(-1)
    return torch.arange(1, size + 1, dtype=torch.float64).log().sum() - rank_KG.double().log().sum(-1)
