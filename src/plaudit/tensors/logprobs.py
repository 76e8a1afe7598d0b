"""Log-probabilities of chosen tokens without ever holding a ``[tokens, vocabulary]`` tensor.

Tokens and vocabulary are walked in blocks that fit a cache. Forward keeps one log-sum-exp a token;
backward computes each block's logits again, turns them into gradients in place and multiplies them
away. So memory grows with tokens × hidden size and with one block, never with tokens × vocabulary:
only where tokens are few (`MAX_CACHED_LOGITS`) do their logits wait for backward.

Where every token counts the same (maximum likelihood), the gradient is known but for one factor while the
logits are still at hand: forward makes it then, with three products by the weight in place of four.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRule:
    """What happens to the raw product: logit = cap·tanh(scale·raw / cap) / temperature.

    Example: Gemma 2 is ``LogitRule(cap=30.0)``; Cohere is ``LogitRule(scale=0.0625)``.
    """

    scale: float = 1.0
    """Factor on the raw product (Cohere, Granite)."""
    cap: float | None = None
    """Soft cap (Gemma)."""
    temperature: float = 1.0
    """Logits are divided by it last, as a sampler does."""

    def apply(self, raw: Tensor) -> Tensor:
        """Logits from raw products.

        >>> LogitRule(scale=2.0, temperature=4.0).apply(torch.tensor([2.0])).item()
        1.0
        """
        logits = raw if self.scale == 1.0 else raw * self.scale
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return logits if self.temperature == 1.0 else logits / self.temperature

    def slope(self, logits: Tensor) -> Tensor | float:
        """The derivative of a logit by its raw product, told from the logit itself.

        >>> LogitRule(scale=3.0).slope(torch.tensor([5.0]))
        3.0
        """
        slope = self.scale / self.temperature
        if self.cap is None:
            return slope
        # tanh′ = 1 − tanh², and tanh is read off the logit itself: the raw product need not be kept.
        return slope * (1 - (logits * (self.temperature / self.cap)) ** 2)


PLAIN = LogitRule()
"""Logits are the raw product: Llama, Qwen, Mistral, GPT-2, Phi."""


TOKENS_AT_ONCE = 1024
"""Rows of a block: enough to keep the matrix product busy."""
# Rows bounded by H as well (see `rows`): the retained logits [rows, V] stay no larger than the weight [V, H].
RETAINED_ROWS_AT_ONCE = 512
"""Rows whose logits are all retained until their sum is known, when forward makes the gradient."""
MAX_CACHED_LOGITS = 2**24
"""Logits of so few tokens are kept for the backward pass: 64 MiB of float32 cost less than their product."""
LOGITS_AT_ONCE = {"cpu": 2**19, "cuda": 2**26}
"""Elements of a block: 2 MiB of float32 stay in a core's cache; a GPU wants large products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    rule: LogitRule
    dtype: torch.dtype
    with_entropy: bool
    with_repeat: bool = False
    gradient_in_forward: bool
    """Whether forward computes the gradient of Σ log π as well."""

    @property
    def sum_dtype(self) -> torch.dtype:
        """Sums over the vocabulary are kept in float32 or better."""
        return torch.promote_types(self.dtype, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The vocabulary head: its weight and the rule from product to logit."""

    arithmetic: Arithmetic
    weight_VH: Tensor
    bias_V: Tensor | None

    def logits(self, hidden_mH: Tensor, words: slice) -> Tensor:
        """Of one block, in float32 or better."""
        weight_vH = self.weight_VH[words].to(self.arithmetic.dtype)
        raw_mv = wide_product(hidden_mH, weight_vH.T)
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
        elements = LOGITS_AT_ONCE.get(hidden_mH.device.type, LOGITS_AT_ONCE["cuda"])
        # At least 16 words: with fewer a product is all overhead.
        return list(_chunks(self.weight_VH.shape[0], max(16, elements // hidden_mH.shape[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionGradients:
    """Gradients under construction; one that nobody needs is None."""

    head: Projection
    hidden_MH: Tensor
    """In float32 or better: every block of the vocabulary adds to it."""
    weight_VH: Tensor | None
    bias_V: Tensor | None
    """The gradient of the bias, in float32 or better; None where the head has none."""

    @staticmethod
    def zeros(needed: Sequence[bool], head: Projection, hidden_MH: Tensor) -> "ProjectionGradients":
        """``needed`` is autograd's word on arithmetic, states, weight, bias and targets."""
        _, _, need_weight, need_bias, _ = needed
        return ProjectionGradients(
            head=head,
            hidden_MH=wide_zeros(hidden_MH),
            weight_VH=wide_zeros(head.weight_VH) if need_weight else None,
            bias_V=wide_zeros(head.bias_V) if need_bias and head.bias_V is not None else None,
        )

    def add(self, rows: slice, words: slice, grad_mv: Tensor, hidden_mH: Tensor) -> None:
        """One block's gradient by the raw product, multiplied out."""
        # The two large products run in the products' dtype; what they are added to keeps its own digits.
        grad = grad_mv.to(hidden_mH.dtype)
        add_product(self.hidden_MH[rows], grad, self.head.weight_VH[words].to(hidden_mH.dtype))
        if self.weight_VH is not None:
            add_product(self.weight_VH[words], grad.T, hidden_mH)
        if self.bias_V is not None:
            self.bias_V[words] += grad_mv.sum(0).to(self.bias_V.dtype)

    def add_targets(self, target_M: Tensor, grad_M: Tensor, hidden_MH: Tensor) -> None:
        """Adds the part of the gradient that flows through the target tokens' own logits."""
        # ∂ log π(y) / ∂z = onehot(y) − π: the blocks add −π, and here one row a token adds the onehot part.
        weight_MH = self.head.weight_VH[target_M]
        self.hidden_MH.add_((grad_M[:, None] * weight_MH).to(self.hidden_MH.dtype))
        if self.weight_VH is not None:
            # index_add and not indexing with +=, which would keep one of a repeated token's gradients.
            self.weight_VH.index_add_(0, target_M, (grad_M[:, None] * hidden_MH).to(self.weight_VH.dtype))
        if self.bias_V is not None:
            self.bias_V.index_add_(0, target_M, grad_M.to(self.bias_V.dtype))

    def scale(self, factor: Tensor) -> None:
        for grad in (self.hidden_MH, self.weight_VH, self.bias_V):
            if grad is not None:
                grad.mul_(factor.to(grad.dtype))

    def narrowed(self, like: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """The gradients of states, weight and bias in these tensors' own dtypes, as autograd wants them."""
        return tuple(
            None if grad is None or tensor is None else grad.to(tensor.dtype)
            for grad, tensor in zip((self.hidden_MH, self.weight_VH, self.bias_V), like, strict=True)
        )


def wide_zeros(like: Tensor) -> Tensor:
    """Zeros to add many blocks to, in float32 or better: bfloat16 would drop what is small beside the sum.

    >>> wide_zeros(torch.ones(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))


def wide_product(left: Tensor, right: Tensor) -> Tensor:
    """A matrix product whose result has float32 or better, whatever its factors have.

    >>> wide_product(torch.ones(1, 2, dtype=torch.bfloat16), torch.ones(2, 1, dtype=torch.bfloat16))
    tensor([[2.]])
    """
    wide = torch.promote_types(left.dtype, torch.float32)
    if left.dtype != wide and left.device.type == "cuda":
        # The sum is made in float32 there anyway: this kernel does not round it on its way out.
        return torch.mm(left, right, out_dtype=wide)
    return (left @ right).to(wide)


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds a matrix product to a wide sum, in place.

    >>> total = torch.ones(1, 1)
    >>> add_product(total, torch.ones(1, 2), torch.ones(2, 1))
    >>> total
    tensor([[3.]])
    """
    if into.dtype == left.dtype:
        into.addmm_(left, right)
    else:
        into.add_(wide_product(left, right))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSums:
    """Sums over the vocabulary for a block of rows, accumulated block by block.

    Every block's sums have their place beforehand: small tensors that outlive a block would lie between
    the blocks in memory, and the heap would grow by a block for each.

    Example: ``BlockSums.allocate(head, hidden_mH, target_m)``
    """

    head: Projection
    words_C: list[slice]
    target_m: Tensor
    target_logit_m: Tensor
    lse_Cm: Tensor
    mean_Cm: Tensor
    double_lse_Cm: Tensor
    """log Σ exp 2z over each block, when it is wanted."""
    top_Cm: Tensor

    @staticmethod
    def allocate(head: Projection, hidden_mH: Tensor, target_m: Tensor) -> "BlockSums":
        words_C = head.words(hidden_mH)
        shape, dtype = (4, len(words_C), len(target_m)), head.arithmetic.sum_dtype
        lse_Cm, mean_Cm, twice_Cm, top_Cm = hidden_mH.new_empty(shape, dtype=dtype)
        return BlockSums(
            head=head,
            words_C=words_C,
            target_m=target_m,
            target_logit_m=torch.full_like(target_m, torch.nan, dtype=dtype),
            lse_Cm=lse_Cm,
            mean_Cm=mean_Cm,
            double_lse_Cm=twice_Cm,
            top_Cm=top_Cm,
        )

    def add_block(self, c: int, hidden_mH: Tensor, cached: list[Tensor] | None = None) -> Tensor:
        """Adds a block of the vocabulary; returns exp(z − its largest z). ``cached`` gets the logits."""
        words, target_m = self.words_C[c], self.target_m
        logits_mv = self.head.logits(hidden_mH, words)
        # Every row picks a logit and those of other blocks are thrown away: to select rows would be to count
        # them, which is to wait for the device once a block.
        place_m = target_m - words.start
        picked_m = logits_mv.gather(1, place_m.clamp(0, logits_mv.shape[1] - 1)[:, None])[:, 0]
        in_block_m = (place_m >= 0) & (place_m < logits_mv.shape[1])
        self.target_logit_m.copy_(torch.where(in_block_m, picked_m, self.target_logit_m))
        if self.head.arithmetic.with_entropy:
            self.mean_Cm[c] = logits_mv.softmax(-1).mul_(logits_mv).sum(-1)
        self.top_Cm[c] = logits_mv.amax(-1)
        # Last, and in place where nobody keeps the logits: their storage then holds the exponentials.
        if cached is not None:
            cached.append(logits_mv)
        subtract = logits_mv.sub_ if cached is None else logits_mv.sub
        power_mv = subtract(self.top_Cm[c, :, None]).exp_()
        self.lse_Cm[c] = power_mv.sum(-1).log_().add_(self.top_Cm[c])
        if self.head.arithmetic.with_repeat:
            self.double_lse_Cm[c] = power_mv.square().sum(-1).log_().add_(2 * self.top_Cm[c])
        return power_mv

    def combined(self) -> Tensor:
        """The sums over all blocks: target logit, log-sum-exp, Σ π z, log Σ exp 2z, largest logit."""
        # A log-sum-exp of log-sum-exps: each block is scaled by its own largest logit, so nothing overflows.
        lse_m = self.lse_Cm.logsumexp(0)
        arithmetic = self.head.arithmetic
        # Block means weighted by the block's share of probability, e^(lse_c − lse).
        mean_m = ((self.lse_Cm - lse_m).exp() * self.mean_Cm).sum(0) if arithmetic.with_entropy else lse_m
        twice_m = self.double_lse_Cm.logsumexp(0) if arithmetic.with_repeat else lse_m
        return torch.stack((self.target_logit_m, lse_m, mean_m, twice_m, self.top_Cm.amax(0)))


def _chunks(total: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, total)) for start in range(0, total, width))


Extra = Literal["entropy", "repeat"]
"""Optional scores beside log-probs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a distribution over the vocabulary says of one chosen token, for M of them."""

    logp_M: Float[Tensor, " M"]
    """log π(y) = z_y − log Σ_v exp z_v."""
    greedy_M: Bool[Tensor, " M"]
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
    """Log-probability of each target, in float32 or better, differentiable by states, weight and bias."""
    arithmetic = Arithmetic(
        rule=rule,
        dtype=product_dtype(hidden_MH),
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
    """
    may_overflow = torch.float16 in (weight_VH.dtype, product_dtype(hidden_MH))
    # A cap makes the slope depend on the logit; float16 could overflow before the loss's small factor.
    early = rule.cap is None and torch.is_grad_enabled() and not may_overflow
    dtype = product_dtype(hidden_MH)
    arithmetic = Arithmetic(rule=rule, dtype=dtype, with_entropy=False, gradient_in_forward=early)
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
        gradients: ProjectionGradients | None = None
        if arithmetic.gradient_in_forward:
            gradients = ProjectionGradients.zeros(ctx.needs_input_grad, head, hidden_MH)
        caches = gradients is None and any(ctx.needs_input_grad) and caches_logits(hidden_MH, weight_VH)
        cached = list[Tensor]() if caches else None
        with torch.autocast(hidden_MH.device.type, enabled=False):
            sums_5M = _logit_sums(head, hidden_MH, target_M, gradients, cached)
        target_logit_M, lse_M, mean_M, twice_M, top_M = sums_5M
        entropy_M = lse_M - mean_M
        # Both logits come out of the same product, so that equality is exact; of a tie each token is greedy.
        greedy_M = target_logit_M >= top_M
        ctx.how, ctx.early, ctx.cached = arithmetic, gradients, cached
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
        # Scaled in place below: a second backward through the same graph has to make its gradients afresh.
        cached, ctx.early, ctx.cached = ctx.cached, None, None
        with torch.autocast(grad_logp_M.device.type, enabled=False):
            # A factor that all tokens share (1/tokens) is applied once; any other needs the logits again.
            if grads is not None and _all_equal(grad_logp_M):
                grads.scale(grad_logp_M[0])
            else:
                grads = _gradients(ctx, grad_logp_M, grad_entropy_M, cached)
        hidden_grad_MH, weight_grad_VH, bias_grad_V = grads.narrowed(ctx.saved_tensors[:3])
        return None, hidden_grad_MH if ctx.needs_input_grad[1] else None, weight_grad_VH, bias_grad_V, None


_apply = cast(
    "Callable[[Arithmetic, Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, ...]]",
    _TokenLogProbs.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


def _score(
    arithmetic: Arithmetic, hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, target_M: Tensor
) -> TokenScores:
    # On a device the answer would have to be waited for: there whoever makes the targets asks (`Policy`), and
    # a token that is unknown all the same has a log-prob that is not a number.
    if target_M.device.type == "cpu":
        refuse_unknown_tokens(target_M, weight_VH.shape[0])
    logp_M, entropy_M, greedy_M, repeat_M = _apply(arithmetic, hidden_MH, weight_VH, bias_V, target_M)
    return TokenScores(
        logp_M=logp_M,
        greedy_M=greedy_M,
        entropy_M=entropy_M if arithmetic.with_entropy else None,
        repeat_M=repeat_M if arithmetic.with_repeat else None,
    )


def _gradients(
    ctx: Any, grad_logp_M: Tensor, grad_entropy_M: Tensor, cached: list[Tensor] | None
) -> ProjectionGradients:
    """From the sums that forward kept: each block's logits, turned into gradients in place."""
    # They are made once more where forward did not keep them, and those that it did are used up.
    hidden_MH, weight_VH, bias_V, target_M, target_logit_M, lse_M, entropy_M = ctx.saved_tensors
    arithmetic: Arithmetic = ctx.how
    head = Projection(arithmetic=arithmetic, weight_VH=weight_VH, bias_V=bias_V)
    grads = ProjectionGradients.zeros(ctx.needs_input_grad, head, hidden_MH)
    if cached is not None:
        # In the order in which they were made; a block is let go when it has been multiplied away.
        cached.reverse()
    for rows in head.rows(hidden_MH, retain_logits=False):
        hidden_mH = hidden_MH[rows].to(arithmetic.dtype)
        for words in head.words(hidden_mH):
            logits_mv = cached.pop() if cached else head.logits(hidden_mH, words)
            # Before the next line, which turns the logits into log-probs in place.
            slope = arithmetic.rule.slope(logits_mv)
            logp_mv = logits_mv.sub_(lse_M[rows, None])
            push_mv = -grad_logp_M[rows, None]
            if arithmetic.with_entropy:
                # ∂H/∂z_v = −π_v (log π_v + H).
                push_mv = push_mv - grad_entropy_M[rows, None] * (logp_mv + entropy_M[rows, None])
            grads.add(rows, words, logp_mv.exp_().mul_(push_mv).mul_(slope), hidden_mH)
    grads.add_targets(target_M, arithmetic.rule.slope(target_logit_M) * grad_logp_M, hidden_MH)
    return grads


def _all_equal(value_M: Tensor) -> bool:
    # The one place where backward waits for the device: which of two ways to the gradient is right depends on
    # its numbers, and the quick one saves a product with the whole vocabulary for each token.
    return len(value_M) > 0 and bool((value_M == value_M[0]).all())


def caches_logits(hidden_MH: Tensor, weight_VH: Tensor) -> bool:
    """Whether the logits of all these tokens are few enough to wait for the backward pass.

    >>> caches_logits(torch.empty(512, 8), torch.empty(32_000, 8)), caches_logits(
    ...     torch.empty(600, 8), torch.empty(32_000, 8))
    (True, False)
    """
    return hidden_MH.shape[0] * weight_VH.shape[0] <= MAX_CACHED_LOGITS


def _logit_sums(
    head: Projection,
    hidden_MH: Tensor,
    target_M: Tensor,
    gradients: ProjectionGradients | None,
    cached: list[Tensor] | None,
) -> Tensor:
    """Of each row: z of the target, log Σ_v exp z_v, Σ_v π_v z_v, log Σ_v exp 2z_v and the largest z."""
    # The third and the fourth are made when they are wanted. Where ``early`` is given, the gradient of
    # Σ log π is added to it.
    sums_5M = hidden_MH.new_empty((5, len(target_M)), dtype=head.arithmetic.sum_dtype)
    for rows in head.rows(hidden_MH, retain_logits=gradients is not None):
        hidden_mH = hidden_MH[rows].to(head.arithmetic.dtype)
        block_sums = BlockSums.allocate(head, hidden_mH, target_M[rows])
        # Without gradients a block's exponentials are dropped at once; else all wait for the row's sum.
        if gradients is None:
            for c in range(len(block_sums.words_C)):
                block_sums.add_block(c, hidden_mH, cached)
            sums_5M[:, rows] = block_sums.combined()
        else:
            powers_C = [block_sums.add_block(c, hidden_mH) for c in range(len(block_sums.words_C))]
            sums_5M[:, rows] = block_sums.combined()
            for c, power_mv in enumerate(powers_C):
                # e^(z − top) becomes π by e^(top − lse), without a second exponential of the whole block.
                share_m1 = (block_sums.top_Cm[c] - sums_5M[1, rows]).exp()[:, None]
                gradients.add(rows, block_sums.words_C[c], power_mv.mul_(-head.slope * share_m1), hidden_mH)
    if gradients is not None:
        gradients.add_targets(target_M, sums_5M.new_full(target_M.shape, head.slope), hidden_MH)
    return sums_5M


def refuse_unknown_tokens(target_M: Tensor, vocabulary: int) -> None:
    """Complain about a target that no row of the head stands for; it is read, so best on the host."""
    # Such a token falls into no block of words: its logit would stay whatever lay in that memory.
    unknown = target_M[(target_M < 0) | (target_M >= vocabulary)]
    if len(unknown) > 0:
        raise ValueError(
            f"token {int(unknown[0])} is not in the model's vocabulary of {vocabulary}: "
            "the tokenizer does not belong to this model"
        )


def product_dtype(hidden_MH: Tensor) -> torch.dtype:
    """The dtype of the products: autocast's where it is on, else the hidden states' own."""
    device = hidden_MH.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MH.dtype
