"""A loop of rlhf that was killed, wherever, ends as if it had never been."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.test_exact_resume import Moment, during_a_save, same
from tests.engine.toy import Toy
from tests.engine.toy_command import Command, finish, outcome
from tests.methods.iterative.rlhf_runs import command, make_place
from tests.methods.iterative.test_loop_resume import exists, while_written

pytestmark = pytest.mark.slow

OWN = ("--save-every", 1, "--reward-run.epochs", 2, "--reward-run.held-out", 0.2)
MOMENTS: list[Callable[[Path], Moment]] = [
    exists("lineage.json"),
    exists("rounds/1/answers.jsonl"),
    exists("checkpoints/round-1-drawn.json"),
    exists("rounds/1/comparisons.jsonl"),
    exists("checkpoints/round-1-compared.json"),
    lambda out: during_a_save(out / "rounds" / "1" / "reward", after=1),
    while_written("rounds/1/reward", "model"),
    exists("rounds/1/reward/summary.json"),
    lambda out: during_a_save(out / "rounds" / "1" / "policy", after=1),
    exists("rounds/1/policy/summary.json"),
    exists("checkpoints/round-1.json"),
    exists("rounds/2/train.jsonl"),
    lambda out: during_a_save(out / "rounds" / "2" / "reward", after=1),
    lambda out: during_a_save(out / "rounds" / "2" / "policy"),
    while_written("rounds/2/policy", "model"),
    exists("checkpoints/round-2.json"),
    while_written(".", "model"),
]
"""Every part of a loop of two rounds."""
"""Between, within the reward's training, and within the policy's."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(*command(toy, out, *OWN))
    return out


def kept(out: Path) -> dict[str, bytes]:
    files = [out / "rounds.jsonl", out / "prompts.jsonl", *(out / "model").iterdir()]
    files += [path for n in (1, 2) for path in (out / "rounds" / str(n)).glob("*.jsonl")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def all_same(out: Path, expected: Path) -> None:
    assert kept(out) == kept(expected)
    for run in (Path("rounds") / n / part for n in "12" for part in ("reward", "policy")):
        same(out / run, outcome(expected / run))


def killed(toy: Toy, out: Path, moments: list[Callable[[Path], Moment]]) -> None:
    again: list[object] = [*command(toy, out, *OWN)]
    codes = [Command(again).kill_when(moment(out)).code for moment in moments]
    assert codes.count(-signal.SIGKILL) >= len(moments) - 3, codes
    finish(*again)
    assert not [path for path in out.rglob("*.partial") if "rounds" not in path.parts]


@pytest.mark.slow
def test_it_is_killed_in_every_part(toy: Toy, undisturbed: Path, tmp_path: Path) -> None:
    killed(toy, tmp_path / "run", MOMENTS)
    all_same(tmp_path / "run", undisturbed)


def test_a_signal_within_a_part_saves_first(toy: Toy, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    again: list[object] = [*command(toy, out, *OWN)]
    running = Command(again)
    running.until(exists("rounds/1/policy/metrics.jsonl")(out))
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.code in (0, 128 + signal.SIGINT), done.err
    finish(*again)
    all_same(out, undisturbed)
