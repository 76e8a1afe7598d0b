"""Log-probabilities of chosen tokens without ever holding a ``[tokens, vocabulary]`` tensor.

Tokens and vocabulary are walked in blocks that fit a cache. Forward keeps one log-sum-exp a token;
backward computes each block's logits again, turns them into gradients in place and multiplies them
away. So memory grows with tokens × hidden size and with one block, never with tokens × vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.tensors.logits import PLAIN, LogitRule

TOKENS_AT_ONCE = 1024
"""Rows of a block: enough to keep the matrix product busy."""
LOGITS_AT_ONCE = {"cpu": 2**19, "cuda": 2**26}
"""Elements of a block: 2 MiB of float32 stay in a core's cache; a GPU wants large products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a distribution over the vocabulary says of one chosen token, for M of them.

    Example: ``TokenScores(logp_M=…, greedy_M=…, entropy_M=None)``
    """

    logp_M: Float[Tensor, " M"]
    """log π(y) = z_y − log Σ_v exp z_v."""
    greedy_M: Bool[Tensor, " M"]
    """Whether no other token has a larger logit."""
    entropy_M: Float[Tensor, " M"] | None
    """H = log Σ_v exp z_v − Σ_v π_v z_v, when it was asked for."""


def score_tokens(
    hidden_MH: Float[Tensor, "M H"],
    weight_VH: Float[Tensor, "V H"],
    target_M: Int[Tensor, " M"],
    *,
    bias_V: Float[Tensor, " V"] | None = None,
    rule: LogitRule = PLAIN,
    entropy: bool = False,
) -> TokenScores:
    """Log-probability of each target, in float32 or better, differentiable by states, weight and bias.

    >>> weight = torch.tensor([[1.0], [1.0]])
    >>> scores = score_tokens(torch.ones(1, 1), weight, torch.tensor([0]), entropy=True)
    >>> round(scores.logp_M.exp().item(), 4), round(scores.entropy_M.exp().item(), 4)
    (0.5, 2.0)
    """
    _refuse_unknown_tokens(target_M, weight_VH.shape[0])
    head = _Head(rule=rule, dtype=_arithmetic(hidden_MH), with_entropy=entropy)
    logp_M, entropy_M, greedy_M = _apply(head, hidden_MH, weight_VH, bias_V, target_M)
    return TokenScores(logp_M=logp_M, greedy_M=greedy_M, entropy_M=entropy_M if entropy else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """What is the same for every block."""

    rule: LogitRule
    dtype: torch.dtype
    with_entropy: bool

    @property
    def sum_dtype(self) -> torch.dtype:
        """Sums over the vocabulary are kept in float32 or better."""
        return torch.promote_types(self.dtype, torch.float32)

    def raw(self, hidden_mH: Tensor, weight_vH: Tensor, bias_v: Tensor | None) -> Tensor:
        """hidden · weight + bias of one block, in float32 or better."""
        raw_mv = hidden_mH @ weight_vH.to(self.dtype).T
        raw_mv = raw_mv.to(self.sum_dtype)
        return raw_mv if bias_v is None else raw_mv + bias_v


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, head: _Head, hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, target_M: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums_4M = hidden_MH.new_empty((4, hidden_MH.shape[0]), dtype=head.sum_dtype)
        with torch.autocast(hidden_MH.device.type, enabled=False):
            for rows in _chunks(hidden_MH.shape[0], TOKENS_AT_ONCE):
                hidden_mH = hidden_MH[rows].to(head.dtype)
                sums_4M[:, rows] = _summed_up(head, hidden_mH, weight_VH, bias_V, target_M[rows])
        chosen_M, lse_M, mean_M, top_M = sums_4M.unbind()
        entropy_M = lse_M - mean_M
        greedy_M = chosen_M >= top_M
        ctx.head = head
        ctx.save_for_backward(hidden_MH, weight_VH, bias_V, target_M, chosen_M, lse_M, entropy_M)
        ctx.mark_non_differentiable(greedy_M)
        return chosen_M - lse_M, entropy_M, greedy_M

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("score_tokens has no second derivative: do not use create_graph=True with it")
        grad_logp_M, grad_entropy_M = grad_outputs[:2]
        hidden_MH, weight_VH, bias_V, target_M, chosen_M, lse_M, entropy_M = ctx.saved_tensors
        head: _Head = ctx.head
        _, need_hidden, need_weight, need_bias, _ = ctx.needs_input_grad
        grads = _Grads.zeros(hidden_MH, weight_VH if need_weight else None, bias_V if need_bias else None)
        with torch.autocast(hidden_MH.device.type, enabled=False):
            for rows in _chunks(hidden_MH.shape[0], TOKENS_AT_ONCE):
                hidden_mH = hidden_MH[rows].to(head.dtype)
                for words in _vocabulary(hidden_mH, weight_VH):
                    weight_vH, bias_v = weight_VH[words], None if bias_V is None else bias_V[words]
                    logits_mv = head.rule.apply(head.raw(hidden_mH, weight_vH, bias_v))
                    slope = head.rule.slope(logits_mv)
                    logp_mv = logits_mv.sub_(lse_M[rows, None])
                    push_mv = -grad_logp_M[rows, None]
                    if head.with_entropy:
                        push_mv = push_mv - grad_entropy_M[rows, None] * (logp_mv + entropy_M[rows, None])
                    grads.add(rows, words, logp_mv.exp_().mul_(push_mv).mul_(slope), hidden_mH, weight_vH)
            slope_M = head.rule.slope(chosen_M) * grad_logp_M
            grads.add_chosen(target_M, slope_M, hidden_MH, weight_VH)
        hidden_grad_MH = grads.hidden_MH.to(hidden_MH.dtype) if need_hidden else None
        return None, hidden_grad_MH, grads.weight_VH, grads.bias_V, None


_apply = cast(
    "Callable[[_Head, Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor, Tensor]]",
    _TokenLogProbs.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grads:
    """Gradients under construction; one that nobody needs is None."""

    hidden_MH: Tensor
    """In float32 or better: every block of the vocabulary adds to it."""
    weight_VH: Tensor | None
    bias_V: Tensor | None

    @staticmethod
    def zeros(hidden_MH: Tensor, weight_VH: Tensor | None, bias_V: Tensor | None) -> _Grads:
        return _Grads(
            hidden_MH=torch.zeros_like(hidden_MH, dtype=torch.promote_types(hidden_MH.dtype, torch.float32)),
            weight_VH=None if weight_VH is None else torch.zeros_like(weight_VH),
            bias_V=None if bias_V is None else torch.zeros_like(bias_V),
        )

    def add(self, rows: slice, words: slice, grad_mv: Tensor, hidden_mH: Tensor, weight_vH: Tensor) -> None:
        """One block's gradient by the raw product, multiplied out."""
        grad = grad_mv.to(hidden_mH.dtype)
        _add_product(self.hidden_MH[rows], grad, weight_vH.to(hidden_mH.dtype))
        if self.weight_VH is not None:
            _add_product(self.weight_VH[words], grad.T, hidden_mH)
        if self.bias_V is not None:
            self.bias_V[words] += grad_mv.sum(0).to(self.bias_V.dtype)

    def add_chosen(self, target_M: Tensor, grad_M: Tensor, hidden_MH: Tensor, weight_VH: Tensor) -> None:
        """The part that flows through the chosen tokens' own logits."""
        self.hidden_MH.add_((grad_M[:, None] * weight_VH[target_M]).to(self.hidden_MH.dtype))
        if self.weight_VH is not None:
            self.weight_VH.index_add_(0, target_M, (grad_M[:, None] * hidden_MH).to(self.weight_VH.dtype))
        if self.bias_V is not None:
            self.bias_V.index_add_(0, target_M, grad_M.to(self.bias_V.dtype))


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        into.add_(left @ right)


def _summed_up(
    head: _Head, hidden_mH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, target_m: Tensor
) -> Tensor:
    """Of each row: z of the target, log Σ_v exp z_v, Σ_v π_v z_v (when wanted) and the largest z.

    Every block's sums have their place beforehand: small tensors that outlive a block would lie between
    the blocks in memory, and the heap would grow by a block for each.
    """
    blocks = list(_vocabulary(hidden_mH, weight_VH))
    chosen_m = torch.empty_like(target_m, dtype=head.sum_dtype)
    lse_Cm, mean_Cm, top_Cm = hidden_mH.new_empty((3, len(blocks), len(target_m)), dtype=head.sum_dtype)
    for c, words in enumerate(blocks):
        logits_mv = head.rule.apply(
            head.raw(hidden_mH, weight_VH[words], None if bias_V is None else bias_V[words])
        )
        here = ((target_m >= words.start) & (target_m < words.stop)).nonzero()[:, 0]
        chosen_m[here] = logits_mv[here, target_m[here] - words.start]
        if head.with_entropy:
            mean_Cm[c] = logits_mv.softmax(-1).mul_(logits_mv).sum(-1)
        top_Cm[c] = logits_mv.amax(-1)
        lse_Cm[c] = logits_mv.sub_(top_Cm[c, :, None]).exp_().sum(-1).log_().add_(top_Cm[c])
    lse_m = lse_Cm.logsumexp(0)
    mean_m = ((lse_Cm - lse_m).exp() * mean_Cm).sum(0) if head.with_entropy else lse_m
    return torch.stack((chosen_m, lse_m, mean_m, top_Cm.amax(0)))


def _refuse_unknown_tokens(target_M: Tensor, vocabulary: int) -> None:
    unknown = target_M[(target_M < 0) | (target_M >= vocabulary)]
    if len(unknown) > 0:
        raise ValueError(
            f"token {int(unknown[0])} is not in the model's vocabulary of {vocabulary}: "
            "the tokenizer does not belong to this model"
        )


def _arithmetic(hidden_MH: Tensor) -> torch.dtype:
    """The dtype of the products: autocast's where it is on, else the hidden states' own."""
    device = hidden_MH.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MH.dtype


def _vocabulary(hidden_mH: Tensor, weight_VH: Tensor) -> Iterator[slice]:
    elements = LOGITS_AT_ONCE.get(hidden_mH.device.type, LOGITS_AT_ONCE["cuda"])
    return _chunks(weight_VH.shape[0], max(16, elements // hidden_mH.shape[0]))


def _chunks(total: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, total)) for start in range(0, total, width))
