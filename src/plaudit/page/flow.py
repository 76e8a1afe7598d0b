"""Steps that build on each other: boxes in rows, from above, with arrows from what each one needs.

A step stands as low as those that need it allow, so what runs side by side is drawn side by side
(Sugiyama, Tagawa and Toda 1981). An arrow that others together already say is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from plaudit.page.html import Html, element
from plaudit.page.plot import WIDTH, cut, drawing, words

_HIGH, _BETWEEN, _GAP, _EDGE = 38, 26, 10, 1
_WIDEST, _MOST_IN_A_ROW, _PASSAGE, _ASIDE = 130, 4, 8, 6
_LETTER, _SMALL_LETTER = 7.7, 6.2
"""How wide a letter of a name, and of what stands under it, is at most on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One box.

    Example: ``Step(name="ppo", about="ppo · 74 s", needs=("sft", "reward"), link="stage-7")``
    """

    name: str
    """What stands in it, unlike every other."""
    about: str
    """What stands under the name."""
    needs: tuple[str, ...] = ()
    """The boxes that arrows come from."""
    link: str = ""
    """What part of the page it leads to."""
    kind: str = "done"
    """How it is drawn: ``done``, or ``open`` for what has not been done."""


def flow(title: str, steps: Sequence[Step]) -> Html:
    """The drawing of all steps; what a step needs and is not among them is passed over."""
    known = {step.name: step for step in steps}
    needs = _reduced({step.name: tuple(dict.fromkeys(n for n in step.needs if n in known)) for step in steps})
    rows = _ordered(_rows(needs), needs)
    boxes = {place.name: place for place in _placed(rows, {step.name: _wish(step) for step in steps})}
    told = "; ".join(f"{name} needs {', '.join(needs[name]) or 'nothing'}" for name in known)
    arrows = [part for name in known for need in needs[name] for part in _arrow(boxes, need, name)]
    drawn = [_box(step, boxes[step.name]) for step in steps]
    high = len(rows) * (_HIGH + _BETWEEN) - _BETWEEN + 2 * _EDGE
    return element("figure", {"class": "flow"}, drawing(title, told, high, *arrows, *drawn))


_Passage = tuple[str, int]
"""Where the arrows from a box pass a row below it, all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a box lies, or an arrow passes.

    Example: ``_Place(name="ppo", left=230.0, wide=112.0, top=193.0)``
    """

    name: str | _Passage
    """What lies there."""
    left: int | float
    """Where it begins."""
    wide: int | float
    """How wide it is."""
    top: int | float
    """Its upper edge."""

    @property
    def middle(self) -> float:
        """Half-way between its left and its right edge."""
        return self.left + self.wide / 2


def _reduced(needs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Without what another need already needs."""
    above: dict[str, set[str]] = {}

    def all_above(name: str, below: tuple[str, ...] = ()) -> set[str]:
        if name not in above:
            assert name not in below, f"{name} needs itself"
            found = {far for need in needs[name] for far in all_above(need, (*below, name))}
            above[name] = found | set(needs[name])
        return above[name]

    return {
        name: tuple(n for n in own if not any(n in all_above(other) for other in own))
        for name, own in needs.items()
    }


def _rows(needs: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    depth: dict[str, int] = {}

    def depth_of(name: str) -> int:
        if name not in depth:
            depth[name] = max((depth_of(need) + 1 for need in needs[name]), default=0)
        return depth[name]

    for name in sorted(needs, key=depth_of, reverse=True):
        lower = [depth[other] - 1 for other, own in needs.items() if name in own]
        depth[name] = min(lower, default=depth[name])
    rows = [
        [name for name in needs if depth[name] == at] for at in range(max(depth.values(), default=-1) + 1)
    ]
    return [part for row in rows for part in _parted(row)]


def _parted(row: list[str]) -> list[list[str]]:
    """A row as several where it has too many boxes to be read."""
    count = -(-len(row) // _MOST_IN_A_ROW)
    return [row[at * len(row) // count : (at + 1) * len(row) // count] for at in range(count)]


def _ordered(rows: list[list[str]], needs: Mapping[str, tuple[str, ...]]) -> list[list[str | _Passage]]:
    """Each row with the passages of the arrows that go through it, near to what they come from."""
    level = {name: at for at, row in enumerate(rows) for name in row}
    whole: list[list[str | _Passage]] = [[*row] for row in rows]
    above: dict[str | _Passage, list[str | _Passage]] = {name: [] for name in needs}
    for name, own in needs.items():
        for need in own:
            last: str | _Passage = need
            for at in range(level[need] + 1, level[name]):
                passage = (need, at)
                if passage not in above:
                    above[passage] = [last]
                    whole[at].append(passage)
                last = passage
            above[name].append(last)
    spot: dict[str | _Passage, float] = {}
    for row in whole:
        row.sort(key=lambda one: _mean([spot[parent] for parent in above[one]]))
        spot |= {one: (at + 0.5) / len(row) for at, one in enumerate(row)}
    return whole


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.5


def _wish(step: Step) -> float:
    """How wide a box is in which nothing is cut."""
    return _ASIDE + 1 + max(_LETTER * len(step.name), _SMALL_LETTER * len(step.about))


def _placed(rows: Sequence[Sequence[str | _Passage]], wishes: Mapping[str, int | float]) -> Iterator[_Place]:
    for at, row in enumerate(rows):
        wishes_here = [wishes[one] for one in row if isinstance(one, str)]
        passages = len(row) - len(wishes_here)
        room = WIDTH - 2 * _EDGE - _GAP * (len(row) - 1) - _PASSAGE * passages
        wide = iter(_widths(wishes_here, room))
        widths = [_PASSAGE if isinstance(one, tuple) else next(wide) for one in row]
        left = (WIDTH - sum(widths) - _GAP * (len(row) - 1)) / 2
        for one, own in zip(row, widths, strict=True):
            yield _Place(name=one, left=left, wide=own, top=_EDGE + at * (_HIGH + _BETWEEN))
            left += own + _GAP


def _widths(wishes: Sequence[int | float], room: int | float) -> list[int | float]:
    """All alike where that is enough for each, and by their wishes elsewhere, of which none is boundless."""
    alike = min(_WIDEST, room / max(len(wishes), 1))
    if all(wish <= alike for wish in wishes):
        return [alike for _ in wishes]
    if sum(wishes) <= room:
        return [*wishes]
    bounded = [min(wish, _WIDEST) for wish in wishes]
    share = min(1.0, room / sum(bounded))
    return [wish * share for wish in bounded]


def _arrow(boxes: Mapping[str | _Passage, _Place], start: str, end: str) -> Iterator[Html]:
    first, last = boxes[start], boxes[end]
    passed = [place for name, place in boxes.items() if isinstance(name, tuple) and name[0] == start]
    yield from _drawn([first, *(place for place in passed if place.top < last.top), last])


def _drawn(stops: Sequence[_Place]) -> Iterator[Html]:
    path = f"M{stops[0].middle:.1f} {stops[0].top + _HIGH:.1f}"
    for before, now in pairwise(stops):
        high, low = before.top + _HIGH, now.top - (5 if now is stops[-1] else 0)
        half = (high + low) / 2
        path += f"C{before.middle:.1f} {half:.1f} {now.middle:.1f} {half:.1f} {now.middle:.1f} {low:.1f}"
        path += "" if now is stops[-1] else f"v{_HIGH}"
    yield element("path", {"class": "arrow", "d": path})
    across, down = stops[-1].middle, stops[-1].top
    yield element("path", {"class": "tip", "d": f"M{across - 3.5:.1f} {down - 6:.1f}h7l-3.5 6Z"})


def _box(step: Step, place: _Place) -> Html:
    name, about = (max(3, int((place.wide - _ASIDE) / letter)) for letter in (_LETTER, _SMALL_LETTER))
    rect = {"x": f"{place.left:.1f}", "y": f"{place.top:.1f}", "width": f"{place.wide:.1f}", "height": _HIGH}
    parts = (
        element("rect", {"class": f"box {step.kind}", "rx": 5, **rect}, element("title", {}, step.name)),
        words("name", place.middle, place.top + 16, cut(step.name, name)),
        words("tick", place.middle, place.top + 30, cut(step.about, about)),
    )
    return element("a", {"href": f"#{step.link}"}, *parts) if step.link else element("g", {}, *parts)
