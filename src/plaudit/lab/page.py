"""The page of an exercise: its question, what was claimed and seen, pictures, and how to go on from there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from plaudit.lab.changed import changes
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.looking import tally, verdict
from plaudit.page.frame import document, style_of
from plaudit.page.html import Html, element, folded, section, shortened, together
from plaudit.page.words import counted, duration
from plaudit.pipeline.folder import Folder
from plaudit.pipeline.reading import read_pipeline
from plaudit.pipeline.summary import write_summary
from plaudit.reports.cells import table
from plaudit.reports.page import style, write_report
from plaudit.reports.page_head import done
from plaudit.reports.page_origins import origins
from plaudit.reports.reading import read_story
from plaudit.reports.story import Story
from plaudit.reports.wording import when
from plaudit.training import durable

PAGE = "lab.html"
"""What the page is called, of an exercise and of all of them."""
_MARKS = {True: "✓", False: "✗", None: "?"}
_KINDS = {True: "held", False: "failed", None: "undecided"}
_INTERVAL = re.compile(r"(\S[^()]*) \(([^()]+ to [^()]+)\)")
_MOST_CONFIG, _MOST_CHANGE = 50_000, 300


def write_exercise(exercise: Exercise, folder: Folder, seen: Seen) -> Path:
    """Writes the page beside the pipeline's own report and summary; returns where it is."""
    write_summary(folder, read_pipeline(folder.config))
    write_report(folder.path)
    path = folder.path / PAGE
    told = page_of(exercise, read_story(folder.path), seen, changes(exercise, folder))
    durable.write_text(path, told)
    return path


def page_of(exercise: Exercise, story: Story, seen: Seen, changed: tuple[str, ...] = ()) -> str:
    """The whole page; ``changed`` is what was run otherwise than the exercise has it."""
    parts = (_head(exercise, story, seen, changed), _seen(seen), *_pictures(seen), done(story))
    main = element("main", {}, *parts, *_further(exercise), origins(story), _again(exercise, story))
    return document(exercise.title, main, style=lab_style())


def lab_style() -> str:
    """What a page of the lab has beside the common style sheet."""
    return style() + style_of("plaudit.lab", "lab.css")


def claims(seen: Seen) -> Html:
    """Every claim with its mark and what it was decided by."""
    return element("ul", {"class": "claims"}, *map(_claim, seen.claims))


def unbroken(text: str) -> str:
    """The text with no number parted from its per cent."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def picture(one: Picture) -> Html:
    """A picture under its title and the sentence that says what to look at."""
    words = element("p", {}, unbroken(one.says))
    return element("div", {"class": "picture"}, element("h3", {}, one.title), words, one.drawn)


def standing(seen: Seen) -> Html:
    """How many claims hold, in the colour of that."""
    every = all(claim.holds for claim in seen.claims)
    return element("b", {"class": "finished" if every else "open"}, tally(seen))


def _head(exercise: Exercise, story: Story, seen: Seen, changed: tuple[str, ...]) -> Html:
    parts: list[str] = [standing(seen), " · exercise ", exercise.name]
    parts.append(f" · {counted(len(story.stages), 'stage')}, {duration(story.seconds)} of work")
    ended = max((stage.ended for stage in story.stages), default="")
    parts.append(f" · ended {when(ended)}" if ended else "")
    return element(
        "header",
        {},
        element("h1", {}, exercise.title),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, unbroken(exercise.why)),
        *_changed(changed),
    )


def _changed(changed: tuple[str, ...]) -> Iterator[Html]:
    if changed:
        items = [element("li", {}, shortened(one, _MOST_CHANGE)) for one in changed]
        yield element("p", {}, element("b", {}, "This run is not the exercise as it comes with plaudit:"))
        yield element("ul", {"class": "notes"}, *items)


def _seen(seen: Seen) -> Html:
    how = "The claims are the same whatever is measured; whether each holds, this run has decided."
    told = [] if seen.table is None else [_table(seen.table)]
    return section("What was seen", "seen", element("p", {"class": "quiet"}, how), claims(seen), *told)


def _claim(claim: Claim) -> Html:
    mark = element("span", {"aria-hidden": "true"}, _MARKS[claim.holds], " ")
    said = element("b", {"class": _KINDS[claim.holds]}, mark, verdict(claim))
    words = element("span", {"class": "says"}, unbroken(claim.says))
    saw = element("span", {"class": "saw"}, unbroken(claim.saw))
    return element("li", {}, said, element("div", {}, words, " ", saw))


def _table(told: Table) -> Html:
    rows = [(row[0], [*map(_cell, row[1:])]) for row in told.rows]
    return table(unbroken(told.note) or "The figures beside each other", told.head[1:], rows)


def _cell(text: str) -> Html:
    """A figure with its interval below it, where it has one."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return together(unbroken(text))
    return together(unbroken(found[1]), " ", element("span", {"class": "interval"}, unbroken(found[2])))


def _pictures(seen: Seen) -> Iterator[Html]:
    if seen.pictures:
        drawn = element("div", {"class": "pictures"}, *map(picture, seen.pictures))
        yield section("Pictures", "pictures", drawn)


def _further(exercise: Exercise) -> Iterator[Html]:
    parts = [one.partition(": ") for one in exercise.further]
    if parts:
        tried = [_command(f"{why[:1].upper()}{why[1:]}:", command) for command, _, why in parts]
        yield section("What to try next", "next", *tried)


def _again(exercise: Exercise, story: Story) -> Html:
    here = _as_said(story.path)
    out, folder, again = map(shlex.quote, (str(here.parent), str(here), f"{here}-again"))
    report = element("a", {"href": "report.html"}, "report.html")
    said = "All that was made lies in ", element("code", {}, str(here)), "; ", report, " tells of its stages."
    parts = [
        element("p", {}, *said),
        _command("The exercise again; what is finished is kept:", f"plaudit lab {exercise.name} --out {out}"),
        _command(
            "Exactly what was run here, whatever was changed:",
            f"plaudit run {folder}/pipeline.yaml --out {again}",
        ),
        _command("This page again:", f"plaudit lab {exercise.name} --look --out {out}"),
    ]
    text = element("pre", {}, element("code", {}, shortened(story.config, _MOST_CONFIG)))
    return section(
        "How to make it again", "again", *parts, folded("pipeline.yaml, every setting as it was said", text)
    )


def _as_said(path: Path) -> Path:
    """The path from where the command was given, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _command(what: str, text: str) -> Html:
    return element("div", {}, element("p", {}, what), element("pre", {}, element("code", {}, text)))
