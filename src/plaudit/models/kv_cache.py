"""Keys and values of prompts and of answers that grow side by side, with the attention that reads them.

A prompt's keys and values are stored once for all its answers: prompts ``[P, heads, L, size]``, answers
``[N, heads, columns, size]``. Every answer writes its next token to the same column, so one that joins later
begins at a later column and looks at none before it; columns that no answer looks at any more are dropped.
Attention is given to transformers under a name of its own, as in ``backbone.py``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface

from plaudit.models.attention import AttentionRule, PackingError, attention_rule

KV_CACHE_ATTENTION = "plaudit_growing"
ROOM_STEP = 64
"""By how many tokens the storage of completions grows when it is full."""


class KVCache:
    def __init__(self, device: torch.device) -> None:
        self._length_P = torch.zeros(0, dtype=torch.long, device=device)
        self._start_N = torch.zeros(0, dtype=torch.long, device=device)
        self._group_N = torch.zeros(0, dtype=torch.long, device=device)
        self._layers: dict[int, _LayerCache] = {}
        self._columns = 0
        """Columns that answers have written so far."""
        self._reading: tuple[int, ...] = ()
        """Lengths of the prompts that the pass at hand reads."""

    @property
    def group_N(self) -> Int[Tensor, " N"]:
        return self._group_N

    @property
    def layers(self) -> int:
        return len(self._layers)

    @property
    def position_N(self) -> Int[Tensor, " N"]:
        return self._length_P[self._group_N] + (self._columns - self._start_N)

    @contextmanager
    def reading(self, prompts: Sequence[int], answers: Sequence[int]) -> Iterator[None]:
        """For the pass that reads further prompts of these lengths, each with one answer or more."""
        first, device = len(self._length_P), self._length_P.device
        group_n = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers)) + first
        self._length_P = torch.cat((self._length_P, torch.tensor(prompts, device=device)))
        self._add_rows(group_n.to(device))
        self._reading = tuple(prompts)
        try:
            yield
        finally:
            self._reading = ()

    def add_answers(self, count: int) -> None:
        """Begin so many more answers to the last prompt."""
        self._add_rows(self._group_N.new_full((count,), len(self._length_P) - 1))

    def select_rows(self, row_n: Int[Tensor, " n"]) -> None:
        """Continue only these completions; a prompt without any left is dropped too."""
        # Which prompts have answers left decides on shapes, so the device is waited for: only when an answer
        # has ended, which the sampler had to read anyhow.
        prompt_p, group_n = self._group_N[row_n].unique(return_inverse=True)
        fewer = len(prompt_p) < len(self._length_P)
        self._length_P = self._length_P[prompt_p]
        start_n = self._start_N[row_n]
        first, longest = torch.stack((start_n.min(), self._length_P.max())).tolist()
        for layer in self._layers.values():
            layer.select_rows(row_n, first)
            if fewer:
                layer.select_prompts(prompt_p, longest)
        self._columns -= first
        self._assign_slots(group_n, start_n - first)

    def advance(self) -> None:
        self._columns += 1
        self._masks = {}

    def attend(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attention of a packed row ``[1, heads, S, size]``: prompts that are read, or a token an answer."""
        if self._reading:
            return self._prefill(layer_index, rule, query, key, value)
        layer_cache = self._layers[layer_index]
        # Appended before it is read: a token attends to itself too.
        layer_cache.append(self._columns, key[0].transpose(0, 1), value[0].transpose(0, 1))
        return self._decode(layer_cache, rule, query[0].transpose(0, 1))

    def _prefill(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        parts = [x.split(self._reading, dim=2) for x in (query, key, value)]
        # Prompt by prompt: in a packed row they would see one another.
        outputs = [rule.attend(q, k, v) for q, k, v in zip(*parts, strict=True)]
        if layer_index in self._layers:
            self._layers[layer_index].add_prompts(parts[1], parts[2])
        else:
            answers = len(self._group_N)
            self._layers[layer_index] = _LayerCache.from_prompts(parts[1], parts[2], answers)
        return torch.cat(outputs, dim=2)

    def _decode(self, layer_cache: "_LayerCache", rule: AttentionRule, query_NhD: Tensor) -> Tensor:
        """One softmax over the prompt's keys and the answer's own, in two products each."""
        rows, heads, size = query_NhD.shape
        key_length = self._columns + 1
        prompt_length, kv_heads = layer_cache.prompt_key_PkLD.shape[2], layer_cache.prompt_key_PkLD.shape[1]
        query_NkrD = query_NhD.reshape(rows, kv_heads, heads // kv_heads, size)
        # Two products joined before one softmax: prompt and completion compete for the same weight.
        # Whole storage, room and all: a slice of it would be copied, which costs as much as the product.
        before = self._by_answer(self._by_prompt(query_NkrD) @ layer_cache.prompt_key_PkLD.mT)
        after = (query_NkrD @ layer_cache.key_NkTD.mT)[..., :key_length]
        score = torch.cat((before, after), dim=-1)
        visible = self._visible_mask(rule.window, prompt_length)
        weight = rule.attention_weights(score[..., None, :], visible, size)[..., 0, :]
        before, after = weight.split((prompt_length, key_length), dim=-1)
        output = self._by_answer(self._by_prompt(before) @ layer_cache.prompt_value_PkLD)
        room = layer_cache.value_NkTD.shape[2] - key_length
        output = output + pad(after, (0, room)) @ layer_cache.value_NkTD
        return output.reshape(rows, heads, -1).transpose(0, 1)[None]

    def _add_rows(self, group_n: Tensor) -> None:
        """Begin answers to these prompts, behind all that grow already: at the next column."""
        for layer in self._layers.values():
            layer.add_rows(len(group_n))
        start_n = torch.full_like(group_n, self._columns)
        self._assign_slots(torch.cat((self._group_N, group_n)), torch.cat((self._start_N, start_n)))

    def _assign_slots(self, group_N: Tensor, start_N: Tensor) -> None:
        count_P = torch.bincount(group_N, minlength=len(self._length_P))
        first_P = count_P.cumsum(0) - count_P
        self._group_N, self._start_N = group_N, start_N
        self._largest_group = int(count_P.max())
        # Equal groups, the usual case, need no gather: a reshape brings answers to their prompt.
        self._has_equal_groups = bool((count_P == self._largest_group).all())
        # Answers of a prompt lie side by side: the distance from the group's first one is the rank within.
        rank_N = torch.arange(len(group_N), device=group_N.device) - first_P[group_N]
        self._slot_N = group_N * self._largest_group + rank_N
        self._longest_prompt = int(self._length_P.max())
        self._is_even = bool((self._length_P == self._longest_prompt).all() and (start_N == 0).all())
        """Whether prompts are equally long, and answers as long as one another."""
        self._masks: dict[tuple[int | None, int], Tensor | None] = {}

    def _by_prompt(self, value_NkrX: Tensor) -> Tensor:
        """``[N, k, r, X]`` as ``[P, k, answers · r, X]``, so that a prompt is looked at once."""
        _, kv_heads, repeats, width = value_NkrX.shape
        prompts = len(self._length_P)
        if not self._has_equal_groups:
            # Once answers have ended, groups differ: missing slots ask with zeros, their rows are dropped.
            empty = value_NkrX.new_zeros(prompts * self._largest_group, kv_heads, repeats, width)
            value_NkrX = empty.index_copy(0, self._slot_N, value_NkrX)
        grouped = value_NkrX.view(prompts, self._largest_group, kv_heads, repeats, width).transpose(1, 2)
        return grouped.reshape(prompts, kv_heads, self._largest_group * repeats, width)

    def _by_answer(self, value_PkaX: Tensor) -> Tensor:
        """The reverse of `_by_prompt`: back to one row a completion, ``[N, k, r, X]``."""
        prompts, kv_heads, queries, width = value_PkaX.shape
        answers, repeats = self._largest_group, queries // self._largest_group
        grouped = value_PkaX.view(prompts, kv_heads, answers, repeats, width).transpose(1, 2)
        value_NkrX = grouped.reshape(prompts * answers, kv_heads, repeats, width)
        return value_NkrX if self._has_equal_groups else value_NkrX[self._slot_N]

    def _visible_mask(self, window: int | None, width: int) -> Bool[Tensor, "N 1 1 1 S"] | None:
        """True where an answer's next token may look: at its prompt, of ``width`` places, and at itself."""
        # None where every answer may look everywhere, the usual case: then nothing is compared or copied.
        if (window, width) not in self._masks:
            self._masks[window, width] = self._make_mask(window, width)
        return self._masks[window, width]

    def _make_mask(self, window: int | None, width: int) -> Tensor | None:
        hides = window is not None and self._longest_prompt + self._columns >= window
        if self._is_even and width == self._longest_prompt and not hides:
            return None
        device = self._length_P.device
        place_L = torch.arange(width, device=device)
        column_T = torch.arange(self._columns + 1, device=device)
        prompt_NL = place_L < self._length_P[self._group_N, None]
        # All answers write the same column at each step, so they are aligned at their ends.
        answer_NT = column_T >= self._start_N[:, None]
        if window is not None:
            prompt_NL = prompt_NL & (self.position_N[:, None] - place_L < window)
            answer_NT = answer_NT & (self._columns - column_T < window)
        return torch.cat((prompt_NL, answer_NT), dim=1)[:, None, None, None]


@dataclass(slots=True, kw_only=True)
class _LayerCache:
    """The keys and values of one layer: k heads, prompts padded to L tokens, answers with room for T."""

    prompt_key_PkLD: Tensor
    prompt_value_PkLD: Tensor
    key_NkTD: Tensor
    value_NkTD: Tensor

    @staticmethod
    def from_prompts(keys: Sequence[Tensor], values: Sequence[Tensor], answers: int) -> "_LayerCache":
        """The storage after the prompts, each ``[1, k, length, D]``, are read; completions are empty."""
        key_PkLD, value_PkLD = _padded(keys), _padded(values)
        return _LayerCache(
            prompt_key_PkLD=key_PkLD,
            prompt_value_PkLD=value_PkLD,
            key_NkTD=_empty_room(key_PkLD, answers, ROOM_STEP),
            value_NkTD=_empty_room(value_PkLD, answers, ROOM_STEP),
        )

    def append(self, at: int, key_NkD: Tensor, value_NkD: Tensor) -> None:
        # Grown in steps of ROOM_STEP: appending token by token would copy the whole storage each time.
        if at == self.key_NkTD.shape[2]:
            self.key_NkTD, self.value_NkTD = (
                torch.cat((x, _empty_room(x, len(x), ROOM_STEP)), dim=2)
                for x in (self.key_NkTD, self.value_NkTD)
            )
        self.key_NkTD[:, :, at] = key_NkD
        self.value_NkTD[:, :, at] = value_NkD

    def add_prompts(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        self.prompt_key_PkLD = _stacked(self.prompt_key_PkLD, _padded(keys))
        self.prompt_value_PkLD = _stacked(self.prompt_value_PkLD, _padded(values))

    def add_rows(self, count: int) -> None:
        self.key_NkTD, self.value_NkTD = (
            torch.cat((x, _empty_room(x, count, x.shape[2]))) for x in (self.key_NkTD, self.value_NkTD)
        )

    def select_rows(self, row_n: Tensor, first: int) -> None:
        """Only these answers, without the columns before ``first``, in which none of them has a token."""
        self.key_NkTD, self.value_NkTD = (
            x[:, :, first:].index_select(0, row_n) for x in (self.key_NkTD, self.value_NkTD)
        )

    def select_prompts(self, prompt_p: Tensor, longest: int) -> None:
        """Only these prompts, of which none has more than ``longest`` tokens."""
        self.prompt_key_PkLD, self.prompt_value_PkLD = (
            x[:, :, :longest].index_select(0, prompt_p)
            for x in (self.prompt_key_PkLD, self.prompt_value_PkLD)
        )


def _padded(prompts: Sequence[Tensor]) -> Float[Tensor, "P k L D"]:
    # Zeros and not rubbish behind a prompt: a masked weight is 0, and 0 · NaN would still be NaN.
    rows = [prompt[0].transpose(0, 1) for prompt in prompts]
    return pad_sequence(rows, batch_first=True).transpose(1, 2).contiguous()


def _stacked(first_PkLD: Tensor, then_PkLD: Tensor) -> Tensor:
    longest = max(first_PkLD.shape[2], then_PkLD.shape[2])
    return torch.cat([pad(x, (0, 0, 0, longest - x.shape[2])) for x in (first_PkLD, then_PkLD)])


def _empty_room(like_XkLD: Tensor, answers: int, room: int) -> Tensor:
    return like_XkLD.new_zeros(answers, like_XkLD.shape[1], room, like_XkLD.shape[3])


def kv_cache_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention of the growth that the caller handed to the model, in the signature of transformers."""
    kv_cache: KVCache | None = kwargs.get("growth")
    layer = getattr(module, "layer_idx", None)
    if kv_cache is None or layer is None:
        raise PackingError("its layers do not hand on to attention what the model was given")
    return kv_cache.attend(layer, attention_rule(module, kwargs), query, key, value).transpose(1, 2), None


AttentionInterface.register(KV_CACHE_ATTENTION, kv_cache_attention)
