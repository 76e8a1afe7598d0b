"""From drawn answers to what is trained: the very tokens that were drawn."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.rollouts.sampler import Rollout
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.prompts import EncodedPrompt


def example_from_rollouts(prompt: EncodedPrompt, answers: Sequence[Rollout]) -> Example:
    """The generated tokens of a prompt as an example; tokens of an environment are masked out."""
    completions = tuple(
        Completion(
            ids=answer.ids,
            mask=(True,) * len(answer.ids) if answer.mask is None else answer.mask,
            finished=answer.answer.ended,
        )
        for answer in answers
    )
    return Example(prompt=prompt.prompt, completions=completions, origin=prompt.origin, extras=prompt.extras)
