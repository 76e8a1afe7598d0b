"""The data of a run folder, read once for its report.

Its figures are held as columns: a hundred thousand steps are read in a second and held in little.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from plaudit.engine import run_folder
from plaudit.engine.run_folder import Lineage
from plaudit.engine.sinks.files import METRICS_FILE, NOTES_FILE, SAMPLES_FILE, SUMMARY_FILE, SYNCS_FILE
from plaudit.engine.step_report import current_metric_name, lower_is_better
from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.runs.report.parts import say
from plaudit.runs.report.words import Number

# Near the end of the floats the difference of two values is no float any more.
_LARGEST_DRAWABLE = 1e300
_REPORT_KEYS = ("step", "steps", "epoch", "timing")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricColumn:
    name: str
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    """What they reported; NaN where it was not a finite number, or too large to draw."""

    @property
    def last(self) -> float:
        return self.values[-1]

    @property
    def numbers(self) -> Sequence[float]:
        # One sum tells, a hundred times faster than a look at each, that there is nothing to leave out.
        if math.isfinite(sum(self.values)):
            return self.values
        return [value for value in self.values if not math.isnan(value)]

    @property
    def lowest(self) -> float | None:
        return min(self.numbers, default=None)

    @property
    def highest(self) -> float | None:
        return max(self.numbers, default=None)

    @property
    def best(self) -> tuple[int, float] | None:
        """The step and value of the best one; None where no direction is better, or none is a number.

        >>> MetricColumn(name="loss", steps=array("q", [1, 2]), values=array("d", [2.1, 1.9])).best
        (2, 1.9)
        """
        lower = lower_is_better(self.name)
        value = None if lower is None else self.lowest if lower else self.highest
        return None if value is None else (self.steps[self.values.index(value)], value)


@dataclass(slots=True, kw_only=True)
class MetricHistory:
    """Every figure of every step; it grows while metrics.jsonl is read."""

    step: int = 0
    steps: int = 0
    epoch: Number = 0
    columns: dict[str, MetricColumn] = field(default_factory=dict[str, MetricColumn])

    def add(self, line: dict[str, Any]) -> None:
        self.step, self.steps, self.epoch = line["step"], line["steps"], line["epoch"]
        self._append(
            (current_metric_name(name), value) for name, value in line.items() if name not in _REPORT_KEYS
        )
        self._append((f"timing/{name}", value) for name, value in line["timing"].items())

    def total(self, name: str) -> float:
        """The sum of a figure over the run, as far as it is a number; 0 where it was never reported."""
        return math.fsum(self.columns[name].numbers) if name in self.columns else 0.0

    def _append(self, figures: Iterable[tuple[str, Any]]) -> None:
        for name, value in figures:
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = MetricColumn(name=name)
            column.steps.append(self.step)
            column.values.append(
                # nan fails both comparisons, so one test leaves out whatever cannot be drawn.
                value if value is not None and -_LARGEST_DRAWABLE < value < _LARGEST_DRAWABLE else math.nan
            )


def read_history(path: Path) -> MetricHistory:
    history = MetricHistory()
    for number, line in complete_lines(path):
        try:
            history.add(line)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}:{number}: not a step that plaudit reported ({type(error).__name__}: {error}). "
                "Repair or delete that line and write the report again."
            ) from error
    return history


def complete_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Number and content of each line of JSON; a last one without an end is being written, or torn: left out.
    A file that is not there has no lines: a run writes it with its first step, sample or note."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                yield number, json.loads(raw)
            # JSON that is nested too deep ends in RecursionError, which is no ValueError.
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path}:{number}: this is not a line of JSON: something other than plaudit changed "
                    "the file. Repair or delete that line and write the report again."
                ) from error


ModelKind = Literal["none", "model", "adapter"]
"""What lies in ``model/``: nothing yet, a whole model, or an adapter beside its base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt with the first and the last completion that was sampled."""

    prompt: str
    first: tuple[int, str]
    """The first step at which it was asked, and the answer."""
    last: tuple[int, str]
    expected: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    step: int | None
    """The step after which it was first made; None where its text says which."""
    text: str
    times: int

    @property
    def details(self) -> str:
        """When and how often it was made, in words; empty where there is nothing to say of that."""
        when = f"after step {self.step:,}" if self.step else "before the first step"
        times = f"{self.times:,} times" if self.times > 1 else ""
        return ", ".join(part for part in ("" if self.step is None else when, times) if part)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Of weights to servers, as ``syncs.jsonl`` has it.
    Example: ``Delivery(seconds=0.8, bytes=4e6, gap=2e-6, distinguished=2, servers=2)``."""

    seconds: float
    bytes: float
    gap: float
    distinguished: float
    servers: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    path: Path
    name: str
    config: str
    lineage: Lineage | None
    """What went in; None where the run ended before it was written down."""
    history: MetricHistory
    finished: bool
    """Whether the run wrote its summary and took no step since."""
    last_change: datetime | None
    """When the last figure was written, or the last word of a finished run; None before the first step."""
    exchanges: tuple[Exchange, ...]
    """What the model said, the prompts that were asked last coming first."""
    notes: tuple[Note, ...]
    model_kind: ModelKind
    deliveries: tuple[Delivery, ...]
    """Of weights to servers, where these drew the answers."""


def read_run_data(run: Path) -> RunData:
    """The facts of a run folder; files that a run has not come to yet may be missing."""
    history = read_history(run / METRICS_FILE)
    finished = _is_finished(run / SUMMARY_FILE, history)
    origin, last_file = run / "lineage.json", run / (SUMMARY_FILE if finished else METRICS_FILE)
    last_change = datetime.fromtimestamp(last_file.stat().st_mtime, UTC) if history.step or finished else None
    return RunData(
        path=run,
        name=run.resolve().name,
        config=_read_config(run / "config.yaml"),
        lineage=run_folder.read_lineage(origin) if origin.exists() else None,
        history=history,
        finished=finished,
        last_change=last_change,
        exchanges=_read_exchanges(run / SAMPLES_FILE),
        notes=(*_read_notes(run / NOTES_FILE), *_non_finite_notes(history)),
        model_kind=_model_kind(run / "model"),
        deliveries=_read_deliveries(run / SYNCS_FILE),
    )


def _read_deliveries(path: Path) -> tuple[Delivery, ...]:
    with foreign_content_refused(f"{path}: not deliveries that plaudit wrote ({{}}). Delete that file."):
        names = [entry.name for entry in fields(Delivery)]
        return tuple(Delivery(*(float(line[name]) for name in names)) for _, line in complete_lines(path))


@contextmanager
def foreign_content_refused(message: str) -> Iterator[None]:
    """Names, where a file holds what plaudit did not write, the file and what to do; ``{}`` is the fault."""
    try:
        yield
    except UserError:
        raise  # It names its file itself.
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(message.replace("{}", fault)) from error


def _read_config(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{path.parent}: not a run folder (it has no config.yaml). Name the folder that was `--out`."
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}). Restore it.") from error


def _is_finished(path: Path, history: MetricHistory) -> bool:
    if not path.exists():
        return False
    remedy = "Delete it and write the report again."
    with foreign_content_refused(f"{path}: not a summary that plaudit wrote. {remedy}"):
        step = exact_json.loads(path.read_bytes())["step"]
    # A run that was taken up again after its last word is not finished until it has had another.
    return step == history.step


def _read_exchanges(path: Path) -> tuple[Exchange, ...]:
    exchanges: dict[tuple[str, int], Exchange] = {}
    times_sampled: Counter[tuple[int, str]] = Counter()
    current_step = 0
    for number, line in complete_lines(path):
        with foreign_content_refused(f"{path}:{number}: not a sample that plaudit wrote. Delete that line."):
            step, prompt, completion = int(line["step"]), str(line["prompt"]), str(line["completion"])
            expected = str(line["expected"]) if "expected" in line else None
        if step != current_step:
            times_sampled.clear()
            current_step = step
        # A prompt that is asked twice at one step has two answers to compare with its next two.
        key = (prompt, times_sampled[step, prompt])
        times_sampled[step, prompt] += 1
        previous = exchanges.get(key)
        exchanges[key] = (
            Exchange(prompt=prompt, first=(step, completion), last=(step, completion), expected=expected)
            if previous is None
            else replace(previous, last=(step, completion))
        )
    return tuple(sorted(exchanges.values(), key=lambda exchange: -exchange.last[0]))


def _read_notes(path: Path) -> tuple[Note, ...]:
    notes: dict[str, Note] = {}
    for number, line in complete_lines(path):
        with foreign_content_refused(f"{path}:{number}: not a note that plaudit wrote. Delete that line."):
            note = Note(step=int(line["step"]), text=str(line["note"]), times=1)
        previous = notes.get(note.text)
        notes[note.text] = note if previous is None else replace(previous, times=previous.times + 1)
    return tuple(notes.values())


def _non_finite_notes(history: MetricHistory) -> Iterator[Note]:
    """A note for each figure that was not a number somewhere: the gap in its curve is easily missed."""
    for column in history.columns.values():
        if len(column.numbers) < len(column.values):
            steps = [s for s, value in zip(column.steps, column.values, strict=True) if math.isnan(value)]
            others = f" and {len(steps) - 5:,} others" if len(steps) > 5 else ""
            where = ", ".join(f"{step:,}" for step in steps[:5]) + others
            yield Note(step=None, text=say("run.not_finite", name=column.name, where=where), times=1)


def _model_kind(folder: Path) -> ModelKind:
    if (folder / "adapter_config.json").exists():
        return "adapter"
    return "model" if (folder / "config.json").exists() else "none"
