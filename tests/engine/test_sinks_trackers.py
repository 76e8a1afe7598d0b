"""W&B, MLflow and trackio. What needs the real library runs where it is installed and says so where not."""

import json
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from plaudit.engine.sinks.base import RunStart, Sample, summarise
from plaudit.engine.sinks.files import sinks_for
from plaudit.engine.sinks.trackers import WandbSink, import_required
from plaudit.engine.step_report import StepReport
from plaudit.errors import UserError

TRACKERS = ("wandb", "mlflow", "trackio")

PROGRAM = """
import json, sys
from pathlib import Path
from plaudit.engine.step_report import StepReport
from plaudit.engine.sinks.files import read_reports
from plaudit.engine.sinks.base import FanOutSink, RunStart, Sample, summarise
from plaudit.engine.sinks.files import sinks_for

name, folder, done = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
sinks = FanOutSink(sinks_for([name], folder))
sinks.open(RunStart(name="toy", steps=4, done=done, config={"model": {"layers": 2}, "rate": 0.001}))
for step in range(done + 1, done + 3):
    values, timing = {"loss": 1 / step}, {"seconds": 0.5}
    sinks.log(StepReport(step=step, steps=4, epoch=step / 4, values=values, timing=timing))
sinks.sample(done + 2, [Sample(prompt="Name a fruit.", completion="An apple.")])
sinks.note("careful")
sinks.sync()
sinks.close(summarise(read_reports(folder)) if done else None)
"""


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_names_the_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf'pip install "plaudit\[{name}\]"'):
        sinks_for([name], tmp_path)


def test_a_folder_of_the_same_name_is_not_taken_for_the_library(tmp_path, monkeypatch):
    (tmp_path / "not_a_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"only a folder of that name: \[.*not_a_tracker"):
        import_required("not_a_tracker")
    del sys.modules["not_a_tracker"]


def test_a_library_that_is_itself_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_tracker.py").write_text("import a_part_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_missing"):
        import_required("broken_tracker")


def test_no_tracker_is_imported_unless_asked_for(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from plaudit.engine.sinks.files import sinks_for
        sinks_for(["console"], Path(sys.argv[1]))
        print(sorted({"torch", "tensorboard", "wandb", "mlflow", "trackio"} & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "[]\n"


def report(step: int) -> StepReport:
    return StepReport(step=step, steps=4, epoch=0.5, values={"loss": 2.0}, timing={"seconds": 1.0})


class StandInRun:
    """Takes the place of a W&B run, for the translation of arguments alone."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, object]]] = []
        self.summary: dict[str, object] = {}
        self.notes: str | None = None
        self.ended: int | None = None

    def log(self, row: dict[str, object], step: int) -> None:
        self.rows.append((step, row))

    def finish(self, exit_code: int) -> None:
        self.ended = exit_code


@pytest.fixture
def stand_in(monkeypatch):
    """A module in the place of wandb that records what ``init`` was given."""
    begun: list[dict[str, object]] = []
    run = StandInRun()
    module = ModuleType("wandb")
    module.__dict__.update(
        __file__="stand-in",
        init=lambda **given: begun.append(given) or run,
        Settings=lambda **given: given,
        Table=lambda columns, data: [dict(zip(columns, row, strict=True)) for row in data],
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return begun, run


def test_wandb_gets_the_figures_at_their_step_and_the_best_at_the_end(tmp_path, stand_in):
    begun, run = stand_in
    sink = WandbSink(tmp_path)
    sink.open(RunStart(name="toy", steps=4, config={"rate": 0.1}))
    sink.log(report(1))
    sink.sample(1, [Sample(prompt="p", completion="c")])
    sink.note("one")
    sink.note("two")
    sink.close(summarise([report(1)]))
    assert begun[0]["config"] == {"rate": 0.1}
    assert (begun[0]["project"], begun[0]["name"], begun[0]["dir"]) == ("plaudit", "toy", str(tmp_path))
    assert run.rows == [
        (1, {"epoch": 0.5, "loss": 2.0, "timing/seconds": 1.0}),
        (1, {"samples": [{"prompt": "p", "completion": "c", "expected": None}]}),
    ]
    assert (run.summary, run.notes, run.ended) == ({"best/loss": 2.0}, "one\ntwo", 0)


def test_wandb_continues_its_run_on_resume_and_begins_another_on_a_fresh_start(tmp_path, stand_in):
    begun, run = stand_in
    for done in (0, 2, 0):
        sink = WandbSink(tmp_path)
        sink.open(RunStart(name="toy", steps=4, done=done))
        sink.close(None)
    first, resumed, fresh = (given["id"] for given in begun)
    assert first == resumed
    assert fresh != first
    assert run.ended == 1


def run_twice(name: str, folder: Path) -> None:
    """A run that is stopped after two steps and taken up, with the real library, without a network."""
    pytest.importorskip(name)
    for done in (0, 2):
        offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "PATH": "", "HOME": str(folder)}
        command = [sys.executable, "-c", PROGRAM, name, str(folder / "run"), str(done)]
        subprocess.run(command, check=True, env=offline, cwd=folder, timeout=200)
    notes = json.loads((folder / "run" / "summary.json").read_text())["notes"]
    assert notes == ["careful", "careful"], "the tracker was not switched off"


@pytest.mark.slow
def test_mlflow_itself_keeps_both_parts_as_one_run_in_the_run_folder(tmp_path):
    run_twice("mlflow", tmp_path)
    database = sqlite3.connect(tmp_path / "run" / "mlflow" / "mlflow.db")
    losses = database.execute("select step, value from metrics where key = 'loss' order by step").fetchall()
    assert losses == [(1, 1.0), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4)]
    assert database.execute("select name, status from runs").fetchall() == [("toy", "FINISHED")]
    settings = database.execute("select key, value from params order by key").fetchall()
    assert settings == [("model.layers", "2"), ("rate", "0.001")]
    database.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert "An apple." in next((tmp_path / "run").rglob("step-2.md")).read_text()


@pytest.mark.slow
def test_trackio_itself_keeps_both_parts_as_one_run_in_the_run_folder(tmp_path):
    run_twice("trackio", tmp_path)
    database = sqlite3.connect(tmp_path / "run" / "trackio" / "plaudit.db")
    rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    database.close()
    figures = [(run, step, json.loads(metrics)) for run, step, metrics in rows]
    losses = [(run, step, row["loss"]) for run, step, row in figures if "loss" in row]
    assert losses == [("toy", 1, 1.0), ("toy", 2, 1 / 2), ("toy", 3, 1 / 3), ("toy", 4, 1 / 4)]


@pytest.mark.slow
def test_wandb_itself_writes_both_parts_under_one_id_offline(tmp_path):
    run_twice("wandb", tmp_path)
    identity = (tmp_path / "run" / "wandb-run-id.txt").read_text().strip()
    parts = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{identity}*/run-{identity}.wandb"))
    assert len(parts) == 2
    assert all(b"timing/seconds" in part.read_bytes() for part in parts)
