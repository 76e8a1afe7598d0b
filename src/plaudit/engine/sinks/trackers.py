"""The trackers TensorBoard, Weights & Biases, MLflow and trackio as sinks of a run.

Each is imported only when asked for, named when missing, and local unless told otherwise: their own
environment variables (``WANDB_MODE``, ``WANDB_PROJECT``, ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``,
``TRACKIO_SPACE_ID``, …) keep their meaning. What they report about their users to their makers is turned off
unless those variables turn it on.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from plaudit.engine.run_folder import flat_settings
from plaudit.engine.sinks.base import RunStart, Sample, Summary
from plaudit.engine.step_report import Number, StepReport
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


# Each of these libraries lets exceptions of many others through (HTTP clients, databases, its own
# service process), in a set that changes by release. None of them is worth the training.
_ANY_EXCEPTION: tuple[type[Exception], ...] = (Exception,)

_SAMPLE_COLUMNS = ["prompt", "completion", "expected"]
_DEFAULT_PROJECT = "plaudit"


class TensorboardSink:
    """Writes every figure as a scalar, samples and notes as text."""

    name = "tensorboard"
    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        import_required("tensorboard")
        self._folder = folder / "tensorboard"
        self._writer: Any = None
        self._step = 0

    def open(self, run: RunStart) -> None:
        """A new events file; TensorBoard then hides what earlier files say of steps that are repeated."""
        from torch.utils.tensorboard import SummaryWriter

        self._step = run.done
        self._writer = SummaryWriter(str(self._folder), purge_step=run.done + 1 if run.done else None)

    def log(self, report: StepReport) -> None:
        self._step = report.step
        for name, value in report.flattened().items():
            self._writer.add_scalar(name, value, global_step=report.step)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """The answers under the tab of texts, as code, so that nothing in them is taken for Markdown."""
        for number, row in enumerate(rows):
            text = f"{_markdown_code(row.prompt)}\n\n{_markdown_code(row.completion)}"
            self._writer.add_text(f"samples/{number}", text, global_step=step)

    def note(self, text: str) -> None:
        """A text at the last reported step."""
        self._writer.add_text("notes", _markdown_code(text), global_step=self._step)

    def sync(self) -> None:
        self._writer.flush()

    def close(self, summary: Summary | None) -> None:
        self._writer.close()


def _markdown_code(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


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
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _DEFAULT_PROJECT)
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else self._client.create_experiment(name, artifacts)
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
