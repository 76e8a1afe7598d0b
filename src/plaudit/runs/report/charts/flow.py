"""Steps that build on each other: boxes in rows, from above, with arrows from what each one needs.

A step stands as low as those that need it allow, so what runs side by side is drawn side by side
(Sugiyama, Tagawa and Toda 1981). An arrow that others together already say is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from markupsafe import Markup

from plaudit.runs.report.charts.axes import WIDTH, element, svg_drawing, svg_text, truncated

_BOX_HEIGHT, _ROW_GAP, _BOX_GAP, _MARGIN = 38, 26, 10, 1
_MAX_BOX_WIDTH, _MAX_BOXES_PER_ROW, _PASSAGE_WIDTH, _BOX_PADDING = 130, 4, 8, 6
_LETTER_WIDTH, _SMALL_LETTER_WIDTH = 7.7, 6.2
"""How wide a letter of a name, and of what stands under it, is at most on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBox:
    name: str
    caption: str
    needs: tuple[str, ...] = ()
    anchor: str = ""
    kind: str = "done"
    """How it is drawn: ``done``, or ``open`` for what has not been done."""


def flow_chart(title: str, steps: Sequence[FlowBox]) -> Markup:
    """The drawing of all steps; what a step needs and is not among them is passed over."""
    by_name = {step.name: step for step in steps}
    needs = _transitive_reduction(
        {step.name: tuple(dict.fromkeys(n for n in step.needs if n in by_name)) for step in steps}
    )
    rows = _order_rows(_assign_rows(needs), needs)
    positions = dict(_position_boxes(rows, {step.name: _natural_width(step) for step in steps}))
    description = "; ".join(f"{name} needs {', '.join(needs[name]) or 'nothing'}" for name in by_name)
    arrows = [part for name in by_name for need in needs[name] for part in _arrow(positions, need, name)]
    box_parts = [_draw_box(step, positions[step.name]) for step in steps]
    height = len(rows) * (_BOX_HEIGHT + _ROW_GAP) - _ROW_GAP + 2 * _MARGIN
    return element("figure", {"class": "flow"}, svg_drawing(title, description, height, *arrows, *box_parts))


_ArrowPassage = tuple[str, int]
"""Where the arrows from a box pass a row below it, all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoxPosition:
    left: int | float
    width: int | float
    top: int | float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def _transitive_reduction(needs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The needs without those that another need already implies."""
    above: dict[str, set[str]] = {}

    def all_above(name: str, below: tuple[str, ...] = ()) -> set[str]:
        if name not in above:
            assert name not in below, f"{name} needs itself"
            found = {far for need in needs[name] for far in all_above(need, (*below, name))}
            above[name] = found | set(needs[name])
        return above[name]

    return {
        name: tuple(n for n in own_needs if not any(n in all_above(other) for other in own_needs))
        for name, own_needs in needs.items()
    }


def _assign_rows(needs: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    depth: dict[str, int] = {}

    def depth_of(name: str) -> int:
        if name not in depth:
            depth[name] = max((depth_of(need) + 1 for need in needs[name]), default=0)
        return depth[name]

    # The lowest first: whatever needs a step has its last row before the step is pulled down towards it.
    for name in sorted(needs, key=depth_of, reverse=True):
        lower = [depth[other] - 1 for other, own_needs in needs.items() if name in own_needs]
        depth[name] = min(lower, default=depth[name])
    rows = [
        [name for name in needs if depth[name] == at] for at in range(max(depth.values(), default=-1) + 1)
    ]
    return [part for row in rows for part in _split_row(row)]


def _split_row(row: list[str]) -> list[list[str]]:
    count = -(-len(row) // _MAX_BOXES_PER_ROW)
    return [row[at * len(row) // count : (at + 1) * len(row) // count] for at in range(count)]


def _order_rows(
    rows: list[list[str]], needs: Mapping[str, tuple[str, ...]]
) -> list[list[str | _ArrowPassage]]:
    """Each row with the passages of the arrows that go through it, near to what they come from."""
    level = {name: at for at, row in enumerate(rows) for name in row}
    rows_with_passages: list[list[str | _ArrowPassage]] = [[*row] for row in rows]
    above: dict[str | _ArrowPassage, list[str | _ArrowPassage]] = {name: [] for name in needs}
    for name, own_needs in needs.items():
        for need in own_needs:
            last: str | _ArrowPassage = need
            for at in range(level[need] + 1, level[name]):
                passage = (need, at)
                # One passage a row for all arrows from a box, however many boxes they lead to.
                if passage not in above:
                    above[passage] = [last]
                    rows_with_passages[at].append(passage)
                last = passage
            above[name].append(last)
    order: dict[str | _ArrowPassage, float] = {}
    for row in rows_with_passages:
        # Below the middle of what it needs: few arrows cross.
        row.sort(key=lambda entry: fmean([order[parent] for parent in above[entry]] or [0.5]))
        # As a share of the row, so that rows of different lengths are on one scale.
        order |= {entry: (at + 0.5) / len(row) for at, entry in enumerate(row)}
    return rows_with_passages


def _natural_width(step: FlowBox) -> float:
    return _BOX_PADDING + 1 + max(_LETTER_WIDTH * len(step.name), _SMALL_LETTER_WIDTH * len(step.caption))


def _position_boxes(
    rows: Sequence[Sequence[str | _ArrowPassage]], natural_widths: Mapping[str, int | float]
) -> Iterator[tuple[str | _ArrowPassage, _BoxPosition]]:
    for at, row in enumerate(rows):
        row_widths = [natural_widths[entry] for entry in row if isinstance(entry, str)]
        passages = len(row) - len(row_widths)
        room = WIDTH - 2 * _MARGIN - _BOX_GAP * (len(row) - 1) - _PASSAGE_WIDTH * passages
        remaining_widths = iter(_box_widths(row_widths, room))
        widths = [_PASSAGE_WIDTH if isinstance(entry, tuple) else next(remaining_widths) for entry in row]
        left = (WIDTH - sum(widths) - _BOX_GAP * (len(row) - 1)) / 2
        for entry, box_width in zip(row, widths, strict=True):
            top = _MARGIN + at * (_BOX_HEIGHT + _ROW_GAP)
            yield entry, _BoxPosition(left=left, width=box_width, top=top)
            left += box_width + _BOX_GAP


def _box_widths(natural_widths: Sequence[int | float], room: int | float) -> list[int | float]:
    """All alike where that is enough for each, and by their wishes elsewhere, of which none is boundless."""
    equal_width = min(_MAX_BOX_WIDTH, room / max(len(natural_widths), 1))
    if all(wish <= equal_width for wish in natural_widths):
        return [equal_width for _ in natural_widths]
    if sum(natural_widths) <= room:
        return [*natural_widths]
    bounded = [min(wish, _MAX_BOX_WIDTH) for wish in natural_widths]
    share = min(1.0, room / sum(bounded))
    return [wish * share for wish in bounded]


def _arrow(boxes: Mapping[str | _ArrowPassage, _BoxPosition], start: str, end: str) -> Iterator[Markup]:
    first, last = boxes[start], boxes[end]
    passages = [place for name, place in boxes.items() if isinstance(name, tuple) and name[0] == start]
    stops = [first, *(place for place in passages if place.top < last.top), last]
    path = f"M{stops[0].middle:.1f} {stops[0].top + _BOX_HEIGHT:.1f}"
    for before, current in pairwise(stops):
        high, low = before.top + _BOX_HEIGHT, current.top - (5 if current is stops[-1] else 0)
        half = (high + low) / 2
        path += (
            f"C{before.middle:.1f} {half:.1f} {current.middle:.1f} {half:.1f} {current.middle:.1f} {low:.1f}"
        )
        path += "" if current is stops[-1] else f"v{_BOX_HEIGHT}"
    yield element("path", {"class": "arrow", "d": path})
    across, down = stops[-1].middle, stops[-1].top
    yield element("path", {"class": "tip", "d": f"M{across - 3.5:.1f} {down - 6:.1f}h7l-3.5 6Z"})


def _draw_box(step: FlowBox, place: _BoxPosition) -> Markup:
    name_letters, caption_letters = (
        max(3, int((place.width - _BOX_PADDING) / letter)) for letter in (_LETTER_WIDTH, _SMALL_LETTER_WIDTH)
    )
    rect = {
        "x": f"{place.left:.1f}",
        "y": f"{place.top:.1f}",
        "width": f"{place.width:.1f}",
        "height": _BOX_HEIGHT,
    }
    parts = (
        element("rect", {"class": f"box {step.kind}", "rx": 5, **rect}, element("title", {}, step.name)),
        svg_text("name", place.middle, place.top + 16, truncated(step.name, name_letters)),
        svg_text("tick", place.middle, place.top + 30, truncated(step.caption, caption_letters)),
    )
    return element("a", {"href": f"#{step.anchor}"}, *parts) if step.anchor else element("g", {}, *parts)
