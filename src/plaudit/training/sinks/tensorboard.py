"""Curves for TensorBoard, in the run folder's ``tensorboard`` folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plaudit.training.metrics import StepReport
from plaudit.training.sinks.extras import required
from plaudit.training.sinks.sink import RunStart, Sample
from plaudit.training.sinks.summary import Summary


class TensorboardSink:
    """Writes every figure as a scalar, samples and notes as text."""

    name = "tensorboard"
    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        required("tensorboard")
        self._folder = folder / "tensorboard"
        self._writer: Any = None
        self._step = 0

    def open(self, run: RunStart) -> None:
        """A new events file; TensorBoard then hides what earlier files say of steps that are repeated."""
        from torch.utils.tensorboard import SummaryWriter

        self._step = run.done
        purge = run.done + 1 if run.done else None
        self._writer = SummaryWriter(str(self._folder), purge_step=purge)

    def log(self, report: StepReport) -> None:
        """One scalar for each figure."""
        self._step = report.step
        for name, value in report.flat().items():
            self._writer.add_scalar(name, value, global_step=report.step)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """The answers under the tab of texts, as code, so that nothing in them is taken for Markdown."""
        for number, row in enumerate(rows):
            text = f"{_code(row.prompt)}\n\n{_code(row.completion)}"
            self._writer.add_text(f"samples/{number}", text, global_step=step)

    def note(self, text: str) -> None:
        """A text at the last reported step."""
        self._writer.add_text("notes", _code(text), global_step=self._step)

    def sync(self) -> None:
        """Write out what is waiting."""
        self._writer.flush()

    def close(self, summary: Summary | None) -> None:
        """Write out what is waiting and close the file."""
        self._writer.close()


def _code(text: str) -> str:
    """The text as an indented code block of Markdown."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
