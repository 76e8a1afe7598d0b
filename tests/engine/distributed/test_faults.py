"""A rank that fails ends the run at once: a message that says which rank, and a sentence from the others."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from plaudit.files import lock
from tests.engine.distributed.launch import PATIENCE, Done, finish, ranks_of, run, torchrun
from tests.engine.distributed.runs import Run, Said, run_all
from tests.engine.distributed.test_same_numbers import lines
from tests.engine.toy import Toy, make_toy

pytestmark = pytest.mark.slow

AT_ONCE = 10.0
"""Seconds from a fault to the end of everything; torchrun itself takes one or two."""


def sft(toy: Toy, out: Path, *more: str) -> tuple[str, ...]:
    return (
        *("train", "sft", "--model", str(toy.model), "--data", str(toy.data), "--out", str(out)),
        *("--steps", "40", "--batch-size", "4", "--held-out", "0", "--sample.rows", "0", "--sinks", "jsonl"),
        *("--device", "cpu", *more),
    )


def said_by_ranks(done: Done) -> str:
    """The error stream without what torchrun says itself, which comes last."""
    return re.split(r"^[WE]\d{4} ", done.err, maxsplit=1, flags=re.MULTILINE)[0]


def seconds_to_end(done: Done) -> float:
    """From the fault, which the toy optimiser announces as the only thing on standard output."""
    (moment,) = re.fullmatch(r"the end begins at (\S+)\n", done.out).groups()
    return done.at - float(moment)


def sentences(said: str) -> list[str]:
    """What ranks say in a line of their own."""
    return [line for line in said.splitlines() if line.startswith("plaudit: ")]


def wait_for(out: Path, steps: int, process: subprocess.Popen[str]) -> None:
    latest = time.monotonic() + PATIENCE
    while not (out / "metrics.jsonl").exists() or len(lines(out)) < steps:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < latest
        time.sleep(0.02)


def test_ranks_end_when_torchrun_is_killed_without_a_word(toy: Toy, tmp_path: Path) -> None:
    unhurried = ("--optimizer.name", "tests.engine.distributed.user_optimizers:unhurried", "--steps", "9999")
    process = torchrun("-m", "plaudit", *sft(toy, tmp_path / "run", *unhurried), cwd=tmp_path)
    wait_for(tmp_path / "run", 2, process)
    began = time.time()
    process.kill()
    # The ranks hold its streams as long as they live.
    assert finish(process).at - began < 3 * AT_ONCE


@pytest.fixture(scope="module")
def refused(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Said]]:
    """Faults that are the user's to mend, each on two ranks."""
    folder = tmp_path_factory.mktemp("refused")
    spoilt = make_toy(folder / "spoilt", rare="nan")
    (folder / "used").mkdir()
    bad = Toy(model=toy.model, data=folder / "bad.jsonl")
    bad.data.write_text(toy.data.read_text() + "{\n")
    commands = {
        "bad rows": sft(bad, folder / "bad", "--rows.threshold", "0"),
        "locked": sft(toy, folder / "used"),
        "not finite": sft(spoilt, folder / "not finite"),
        "not finite, divided": sft(spoilt, folder / "not finite, divided", "--shard"),
        "passed over": sft(spoilt, folder / "passed", "--safety.on-nonfinite", "skip", "--steps", "7"),
    }
    with lock.hold_lock(folder / "used"):
        plan = {name: Run(arguments=arguments, environment={}) for name, arguments in commands.items()}
        return run_all(plan, folder, ranks=2)


def test_a_folder_in_use_is_said_by_the_rank_that_found_it(refused: dict[str, list[Said]]) -> None:
    first, second = refused["locked"]
    assert (first.code, second.code) == (2, 2)
    assert first.err.startswith("plaudit: rank 0 of 2: ")
    assert "another run is using this folder" in first.err
    assert second.err == "plaudit: rank 1 of 2: stopped, because rank 0 failed\n"


def test_bad_rows_are_a_fault_of_all_ranks_and_the_first_one_lists_them(refused):
    first, second = refused["bad rows"]
    assert first.err.startswith("plaudit: rank 0 of 2: ")
    (listed,) = re.findall(r"(/\S+/quarantine\S*\.jsonl)", first.err)
    assert Path(listed).exists()
    assert second.err.startswith("plaudit: rank 1 of 2: stopped, because rank 0 failed; its own fault: ")


@pytest.mark.parametrize("fault", ["not finite", "not finite, divided"])
def test_a_row_that_is_not_finite_on_one_rank_is_named_once(refused, fault):
    said = refused[fault]
    assert [one.code for one in said] == [2, 2]
    (words,) = sentences("".join(one.err for one in said))
    assert re.match(r"plaudit: rank 0 of 2: step 3: the loss \(rows.jsonl:7\) is not a finite number", words)
    assert [one.out for one in said] == ["", ""]


def test_all_ranks_pass_over_the_step_of_a_row_that_one_has(refused: dict[str, list[Said]]) -> None:
    assert [said.code for said in refused["passed over"]] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("divided", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_exception_on_one_rank_is_shown_with_its_rank(toy: Toy, tmp_path: Path, divided: bool) -> None:
    own = ("--optimizer.name", "tests.engine.distributed.user_optimizers:raising", *["--shard"][:divided])
    done = run("-m", "--", "plaudit", *sft(toy, tmp_path / "run", *own), cwd=tmp_path, TOY_STOP="1:3")
    assert done.code == 1, done.err
    assert seconds_to_end(done) < AT_ONCE
    own_words = said_by_ranks(done)
    assert own_words.count("ArithmeticError: the moon is in the wrong phase") == 1
    assert "This was rank 1 of 2." in own_words
    assert own_words.count("Traceback") == 1
    assert sentences(own_words) in ([], ["plaudit: rank 0 of 2: stopped, because rank 1 failed"])
    # torchrun's own summary has the reason too, and ours stands behind it.
    assert done.err.count("ArithmeticError: the moon is in the wrong phase") >= 3
    last = "plaudit: rank 1 of 2: ArithmeticError: the moon is in the wrong phase"
    assert done.err.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("divided", "rank"),
    [(False, 1), *(pytest.param(*way, marks=pytest.mark.slow) for way in ((False, 0), (True, 1)))],
)
def test_a_killed_rank_takes_the_others_along(toy: Toy, tmp_path: Path, divided: bool, rank: int) -> None:
    own = ("--optimizer.name", "tests.engine.distributed.user_optimizers:killed", *["--shard"][:divided])
    done = run("-m", "--", "plaudit", *sft(toy, tmp_path / "run", *own), cwd=tmp_path, TOY_STOP=f"{rank}:3")
    assert done.code == 1
    assert seconds_to_end(done) < AT_ONCE
    own_words = said_by_ranks(done)
    assert "Traceback" not in own_words
    for line in sentences(own_words):
        assert line.startswith(f"plaudit: rank {1 - rank} of 2: another rank ended without a word")
    assert "Signal 9 (SIGKILL)" in done.err
    last = f"plaudit: rank {1 - rank} of 2: another rank ended without a word"
    assert done.err.splitlines()[-1].startswith(last)


@pytest.mark.slow
def test_a_rank_that_hangs_is_given_up_after_the_time_that_was_set(toy: Toy, tmp_path: Path) -> None:
    own = ("--optimizer.name", "tests.engine.distributed.user_optimizers:hanging")
    done = run(
        *("-m", "--", "plaudit", *sft(toy, tmp_path / "run", *own)),
        **{"cwd": tmp_path, "TOY_STOP": "1:3", "PLAUDIT_RANK_TIMEOUT": "5"},
    )
    assert done.code == 1
    # torchrun gives the hanging rank another 30 seconds to end.
    assert seconds_to_end(done) < 5 + 30 + AT_ONCE
    assert "plaudit: rank 0 of 2: another rank ended without a word, or did not answer in time" in done.err
    assert "Traceback" not in said_by_ranks(done)


@pytest.mark.slow
def test_torchrun_starts_the_ranks_again_and_the_run_goes_on_exactly(toy: Toy, tmp_path: Path) -> None:
    own = (
        "--optimizer.name",
        "tests.engine.distributed.user_optimizers:killed",
        "--save-every",
        "1",
        "--steps",
        "6",
    )
    whole = run("-m", "--", "plaudit", *sft(toy, tmp_path / "whole", *own), cwd=tmp_path)
    assert whole.code == 0, whole.err
    command = ("--max-restarts", 1, "-m", "--", "plaudit", *sft(toy, tmp_path / "run", *own))
    done = run(*command, cwd=tmp_path, TOY_STOP="1:3")
    assert done.code == 0, done.err
    assert "did not end in good order" in done.err
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("divided", [False, True])
def test_torchrun_is_stopped_and_then_killed_and_each_time_the_run_goes_on_exactly(toy, tmp_path, divided):
    own = (
        *("--optimizer.name", "tests.engine.distributed.user_optimizers:unhurried", *["--shard"][:divided]),
        *("--save-every", "3"),
    )
    whole = run("-m", "--", "plaudit", *sft(toy, tmp_path / "whole", *own), cwd=tmp_path)
    assert whole.code == 0, whole.err
    command = ("-m", "--", "plaudit", *sft(toy, tmp_path / "run", *own))
    process = torchrun(*command, cwd=tmp_path)
    wait_for(tmp_path / "run", 5, process)
    process.send_signal(signal.SIGTERM)
    stopped = finish(process)
    assert stopped.code != 0
    assert len(stopped.says("plaudit: stopped by SIGTERM")) == 1
    done = len(lines(tmp_path / "run"))
    process = torchrun(*command, cwd=tmp_path)
    wait_for(tmp_path / "run", done + 5, process)
    for pid in (process.pid, *ranks_of(process)):
        os.kill(pid, signal.SIGKILL)
    finish(process)
    last = run(*command, cwd=tmp_path)
    assert last.code == 0, last.err
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    ours, theirs = (
        (tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole")
    )
    assert ours == theirs
