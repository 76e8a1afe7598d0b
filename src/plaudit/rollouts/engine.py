"""Tokens for many answers side by side: predicted by a decoder, drawn by chance, until each has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from plaudit.batches.template import Encoder
from plaudit.models.decoding import Decoder
from plaudit.models.mixing import Mixture
from plaudit.models.policy import Policy
from plaudit.rollouts.drawing import Drawn, draw
from plaudit.rollouts.sampling import Answer, Rollout, SamplingSettings

CROWD = 8
"""Answers that have ended leave when they are one in so many: it copies what the others remember."""
BYTES = 4
"""A character is at most so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One answer that is wanted.

    Example: ``Wanted(prompt=(1, 5, 9), behind=(), chance_T=torch.rand(64))``
    """

    prompt: tuple[int, ...]
    """The tokens that the model is shown."""
    behind: tuple[int, ...]
    """The end of a plain text that is gone on from; empty in a conversation."""
    chance_T: Tensor
    """A number from 0 to 1 for each token that there is room for."""

    @property
    def room(self) -> int:
        """How many tokens may be drawn."""
        return len(self.chance_T)


@dataclass(slots=True)
class _Growing:
    """What an answer is so far."""

    wanted: Wanted
    ids: list[int]
    logp: list[float]
    whole_logp: list[float]
    ended: bool = False

    @property
    def over(self) -> bool:
        return self.ended or len(self.ids) == self.wanted.room


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A policy with its tokenizer, and the decoder that it can be trusted with.

    Example: ``Engine(policy=policy, encoder=encoder, decoder=fastest_decoder(policy)[0])``
    """

    policy: Policy
    """What answers; its weights at this moment, whatever trains them meanwhile."""
    encoder: Encoder
    """Text to tokens and back."""
    decoder: Decoder | Mixture
    """How its next tokens are predicted: by the policy alone, or by a mixture with another one."""
    products: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The arithmetic of its matrix products."""

    def rollouts(self, wanted: Sequence[Wanted], settings: SamplingSettings) -> list[Rollout]:
        """All of them, side by side; the same prompt is read once where its answers follow each other."""
        growing = [_Growing(one, [], [], []) for one in wanted]
        for _ in self._steps(growing, settings):
            pass
        return [self._rollout(one, settings) for one in growing]

    def stream(self, wanted: Wanted, settings: SamplingSettings) -> Iterator[Rollout]:
        """One of them after each of its tokens."""
        growing = _Growing(wanted, [], [], [])
        for _ in self._steps([growing], settings):
            yield self._rollout(growing, settings)

    def _steps(self, growing: Sequence[_Growing], settings: SamplingSettings) -> Iterator[None]:
        """Every answer's next token, until all have ended."""
        prompts = [(prompt, len(list(own))) for prompt, own in groupby(one.wanted.prompt for one in growing)]
        rows, chance_NT = list(growing), _chances(growing).to(self.policy.device)
        with self.decoder.attending(self.policy):
            with self._at_work():
                decoder = self.decoder(
                    self.policy, [one for one, _ in prompts], [count for _, count in prompts]
                )
            for step in range(chance_NT.shape[1]):
                with self._at_work():
                    drawn = draw(decoder.logits_NV, chance_NT[:, step], settings)
                self._add(rows, drawn, settings)
                yield
                alive = [r for r, one in enumerate(rows) if not one.over]
                if not alive:
                    return
                token_N = drawn.token_N
                with self._at_work():
                    if CROWD * (len(rows) - len(alive)) >= len(rows):
                        row_n = torch.tensor(alive, device=self.policy.device)
                        decoder.keep(row_n)
                        token_N, chance_NT, rows = token_N[row_n], chance_NT[row_n], [rows[r] for r in alive]
                    decoder.step(token_N)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Not while a caller of ``stream`` has the word: what these switch belongs to the whole thread."""
        with torch.inference_mode(), self.products():
            yield

    def _add(self, rows: Sequence[_Growing], drawn: Drawn, settings: SamplingSettings) -> None:
        """A token more for those that go on; what is drawn for the others is not kept."""
        parts = (drawn.token_N.tolist(), drawn.logp_N.tolist(), drawn.whole_N.tolist())
        for one, token, logp, whole in zip(rows, *parts, strict=True):
            if not one.over:
                one.ids.append(token)
                one.logp.append(logp)
                one.whole_logp.append(whole)
                one.ended = token in self.encoder.stop_ids or self._stopped(one, settings)

    def _stopped(self, one: _Growing, settings: SamplingSettings) -> bool:
        if not settings.stop:
            return False
        last = self._spelled(one.ids[-BYTES * max(map(len, settings.stop)) - 1 :])
        return any(stop in last for stop in settings.stop)

    def _rollout(self, one: _Growing, settings: SamplingSettings) -> Rollout:
        by_token = one.ids[-1] in self.encoder.stop_ids
        before = self._spelled(one.wanted.behind)
        text = self._spelled([*one.wanted.behind, *(one.ids[:-1] if by_token else one.ids)])[len(before) :]
        for stop in settings.stop:
            text = text.split(stop, 1)[0]
        return Rollout(
            prompt=one.wanted.prompt,
            ids=tuple(one.ids),
            logp=tuple(one.logp),
            whole_logp=tuple(one.whole_logp),
            answer=Answer(text=text, tokens=len(one.ids), ended=one.ended),
        )

    def _spelled(self, ids: Sequence[int]) -> str:
        decode: Any = self.encoder.info.tokenizer.decode
        return decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _chances(growing: Sequence[_Growing]) -> Tensor:
    chance_NT = torch.zeros(len(growing), max(one.wanted.room for one in growing), dtype=torch.float64)
    for a, one in enumerate(growing):
        chance_NT[a, : one.wanted.room] = one.wanted.chance_T
    return chance_NT
