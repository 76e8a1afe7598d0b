"""Two ranks learn the reward that one process learns, their weights divided or not: figures and model.

A batch has 5 rows and the last one of an epoch a single one, so that a rank is muted; pieces hold 60 tokens.
What is left is the order of sums: 1e-10 relative in float64, 1e-5 in float32, roundings in bfloat16.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from plaudit.data.judging import Task
from plaudit.rewards.load import load_reward
from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import (
    TOLERANCE,
    Trained,
    check_as_one,
    files_of,
    in_groups,
    lines,
    stages,
)
from tests.methods.reward_model.rows import make_files

pytestmark = pytest.mark.slow

EXACT = ("--dtype", "float64")
MANNERS: dict[str, tuple[str, ...]] = {
    "comparisons": (*EXACT, "--reward.normalise", "demonstrations"),
    "rankings": (*EXACT, "--memory.layout", "left", "--memory.checkpointing"),
    "ratings": (*EXACT, "--reward.pooling", "mean"),
    "steps": (*EXACT, "--batch-size", "1"),
    "rankings, float32": ("--dtype", "float32"),
    "rankings, bfloat16": ("--dtype", "bfloat16"),
    "comparisons, adapted": (*EXACT, "--lora.rank", "2"),
    "thumbs, in two stages": (*EXACT, "--pretraining.data", "comparisons", "--steps", "2"),
    "comparisons, several": (*EXACT, "--ensemble.members", "2", "--steps", "2"),
}
WAYS = ("data", "shard")
QUICK = ("comparisons", "comparisons, several")
PAIRS = [(manner, way) for manner in MANNERS for way in WAYS]


def train(folder: Path, manners: Sequence[str]) -> Trained:
    toy, files = make_files(folder / "toy", rows=22)

    def command(name: str, manner: str, *more: str) -> Run:
        own = [str(files[word]) if word in files else word for word in MANNERS[manner]]
        arguments = (
            *("train", "reward", "--model", str(toy.model), "--out", str(folder / name)),
            *("--data", str(files[manner.partition(",")[0]]), "--steps", "5", "--batch-size", "5"),
            *("--learning-rate", "0.01", "--held-out", "0.1", "--memory.tokens-at-once", "60"),
            *("--evaluate-every", "2", "--sample-every", "4", "--sample.rows", "2", "--sample.tokens", "6"),
            *("--device", "cpu", *own, *more),
        )
        return Run(arguments=arguments, environment={})

    alone = {manner: command(manner, manner) for manner in manners}
    together = {f"{manner} data": command(f"{manner} data", manner) for manner in manners}
    together |= {f"{manner} shard": command(f"{manner} shard", manner, "--shard") for manner in manners}
    return Trained(
        folder=folder, alone=run_all(alone, folder, ranks=1), together=run_all(together, folder, ranks=2)
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    return in_groups(train, MANNERS, QUICK, tmp_path_factory)


def tolerance(manner: str) -> float:
    # Figures of rewards are differences: in float32 they lose a digit that losses keep.
    return 2 * TOLERANCE.get(manner.rpartition(" ")[2], 1e-10)


@pytest.mark.parametrize(("manner", "way"), PAIRS)
def test_two_ranks_learn_what_one_process_learns(trained, manner, way):
    near = tolerance(manner)
    check_as_one(trained(manner), manner, way, near)
    alone, together = (stages(trained(manner).folder / name) for name in (manner, f"{manner} {way}"))
    assert len(alone) == (2 if "stages" in manner or "several" in manner else 1)
    for runs in zip(alone, together, strict=True):
        wanted, said = (json.loads((run / "model" / "plaudit_reward.json").read_text()) for run in runs)
        for name in ("pooling", "vocabulary"):
            assert said.pop(name) == wanted.pop(name)
        assert said == pytest.approx(wanted, rel=near, abs=near)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("manner", ["comparisons", "comparisons, several"])
def test_the_folder_of_two_ranks_is_the_reward_of_one(trained, manner, way):
    folder, together = (trained(manner).folder / name for name in (manner, f"{manner} {way}"))
    assert files_of(folder) == files_of(together)
    task = Task(prompt="1 the cat?", answers=(" two dogs.", " a red mat."), ended=(True, True))
    one, other = (load_reward(run, device="cpu").scores([task])[0] for run in (folder, together))
    assert other == pytest.approx(one, abs=1e-6)
    assert None not in one


@pytest.mark.parametrize("manner", QUICK)
def test_learning_was_worth_comparing(trained: Callable[[str], Trained], manner: str) -> None:
    for run in stages(trained(manner).folder / manner):
        losses = [line["loss"] for line in lines(run)]
        assert max(losses) - min(losses) > 1e-3
