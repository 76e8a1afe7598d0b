"""What the tests of the pages share: models in double precision, and a trainer's run with plain settings."""

import json
from pathlib import Path

import torch
from torch import nn

from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from tests.engine.toy_command import finish

FREE = 1e9
"""A norm that no gradient has: torch's clip divides by the norm + 1e-6, and the trainer by the norm."""
WIDER = {"cpu": 1, "cuda": 100}
"""How many times as far apart weights may come on a GPU, which adds up in other orders."""
PLAIN = (
    *("--held-out", 0, "--dtype", "float64", "--device", "cpu", "--sample.rows", 0),
    *("--optimizer.schedule", "constant", "--optimizer.warmup", 0, "--save-every", 100),
)
"""All rows, double precision, and a rate that stays what it is."""


def policy_of(folder: Path) -> Policy:
    """The model of a folder as the trainer has it: in double precision, with dropout off."""
    return Policy(load_model(folder, dtype=torch.float64, device=torch.device("cpu")))


def train(name: str, out: Path, *words: object) -> list[float]:
    finish("train", name, "--out", out, *PLAIN, *words)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def assert_same_weights(found: nn.Module, wanted: nn.Module, start: nn.Module, tolerance: float) -> None:
    """Every weight is the same in both, and not all are where they began."""
    names = [name for name, _ in wanted.named_parameters()]
    moved = 0.0
    for name, one, other, begun in zip(
        names, found.parameters(), wanted.parameters(), start.parameters(), strict=True
    ):
        assert float((one - other).detach().abs().max()) < tolerance, name
        moved = max(moved, float((other - begun).detach().abs().max()))
    assert moved > 1e-3
