"""The figures of a run as columns: a hundred thousand steps are read in a second and held in little."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.training.metric_docs import lower_is_better
from plaudit.training.metrics import Number

# Near the end of the floats the difference of two values is no float any more.
_LARGEST = 1e300
_OWN = ("step", "steps", "epoch", "timing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure over the run.

    Example: ``Column(name="loss", steps=array("q", [1, 2]), values=array("d", [2.1, 1.9]))``
    """

    name: str
    """Its name in the report."""
    steps: array[int] = field(default_factory=lambda: array("q"))
    """The steps that reported it."""
    values: array[float] = field(default_factory=lambda: array("d"))
    """What they reported; NaN where it was not a finite number, or too large to draw."""

    @property
    def last(self) -> float:
        """The last value."""
        return self.values[-1]

    @property
    def numbers(self) -> Sequence[float]:
        """The values without those that are none."""
        # One sum tells, a hundred times faster than a look at each, that there is nothing to leave out.
        if math.isfinite(sum(self.values)):
            return self.values
        return [value for value in self.values if not math.isnan(value)]

    @property
    def lowest(self) -> float | None:
        """The lowest value; None where none is a number."""
        return min(self.numbers, default=None)

    @property
    def highest(self) -> float | None:
        """The highest value; None where none is a number."""
        return max(self.numbers, default=None)

    @property
    def best(self) -> tuple[int, float] | None:
        """The step and value of the best one; None where no direction is better, or none is a number.

        >>> Column(name="loss", steps=array("q", [1, 2]), values=array("d", [2.1, 1.9])).best
        (2, 1.9)
        """
        lower = lower_is_better(self.name)
        value = None if lower is None else self.lowest if lower else self.highest
        return None if value is None else (self.steps[self.values.index(value)], value)


@dataclass(slots=True, kw_only=True)
class History:
    """Every figure of every step; it grows while metrics.jsonl is read.

    Example: ``History(step=100, steps=100, epoch=3.0, columns={"loss": Column(…)})``
    """

    step: int = 0
    """The last step that was reported."""
    steps: int = 0
    """How many steps the run has."""
    epoch: Number = 0
    """How often the data had been gone through after it."""
    columns: dict[str, Column] = field(default_factory=dict[str, Column])
    """The figures by name, those of the clock under ``timing/``."""

    def add(self, line: dict[str, Any]) -> None:
        """Takes up one line of metrics.jsonl."""
        self.step, self.steps, self.epoch = line["step"], line["steps"], line["epoch"]
        self._append((name, value) for name, value in line.items() if name not in _OWN)
        self._append((f"timing/{name}", value) for name, value in line["timing"].items())

    def total(self, name: str) -> float:
        """The sum of a figure over the run, as far as it is a number; 0 where it was never reported."""
        return math.fsum(self.columns[name].numbers) if name in self.columns else 0.0

    def _append(self, figures: Iterable[tuple[str, Any]]) -> None:
        for name, value in figures:
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = Column(name=name)
            column.steps.append(self.step)
            column.values.append(value if value is not None and -_LARGEST < value < _LARGEST else math.nan)


def read_history(path: Path) -> History:
    """The history in metrics.jsonl; an empty one where the file is not there yet."""
    history = History()
    for number, line in whole_lines(path):
        try:
            history.add(line)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}:{number}: not a step that plaudit reported ({type(error).__name__}: {error}). "
                "Repair or delete that line and write the report again."
            ) from error
    return history


def whole_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Number and content of each line of JSON; a last one without an end is being written, or torn: left out.

    A file that is not there has no lines: a run writes it with its first step, sample or note.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                yield number, json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path}:{number}: this is not a line of JSON: something other than plaudit changed "
                    "the file. Repair or delete that line and write the report again."
                ) from error
