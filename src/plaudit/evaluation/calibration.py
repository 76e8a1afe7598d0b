"""Whether σ(r₁ − r₂) is the chance that the first answer is preferred, and how margins are spread."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from plaudit.evaluation.columns import Columns
from plaudit.evaluation.result import Bin, Calibration, Margins

BINS = 10
"""Of a reliability diagram."""
HALF = 12
"""Bins of the histogram on either side of 0."""


def calibration(table: Columns, *, bins: int = BINS) -> Calibration | None:
    """Log-loss, Brier score and expected calibration error of the pairs that are no ties.

    With q = σ(r₁ − r₂) and μ the chance that the first is better, both scores are expected over the coin μ:
    −μ log q − (1 − μ) log(1 − q) and μ (1 − q)² + (1 − μ) q². ECE = Σ_b n_b/N |right_b − confidence_b|
    (Guo et al. 2017, arXiv:1706.04599), each pair seen from the answer that the model prefers, so that no
    figure depends on which of the two stands first; with equal rewards both sides are as right.
    """
    told_B = table.told_B
    if not told_B.any():
        return None
    gap_B, chance_B = table.gap_B[told_B], table.chance_B[told_B]
    q_B = _sigmoid(gap_B)
    sure_B = _sigmoid(np.abs(gap_B))
    right_B = np.where(gap_B > 0, chance_B, np.where(gap_B < 0, 1 - chance_B, 0.5))
    mass, width = by_mass(sure_B, right_B, bins=bins), by_width(sure_B, right_B, bins=bins)
    loss_B = chance_B * np.logaddexp(0, -gap_B) + (1 - chance_B) * np.logaddexp(0, gap_B)
    return Calibration(
        pairs=len(gap_B),
        log_loss=float(loss_B.mean()),
        brier=float((chance_B * (1 - q_B) ** 2 + (1 - chance_B) * q_B**2).mean()),
        ece_mass=expected_error(mass),
        ece_width=expected_error(width),
        by_mass=mass,
        by_width=width,
    )


def margins(table: Columns) -> Margins | None:
    """The histogram of r_preferred − r_other, cut where the furthest hundredth of the pairs begins."""
    told_B = table.told_B
    if not told_B.any():
        return None
    margin_B = table.gap_B[told_B] * np.sign(table.chance_B[told_B] - 0.5)
    limit = float(np.quantile(np.abs(margin_B), 0.99)) or 1.0
    edges = np.linspace(-limit, limit, 2 * HALF + 1)
    edges[HALF] = 0.0
    counts = np.histogram(np.clip(margin_B, -limit, limit), edges)[0]
    return Margins(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        mean=float(margin_B.mean()),
        median=float(np.median(margin_B)),
    )


def _sigmoid(x_B: Float[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
    return np.exp(-np.logaddexp(0, -x_B))


def mass_places(sure_B: Float[np.ndarray, " B"], *, bins: int = BINS) -> Int[np.ndarray, " B"]:
    """The bin of each prediction: as many in each, and what is equally sure is never parted.

    >>> mass_places(np.array([0.9, 0.5, 0.5, 0.7]), bins=2).tolist()
    [1, 0, 0, 1]
    """
    cuts = np.unique(np.quantile(sure_B, np.linspace(0, 1, bins + 1)))
    return np.searchsorted(cuts[1:-1], sure_B, side="left")


def by_mass(
    sure_B: Float[np.ndarray, " B"], right_B: Float[np.ndarray, " B"], *, bins: int = BINS
) -> tuple[Bin, ...]:
    """As many predictions in each bin; those that are equally sure are never parted."""
    place_B = mass_places(sure_B, bins=bins)
    found = []
    for place in np.unique(place_B):
        held = place_B == place
        found.append(_bin(sure_B[held], right_B[held], float(sure_B[held].min()), float(sure_B[held].max())))
    return tuple(found)


def by_width(
    sure_B: Float[np.ndarray, " B"],
    right_B: Float[np.ndarray, " B"],
    *,
    bins: int = BINS,
    lowest: int | float = 0.5,
) -> tuple[Bin, ...]:
    """Bins of equal width from the lowest confidence that there can be to 1; empty ones are left out."""
    edges = np.linspace(lowest, 1, bins + 1)
    place_B = np.searchsorted(edges[1:-1], sure_B, side="left")
    return tuple(
        _bin(sure_B[place_B == b], right_B[place_B == b], float(edges[b]), float(edges[b + 1]))
        for b in range(bins)
        if (place_B == b).any()
    )


def expected_error(bins: tuple[Bin, ...]) -> float:
    """Σ n/N |right − confidence| over bins (Guo et al. 2017, arXiv:1706.04599)."""
    total = sum(one.pairs for one in bins)
    return sum(one.pairs * abs(one.right - one.confidence) for one in bins) / total


def _bin(sure_B: Float[np.ndarray, " B"], right_B: Float[np.ndarray, " B"], low: float, high: float) -> Bin:
    return Bin(
        low=low,
        high=high,
        confidence=float(sure_B.mean()),
        right=float(right_B.mean()),
        pairs=len(sure_B),
    )
