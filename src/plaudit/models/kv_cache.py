"""Keys and values of completions that are generated side by side; a prompt's are stored once for all of them.

    growth = Growth(policy, prompts, answers=(8, 8))     every prompt is read once
    growth.states_NH                                     what predicts each answer's first token
    growth.keep(row_n)                                   answers that have ended leave
    growth.step(token_N)                                 a token more for each; states_NH predicts the next

Attention is given to transformers under a name of its own, as in ``packed_attention.py``, and keeps keys
and values itself: prompts ``[P, heads, L, size]``, answers ``[N, heads, room, size]``. Nothing is copied when
a token is added, and a prompt that eight answers share is looked at once, by eight queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface

from plaudit.models.packed_attention import AttentionRule, PackingError, attention_rule

KV_CACHE_ATTENTION = "plaudit_growing"
"""The name under which transformers knows this attention."""
ROOM_STEP = 64
"""By how many tokens the storage of completions grows when it is full."""


class KVCache:
    """Keys and values of prompts and of their answers, layer by layer."""

    def __init__(self, prompts: Sequence[int], answers: Sequence[int], device: torch.device) -> None:
        """The prompts' lengths, and how many answers each of them has: one or more."""
        self._prompts = tuple(prompts)
        self._length_P = torch.tensor(prompts, device=device)
        self._layers: dict[int, _LayerCache] = {}
        self._masks: dict[int | None, Tensor] = {}
        self.generated_length = 0
        """Tokens that every answer has."""
        group_N = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        self._assign_slots(group_N.to(device))

    @property
    def group_N(self) -> Int[Tensor, " N"]:
        """Which prompt each answer belongs to."""
        return self._group_N

    @property
    def layers(self) -> int:
        """How many layers have asked for attention."""
        return len(self._layers)

    @property
    def position_N(self) -> Int[Tensor, " N"]:
        """The position of the token that each answer gets next."""
        return self._length_P[self._group_N] + self.generated_length

    def select_rows(self, row_n: Int[Tensor, " n"]) -> None:
        """Continue only these completions; a prompt without any left is dropped too."""
        prompt_p, group_n = self._group_N[row_n].unique(return_inverse=True)
        fewer = len(prompt_p) < len(self._length_P)
        for layer in self._layers.values():
            layer.select_rows(row_n, prompt_p if fewer else None)
        self._length_P = self._length_P[prompt_p]
        self._assign_slots(group_n)

    def advance(self) -> None:
        """Count the token that all layers have now processed."""
        self.generated_length += 1
        self._masks = {}

    def attend(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attention of a packed row ``[1, heads, S, size]``: all prompts first, then a token an answer."""
        layer_cache = self._layers.get(layer_index)
        if layer_cache is None:
            return self._prefill(layer_index, rule, query, key, value)
        layer_cache.append(self.generated_length, key[0].transpose(0, 1), value[0].transpose(0, 1))
        return self._decode(layer_cache, rule, query[0].transpose(0, 1))

    def _prefill(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        parts = [x.split(self._prompts, dim=2) for x in (query, key, value)]
        outputs = [rule.attend(q, k, v) for q, k, v in zip(*parts, strict=True)]
        self._layers[layer_index] = _LayerCache.from_prompts(parts[1], parts[2], answers=len(self._group_N))
        return torch.cat(outputs, dim=2)

    def _decode(self, layer_cache: _LayerCache, rule: AttentionRule, query_NhD: Tensor) -> Tensor:
        """One softmax over the prompt's keys and the answer's own, in two products each."""
        rows, heads, size = query_NhD.shape
        key_length = self.generated_length + 1
        kv_heads = layer_cache.prompt_key_PkLD.shape[1]
        query_NkrD = query_NhD.reshape(rows, kv_heads, heads // kv_heads, size)
        before = self._by_answer(self._by_prompt(query_NkrD) @ layer_cache.prompt_key_PkLD.transpose(-1, -2))
        score = torch.cat(
            (before, query_NkrD @ layer_cache.key_NkTD[:, :, :key_length].transpose(-1, -2)), dim=-1
        )
        weight = rule.attention_weights(score[..., None, :], self._visible_mask(rule.window), size)[..., 0, :]
        before, after = weight.split((before.shape[-1], key_length), dim=-1)
        output = self._by_answer(self._by_prompt(before) @ layer_cache.prompt_value_PkLD)
        output = output + after @ layer_cache.value_NkTD[:, :, :key_length]
        return output.reshape(rows, heads, -1).transpose(0, 1)[None]

    def _assign_slots(self, group_N: Tensor) -> None:
        """Assign each completion a slot among those of its prompt."""
        count_P = torch.bincount(group_N, minlength=len(self._length_P))
        first_P = count_P.cumsum(0) - count_P
        self._group_N = group_N
        self._largest_group = int(count_P.max())
        self._has_equal_groups = bool((count_P == self._largest_group).all())
        rank_N = torch.arange(len(group_N), device=group_N.device) - first_P[group_N]
        self._slot_N = group_N * self._largest_group + rank_N
        self._masks = {}

    def _by_prompt(self, value_NkrX: Tensor) -> Tensor:
        """``[N, k, r, X]`` as ``[P, k, answers · r, X]``, so that a prompt is looked at once."""
        _, kv_heads, repeats, width = value_NkrX.shape
        prompts = len(self._length_P)
        if not self._has_equal_groups:
            empty = value_NkrX.new_zeros(prompts * self._largest_group, kv_heads, repeats, width)
            value_NkrX = empty.index_copy(0, self._slot_N, value_NkrX)
        grouped = value_NkrX.view(prompts, self._largest_group, kv_heads, repeats, width).transpose(1, 2)
        return grouped.reshape(prompts, kv_heads, self._largest_group * repeats, width)

    def _by_answer(self, value_PkaX: Tensor) -> Tensor:
        """The reverse of `_by_prompt`: back to one row a completion, ``[N, k, r, X]``."""
        prompts, kv_heads, queries, width = value_PkaX.shape
        grouped = value_PkaX.view(
            prompts, kv_heads, self._largest_group, queries // self._largest_group, width
        ).transpose(1, 2)
        value_NkrX = grouped.reshape(
            prompts * self._largest_group, kv_heads, queries // self._largest_group, width
        )
        return value_NkrX if self._has_equal_groups else value_NkrX[self._slot_N]

    def _visible_mask(self, window: int | None) -> Bool[Tensor, "N 1 1 1 S"]:
        """True where an answer's next token may look: at its prompt, and at what it has said."""
        if window not in self._masks:
            device = self._length_P.device
            place_L = torch.arange(max(self._prompts), device=device)
            answer_T = torch.arange(self.generated_length + 1, device=device)
            prompt_NL = place_L < self._length_P[self._group_N, None]
            answer_NT = torch.ones(len(self._group_N), len(answer_T), dtype=torch.bool, device=device)
            if window is not None:
                prompt_NL = prompt_NL & (self.position_N[:, None] - place_L < window)
                answer_NT = answer_NT & (self.generated_length - answer_T < window)
            self._masks[window] = torch.cat((prompt_NL, answer_NT), dim=1)[:, None, None, None]
        return self._masks[window]


@dataclass(slots=True, kw_only=True)
class _LayerCache:
    """The keys and values of one layer: k heads, of prompts padded to L tokens and of answers with room for
    T.
    """

    prompt_key_PkLD: Tensor
    prompt_value_PkLD: Tensor
    key_NkTD: Tensor
    value_NkTD: Tensor

    @staticmethod
    def from_prompts(keys: Sequence[Tensor], values: Sequence[Tensor], answers: int) -> _LayerCache:
        """The storage after the prompts, each ``[1, k, length, D]``, are read; completions are empty."""
        key_PkLD, value_PkLD = (
            pad_sequence([one[0].transpose(0, 1) for one in prompts], batch_first=True).transpose(1, 2)
            for prompts in (keys, values)
        )
        return _LayerCache(
            prompt_key_PkLD=key_PkLD.contiguous(),
            prompt_value_PkLD=value_PkLD.contiguous(),
            key_NkTD=_empty_room(key_PkLD, answers),
            value_NkTD=_empty_room(value_PkLD, answers),
        )

    def append(self, at: int, key_NkD: Tensor, value_NkD: Tensor) -> None:
        if at == self.key_NkTD.shape[2]:
            self.key_NkTD = torch.cat((self.key_NkTD, _empty_room(self.key_NkTD, len(self.key_NkTD))), dim=2)
            self.value_NkTD = torch.cat(
                (self.value_NkTD, _empty_room(self.value_NkTD, len(self.value_NkTD))), dim=2
            )
        self.key_NkTD[:, :, at] = key_NkD
        self.value_NkTD[:, :, at] = value_NkD

    def select_rows(self, row_n: Tensor, prompt_p: Tensor | None) -> None:
        self.key_NkTD, self.value_NkTD = self.key_NkTD[row_n], self.value_NkTD[row_n]
        if prompt_p is not None:
            self.prompt_key_PkLD = self.prompt_key_PkLD[prompt_p]
            self.prompt_value_PkLD = self.prompt_value_PkLD[prompt_p]


def _empty_room(like_XkLD: Tensor, answers: int) -> Tensor:
    return like_XkLD.new_zeros(answers, like_XkLD.shape[1], ROOM_STEP, like_XkLD.shape[3])


def kv_cache_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of the growth that the caller handed to the model, in the signature of transformers."""
    del attention_mask
    kv_cache: KVCache | None = kwargs.get("growth")
    layer = getattr(module, "layer_idx", None)
    if kv_cache is None or layer is None:
        raise PackingError("its layers do not hand on to attention what the model was given")
    output = kv_cache.attend(layer, attention_rule(module, kwargs), query, key, value)
    return output.transpose(1, 2), None


AttentionInterface.register(KV_CACHE_ATTENTION, kv_cache_attention)
