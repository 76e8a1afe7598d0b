"""Feedback in expectation: every pair with its chance, every answer with its share of good marks.

A data set of infinite size, written out. Pairs are drawn as two answers from μ, the reference or all answers
alike; an answer may meet itself, as it does in samples, which every loss of gaps passes over.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from examples.proofs.exact import Language, preferences


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """B ordered pairs and how often each of them comes."""

    prompt_B: Int[Tensor, " B"]
    chosen_B: Int[Tensor, " B"]
    rejected_B: Int[Tensor, " B"]
    weight_B: Float[Tensor, " B"]
    """The pair's share of all pairs; they add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbs:
    """B answers, how often each comes, and how often it is called good."""

    prompt_B: Int[Tensor, " B"]
    answer_B: Int[Tensor, " B"]
    label_B: Float[Tensor, " B"]
    """The share of those who called it good."""
    weight_B: Float[Tensor, " B"]
    """The answer's share of all answers; they add up to 1."""


def uniform_distribution(language: Language) -> Float[Tensor, "P Y"]:
    return torch.full_like(language.reward_PY, 1 / len(language.responses))


def win_rates(language: Language, mu_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P Y"]:
    """E over z from μ of p(y ≻ z): how often an answer wins."""
    return torch.einsum("pyz,pz->py", preferences(language), mu_PY)


def pairs(
    language: Language,
    mu_PY: Float[Tensor, "P Y"] | None = None,
    preference_PYY: Float[Tensor, "P Y Y"] | None = None,
) -> Pairs:
    """All ordered pairs of answers, with their chance under μ and the preferences (Bradley and Terry's)."""
    sampling_PY = uniform_distribution(language) if mu_PY is None else mu_PY
    wins_PYY = preferences(language) if preference_PYY is None else preference_PYY
    weight_PYY = sampling_PY[:, :, None] * sampling_PY[:, None, :] * wins_PYY
    # Pairs that never come are dropped: 0 times an infinite loss would be nan.
    prompt_B, chosen_B, rejected_B = weight_PYY.nonzero(as_tuple=True)
    weight_B = weight_PYY[prompt_B, chosen_B, rejected_B]
    return Pairs(
        prompt_B=prompt_B, chosen_B=chosen_B, rejected_B=rejected_B, weight_B=weight_B / weight_B.sum()
    )


def thumbs(
    language: Language,
    mu_PY: Float[Tensor, "P Y"] | None = None,
    label_PY: Float[Tensor, "P Y"] | None = None,
) -> Thumbs:
    """All answers, called good with the chance σ(r), as if against an answer of reward 0."""
    sampling_PY = uniform_distribution(language) if mu_PY is None else mu_PY
    called_PY = language.reward_PY.sigmoid() if label_PY is None else label_PY
    prompt_B, answer_B = sampling_PY.nonzero(as_tuple=True)
    weight_B = sampling_PY[prompt_B, answer_B]
    label_B = called_PY[prompt_B, answer_B]
    return Thumbs(prompt_B=prompt_B, answer_B=answer_B, label_B=label_B, weight_B=weight_B / weight_B.sum())


def certain_preferences(language: Language) -> Float[Tensor, "P Y Y"]:
    """Preferences without doubt: the better answer always wins, an answer wins half of the time of itself."""
    return (preferences(language) - 0.5).sign() / 2 + 0.5


def with_flipped_labels(preference_PYY: Float[Tensor, "P Y Y"], share: float) -> Float[Tensor, "P Y Y"]:
    """Preferences with a share of the labels flipped."""
    return (1 - share) * preference_PYY + share * (1 - preference_PYY)


def uniform_over(covered_Y: Bool[Tensor, " Y"], language: Language) -> Float[Tensor, "P Y"]:
    """The distribution μ that is uniform over some of the answers and 0 elsewhere."""
    return (covered_Y / covered_Y.sum()).to(torch.float64).expand_as(language.reward_PY)


def repeated_pairs(weighted_pairs: Pairs, *, rows: int = 4096) -> Pairs:
    """About so many pairs of equal weight, each as often as it comes: for losses that sort their batch."""
    # Rounding the running sum instead of each share keeps every error below one row.
    ends_B = (weighted_pairs.weight_B.cumsum(0) * rows).round().long()
    times_B = ends_B.diff(prepend=ends_B.new_zeros(1))
    return replace(
        weighted_pairs,
        prompt_B=weighted_pairs.prompt_B.repeat_interleave(times_B),
        chosen_B=weighted_pairs.chosen_B.repeat_interleave(times_B),
        rejected_B=weighted_pairs.rejected_B.repeat_interleave(times_B),
        weight_B=torch.full((int(times_B.sum()),), 1 / int(times_B.sum()), dtype=torch.float64),
    )
