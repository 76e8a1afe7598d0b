"""Axes hold what is drawn on them, and name a few places in round numbers."""

import math
from itertools import pairwise

from hypothesis import given, strategies as st

from plaudit.runs.report.charts.axes import ratio_axis, round_ticks, share_axis, value_axis


@given(
    st.lists(st.floats(min_value=-1e299, max_value=1e299), min_size=1, max_size=9),
    st.booleans(),
    st.booleans(),
)
def test_an_axis_holds_its_values_and_two_to_seven_ticks(values: list[float], zero: bool, log: bool) -> None:
    axis = value_axis(values, from_zero=zero, may_be_log=log)
    assert all(0 <= axis.position(value) <= 1 for value in values)
    assert 1 <= len(axis.ticks) <= 7
    assert all(-1e-6 <= axis.position(tick) <= 1 + 1e-6 for tick, _ in axis.ticks)
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)


def test_ticks_are_round_at_any_size() -> None:
    assert [label for _, label in round_ticks(0, 3e6)] == ["0", "1e6", "2e6", "3e6"]
    assert [label for _, label in round_ticks(-0.3, 0.3)] == ["−0.2", "0", "0.2"]


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), max_size=9))
def test_an_axis_of_ratios_has_1_on_it_named_and_equal_ratios_at_equal_distances(values: list[float]) -> None:
    axis = ratio_axis(values)
    assert 0 < axis.position(1.0) < 1
    assert (1.0, "1") in axis.ticks
    assert 2 <= len(axis.ticks) <= 7
    assert all(0 <= axis.position(value) <= 1 for value in values if 1e-3 <= value <= 1e3)
    assert math.isclose(axis.position(2.0) - axis.position(1.0), axis.position(1.0) - axis.position(0.5))


@given(st.integers(min_value=0, max_value=9))
def test_an_axis_of_shares_ends_at_a_hundred_per_cent(tenths: int) -> None:
    axis = share_axis(tenths / 10)
    assert axis.position(1.0) == 1.0
    assert axis.ticks[-1][1] == "100 %"
    assert all(before < after for (before, _), (after, _) in pairwise(axis.ticks))
