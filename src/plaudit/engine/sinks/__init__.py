"""Where metrics go: the console, files, TensorBoard and, on request, W&B, MLflow or trackio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

from plaudit.engine.sinks.base import MlflowSink, Sink, TrackioSink, WandbSink
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.engine.sinks.files import JsonlSink, TensorboardSink
from plaudit.errors import UserError

SINK_NAMES = ("jsonl", "console", "tensorboard", "wandb", "mlflow", "trackio")
"""Every sink that can be asked for, in the order in which they are fed."""


def sinks_for(names: Iterable[str], folder: Path, *, quiet: bool = False) -> tuple[Sink, ...]:
    """The sinks of these names, each once.

    Two are always there: ``files``, because resuming stands on it, and ``console``, which shows notes only
    when it is quiet or was not asked for, because a warning has to reach somebody.

    >>> [sink.name for sink in sinks_for(["tensorboard"], Path("runs/toy"))]
    ['jsonl', 'console', 'tensorboard']
    """
    requested = list(names)
    for name in requested:
        if name not in SINK_NAMES:
            raise UserError(_unknown_sink_message(name))
    quiet = quiet or "console" not in requested
    return tuple(
        _make_sink(name, folder, quiet) for name in SINK_NAMES if name in ("jsonl", "console", *requested)
    )


def _make_sink(name: str, folder: Path, quiet: bool) -> Sink:
    makers: dict[str, Callable[[], Sink]] = {
        "jsonl": lambda: JsonlSink(folder),
        "console": lambda: ConsoleSink(quiet=quiet),
        "tensorboard": lambda: TensorboardSink(folder),
        "wandb": lambda: WandbSink(folder),
        "mlflow": lambda: MlflowSink(folder),
        "trackio": lambda: TrackioSink(folder),
    }
    return makers[name]()


def _unknown_sink_message(name: str) -> str:
    near = get_close_matches(name.lower(), SINK_NAMES, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no place called {name!r} to log to{suggestion} Choose from {', '.join(SINK_NAMES)}."
