"""The run's record as files in its folder: JSON lines and summary.json.

Every line of metrics.jsonl, samples.jsonl and notes.jsonl is handed to the operating system at once, so a
killed process loses nothing that it reported. A failure here ends the run: what cannot be written down cannot
be resumed exactly either.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plaudit.config import did_you_mean
from plaudit.engine.sinks.base import RunStart, Sample, Sink, Summary
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.engine.step_report import StepReport
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json

SYNCS_FILE = "syncs.jsonl"
"""A line for each delivery of weights to servers that draw, and its proof."""
METRICS_FILE, SAMPLES_FILE, NOTES_FILE = "metrics.jsonl", "samples.jsonl", "notes.jsonl"
SUMMARY_FILE = "summary.json"


class JsonlSink:
    """Writes each report, sample and note as a line of JSON."""

    name = "jsonl"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, JsonlFile] = {}
        self._step = 0

    def open(self, run: RunStart) -> tuple[str, ...]:
        """Drop the lines of steps that are about to be repeated, then append; returns what went."""
        self._step = run.done
        with atomic.disk_errors_explained(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        for name in (METRICS_FILE, SAMPLES_FILE, NOTES_FILE):
            self._files[name] = JsonlFile(
                self._folder / name,
                keep=lambda line: isinstance(step := line.get("step"), int) and step <= run.done,
                marks=run.marks.get(name, ""),
            )
        return tuple(note for file in self._files.values() for note in file.notes)

    def log(self, report: StepReport) -> None:
        self._step = report.step
        self._files[METRICS_FILE].append(report.as_json())

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        for row in rows:
            expected = {} if row.expected is None else {"expected": row.expected}
            line = {"step": step, "prompt": row.prompt, "completion": row.completion, **expected}
            self._files[SAMPLES_FILE].append(line)

    def note(self, text: str) -> None:
        """One line of notes.jsonl, with the last step that had been reported."""
        self._files[NOTES_FILE].append({"step": self._step, "note": text})

    def sync(self) -> dict[str, str]:
        """Wait until the disk has every line; returns the marks of each file's lines."""
        for file in self._files.values():
            file.sync()
        return {name: file.marks for name, file in self._files.items()}

    def close(self, summary: Summary | None) -> None:
        """Close the files; the summary gets every note of the run, those of earlier processes too."""
        while self._files:
            self._files.popitem()[1].close()
        if summary is not None:
            complete = replace(summary, notes=tuple(read_notes(self._folder)))
            atomic.write_json(self._folder / SUMMARY_FILE, complete.as_json())


def read_reports(folder: Path) -> Iterator[StepReport]:
    return (StepReport.from_json(line) for line in _read_lines(folder / METRICS_FILE))


def read_notes(folder: Path) -> Iterator[str]:
    return (str(line["note"]) for line in _read_lines(folder / NOTES_FILE))


def _read_lines(path: Path) -> "Iterator[JsonlRecord]":
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = exact_json.loads(raw)
            except ValueError as error:
                raise UserError(
                    f"{path}:{number}: this is not a line of JSON: something other than plaudit changed the "
                    "file. Repair or delete that line and start again."
                ) from error
            yield line


SINK_NAMES = ("jsonl", "console", "tensorboard", "wandb", "mlflow", "trackio")
"""Every sink that can be asked for, in the order in which they are fed."""


def sinks_for(names: Iterable[str], folder: Path, *, quiet: bool = False) -> tuple[Sink, ...]:
    """The sinks of these names, each once.
    Two are always there: ``files``, because resuming stands on it, and ``console``, which shows notes only
    when it is quiet or was not asked for, because a warning has to reach somebody."""
    requested = list(names)
    for name in requested:
        if name not in SINK_NAMES:
            hint = f"{did_you_mean(name, SINK_NAMES) or '.'} Choose from {', '.join(SINK_NAMES)}."
            raise UserError(f"there is no place called {name!r} to log to{hint}")
    # Most runs have none of them.
    from plaudit.engine.sinks import trackers

    makers: dict[str, Callable[[], Sink]] = {
        "jsonl": lambda: JsonlSink(folder),
        "console": lambda: ConsoleSink(quiet=quiet or "console" not in requested),
        "tensorboard": lambda: trackers.TensorboardSink(folder),
        "wandb": lambda: trackers.WandbSink(folder),
        "mlflow": lambda: trackers.MlflowSink(folder),
        "trackio": lambda: trackers.TrackioSink(folder),
    }
    return tuple(makers[name]() for name in SINK_NAMES if name in ("jsonl", "console", *requested))


JsonlRecord = Mapping[str, Any]
_MARK_LENGTH = 8
_ADVICE = (
    "To go on: restore the file, or leave an empty one in its place (the run then goes on without these "
    "lines, and says so), or start another run with `--out` elsewhere."
)


@dataclass(slots=True, kw_only=True)
class _Lines:
    """The lines of a file: their bytes, and of each the sha256 of everything up to its end, cut."""

    marks: list[str] = field(default_factory=list[str])
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, line: bytes) -> None:
        self.digest.update(line)
        self.size += len(line)
        self.marks.append(self.digest.hexdigest()[:_MARK_LENGTH])


class JsonlFile:
    """An open file of JSON lines.
    Example: ``JsonlFile(path, keep=lambda record: record["step"] <= 120)`` on a resume at step 120."""

    notes: tuple[str, ...]
    """What opening the file had to drop, in words."""

    def __init__(
        self, path: Path, *, keep: Callable[[JsonlRecord], bool] | None = None, marks: str = ""
    ) -> None:
        """Opens the file to append, cut before the first line that ``keep`` refuses; torn last lines go too.
        Where its first lines are not those of the ``marks``, it raises and cuts nothing; only an empty file,
        which somebody put there, may lack them all."""
        self._path = path
        if marks and not path.exists():
            lines = len(marks) // _MARK_LENGTH
            raise UserError(f"{path}: the file is gone, and {lines} lines with it. {_ADVICE}")
        with atomic.disk_errors_explained(path):
            # A bare descriptor: Python's buffer would hold back lines that a killed process has reported.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # A new file's name has to reach the disk too: else synced lines have no place after a power cut.
            atomic.sync_folder(path.parent)
            self._lines, self.notes = _cut(path, keep or (lambda record: True), marks)
        # Ctrl-C as well: the descriptor is owned by nobody yet.
        except BaseException:
            self.close()
            raise

    @property
    def marks(self) -> str:
        return "".join(self._lines.marks)

    def append(self, record: JsonlRecord, *, sync_now: bool = False) -> None:
        """Adds one line; ``sync_now`` waits until the disk has it."""
        data = exact_json.dumps(record).encode() + b"\n"
        # Where to cut back to: half a line would be read as torn, with a good one glued to it.
        size_before = os.fstat(self._descriptor).st_size
        with atomic.disk_errors_explained(self._path, needed=len(data)):
            try:
                bytes_out = os.write(self._descriptor, data)
                # write() may take a part only, as near a full disk or a quota.
                while bytes_out < len(data):
                    bytes_out += os.write(self._descriptor, data[bytes_out:])
            except BaseException:
                os.ftruncate(self._descriptor, size_before)
                raise
        self._lines.add(data)
        if sync_now:
            self.sync()

    def sync(self) -> None:
        """Waits until the disk has every line; a file that somebody replaced or cut meanwhile is refused."""
        opened = os.fstat(self._descriptor)
        same = self._path.exists() and os.path.samestat(opened, self._path.stat())
        if not same or opened.st_size != self._lines.size:
            raise UserError(
                f"{self._path}: something other than plaudit removed, replaced or changed the file while the "
                f"run wrote to it. {_ADVICE}"
            )
        with atomic.disk_errors_explained(self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> "JsonlFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut(path: Path, keep: Callable[[JsonlRecord], bool], marks: str) -> tuple[_Lines, tuple[str, ...]]:
    written = len(marks) // _MARK_LENGTH
    if written and not path.stat().st_size:
        return _Lines(), (f"{path}: empty: the run goes on without the {written} lines that it had written",)
    intact, step, torn, dropped = _Lines(), 0, False, list[bytes]()
    with open(path, "rb") as file:
        for line in file:
            record = _record_of(line)
            _refuse_changed(path, intact, line, record, marks)
            if record is None or not keep(record):
                torn, dropped = record is None, [line, *file]
                break
            intact.add(line)
            step = record.get("step", "?")
    # A kill tears the end alone; a bad line with good ones behind it was edited.
    if torn and any(_record_of(line) is not None for line in dropped):
        raise UserError(
            f"{path}:{len(intact.marks) + 1}: not a line of JSON, though good lines follow: something other "
            "than plaudit changed the file. Repair or delete that line and start again."
        )
    if len(intact.marks) < written:
        raise UserError(
            f"{path}: the run had written {written} lines, and {len(intact.marks)} are there, the last one "
            f"of step {step}: the rest was removed. {_ADVICE}"
        )
    if not dropped:
        return intact, ()
    with atomic.disk_errors_explained(path), open(path, "r+b") as file:
        file.truncate(intact.size)
        os.fsync(file.fileno())
    count = "last line" if len(dropped) == 1 else f"last {len(dropped)} lines"
    reason = "torn (the run was killed while writing)" if torn else "of steps that will run again"
    return intact, (f"{path}: dropped the {count}, after step {step}: {reason}",)


def _refuse_changed(path: Path, intact: _Lines, line: bytes, record: JsonlRecord | None, marks: str) -> None:
    at = len(intact.marks) * _MARK_LENGTH
    if at >= len(marks):
        return
    digest = intact.digest.copy()
    digest.update(line)
    if digest.hexdigest()[:_MARK_LENGTH] != marks[at : at + _MARK_LENGTH]:
        found = "which is no line of JSON" if record is None else f"of step {record.get('step', '?')}"
        raise UserError(
            f"{path}:{len(intact.marks) + 1}: this line, {found}, is not the one that the run wrote here: it "
            f"was changed, or lines were removed. {_ADVICE}"
        )


def _record_of(line: bytes) -> JsonlRecord | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = exact_json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, Mapping) else None
