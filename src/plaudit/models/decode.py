"""What predicts the next token of completions that grow side by side, for one model or a mixture of two.

    decoder = SharedDecoder(policy, prompts, (8, 8))     every prompt is read once
    decoder.logits_NV                                    what predicts each completion's first token
    decoder.select_rows(row_n)                           completions that have ended leave
    decoder.step(token_N)                                a token more for each; logits_NV predicts the next

`SharedDecoder` reads each prompt once and keeps keys and values itself, a prompt's once for all its
completions: prompts ``[P, heads, L, size]``, completions ``[N, heads, room, size]``. Nothing is copied when a
token is added, and a prompt that eight completions share is looked at once, by eight queries. As in
``backbone.py``, its attention is given to transformers under a name of its own. `CachedDecoder` goes through
transformers' own cache, for models whose attention is their own. Both give the same numbers, and
`fastest_decoder` tries the first on a few tokens of the model at hand.

`MixtureDecoder` takes the geometric mixture of a policy and its reference, token by token:

    π_m(· | s) ∝ π(· | s)^(1 − m) · π_ref(· | s)^m

Both models are fed the same tokens and their scores are added up. Scores are log-probs but for one number at
each place, which a softmax does not see; and a temperature divides those of both alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface

from plaudit.errors import UserError
from plaudit.models.backbone import (
    AttentionRule,
    PackingError,
    attention_rule,
    head_of,
    refuse_unknown_extras,
    without_head,
)
from plaudit.models.policy import GeneratingReference, Policy
from plaudit.models.verify import tolerance

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
        # Which prompts have answers left decides on shapes, so the device is waited for: only when an answer
        # has ended, which the sampler had to read anyhow.
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
        # Appended before it is read: a token attends to itself too.
        layer_cache.append(self.generated_length, key[0].transpose(0, 1), value[0].transpose(0, 1))
        return self._decode(layer_cache, rule, query[0].transpose(0, 1))

    def _prefill(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        parts = [x.split(self._prompts, dim=2) for x in (query, key, value)]
        # Prompt by prompt: in a packed row they would see one another.
        outputs = [rule.attend(q, k, v) for q, k, v in zip(*parts, strict=True)]
        self._layers[layer_index] = _LayerCache.from_prompts(parts[1], parts[2], answers=len(self._group_N))
        return torch.cat(outputs, dim=2)

    def _decode(self, layer_cache: _LayerCache, rule: AttentionRule, query_NhD: Tensor) -> Tensor:
        """One softmax over the prompt's keys and the answer's own, in two products each."""
        rows, heads, size = query_NhD.shape
        key_length = self.generated_length + 1
        kv_heads = layer_cache.prompt_key_PkLD.shape[1]
        query_NkrD = query_NhD.reshape(rows, kv_heads, heads // kv_heads, size)
        # Two products joined before one softmax: prompt and completion compete for the same weight.
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
        # Equal groups, the usual case, need no gather: a reshape brings answers to their prompt.
        self._has_equal_groups = bool((count_P == self._largest_group).all())
        # Answers of a prompt lie side by side, so the distance from
        # the group's first one is the rank within it.
        rank_N = torch.arange(len(group_N), device=group_N.device) - first_P[group_N]
        self._slot_N = group_N * self._largest_group + rank_N
        self._masks = {}

    def _by_prompt(self, value_NkrX: Tensor) -> Tensor:
        """``[N, k, r, X]`` as ``[P, k, answers · r, X]``, so that a prompt is looked at once."""
        _, kv_heads, repeats, width = value_NkrX.shape
        prompts = len(self._length_P)
        if not self._has_equal_groups:
            # Once answers have ended, groups differ in size: missing slots
            # ask with zeros, and their rows are dropped.
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
            # The length at the start: storage stays as wide as that,
            # also after the longest prompt has left.
            place_L = torch.arange(max(self._prompts), device=device)
            answer_T = torch.arange(self.generated_length + 1, device=device)
            prompt_NL = place_L < self._length_P[self._group_N, None]
            # All answers were given a token at each step, so what they
            # have said is equally long in every row.
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
        # Zeros and not rubbish behind a prompt: a masked weight is 0, and 0 · NaN would still be NaN.
        key_PkLD, value_PkLD = (
            pad_sequence([prompt[0].transpose(0, 1) for prompt in prompts], batch_first=True).transpose(1, 2)
            for prompts in (keys, values)
        )
        return _LayerCache(
            prompt_key_PkLD=key_PkLD.contiguous(),
            prompt_value_PkLD=value_PkLD.contiguous(),
            key_NkTD=_empty_room(key_PkLD, answers),
            value_NkTD=_empty_room(value_PkLD, answers),
        )

    def append(self, at: int, key_NkD: Tensor, value_NkD: Tensor) -> None:
        # Grown in steps of ROOM_STEP: appending token by token would copy the whole storage each time.
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


PromptIds = Sequence[Sequence[int]]
"""The token ids of each prompt."""
Items = Mapping[str, Tensor]
"""What prompts show beside tokens, one behind the other, by the name of the model's argument."""
TRIAL_PROMPTS = ((3, 11, 7, 5), (9, 2, 6, 4, 8, 12, 10))
"""The prompts of a trial: the first has two answers, the second one."""


class SharedDecoder:
    """A prompt is read once, looked at once by all its answers, and nothing is copied for a token."""

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        """Run the prompts through the model."""
        if not policy.backbone.can_replace_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        self._backbone: Any = without_head(policy.base)
        refuse_unknown_extras(self._backbone, extras or {})
        self._head = head_of(policy.base)
        self._last_position = _last_position(policy)
        lengths = [len(prompt) for prompt in prompts]
        self._kv_cache = KVCache(lengths, answers, policy.device)
        ids_S = torch.tensor([token for prompt in prompts for token in prompt], device=policy.device)
        place_S = torch.cat([torch.arange(length) for length in lengths]).to(policy.device)
        # Only each prompt's last state is projected to the vocabulary:
        # the others predict tokens that are known.
        last_P = torch.tensor(lengths, device=policy.device).cumsum(0) - 1
        self.logits_NV = self._logits(self._states(ids_S, place_S, extras)[last_P])[self._kv_cache.group_N]
        # A model that ignores our attention stores no keys: its later
        # tokens would be predicted without the prompt.
        if not self._kv_cache.layers:
            raise PackingError("no layer of it asks for attention by transformers' common interface")

    @staticmethod
    def attention_context(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the attention of `KVCache`."""
        return policy.backbone.attention_context(KV_CACHE_ATTENTION)

    def step(self, token_N: Tensor) -> None:
        """Append one token to every completion; ``logits_NV`` then predicts the next."""
        # An answer that has ended goes on until it is left out, but not past the last place.
        states_NH = self._states(token_N, _within(self._kv_cache.position_N, self._last_position))
        self._kv_cache.advance()
        self.logits_NV = self._logits(states_NH)

    def select_rows(self, row_n: Tensor) -> None:
        """Continue only the completions of these rows."""
        self._kv_cache.select_rows(row_n)
        self.logits_NV = self.logits_NV[row_n]

    def _states(self, ids_S: Tensor, place_S: Tensor, extras: Items | None = None) -> Tensor:
        output = self._backbone(
            input_ids=ids_S[None],
            position_ids=place_S[None],
            attention_mask=None,
            use_cache=False,
            growth=self._kv_cache,
            **(extras or {}),
        )
        return output.last_hidden_state[0]

    def _logits(self, states_NH: Tensor) -> Tensor:
        layer = self._head.layer
        if states_NH.device.type != "cpu":
            return self._head.rule.apply(layer(states_NH))
        # The same product from the other side: a tall matrix by a narrow one is what a CPU is good at.
        raw_NV = (layer.weight @ states_NH.T).T
        return self._head.rule.apply(raw_NV if layer.bias is None else raw_NV + layer.bias)


class CachedDecoder:
    """Each answer is a row of transformers' own cache; a prompt is read once and copied for its answers."""

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        """Read the prompts, padded on the left."""
        refuse_unknown_extras(without_head(policy.base), extras or {})
        self._model: Any = policy.model
        self._last_position = _last_position(policy)
        self._cache: Any = None
        longest = max(map(len, prompts))
        ids_PL = torch.zeros(len(prompts), longest, dtype=torch.long)
        real_PL = torch.zeros_like(ids_PL)
        for p, prompt in enumerate(prompts):
            ids_PL[p, longest - len(prompt) :] = torch.tensor(prompt)
            real_PL[p, longest - len(prompt) :] = 1
        self._real_NS = real_PL.to(policy.device)
        # Padding on the left gets position 0: masked, but an index that the embedding table has.
        place_PL = (self._real_NS.cumsum(1) - 1).clamp(min=0)
        self.logits_NV = self._logits(ids_PL.to(policy.device), place_PL, extras)
        group_N = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        # Rows of the cache are repeated after the prompt was read
        # once: copying is cheaper than reading K times.
        self.select_rows(group_N.to(policy.device))

    @staticmethod
    def attention_context(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the model's ordinary attention."""
        return policy.as_plain_model()

    def step(self, token_N: Tensor) -> None:
        """Append one token to every completion; ``logits_NV`` then predicts the next."""
        self._real_NS = torch.cat((self._real_NS, torch.ones_like(token_N)[:, None]), dim=1)
        place_N1 = self._real_NS.sum(1, keepdim=True) - 1
        self.logits_NV = self._logits(token_N[:, None], _within(place_N1, self._last_position))

    def select_rows(self, row_n: Tensor) -> None:
        """Continue only the completions of these rows."""
        self._cache.batch_select_indices(row_n)
        self._real_NS = self._real_NS[row_n]
        self.logits_NV = self.logits_NV[row_n]

    def _logits(self, ids_NL: Tensor, place_NL: Tensor, extras: Items | None = None) -> Tensor:
        output = self._model(
            input_ids=ids_NL,
            position_ids=place_NL,
            attention_mask=self._real_NS,
            past_key_values=self._cache,
            use_cache=True,
            # A prompt of 4,000 tokens would otherwise make a [P, 4000, V] table for its last row.
            logits_to_keep=1,
            **(extras or {}),
        )
        self._cache = output.past_key_values
        return output.logits[:, -1]


Decoder = type[SharedDecoder] | type[CachedDecoder]
"""Begun with a policy, prompts and how many answers each has, one after another, in ``attention_context``;
then ``logits_NV`` predicts every answer's next token, ``step`` adds it, ``select_rows`` leaves some out."""


def fastest_decoder(policy: Policy) -> tuple[Decoder, str | None]:
    """The decoder that this model can be trusted with, and why when it is not the fast one."""
    try:
        difference = _largest_difference(policy)
    except UserError as error:
        return CachedDecoder, str(error)
    if difference <= tolerance(policy):
        return SharedDecoder, None
    return CachedDecoder, f"logits differ by {difference:.2g}"


def _largest_difference(policy: Policy) -> float:
    """The largest difference between both, token for token; before the second token an answer leaves."""
    vocabulary_size = policy.base.config.get_text_config().vocab_size
    prompts = [[token % vocabulary_size for token in prompt] for prompt in TRIAL_PROMPTS]
    row_N = torch.arange(3, device=policy.device)
    logits_by_decoder = {decoder: list[Tensor]() for decoder in (SharedDecoder, CachedDecoder)}
    for decoder, logits in logits_by_decoder.items():
        with torch.inference_mode(), decoder.attention_context(policy):
            item = decoder(policy, prompts, (2, 1))
            logits.append(item.logits_NV)
            item.step((row_N * 5 + 1) % vocabulary_size)
            logits.append(item.logits_NV)
            item.select_rows(row_N[1:])
            item.step((row_N[1:] * 5 + 2) % vocabulary_size)
            logits.append(item.logits_NV)
    # Both are fed the same fixed tokens: with greedy choices one
    # near tie would make all that follows differ.
    differences = [float((a - b).abs().max()) for a, b in zip(*logits_by_decoder.values(), strict=True)]
    # Each one is looked at: a NaN compares False, so that max() may pass it over.
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def _last_position(policy: Policy) -> int | None:
    longest = getattr(policy.base.config.get_text_config(), "max_position_embeddings", None)
    return None if longest is None else longest - 1


def _within(position: Tensor, last: int | None) -> Tensor:
    # A model that names no longest text has no last position either.
    return position if last is None else position.clamp(max=last)


def mixture_logits(
    policy_XV: Float[Tensor, "X V"], reference_XV: Float[Tensor, "X V"], *, share: int | float
) -> Float[Tensor, "X V"]:
    """(1 − m) · own + m · other; with a share of 0 or 1 exactly the one, whatever stands in the other.

    Munos et al. 2023, arXiv:2312.00886.

    >>> likely, rare = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.2, 0.8]]).log()
    >>> mixture_logits(likely, rare, share=0.5).softmax(-1)
    tensor([[0.5000, 0.5000]])
    """
    # 0 · (−∞) is NaN: a token that the model with no weight forbids would spoil the other's logits.
    if share in (0, 1):
        return reference_XV if share else policy_XV
    wide = torch.promote_types(torch.promote_types(policy_XV.dtype, reference_XV.dtype), torch.float32)
    return (1 - share) * policy_XV.to(wide) + share * reference_XV.to(wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MixtureMember:
    """One of the two models of a mixture, with its decoder."""

    decoder: SharedDecoder | CachedDecoder
    activate: Callable[[], AbstractContextManager[object]]


class MixtureDecoder:
    """The decoder of a mixture: both models decode the same completions."""

    def __init__(self, members: Sequence[_MixtureMember], share: int | float) -> None:
        """The policy's half, then the reference's; only the one that counts where the share is 0 or 1."""
        self._members, self._share = members, share

    @property
    def logits_NV(self) -> Float[Tensor, "N V"]:
        """What predicts every answer's next token."""
        policy_half, reference_half = self._members[0].decoder, self._members[-1].decoder
        return mixture_logits(policy_half.logits_NV, reference_half.logits_NV, share=self._share)

    def step(self, token_N: Int[Tensor, " N"]) -> None:
        """Append one token to every completion, in both models."""
        for member in self._members:
            with member.activate():
                member.decoder.step(token_N)

    def select_rows(self, row_n: Int[Tensor, " n"]) -> None:
        """Continue only the completions of these rows."""
        for member in self._members:
            member.decoder.select_rows(row_n)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureDecoderFactory:
    """Makes decoders of a mixture, as a `Decoder` class makes those of one policy.

    Example: ``MixtureDecoderFactory(reference=ModelReference(frozen, nullcontext), share=0.125,
        policy_decoder=…, reference_decoder=…)``
    """

    reference: GeneratingReference
    """The other model, with its weights of this moment."""
    share: int | float
    """How much it counts: 0 is the policy, 1 the reference."""
    policy_decoder: Decoder
    """How the policy's next tokens are predicted."""
    reference_decoder: Decoder
    """How the reference's next tokens are predicted."""

    @contextmanager
    def attention_context(self, policy: Policy) -> Iterator[None]:
        """Both in evaluation mode, each with its decoder's attention."""
        with (
            self.policy_decoder.attention_context(policy),
            self.reference_decoder.attention_context(self.reference.policy),
        ):
            yield

    def __call__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> MixtureDecoder:
        """Read the prompts, by both models."""
        members: list[_MixtureMember] = []
        # A model that does not count reads nothing: at m = 0 a mixture costs what the policy alone does.
        if self.share < 1:
            members.append(
                _MixtureMember(
                    decoder=self.policy_decoder(policy, prompts, answers, extras), activate=nullcontext
                )
            )
        if self.share > 0:
            with self.reference.activate():
                decoder = self.reference_decoder(self.reference.policy, prompts, answers, extras)
            members.append(_MixtureMember(decoder=decoder, activate=self.reference.activate))
        return MixtureDecoder(members, self.share)


def mixture_decoder(
    policy: Policy, decoder: Decoder, reference: GeneratingReference, share: int | float
) -> tuple[MixtureDecoderFactory, str | None]:
    """The mixture of a policy and its reference, and why when the reference's half is not the fast one."""
    reference_policy = reference.policy
    sizes = [head_of(model.base).layer.weight.shape[0] for model in (policy, reference_policy)]
    if sizes[0] != sizes[1]:
        raise UserError(
            f"mixture_coef: the policy scores {sizes[0]:,} tokens and its reference {sizes[1]:,}, so there "
            "is nothing between the two; take a reference of the policy's own family"
        )
    # Beneath its own adapters a policy has the layers that were tried already.
    reference_decoder, fallback_reason = (
        (decoder, None) if reference_policy is policy else fastest_decoder(reference_policy)
    )
    return MixtureDecoderFactory(
        reference=reference, share=share, policy_decoder=decoder, reference_decoder=reference_decoder
    ), fallback_reason
