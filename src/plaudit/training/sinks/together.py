"""The sinks of one run: chosen by name, fed as one, and kept from harming the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from plaudit.errors import UserError
from plaudit.training.metrics import StepReport
from plaudit.training.sinks.sink import RunStart, Sample, Sink
from plaudit.training.sinks.summary import Summary

NAMES = ("jsonl", "console", "tensorboard", "wandb", "mlflow", "trackio")
"""Every sink that can be asked for, in the order in which they are fed."""


def sinks_for(names: Iterable[str], folder: Path, *, quiet: bool = False) -> tuple[Sink, ...]:
    """The sinks of these names, each once.

    Two are always there: ``jsonl``, because resuming stands on it, and ``console``, which shows notes only
    when it is quiet or was not asked for, because a warning has to reach somebody.

    >>> [sink.name for sink in sinks_for(["tensorboard"], Path("runs/toy"))]
    ['jsonl', 'console', 'tensorboard']
    """
    asked = list(names)
    for name in asked:
        if name not in NAMES:
            raise UserError(_unknown(name))
    quiet = quiet or "console" not in asked
    return tuple(_make(name, folder, quiet) for name in NAMES if name in ("jsonl", "console", *asked))


class Sinks:
    """Several sinks as one.

    A sink that fails with one of its own ``faults`` is switched off: one note goes to all the others,
    and so into summary.json, and the training goes on. Any other exception is a fault of the run.
    """

    name = "sinks"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def open(self, run: RunStart) -> None:
        """Open each."""
        self._each(lambda sink: sink.open(run))

    def log(self, report: StepReport) -> None:
        """Hand the report to each."""
        self._each(lambda sink: sink.log(report))

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """Hand the answers to each."""
        self._each(lambda sink: sink.sample(step, rows))

    def note(self, text: str) -> None:
        """Hand the note to each."""
        self._each(lambda sink: sink.note(text))

    def sync(self) -> None:
        """Have each keep what it was told so far; a trainer calls this before it saves a checkpoint."""
        self._each(lambda sink: sink.sync())

    def close(self, summary: Summary | None) -> None:
        """Close each, the run's own record last, so that it can still tell of a tracker that failed."""
        for sink in reversed(self._sinks.copy()):
            if sink in self._sinks:
                self._guarded(sink, lambda sink: sink.close(summary))
                self._sinks = [other for other in self._sinks if other is not sink]

    def _each(self, act: Callable[[Sink], None]) -> None:
        for sink in self._sinks.copy():
            if sink in self._sinks:
                self._guarded(sink, act)

    def _guarded(self, sink: Sink, act: Callable[[Sink], None]) -> None:
        try:
            act(sink)
        except sink.faults as fault:
            self._sinks = [other for other in self._sinks if other is not sink]
            words = f"{type(fault).__name__}: {fault}"
            self.note(f"{sink.name} failed and is switched off; training goes on without it ({words})")


def _make(name: str, folder: Path, quiet: bool) -> Sink:
    from plaudit.training.sinks import console, jsonl, tensorboard, trackers

    makers: dict[str, Callable[[], Sink]] = {
        "jsonl": lambda: jsonl.JsonlSink(folder),
        "console": lambda: console.ConsoleSink(quiet=quiet),
        "tensorboard": lambda: tensorboard.TensorboardSink(folder),
        "wandb": lambda: trackers.WandbSink(folder),
        "mlflow": lambda: trackers.MlflowSink(folder),
        "trackio": lambda: trackers.TrackioSink(folder),
    }
    return makers[name]()


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no place called {name!r} to log to{suggestion} Choose from {', '.join(NAMES)}."
