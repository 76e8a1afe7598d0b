"""A checkpoint belongs to a run, not to a number of ranks.

Stopped on two ranks it goes on exactly on two, to the bit; on another number of ranks only the order of sums
differs: 1e-10 relative in float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.engine.distributed.runs import Run, Said, run_all
from tests.engine.distributed.test_same_numbers import apart, lines
from tests.engine.toy import Toy, make_toy

pytestmark = pytest.mark.slow

STOPPED = 143
"""The exit code of a command that SIGTERM has ended in good order."""
STORIES = {
    # Where it is started, whether divided; where it goes on.
    "2 → 2": (2, False, 2),
    "2 → 1": (2, False, 1),
    "1 → 2": (1, False, 2),
    "2 divided → 2 divided": (2, True, 2),
    "2 divided → 1": (2, True, 1),
    "1 → 2 divided": (1, True, 2),
}
QUICK = ("2 → 2", "2 → 1", "2 divided → 1")
CHANGED = [name for name, (before, _, after) in STORIES.items() if before != after]
UNCHANGED = [name for name in STORIES if name not in CHANGED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said before and after the stop."""

    folder: Path
    """Where the run folders lie."""
    stopped: dict[str, list[Said]]
    """By the ranks that were stopped."""
    done: dict[str, list[Said]]
    """By the ranks that went on."""


def tell(folder: Path, names: Sequence[str]) -> Told:
    toy = make_toy(folder / "toy")
    # The last rank is told to stop in its third step, which all ranks still finish.
    stop = {name: command(toy, folder, name, TOY_STOP=f"{STORIES[name][0] - 1}:3") for name in names}
    go_on = {name: command(toy, folder, name) for name in names}
    # The first of them is what the stories of changed ranks are compared with.
    wholes = [name for name in UNCHANGED if name in names or name == UNCHANGED[0]]
    whole = {f"whole {name}": command(toy, folder, f"whole {name}", like=name) for name in wholes}
    stopped = run_all(of(stop, "stop", before=1), folder, ranks=1)
    both = of(stop, "stop", before=2) | of(go_on, "go on", after=2) | whole
    done = stopped | run_all(both, folder, ranks=2) | run_all(of(go_on, "go on", after=1), folder, ranks=1)
    return Told(
        folder=folder,
        stopped={name: done[f"stop {name}"] for name in names},
        done={name: done[f"go on {name}"] for name in names},
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Told]:
    """What became of a story, told when the first of its group is asked for."""

    @cache
    def group(quick: bool) -> Told:
        names = [name for name in STORIES if (name in QUICK) == quick]
        return tell(tmp_path_factory.mktemp("stories"), names)

    return lambda name: group(name in QUICK)


def of(
    runs: dict[str, Run], what: str, *, before: int | None = None, after: int | None = None
) -> dict[str, Run]:
    """Those of the stories that begin, or end, on so many ranks."""
    return {
        f"{what} {name}": run
        for name, run in runs.items()
        if before in (None, STORIES[name][0]) and after in (None, STORIES[name][2])
    }


def command(toy: Toy, folder: Path, name: str, *, like: str | None = None, **environment: str) -> Run:
    _, divided, _ = STORIES[like or name]
    arguments = (
        *("train", "sft", "--model", str(toy.model), "--data", str(toy.data), "--out", str(folder / name)),
        *("--steps", "6", "--batch-size", "5", "--learning-rate", "0.01", "--held-out", "0.1"),
        *("--dtype", "float64", "--memory.tokens-at-once", "60", "--evaluate-every", "2"),
        *("--save-every", "100", "--sample.rows", "0", "--device", "cpu"),
        *("--optimizer.name", "tests.engine.distributed.user_optimizers:terminated", *["--shard"][:divided]),
    )
    return Run(arguments=arguments, environment=environment)


@pytest.mark.parametrize("name", STORIES)
def test_every_rank_stops_at_the_same_step_and_one_says_so(told: Callable[[str], Told], name: str) -> None:
    first, *others = told(name).stopped[name]
    assert [said.code for said in (first, *others)] == [STOPPED] * STORIES[name][0]
    assert "stopped by SIGTERM; the same command goes on from here" in first.err
    assert [said.err for said in others] == [""] * len(others)
    assert len(lines(told(name).folder / name)) == 6


@pytest.mark.parametrize("name", STORIES)
def test_it_goes_on_and_only_the_first_rank_says_so(told: Callable[[str], Told], name: str) -> None:
    first, *others = told(name).done[name]
    assert [said.code for said in (first, *others)] == [0] * STORIES[name][2]
    assert [said.out + said.err for said in others] == [""] * len(others)


def test_one_process_says_that_there_is_nobody_to_divide_with(told: Callable[[str], Told]) -> None:
    assert "note: shard: one process alone" in told("2 divided → 1").done["2 divided → 1"][0].err


@pytest.mark.parametrize("name", UNCHANGED)
def test_on_as_many_ranks_it_goes_on_to_the_bit(told: Callable[[str], Told], name: str) -> None:
    assert lines(told(name).folder / name) == lines(told(name).folder / f"whole {name}")
    found, expected = (
        (told(name).folder / run / "model" / "model.safetensors").read_bytes()
        for run in (name, f"whole {name}")
    )
    assert found == expected


@pytest.mark.parametrize("name", CHANGED)
def test_on_another_number_of_ranks_it_goes_on_but_for_the_order_of_sums(told, name):
    whole = told(name).folder / f"whole {UNCHANGED[0]}"
    for found, expected in zip(lines(told(name).folder / name), lines(whole), strict=True):
        assert found.keys() == expected.keys()
        assert max(apart(found[key], expected[key]) for key in expected) < 1e-10
    ours, theirs = (
        load_file(run / "model" / "model.safetensors") for run in (told(name).folder / name, whole)
    )
    for key, weight in theirs.items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-10, atol=1e-10)
