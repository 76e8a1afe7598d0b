"""The top of the page: name, state, the run in one sentence, the figures that matter most, the curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plaudit.page.html import Html, card, element, folded, section
from plaudit.page.words import counted, duration, figure, moment, percent
from plaudit.training.metric_docs import METRIC_DOCS
from plaudit.training.metrics import Number
from plaudit.training.page.facts import RunFacts
from plaudit.training.page.figure import figures
from plaudit.training.page.history import Column, History
from plaudit.training.page.pursuit import along_kl
from plaudit.training.page.words import what_happened

_SHOWN: tuple[tuple[str, str, Callable[[Number], str]], ...] = (
    ("held_out/judge", "Held-out judge", figure),
    ("held_out/reward", "Held-out reward", figure),
    ("held_out/kl", "KL from the reference", figure),
    ("held_out/loss", "Held-out loss", figure),
    ("held_out/accuracy", "Held-out accuracy", percent),
    ("held_out/error", "Held-out error", figure),
    ("held_out/perplexity", "Held-out perplexity", figure),
    ("held_out/token_accuracy", "Held-out token accuracy", percent),
    ("loss", "Training loss", figure),
    ("token_accuracy", "Training token accuracy", percent),
    ("accuracy", "Training accuracy", percent),
)
_MEANINGS = {doc.name: doc.what for doc in METRIC_DOCS}
_HOW_TO_READ = (
    "One point a step; point at a curve for its values. Where a run is long, the lowest and the highest "
    "value of each stretch are drawn, so no spike is lost. A red mark on the lower axis is a value that was "
    "not a finite number."
)


def head(facts: RunFacts) -> Html:
    """Name, state, the run in one sentence, and its figures."""
    kind, state = ("finished", "Finished") if facts.finished else ("open", "Not finished")
    parts: list[str] = [element("b", {"class": kind}, state)]
    if facts.when is not None:
        time = element("time", {"datetime": facts.when.isoformat(timespec="seconds")}, moment(facts.when))
        parts += [" on " if facts.finished else " · last figures of ", time]
    if facts.notes:
        parts += [" · ", element("a", {"href": "#notes"}, counted(len(facts.notes), "note"))]
    cards = element("dl", {"class": "cards"}, *_cards(facts.history))
    return element(
        "header",
        {},
        element("h1", {}, facts.name),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, what_happened(facts.history, finished=facts.finished)),
        *([cards] if facts.history.columns else []),
    )


def curves(history: History) -> Html:
    """The curves, and every figure as a table for those who want numbers."""
    if not history.columns:
        return section("Curves", "curves", element("p", {}, "There is nothing to draw yet."))
    return section(
        "Curves",
        "curves",
        element(
            "div",
            {"class": "curves"},
            figures(history),
            *along_kl(history),
            element("p", {"class": "how"}, _HOW_TO_READ),
        ),
        folded("Every figure as a number", _numbers(history)),
    )


def _cards(history: History) -> Iterator[Html]:
    columns = history.columns
    for name, label, write in _SHOWN:
        if name in columns:
            yield card(label, write(columns[name].last), _best(columns[name], write))
    seconds, tokens = history.total("timing/seconds"), history.total("tokens")
    if seconds:
        speed = f"{figure(tokens / seconds)} tokens per second" if tokens else ""
        yield card("Time in steps", duration(seconds), speed)
    if tokens:
        rows = history.total("rows")
        yield card("Tokens", f"{tokens:,.0f}", f"in {counted(rows, 'row')}" if rows else "")
    if "timing/memory_mib" in columns and (most := columns["timing/memory_mib"].highest) is not None:
        yield card("Most memory", f"{most:,.0f} MiB")


def _best(column: Column, write: Callable[[Number], str]) -> str:
    if column.best is None or len(column.values) == 1:
        return ""
    step, value = column.best
    if write(value) == write(column.last):
        return "its best"
    return f"best {write(value)} at step {step:,}"


def _numbers(history: History) -> Html:
    names = ("figure", "first", "last", "lowest", "highest")
    header = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in names))
    rows = [_row(column) for column in history.columns.values()]
    return element("table", {"class": "numbers"}, element("thead", {}, header), element("tbody", {}, *rows))


def _row(column: Column) -> Html:
    name: list[str] = [element("code", {}, column.name)]
    if column.name in _MEANINGS:
        name.append(element("p", {"class": "meaning"}, _MEANINGS[column.name]))
    values = (column.values[0], column.last, column.lowest, column.highest)
    write = "{:,.0f}".format if all(map(float.is_integer, column.values)) else figure
    cells = [element("td", {}, "–" if value is None else write(value)) for value in values]
    return element("tr", {}, element("th", {"scope": "row"}, *name), *cells)
