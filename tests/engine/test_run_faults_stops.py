"""SIGTERM and Ctrl-C: what is learnt is saved within a moment, and the same command goes on exactly."""

import signal
import time
from pathlib import Path

import pytest

from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import Command, Outcome, outcome, plaudit, sft

RARELY_SAVED = ("--save-every", 1000, "--evaluate-every", 1000)
ANNOUNCED = ("--optimizer.name", "tests.engine.toy_optimizers:announced")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("large"), rows=160)


@pytest.fixture(scope="module")
def whole(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    out = tmp_path_factory.mktemp("whole")
    assert plaudit(*sft(toy, out, *ANNOUNCED, *RARELY_SAVED)).code == 0
    return outcome(out)


def saved(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "checkpoints").glob("step-*"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_saves_says_so_and_goes_on_exactly(toy, whole, tmp_path, number, code):
    command = sft(toy, tmp_path / "run", *ANNOUNCED, *RARELY_SAVED)
    running = Command(command)
    running.until_said("a step is taken")
    running.send(number)
    done = running.wait()
    assert done.code == code
    assert f"{number.name}: saving as soon as it can be, then stopping; Ctrl-C stops at once" in done.err
    assert done.err.endswith(f"plaudit: stopped by {number.name}; the same command goes on from here\n")
    assert len(saved(tmp_path / "run")) == 1
    again = plaudit(*command)
    assert again.code == 0
    assert "in good order" not in again.err
    assert outcome(tmp_path / "run") == whole


@pytest.mark.slow
def test_a_long_step_is_left_between_its_pieces(large: Toy, tmp_path: Path) -> None:
    long = ("--batch-size", 160, "--memory.tokens-at-once", 30, "--steps", 2, "--sample.rows", 0)
    running = Command(sft(large, tmp_path / "run", *long))
    running.until_said("rows are held out")
    running.send(signal.SIGTERM)
    done = running.wait()
    assert done.code == 143
    assert (saved(tmp_path / "run"), outcome_lines(tmp_path / "run")) == (["step-00000000"], [])
    for out in ("run", "whole"):
        assert plaudit(*sft(large, tmp_path / out, *long)).code == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_a_long_look_at_held_out_rows_is_broken_off_and_made_up_for(large: Toy, tmp_path: Path) -> None:
    long = ("--held-out", 0.9, "--memory.tokens-at-once", 30, "--evaluate-every", 1, "--steps", 2, *ANNOUNCED)
    running = Command(sft(large, tmp_path / "run", *long))
    running.until_said("a step is taken")
    running.send(signal.SIGTERM)
    done = running.wait()
    assert done.code == 143
    assert (saved(tmp_path / "run"), outcome_lines(tmp_path / "run")) == (["step-00000001"], [])
    killed = Command(sft(large, tmp_path / "run", *long))
    killed.until(lambda: len(outcome_lines(tmp_path / "run")) == 1)
    killed.send(signal.SIGKILL)
    killed.wait()
    for out in ("run", "whole"):
        assert plaudit(*sft(large, tmp_path / out, *long)).code == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once(toy: Toy, tmp_path: Path) -> None:
    running = Command(sft(toy, tmp_path / "run", "--optimizer.name", "tests.engine.toy_optimizers:slow"))
    running.until_said("a step is taken")
    running.send(signal.SIGINT)
    running.until_said("SIGINT: saving")
    began = time.monotonic()
    running.send(signal.SIGINT)
    done = running.wait()
    assert (done.code, saved(tmp_path / "run")) == (130, [])
    assert done.err.endswith("plaudit: stopped\n")
    assert time.monotonic() - began < 20, "a step takes 60 s"


def outcome_lines(run: Path) -> list[str]:
    metrics = run / "metrics.jsonl"
    return metrics.read_text("utf-8").splitlines() if metrics.exists() else []
