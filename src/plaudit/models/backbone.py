"""A language model in two parts: its layers, fed packed or padded batches, and its head, the last layer.

The head is a weight, a bias, and what is done to the raw product. In a packed sequence each prompt sees
itself, each completion its prompt and itself. That attention is registered with transformers under its own
name, so that any model whose attention goes through the common interface can be packed; ``verify.py`` shows
at load time whether it may. What a layer asks of attention (scale, window, cap, sink and dropout) is read as
an `AttentionRule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from plaudit.errors import UserError
from plaudit.tensors.logprobs import LogitRule
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.microbatch import ForwardInputs, Layout, Segments, layout_batch


class PackingError(UserError):
    """A model that cannot be packed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRule:
    """What a layer of the model asks of every attention.

    Example: ``attention_rule(module, kwargs).attend(query, key, value)``
    """

    scaling: float | None
    """Factor on the scores; None for one over the root of a head's size."""
    dropout: float
    """Share of the weights that are dropped; 0 outside training."""
    window: int | None
    """How many tokens back may be looked at, this one included; None for all."""
    softcap: float | None
    """Gemma 2's soft limit on scores."""
    sink_h: Tensor | None
    """GPT-OSS's score of nothing, for each head."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention ``[1, heads, …, size]`` of the last tokens of a conversation to all of it."""
        query_length, key_length = query.shape[2], key.shape[2]
        # A window that is longer than the keys hides nothing: then the fast causal kernel serves.
        plain = query_length == key_length and (self.window is None or key_length <= self.window)
        # scaled_dot_product_attention has no place for a cap on scores, nor for a sink's score.
        if self.softcap is not None or self.sink_h is not None:
            return self._explicit_attention(query, key, value)
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if plain else self._visible_mask(query_length, key_length, query.device),
            # Only where queries are as many as keys: `is_causal` aligns
            # top left, and fewer queries stand at the end.
            is_causal=plain,
            dropout_p=self.dropout,
            scale=self.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def attention_weights(self, score_RkrAS: Tensor, visible: Tensor, size: int) -> Tensor:
        """From raw products of R rows to weights; ``visible`` fits their shape, True where one may look.

        k heads are kept, each of which r heads of ``size`` numbers ask; A tokens ask about S.
        """
        score = score_RkrAS * (size**-0.5 if self.scaling is None else self.scaling)
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
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
        weight = self.attention_weights(
            score, self._visible_mask(query_length, key.shape[2], query.device), size
        )
        output = torch.dropout(weight, self.dropout, train=self.dropout > 0) @ value[:, :, None]
        return output.reshape(rows, heads, query_length, value.shape[-1])

    def _visible_mask(self, query_length: int, key_length: int, device: torch.device) -> Tensor:
        """True where a query may attend: no later position, and none before the window."""
        # The last query stands at the last key: query i is at position key_length − query_length + i.
        distance = torch.arange(key_length - query_length, key_length, device=device)[:, None] - torch.arange(
            key_length, device=device
        )
        return distance >= 0 if self.window is None else (distance >= 0) & (distance < self.window)


def attention_rule(module: nn.Module, kwargs: dict[str, Any]) -> AttentionRule:
    """The rule of a layer, from what transformers hands to attention; complain about what is left unsaid.

    A short trial cannot show a long window, so a layer that has one must say so.
    """
    config = getattr(module, "config", None)
    # A rule knows windows, which move along, and no chunks: it
    # would let a token look beyond its chunk's border.
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


PACKED_ATTENTION = "plaudit_packed"
"""The name under which transformers knows it."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one packed row; keys, values and queries are ``[1, heads, S, size]``.

    The signature is the one that transformers calls: what a layer wants (scaling, window, cap, dropout)
    and what the caller handed to the model (``segments``) arrive together in ``kwargs``.
    """
    del attention_mask
    if "segments" not in kwargs:
        raise PackingError("its layers do not hand on to attention what the model was given")
    segments: Segments = kwargs["segments"]
    rule = attention_rule(module, kwargs)
    # Views of the packed row: one attention a piece costs
    # launches, and never a [S, S] mask over the whole row.
    parts = (x.split(segments.piece_lengths, dim=2) for x in (query, key, value))
    triples = list(zip(*parts, strict=True))
    pieces: list[Tensor] = []
    at = 0
    for count in segments.following_pieces:
        query_p, key_p, value_p = triples[at]
        pieces.append(rule.attend(query_p, key_p, value_p))
        for query_n, key_n, value_n in triples[at + 1 : at + 1 + count]:
            # Each completion sees its prompt and itself only; its
            # siblings' keys never enter the product.
            context_key, context_value = (
                torch.cat((key_p, key_n), dim=2),
                torch.cat((value_p, value_n), dim=2),
            )
            pieces.append(rule.attend(query_n, context_key, context_value))
        at += 1 + count
    return torch.cat([piece.transpose(1, 2) for piece in pieces], dim=1), None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where logits come from.

    Example: for Phi ``Head(layer=model.lm_head, rule=LogitRule())``, with a bias in the layer.
    """

    layer: nn.Linear
    """The projection to the vocabulary."""
    rule: LogitRule
    """What happens to its output."""


def head_of(model: PreTrainedModel) -> Head:
    """The head of a causal language model, with the rule that its configuration states.

    Gemma caps logits (``final_logit_softcapping``), Cohere multiplies them (``logit_scale``), Granite
    divides them (``logits_scaling``). Whether that was all is shown by `choose_layout`.
    """
    layer = model.get_output_embeddings()
    if type(layer) is not nn.Linear:
        raise UserError(
            f"the vocabulary head of {type(model).__name__} is a {type(layer).__name__}, not a plain linear "
            "layer: plaudit cannot compute its log-probs in blocks (an adapter on lm_head is not supported)"
        )
    config = model.config.get_text_config()
    # `or`: some configurations carry the field as None.
    scale = getattr(config, "logit_scale", None) or 1.0
    return Head(
        layer=layer,
        rule=LogitRule(
            scale=scale / (getattr(config, "logits_scaling", None) or 1.0),
            cap=getattr(config, "final_logit_softcapping", None),
        ),
    )


def without_head(model: PreTrainedModel) -> nn.Module:
    """The model without its head: tokens to hidden states."""
    headless = getattr(model, model.base_model_prefix, None)
    if not isinstance(headless, nn.Module):
        raise UserError(f"{type(model).__name__} has no backbone named {model.base_model_prefix!r}")
    return headless


def refuse_unknown_extras(headless: nn.Module, extras: Mapping[str, Tensor]) -> None:
    """Raise for an extra that is no argument of the model by name: what takes any argument ignores it."""
    unknown = [name for name in extras if name not in inspect.signature(headless.forward).parameters]
    if unknown:
        raise UserError(
            f"the rows have {' and '.join(map(repr, unknown))} beside tokens, and {type(headless).__name__} "
            "takes no argument of that name; use a model that does, or leave it out of the rows"
        )


StateSelector = Callable[[ForwardInputs], Tensor]
"""Which states are wanted, as indices into the flattened ``[R·S]`` ones of an arrangement, on the host."""


class Backbone:
    """A Hugging Face model used for its states; no module of its own, so that weights keep their names."""

    def __init__(self, model: nn.Module, *, layout: Layout, share_prompts: bool, attention: str | None):
        """Use a PreTrainedModel, or one in PEFT's wrapper, that is already on its device."""
        self.model = model
        self.share_prompts = share_prompts
        self.plain_attention = attention or ("sdpa" if self.base._supports_sdpa else "eager")
        self.use_layout(layout)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        wrapped = getattr(self.model, "get_base_model", None)
        return cast("PreTrainedModel", self.model if wrapped is None else wrapped())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.base.parameters()).device

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.layout: Layout = layout
        self._set_layout_attention()

    def states(self, batch: TokenBatch, select: StateSelector) -> Tensor:
        """The wanted states ``[…, H]`` after one pass through the layers; the others are not kept.

        ``select`` works on the host, on inputs that lie there: pick by ``batch.host``, not by ``batch``.
        """
        if self.layout == "packed" and not self.can_replace_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        inputs = layout_batch(batch.host, self.layout, share_prompts=self.share_prompts)
        selected, device = select(inputs), batch.completion_NT.device
        # How many states there are is known on the host alone; asking the device would wait for all it does.
        # `unique`: completions of one prompt share the state that predicts their first token.
        selected_M = selected.unique().to(device, non_blocking=True)
        return self.all_states(inputs.to(device), selected_M)[selected.to(device, non_blocking=True)]

    def all_states(self, inputs: ForwardInputs, selected_M: Tensor) -> Tensor:
        """All states ``[R·S, H]`` after one pass; only those of the given rows are complete."""
        packing = {} if inputs.segments is None else {"segments": inputs.segments}
        headless = without_head(self.base)
        if inputs.extras:
            refuse_unknown_extras(headless, inputs.extras)
        with _last_mlp_only_for(headless, selected_M, inputs.ids_RS.numel()):
            output = headless(
                input_ids=inputs.ids_RS,
                position_ids=inputs.position_RS,
                # On the right nothing is masked: under causal attention no real
                # token can see the padding behind it.
                attention_mask=None if inputs.real_RS is None else inputs.real_RS.long(),
                # A cache would keep keys and values of every layer for
                # nothing: no token is generated here.
                use_cache=False,
                **packing,
                **inputs.extras,
            )
        hidden_RSH: Tensor = output.last_hidden_state
        if inputs.extras and hidden_RSH.shape[:2] != inputs.ids_RS.shape:
            # An extra of one row a group, added to the one row of a packed batch, broadcasts silently.
            raise UserError(
                f"{type(headless).__name__} made states of shape {tuple(hidden_RSH.shape)} of tokens of "
                f"shape {tuple(inputs.ids_RS.shape)}: it does not read {', '.join(inputs.extras)} in a "
                "packed batch; look its rows up by segments (docs/design.md), or use --memory.layout right"
            )
        return hidden_RSH.flatten(0, 1)

    @contextmanager
    def attention_context(self, name: str) -> Iterator[Any]:
        """The wrapped model with the attention of this name, in evaluation mode."""
        was_training = self.model.training
        self.model.eval()
        self._set_attention(name)
        try:
            yield self.model
        finally:
            self._set_layout_attention()
            self.model.train(was_training)

    def _set_layout_attention(self) -> None:
        self._set_attention(PACKED_ATTENTION if self.layout == "packed" else self.plain_attention)

    def _set_attention(self, name: str) -> None:
        if self.can_replace_attention:
            self.base.set_attn_implementation(name)

    @property
    def can_replace_attention(self) -> bool:
        """Whether the model's attention goes through transformers' common interface."""
        return self.base._can_set_attn_implementation()


@contextmanager
def _last_mlp_only_for(headless: nn.Module, selected_M: Tensor, tokens: int) -> Iterator[None]:
    """While this lasts, the last layer's feed-forward part is computed for the wanted tokens only.

    It takes each token by itself and nothing above it looks at another one, so the unwanted states, which
    go without it, are read by nobody. That this holds for a model is shown with the layout, in ``verify.py``.
    """
    # Experts may not take a batch of no tokens, which a rank without rows has.
    mlp = _last_feed_forward(headless) if selected_M.numel() else None
    shapes: list[torch.Size] = []

    def choose(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A layer that calls its MLP in another way is left whole: slower, and still right.
        if kwargs or len(args) != 1 or args[0].shape[:-1].numel() != tokens:
            return None
        hidden = args[0]
        # Remembered for `put_back`, which must restore it only if this hook has cut the input.
        shapes.append(hidden.shape)
        chosen = hidden.flatten(0, -2)[selected_M]
        return (chosen.view(*[1] * (hidden.ndim - 2), *chosen.shape),), kwargs

    def put_back(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if not shapes:
            return None
        first, *more = output if isinstance(output, tuple) else (output,)
        empty = first.new_zeros(tokens, first.shape[-1])
        # Zeros at the unwanted places: the residual is added to
        # them, so they hold values that nobody reads.
        scattered = empty.index_copy(0, selected_M, first.flatten(0, -2)).view(*shapes.pop()[:-1], -1)
        return (scattered, *more) if isinstance(output, tuple) else scattered

    handles = (
        []
        if mlp is None
        else [
            mlp.register_forward_pre_hook(choose, with_kwargs=True),
            mlp.register_forward_hook(put_back),
        ]
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _last_feed_forward(headless: nn.Module) -> nn.Module | None:
    """What follows attention in the last layer, where it is known by its usual name.

    None also where layers are computed again in the backward pass, when the wanted tokens are forgotten.
    """
    # Exactly one stack of layers: with two (an encoder, a vision
    # tower) it is not known which one comes last.
    stacks = [child for child in headless.children() if isinstance(child, nn.ModuleList)]
    if len(stacks) != 1 or not stacks[0] or getattr(stacks[0][-1], "gradient_checkpointing", False):
        return None
    part = getattr(stacks[0][-1], "mlp", None)
    return part if isinstance(part, nn.Module) else None
