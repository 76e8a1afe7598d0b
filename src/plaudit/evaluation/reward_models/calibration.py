"""Whether σ(r₁ − r₂) is the chance that the first answer is preferred, and how margins are spread."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from plaudit.evaluation.reward_models.pairs import PairColumns
from plaudit.evaluation.reward_models.result import Bin, Calibration, Margins

RELIABILITY_BINS = 10
"""Of a reliability diagram."""
BINS_PER_SIDE = 12
"""Bins of the histogram on either side of 0."""


def reward_calibration(table: PairColumns, *, bins: int = RELIABILITY_BINS) -> Calibration | None:
    """Log-loss, Brier score and expected calibration error of the pairs with a preference; None where all are
    ties.

    With q = σ(r₁ − r₂) and μ the chance that the first is better, both scores are expected over the coin μ:
    −μ log q − (1 − μ) log(1 − q) and μ (1 − q)² + (1 − μ) q². ECE = Σ_b n_b/N |right_b − confidence_b|
    (Guo et al. 2017, arXiv:1706.04599), each pair seen from the answer that the model prefers, so that no
    figure depends on which of the two stands first; with equal rewards both sides are as right.
    """
    has_preference_B = table.has_preference_B
    if not has_preference_B.any():
        return None
    gap_B, p_first_B = table.gap_B[has_preference_B], table.p_first_B[has_preference_B]
    q_B = _sigmoid(gap_B)
    confidence_B = _sigmoid(np.abs(gap_B))
    correct_B = np.where(gap_B > 0, p_first_B, np.where(gap_B < 0, 1 - p_first_B, 0.5))
    mass_bins, width_bins = (
        reliability_by_mass(confidence_B, correct_B, bins=bins),
        reliability_by_width(confidence_B, correct_B, bins=bins),
    )
    loss_B = p_first_B * np.logaddexp(0, -gap_B) + (1 - p_first_B) * np.logaddexp(0, gap_B)
    return Calibration(
        pairs=len(gap_B),
        log_loss=float(loss_B.mean()),
        brier=float((p_first_B * (1 - q_B) ** 2 + (1 - p_first_B) * q_B**2).mean()),
        ece_mass=expected_calibration_error(mass_bins),
        ece_width=expected_calibration_error(width_bins),
        by_mass=mass_bins,
        by_width=width_bins,
    )


def margin_histogram(table: PairColumns) -> Margins | None:
    """The histogram of r_preferred − r_other, cut where the furthest hundredth of the pairs begins."""
    has_preference_B = table.has_preference_B
    if not has_preference_B.any():
        return None
    margin_B = table.gap_B[has_preference_B] * np.sign(table.p_first_B[has_preference_B] - 0.5)
    limit = float(np.quantile(np.abs(margin_B), 0.99)) or 1.0
    edges = np.linspace(-limit, limit, 2 * BINS_PER_SIDE + 1)
    edges[BINS_PER_SIDE] = 0.0
    counts = np.histogram(np.clip(margin_B, -limit, limit), edges)[0]
    return Margins(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        mean=float(margin_B.mean()),
        median=float(np.median(margin_B)),
    )


def _sigmoid(x_B: Float[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
    return np.exp(-np.logaddexp(0, -x_B))


def equal_mass_bins(
    confidence_B: Float[np.ndarray, " B"], *, bins: int = RELIABILITY_BINS
) -> Int[np.ndarray, " B"]:
    """The bin of each prediction: as many in each, and what is equally sure is never parted.

    >>> equal_mass_bins(np.array([0.9, 0.5, 0.5, 0.7]), bins=2).tolist()
    [1, 0, 0, 1]
    """
    cuts = np.unique(np.quantile(confidence_B, np.linspace(0, 1, bins + 1)))
    return np.searchsorted(cuts[1:-1], confidence_B, side="left")


def reliability_by_mass(
    confidence_B: Float[np.ndarray, " B"], correct_B: Float[np.ndarray, " B"], *, bins: int = RELIABILITY_BINS
) -> tuple[Bin, ...]:
    """As many predictions in each bin; those that are equally sure are never parted."""
    bin_B = equal_mass_bins(confidence_B, bins=bins)
    reliability = []
    for index in np.unique(bin_B):
        in_bin_B = bin_B == index
        reliability.append(
            _reliability_bin(
                confidence_B[in_bin_B],
                correct_B[in_bin_B],
                float(confidence_B[in_bin_B].min()),
                float(confidence_B[in_bin_B].max()),
            )
        )
    return tuple(reliability)


def reliability_by_width(
    confidence_B: Float[np.ndarray, " B"],
    correct_B: Float[np.ndarray, " B"],
    *,
    bins: int = RELIABILITY_BINS,
    lowest: int | float = 0.5,
) -> tuple[Bin, ...]:
    """Bins of equal width from the lowest confidence that there can be to 1; empty ones are left out."""
    edges = np.linspace(lowest, 1, bins + 1)
    bin_B = np.searchsorted(edges[1:-1], confidence_B, side="left")
    return tuple(
        _reliability_bin(
            confidence_B[bin_B == b], correct_B[bin_B == b], float(edges[b]), float(edges[b + 1])
        )
        for b in range(bins)
        if (bin_B == b).any()
    )


def expected_calibration_error(bins: tuple[Bin, ...]) -> float:
    """Σ n/N |right − confidence| over bins (Guo et al. 2017, arXiv:1706.04599)."""
    total = sum(one.pairs for one in bins)
    return sum(one.pairs * abs(one.right - one.confidence) for one in bins) / total


def _reliability_bin(
    confidence_B: Float[np.ndarray, " B"], correct_B: Float[np.ndarray, " B"], low: float, high: float
) -> Bin:
    return Bin(
        low=low,
        high=high,
        confidence=float(confidence_B.mean()),
        right=float(correct_B.mean()),
        pairs=len(confidence_B),
    )
