"""What two readings of one pair come to."""

import pytest

from plaudit.evaluation.policies.win_rate import verdict_array, with_verdict
from tests.evaluation.policies.duels import duel


@pytest.mark.parametrize(
    ("forward", "backward", "verdict"),
    [
        (1.0, 1.0, 1.0),
        (0, 0, 0.0),
        (1.0, 0.0, 0.5),
        (0.875, 0.25, 0.5),
        (0.875, 0.625, 0.75),
        (1.0, 0.5, 0.75),
        (0.5, 0.5, 0.5),
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_both_orders_are_averaged_and_a_contradiction_is_a_tie(forward, backward, verdict):
    one = duel(forward, backward, category="fact", reason="refused")
    assert one.verdict == pytest.approx(verdict) if verdict is not None else one.verdict is None
    turned = one.swapped.verdict
    assert turned == pytest.approx(1 - verdict) if verdict is not None else turned is None
    assert one.swapped.swapped == one
    assert (one.swapped.mine, one.swapped.category, one.swapped.reason) == ("other", "fact", "refused")


@pytest.mark.parametrize("chance", [1.1, -0.1, float("nan")])
def test_what_is_no_chance_is_refused(chance):
    with pytest.raises(ValueError, match="no chance"):
        duel(0.5, chance)


def test_only_pairs_with_a_verdict_are_counted():
    assert verdict_array(with_verdict([duel(1.0), duel(None), duel(0.5)])).tolist() == [1.0, 0.5]
