"""From drawn answers to what is trained: the very tokens that were drawn."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.rollouts.sampler import Rollout
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.prompts import EncodedPrompt


def example_from_rollouts(question: EncodedPrompt, answers: Sequence[Rollout]) -> Example:
    """The generated tokens of a prompt as an example; tokens of an environment are masked out."""
    completions = tuple(
        Completion(
            ids=one.ids,
            mask=(True,) * len(one.ids) if one.mask is None else one.mask,
            finished=one.answer.ended,
        )
        for one in answers
    )
    return Example(
        prompt=question.prompt, completions=completions, origin=question.origin, extras=question.extras
    )
