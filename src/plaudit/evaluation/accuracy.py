"""How often the preferred answer has the higher reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.columns import Columns, columns
from plaudit.evaluation.pairs import ScoredPair
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate, Slice, Ties

FEW = 10
"""Pairs below which a category is not named as the worst: the smallest is often lowest by chance."""
MOST_STRENGTHS = 8
"""Different strengths that are shown one by one; more of them are cut into quarters."""


def credit(table: Columns) -> Float[np.ndarray, " B"]:
    """1 where the answer that is more likely the better one has the higher reward, ½ where both are equal.

    >>> gap_B, chance_B = np.array([2.0, -1.0, 0.0]), np.array([1.0, 0.9, 1.0])
    >>> credit(Columns(gap_B=gap_B, chance_B=chance_B, prompt_B=np.arange(3))).tolist()
    [1.0, 0.0, 0.5]
    """
    return 0.5 + 0.5 * np.sign(table.gap_B) * np.sign(table.chance_B - 0.5)


def accuracy(pairs: Sequence[ScoredPair], resampling: Resampling) -> Estimate | None:
    """The mean credit of the pairs that are no ties; None where there is none."""
    table = columns(pairs)
    told_B = table.told_B
    if not told_B.any():
        return None
    return estimate(credit(table)[told_B], table.prompt_B[told_B], resampling)


def slices(
    pairs: Sequence[ScoredPair], name_of: Callable[[ScoredPair], str | None], resampling: Resampling
) -> tuple[Slice, ...]:
    """The accuracy on each part of the pairs, worst first; a pair without a name is in none."""
    parts: dict[str, list[ScoredPair]] = {}
    for pair in pairs:
        name = name_of(pair)
        if name is not None:
            parts.setdefault(name, []).append(pair)
    found = ((name, accuracy(part, resampling)) for name, part in parts.items())
    told = (Slice(name=name, accuracy=share) for name, share in found if share is not None)
    return tuple(sorted(told, key=lambda one: (one.accuracy.value, one.name)))


def by_strength(pairs: Sequence[ScoredPair], resampling: Resampling) -> tuple[Slice, ...]:
    """The accuracy by strength of the preference, faint first."""
    told = [pair for pair in pairs if pair.chance != 0.5]
    seen = sorted({pair.strength for pair in told if pair.strength is not None})
    if not seen:
        return ()
    if len(seen) <= MOST_STRENGTHS:
        names = {strength: f"{strength:g}" for strength in seen}
    else:
        cuts = np.quantile([p.strength for p in told if p.strength is not None], (0, 0.25, 0.5, 0.75, 1))
        names = {one: _quarter(one, [float(cut) for cut in cuts]) for one in seen}
    order = {name: place for place, name in enumerate(dict.fromkeys(names.values()))}
    found = slices(told, lambda pair: None if pair.strength is None else names[pair.strength], resampling)
    return tuple(sorted(found, key=lambda one: order[one.name]))


def worst(categories: Sequence[Slice]) -> str | None:
    """The category of the lowest accuracy among those that are not tiny."""
    large = [one for one in categories if one.accuracy.n >= FEW]
    return large[0].name if len(large) > 1 else None


def ties(pairs: Sequence[ScoredPair]) -> Ties | None:
    """What becomes of the pairs of which neither answer is preferred."""
    table = columns(pairs)
    told_B = table.told_B
    if told_B.all():
        return None
    return Ties(
        pairs=int((~told_B).sum()),
        gap=float(np.abs(table.gap_B[~told_B]).mean()),
        gap_elsewhere=float(np.abs(table.gap_B[told_B]).mean()) if told_B.any() else None,
    )


def _quarter(strength: float, cuts: list[float]) -> str:
    place = next(place for place in range(1, 5) if place == 4 or strength <= cuts[place])
    return f"{cuts[place - 1]:g} to {cuts[place]:g}"
