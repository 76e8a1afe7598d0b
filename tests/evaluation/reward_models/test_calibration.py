"""Log-loss, Brier score and calibration error: by hand, and as scikit-learn has them."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from plaudit.evaluation.reward_models.accuracy import margin_histogram, reward_calibration
from plaudit.evaluation.reward_models.pairs import PairColumns


def table(gap_B, chance_B) -> PairColumns:
    return PairColumns(
        gap_B=np.asarray(gap_B, dtype=float),
        p_first_B=np.asarray(chance_B, dtype=float),
        prompt_B=np.arange(len(gap_B)),
    )


def drawn(n: int = 600, scale: float = 1.5):
    """Gaps, and outcomes that are less sure than σ(gap) says."""
    chance = np.random.default_rng(2)
    gap_B = chance.normal(size=n) * 2
    return gap_B, (chance.random(n) < 1 / (1 + np.exp(-gap_B / scale))).astype(float)


def test_a_coin_is_scored_as_one_huge_gaps_are_finite_and_ties_are_no_outcome():
    found = reward_calibration(table([0.0, 0.0], [1.0, 0.0]))
    assert found.log_loss == pytest.approx(np.log(2))
    assert found.brier == 0.25
    assert found.ece_mass == found.ece_width == 0
    assert found.by_mass[0].confidence == found.by_mass[0].right == 0.5
    found = reward_calibration(table([1e4, -1e4], [1, 1]))
    assert found.log_loss == pytest.approx(5000)
    assert found.brier == 0.5
    assert reward_calibration(table([1.0], [0.5])) is None
    assert reward_calibration(table([1.0, 2.0], [0.5, 1.0])).pairs == 1


def test_two_bins_by_hand():
    """σ(ln 4) = 0.8, right in 1 of 2; σ(ln 1.5) = 0.6, right in 2 of 2."""
    sure, unsure = np.log(4), np.log(1.5)
    found = reward_calibration(table([sure, sure, unsure, -unsure], [1, 0, 1, 0]), bins=2)
    assert [(b.confidence, b.right, b.pairs) for b in found.by_mass] == [
        (pytest.approx(0.6), 1.0, 2),
        (pytest.approx(0.8), 0.5, 2),
    ]
    assert found.ece_mass == pytest.approx((2 * 0.4 + 2 * 0.3) / 4)
    assert found.ece_width == pytest.approx(found.ece_mass)


@pytest.mark.parametrize(("strategy", "name"), [("quantile", "by_mass"), ("uniform", "by_width")])
def test_the_reliability_bins_agree_with_scikit_learn(strategy, name):
    gap_B, won_B = drawn()
    bins = getattr(reward_calibration(table(gap_B, won_B)), name)
    sure_B = 1 / (1 + np.exp(-np.abs(gap_B)))
    right_B = np.where(gap_B > 0, won_B, 1 - won_B)
    # scikit-learn's equal widths go from 0 to 1, and these from ½.
    count = 20 if strategy == "uniform" else 10
    right, confidence = calibration_curve(right_B, sure_B, n_bins=count, strategy=strategy)
    assert [b.right for b in bins] == pytest.approx(right.tolist())
    assert [b.confidence for b in bins] == pytest.approx(confidence.tolist())
    assert sum(b.pairs for b in bins) == 600


def test_calibration_does_not_depend_on_which_answer_is_called_the_first():
    gap_B, won_B = drawn(200)
    one, other = reward_calibration(table(gap_B, won_B)), reward_calibration(table(-gap_B, 1 - won_B))
    assert one.log_loss == pytest.approx(other.log_loss)
    assert (one.by_mass, one.by_width) == (other.by_mass, other.by_width)


def test_an_overconfident_model_is_found_out_and_a_calibrated_one_is_not():
    gap_B, won_B = drawn(4000, scale=1.0)
    assert reward_calibration(table(gap_B, won_B)).ece_mass < 0.03
    assert reward_calibration(table(4 * gap_B, won_B)).ece_mass > 0.08


def test_the_histogram_holds_every_margin_and_parts_right_from_wrong_at_0():
    gap_B, won_B = drawn()
    found = margin_histogram(table(gap_B, won_B))
    middle = found.edges.index(0.0)
    margin_B = np.where(won_B == 1, gap_B, -gap_B)
    assert sum(found.counts[:middle]) == (margin_B < 0).sum()
    assert sum(found.counts[middle:]) == (margin_B >= 0).sum()
    assert (found.mean, found.median) == (pytest.approx(margin_B.mean()), pytest.approx(np.median(margin_B)))
    assert margin_histogram(table([0.0], [1.0])).counts.count(1) == 1
