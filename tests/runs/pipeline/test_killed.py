"""A pipeline that was killed, wherever, ends as if it had never been; alone or with stages side by side."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.test_exact_resume import Moment, during_a_save
from tests.engine.toy_command import Command
from tests.runs.pipeline.places import results, stages, well, write_config


@pytest.fixture(scope="module")
def config(place: Path) -> Path:
    told = stages(place)
    for settings in told.values():
        if "steps" in settings or "rounds" in settings:
            settings["save_every"] = 1
    return write_config(place, told)


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    well(config, out)
    return results(out)


def exists(name: str) -> Callable[[Path], Moment]:
    return lambda out: (out / "stages" / name).exists


def saving(stage: str) -> Callable[[Path], Moment]:
    return lambda out: during_a_save(out / "stages" / stage / "run", after=1)


def written(stage: str) -> Callable[[Path], Moment]:
    return lambda out: lambda: any((out / "stages" / stage / "run").glob(".model*.partial"))


MOMENTS = [
    exists("demos/begun.json"),
    exists("demos/rows.jsonl"),
    exists("demos/stage.json"),
    saving("sft"),
    written("sft"),
    exists("sft/run/summary.json"),
    saving("reward"),
    exists("reward/stage.json"),
    saving("policy"),
    exists("policy/run/summary.json"),
]
"""In rows and training, between them, and before a stage is sealed."""
FEW = (1, 3, 8)


def killed(config: Path, out: Path, moments: list[Callable[[Path], Moment]], *more: object) -> None:
    again: list[object] = ["run", config, "--out", out, *more]
    codes = [Command(again).kill_when(moment(out)).code for moment in moments]
    assert codes.count(-signal.SIGKILL) >= len(moments) - 2, codes
    well(config, out, *more)


def test_it_is_killed_in_rows_and_in_training(config, undisturbed, tmp_path):
    killed(config, tmp_path / "out", [MOMENTS[place] for place in FEW])
    assert results(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_it_is_killed_everywhere(config, undisturbed, tmp_path):
    killed(config, tmp_path / "out", MOMENTS)
    assert results(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_stages_side_by_side_give_the_same_and_die_with_who_began_them(config, undisturbed, tmp_path):
    out = tmp_path / "out"
    killed(config, out, [exists("sft/run/metrics.jsonl"), saving("policy")], "--jobs", 2)
    assert results(out) == undisturbed


@pytest.mark.slow
def test_settings_that_changed_are_never_gone_on_with(config, tmp_path):
    out, again = tmp_path / "out", tmp_path / "again"
    assert Command(["run", config, "--out", out]).kill_when(saving("sft")(out)).code == -signal.SIGKILL
    for folder in (out, again):
        well(config, folder, "--set", "sft.learning_rate=0.01", "--only", "demos", "sft")
    assert results(out) == results(again)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_signal_saves_and_the_same_command_goes_on(config, undisturbed, tmp_path, jobs, number):
    out = tmp_path / "out"
    running = Command(["run", config, "--out", out, "--jobs", jobs])
    running.until(exists("policy/run/metrics.jsonl")(out))
    running.send(number)
    done = running.wait()
    assert done.code in (0, 128 + number), done.err
    assert done.code == 0 or jobs == 1 or "once more stops at once" in done.err
    well(config, out, "--jobs", jobs)
    assert results(out) == undisturbed


LOADED = """
import multiprocessing
from plaudit.runs.pipeline import PRELOADED, begin_loading
begin_loading()
with multiprocessing.get_context("forkserver").Pool(1) as pool:
    loaded = pool.apply(eval, ("set(__import__('sys').modules)",))
print(sorted({*PRELOADED, "torch", "transformers"} - loaded))
"""


@pytest.mark.slow
def test_what_stages_need_is_loaded_before_they_begin():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def loads(group: int) -> bool:
    """Whether a process of this group is the one that those of stages are forked from."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(command.parent.name)) == group and b"forkserver" in command.read_bytes():
                return True
    return False


@pytest.mark.slow
@pytest.mark.cases(quick=("0.1",))
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are told apart by /proc")
@pytest.mark.parametrize("seconds", [0.1, 2])
def test_ctrl_c_while_it_is_being_loaded_leaves_no_traceback(config, tmp_path, seconds):
    running = subprocess.Popen(
        [sys.executable, "-m", "plaudit", "run", config, "--out", tmp_path / "out", "--jobs", "2"],
        stderr=subprocess.PIPE,
        text=True,
        # A group of its own, as a terminal gives it: Ctrl-C reaches all of its processes.
        start_new_session=True,
    )
    while not loads(running.pid):
        assert running.poll() is None
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate()
    # All may have ended by then; and Python ends by the signal itself if it came while a string was executed.
    assert running.returncode in (0, 128 + signal.SIGINT, -signal.SIGINT), said
    assert "Traceback" not in said
