"""Answers that grow token by token, side by side: a prompt's keys and values are there once for all of them.

    growth = Growth(policy, prompts, answers=(8, 8))     every prompt is read once
    growth.states_NH                                     what predicts each answer's first token
    growth.keep(row_n)                                   answers that have ended leave
    growth.step(token_N)                                 a token more for each; states_NH predicts the next

Attention is given to transformers under a name of its own, as in ``attention.py``, and keeps keys and values
itself: prompts ``[P, heads, L, size]``, answers ``[N, heads, room, size]``. Nothing is copied when a token is
added, and a prompt that eight answers share is looked at once, by eight queries.
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

from plaudit.models.attention_rule import PackingError, Rule, rule_of

GROWING = "plaudit_growing"
"""The name under which transformers knows the attention."""
ROOM = 64
"""Tokens by which the room of answers grows when it is full."""


class Growth:
    """Keys and values of prompts and of their answers, layer by layer."""

    def __init__(self, prompts: Sequence[int], answers: Sequence[int], device: torch.device) -> None:
        """The prompts' lengths, and how many answers each of them has: one or more."""
        self._prompts = tuple(prompts)
        self._length_P = torch.tensor(prompts, device=device)
        self._layers: dict[int, _Layer] = {}
        self._masks: dict[int | None, Tensor] = {}
        self.grown = 0
        """Tokens that every answer has."""
        group_N = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        self._seat(group_N.to(device))

    @property
    def group_N(self) -> Int[Tensor, " N"]:
        """Which prompt each answer belongs to."""
        return self._group_N

    @property
    def layers(self) -> int:
        """How many layers have asked for attention."""
        return len(self._layers)

    @property
    def place_N(self) -> Int[Tensor, " N"]:
        """The position of the token that each answer gets next."""
        return self._length_P[self._group_N] + self.grown

    def keep(self, row_n: Int[Tensor, " n"]) -> None:
        """Only these answers go on; a prompt without an answer left is forgotten too."""
        prompt_p, group_n = self._group_N[row_n].unique(return_inverse=True)
        fewer = len(prompt_p) < len(self._length_P)
        for layer in self._layers.values():
            layer.keep(row_n, prompt_p if fewer else None)
        self._length_P = self._length_P[prompt_p]
        self._seat(group_n)

    def token_added(self) -> None:
        """All layers have seen the token at hand."""
        self.grown += 1
        self._masks = {}

    def attend(self, layer: int, rule: Rule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of a packed row ``[1, heads, S, size]``: all prompts first, then a token an answer."""
        own = self._layers.get(layer)
        if own is None:
            return self._read(layer, rule, query, key, value)
        own.add(self.grown, key[0].transpose(0, 1), value[0].transpose(0, 1))
        return self._look(own, rule, query[0].transpose(0, 1))

    def _read(self, layer: int, rule: Rule, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = [x.split(self._prompts, dim=2) for x in (query, key, value)]
        said = [rule.attend(q, k, v) for q, k, v in zip(*parts, strict=True)]
        self._layers[layer] = _Layer.after(parts[1], parts[2], answers=len(self._group_N))
        return torch.cat(said, dim=2)

    def _look(self, own: _Layer, rule: Rule, query_NhD: Tensor) -> Tensor:
        """One softmax over the prompt's keys and the answer's own, in two products each."""
        rows, heads, size = query_NhD.shape
        shown = self.grown + 1
        kept = own.prompt_key_PkLD.shape[1]
        query_NkrD = query_NhD.reshape(rows, kept, heads // kept, size)
        before = self._by_answer(self._by_prompt(query_NkrD) @ own.prompt_key_PkLD.transpose(-1, -2))
        score = torch.cat((before, query_NkrD @ own.key_NkTD[:, :, :shown].transpose(-1, -2)), dim=-1)
        weight = rule.weights(score[..., None, :], self._sees(rule.window), size)[..., 0, :]
        before, after = weight.split((before.shape[-1], shown), dim=-1)
        told = self._by_answer(self._by_prompt(before) @ own.prompt_value_PkLD)
        told = told + after @ own.value_NkTD[:, :, :shown]
        return told.reshape(rows, heads, -1).transpose(0, 1)[None]

    def _seat(self, group_N: Tensor) -> None:
        """Give each answer a place among those of its prompt."""
        count_P = torch.bincount(group_N, minlength=len(self._length_P))
        first_P = count_P.cumsum(0) - count_P
        self._group_N = group_N
        self._most = int(count_P.max())
        self._even = bool((count_P == self._most).all())
        rank_N = torch.arange(len(group_N), device=group_N.device) - first_P[group_N]
        self._seat_N = group_N * self._most + rank_N
        self._masks = {}

    def _by_prompt(self, value_NkrX: Tensor) -> Tensor:
        """``[N, k, r, X]`` as ``[P, k, answers · r, X]``, so that a prompt is looked at once."""
        _, kept, repeats, width = value_NkrX.shape
        prompts = len(self._length_P)
        if not self._even:
            empty = value_NkrX.new_zeros(prompts * self._most, kept, repeats, width)
            value_NkrX = empty.index_copy(0, self._seat_N, value_NkrX)
        parted = value_NkrX.view(prompts, self._most, kept, repeats, width).transpose(1, 2)
        return parted.reshape(prompts, kept, self._most * repeats, width)

    def _by_answer(self, value_PkaX: Tensor) -> Tensor:
        """Back again."""
        prompts, kept, asked, width = value_PkaX.shape
        parted = value_PkaX.view(prompts, kept, self._most, asked // self._most, width).transpose(1, 2)
        value_NkrX = parted.reshape(prompts * self._most, kept, asked // self._most, width)
        return value_NkrX if self._even else value_NkrX[self._seat_N]

    def _sees(self, window: int | None) -> Bool[Tensor, "N 1 1 1 S"]:
        """True where an answer's next token may look: at its prompt, and at what it has said."""
        if window not in self._masks:
            device = self._length_P.device
            place_L = torch.arange(max(self._prompts), device=device)
            own_T = torch.arange(self.grown + 1, device=device)
            prompt_NL = place_L < self._length_P[self._group_N, None]
            own_NT = torch.ones(len(self._group_N), len(own_T), dtype=torch.bool, device=device)
            if window is not None:
                prompt_NL = prompt_NL & (self.place_N[:, None] - place_L < window)
                own_NT = own_NT & (self.grown - own_T < window)
            self._masks[window] = torch.cat((prompt_NL, own_NT), dim=1)[:, None, None, None]
        return self._masks[window]


@dataclass(slots=True, kw_only=True)
class _Layer:
    """What one layer remembers: k heads, of prompts padded to L tokens and of answers with room for T."""

    prompt_key_PkLD: Tensor
    prompt_value_PkLD: Tensor
    key_NkTD: Tensor
    value_NkTD: Tensor

    @staticmethod
    def after(keys: Sequence[Tensor], values: Sequence[Tensor], answers: int) -> _Layer:
        """Prompts are read, each ``[1, k, length, D]``; answers have nothing yet."""
        key_PkLD, value_PkLD = (
            pad_sequence([one[0].transpose(0, 1) for one in prompts], batch_first=True).transpose(1, 2)
            for prompts in (keys, values)
        )
        return _Layer(
            prompt_key_PkLD=key_PkLD.contiguous(),
            prompt_value_PkLD=value_PkLD.contiguous(),
            key_NkTD=_rooms(key_PkLD, answers),
            value_NkTD=_rooms(value_PkLD, answers),
        )

    def add(self, at: int, key_NkD: Tensor, value_NkD: Tensor) -> None:
        if at == self.key_NkTD.shape[2]:
            self.key_NkTD = torch.cat((self.key_NkTD, _rooms(self.key_NkTD, len(self.key_NkTD))), dim=2)
            self.value_NkTD = torch.cat(
                (self.value_NkTD, _rooms(self.value_NkTD, len(self.value_NkTD))), dim=2
            )
        self.key_NkTD[:, :, at] = key_NkD
        self.value_NkTD[:, :, at] = value_NkD

    def keep(self, row_n: Tensor, prompt_p: Tensor | None) -> None:
        self.key_NkTD, self.value_NkTD = self.key_NkTD[row_n], self.value_NkTD[row_n]
        if prompt_p is not None:
            self.prompt_key_PkLD = self.prompt_key_PkLD[prompt_p]
            self.prompt_value_PkLD = self.prompt_value_PkLD[prompt_p]


def _rooms(like_XkLD: Tensor, answers: int) -> Tensor:
    return like_XkLD.new_zeros(answers, like_XkLD.shape[1], ROOM, like_XkLD.shape[3])


def growing_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **facts: Any,
) -> tuple[Tensor, None]:
    """Attention of the growth that the caller handed to the model, in the signature of transformers."""
    del attention_mask
    growth: Growth | None = facts.get("growth")
    layer = getattr(module, "layer_idx", None)
    if growth is None or layer is None:
        raise PackingError("its layers do not hand on to attention what the model was given")
    said = growth.attend(layer, rule_of(module, facts), query, key, value)
    return said.transpose(1, 2), None


AttentionInterface.register(GROWING, growing_attention)
