"""How far a policy is from its reference, and how much it leaves to chance, on answers of its own.

KL(π ‖ π_ref) = E_{y ~ π} Σ_t log π(y_t) − log π_ref(y_t): the mean over answers that π drew, from the whole
distribution, is exact on average (k1 in Schulman's naming, 2020). The entropy of the next token is exact at
each place that an answer came to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from plaudit.batches.split import in_order
from plaudit.batches.tokens import Completion, Example, batch_of
from plaudit.errors import UserError
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate
from plaudit.models.policy import Policy
from plaudit.rollouts.sampling import Rollout

TOKENS_AT_ONCE = 8192
"""Tokens in one pass of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """What a policy thinks of an answer.

    Example: ``Thought(logp=-4.2, entropy=3.1, tokens=6)``
    """

    logp: float
    """Σ log π of its tokens, in nats."""
    entropy: float
    """Σ of the entropies of the distributions that they were chosen from."""
    tokens: int
    """How many there are, the end among them."""


Thoughts = Sequence[Sequence[Thought]]
"""Of each question's answers."""


def thoughts(
    policy: Policy, groups: Sequence[Sequence[Rollout]], *, temperature: int | float = 1.0
) -> Thoughts:
    """What a policy thinks of answers, its own or another's with the same tokens."""
    return thoughts_of(policy, [_example(group) for group in groups], temperature=temperature)


def thoughts_of(policy: Policy, examples: Sequence[Example], *, temperature: int | float = 1.0) -> Thoughts:
    """What a policy thinks of any answers, as tokens; of one prompt the answers share its computation."""
    order = sorted(range(len(examples)), key=lambda place: examples[place].tokens)
    found: list[Thought] = []
    for piece in in_order([examples[place] for place in order], TOKENS_AT_ONCE):
        found += _thoughts(policy, piece, temperature)
    said = iter(found)
    by_place = {place: tuple(next(said) for _ in examples[place].completions) for place in order}
    return tuple(by_place[place] for place in range(len(examples)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far a policy is from its reference.

    Example: ``distances(own, theirs, Resampling()).kl.value``
    """

    kl: Estimate
    """In nats an answer."""
    kl_token: Estimate
    """In nats a token."""


def distances(own: Thoughts, theirs: Thoughts, resampling: Resampling) -> Distances:
    """KL from what both think of the answers that the first drew: of whole answers, and by their tokens."""
    pairs = [
        (one, other)
        for mine, ref in zip(own, theirs, strict=True)
        for one, other in zip(mine, ref, strict=True)
    ]
    gap_B = np.array([one.logp - other.logp for one, other in pairs])
    tokens_B = np.array([float(one.tokens) for one, _ in pairs])
    place_B = places(own)
    by_token = estimate(gap_B / tokens_B, place_B, resampling, weight_B=tokens_B, share=False)
    return Distances(kl=estimate(gap_B, place_B, resampling, share=False), kl_token=by_token)


def entropy(own: Thoughts, resampling: Resampling) -> Estimate:
    """The mean entropy of the next token, in nats, over the tokens of the policy's answers."""
    flat = [one for group in own for one in group]
    tokens_B = np.array([float(one.tokens) for one in flat])
    mean_B = np.array([one.entropy / one.tokens for one in flat])
    return estimate(mean_B, places(own), resampling, weight_B=tokens_B, share=False)


def places(groups: Sequence[Sequence[object]]) -> Int[np.ndarray, " B"]:
    """The number of the question of each answer.

    >>> places([["a", "b"], ["c"]]).tolist()
    [0, 0, 1]
    """
    return np.array([place for place, group in enumerate(groups) for _ in group], dtype=np.int64)


def _example(group: Sequence[Rollout]) -> Example:
    completions = tuple(
        Completion(ids=one.ids, mask=(True,) * len(one.ids), finished=one.answer.ended) for one in group
    )
    return Example(prompt=group[0].prompt, completions=completions)


def _thoughts(policy: Policy, piece: Sequence[Example], temperature: int | float) -> list[Thought]:
    batch = batch_of(piece).to(policy.device)
    with torch.no_grad():
        scores = policy.score(batch, also=("entropy",), temperature=float(temperature))
    assert scores.entropy_NT is not None
    sums = (scores.logp_NT.double().sum(-1).tolist(), scores.entropy_NT.double().sum(-1).tolist())
    if not all(math.isfinite(value) for own in sums for value in own):
        raise UserError("the model's log-probs are not numbers: its weights are damaged, or a run diverged")
    return [
        Thought(logp=logp, entropy=spread, tokens=tokens)
        for logp, spread, tokens in zip(*sums, batch.length_N.tolist(), strict=True)
    ]
