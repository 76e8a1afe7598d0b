"""Attention over a packed sequence: each prompt sees itself, each completion its prompt and itself.

Registered with transformers under its own name, so that any model whose attention goes through the
common interface can be packed; ``verify.py`` shows at load time whether it may. What a layer asks of
attention (scale, window, cap, sink and dropout) is read as an `AttentionRule`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from plaudit.errors import UserError
from plaudit.tokens.packing import Segments


class PackingError(UserError):
    """A model that cannot be packed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRule:
    """What a layer of the model asks of every attention.

    Example: ``attention_rule(module, facts).attend(query, key, value)``
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
        plain = query_length == key_length and (self.window is None or key_length <= self.window)
        if self.softcap is not None or self.sink_h is not None:
            return self._explicit_attention(query, key, value)
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if plain else self._visible_mask(query_length, key_length, query.device),
            is_causal=plain,
            dropout_p=self.dropout,
            scale=self.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def attention_weights(self, score_RkrAS: Tensor, visible: Tensor, size: int) -> Tensor:
        """From raw products of R rows to weights; ``sees`` fits their shape, True where one may look.

        k heads are kept, each of which r heads of ``size`` numbers ask; A tokens ask about S.
        """
        score = score_RkrAS * (size**-0.5 if self.scaling is None else self.scaling)
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
        score = score.masked_fill(~visible, float("-inf"))
        wide_dtype = torch.promote_types(score.dtype, torch.float32)
        if self.sink_h is None:
            return score.softmax(-1, dtype=wide_dtype).to(score.dtype)
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
        distance = torch.arange(key_length - query_length, key_length, device=device)[:, None] - torch.arange(
            key_length, device=device
        )
        return distance >= 0 if self.window is None else (distance >= 0) & (distance < self.window)


def attention_rule(module: nn.Module, kwargs: dict[str, Any]) -> AttentionRule:
    """The rule of a layer, from what transformers hands to attention; complain about what is left unsaid.

    A short trial cannot show a long window, so a layer that has one must say so.
    """
    config = getattr(module, "config", None)
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
    and what the caller handed to the model (``segments``) arrive together in ``facts``.
    """
    del attention_mask
    if "segments" not in kwargs:
        raise PackingError("its layers do not hand on to attention what the model was given")
    segments: Segments = kwargs["segments"]
    rule = attention_rule(module, kwargs)
    parts = (x.split(segments.piece_lengths, dim=2) for x in (query, key, value))
    triples = list(zip(*parts, strict=True))
    pieces: list[Tensor] = []
    at = 0
    for count in segments.following_pieces:
        query_p, key_p, value_p = triples[at]
        pieces.append(rule.attend(query_p, key_p, value_p))
        for query_n, key_n, value_n in triples[at + 1 : at + 1 + count]:
            context_key, context_value = (
                torch.cat((key_p, key_n), dim=2),
                torch.cat((value_p, value_n), dim=2),
            )
            pieces.append(rule.attend(query_n, context_key, context_value))
        at += 1 + count
    return torch.cat([piece.transpose(1, 2) for piece in pieces], dim=1), None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
