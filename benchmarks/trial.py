"""One run of plaudit in a process of its own: what is trained, its steps, and what they cost."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
import transformers
from transformers import PreTrainedModel

import plaudit
from benchmarks.measure import MIB, Report, Watch, read_all
from benchmarks.turns import DEVICES
from plaudit.engine.metrics import matmul_rate, training_flops, values_of
from plaudit.engine.optimizer import schedule_factor
from plaudit.engine.settings import MemorySettings, OptimizerSettings
from plaudit.engine.step import StepOutcome, Stepper, take_step
from plaudit.tokens.microbatch import HasTokenCount

RATE = 2e-5
"""The peak learning rate: TRL's default for SFT, so that both sides move alike."""
OPTIMIZER = OptimizerSettings(schedule="linear", warmup=0.0, floor=0.0)
"""Likewise."""

RowT = TypeVar("RowT", bound=HasTokenCount)
"""What a batch is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Generic[RowT]):
    """A stepper that can take steps, and how a batch is divided for it.

    Example: ``Trial(stepper=…, pieces=…, flops=…, dtype="float32")``
    """

    stepper: Stepper[Any]
    """What takes a step."""
    pieces: Callable[[Sequence[RowT]], Sequence[Any]]
    """A batch as what goes through the model at once."""
    flops: Callable[[Sequence[RowT]], float]
    """The operations that a step on these rows needs."""
    dtype: str
    """What matrix products are made in."""

    def step(self, rows: Sequence[RowT], number: int, steps: int) -> StepOutcome:
        """One step of training on these rows."""
        return take_step(self.stepper, self.pieces(rows), RATE * schedule_factor(number, steps, OPTIMIZER))


def measured(trial: Trial[RowT], batches: Sequence[Sequence[RowT]]) -> Report:
    """Take a step on each batch and say what it cost."""
    device = next(trial.stepper.module.parameters()).device
    watch = Watch(device=device.type)
    losses: list[float] = []
    read_all(p.detach() for p in trial.stepper.module.parameters())
    watch.start()
    for number, batch in enumerate(batches, start=1):
        outcome = trial.step(batch, number, len(batches))
        assert outcome.fault is None, outcome.fault
        losses.append(values_of(outcome.metrics)["loss"])
        watch.step_done()
    state = sum(value.nbytes for slots in trial.stepper.optimizer.state.values() for value in slots.values())
    return Report(
        who=f"plaudit {plaudit.__version__}",
        setting=trial.dtype,
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        batch=len(batches[0]),
        first_loss=losses[0],
        seconds=tuple(watch.seconds),
        cpu_seconds=tuple(watch.cpu_seconds),
        base_mib=watch.resident_mib + state / MIB,
        peak_mib=watch.peak_mib,
        flops=statistics.median(trial.flops(batch) for batch in batches[1:] or batches),
        matmul_flops=matmul_rate(str(device), getattr(torch, trial.dtype)),
        tokens=sum(row.tokens for batch in batches for row in batch),
    )


def spared_flops(model: PreTrainedModel, tokens: int) -> float:
    """The last layer's feed-forward part need not be computed for tokens whose states are not asked for."""
    backbone: Any = model.base_model
    return training_flops(sum(p.numel() for p in backbone.layers[-1].mlp.parameters()), 0, tokens, 0)


def arguments(description: str) -> argparse.ArgumentParser:
    """What a run of ours can be told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("work", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layout", choices=("packed", "left", "right"), default=MemorySettings().layout)
    parser.add_argument("--tokens-at-once", type=int, default=MemorySettings().tokens_at_once)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    return parser


def batches_of(rows: Sequence[RowT], given: argparse.Namespace) -> list[Sequence[RowT]]:
    """The rows in their order, as many batches as there are steps."""
    batches = [rows[s * given.batch : (s + 1) * given.batch] for s in range(given.steps)]
    assert all(len(batch) == given.batch for batch in batches), "the work folder has too few rows"
    return batches
