"""How far two heads' distributions are apart, without ever holding a ``[tokens, vocabulary]`` tensor.

A divergence needs the whole vocabulary of a token at once, so tokens are walked in blocks of bounded
size. Forward keeps one number a token; backward computes each block again. The divergence itself is any
differentiable function of two tables of log-probs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.tensors.logprobs import PLAIN, LogitRule, add_product, product_dtype, wide_product, wide_zeros

Divergence = Callable[[Tensor, Tensor], Tensor]
"""From the teacher's and the student's log-probs, both ``[m, V]``, to one number a token, ``[m]``."""

TABLE_AT_ONCE = {"cpu": 2**22, "cuda": 2**26}
"""Elements of one block's table of log-probs; a few such tables exist at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """The states of M tokens and the head that turns them into distributions."""

    hidden_MH: Float[Tensor, "M H"]
    weight_VH: Float[Tensor, "V H"]
    bias_V: Float[Tensor, " V"] | None = None
    rule: LogitRule = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDivergence:
    """The divergence of two distributions at M tokens, and the student's likeliest token."""

    divergence_M: Float[Tensor, " M"]
    likeliest_M: Int[Tensor, " M"]


def divergence_between(student: Readout, teacher: Readout, divergence: Divergence) -> TokenDivergence:
    """The divergence at each token, in float32 or better, differentiable by all that is the student's.

    The teacher gets no gradient. Under autocast the products are made in its dtype.
    """
    tokens = student.hidden_MH.shape[0], teacher.hidden_MH.shape[0]
    words = student.weight_VH.shape[0], teacher.weight_VH.shape[0]
    if tokens[0] != tokens[1] or words[0] != words[1]:
        raise ValueError(
            f"student and teacher have {tokens} tokens and vocabularies of {words}: not the same"
        )
    # The teacher travels in a record and not as an argument: autograd never looks at it for gradients.
    blockwise = _DivergenceBlocks(
        divergence=divergence,
        rule=student.rule,
        dtype=product_dtype(student.hidden_MH),
        teacher=teacher,
        teacher_dtype=product_dtype(teacher.hidden_MH),
    )
    divergence_M, likeliest_M = _apply(blockwise, student.hidden_MH, student.weight_VH, student.bias_V)
    return TokenDivergence(divergence_M=divergence_M, likeliest_M=likeliest_M)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DivergenceBlocks:
    """What is the same for every block of tokens: the divergence, both heads' rules and dtypes."""

    divergence: Divergence
    rule: LogitRule
    dtype: torch.dtype
    teacher: Readout
    teacher_dtype: torch.dtype

    def block_divergence(self, raw_mV: Tensor, teacher_mV: Tensor) -> Tensor:
        # In raw products and not log-probs, so that one autograd call
        # goes through softmax and soft cap alike.
        return self.divergence(teacher_mV, self.rule.apply(raw_mV).log_softmax(-1))

    def teacher_logp(self) -> Callable[[slice], Tensor]:
        """The teacher's log-probs by block; its weight is converted once."""
        teacher, weight_VH = self.teacher, self.teacher.weight_VH.detach().to(self.teacher_dtype)

        def logp(rows: slice) -> Tensor:
            hidden_mH = teacher.hidden_MH[rows].detach().to(self.teacher_dtype)
            return teacher.rule.apply(_raw_logits(hidden_mH, weight_VH, teacher.bias_V)).log_softmax(-1)

        return logp


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarseDistribution:
    """The likeliest tokens at each of M places with their log-probs, all the others taken together."""

    top_MK: Int[Tensor, "M K"]
    logp_MC: Float[Tensor, "M C"]
    """Their log-probs, and at last the log of what all others have together; C = K + 1."""


@torch.no_grad()
def coarse_distribution(readout: Readout, top: int) -> CoarseDistribution:
    """Of each place the ``top`` likeliest tokens, or all there are, and the rest as one.

    >>> sure = Readout(hidden_MH=torch.ones(1, 1), weight_VH=torch.tensor([[2.0], [1.0], [0.0]]))
    >>> found = coarse_distribution(sure, 2)
    >>> found.top_MK.tolist(), [round(p, 3) for p in found.logp_MC[0].exp().tolist()]
    ([[0, 1]], [0.665, 0.245, 0.09])
    """
    tops: list[Tensor] = []
    logps: list[Tensor] = []
    for logp_mV in _log_prob_blocks(readout):
        top_mK = logp_mV.topk(min(top, logp_mV.shape[1])).indices
        tops.append(top_mK)
        logps.append(_coarse(logp_mV, top_mK))
    return CoarseDistribution(top_MK=torch.cat(tops), logp_MC=torch.cat(logps))


@torch.no_grad()
def coarse_kl(old: CoarseDistribution, readout: Readout) -> Float[Tensor, " M"]:
    """KL(old ‖ readout's) at each place over the old one's likeliest tokens and the rest as one.

    Without gradient. It is the KL of whole distributions where nothing is left as rest, and else never above
    it: taking tokens together can only hide differences.
    """
    kls: list[Tensor] = []
    for rows, logp_mV in zip(_token_blocks(readout), _log_prob_blocks(readout), strict=True):
        old_mC = old.logp_MC[rows].to(logp_mV.dtype)
        new_mC = _coarse(logp_mV, old.top_MK[rows])
        # Where nothing is left as rest both are −∞, which differ by nothing.
        log_ratio_mC = (old_mC - new_mC).masked_fill(old_mC == -torch.inf, 0.0)
        kls.append((old_mC.exp() * log_ratio_mC).sum(-1))
    return torch.cat(kls)


def _coarse(logp_mV: Tensor, top_mK: Tensor) -> Tensor:
    """The log-probs of some tokens, and of all the others together: summed, since 1 − Σ would be rounding."""
    rest_mV = logp_mV.scatter(1, top_mK, -torch.inf)
    return torch.cat([logp_mV.gather(1, top_mK), rest_mV.logsumexp(-1, keepdim=True)], -1)


def _log_prob_blocks(readout: Readout) -> Iterator[Tensor]:
    dtype = product_dtype(readout.hidden_MH)
    with torch.autocast(readout.hidden_MH.device.type, enabled=False):
        weight_VH = readout.weight_VH.detach().to(dtype)
        for rows in _token_blocks(readout):
            raw_mV = _raw_logits(readout.hidden_MH[rows].detach().to(dtype), weight_VH, readout.bias_V)
            yield readout.rule.apply(raw_mV).log_softmax(-1)


def _token_blocks(readout: Readout) -> Iterator[slice]:
    """Tokens in blocks whose tables stay within bounds; one empty block when there are none."""
    total, words, device = (
        readout.hidden_MH.shape[0],
        readout.weight_VH.shape[0],
        readout.hidden_MH.device.type,
    )
    # At least one token a block, however large the vocabulary.
    width = max(1, TABLE_AT_ONCE.get(device, TABLE_AT_ONCE["cuda"]) // words)
    return (slice(start, min(start + width, total)) for start in range(0, max(1, total), width))


class _DivergenceBetween(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, blockwise: _DivergenceBlocks, hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        values: list[Tensor] = []
        likeliest: list[Tensor] = []
        # Autocast is off and products are cast by hand, so that forward and backward work in the same dtype.
        with torch.autocast(hidden_MH.device.type, enabled=False):
            product_VH, teacher_logp = weight_VH.to(blockwise.dtype), blockwise.teacher_logp()
            for rows in _token_blocks(blockwise.teacher):
                raw_mV = _raw_logits(hidden_MH[rows].to(blockwise.dtype), product_VH, bias_V)
                values.append(blockwise.block_divergence(raw_mV, teacher_logp(rows)))
                likeliest.append(raw_mV.argmax(-1))
        likeliest_M = torch.cat(likeliest)
        ctx.walk = blockwise
        ctx.save_for_backward(hidden_MH, weight_VH, bias_V)
        ctx.mark_non_differentiable(likeliest_M)
        return torch.cat(values), likeliest_M

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, bias_V = ctx.saved_tensors
        blockwise: _DivergenceBlocks = ctx.walk
        _, _, need_weight, need_bias = ctx.needs_input_grad
        grad_hidden_MH = torch.zeros_like(hidden_MH)
        grad_weight_VH = wide_zeros(weight_VH) if need_weight else None
        grad_bias_V = wide_zeros(bias_V) if need_bias else None
        with torch.autocast(hidden_MH.device.type, enabled=False):
            product_VH, teacher_logp = weight_VH.to(blockwise.dtype), blockwise.teacher_logp()
            for rows in _token_blocks(blockwise.teacher):
                hidden_mH = hidden_MH[rows].to(blockwise.dtype)
                raw_mV = _raw_logits(hidden_mH, product_VH, bias_V)
                grad_mV = _gradient(blockwise, raw_mV, teacher_logp(rows), grad_outputs[0][rows])
                if grad_bias_V is not None:
                    grad_bias_V += grad_mV.sum(0).to(grad_bias_V.dtype)
                # After the bias, whose sum over tokens keeps float32; the
                # two products below are the dear ones.
                grad_mV = grad_mV.to(blockwise.dtype)
                grad_hidden_MH[rows] = (grad_mV @ product_VH).to(grad_hidden_MH.dtype)
                if grad_weight_VH is not None:
                    add_product(grad_weight_VH, grad_mV.T, hidden_mH)
        grad_weight_VH = None if grad_weight_VH is None else grad_weight_VH.to(weight_VH.dtype)
        grad_bias_V = None if grad_bias_V is None else grad_bias_V.to(bias_V.dtype)
        return None, grad_hidden_MH, grad_weight_VH, grad_bias_V


_apply = cast(
    "Callable[[_DivergenceBlocks, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]",
    _DivergenceBetween.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


def _gradient(blockwise: _DivergenceBlocks, raw_mV: Tensor, teacher_mV: Tensor, grad_m: Tensor) -> Tensor:
    # `backward` runs without a graph; this block gets one of its own, which is freed with the block.
    with torch.enable_grad():
        raw_mV.requires_grad_()
        value_m = blockwise.block_divergence(raw_mV, teacher_mV)
        return torch.autograd.grad(value_m, raw_mV, grad_m)[0]


def _raw_logits(hidden_mH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> Tensor:
    # The softmax sums V exponentials, and log-probs are compared by differences: float32 at least.
    raw_mV = wide_product(hidden_mH, weight_VH.T)
    # Detached: its gradient is added up by hand in `backward`, like the weight's.
    return raw_mV if bias_V is None else raw_mV + bias_V.detach()
