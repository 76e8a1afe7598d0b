"""Log-probabilities of chosen tokens without ever holding a ``[tokens, vocabulary]`` tensor.

Tokens and vocabulary are walked in blocks that fit a cache. Forward keeps one log-sum-exp a token;
backward computes each block's logits again, turns them into gradients in place and multiplies them
away. So memory grows with tokens × hidden size and with one block, never with tokens × vocabulary.

Where every token counts the same (maximum likelihood), the gradient is known but for one factor while the
logits are still at hand: forward makes it then, with three products by the weight in place of four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.tensors.blocks import Arithmetic, BlockSums, Projection, ProjectionGradients
from plaudit.tensors.logits import PLAIN, LogitRule

Extra = Literal["entropy", "repeat"]
"""Optional scores beside log-probs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a distribution over the vocabulary says of one chosen token, for M of them.

    Example: ``TokenScores(logp_M=…, greedy_M=…, entropy_M=None, repeat_M=None)``
    """

    logp_M: Float[Tensor, " M"]
    """log π(y) = z_y − log Σ_v exp z_v."""
    greedy_M: Bool[Tensor, " M"]
    """Whether no other token has a larger logit."""
    entropy_M: Float[Tensor, " M"] | None
    """H = log Σ_v exp z_v − Σ_v π_v z_v, when it was asked for."""
    repeat_M: Float[Tensor, " M"] | None
    """log Σ_v π_v²: how surely two draws are the same, when it was asked for; it has no gradient."""


def score_tokens(
    hidden_MH: Float[Tensor, "M H"],
    weight_VH: Float[Tensor, "V H"],
    target_M: Int[Tensor, " M"],
    *,
    bias_V: Float[Tensor, " V"] | None = None,
    rule: LogitRule = PLAIN,
    extras: Sequence[Extra] = (),
) -> TokenScores:
    """Log-probability of each target, in float32 or better, differentiable by states, weight and bias.

    >>> weight = torch.tensor([[1.0], [1.0]])
    >>> scores = score_tokens(torch.ones(1, 1), weight, torch.tensor([0]), extras=("entropy",))
    >>> round(scores.logp_M.exp().item(), 4), round(scores.entropy_M.exp().item(), 4)
    (0.5, 2.0)
    """
    arithmetic = Arithmetic(
        rule=rule,
        dtype=_product_dtype(hidden_MH),
        with_entropy="entropy" in extras,
        with_repeat="repeat" in extras,
        gradient_in_forward=False,
    )
    return _score(arithmetic, hidden_MH, weight_VH, bias_V, target_M)


def score_tokens_equally_weighted(
    hidden_MH: Float[Tensor, "M H"],
    weight_VH: Float[Tensor, "V H"],
    target_M: Int[Tensor, " M"],
    *,
    bias_V: Float[Tensor, " V"] | None = None,
    rule: LogitRule = PLAIN,
) -> TokenScores:
    """`score_tokens` for a loss that counts every log-prob the same: a quarter less work.

    Should the loss not do so after all, the gradient is made afresh: it is right either way.

    >>> weight = torch.tensor([[1.0], [1.0]])
    >>> round(score_tokens_equally_weighted(torch.ones(1, 1), weight,
    ...     torch.tensor([0])).logp_M.exp().item(), 4)
    0.5
    """
    may_overflow = torch.float16 in (weight_VH.dtype, _product_dtype(hidden_MH))
    early = rule.cap is None and torch.is_grad_enabled() and not may_overflow
    arithmetic = Arithmetic(
        rule=rule, dtype=_product_dtype(hidden_MH), with_entropy=False, gradient_in_forward=early
    )
    return _score(arithmetic, hidden_MH, weight_VH, bias_V, target_M)


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        arithmetic: Arithmetic,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_M: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        head = Projection(arithmetic=arithmetic, weight_VH=weight_VH, bias_V=bias_V)
        gradients = (
            ProjectionGradients.zeros(ctx.needs_input_grad, head, hidden_MH)
            if arithmetic.gradient_in_forward
            else None
        )
        with torch.autocast(hidden_MH.device.type, enabled=False):
            target_logit_M, lse_M, mean_M, twice_M, top_M = _logit_sums(head, hidden_MH, target_M, gradients)
        entropy_M = lse_M - mean_M
        greedy_M = target_logit_M >= top_M
        ctx.how, ctx.early = arithmetic, gradients
        ctx.save_for_backward(hidden_MH, weight_VH, bias_V, target_M, target_logit_M, lse_M, entropy_M)
        repeat_M = twice_M - 2 * lse_M
        ctx.mark_non_differentiable(greedy_M, repeat_M)
        return target_logit_M - lse_M, entropy_M, greedy_M, repeat_M

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("score_tokens has no second derivative: do not use create_graph=True with it")
        grad_logp_M, grad_entropy_M = grad_outputs[:2]
        grads: ProjectionGradients | None = ctx.early
        ctx.early = None
        with torch.autocast(grad_logp_M.device.type, enabled=False):
            if grads is not None and _all_equal(grad_logp_M):
                grads.scale(grad_logp_M[0])
            else:
                grads = _gradients(ctx, grad_logp_M, grad_entropy_M)
        hidden_grad_MH = grads.hidden_MH.to(ctx.saved_tensors[0].dtype) if ctx.needs_input_grad[1] else None
        return None, hidden_grad_MH, grads.weight_VH, grads.bias_V, None


_apply = cast(
    "Callable[[Arithmetic, Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, ...]]",
    _TokenLogProbs.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


def _score(
    arithmetic: Arithmetic, hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, target_M: Tensor
) -> TokenScores:
    _refuse_unknown_tokens(target_M, weight_VH.shape[0])
    logp_M, entropy_M, greedy_M, repeat_M = _apply(arithmetic, hidden_MH, weight_VH, bias_V, target_M)
    return TokenScores(
        logp_M=logp_M,
        greedy_M=greedy_M,
        entropy_M=entropy_M if arithmetic.with_entropy else None,
        repeat_M=repeat_M if arithmetic.with_repeat else None,
    )


def _gradients(ctx: Any, grad_logp_M: Tensor, grad_entropy_M: Tensor) -> ProjectionGradients:
    """From the sums that forward kept: each block's logits once more, turned into gradients in place."""
    hidden_MH, weight_VH, bias_V, target_M, target_logit_M, lse_M, entropy_M = ctx.saved_tensors
    arithmetic: Arithmetic = ctx.how
    head = Projection(arithmetic=arithmetic, weight_VH=weight_VH, bias_V=bias_V)
    grads = ProjectionGradients.zeros(ctx.needs_input_grad, head, hidden_MH)
    for rows in head.rows(hidden_MH, retain_logits=False):
        hidden_mH = hidden_MH[rows].to(arithmetic.dtype)
        for words in head.words(hidden_mH):
            logits_mv = head.logits(hidden_mH, words)
            slope = arithmetic.rule.slope(logits_mv)
            logp_mv = logits_mv.sub_(lse_M[rows, None])
            push_mv = -grad_logp_M[rows, None]
            if arithmetic.with_entropy:
                push_mv = push_mv - grad_entropy_M[rows, None] * (logp_mv + entropy_M[rows, None])
            grads.add(rows, words, logp_mv.exp_().mul_(push_mv).mul_(slope), hidden_mH)
    grads.add_targets(target_M, arithmetic.rule.slope(target_logit_M) * grad_logp_M, hidden_MH)
    return grads


def _all_equal(value_M: Tensor) -> bool:
    return len(value_M) > 0 and bool((value_M == value_M[0]).all())


def _logit_sums(
    head: Projection, hidden_MH: Tensor, target_M: Tensor, gradients: ProjectionGradients | None
) -> Tensor:
    """Of each row: z of the target, log Σ_v exp z_v, Σ_v π_v z_v, log Σ_v exp 2z_v and the largest z.

    The third and the fourth are made when they are wanted. Where ``early`` is given, the gradient of
    Σ log π is added to it.
    """
    sums_5M = hidden_MH.new_empty((5, len(target_M)), dtype=head.arithmetic.sum_dtype)
    for rows in head.rows(hidden_MH, retain_logits=gradients is not None):
        hidden_mH = hidden_MH[rows].to(head.arithmetic.dtype)
        block_sums = BlockSums.allocate(head, hidden_mH, target_M[rows])
        if gradients is None:
            for c in range(len(block_sums.words_C)):
                block_sums.add_block(c, hidden_mH)
            sums_5M[:, rows] = block_sums.combined()
        else:
            powers_C = [block_sums.add_block(c, hidden_mH) for c in range(len(block_sums.words_C))]
            sums_5M[:, rows] = block_sums.combined()
            for c, power_mv in enumerate(powers_C):
                share_m1 = (block_sums.top_Cm[c] - sums_5M[1, rows]).exp()[:, None]
                gradients.add(rows, block_sums.words_C[c], power_mv.mul_(-head.slope * share_m1), hidden_mH)
    if gradients is not None:
        gradients.add_targets(target_M, sums_5M.new_full(target_M.shape, head.slope), hidden_MH)
    return sums_5M


def _refuse_unknown_tokens(target_M: Tensor, vocabulary: int) -> None:
    unknown = target_M[(target_M < 0) | (target_M >= vocabulary)]
    if len(unknown) > 0:
        raise ValueError(
            f"token {int(unknown[0])} is not in the model's vocabulary of {vocabulary}: "
            "the tokenizer does not belong to this model"
        )


def _product_dtype(hidden_MH: Tensor) -> torch.dtype:
    """The dtype of the products: autocast's where it is on, else the hidden states' own."""
    device = hidden_MH.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MH.dtype
