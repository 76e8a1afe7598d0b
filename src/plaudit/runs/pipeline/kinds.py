"""What wings bring to pipelines: kinds of stages, and sections of the page that is written from their files.

A kind is a function, the record of its settings, and what it takes from stages above. A wing registers each
by a line, in ``stages`` or ``page_sections``, as a stranger's package does (docs/extending.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plaudit.wings import everything, load

if TYPE_CHECKING:
    from markupsafe import Markup

    from plaudit.runs.pipeline.spec import Stage
    from plaudit.runs.pipeline.status import PipelineContext
    from plaudit.runs.report.parts import Exchange, Table

ResultType = Literal["model", "reward", "rows", "groups", "evaluation"]
"""What a stage gives to those below it."""
Accepted = Mapping[str, tuple[ResultType, ...]]
"""By the name of a setting, what it may name of stages above."""
MODEL: tuple[ResultType, ...] = ("model",)
REWARD: tuple[ResultType, ...] = ("reward",)
ROWS: tuple[ResultType, ...] = ("rows",)
FIELD_NAMES = ("columns", "roles", "leave_out")
"""The settings that say what the fields of a file are; each is a list of words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What a stage reports when it has ended, for the log, the summary and the page.

    Example: ``StageResult(sentences=("2000 rows of comparisons",), command="plaudit world make …")``
    """

    sentences: tuple[str, ...]
    """What came of it; the first one is printed."""
    command: str
    """The single command that does the same."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """The checks that a training run made before it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """One kind of stage.

    Example: ``StageKind(name="thanks", produces="rows", settings=Thanks, accepts={"data": ROWS}, run=thank)``
    """

    name: str
    """What ``do:`` calls it."""
    produces: ResultType
    """The type of its result; of rows the function writes ``rows.jsonl``."""
    settings: type
    """The record of its settings, a frozen dataclass with a docstring for each field."""
    accepts: Accepted
    """The settings that name rows, models, rewards or files, and which of them a stage above may give."""
    run: Callable[[Any, Path, Stage, PipelineContext], StageResult]
    """Does it: of the settings, with paths in place of stages, into a folder that is there."""
    weight: int = 10
    """How long it takes beside others, where nobody has measured: seconds of a small run."""
    check: Callable[[Any], object] = lambda settings: None
    """Raises `UserError` about settings that would fail whatever the stages above give."""
    cost: Callable[[PipelineContext, Stage], Iterable[str]] = lambda context, stage: ()
    """What a dry run says of its cost."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By the name of a setting, words that mean neither file nor stage."""
    prompted: bool = False
    """Whether its setting ``policy`` has prompted policies: NAME=MODEL,system=TEXT,shots=FILE."""
    trains: bool = False
    """Whether it is a training run, with checkpoints and a run folder of its own."""
    resumes: bool = False
    """Whether it goes on from what it had begun, though it is no training run."""
    divides: Callable[[Any], bool] = lambda settings: False
    """Whether several processes can share its rows (`divide_rows`); training shares its own."""


def command_line(verb: str, *words: object, **options: object) -> str:
    """A command as it is typed; an option of None, False or nothing is left out, and a switch has no value.

    A list is one option with several words, a tuple an option that is there several times.

    >>> command_line("plaudit world make", "prompts", n=None, seed=0, out="my rows.jsonl")
    "plaudit world make prompts --seed 0 --out 'my rows.jsonl'"
    """
    parts = [verb, *(shlex.quote(str(word)) for word in words)]
    for name, value in options.items():
        for given in value if isinstance(value, tuple) else (value,):
            items = given if isinstance(given, list) else [given]
            if items and given is not None and given is not False:
                parts.append(f"--{name.replace('_', '-')}")
                parts += [shlex.quote(str(item)) for item in items if item is not True]
    return " ".join(parts)


def options_of(settings: Any, *without: str) -> dict[str, Any]:
    """All settings of a stage as options of `command_line`, without those that its command does not have."""
    options = {
        field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in without
    }
    # These take several words at once.
    return options | {name: [*options[name]] for name in FIELD_NAMES if name in options}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWarning:
    """Something on the page that a reader should doubt.

    Example: ``ReportWarning(about="ppo", finding="answers are twice as long", reason="Judges like length.")``
    """

    about: str
    """The policy, stage or judge."""
    finding: str
    """What was found, without a full stop."""
    reason: str
    """The threshold from which it is reported, and why it matters."""
    grave: bool = False
    """Whether the finding at the head of the page may be wrong because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFindings:
    """What the page shows of one stage, in a section of its wing's.

    Example: ``StageFindings(sentences=("sft falls for 12.5 % of 40 attacks.",), tables=(table,))``
    """

    sentences: tuple[str, ...]
    """What was found; they open the page where no stage compares policies."""
    details: tuple[str, ...] = ()
    """How it was measured, in sentences too."""
    missing: tuple[str, ...] = ()
    """What was not measured, so that the other figures are not read for the whole."""
    charts: tuple[Markup, ...] = ()
    """Drawings, as `share_chart` makes them."""
    tables: tuple[Table, ...] = ()
    """Figures in numbers."""
    samples: tuple[Exchange, ...] = ()
    """Prompts with what was answered, and the pictures that were asked about."""
    warnings: tuple[ReportWarning, ...] = ()
    """What a reader should doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A section of the page, registered by a wing among its ``page_sections``.

    Example: ``PageSection(title="Thanks", note="Thanks are words.", file="thanks.json", read=thanks_of)``
    """

    title: str
    """What stands above it."""
    note: str
    """What one should know before one reads any figure of it."""
    file: str
    """What a stage that has something to show leaves in its folder; a folder with it alone has a page too."""
    read: Callable[[Path], StageFindings]
    """What there is to show, of a stage's folder with that file."""


def page_sections() -> Mapping[str, PageSection]:
    """Those of all wings, by the anchors that they have on the page."""
    return {name: load(place) for name, place in everything("page_sections").items()}


def section_files() -> list[str]:
    return [section.file for section in page_sections().values()]


def read_findings(folder: Path) -> dict[str, StageFindings]:
    """What there is to show of a stage, by the anchor of the section."""
    sections = page_sections().items()
    return {name: section.read(folder) for name, section in sections if (folder / section.file).is_file()}
