"""Attention over a packed sequence: each prompt sees itself, each completion its prompt and itself.

Registered with transformers under its own name, so that any model whose attention goes through the
common interface can be packed; ``proof.py`` shows at load time whether it may.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from plaudit.batches.pack import Segments
from plaudit.models.attention_rule import PackingError, rule_of

PACKED = "plaudit_packed"
"""The name under which transformers knows it."""


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
    if "segments" not in facts:
        raise PackingError("its layers do not hand on to attention what the model was given")
    segments: Segments = facts["segments"]
    rule = rule_of(module, facts)
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


AttentionInterface.register(PACKED, packed_attention)
