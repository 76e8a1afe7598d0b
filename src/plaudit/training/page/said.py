"""What was said: by the model, at first and at last, and by the run, in its notes."""

from __future__ import annotations

import re

from plaudit.page.html import Html, element, quoted, section, shortened, side
from plaudit.page.words import counted
from plaudit.training.page.facts import Exchange, Note

_MOST_EXCHANGES = 12
_MOST_CHARACTERS = 1000
_MOST_NOTES = 100
# As runs of rewards write their samples: a reward or a rank, two spaces, the answer on one line.
_JUDGED = re.compile(r"([+-]\d+\.\d\d|\d+(?:\.\d+)?\.)  (.*)")


def samples(exchanges: tuple[Exchange, ...]) -> Html:
    """What the model said, or what it gave to answers, beside what the data say."""
    scores = bool(exchanges) and all(_judged(said.last[1]) for said in exchanges)
    title = "How the model scored" if scores else "What the model said"
    if not exchanges:
        return section(title, "samples", element("p", {}, "The model was not asked anything."))
    shown = [_exchange(number, said) for number, said in enumerate(exchanges[:_MOST_EXCHANGES], start=1)]
    rest = len(exchanges) - len(shown)
    more = element("p", {"class": "quiet"}, f"{counted(rest, 'more prompt')} in samples.jsonl.")
    return section(title, "samples", *shown, *([more] if rest else []))


def notes(found: tuple[Note, ...]) -> Html:
    """Remarks and warnings, the latest hundred."""
    if not found:
        return section("Notes", "notes", element("p", {}, "None."))
    items = [_note(note) for note in found[-_MOST_NOTES:]]
    rest = len(found) - len(items)
    before = element("p", {"class": "quiet"}, f"{counted(rest, 'earlier note')} in notes.jsonl.")
    return section("Notes", "notes", *([before] if rest else []), element("ul", {"class": "notes"}, *items))


def _exchange(number: int, exchange: Exchange) -> Html:
    (first, before), (last, now) = exchange.first, exchange.last
    sides = [] if first == last else [side(f"At step {first:,}", _said(before), "before")]
    sides.append(side(f"At step {last:,}", _said(now), "now"))
    if exchange.expected is not None:
        sides.append(side("In the data", _said(exchange.expected), "expected"))
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, f"Prompt {number}"),
        quoted(exchange.prompt, _MOST_CHARACTERS),
        element("div", {"class": "sides"}, *sides),
    )


def _said(text: str) -> Html:
    """A text as it is; answers that are judged in two columns, so that no judgement hides in the words."""
    judged = _judged(text)
    if not judged:
        return quoted(text, _MOST_CHARACTERS)
    rows: list[Html] = []
    for judgement, answer in judged:
        said = element("dd", {}, quoted(answer, _MOST_CHARACTERS))
        rows += [element("dt", {}, judgement.replace("-", "−")), said]
    return element("dl", {"class": "judged"}, *rows)


def _judged(text: str) -> list[tuple[str, str]]:
    """Judgements and answers, where every line is one of each; nothing otherwise.

    >>> _judged("+1.34  Yes.\\n-0.20  No."), _judged("Yes.")
    ([('+1.34', 'Yes.'), ('-0.20', 'No.')], [])
    """
    found = [_JUDGED.fullmatch(line) for line in text.split("\n")]
    return [(one[1], one[2]) for one in found if one] if all(found) else []


def _note(note: Note) -> Html:
    where = "" if note.step is None else f"after step {note.step:,}" if note.step else "before the first step"
    times = f"{note.times:,} times" if note.times > 1 else ""
    said = ", ".join(part for part in (where, times) if part)
    about = [element("span", {"class": "quiet"}, f" ({said})")] if said else []
    return element("li", {}, shortened(note.text, _MOST_CHARACTERS), *about)
