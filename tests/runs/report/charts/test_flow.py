"""The drawing of stages: nothing overlaps, arrows lead downwards, none is drawn that others already say."""

import re
from xml.etree import ElementTree

from hypothesis import given, strategies as st

from plaudit.runs.report.charts.axes import WIDTH
from plaudit.runs.report.charts.flow import FlowBox, flow_chart

Box = tuple[float, float, float, float]


def drawn(*steps: FlowBox) -> tuple[dict[str, Box], list[Box]]:
    svg = ElementTree.fromstring(flow_chart("stages", steps)).find("svg")
    assert svg is not None
    boxes: dict[str, Box] = {}
    for rect in svg.iter("rect"):
        left, top, wide, high = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        boxes[rect.findtext("title", "")] = (left, top, left + wide, top + high)
    paths = [part.attrib["d"] for part in svg.iter("path") if part.get("class") == "arrow"]
    ends = [[float(number) for number in re.findall(r"\d+\.?\d*", path)] for path in paths]
    return boxes, [(one[0], one[1], one[-2], one[-1]) for one in ends]


def step(name: str, *needs: str) -> FlowBox:
    return FlowBox(name=name, caption="", needs=needs)


NEEDS = st.lists(
    st.lists(st.integers(min_value=0, max_value=13), max_size=4, unique=True), min_size=1, max_size=14
)


@given(NEEDS)
def test_boxes_lie_apart_inside_the_drawing_and_below_what_they_need(needs: list[list[int]]) -> None:
    steps = [step(f"s{at}", *(f"s{n}" for n in own if n < at)) for at, own in enumerate(needs)]
    boxes, arrows = drawn(*steps)
    assert set(boxes) == {one.name for one in steps}
    placed = list(boxes.values())
    for at, (left, top, right, foot) in enumerate(placed):
        assert left >= 0
        assert right <= WIDTH
        for other in placed[:at]:
            apart_across = other[2] <= left or right <= other[0]
            assert apart_across or other[3] <= top or foot <= other[1]
    for one in steps:
        assert all(boxes[need][3] < boxes[one.name][1] for need in one.needs)
    feet = {(left + right) / 2 for left, _, right, _ in placed}
    for start, _, end, _ in arrows:
        assert min(abs(start - middle) for middle in feet) < 0.2
        assert min(abs(end - middle) for middle in feet) < 0.2


def test_an_arrow_that_others_together_say_is_left_out() -> None:
    _, arrows = drawn(step("a"), step("b", "a"), step("c", "a", "b"))
    assert len(arrows) == 2


def test_what_runs_side_by_side_stands_side_by_side() -> None:
    boxes, _ = drawn(
        step("sft"),
        step("pairs", "sft"),
        step("reward", "pairs"),
        step("dpo", "sft", "pairs"),
        step("ppo", "reward"),
        step("judged", "dpo", "ppo"),
    )
    assert boxes["dpo"][1] == boxes["ppo"][1]


def test_a_long_name_gets_the_room_that_its_neighbours_leave() -> None:
    steps = [step("comparisons-jury"), step("a"), step("b"), step("reward-judged")]
    boxes, _ = drawn(*steps)
    for one in steps:
        assert f">{one.name}</text>" in flow_chart("stages", steps)
        left, _, right, _ = boxes[one.name]
        assert left >= 0
        assert right <= WIDTH


def test_a_need_that_is_no_step_is_passed_over_and_a_name_is_cut_to_its_box() -> None:
    boxes, arrows = drawn(step("x" * 300, "nobody"))
    assert len(boxes) == 1
    assert arrows == []
    assert "x" * 40 not in re.sub(
        "<title>.*?</title>|<desc>.*?</desc>", "", flow_chart("stages", [step("x" * 300)])
    )
