"""The vocabulary head, walked in blocks of tokens × words that fit a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.tensors.logits import LogitRule

TOKENS_AT_ONCE = 1024
"""Rows of a block: enough to keep the matrix product busy."""
RETAINED_ROWS_AT_ONCE = 512
"""Rows whose logits are all retained until their sum is known, when forward makes the gradient."""
LOGITS_AT_ONCE = {"cpu": 2**19, "cuda": 2**26}
"""Elements of a block: 2 MiB of float32 stay in a core's cache; a GPU wants large products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What is the same for every block.

    Example: ``Arithmetic(rule=PLAIN, dtype=torch.float32, with_entropy=False, gradient_in_forward=True)``
    """

    rule: LogitRule
    """From raw product to logit."""
    dtype: torch.dtype
    """Of the products."""
    with_entropy: bool
    """Whether Σ π z is summed too."""
    with_repeat: bool = False
    """Whether Σ exp 2z is summed too."""
    gradient_in_forward: bool
    """Whether forward computes the gradient of Σ log π as well."""

    @property
    def sum_dtype(self) -> torch.dtype:
        """Sums over the vocabulary are kept in float32 or better."""
        return torch.promote_types(self.dtype, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The vocabulary head: its weight and the rule from product to logit.

    Example: ``Projection(arithmetic=…, weight_VH=…, bias_V=None)``
    """

    arithmetic: Arithmetic
    """The rule and the digits."""
    weight_VH: Tensor
    """A row for each word."""
    bias_V: Tensor | None
    """Added to the product."""

    def logits(self, hidden_mH: Tensor, words: slice) -> Tensor:
        """Of one block, in float32 or better."""
        raw_mv = hidden_mH @ self.weight_VH[words].to(self.arithmetic.dtype).T
        raw_mv = raw_mv.to(self.arithmetic.sum_dtype)
        return self.arithmetic.rule.apply(raw_mv if self.bias_V is None else raw_mv + self.bias_V[words])

    @property
    def slope(self) -> float:
        """The derivative of every logit by its raw product, where no cap bends it."""
        return self.arithmetic.rule.scale / self.arithmetic.rule.temperature

    def rows(self, hidden_MH: Tensor, *, retain_logits: bool) -> Iterator[slice]:
        """Blocks of tokens, smaller ones where all logits of a block are retained."""
        tokens, width = hidden_MH.shape
        return _chunks(tokens, min(RETAINED_ROWS_AT_ONCE, width) if retain_logits else TOKENS_AT_ONCE)

    def words(self, hidden_mH: Tensor) -> list[slice]:
        """Blocks of the vocabulary of the right size."""
        elements = LOGITS_AT_ONCE.get(hidden_mH.device.type, LOGITS_AT_ONCE["cuda"])
        return list(_chunks(self.weight_VH.shape[0], max(16, elements // hidden_mH.shape[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionGradients:
    """Gradients under construction; one that nobody needs is None.

    Example: ``ProjectionGradients.zeros((False, True, True, False, False), head, hidden_MH)``
    """

    head: Projection
    """What they are the gradients of."""
    hidden_MH: Tensor
    """In float32 or better: every block of the vocabulary adds to it."""
    weight_VH: Tensor | None
    """In the weight's own dtype."""
    bias_V: Tensor | None
    """Likewise."""

    @staticmethod
    def zeros(needed: Sequence[bool], head: Projection, hidden_MH: Tensor) -> ProjectionGradients:
        """``needed`` is autograd's word on arithmetic, states, weight, bias and targets."""
        _, _, need_weight, need_bias, _ = needed
        return ProjectionGradients(
            head=head,
            hidden_MH=torch.zeros_like(hidden_MH, dtype=torch.promote_types(hidden_MH.dtype, torch.float32)),
            weight_VH=torch.zeros_like(head.weight_VH) if need_weight else None,
            bias_V=torch.zeros_like(head.bias_V) if need_bias and head.bias_V is not None else None,
        )

    def add(self, rows: slice, words: slice, grad_mv: Tensor, hidden_mH: Tensor) -> None:
        """One block's gradient by the raw product, multiplied out."""
        grad = grad_mv.to(hidden_mH.dtype)
        _add_product(self.hidden_MH[rows], grad, self.head.weight_VH[words].to(hidden_mH.dtype))
        if self.weight_VH is not None:
            _add_product(self.weight_VH[words], grad.T, hidden_mH)
        if self.bias_V is not None:
            self.bias_V[words] += grad_mv.sum(0).to(self.bias_V.dtype)

    def add_targets(self, target_M: Tensor, grad_M: Tensor, hidden_MH: Tensor) -> None:
        """Adds the part of the gradient that flows through the target tokens' own logits."""
        weight_MH = self.head.weight_VH[target_M]
        self.hidden_MH.add_((grad_M[:, None] * weight_MH).to(self.hidden_MH.dtype))
        if self.weight_VH is not None:
            self.weight_VH.index_add_(0, target_M, (grad_M[:, None] * hidden_MH).to(self.weight_VH.dtype))
        if self.bias_V is not None:
            self.bias_V.index_add_(0, target_M, grad_M.to(self.bias_V.dtype))

    def scale(self, factor: Tensor) -> None:
        """All of it times one number."""
        for grad in (self.hidden_MH, self.weight_VH, self.bias_V):
            if grad is not None:
                grad.mul_(factor.to(grad.dtype))


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        into.add_(left @ right)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSums:
    """Sums over the vocabulary for a block of rows, accumulated block by block.

    Every block's sums have their place beforehand: small tensors that outlive a block would lie between
    the blocks in memory, and the heap would grow by a block for each.

    Example: ``BlockSums.allocate(head, hidden_mH, target_m)``
    """

    head: Projection
    """What is walked over."""
    words_C: list[slice]
    """The words of each block."""
    target_m: Tensor
    """The chosen words."""
    target_logit_m: Tensor
    """Their logits."""
    lse_Cm: Tensor
    """log Σ exp z over each block."""
    mean_Cm: Tensor
    """Σ π z within each block, when it is wanted."""
    double_lse_Cm: Tensor
    """log Σ exp 2z over each block, when it is wanted."""
    top_Cm: Tensor
    """Each block's largest z."""

    @staticmethod
    def allocate(head: Projection, hidden_mH: Tensor, target_m: Tensor) -> BlockSums:
        """Allocates room for every block's sums."""
        words_C = head.words(hidden_mH)
        shape, dtype = (4, len(words_C), len(target_m)), head.arithmetic.sum_dtype
        lse_Cm, mean_Cm, twice_Cm, top_Cm = hidden_mH.new_empty(shape, dtype=dtype)
        return BlockSums(
            head=head,
            words_C=words_C,
            target_m=target_m,
            target_logit_m=torch.empty_like(target_m, dtype=dtype),
            lse_Cm=lse_Cm,
            mean_Cm=mean_Cm,
            double_lse_Cm=twice_Cm,
            top_Cm=top_Cm,
        )

    def add_block(self, c: int, hidden_mH: Tensor) -> Tensor:
        """Adds one block of the vocabulary; returns exp(z − the block's largest z)."""
        words, target_m = self.words_C[c], self.target_m
        logits_mv = self.head.logits(hidden_mH, words)
        in_block = ((target_m >= words.start) & (target_m < words.stop)).nonzero()[:, 0]
        self.target_logit_m[in_block] = logits_mv[in_block, target_m[in_block] - words.start]
        if self.head.arithmetic.with_entropy:
            self.mean_Cm[c] = logits_mv.softmax(-1).mul_(logits_mv).sum(-1)
        self.top_Cm[c] = logits_mv.amax(-1)
        power_mv = logits_mv.sub_(self.top_Cm[c, :, None]).exp_()
        self.lse_Cm[c] = power_mv.sum(-1).log_().add_(self.top_Cm[c])
        if self.head.arithmetic.with_repeat:
            self.double_lse_Cm[c] = power_mv.square().sum(-1).log_().add_(2 * self.top_Cm[c])
        return power_mv

    def combined(self) -> Tensor:
        """The sums over all blocks: target logit, log-sum-exp, Σ π z, log Σ exp 2z, largest logit."""
        lse_m = self.lse_Cm.logsumexp(0)
        arithmetic = self.head.arithmetic
        mean_m = ((self.lse_Cm - lse_m).exp() * self.mean_Cm).sum(0) if arithmetic.with_entropy else lse_m
        twice_m = self.double_lse_Cm.logsumexp(0) if arithmetic.with_repeat else lse_m
        return torch.stack((self.target_logit_m, lse_m, mean_m, twice_m, self.top_Cm.amax(0)))


def _chunks(total: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, total)) for start in range(0, total, width))
