"""Marks in two dimensions keep their names apart; parts of a bar are as long as their counts."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from markupsafe import Markup

from plaudit.runs.report.charts.axes import WIDTH, Span
from plaudit.runs.report.charts.bars import AmountBar, amount_bar_chart, stacked_bar_chart
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    ScatterPoint,
    amount_chart,
    scatter_chart,
)
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.runs.report.words import percent

NUMBERS = st.floats(min_value=-1e3, max_value=1e3)


def svg_of(chart: Markup) -> ElementTree.Element:
    found = ElementTree.fromstring(chart).find("svg")
    assert found is not None
    return found


def of_class(chart: Markup, name: str) -> list[ElementTree.Element]:
    return [part for part in svg_of(chart).iter() if name in part.get("class", "").split()]


@given(st.lists(st.tuples(st.floats(min_value=0, max_value=10), NUMBERS), min_size=1, max_size=14))
def test_names_do_not_touch_and_stay_inside(spots: list[tuple[float, float]]) -> None:
    shown = [ScatterPoint(label=f"p{at}", x=x, y=Span(value=y)) for at, (x, y) in enumerate(spots)]
    chart = scatter_chart("True worth", "", shown)
    downs = sorted(float(name.attrib["y"]) for name in of_class(chart, "label"))
    tall = float(svg_of(chart).attrib["viewBox"].split()[-1])
    assert len(downs) == len(of_class(chart, "mark")) == len(spots)
    assert all(later - before > 12.8 for before, later in pairwise(downs))
    assert downs[0] >= 10
    assert downs[-1] <= tall


def test_a_place_has_its_interval_and_the_path_its_name() -> None:
    spot = ScatterPoint(label="ppo", x=1.0, y=Span(value=0.7, low=0.6, high=0.8))
    chart = scatter_chart("W", "", [spot], path=((0.0, 0.4), (2.0, 0.8)), path_label="best of n")
    assert "ppo: 0.700 (0.600 to 0.800) at 1.00" in chart
    assert len(of_class(chart, "ideal")) == 1
    assert "best of n" in chart
    assert len(of_class(chart, "reach")) == 1


@given(st.lists(st.tuples(*[st.integers(min_value=0, max_value=10**6)] * 3), min_size=1, max_size=5))
def test_parts_are_as_long_as_their_counts(counts: list[tuple[int, int, int]]) -> None:
    rows = [(f"r{at}", own) for at, own in enumerate(counts)]
    bars = of_class(stacked_bar_chart("Won", "pairs", rows, ("won", "tied", "lost")), "bar")
    assert len(bars) == sum(count > 0 for own in counts for count in own)
    for at, own in enumerate(counts):
        wide = [float(bar.attrib["width"]) for bar in bars if f"r{at}:" in (bar.findtext("title") or "")]
        if sum(own):
            assert sum(wide) == pytest.approx(WIDTH - 1, abs=0.2)
            shares = [count / sum(own) for count in own if count]
            assert wide == pytest.approx([(WIDTH - 1) * one for one in shares], abs=0.06)


def test_amounts_are_drawn_where_they_belong_beside_their_guide() -> None:
    row = IntervalRow(label="ppo", spans=(Span(value=15.0, low=10.0, high=20.0),))
    data = IntervalRows(rows=[row], series=("length",), guide=GuideLine(low=10, high=10, label="sft"))
    chart = amount_chart("Length", "tokens", data)
    (mark,), (guide,) = of_class(chart, "mark"), of_class(chart, "guide")
    across = float(re.findall(r"[\d.]+", mark.attrib["transform"])[0])
    left, right = (
        float(one) for one in re.findall(r"M([\d.]+) .*H([\d.]+)", of_class(chart, "reach")[0].attrib["d"])[0]
    )
    assert across == pytest.approx((left + right) / 2, abs=0.2)
    assert float(re.findall(r"M([\d.]+)", guide.attrib["d"])[0]) == pytest.approx(left, abs=0.2)
    assert "15.0 (10.0 to 20.0)" in chart


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS).map(sorted), min_size=1, max_size=4))
def test_bars_begin_at_zero_and_end_at_their_amount_inside_their_interval(found: list[list[float]]) -> None:
    bars = [
        AmountBar(label=f"p{at}", span=Span(value=middle, low=low, high=high))
        for at, (low, middle, high) in enumerate(found)
    ]
    chart = amount_bar_chart("True worth", "", bars)
    drawn = [(float(bar.attrib["x"]), float(bar.attrib["width"])) for bar in of_class(chart, "bar")]
    zeros = set[float]()
    for (left, width), whisker, (_, middle, _) in zip(drawn, of_class(chart, "whisker"), found, strict=True):
        low, high = map(float, re.findall(r"^M([\d.]+) .*?H([\d.]+)", whisker.attrib["d"])[0])
        end, zero = (left, left + width) if middle < 0 else (left + width, left)
        assert 0 <= low <= high <= WIDTH
        assert low - 0.6 <= end <= high + 0.6
        zeros.add(zero)
    assert max(zeros) - min(zeros) < 0.7


def test_a_guide_through_bars_crosses_no_name() -> None:
    half = (0.5, "as often as not")
    bars = [AmountBar(label="a" * 60, span=Span(value=value)) for value in (0.3, 0.7)]
    chart = amount_bar_chart("Win rate", "", bars, percent, guide=half)
    (guide,) = of_class(chart, "guide")
    parts = [(float(top), float(tall)) for top, tall in re.findall(r" ([\d.]+)v([\d.]+)", guide.attrib["d"])]
    for name in (float(label.attrib["y"]) for label in of_class(chart, "label")):
        # 9 and 3: a name's letters above and below the line that they stand on.
        assert not any(top < name + 3 and name - 9 < top + tall for top, tall in parts)
    across = float(re.findall(r"M([\d.]+)", guide.attrib["d"])[0])
    short, long = (float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in of_class(chart, "bar"))
    assert short < across < long


def test_amounts_of_nothing_are_not_known() -> None:
    chart = amount_chart(
        "Length", "tokens", IntervalRows(rows=[IntervalRow(label="ppo", spans=(None,))], series=("length",))
    )
    assert "not known" in chart


def test_an_upright_line_stands_at_its_place_and_long_lines_have_no_shapes() -> None:
    def line(count: int) -> BandLine:
        return BandLine(label="reward", points=tuple((at / count, Span(value=at)) for at in range(count)))

    short = band_chart("R", "", BandChart(lines=[line(10)], vertical_line=(0.5, "best")))
    across = float(re.findall(r"M([\d.]+)", of_class(short, "guide")[0].attrib["d"])[0])
    middle = re.findall(r"[\d.]+", of_class(short, "mark")[5].attrib["transform"])[0]
    assert across == pytest.approx(float(middle), abs=0.2)
    assert len(of_class(short, "mark")) == 10
    assert of_class(band_chart("R", "", BandChart(lines=[line(100)])), "mark") == []
