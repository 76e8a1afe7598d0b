"""What was said: by the model, at first and at last, and by the run, in its notes."""

from __future__ import annotations

from plaudit.page.html import Html, element, quoted, section, shortened, side
from plaudit.page.words import counted
from plaudit.training.page.facts import Exchange, Note

_MOST_EXCHANGES = 12
_MOST_CHARACTERS = 1000
_MOST_NOTES = 100


def samples(exchanges: tuple[Exchange, ...]) -> Html:
    """What the model said, beside what the data say."""
    title = "What the model said"
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
    sides = [] if first == last else [side(f"At step {first:,}", quoted(before, _MOST_CHARACTERS), "before")]
    sides.append(side(f"At step {last:,}", quoted(now, _MOST_CHARACTERS), "now"))
    if exchange.expected is not None:
        sides.append(side("In the data", quoted(exchange.expected, _MOST_CHARACTERS), "expected"))
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, f"Prompt {number}"),
        quoted(exchange.prompt, _MOST_CHARACTERS),
        element("div", {"class": "sides"}, *sides),
    )


def _note(note: Note) -> Html:
    where = "" if note.step is None else f"after step {note.step:,}" if note.step else "before the first step"
    times = f"{note.times:,} times" if note.times > 1 else ""
    said = ", ".join(part for part in (where, times) if part)
    about = [element("span", {"class": "quiet"}, f" ({said})")] if said else []
    return element("li", {}, shortened(note.text, _MOST_CHARACTERS), *about)
