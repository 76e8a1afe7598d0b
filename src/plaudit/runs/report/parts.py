"""What pages are made of: sections of texts, tables, charts and samples.

Functions make sections from data, and a page is a list of them. How a part looks, the macro of parts.html.j2
that has its name says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any, overload

import yaml
from markupsafe import Markup

from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.intervals import IntervalRow
from plaudit.runs.report.words import Number, counted, names_text, number_text, percent, short_name

NO_VALUE = "–"
"""What stands where there is no figure."""
Part = object
"""What a section is made of: a record of this file, of which parts.html.j2 has a macro, or a drawing."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, with ways to elsewhere between its words."""

    text: str
    kind: str = ""
    links: Sequence[tuple[str, str]] = ()
    """Each by where it leads, as ``#stage-3``, and its name."""
    after: str = ""
    about: str = ""
    """What it is about, in bold before it."""


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    link: str = ""
    kind: str = "stage"


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a list: its subject, what is said of it, and what stands quietly behind that."""

    text: str
    about: str = ""
    aside: str = ""
    """What stands quietly behind its subject, in brackets."""
    quiet: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    notes: Sequence[Note]


@dataclass(frozen=True, slots=True)
class State:
    """How far something has come, or how it ended, under the page's title."""

    word: str
    is_good: bool
    text: str = ""
    when: datetime | None = None
    links: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    label: str
    value: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Cards:
    cards: Sequence[Card]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table.

    Example: ``Cell(text="71.2 %", interval="67.4 to 75.0")``
    """

    text: str
    """The figure or the words."""
    interval: str = ""
    """What stands small beside it, or on a phone under it."""
    kind: str = ""
    """Its class in the style sheets, where it has one: ``quiet``, ``long``, ``degree d3``."""
    link: str = ""
    """Where it leads, as ``#stage-3``; empty where it leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A row of figures for each thing.

    Example: ``Table(caption="Figures", columns=("loss",), rows=(("sft", (Cell(text="0.31"),)),))``
    """

    caption: str
    """What stands above it, with what its intervals are."""
    columns: Sequence[str]
    """What stands above each figure; the first column has the names of things and no head."""
    rows: Sequence[tuple[str, Sequence[Cell]]]
    """The name of each thing, and its figures."""
    stacked: bool = True
    """Whether a phone shows the figures of a row under each other; otherwise the table scrolls by itself."""


@dataclass(frozen=True, slots=True)
class Charts:
    charts: Sequence[Markup]
    guide: str = ""
    texts: Sequence[str] = ()
    """Sentences that stand beside the drawings."""


@dataclass(frozen=True, slots=True)
class Box:
    kind: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Folded:
    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Command:
    purpose: str
    text: str


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Origin:
    """One thing that a run or a stage was made from or by, or that it made."""

    name: str
    text: str = ""
    """What it is called; empty where only its hash is known."""
    digest: str = ""
    link: str = ""
    """The part of the page that says where it comes from itself."""


@dataclass(frozen=True, slots=True)
class Origins:
    rows: Sequence[Origin]
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy answered, or what it might have.

    Example: ``Answer(label="sft", kind="now", text="Hello.", scores="reward 0.3")``
    """

    label: str
    """Whose it is, or which."""
    kind: str
    """How it stands there: ``before``, ``now`` or ``expected``."""
    text: str
    """The words."""
    change: str = ""
    """Whether it is worth more than the reference's: ``better``, ``worse``, or empty where nobody knows."""
    is_same: bool = False
    """Whether it is the one beside it."""
    pieces: Sequence[tuple[str, bool]] = ()
    """The answer in pieces, each with whether only it says so; empty where nothing is compared."""
    judged: Sequence[tuple[str, str]] = ()
    """Judgements and answers, where the text is nothing but a list of them."""
    scores: str = ""
    """Figures under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt with answers.

    Example: ``Exchange(prompt="Hi", answers=[Answer(label="sft", kind="now", text="Hello.")])``
    """

    prompt: str
    """What was asked."""
    answers: Sequence[Answer]
    """What stands beside each other under it."""
    title: str = ""
    """What stands above it."""
    detail: str = ""
    """What stands quietly beside the title."""
    pictures: Sequence[str] = ()
    """Data URLs of what the prompt is about."""


@dataclass(frozen=True, slots=True)
class Samples:
    exchanges: Sequence[Exchange]
    kind: str = ""
    """``answers`` where there are many to a prompt, ``questions`` where long texts are folded."""
    max_length: int = 1000
    """Letters of a prompt or an answer that have room."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    name: str
    parts: Sequence[Part]
    brief: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, from its title to its last section."""

    title: str
    heading: str
    head: Sequence[Part]
    sections: Sequence[Section]
    styles: Sequence[str] = ("charts", "run", "reports")
    first: Sequence[Section] = ()
    """Sections that stand open before the contents."""
    contents: bool = False
    """Whether sections are folded, and a list of them stands beside."""

    @property
    def all_sections(self) -> list[Section]:
        return [*self.first, *self.sections]


def interval_text(estimate: Estimate, *, share: bool = False) -> str:
    """From where to where a figure may be.

    >>> interval_text(Estimate(value=0.7, low=0.61, high=0.79, n=9, prompts=9), share=True)
    '61.0 to 79.0'
    """
    if estimate.low is None or estimate.high is None:
        return "interval not known"
    ends = (estimate.low, estimate.high)
    return " to ".join(percent(end).removesuffix(" %") if share else number_text(end) for end in ends)


def estimate_cell(estimate: Estimate | None, write: Callable[[Number], str] = number_text) -> Cell:
    """A measured figure with its interval; a share where ``write`` is `percent`.

    >>> estimate_cell(Estimate(value=0.7, low=0.61, high=0.79, n=9, prompts=9), percent)
    Cell(text='70.0 %', interval='61.0 to 79.0', kind='', link='')
    """
    if estimate is None:
        return Cell(text=NO_VALUE)
    return Cell(text=write(estimate.value), interval=interval_text(estimate, share=write is percent))


def value_cell(value: Number | None, write: Callable[[Number], str] = number_text) -> Cell:
    """A figure that has no interval, or a dash where there is no figure.

    >>> value_cell(0.0612), value_cell(None).text
    (Cell(text='0.0612', interval='', kind='', link=''), '–')
    """
    return Cell(text=NO_VALUE if value is None else write(value))


@overload
def estimate_span(estimate: Estimate) -> Span: ...
@overload
def estimate_span(estimate: None) -> None: ...
def estimate_span(estimate: Estimate | None) -> Span | None:
    """The same figure as a chart draws it."""
    return None if estimate is None else Span(value=estimate.value, low=estimate.low, high=estimate.high)


def interval_row(label: str, *estimates: Estimate | None) -> IntervalRow:
    """A row of a chart with the interval of each of these figures."""
    spans = tuple(estimate_span(estimate) if estimate else None for estimate in estimates)
    return IntervalRow(label=label, spans=spans)


_WRITERS: Mapping[str, Callable[..., str]] = {
    "counted": counted,
    "ends": lambda estimate: interval_text(estimate, share=True),
    "interval": interval_text,
    "names": lambda names: names_text(map(short_name, names)),
    "number": number_text,
    "percent": percent,
    "short": short_name,
}
"""What may stand behind the colon of a field; ``counted`` is followed by its noun."""


class _SentenceFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        writer, _, noun = format_spec.partition(" ")
        if writer in _WRITERS:
            return _WRITERS[writer](value, noun) if noun else _WRITERS[writer](value)
        return format(value, format_spec)


@cache
def _sentences() -> Mapping[str, Any]:
    return yaml.safe_load(
        resources.files("plaudit.runs.report").joinpath("sentences.yaml").read_text("utf-8")
    )


def say(name: str, /, **fields: object) -> str:
    """The sentence of this name; what stands in its fields is never read as a field itself.

    >>> say("run.stayed", value=0.25)
    'stayed at 0.250'
    """
    return _SentenceFormatter().vformat(_entry(name), (), fields)


def say_each(name: str, /, **fields: object) -> dict[str, str]:
    """A group of sentences by their names, as the three of a warning are."""
    return {part: _SentenceFormatter().vformat(text, (), fields) for part, text in _entry(name).items()}


def _entry(name: str) -> Any:
    entry = _sentences()
    for part in name.split("."):
        entry = entry[part]
    return entry
