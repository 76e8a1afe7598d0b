"""What shows or stores the metrics of a run: the Sink protocol, the sinks of a run, and its summary.

Sinks are chosen by name, fed as one, and kept from harming the training. The summary holds last and best
metrics, counts and notes.

Weights & Biases, MLflow and trackio are imported only when asked for, named when missing, and local unless
told otherwise: their own environment variables (``WANDB_MODE``, ``WANDB_PROJECT``, ``MLFLOW_TRACKING_URI``,
``MLFLOW_EXPERIMENT_NAME``, ``TRACKIO_SPACE_ID``, …) keep their meaning. What they report about their users to
their makers is turned off unless those variables turn it on.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from plaudit.engine.metric_docs import lower_is_better
from plaudit.engine.run_folder import flat_settings
from plaudit.engine.step_report import Number, StepReport, finite_or_none
from plaudit.errors import UserError
from plaudit.files import atomic


def import_required(package: str) -> Any:
    """The package, imported; a ``UserError`` with the extra to install when it is not there."""
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UserError(_missing_package_message(package)) from None
    if module.__file__ is None:
        # A folder called wandb or mlflow, such as these tools leave behind, imports as an empty package.
        raise UserError(
            f"{_missing_package_message(package)} (Python found only a folder of that name: "
            f"{[*module.__path__]}.)"
        )
    return module


def _missing_package_message(package: str) -> str:
    return f'logging to {package} needs a package that is not installed: pip install "plaudit[{package}]"'


SUMMED_METRICS = ("tokens", "rows")
"""The figures that add up over a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestValue:
    step: int
    value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedLook:
    step: int
    values: Mapping[str, Number]
    """The held-out figures of that step."""

    def as_json(self) -> dict[str, object]:
        return {"step": self.step, "values": finite_or_none(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What summary.json holds.

    Example: ``Summary(step=100, steps=100, last={"loss": 1.8}, best={}, counts={"rows": 800}, timing={})``
    """

    step: int
    """The last step that was done."""
    steps: int
    """How many steps the run has; more than ``step`` when it was stopped early."""
    last: Mapping[str, Number]
    """The last value of every figure."""
    best: Mapping[str, BestValue]
    """The best value of every figure that has a better direction."""
    counts: Mapping[str, Number]
    """Tokens and rows of the whole run."""
    timing: Mapping[str, Number]
    """Seconds of all steps, tokens per second over all of them, most memory, mean utilisation."""
    notes: tuple[str, ...] = ()
    """What the user should know: warnings, a tracker that was switched off."""
    selected: SelectedLook | None = None
    """The look whose model is the result; None where that is the last step's."""

    def as_json(self) -> dict[str, object]:
        """The summary as JSON can hold it."""
        return {
            "step": self.step,
            "steps": self.steps,
            "last": finite_or_none(self.last),
            "best": {name: {"step": best.step, "value": best.value} for name, best in self.best.items()},
            "counts": dict(self.counts),
            "timing": finite_or_none(self.timing),
            "notes": list(self.notes),
            **({} if self.selected is None else {"selected": self.selected.as_json()}),
        }


def summarise(
    reports: Iterable[StepReport], notes: Iterable[str] = (), *, selected: int | None = None
) -> Summary:
    """The summary of a whole run from its reports, in order; ``selected`` is the step of its model."""
    done = tuple(reports)
    last: dict[str, Number] = {}
    best: dict[str, BestValue] = {}
    for report in done:
        last.update(report.values)
        for name, value in report.values.items():
            if _improves(name, value, best.get(name)):
                best[name] = BestValue(step=report.step, value=value)
    return Summary(
        step=done[-1].step if done else 0,
        steps=done[-1].steps if done else 0,
        last=last,
        best=best,
        counts={name: _total_of(done, name) for name in SUMMED_METRICS},
        timing=_total_timing(done),
        notes=tuple(notes),
        selected=_selected_look(done, selected),
    )


def _selected_look(done: tuple[StepReport, ...], selected: int | None) -> SelectedLook | None:
    values = next((report.values for report in done if report.step == selected), None)
    if selected is None or values is None or selected == done[-1].step:
        return None
    return SelectedLook(
        step=selected, values={name: values[name] for name in values if name.startswith("held_out/")}
    )


def _improves(name: str, value: Number, best: BestValue | None) -> bool:
    lower = lower_is_better(name)
    if lower is None or not math.isfinite(value):
        return False
    return best is None or (value < best.value if lower else value > best.value)


def _total_of(done: tuple[StepReport, ...], name: str) -> Number:
    return sum(report.values.get(name, 0) for report in done)


def _total_timing(done: tuple[StepReport, ...]) -> dict[str, Number]:
    seconds = sum(report.timing.get("seconds", 0.0) for report in done)
    timing = {"seconds": seconds}
    if seconds > 0:
        timing["tokens_per_second"] = _total_of(done, "tokens") / seconds
    memory = [report.timing["memory_mib"] for report in done if "memory_mib" in report.timing]
    if memory:
        timing["memory_mib"] = max(memory)
    times = [(r.timing["mfu"], r.timing.get("seconds", 0.0)) for r in done if "mfu" in r.timing]
    measured = sum(weight for _, weight in times)
    if measured > 0:
        timing["mfu"] = sum(mfu * weight for mfu, weight in times) / measured
    return timing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What a sink is told when a process begins or takes up a run.

    Example: ``RunStart(name="sft-toy", steps=100, done=40)`` is taken up after its 40th step.
    """

    name: str
    steps: int
    done: int = 0
    """How many of them an earlier process has done; more than 0 only on resume."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The resolved configuration, for trackers that show it beside the curves."""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `FanOutSink.sync` gave when the checkpoint was saved from which the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sampled completion.

    Example: ``Sample(prompt="Name a fruit.", completion="An apple.", expected="A pear.")``
    """

    prompt: str
    """The prompt."""
    completion: str
    """The completion."""
    expected: str | None = None
    """The answer in the data, where there is one."""


@runtime_checkable
class Sink(Protocol):
    """Shows or keeps a run's figures. Only the first process of a run has sinks."""

    @property
    def name(self) -> str:
        """What the user calls it, such as ``tensorboard``."""
        ...

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """Exceptions that mean "this sink no longer works": it is switched off and the run goes on."""
        ...

    def open(self, run: RunStart) -> Sequence[str] | None:
        """Get ready; forget what an earlier process reported after step ``run.done``.

        What all sinks should tell the user of it is returned.
        """
        ...

    def log(self, report: StepReport) -> None:
        """Take one step's figures."""
        ...

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """Take what the model said after a step."""
        ...

    def note(self, text: str) -> None:
        """Take a remark that the user should read, such as a warning."""
        ...

    def sync(self) -> Mapping[str, str] | None:
        """Make what was reported so far survive a kill: a trainer calls this before it saves a checkpoint.

        Of files that a resume stands on it returns a mark of each line, by name.
        """
        ...

    def close(self, summary: Summary | None) -> None:
        """End; ``None`` means that the run broke off or was stopped and may be taken up later."""
        ...


STEP_LISTENERS: ContextVar[tuple[Callable[[StepReport], object], ...]] = ContextVar(
    "STEP_LISTENERS", default=()
)
"""Functions that are told of each step of the runs of this call; what one raises ends the run."""


class FanOutSink:
    """Several sinks as one.

    A sink that fails with one of its own ``faults`` is switched off: one note goes to all the others,
    and so into summary.json, and the training goes on. Any other exception is a fault of the run.
    """

    name = "sinks"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def open(self, run: RunStart) -> None:
        sentences: list[str] = []
        self._for_each_sink(lambda sink: sentences.extend(sink.open(run) or ()))
        for sentence in sentences:
            self.note(sentence)

    def log(self, report: StepReport) -> None:
        self._for_each_sink(lambda sink: sink.log(report))
        for tell in STEP_LISTENERS.get() if self._sinks else ():
            tell(report)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        self._for_each_sink(lambda sink: sink.sample(step, rows))

    def note(self, text: str) -> None:
        self._for_each_sink(lambda sink: sink.note(text))

    def sync(self) -> dict[str, str]:
        """Have each keep what it was told so far; returns the marks of lines for the checkpoint."""
        marks: dict[str, str] = {}
        self._for_each_sink(lambda sink: marks.update(sink.sync() or {}))
        return marks

    def close(self, summary: Summary | None) -> None:
        """Close each, the run's own record last, so that it can still tell of a tracker that failed."""
        for sink in reversed(self._sinks.copy()):
            if sink in self._sinks:
                self._call_guarded(sink, lambda sink: sink.close(summary))
                self._sinks = [other for other in self._sinks if other is not sink]

    def _for_each_sink(self, action: Callable[[Sink], None]) -> None:
        for sink in self._sinks.copy():
            if sink in self._sinks:
                self._call_guarded(sink, action)

    def _call_guarded(self, sink: Sink, action: Callable[[Sink], None]) -> None:
        try:
            action(sink)
        except sink.faults as fault:
            self._sinks = [other for other in self._sinks if other is not sink]
            reason = f"{type(fault).__name__}: {fault}"
            self.note(f"{sink.name} failed and is switched off; training goes on without it ({reason})")


# Each of these libraries lets exceptions of many others through (HTTP clients, databases, its own
# service process), in a set that changes by release. None of them is worth the training.
_ANY_EXCEPTION: tuple[type[Exception], ...] = (Exception,)

_SAMPLE_COLUMNS = ["prompt", "completion", "expected"]
_DEFAULT_PROJECT = "plaudit"


class WandbSink:
    """Weights & Biases; ``WANDB_MODE=offline`` keeps everything in the run folder."""

    name = "wandb"
    faults = _ANY_EXCEPTION

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = import_required("wandb")
        self._folder = folder
        self._run: Any = None

    def open(self, run: RunStart) -> None:
        """Begin a W&B run, or continue the one that the run folder remembers."""
        run_id = _read_run_id(self._folder, self.name) if run.done else None
        run_id = run_id or secrets.token_hex(8)
        _write_run_id(self._folder, self.name, run_id)
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", _DEFAULT_PROJECT),
            name=run.name,
            id=run_id,
            resume="allow",
            dir=str(self._folder),
            config=dict(run.config),
            # W&B would otherwise wrap the terminal that the progress bar is drawn on.
            settings=self._wandb.Settings(console="off"),
        )

    def log(self, report: StepReport) -> None:
        """One history row; W&B itself leaves out steps that it has seen before."""
        self._run.log(report.flattened(), step=report.step)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        table = self._wandb.Table(
            columns=_SAMPLE_COLUMNS, data=[[r.prompt, r.completion, r.expected] for r in rows]
        )
        self._run.log({"samples": table}, step=step)

    def note(self, text: str) -> None:
        self._run.notes = "\n".join(filter(None, [self._run.notes, text]))

    def sync(self) -> None:
        """W&B keeps its own file up to date in another process."""

    def close(self, summary: Summary | None) -> None:
        """The best figures become the run's summary; a run that broke off is marked as failed."""
        if summary is not None:
            self._run.summary.update(_best_values(summary))
        self._run.finish(exit_code=0 if summary is not None else 1)


class MlflowSink:
    """MLflow, in a database in the run folder unless ``MLFLOW_TRACKING_URI`` says where."""

    name = "mlflow"
    faults = _ANY_EXCEPTION

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # MLflow's own 7 keep a training waiting for four minutes when the server is down.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        self._mlflow = import_required("mlflow")
        self._folder = folder
        self._client: Any = None
        self._run_id = ""

    def open(self, run: RunStart) -> None:
        """Create an MLflow run, or set the one that the run folder remembers to running again."""
        tracking_uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if tracking_uri is None:
            local = (self._folder / "mlflow").absolute()
            local.mkdir(parents=True, exist_ok=True)
            tracking_uri, artifacts = f"sqlite:///{local}/mlflow.db", (local / "artifacts").as_uri()
        self._client = self._mlflow.MlflowClient(tracking_uri=tracking_uri)
        previous_id = _read_run_id(self._folder, self.name) if run.done else None
        if previous_id is not None:
            self._run_id = previous_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _DEFAULT_PROJECT), artifacts)
        self._run_id = self._client.create_run(experiment, run_name=run.name).info.run_id
        _write_run_id(self._folder, self.name, self._run_id)
        self._client.log_dict(self._run_id, dict(run.config), "config.json")
        for name, value in flat_settings(run.config).items():
            # What every backend of MLflow takes.
            self._client.log_param(self._run_id, name, str(value)[:500])

    def log(self, report: StepReport) -> None:
        now = time.time_ns() // 1_000_000
        entity = self._mlflow.entities.Metric
        metrics = [entity(name, value, now, report.step) for name, value in report.flattened().items()]
        self._client.log_batch(self._run_id, metrics=metrics, synchronous=True)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        self._client.log_text(self._run_id, _samples_markdown(rows), f"samples/step-{step}.md")

    def note(self, text: str) -> None:
        """The run's note holds the latest; notes.jsonl in the run folder holds all."""
        self._client.set_tag(self._run_id, "mlflow.note.content", text)

    def sync(self) -> None:
        """Every call has already reached the server or the database."""

    def close(self, summary: Summary | None) -> None:
        """The best figures become the tag ``best``; a run that broke off is marked as killed."""
        if summary is not None:
            self._client.set_tag(self._run_id, "best", json.dumps(_best_values(summary)))
        self._client.set_terminated(self._run_id, "FINISHED" if summary is not None else "KILLED")

    def _experiment(self, name: str, artifacts: str | None) -> str:
        experiment = self._client.get_experiment_by_name(name)
        return experiment.experiment_id if experiment else self._client.create_experiment(name, artifacts)


class TrackioSink:
    """trackio, in the run folder unless ``TRACKIO_DIR`` or ``TRACKIO_SPACE_ID`` says where."""

    name = "trackio"
    faults = _ANY_EXCEPTION

    def __init__(self, folder: Path) -> None:
        # trackio reads this once, when it is first imported.
        os.environ.setdefault("TRACKIO_DIR", str((folder / "trackio").absolute()))
        self._trackio = import_required("trackio")
        self._run: Any = None

    def open(self, run: RunStart) -> None:
        """Begin a trackio run, or continue the latest of this name."""
        with redirect_stdout(sys.stderr):
            self._run = self._trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", _DEFAULT_PROJECT),
                name=run.name,
                config=dict(run.config),
                resume="allow" if run.done else "never",
                embed=False,
            )

    def log(self, report: StepReport) -> None:
        self._run.log(report.flattened(), step=report.step)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        self._run.log({"samples": self._trackio.Markdown(_samples_markdown(rows))}, step=step)

    def note(self, text: str) -> None:
        """trackio has no place for remarks; notes.jsonl in the run folder has them."""

    def sync(self) -> None:
        """trackio sends from a thread of its own."""

    def close(self, summary: Summary | None) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


def _best_values(summary: Summary) -> dict[str, Number]:
    return {f"best/{name}": best.value for name, best in summary.best.items()}


def _samples_markdown(rows: Sequence[Sample]) -> str:
    return "\n\n---\n\n".join(
        f"**asked**\n\n{row.prompt}\n\n**answered**\n\n{row.completion}" for row in rows
    )


def _read_run_id(folder: Path, tracker: str) -> str | None:
    path = _run_id_path(folder, tracker)
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def _write_run_id(folder: Path, tracker: str, run_id: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(_run_id_path(folder, tracker), run_id + "\n")


def _run_id_path(folder: Path, tracker: str) -> Path:
    return folder / f"{tracker}-run-id.txt"
