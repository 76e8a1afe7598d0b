"""Feedback in expectation: every pair with its chance, every answer with its share of good marks.

A data set of infinite size, written out. Pairs are drawn as two answers from μ, the reference or all answers
alike; an answer may meet itself, as it does in samples, which every loss of gaps passes over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.proof.exact import preferences
from plaudit.proof.language import Language


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """B ordered pairs and how often each of them comes.

    Example: ``pairs(language(seed=0))``
    """

    prompt_B: Int[Tensor, " B"]
    """Which prompt."""
    chosen_B: Int[Tensor, " B"]
    """Which answer was preferred."""
    rejected_B: Int[Tensor, " B"]
    """Which was not."""
    weight_B: Float[Tensor, " B"]
    """The pair's share of all pairs; they add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbs:
    """B answers, how often each comes, and how often it is called good.

    Example: ``thumbs(language(seed=0))``
    """

    prompt_B: Int[Tensor, " B"]
    """Which prompt."""
    answer_B: Int[Tensor, " B"]
    """Which answer."""
    label_B: Float[Tensor, " B"]
    """The share of those who called it good."""
    weight_B: Float[Tensor, " B"]
    """The answer's share of all answers; they add up to 1."""


def everywhere(spoken: Language) -> Float[Tensor, "P Y"]:
    """μ that draws all answers alike."""
    return torch.full_like(spoken.reward_PY, 1 / len(spoken.responses))


def win_chance(spoken: Language, mu_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P Y"]:
    """E over z from μ of p(y ≻ z): how often an answer wins."""
    return torch.einsum("pyz,pz->py", preferences(spoken), mu_PY)


def pairs(
    spoken: Language,
    mu_PY: Float[Tensor, "P Y"] | None = None,
    chance_PYY: Float[Tensor, "P Y Y"] | None = None,
) -> Pairs:
    """All ordered pairs of answers, with their chance under μ and the preferences (Bradley and Terry's)."""
    drawn_PY = everywhere(spoken) if mu_PY is None else mu_PY
    wins_PYY = preferences(spoken) if chance_PYY is None else chance_PYY
    weight_PYY = drawn_PY[:, :, None] * drawn_PY[:, None, :] * wins_PYY
    prompt_B, chosen_B, rejected_B = weight_PYY.nonzero(as_tuple=True)
    weight_B = weight_PYY[prompt_B, chosen_B, rejected_B]
    return Pairs(
        prompt_B=prompt_B,
        chosen_B=chosen_B,
        rejected_B=rejected_B,
        weight_B=weight_B / weight_B.sum(),
    )


def thumbs(
    spoken: Language,
    mu_PY: Float[Tensor, "P Y"] | None = None,
    label_PY: Float[Tensor, "P Y"] | None = None,
) -> Thumbs:
    """All answers, called good with the chance σ(r), as if against an answer of reward 0."""
    drawn_PY = everywhere(spoken) if mu_PY is None else mu_PY
    called_PY = spoken.reward_PY.sigmoid() if label_PY is None else label_PY
    prompt_B, answer_B = drawn_PY.nonzero(as_tuple=True)
    weight_B = drawn_PY[prompt_B, answer_B]
    return Thumbs(
        prompt_B=prompt_B,
        answer_B=answer_B,
        label_B=called_PY[prompt_B, answer_B],
        weight_B=weight_B / weight_B.sum(),
    )


def certain(spoken: Language) -> Float[Tensor, "P Y Y"]:
    """Preferences without doubt: the better answer always wins, an answer wins half of the time of itself."""
    return (preferences(spoken) - 0.5).sign() / 2 + 0.5


def flipped(chance_PYY: Float[Tensor, "P Y Y"], share: float) -> Float[Tensor, "P Y Y"]:
    """The same preferences with a share of the labels swapped."""
    return (1 - share) * chance_PYY + share * (1 - chance_PYY)


def among(covered_Y: Bool[Tensor, " Y"], spoken: Language) -> Float[Tensor, "P Y"]:
    """μ that draws some of the answers alike and the others never."""
    return (covered_Y / covered_Y.sum()).to(torch.float64).expand_as(spoken.reward_PY)


def counted(found: Pairs, *, rows: int = 4096) -> Pairs:
    """About so many pairs of equal weight, each as often as it comes: for losses that sort their batch."""
    # Rounding the running sum instead of each share keeps every error below one row.
    ends_B = (found.weight_B.cumsum(0) * rows).round().long()
    times_B = ends_B.diff(prepend=ends_B.new_zeros(1))
    return replace(
        found,
        prompt_B=found.prompt_B.repeat_interleave(times_B),
        chosen_B=found.chosen_B.repeat_interleave(times_B),
        rejected_B=found.rejected_B.repeat_interleave(times_B),
        weight_B=torch.full((int(times_B.sum()),), 1 / int(times_B.sum()), dtype=torch.float64),
    )
