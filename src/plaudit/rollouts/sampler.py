"""The seam between a policy and whatever draws its answers: a local model, a server, a script in a test.

How answers are drawn, and what an answer is; importing this does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.rollouts.environment import FinishedEpisode


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How the next token is chosen, and for how long.

    Example: ``SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=64, seed=1)``
    """

    temperature: int | float = 1.0
    """Scores are divided by it: below 1 is bolder, above 1 wilder, 0 always takes the likeliest token."""
    top_k: int = 0
    """Only so many of the likeliest tokens are drawn; 0 is all of them."""
    top_p: int | float = 1.0
    """Only the likeliest tokens are drawn, as few as together have this probability; 1 is all of them."""
    min_p: int | float = 0.0
    """Only tokens at least so likely are drawn, as a share of the likeliest one; 0 is all of them."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut."""
    stop: tuple[str, ...] = ()
    """An answer ends before any of these; several can be given."""
    seed: int = 0
    """Where chance begins: the same seed gives the same answers."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature {self.temperature}: expected 0 (the likeliest token) or more")
        if self.top_k < 0:
            raise UserError(f"top_k {self.top_k}: expected 1 or more, or 0 for every token")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: expected a share above 0 and at most 1 (1 is every token)")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p {self.min_p}: expected a share from 0 (every token) to 1")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens {self.max_tokens}: expected 1 or more")
        if "" in self.stop:
            raise UserError("stop: an empty string would end every answer before it begins")

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0

    @property
    def is_unrestricted(self) -> bool:
        """Whether every token of the vocabulary can be sampled: no greedy, top-k, top-p or min-p."""
        return not self.greedy and self.top_k == 0 and self.top_p == 1 and self.min_p == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The text that a model generated.

    Example: ``Answer(text="An apple.", tokens=4, ended=True)``
    """

    text: str
    """The words, without control tokens and without what it was stopped at."""
    tokens: int
    """How many tokens were drawn, the one that ended the turn among them."""
    ended: bool
    """Whether it came to an end by itself or at a stop; False means that it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """An answer as the tokens that were drawn: what a policy learns from, never made from its text again.

    Example: ``sampler.generate(["What does the owl eat?"], SamplingSettings(), n=8)[0][0].logp``
    """

    prompt: tuple[int, ...]
    """The tokens that the model was shown."""
    ids: tuple[int, ...]
    """The tokens that were drawn; of an episode those between them too."""
    logp: tuple[float, ...]
    """The log-probability of each among the tokens that could be drawn; 0 where it was not drawn."""
    whole_logp: tuple[float, ...]
    """The same among all tokens, at the same temperature: what a policy's own log-prob is compared with."""
    answer: Answer
    """The text of the tokens."""
    mask: tuple[bool, ...] | None = None
    """True where a token was drawn, False where an environment wrote it; None: all were drawn."""
    played: FinishedEpisode | None = None
    """The finished episode, where it is one."""


@runtime_checkable
class Sampler(Protocol):
    """Answers prompts, token by token."""

    def generate(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn."""
        ...


class ScriptedSampler:
    """A sampler that returns scripted lines, a token for each character: for tests of what uses samplers.

    >>> sampler = ScriptedSampler({"Hello?": ["Hi.", "Good day."]})
    >>> [group] = sampler.generate(["Hello?"], SamplingSettings(), n=3)
    >>> [one.answer.text for one in group]
    ['Hi.', 'Good day.', 'Hi.']
    """

    def __init__(self, script: dict[str, list[str]]) -> None:
        """What is said to each prompt, in turn; every line of a prompt is as likely as the others."""
        self._script = script

    def generate(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """The lines of each prompt, again from the first when there are no more."""
        return [
            [self._scripted_rollout(plain_text(prompt), draw, settings) for draw in range(n)]
            for prompt in prompts
        ]

    def _scripted_rollout(self, prompt: str, sample: int, settings: SamplingSettings) -> Rollout:
        lines = self._script.get(prompt)
        if not lines:
            raise UserError(f"the script has nothing to say to {prompt!r}")
        line = lines[sample % len(lines)]
        ids = tuple(map(ord, line[: settings.max_tokens]))
        logp = (-math.log(len(lines)), *[0.0] * (len(ids) - 1))
        ended = len(line) <= settings.max_tokens
        return Rollout(
            prompt=tuple(map(ord, prompt)),
            ids=ids,
            logp=logp,
            whole_logp=logp,
            answer=Answer(text=line[: len(ids)], tokens=len(ids), ended=ended),
        )
