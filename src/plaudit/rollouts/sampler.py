"""The seam between a policy and whatever draws its answers: a local model, a server, a script in a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.records.messages import Text, words
from plaudit.rollouts.sampling import Answer, Rollout, SamplingSettings


@runtime_checkable
class Sampler(Protocol):
    """Answers prompts, token by token."""

    def rollouts(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn."""
        ...


class ScriptedSampler:
    """Says what it was told to say, a token for each character: a sampler for tests of what follows it.

    >>> sampler = ScriptedSampler({"Hello?": ["Hi.", "Good day."]})
    >>> [group] = sampler.rollouts(["Hello?"], SamplingSettings(), n=3)
    >>> [one.answer.text for one in group]
    ['Hi.', 'Good day.', 'Hi.']
    """

    def __init__(self, script: dict[str, list[str]]) -> None:
        """What is said to each prompt, in turn; every line of a prompt is as likely as the others."""
        self._script = script

    def rollouts(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """The lines of each prompt, again from the first when there are no more."""
        return [[self._said(words(prompt), draw, settings) for draw in range(n)] for prompt in prompts]

    def _said(self, prompt: str, draw: int, settings: SamplingSettings) -> Rollout:
        lines = self._script.get(prompt)
        if not lines:
            raise UserError(f"the script has nothing to say to {prompt!r}")
        line = lines[draw % len(lines)]
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
