"""One page over all exercises that were run: their claims, the first picture of each, and links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from plaudit.errors import UserError
from plaudit.lab.exercise import Exercise, Seen
from plaudit.lab.looking import looked, place_of, tally
from plaudit.lab.page import PAGE, claims, lab_style, picture, unbroken
from plaudit.lab.shelf import EXERCISES
from plaudit.page.frame import document
from plaudit.page.html import Html, element, section
from plaudit.page.words import counted
from plaudit.reports.cells import table
from plaudit.training import durable

_WHAT = (
    "Each exercise is a small run of RLHF in which something goes wrong, or is kept from it. Its claims are "
    "the same whatever is measured; whether they hold, the run has decided."
)


def write_shelf(out: Path, known: Mapping[str, Seen]) -> Path:
    """Writes the page over all exercises in a folder; ``known`` has been looked at just now."""
    path = out / PAGE
    durable.write_text(path, page_of([*_there(out, known)]))
    return path


def page_of(found: list[tuple[Exercise, Seen | str]]) -> str:
    """The whole page; of an exercise that cannot be looked at, why."""
    ran = [(exercise, seen) for exercise, seen in found if isinstance(seen, Seen)]
    held = sum(claim.holds is True for _, seen in ran for claim in seen.claims)
    every = sum(len(seen.claims) for _, seen in ran)
    state = f"{held} of {counted(every, 'claim')} hold"
    kind = "finished" if held == every else "open"
    head = element(
        "header",
        {},
        element("h1", {}, "The reward-hacking lab"),
        element(
            "p",
            {"class": "state"},
            element("b", {"class": kind}, state),
            f" · {len(ran)} of {counted(len(EXERCISES), 'exercise')} run",
        ),
        element("p", {"class": "lede"}, _WHAT),
    )
    parts = [_overview(found), *(_exercise(exercise, seen) for exercise, seen in found), *_left(found)]
    return document("The reward-hacking lab", element("main", {}, head, *parts), style=lab_style())


def _there(out: Path, known: Mapping[str, Seen]) -> Iterator[tuple[Exercise, Seen | str]]:
    for exercise in EXERCISES:
        folder = place_of(exercise, out)
        if exercise.name in known:
            yield exercise, known[exercise.name]
        elif folder.config.exists():
            try:
                yield exercise, looked(exercise, folder)
            except UserError as error:
                yield exercise, str(error)


def _overview(found: list[tuple[Exercise, Seen | str]]) -> Html:
    rows = [
        (exercise.name, [_link(exercise), "not finished" if isinstance(seen, str) else tally(seen)])
        for exercise, seen in found
    ]
    return element("div", {"class": "shelf"}, table("What was run", ("question", "claims"), rows))


def _link(exercise: Exercise) -> Html:
    return element("a", {"href": f"#{exercise.name}"}, exercise.title)


def _exercise(exercise: Exercise, seen: Seen | str) -> Html:
    if isinstance(seen, str):
        return section(exercise.title, exercise.name, element("p", {}, seen))
    link = element("a", {"href": f"{exercise.name}/{PAGE}"}, f"All of {exercise.name}")
    words = element("div", {}, element("p", {}, unbroken(exercise.why)), claims(seen), element("p", {}, link))
    drawn = [picture(one) for one in seen.pictures[:1]]
    return section(exercise.title, exercise.name, element("div", {"class": "told"}, words, *drawn))


def _left(found: list[tuple[Exercise, Seen | str]]) -> Iterator[Html]:
    names = {exercise.name for exercise, _ in found}
    left = [exercise for exercise in EXERCISES if exercise.name not in names]
    if left:
        items = [element("li", {}, element("b", {}, one.name), f": {one.title}") for one in left]
        command = element("pre", {}, element("code", {}, f"plaudit lab {' '.join(one.name for one in left)}"))
        yield section("Not run yet", "left", element("ul", {"class": "notes"}, *items), command)
