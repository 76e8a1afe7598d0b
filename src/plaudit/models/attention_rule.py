"""What one layer asks of attention: its scale, window, cap, sink and dropout; and attention by that rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from plaudit.errors import UserError


class PackingError(UserError):
    """A model that cannot be packed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a layer of the model asks of every attention.

    Example: ``rule_of(module, facts).attend(query, key, value)``
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

    def weights(self, score_RkrAS: Tensor, sees: Tensor, size: int) -> Tensor:
        """From raw products of R rows to weights; ``sees`` fits their shape, True where one may look.

        k heads are kept, each of which r heads of ``size`` numbers ask; A tokens ask about S.
        """
        score = score_RkrAS * (size**-0.5 if self.scaling is None else self.scaling)
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
        score = score.masked_fill(~sees, float("-inf"))
        exact = torch.promote_types(score.dtype, torch.float32)
        if self.sink_h is None:
            return score.softmax(-1, dtype=exact).to(score.dtype)
        sink = self.sink_h.to(score.dtype).view(1, *score.shape[1:3], 1, 1).expand(*score.shape[:-1], 1)
        return torch.cat((score, sink), dim=-1).softmax(-1, dtype=exact)[..., :-1].to(score.dtype)

    def _written_out(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention with softly capped scores (Gemma 2) or a sink beside them (GPT-OSS)."""
        rows, heads, asked, size = query.shape
        kept = key.shape[1]
        parted = query.view(rows, kept, heads // kept, asked, size)
        score = parted @ key[:, :, None].transpose(-1, -2)
        weight = self.weights(score, self._sees(asked, key.shape[2], query.device), size)
        told = torch.dropout(weight, self.dropout, train=self.dropout > 0) @ value[:, :, None]
        return told.reshape(rows, heads, asked, value.shape[-1])

    def _sees(self, asked: int, seen: int, device: torch.device) -> Tensor:
        """True where a token may look: not ahead, and not behind its window."""
        back = torch.arange(seen - asked, seen, device=device)[:, None] - torch.arange(seen, device=device)
        return back >= 0 if self.window is None else (back >= 0) & (back < self.window)


def rule_of(module: nn.Module, facts: dict[str, Any]) -> Rule:
    """The rule of a layer, from what transformers hands to attention; complain about what is left unsaid.

    A short trial cannot show a long window, so a layer that has one must say so.
    """
    config = getattr(module, "config", None)
    if getattr(config, "attention_chunk_size", None):
        raise PackingError("its layers attend within chunks")
    if getattr(config, "sliding_window", None) and "sliding_window" not in facts:
        raise PackingError("its layers do not tell attention how far back it may look")
    return Rule(
        scaling=facts.get("scaling"),
        dropout=facts.get("dropout", 0.0) if module.training else 0.0,
        window=facts.get("sliding_window"),
        softcap=facts.get("softcap"),
        sink_h=facts.get("s_aux"),
    )
