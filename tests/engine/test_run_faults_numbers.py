"""Numbers that are not finite: found before a weight moves, the row named, what follows is chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import Command, Done, outcome, plaudit, sft

pytestmark = pytest.mark.slow

QUIET = ("--sample.rows", 0, "--sinks", "tensorboard")
BAD_STEPS = [3, 8]  # When row 7 comes up.


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Toy]:
    """Base models that give NaN or infinity for one token, or only a gradient that is not finite."""
    folder = tmp_path_factory.mktemp("toys")
    return {rare: make_toy(folder / rare, rare=rare) for rare in ("nan", "inf", "tiny")}


def run(toy: Toy, out: Path, how: str, *more: object) -> Done:
    return plaudit(*sft(toy, out, *QUIET, "--safety.on-nonfinite", how, *more))


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


def notes(out: Path) -> list[str]:
    return [json.loads(line)["note"] for line in (out / "notes.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("rare", "what"), [("nan", "loss"), ("inf", "loss"), ("tiny", "gradient")])
def test_raise_names_the_row_and_changes_no_weight(toys, tmp_path, rare, what):
    done = run(toys[rare], tmp_path, "raise", "--save-every", 1)
    assert done.code == 2
    assert (
        f"plaudit: step 3: the {what} (rows.jsonl:7) is not a finite number; no weight was changed. "
        "Look at these rows, lower the learning rate, or let the run pass over such steps with "
        "--safety.on-nonfinite skip\n"
    ) in done.err
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-00000002\n"
    again = run(toys[rare], tmp_path, "raise", "--save-every", 1)
    assert again.code == 2
    assert "step 3: the" in again.err


def test_with_accumulation_the_row_is_named_too(toys: dict[str, Toy], tmp_path: Path) -> None:
    done = run(toys["tiny"], tmp_path, "raise", "--memory.tokens-at-once", 40)
    assert "the gradient (rows.jsonl:7) is not a finite number" in done.err


@pytest.mark.parametrize(
    ("rare", "how"),
    [
        ("nan", "skip"),
        ("tiny", "rollback"),
        pytest.param("nan", "rollback", marks=pytest.mark.slow),
        pytest.param("tiny", "skip", marks=pytest.mark.slow),
    ],
)
def test_the_step_is_left_out_counted_noted_and_the_run_resumes_exactly(toys, tmp_path, rare, how):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(toys[rare], whole, how).code == 0
    for step in (4, 9):
        command = Command(sft(toys[rare], killed, *QUIET, "--safety.on-nonfinite", how))
        command.kill_when(lambda step=step: f'{{"step": {step},' in read(killed / "metrics.jsonl"))
    assert run(toys[rare], killed, how).code == 0
    assert outcome(killed) == outcome(whole)
    assert [line["step"] for line in lines(whole)] == list(range(1, 11))
    assert [line["step"] for line in lines(whole) if line.get("grad_norm") is None] == BAD_STEPS
    said = [note for note in notes(whole) if "is not a finite number" in note]
    assert [note.partition(":")[0] for note in said] == ["step 3", "step 8"]
    assert said[1].endswith("(number 2 of at most 5)")
    assert (
        said == json.loads((whole / "summary.json").read_text())["notes"][-len(said) :] or how == "rollback"
    )


def test_a_step_that_is_left_out_moves_neither_weights_nor_optimiser(toys, tmp_path):
    assert run(toys["nan"], tmp_path, "skip", "--steps", 4, "--save-every", 1, "--keep.last", 9).code == 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        before, left_out, after = (
            (tmp_path / "checkpoints" / f"step-0000000{step}" / name).read_bytes() for step in (2, 3, 4)
        )
        assert before == left_out != after


def test_leaving_out_and_rolling_back_lead_to_the_same_weights(toys: dict[str, Toy], tmp_path: Path) -> None:
    for how in ("skip", "rollback"):
        assert run(toys["nan"], tmp_path / how, how).code == 0
    skipped, rolled = (
        load_file(tmp_path / how / "model" / "model.safetensors") for how in ("skip", "rollback")
    )
    assert skipped.keys() == rolled.keys()
    assert all(skipped[name].tobytes() == rolled[name].tobytes() for name in skipped)


@pytest.mark.parametrize("how", ["skip", "rollback"])
def test_the_limit_is_kept_also_after_a_kill(toys: dict[str, Toy], tmp_path: Path, how: str) -> None:
    command = sft(toys["nan"], tmp_path, *QUIET, "--safety.on-nonfinite", how, "--safety.skip-limit", 1)
    Command(command).kill_when(lambda: '{"step": 6,' in read(tmp_path / "metrics.jsonl"))
    done = plaudit(*command)
    assert done.code == 2
    assert (
        "plaudit: step 8: the loss (rows.jsonl:7) is not a finite number; no weight was changed. It would be "
        "step number 2 to be left out, and safety.skip_limit is 1: the run stops. "
        "Look at these rows, or lower the learning rate\n"
    ) in done.err


def read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""
