"""What a step sees depends on the seed and the step alone: not on chance, pieces, the model or time."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import finish, sft

ROWS = 24
SINGLE = ("--batch-size", 1, "--steps", 2 * ROWS, "--held-out", 0, "--sample.rows", 0, "--save-every", 1000)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("toy"), rows=ROWS)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("gpt2"), rows=ROWS, family="gpt2")


def run(toy: Toy, out: Path, *more: object) -> list[dict[str, Any]]:
    finish(*sft(toy, out, *more))
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


def sizes(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Which row each step had, as far as its lengths tell."""
    return [(line["tokens"], line["length_max"]) for line in lines]


def test_every_row_comes_once_an_epoch_in_an_order_that_the_seed_alone_decides(toy, gpt2, tmp_path):
    first = sizes(run(toy, tmp_path / "first", *SINGLE))
    other_model = sizes(run(gpt2, tmp_path / "gpt2", *SINGLE, "--learning-rate", 1e-5))
    other_seed = sizes(run(toy, tmp_path / "seed", *SINGLE, "--seed", 1))
    assert first == other_model
    assert sorted(first[:ROWS]) == sorted(first[ROWS:]) == sorted(other_seed[:ROWS])
    assert len(set(first[:ROWS])) > ROWS / 2
    assert first[:ROWS] != first[ROWS:]
    assert first != other_seed


@pytest.mark.slow
def test_a_batch_in_pieces_gives_the_same_losses_and_gradients(toy: Toy, tmp_path: Path) -> None:
    options = ("--batch-size", 8, "--steps", 6)
    whole = run(toy, tmp_path / "whole", *options)
    pieces = run(toy, tmp_path / "pieces", *options, "--memory.tokens-at-once", 40)
    for one, other in zip(whole, pieces, strict=True):
        for name in ("loss", "grad_norm", "token_accuracy"):
            assert other[name] == pytest.approx(one[name], rel=1e-5)
        for name in ("tokens", "rows", "length_mean", "length_max", "learning_rate", "epoch"):
            assert other[name] == one[name]
    assert whole[-1]["held_out/loss"] == pytest.approx(pieces[-1]["held_out/loss"], rel=1e-5)


@pytest.mark.slow
def test_memory_does_not_creep(toy: Toy, tmp_path: Path) -> None:
    often = ("--evaluate-every", 10, "--sample-every", 20, "--save-every", 20)
    lines = run(toy, tmp_path / "run", "--steps", 120, *often)
    memory = [line["timing"]["memory_mib"] for line in lines]
    assert memory[-1] - memory[40] < 5, "MiB in 80 steps with saves, samples and looks"
