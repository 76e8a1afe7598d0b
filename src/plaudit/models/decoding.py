"""What predicts the next token of answers that grow side by side; two ways to the same numbers.

`SharedDecoder` reads each prompt once and keeps keys and values itself; `CachedDecoder` goes through
transformers' own cache, for models whose attention is their own. `fastest_decoder` tries the first on a
few tokens of the model at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.attention_rule import PackingError
from plaudit.models.growing import GROWING, Growth
from plaudit.models.head import backbone_of, head_of
from plaudit.models.policy import Policy
from plaudit.models.proof import tolerance

Prompts = Sequence[Sequence[int]]
"""Token ids of each prompt."""
TRIAL = ((3, 11, 7, 5), (9, 2, 6, 4, 8, 12, 10))
"""The prompts of a trial: the first has two answers, the second one."""


class SharedDecoder:
    """A prompt is read once, looked at once by all its answers, and nothing is copied for a token."""

    def __init__(self, policy: Policy, prompts: Prompts, answers: Sequence[int]) -> None:
        """Read the prompts."""
        if not policy.trunk.takes_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        self._backbone: Any = backbone_of(policy.base)
        self._head = head_of(policy.base)
        self._last = _last_place(policy)
        lengths = [len(prompt) for prompt in prompts]
        self._growth = Growth(lengths, answers, policy.device)
        ids_S = torch.tensor([token for prompt in prompts for token in prompt], device=policy.device)
        place_S = torch.cat([torch.arange(length) for length in lengths]).to(policy.device)
        last_P = torch.tensor(lengths, device=policy.device).cumsum(0) - 1
        self.logits_NV = self._told(self._states(ids_S, place_S)[last_P])[self._growth.group_N]
        if not self._growth.layers:
            raise PackingError("no layer of it asks for attention by transformers' common interface")

    @staticmethod
    def attending(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the attention of ``growing``."""
        return policy.trunk.attending(GROWING)

    def step(self, token_N: Tensor) -> None:
        """Every answer gets a token."""
        # An answer that has ended goes on until it is left out, but not past the last place.
        states_NH = self._states(token_N, self._growth.place_N.clamp(max=self._last))
        self._growth.token_added()
        self.logits_NV = self._told(states_NH)

    def keep(self, row_n: Tensor) -> None:
        """Only these answers go on."""
        self._growth.keep(row_n)
        self.logits_NV = self.logits_NV[row_n]

    def _states(self, ids_S: Tensor, place_S: Tensor) -> Tensor:
        output = self._backbone(
            input_ids=ids_S[None],
            position_ids=place_S[None],
            attention_mask=None,
            use_cache=False,
            growth=self._growth,
        )
        return output.last_hidden_state[0]

    def _told(self, states_NH: Tensor) -> Tensor:
        layer = self._head.layer
        if states_NH.device.type != "cpu":
            return self._head.rule.apply(layer(states_NH))
        # The same product from the other side: a tall matrix by a narrow one is what a CPU is good at.
        raw_NV = (layer.weight @ states_NH.T).T
        return self._head.rule.apply(raw_NV if layer.bias is None else raw_NV + layer.bias)


class CachedDecoder:
    """Each answer is a row of transformers' own cache; a prompt is read once and copied for its answers."""

    def __init__(self, policy: Policy, prompts: Prompts, answers: Sequence[int]) -> None:
        """Read the prompts, padded on the left."""
        self._model: Any = policy.model
        self._last = _last_place(policy)
        self._cache: Any = None
        longest = max(map(len, prompts))
        ids_PL = torch.zeros(len(prompts), longest, dtype=torch.long)
        real_PL = torch.zeros_like(ids_PL)
        for p, prompt in enumerate(prompts):
            ids_PL[p, longest - len(prompt) :] = torch.tensor(prompt)
            real_PL[p, longest - len(prompt) :] = 1
        self._real_NS = real_PL.to(policy.device)
        self.logits_NV = self._told(ids_PL.to(policy.device), (self._real_NS.cumsum(1) - 1).clamp(min=0))
        group_N = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        self.keep(group_N.to(policy.device))

    @staticmethod
    def attending(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the model's ordinary attention."""
        return policy.as_plain_model()

    def step(self, token_N: Tensor) -> None:
        """Every answer gets a token."""
        self._real_NS = torch.cat((self._real_NS, torch.ones_like(token_N)[:, None]), dim=1)
        place_N1 = self._real_NS.sum(1, keepdim=True) - 1
        self.logits_NV = self._told(token_N[:, None], place_N1.clamp(max=self._last))

    def keep(self, row_n: Tensor) -> None:
        """Only these answers go on."""
        self._cache.batch_select_indices(row_n)
        self._real_NS = self._real_NS[row_n]
        self.logits_NV = self.logits_NV[row_n]

    def _told(self, ids_NL: Tensor, place_NL: Tensor) -> Tensor:
        output = self._model(
            input_ids=ids_NL,
            position_ids=place_NL,
            attention_mask=self._real_NS,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        return output.logits[:, -1]


Decoder = type[SharedDecoder] | type[CachedDecoder]
"""Begun with a policy, prompts and how many answers each has, one after another, within ``attending``;
then ``logits_NV`` predicts every answer's next token, ``step`` adds it, and ``keep`` leaves answers out."""


def fastest_decoder(policy: Policy) -> tuple[Decoder, str | None]:
    """The decoder that this model can be trusted with, and why when it is not the fast one."""
    try:
        apart = _apart(policy)
    except UserError as error:
        return CachedDecoder, str(error)
    if apart <= tolerance(policy):
        return SharedDecoder, None
    return CachedDecoder, f"logits differ by {apart:.2g}"


def _apart(policy: Policy) -> float:
    """The largest difference between both, token for token; before the second token an answer leaves."""
    known = policy.base.config.get_text_config().vocab_size
    prompts = [[token % known for token in prompt] for prompt in TRIAL]
    row_N = torch.arange(3, device=policy.device)
    told = {decoder: list[Tensor]() for decoder in (SharedDecoder, CachedDecoder)}
    for decoder, logits in told.items():
        with torch.inference_mode(), decoder.attending(policy):
            one = decoder(policy, prompts, (2, 1))
            logits.append(one.logits_NV)
            one.step((row_N * 5 + 1) % known)
            logits.append(one.logits_NV)
            one.keep(row_N[1:])
            one.step((row_N[1:] * 5 + 2) % known)
            logits.append(one.logits_NV)
    furthest = max(float((a - b).abs().max()) for a, b in zip(*told.values(), strict=True))
    return math.inf if math.isnan(furthest) else furthest


def _last_place(policy: Policy) -> int | None:
    longest = getattr(policy.base.config.get_text_config(), "max_position_embeddings", None)
    return None if longest is None else longest - 1
