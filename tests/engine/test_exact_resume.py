"""A run that was killed, again and again and anywhere, ends as if it had never been."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import Command, Outcome, cold, finish, outcome, plaudit, sft

Moment = Callable[[], bool]
MANNERS: dict[str, tuple[object, ...]] = {
    "lora": ("--lora.rank", 2, "--lora.dropout", 0.2),
    "accumulation": ("--memory.tokens-at-once", 40),
    "padded": ("--memory.layout", "left", "--memory.checkpointing"),
    "judged": ("--judge.by", "length:1-20", "--judge.tokens", 8),
    "sgd": ("--optimizer.name", "sgd"),
    "background": ("--keep.background", "--save-every", 1),
    "bytes": ("--optimizer.state", "float8"),
    "half": ("--dtype", "bfloat16", "--optimizer.state", "bfloat16", "--deterministic"),
    "compiled": ("--compile", "--dtype", "bfloat16"),
    "own": ("--optimizer.name", "tests.engine.toy_optimizers:counting"),
}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("gpt2"), family="gpt2")


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that nothing happened to, started as a user does."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    process = cold(*sft(toy, out))
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return outcome(out)


def half_written(folder: Path, name: str) -> set[Path]:
    return {*folder.glob(f".{name}*.partial")}


def during_a_save(out: Path, after: int = 0) -> Moment:
    """While a checkpoint is half written, once there are some whole ones."""
    folder = out / "checkpoints"
    before = half_written(folder, "step-")
    return lambda: len([*folder.glob("step-*")]) >= after and bool(half_written(folder, "step-") - before)


def while_the_model_is_written(out: Path) -> Moment:
    before = half_written(out, "model")
    return lambda: bool(half_written(out, "model") - before)


def while_rows_are_read(out: Path) -> Moment:
    return (out / "lineage.json").exists


def when_steps_are_done(out: Path, steps: int) -> Moment:
    metrics = out / "metrics.jsonl"
    return lambda: metrics.exists() and len(metrics.read_bytes().splitlines()) >= steps


def at_random(chance: random.Random, longest: float = 1.0) -> Moment:
    end = time.monotonic() + chance.uniform(0, longest)
    return lambda: time.monotonic() > end


def same(run: Path, undisturbed: Outcome) -> None:
    found = outcome(run)
    for line, expected in zip(found.metrics, undisturbed.metrics, strict=True):
        assert line == expected
    assert found.samples == undisturbed.samples
    assert found.weights == undisturbed.weights


@pytest.mark.slow
def test_it_is_killed_in_every_place_that_can_be_seen(device, toy, undisturbed, tmp_path):
    out = tmp_path / "run"
    # A GPU adds up in one order when it is asked to.
    more = () if device.type == "cpu" else ("--device", device.type, "--deterministic")
    command = sft(toy, out, *more)
    if more:
        finish(*sft(toy, tmp_path / "undisturbed", *more))
        undisturbed = outcome(tmp_path / "undisturbed")
    moments: list[Callable[[Path], Moment]] = [
        while_rows_are_read,
        during_a_save,
        partial(during_a_save, after=1),
        partial(during_a_save, after=2),
        while_the_model_is_written,
        while_the_model_is_written,
    ]
    for moment in moments:
        assert Command(command).kill_when(moment(out)).code == -signal.SIGKILL
    done = plaudit(*command)
    assert done.code == 0
    assert "did not end in good order" in done.err
    assert "partial: left half written by a run that was killed; removed" in done.err
    assert half_written(out, "model") == half_written(out / "checkpoints", "") == set()
    same(out, undisturbed)


@pytest.mark.parametrize(
    "manner", [pytest.param(name, marks=[] if name == "lora" else [pytest.mark.slow]) for name in MANNERS]
)
def test_it_is_killed_at_random_however_it_learns(toy: Toy, tmp_path: Path, manner: str) -> None:
    chance = random.Random(manner)
    out = tmp_path / "run"
    finish(*sft(toy, tmp_path / "undisturbed", *MANNERS[manner]))
    command = sft(toy, out, *MANNERS[manner])
    Command(command).kill_when(during_a_save(out, after=1))
    for _ in range(2):
        Command(command).kill_when(at_random(chance))
    finish(*command)
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_a_model_with_dropout_in_its_config_goes_on_exactly(gpt2: Toy, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finish(*sft(gpt2, tmp_path / "undisturbed"))
    Command(sft(gpt2, out)).kill_when(during_a_save(out, after=1))
    finish(*sft(gpt2, out))
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_it_is_killed_while_it_looks_at_what_it_has_learnt(toy: Toy, tmp_path: Path) -> None:
    """Nearly all of this run's time goes into held-out rows and samples."""
    long = ("--held-out", 0.5, "--evaluate-every", 1, "--sample-every", 1, "--sample.tokens", 32)
    out = tmp_path / "run"
    finish(*sft(toy, tmp_path / "undisturbed", *long))
    command = sft(toy, out, *long)
    chance = random.Random(1)
    for lines in (1, 4, 7):
        running = Command(command)
        running.until(when_steps_are_done(out, lines))
        running.kill_when(at_random(chance, 0.1))
    finish(*command)
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_it_is_killed_at_any_moment_until_it_is_done(toy, undisturbed, tmp_path, seed):
    chance = random.Random(seed)
    out = tmp_path / "run"
    command = sft(toy, out)
    for _ in range(40):
        if Command(command).kill_when(at_random(chance, 0.8)).code == 0:
            break
    finish(*command)
    same(out, undisturbed)
