"""The run's own record in its folder: metrics.jsonl, samples.jsonl, notes.jsonl and summary.json.

Every line is handed to the operating system at once, so a killed process loses nothing that it
reported. A failure here ends the run: what cannot be written down cannot be resumed exactly either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from plaudit.errors import UserError
from plaudit.training import durable, exact_json
from plaudit.training.lines import LineFile, Record
from plaudit.training.metrics import StepReport
from plaudit.training.sinks.sink import RunStart, Sample
from plaudit.training.sinks.summary import Summary

METRICS, SAMPLES, NOTES, SUMMARY = "metrics.jsonl", "samples.jsonl", "notes.jsonl", "summary.json"


class JsonlSink:
    """Writes each report, sample and note as a line of JSON."""

    name = "jsonl"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, LineFile] = {}
        self._step = 0

    def open(self, run: RunStart) -> None:
        """Drop the lines of steps that are about to be repeated, then append."""
        self._step = run.done
        with durable.plain_words(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, SAMPLES, NOTES):
            self._files[name] = LineFile(self._folder / name, keep=lambda line: _belongs(line, run.done))
        for dropped in [note for file in self._files.values() for note in file.notes]:
            self.note(dropped)

    def log(self, report: StepReport) -> None:
        """One line of metrics.jsonl."""
        self._step = report.step
        self._files[METRICS].append(report.as_json())

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """One line of samples.jsonl for each answer."""
        for row in rows:
            expected = {} if row.expected is None else {"expected": row.expected}
            line = {"step": step, "prompt": row.prompt, "completion": row.completion, **expected}
            self._files[SAMPLES].append(line)

    def note(self, text: str) -> None:
        """One line of notes.jsonl, with the last step that had been reported."""
        self._files[NOTES].append({"step": self._step, "note": text})

    def sync(self) -> None:
        """Wait until the disk has every line."""
        for file in self._files.values():
            file.sync()

    def close(self, summary: Summary | None) -> None:
        """Close the files; the summary gets every note of the run, those of earlier processes too."""
        while self._files:
            self._files.popitem()[1].close()
        if summary is not None:
            complete = replace(summary, notes=tuple(read_notes(self._folder)))
            durable.write_json(self._folder / SUMMARY, complete.as_json())


def read_reports(folder: Path) -> Iterator[StepReport]:
    """The reports of a run folder, in order."""
    return (StepReport.from_json(line) for line in _lines(folder / METRICS))


def read_notes(folder: Path) -> Iterator[str]:
    """The notes of a run folder, in order."""
    return (str(line["note"]) for line in _lines(folder / NOTES))


def _belongs(line: Record, done: int) -> bool:
    step = line.get("step")
    return isinstance(step, int) and step <= done


def _lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            yield _parsed(path, number, raw)


def _parsed(path: Path, number: int, raw: bytes) -> Record:
    try:
        line = exact_json.loads(raw)
    except ValueError as error:
        raise UserError(
            f"{path}:{number}: this is not a line of JSON: something other than plaudit changed the file. "
            "Repair or delete that line and start again."
        ) from error
    return line
