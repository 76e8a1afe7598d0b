"""Charts show their numbers where they belong, in words as well, and bring no colour or size of their own."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from markupsafe import Markup

from plaudit.evaluation.stats import Bin
from plaudit.runs.report.charts.axes import WIDTH, Span, ratio_axis, round_ticks, share_axis, value_axis
from plaudit.runs.report.charts.bars import HistogramBin, histogram, reliability_diagram
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    forest_plot,
    share_chart,
)
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.runs.report.page import stylesheet

NUMBERS = st.floats(min_value=-1e6, max_value=1e6)
RATIOS = st.floats(min_value=1e-5, max_value=1e5) | st.just(math.inf)


def parsed(chart: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(chart)


def of_class(chart: Markup, *names: str) -> list[ElementTree.Element]:
    drawing = parsed(chart).find("svg")
    assert drawing is not None
    return [part for part in drawing.iter() if set(names) <= set(part.get("class", "").split())]


def spot(mark: ElementTree.Element) -> tuple[float, float]:
    across, down = re.findall(r"[-\d.]+", mark.get("transform", ""))
    return float(across), float(down)


def path(part: ElementTree.Element) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", part.get("d", ""))]


def spans(*values: float) -> tuple[Span, ...]:
    return tuple(Span(value=value, low=value / 2, high=value * 2) for value in values)


def rows(*values: float) -> list[IntervalRow]:
    return [IntervalRow(label=f"row {at}", spans=(one,)) for at, one in enumerate(spans(*values))]


def one_of_each() -> list[Markup]:
    promise = Bin(low=0.5, high=0.6, confidence=0.55, right=0.6, pairs=40)
    line = BandLine(label="gold", points=((0.0, Span(value=0.1, low=0.0, high=0.2)), (1.0, Span(value=0.3))))
    limit = BandLine(label="possible", points=((0.0, Span(value=0.1)), (1.0, Span(value=0.5))))
    shown = IntervalRows(rows=[IntervalRow(label="a", spans=(*spans(1.2), None))], series=("model", "people"))
    spec = BandChart(lines=[line], comparison_line=limit, named_positions=[(0.0, "1")], names_title="n")
    bins = [HistogramBin(low=-1, high=0, count=3), HistogramBin(low=0, high=1, count=7)]
    data = IntervalRows(rows=rows(0.4), series=("m",), guide=GuideLine(low=0.7, high=0.8, label="c"))
    return [
        forest_plot("Odds", "ratio", shown),
        share_chart("Accuracy", "share", data),
        reliability_diagram("Reliability", [promise], note="a note"),
        histogram("Margins", bins, zero="right"),
        band_chart("Best of n", "utility", spec),
    ]


def test_equal_odds_ratios_are_at_equal_distances_and_the_line_is_at_one() -> None:
    chart = forest_plot("Odds", "", IntervalRows(rows=rows(0.5, 1.0, 2.0), series=("the model",)))
    half, one, two = (spot(mark)[0] for mark in of_class(chart, "mark"))
    assert two - one == pytest.approx(one - half, abs=0.2)
    (line,) = of_class(chart, "guide")
    assert path(line)[0] == pytest.approx(one, abs=0.1)


def test_an_interval_reaches_from_its_low_to_its_high_end_and_beyond_the_axis_by_an_arrow() -> None:
    inside = forest_plot("Odds", "", IntervalRows(rows=rows(0.5, 1.0, 2.0), series=("m",)))
    reaches = [path(reach) for reach in of_class(inside, "reach")]
    half, one, two = (spot(mark)[0] for mark in of_class(inside, "mark"))
    assert [left for left, _, _ in reaches][2] == pytest.approx(one, abs=0.2)
    assert [right for _, _, right in reaches][:2] == pytest.approx([one, two], abs=0.2)
    assert half > reaches[0][0]
    endless = IntervalRow(label="flattery", spans=(Span(value=7.0, low=3.0, high=math.inf),))
    beyond = forest_plot("Odds", "", IntervalRows(rows=[endless], series=("m",)))
    assert len(of_class(beyond, "reach")) == 2
    assert of_class(beyond, "number")[0].text == "7.00 (3.00 to ∞)"


def test_each_series_has_its_own_shape_and_lane_and_what_is_unknown_is_said() -> None:
    shown = IntervalRows(
        rows=[
            IntervalRow(label="length", spans=(Span(value=2.0), Span(value=1.2), None, Span(value=math.nan)))
        ],
        series=("a", "b", "c", "d"),
    )
    marks = of_class(forest_plot("Odds", "", shown), "mark")
    assert [mark.get("class") for mark in marks] == ["mark first", "mark second"]
    assert len({mark.get("d") for mark in marks}) == 2
    assert spot(marks[0])[1] < spot(marks[1])[1]
    assert [part.text for part in of_class(forest_plot("Odds", "", shown), "number")][2:] == ["not known"] * 2


def test_the_guide_leaves_out_the_names_of_rows_where_one_of_them_reaches_it() -> None:
    half = GuideLine(low=0.5, high=0.5, label="as often as not")
    shown = [IntervalRow(label=label, spans=(Span(value=0.5),)) for label in ("a" * 40, "b", "c" * 40)]
    chart = share_chart("Wins", "", IntervalRows(rows=shown, series=("m",), guide=half))
    (guide,) = of_class(chart, "guide")
    parts = [(float(a), float(b)) for a, b in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", guide.get("d", ""))]
    # 9 and 3: a name's letters above and below the line that they stand on.
    for name in (float(label.get("y", "nan")) for label in of_class(chart, "label")):
        assert not any(top < name + 3 and name - 9 < foot for top, foot in parts)
    assert len(parts) == 3
    short = share_chart("Wins", "", IntervalRows(rows=shown[1:2], series=("m",), guide=half))
    assert len(of_class(short, "guide")[0].get("d", "").split("M")) == 2
    assert all(any(top < spot(mark)[1] < foot for top, foot in parts) for mark in of_class(chart, "mark"))


def test_the_ceiling_is_a_stripe_between_its_ends_on_the_axis_of_the_accuracies() -> None:
    guide = GuideLine(low=0.7, high=0.9, label="ceiling")
    chart = share_chart("By category", "", IntervalRows(rows=rows(0.7, 0.9), series=("m",), guide=guide))
    (stripe,) = of_class(chart, "stripe")
    low, high = (spot(mark)[0] for mark in of_class(chart, "mark"))
    assert float(stripe.get("x", "nan")) == pytest.approx(low, abs=0.1)
    assert float(stripe.get("width", "nan")) == pytest.approx(high - low, abs=0.1)


def test_promises_that_are_kept_lie_on_the_diagonal_and_bins_show_their_counts() -> None:
    said = (0.55, 0.65, 0.75, 0.85, 0.95)
    kept = [
        Bin(low=at - 0.05, high=at + 0.05, confidence=at, right=at, pairs=100 - 10 * i)
        for i, at in enumerate(said)
    ]
    empty = Bin(low=0.2, high=0.3, confidence=0.25, right=0.0, pairs=0)
    chart = reliability_diagram("Reliability", [empty, *kept])
    (diagonal,) = of_class(chart, "ideal")
    x0, y0, x1, y1 = path(diagonal)
    spots = [spot(mark) for mark in of_class(chart, "mark")]
    assert len(spots) == 5
    for across, down in spots:
        assert down == pytest.approx(y0 + (across - x0) * (y1 - y0) / (x1 - x0), abs=0.2)
    heights = [float(bar.get("height", "nan")) for bar in of_class(chart, "bar")]
    assert heights[4] / heights[0] == pytest.approx(0.6, abs=0.01)
    assert [part.text for part in of_class(chart, "tick", "small")] == ["100", "90", "80", "70", "60"]


def test_bars_are_as_high_as_their_counts_and_those_below_zero_look_different() -> None:
    bins = [
        HistogramBin(low=low, high=low + 1, count=count)
        for low, count in ((-2, 5), (-1, 10), (0, 40), (1, 20))
    ]
    chart = histogram("Margins", bins, zero="right from here")
    bars = of_class(chart, "bar")
    heights = [float(bar.get("height", "nan")) for bar in bars]
    assert [height / heights[2] for height in heights] == pytest.approx([0.125, 0.25, 1.0, 0.5], abs=0.01)
    assert [bar.get("class") for bar in bars] == ["bar second"] * 2 + ["bar first"] * 2
    (zero,) = of_class(chart, "zero")
    assert path(zero)[0] == pytest.approx(float(bars[2].get("x", "nan")), abs=0.6)


def test_a_band_surrounds_its_line_and_places_are_named_above_as_far_as_there_is_room() -> None:
    points = tuple((at / 10, Span(value=at, low=at - 1, high=at + 2)) for at in range(11))
    names = [(at / 10, "a name of some length") for at in range(11)]
    spec = BandChart(lines=[BandLine(label="gold", points=points)], named_positions=names, names_title="n")
    chart = band_chart("Best of n", "", spec)
    (area,), (line,) = of_class(chart, "band"), of_class(chart, "line")
    around, along = path(area), path(line)
    assert around[0:22:2] == along[0::2]
    upper, lower = around[1:22:2], around[23::2][::-1]
    assert all(high < middle < low for high, middle, low in zip(upper, along[1::2], lower, strict=True))
    above = [part for part in of_class(chart, "tick") if part.text == "a name of some length"]
    assert 1 <= len(above) <= 3
    assert len(of_class(chart, "mark")) == 11
    line = BandLine(label="reward", points=((0.0, Span(value=1.0)), (1.0, Span(value=2.0))))
    assert not of_class(band_chart("Proxy", "", BandChart(lines=[line])), "band")


def test_every_drawing_has_a_name_and_says_in_words_what_it_shows() -> None:
    for chart in one_of_each():
        drawing = parsed(chart).find("svg")
        assert drawing is not None
        assert drawing.get("role") == "img"
        assert [part.tag for part in drawing][:2] == ["title", "desc"]
        assert drawing[0].text == parsed(chart).findtext("h3", "").strip()
        assert re.search(r"\d", drawing[1].text or "")


def test_colours_come_from_the_style_sheet_which_knows_every_class() -> None:
    style = str(stylesheet("page", "charts"))
    known = set(re.findall(r"\.([a-z]+)", style))
    for chart in one_of_each():
        for part in parsed(chart).iter():
            assert not {"style", "fill", "stroke", "color", "href", "src"} & set(part.keys())
            assert set(part.get("class", "").split()) <= known
    declared = style[style.index("}") :].split("}\n}\n", 1)[1]
    assert set(re.findall(r"var\((--[a-z]+)\)", style)) <= set(re.findall(r"(--[a-z]+):", style))
    assert not re.search(r"#[0-9a-f]{3}|rgb|url\(", declared)


def inside(chart: Markup) -> None:
    """All of the drawing is finite and within its box, but for what words reach beyond their place."""
    drawing = parsed(chart).find("svg")
    assert drawing is not None
    high = float(drawing.get("viewBox", "").split()[3])
    for part in drawing.iter():
        for name, most in (("x", WIDTH), ("y", high), ("width", WIDTH), ("height", high)):
            assert 0 <= float(part.get(name, "0")) <= most
        if "mark" in part.get("class", ""):
            across, down = spot(part)
            assert 0 <= across <= WIDTH
            assert 0 <= down <= high
        else:
            assert "nan" not in part.get("d", "")
            assert "inf" not in part.get("d", "")


@given(st.lists(st.tuples(RATIOS, RATIOS, RATIOS).map(sorted), min_size=1, max_size=5))
def test_whatever_the_odds_are_the_drawing_holds_them(found: Sequence[list[float]]) -> None:
    shown = [
        IntervalRow(label="x" * 80, spans=(Span(value=v, low=low, high=high),)) for low, v, high in found
    ]
    inside(forest_plot("Odds", "", IntervalRows(rows=shown, series=("m",))))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS).map(sorted), min_size=1, max_size=8))
def test_whatever_the_rewards_are_the_lines_stay_in_their_box(found: Sequence[list[float]]) -> None:
    points = tuple((float(at), Span(value=v, low=low, high=high)) for at, (low, v, high) in enumerate(found))
    inside(band_chart("Best of n", "", BandChart(lines=[BandLine(label="gold", points=points)])))


@given(st.lists(st.integers(min_value=0, max_value=10**7), max_size=30))
def test_whatever_the_counts_are_the_bars_stay_in_their_box(counts: list[int]) -> None:
    inside(
        histogram(
            "Margins", [HistogramBin(low=at, high=at + 1, count=count) for at, count in enumerate(counts)]
        )
    )


def test_names_that_look_like_markup_are_text() -> None:
    name = "</text></svg><script>alert(1)</script>"
    spec = BandChart(
        lines=[BandLine(label=name, points=((0.0, Span(value=1.0)),))], named_positions=[(0.0, name)]
    )
    data = IntervalRows(rows=[IntervalRow(label=name, spans=spans(2.0) * 2)], series=(name, name))
    charts = [
        forest_plot(name, name, data),
        band_chart(name, name, spec),
        histogram(name, [HistogramBin(low=-1, high=1, count=1)], zero=name, note=name),
    ]
    for chart in charts:
        assert not [part for part in parsed(chart).iter() if part.tag == "script"]
        assert parsed(chart).findtext("h3", "").startswith(name)


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
