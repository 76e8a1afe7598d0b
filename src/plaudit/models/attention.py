"""Attention over a packed sequence: each prompt sees itself, each completion its prompt and itself.

Registered with transformers under its own name, so that any model whose attention goes through the
common interface can be packed; ``proof.py`` shows at load time whether it may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from plaudit.batches.pack import Segments
from plaudit.errors import UserError

PACKED = "plaudit_packed"
"""The name under which transformers knows it."""


class PackingError(UserError):
    """A model that cannot be packed, and why."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **facts: Any,
) -> tuple[Tensor, None]:
    """Attention of one packed row; keys, values and queries are ``[1, heads, S, size]``.

    The signature is the one that transformers calls: what a layer wants (scaling, window, cap, dropout)
    and what the caller handed to the model (``segments``) arrive together in ``facts``.
    """
    del attention_mask
    _refuse_what_is_left_unsaid(module, facts)
    segments: Segments = facts["segments"]
    rule = _Rule(
        scaling=facts.get("scaling"),
        dropout=facts.get("dropout", 0.0) if module.training else 0.0,
        window=facts.get("sliding_window"),
        softcap=facts.get("softcap"),
        sink_h=facts.get("s_aux"),
    )
    parts = (x.split(segments.lengths, dim=2) for x in (query, key, value))
    triples = list(zip(*parts, strict=True))
    pieces: list[Tensor] = []
    at = 0
    for count in segments.answers:
        query_p, key_p, value_p = triples[at]
        pieces.append(rule.attend(query_p, key_p, value_p))
        for query_n, key_n, value_n in triples[at + 1 : at + 1 + count]:
            seen_key, seen_value = torch.cat((key_p, key_n), dim=2), torch.cat((value_p, value_n), dim=2)
            pieces.append(rule.attend(query_n, seen_key, seen_value))
        at += 1 + count
    return torch.cat([piece.transpose(1, 2) for piece in pieces], dim=1), None


def _refuse_what_is_left_unsaid(module: torch.nn.Module, facts: dict[str, Any]) -> None:
    """A short trial cannot show a long window, so a layer that has one must say so."""
    if "segments" not in facts:
        raise PackingError("its layers do not hand on to attention what the model was given")
    config = getattr(module, "config", None)
    if getattr(config, "attention_chunk_size", None):
        raise PackingError("its layers attend within chunks")
    if getattr(config, "sliding_window", None) and "sliding_window" not in facts:
        raise PackingError("its layers do not tell attention how far back it may look")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What the model asks of every attention of a layer."""

    scaling: float | None
    dropout: float
    window: int | None
    softcap: float | None
    sink_h: Tensor | None

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention of the last tokens of a conversation to all of it."""
        asked, seen = query.shape[2], key.shape[2]
        plain = asked == seen and (self.window is None or seen <= self.window)
        if self.softcap is not None or self.sink_h is not None:
            return self._written_out(query, key, value)
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if plain else self._sees(asked, seen, query.device),
            is_causal=plain,
            dropout_p=self.dropout,
            scale=self.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def _sees(self, asked: int, seen: int, device: torch.device) -> Tensor:
        """True where a token may look: not ahead, and not behind its window."""
        back = torch.arange(seen - asked, seen, device=device)[:, None] - torch.arange(seen, device=device)
        return back >= 0 if self.window is None else (back >= 0) & (back < self.window)

    def _written_out(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention with softly capped scores (Gemma 2) or a sink beside them (GPT-OSS)."""
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        scale = query.shape[-1] ** -0.5 if self.scaling is None else self.scaling
        score = query @ key.transpose(-1, -2) * scale
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
        score = score.masked_fill(~self._sees(query.shape[2], key.shape[2], query.device), float("-inf"))
        if self.sink_h is not None:
            sink = self.sink_h.view(1, -1, 1, 1).expand(score.shape[0], -1, score.shape[2], 1)
            score = torch.cat((score, sink.to(score.dtype)), dim=-1)
        weight = score.softmax(-1)[..., : key.shape[2]]
        return torch.dropout(weight, self.dropout, train=self.dropout > 0) @ value


AttentionInterface.register(PACKED, packed_attention)
