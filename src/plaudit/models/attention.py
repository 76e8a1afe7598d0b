"""Attention of packed rows, by the kernel that serves a layer best on its device.

In a packed row each prompt sees itself, each completion its prompt and itself. Four kernels compute that; the
first of them that can serve a layer is taken:

    varlen   one call of FlashAttention for all segments      CUDA, 16 bits; causal, or with a window
    flex     one call of FlexAttention over the whole row     CUDA; soft caps and sinks as well
    loop     one call of torch's attention for each segment   everywhere; causal, or with a window
    eager    products and softmax written out, by segment     everywhere

What a layer asks of attention (scale, window, cap, sink and dropout) is read as an `AttentionRule`. What the
kernels ask of a row's segments is made once for all layers, as a `PackedRow`, which says which kernels ran.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

from plaudit.errors import UserError
from plaudit.models.sequence import SequenceRanks
from plaudit.tokens.batch import move_together
from plaudit.tokens.microbatch import Segments


class PackingError(UserError):
    """A model that cannot be packed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRule:
    """What a layer of the model asks of every attention."""

    scaling: float | None
    """Factor on the scores; None for one over the root of a head's size."""
    dropout: float
    """Share of the weights that are dropped; 0 outside training."""
    window: int | None
    """How many tokens back may be looked at, this one included; None for all."""
    softcap: float | None
    sink_h: Tensor | None
    """GPT-OSS's score of nothing, for each head."""

    @property
    def kind(self) -> str:
        """What it asks beside causality, in words: layers of one kind are served by one kernel."""
        parts = ["full" if self.window is None else f"window of {self.window:,}"]
        parts += [word for word, has in (("capped", self.softcap), ("sink", self.sink_h)) if has is not None]
        return ", ".join(parts)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention ``[1, heads, …, size]`` of the last tokens of a conversation to all of it."""
        query_length, key_length = query.shape[2], key.shape[2]
        # A window that is longer than the keys hides nothing: then the fast causal kernel serves.
        plain = query_length == key_length and (self.window is None or key_length <= self.window)
        # scaled_dot_product_attention has no place for a cap on scores, nor for a sink's score.
        if self.softcap is not None or self.sink_h is not None:
            return self._explicit_attention(query, key, value)
        if not plain and query.is_cuda and query.shape[1] != key.shape[1]:
            # With a mask and grouped heads CUDA has but the kernel that writes all scores out.
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if plain else self._visible_mask(query_length, key_length, query.device),
            # Where queries are as many as keys: `is_causal` aligns top left, and fewer stand at the end.
            is_causal=plain,
            dropout_p=self.dropout,
            scale=self.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def attention_weights(self, score_RkrAS: Tensor, visible: Tensor | None, size: int) -> Tensor:
        """From raw products of R rows to weights; ``visible`` fits their shape, True where one may look.
        None for it where one may look everywhere. k heads are kept, each of which r heads of ``size`` numbers
        ask; A tokens ask about S."""
        score = score_RkrAS * (size**-0.5 if self.scaling is None else self.scaling)
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
        if visible is not None:
            score = score.masked_fill(~visible, float("-inf"))
        # Softmax in float32, as transformers' own attention has it, so that both round alike.
        wide_dtype = torch.promote_types(score.dtype, torch.float32)
        if self.sink_h is None:
            return score.softmax(-1, dtype=wide_dtype).to(score.dtype)
        # The sink takes its share of the softmax and is then cut off: weights may add up to less than 1.
        sink = self.sink_h.to(score.dtype).view(1, *score.shape[1:3], 1, 1).expand(*score.shape[:-1], 1)
        return torch.cat((score, sink), dim=-1).softmax(-1, dtype=wide_dtype)[..., :-1].to(score.dtype)

    def _explicit_attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention with softly capped scores (Gemma 2) or a sink beside them (GPT-OSS)."""
        rows, heads, query_length, size = query.shape
        kv_heads = key.shape[1]
        grouped_query = query.view(rows, kv_heads, heads // kv_heads, query_length, size)
        score = grouped_query @ key[:, :, None].transpose(-1, -2)
        visible = self._visible_mask(query_length, key.shape[2], query.device)
        weight = self.attention_weights(score, visible, size)
        output = torch.dropout(weight, self.dropout, train=self.dropout > 0) @ value[:, :, None]
        return output.reshape(rows, heads, query_length, value.shape[-1])

    def _visible_mask(self, query_length: int, key_length: int, device: torch.device) -> Tensor:
        # The last query stands at the last key: query i is at position key_length − query_length + i.
        place = torch.arange(key_length, device=device)
        distance = place[key_length - query_length :, None] - place
        return distance >= 0 if self.window is None else (distance >= 0) & (distance < self.window)


def attention_rule(module: nn.Module, kwargs: dict[str, Any]) -> AttentionRule:
    """The rule of a layer, from what transformers hands to attention; complain about what is left unsaid.
    A short trial cannot show a long window, so a layer that has one must say so."""
    config = getattr(module, "config", None)
    # A rule knows windows, which move along, and no chunks: a token would look beyond its chunk's border.
    if getattr(config, "attention_chunk_size", None):
        raise PackingError("its layers attend within chunks")
    if getattr(config, "sliding_window", None) and "sliding_window" not in kwargs:
        raise PackingError("its layers do not tell attention how far back it may look")
    return AttentionRule(
        scaling=kwargs.get("scaling"),
        dropout=kwargs.get("dropout", 0.0) if module.training else 0.0,
        window=kwargs.get("sliding_window"),
        softcap=kwargs.get("softcap"),
        sink_h=kwargs.get("s_aux"),
    )


def has_soft_caps(config: PreTrainedConfig) -> bool:
    """Whether attention's scores are capped (Gemma 2), which torch's fused attention would leave out."""
    return getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None


ACCELERATED = ("cuda",)
"""The device types that varlen and flex are for; torch cannot train through either of them on a CPU."""
COPIES_AT_ONCE = 8
"""Gradients of so many copies of a key are added up in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VarlenPlan:
    """What one call for all segments needs: where each one's queries and keys lie.
    Example: for prompts of 2 and 3 tokens, the first with completions of 4 and 5 and the second with one of
    6, queries end at (0, 2, 6, 11, 20) and keys at (0, 2, 8, 15, 24)."""

    query_ends: Tensor
    """Where each segment's queries end in the row, behind a 0; int32."""
    key_ends: Tensor
    """Where its keys end among the gathered ones."""
    longest_query: int
    longest_key: int
    key_index: Tensor | None
    """The token of the row that each key is of; None where keys are the row itself."""
    own_S: Tensor
    """For each token of the row where its key stands in its own segment."""
    copies: tuple[tuple[Tensor, Tensor], ...]
    """Tokens of prompts, and where up to so many further copies of each one's key stand; as many as there
    are keys where there are fewer."""


class PackedRow:
    """The segments of one packed row, with what kernels make of them once for all layers."""

    def __init__(
        self,
        segments: Segments,
        device: torch.device,
        *,
        without: Sequence[str] = (),
        ran: dict[str, str],
        sequence: SequenceRanks | None = None,
    ) -> None:
        """Use none of the kernels in ``without``; ``ran`` gets the kernel of each kind of layer.
        ``sequence``: the ranks that share the row's tokens."""
        self.segments, self.device = segments, device
        self._without, self._ran, self._sequence = without, ran, sequence
        self._block_masks: dict[int | None, Any] = {}

    def attend(self, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention ``[1, S, heads, size]`` of the row's tokens, by the first kernel that can."""
        if self._sequence is None:
            return self._attend_whole(rule, query, key, value)
        of_heads = self._sequence.to_heads(query, key, value)
        own_rule = replace(rule, sink_h=self._sequence.own_heads(rule.sink_h))
        return self._sequence.to_tokens(self._attend_whole(own_rule, *of_heads))

    def _attend_whole(self, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kernel = next(
            kernel
            for name, kernel in KERNEL_TABLE.items()
            if name not in self._without and kernel.objection(rule, query, value) is None
        )
        self._ran[rule.kind] = kernel.name
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            return kernel.attend(self, rule, query, key, value)
        query, key, value = (_backward_warns(x, True) for x in (query, key, value))
        return _backward_warns(kernel.attend(self, rule, query, key, value), False)

    @property
    def group_of_token(self) -> list[int]:
        return self.segments.group_of_token

    @property
    def completion_of_token(self) -> list[int]:
        """The completion that each token belongs to; −1 for a prompt's."""
        return self.segments.completion_of_token

    @cached_property
    def varlen(self) -> VarlenPlan:
        queries, keys = [0], [0]
        index: list[Tensor] = []
        own: list[Tensor] = []
        shared: list[tuple[Tensor, list[int]]] = []
        for prompt, completions in zip(self.segments.prompts, self.segments.completions, strict=True):
            # An only completion is one segment with its prompt.
            followers = completions if len(completions) > 1 else ()
            head_S = torch.arange(queries[-1], queries[-1] + prompt + (0 if followers else sum(completions)))
            starts: list[int] = []
            for before_S, length in ((head_S[:0], len(head_S)), *((head_S, length) for length in followers)):
                starts.append(keys[-1])
                index += [before_S, torch.arange(queries[-1], queries[-1] + length)]
                own.append(torch.arange(keys[-1] + len(before_S), keys[-1] + len(before_S) + length))
                queries.append(queries[-1] + length)
                keys.append(keys[-1] + len(before_S) + length)
            if followers:
                shared.append((head_S, starts[1:]))
        copies = _copies(shared, keys[-1])
        ends = [torch.tensor(ends, dtype=torch.int32) for ends in (queries, keys)]
        moved = move_together([*ends, torch.cat(index), torch.cat(own), *chain(*copies)], self.device)
        return VarlenPlan(
            query_ends=moved[0],
            key_ends=moved[1],
            longest_query=max(b - a for a, b in pairwise(queries)),
            longest_key=max(b - a for a, b in pairwise(keys)),
            key_index=moved[2] if shared else None,
            own_S=moved[3],
            copies=tuple(zip(moved[4::2], moved[5::2], strict=True)),
        )

    def block_mask(self, window: int | None) -> Any:
        if window not in self._block_masks:
            self._block_masks[window] = self._block_mask(window)
        return self._block_masks[window]

    def _block_mask(self, window: int | None) -> Any:
        place_S, group_S, completion_S = self._places

        def sees(_: Tensor, __: Tensor, q: Tensor, k: Tensor) -> Tensor:
            # Of its own group: the prompt's tokens, and those of its own completion.
            mine = (completion_S[k] < 0) | (completion_S[k] == completion_S[q])
            back = place_S[q] - place_S[k]
            near = back >= 0 if window is None else (back >= 0) & (back < window)
            return (group_S[q] == group_S[k]) & mine & near

        make = _compiled(flex.create_block_mask, self.device.type)
        return make(sees, None, None, len(place_S), len(place_S), device=self.device)

    @cached_property
    def _places(self) -> list[Tensor]:
        places = [
            place
            for prompt, completions in zip(self.segments.prompts, self.segments.completions, strict=True)
            for length, start in ((prompt, 0), *((length, prompt) for length in completions))
            for place in range(start, start + length)
        ]
        columns = (places, self.segments.group_of_token, self.segments.completion_of_token)
        return move_together([torch.tensor(column) for column in columns], self.device)


def _copies(shared: Sequence[tuple[Tensor, list[int]]], keys: int) -> list[tuple[Tensor, Tensor]]:
    """The tokens of each prompt, with the places of some of their copies a column; ``keys`` is no place."""
    passes: list[tuple[Tensor, Tensor]] = []
    for first in range(0, max((len(starts) for _, starts in shared), default=0), COPIES_AT_ONCE):
        members = [(head_S, starts[first : first + COPIES_AT_ONCE]) for head_S, starts in shared]
        members = [(head_S, starts) for head_S, starts in members if starts]
        places = [torch.arange(len(head_S))[:, None] + torch.tensor(starts) for head_S, starts in members]
        widest = max(place.shape[1] for place in places)
        padded = [functional.pad(place, (0, widest - place.shape[1]), value=keys) for place in places]
        passes.append((torch.cat([head_S for head_S, _ in members]), torch.cat(padded)))
    return passes


class _BackwardWarns(torch.autograd.Function):
    """The tensor itself; what comes behind it in the backward pass only warns of chance, or has none.
    FlashAttention adds gradients in one order only where torch is told to fail without one, which all other
    operations cannot be told: so it is told so from attention's output back to its queries, keys and
    values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, warns: bool) -> Tensor:
        ctx.warns = warns
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        torch.use_deterministic_algorithms(mode=True, warn_only=ctx.warns)
        return grads[0], None


_backward_warns = cast(
    "Callable[[Tensor, bool], Tensor]",
    _BackwardWarns.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


class _GatherKeys(torch.autograd.Function):
    """The keys of every segment, a prompt's once for each that looks at it.
    Backward adds up in float32 and in an order of its own, so that two runs give the same bits."""

    @staticmethod
    def forward(ctx: Any, row_SkD: Tensor, plan: VarlenPlan) -> Tensor:
        assert plan.key_index is not None
        ctx.plan = plan
        return row_SkD.index_select(0, plan.key_index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        plan: VarlenPlan = ctx.plan
        # The last row stands for the copies that a token has not.
        grad_KkD = torch.cat((grads[0], grads[0].new_zeros(1, *grads[0].shape[1:])))
        wide = torch.promote_types(grad_KkD.dtype, torch.float32)
        total_SkD = grad_KkD.index_select(0, plan.own_S).to(wide)
        for token_t, place_tc in plan.copies:
            more_tkD = grad_KkD[place_tc].sum(1, dtype=wide)
            # Copied, not added in place: no token stands twice, so no order of threads decides.
            total_SkD.index_copy_(0, token_t, total_SkD.index_select(0, token_t) + more_tkD)
        return total_SkD.to(grad_KkD.dtype), None


_gather_keys = cast(
    "Callable[[Tensor, VarlenPlan], Tensor]",
    _GatherKeys.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)


def _attend_varlen(row: PackedRow, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    plan = row.varlen
    query_ShD, key_SkD, value_SkD = (x[0].transpose(0, 1) for x in (query, key, value))
    if plan.key_index is not None:
        key_SkD, value_SkD = _gather_keys(key_SkD, plan), _gather_keys(value_SkD, plan)
    grouped: dict[str, Any] = {}
    if query.shape[1] != key.shape[1] and _VARLEN_KNOWS_GROUPS:
        grouped = {"enable_gqa": True}
    elif query.shape[1] != key.shape[1]:
        # torch 2.11 cannot be told of heads that share their keys.
        repeats = query.shape[1] // key.shape[1]
        key_SkD, value_SkD = (x.repeat_interleave(repeats, dim=1) for x in (key_SkD, value_SkD))
    # FlashAttention aligns queries with the last keys, and counts a window without the token itself.
    window = (-1, 0) if rule.window is None else (rule.window - 1, 0)
    output: Any = varlen_attn(
        *(query_ShD, key_SkD, value_SkD, plan.query_ends, plan.key_ends),
        *(plan.longest_query, plan.longest_key),
        scale=rule.scaling,
        window_size=window,
        **grouped,
    )
    return output[None]


_VARLEN_KNOWS_GROUPS = "enable_gqa" in inspect.signature(varlen_attn).parameters


def _attend_flex(row: PackedRow, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # A tensor: of a number torch 2.11, told that sizes change, makes one that it cannot trace backward.
    cap = None if rule.softcap is None else torch.full((), rule.softcap, device=query.device)

    def capped(score: Tensor, *_: Tensor) -> Tensor:
        assert cap is not None
        return cap * torch.tanh(score / cap)

    attend: Any = _compiled(flex.flex_attention, query.device.type)
    output, aux = attend(
        *(query, key, value),
        score_mod=None if cap is None else capped,
        block_mask=row.block_mask(rule.window),
        scale=rule.scaling,
        enable_gqa=query.shape[1] != key.shape[1],
        return_aux=flex.AuxRequest(lse=True),
    )
    if rule.sink_h is not None:
        # A sink is one more score in the softmax: what is left of the others is their share beside it.
        share = torch.sigmoid(aux.lse - rule.sink_h.to(aux.lse.dtype)[None, :, None])
        output = output * share[..., None].to(output.dtype)
    return output.transpose(1, 2)


@lru_cache
def _compiled(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Compiled once for all lengths; on a CPU, where a compiler may be missing, as it is."""
    return function if device == "cpu" else torch.compile(function, dynamic=True)


def _attend_in_turn(row: PackedRow, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # Views of the packed row: one attention a piece costs launches, and never a [S, S] mask over all of it.
    parts = (x.split(row.segments.piece_lengths, dim=2) for x in (query, key, value))
    triples = list(zip(*parts, strict=True))
    pieces: list[Tensor] = []
    at = 0
    for count in row.segments.following_pieces:
        query_p, key_p, value_p = triples[at]
        pieces.append(rule.attend(query_p, key_p, value_p))
        for query_n, key_n, value_n in triples[at + 1 : at + 1 + count]:
            # Each completion sees its prompt and itself only; its siblings' keys never enter the product.
            context_key = torch.cat((key_p, key_n), dim=2)
            pieces.append(rule.attend(query_n, context_key, torch.cat((value_p, value_n), dim=2)))
        at += 1 + count
    return torch.cat([piece.transpose(1, 2) for piece in pieces], dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKernel:
    """A way to compute packed attention."""

    name: str
    objection: Callable[[AttentionRule, Tensor, Tensor], str | None]
    """Why it cannot serve a layer, from its rule, queries and values; None where it can."""
    attend: Callable[[PackedRow, AttentionRule, Tensor, Tensor, Tensor], Tensor]
    """Attention ``[1, S, heads, size]``, from queries, keys and values ``[1, heads, S, size]``."""


def _accelerated_objection(rule: AttentionRule, query: Tensor, value: Tensor) -> str | None:
    if query.device.type not in ACCELERATED:
        return f"is for {' and '.join(ACCELERATED)}"
    if rule.dropout:
        return "drops no weights"
    return "wants values as wide as keys" if query.shape[-1] != value.shape[-1] else None


def _varlen_objection(rule: AttentionRule, query: Tensor, value: Tensor) -> str | None:
    if rule.softcap is not None or rule.sink_h is not None:
        return "knows neither caps nor sinks"
    if query.dtype not in (torch.bfloat16, torch.float16):
        return f"computes in 16 bits, not in {query.dtype}"
    if query.shape[-1] > 256 or query.shape[-1] % 8:
        return "wants heads of at most 256 numbers, by eights"
    return _accelerated_objection(rule, query, value)


def _flex_objection(rule: AttentionRule, query: Tensor, value: Tensor) -> str | None:
    # Triton's product of blocks has no smaller ones.
    if min(query.shape[-1], value.shape[-1]) < 16:
        return "wants heads of at least 16 numbers"
    return _accelerated_objection(rule, query, value)


KERNEL_TABLE = {
    kernel.name: kernel
    for kernel in (
        PackedKernel(name="varlen", objection=_varlen_objection, attend=_attend_varlen),
        PackedKernel(name="flex", objection=_flex_objection, attend=_attend_flex),
        PackedKernel(
            name="loop",
            objection=lambda rule, *_: (
                None if rule.softcap is rule.sink_h is None else "knows neither caps nor sinks"
            ),
            attend=_attend_in_turn,
        ),
        PackedKernel(name="eager", objection=lambda *_: None, attend=_attend_in_turn),
    )
}


FAST_KERNELS = ("varlen", "flex")


PACKED_ATTENTION = "plaudit_packed"
"""The name under which transformers knows it."""


# Not compiled with the layer around it: a segment's length would be a new program, and the fast kernels are
# whole programs themselves.
@torch.compiler.disable
def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one packed row; keys, values and queries are ``[1, heads, S, size]``.
    The signature is the one that transformers calls: what a layer wants (scaling, window, cap, dropout) and
    what the caller handed to the model (``packed_row``) arrive together in ``kwargs``."""
    if "packed_row" not in kwargs:
        raise PackingError("its layers do not hand on to attention what the model was given")
    row: PackedRow = kwargs["packed_row"]
    return row.attend(attention_rule(module, kwargs), query, key, value), None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
