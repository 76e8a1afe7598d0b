"""What the checks found, and what a reader should doubt."""

from __future__ import annotations

from collections.abc import Container, Iterator

from plaudit.page.html import Html, element, folded, section, shortened
from plaudit.page.words import counted
from plaudit.reports.doubts import MOST_SAID, Doubt
from plaudit.reports.story import Looked, Story
from plaudit.reports.wording import named

_MOST_NOTES = 40
_ROW = tuple[str, Looked]


def checks(story: Story) -> Html:
    """Each check that had something to look at; those that pass are folded."""
    found = [(named(stage.name), look) for stage in story.stages for look in stage.checks]
    if not found:
        return section(
            "What the checks found", "checks", element("p", {}, "No stage wrote down what its checks found.")
        )
    bad = [one for one in found if one[1].verdict in ("FAIL", "allowed")]
    good = [one for one in found if one[1].verdict == "pass"]
    aside = len(found) - len(bad) - len(good)
    said = f"{counted(len(found), 'check')}. Pass: {len(good)}. Do not: {len(bad)}. Nothing to see: {aside}."
    parts = [_table(bad)] if bad else []
    parts += [folded(f"Those that pass: {len(good)}", _table(good))] if good else []
    return section("What the checks found", "checks", element("p", {}, said), *parts)


def warnings(story: Story, found: tuple[Doubt, ...]) -> Html:
    """Warnings in words, then what the evaluation and the runs noted by themselves."""
    items = [_doubt(one) for one in found]
    first = (
        [element("ul", {"class": "notes"}, *items)]
        if items
        else [
            element(
                "p",
                {},
                "Nothing crosses a threshold. That is not the same as: all is well. Read the samples.",
            )
        ]
    )
    noted = list(_notes(story, {one.what for one in found}))
    rest = [element("li", {}, f"{len(noted) - _MOST_NOTES:,} more, in the stages' notes.jsonl")]
    listed = [*noted[:_MOST_NOTES], *(rest if len(noted) > _MOST_NOTES else [])]
    also = folded(
        f"What the stages said of themselves: {len(noted)}", element("ul", {"class": "notes"}, *listed)
    )
    return section("What to doubt", "warnings", *first, *([also] if noted else []))


def _doubt(one: Doubt) -> Html:
    why = element("span", {"class": "quiet"}, f" {one.why}".replace(" %", "\N{NO-BREAK SPACE}%"))
    what = f": {one.what}. ".replace(" %", "\N{NO-BREAK SPACE}%")
    return element("li", {}, element("b", {}, one.about), what, why)


def _notes(story: Story, told: Container[str]) -> Iterator[Html]:
    """Each sentence once, with the stages that said it."""
    who: dict[str, list[str]] = {
        note: [] for note in (story.evaluation.all_notes if story.evaluation else ())
    }
    for stage in story.stages:
        notes = [note.text for note in (stage.run.notes if stage.run else ())]
        for text in dict.fromkeys([*(stage.said if stage.rewards else stage.said[1:]), *notes]):
            who.setdefault(text, []).append(named(stage.name))
    for text, stages in who.items():
        if shortened(text, MOST_SAID).rstrip(".") not in told:
            about = [element("b", {}, ", ".join(stages)), ": "] if stages else []
            yield element("li", {}, *about, shortened(text, MOST_SAID))


def _table(found: list[_ROW]) -> Html:
    head = element(
        "tr", {}, *(element("th", {"scope": "col"}, one) for one in ("stage", "check", "what it saw"))
    )
    body = [
        element(
            "tr",
            {},
            element("td", {}, stage),
            element(
                "td", {}, named(look.name), " ", element("span", {"class": "quiet"}, named(look.verdict))
            ),
            element("td", {}, shortened(look.saw, MOST_SAID), *_mend(look)),
        )
        for stage, look in found
    ]
    parts = (element("thead", {}, head), element("tbody", {}, *body))
    box = {"class": "wide", "tabindex": 0, "role": "region", "aria-label": "checks"}
    return element("div", box, element("table", {}, *parts))


def _mend(look: Looked) -> Iterator[Html]:
    if look.mend and look.verdict != "pass":
        yield element("div", {"class": "quiet"}, f"To mend it: {shortened(look.mend, MOST_SAID)}")
