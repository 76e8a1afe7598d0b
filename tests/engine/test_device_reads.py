"""A step waits for the device once: figures, norms and checks are read together, and all else stays there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import plaudit
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import mean_metric, merge_metrics, read_scalars
from plaudit.engine.step import ObjectiveResult, StepCheck, Stepper, take_step
from plaudit.errors import UserError
from plaudit.methods.policy.objective import ActorCritic
from plaudit.methods.reward_model import objective as reward
from plaudit.methods.supervised import objective as supervised
from plaudit.models.policy import Policy
from plaudit.models.reward_model import FreshHead
from tests.methods.policy import pieces as policy
from tests.methods.preference import pieces as preference
from tests.methods.reward_model import pieces as rewards
from tests.models.reward_zoo import fresh, start
from tests.models.zoo import build

SOURCE = Path(plaudit.__file__).parent
READS = {"item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "__contains__"}
"""What hands a tensor's numbers to Python."""
COUNTS = {"nonzero", "masked_select", "unique", "equal", "allclose"}
"""What needs a tensor's numbers to know what to return."""


class DeviceReads(TorchFunctionMode):
    """Notes where engine and methods wait for numbers of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        by_mask = name in ("__getitem__", "__setitem__") and _has_mask(args[1])
        caller = Path(sys._getframe(1).f_code.co_filename)
        if (name in READS | COUNTS or by_mask) and caller.is_relative_to(SOURCE):
            where = caller.relative_to(SOURCE).as_posix()
            if where.startswith(("engine/", "methods/", "losses/", "advantages/")):
                self.places.append(f"{where}:{name}")
        return func(*args, **(kwargs or {}))


def _has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, Tensor) and part.dtype == torch.bool for part in parts)


def stepper(module: torch.nn.Module, objective: Any) -> Stepper[Any]:
    return Stepper(
        module=module,
        optimizer=torch.optim.AdamW(module.parameters()),
        objective=objective,
        clip=1.0,
        ranks=single_process(),
    )


def sft_step(folder: Path) -> tuple[Stepper[Any], Sequence[Any]]:
    del folder
    model = Policy(build("llama", torch.float64)).train()
    examples = [row.example for row in preference.rows_for("dpo")]
    pieces = supervised.microbatches_of(examples, single_process(), 30)
    return stepper(model, supervised.likelihood_objective(model, nullcontext)), pieces


def reward_step(kind: str, folder: Path) -> tuple[Stepper[Any], Sequence[Any]]:
    model = fresh(start(folder), FreshHead(std=0.3), dtype=torch.float64)
    rows = rewards.rows_of_kind(kind)
    pieces = reward.microbatches_of(rows, single_process(), 30)
    return stepper(model, rewards.objective_of(model, rows)), pieces


def preference_step(name: str, folder: Path) -> tuple[Stepper[Any], Sequence[Any]]:
    del folder
    scene = preference.scene(name)
    return stepper(scene.policy, scene.objective), scene.pieces(60)


def policy_step(name: str, folder: Path) -> tuple[Stepper[Any], Sequence[Any]]:
    del folder
    scene = policy.scene(name)
    actor = ActorCritic(scene.policy, scene.critic)
    parts = () if scene.critic is None else (scene.policy, scene.critic)
    built = stepper(actor, scene.objective)
    return replace(built, clip_groups=parts), scene.pieces()


STEPS: dict[str, Callable[[Path], tuple[Stepper[Any], Sequence[Any]]]] = {
    "sft": sft_step,
    "reward comparisons": lambda folder: reward_step("comparisons", folder),
    "reward rankings": lambda folder: reward_step("rankings", folder),
    "reward ratings": lambda folder: reward_step("ratings", folder),
    "dpo": lambda folder: preference_step("dpo", folder),
    "kto": lambda folder: preference_step("kto", folder),
    "grpo": lambda folder: policy_step("grpo", folder),
    "ppo": lambda folder: policy_step("ppo", folder),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_reads_the_device_once(name: str, tmp_path: Path) -> None:
    built, pieces = STEPS[name](tmp_path)
    with DeviceReads() as reads:
        outcome = take_step(built, pieces, 1e-3)
    assert outcome.fault is None
    assert outcome.gradient_norm > 0
    assert reads.places == ["engine/metrics.py:tolist"]


def test_numbers_of_the_device_are_merged_as_those_of_the_host() -> None:
    counts = [(0.1, 3), (1e-8, 7), (2.5, 1)]
    host = merge_metrics(mean_metric("loss", torch.tensor(one).item(), many) for one, many in counts)
    device = merge_metrics(mean_metric("loss", torch.tensor(one), torch.tensor(many)) for one, many in counts)
    assert [one.value for one in device] == [one.value for one in host]
    assert read_scalars([]) == []


def test_an_unread_figure_says_so() -> None:
    with pytest.raises(ValueError, match="still on the device"):
        _ = mean_metric("loss", torch.tensor(1.0), 1).value


class OneRow:
    """The smallest micro-batch."""

    tokens = 1

    def rows(self) -> list[OneRow]:
        return [self]

    def shares(self, ranks: int, budget: int) -> list[list[OneRow]]:
        del budget
        return [[self] for _ in range(ranks)]


@pytest.mark.parametrize("value", [2.0, float("nan")])
def test_a_failed_check_changes_no_weight(value: float) -> None:
    module = torch.nn.Linear(1, 1)
    before = [weight.clone() for weight in module.parameters()]

    def objective(piece: OneRow) -> ObjectiveResult:
        del piece
        loss = module(torch.ones(1, 1)).sum()
        check = StepCheck(
            value=torch.tensor(value), limit=1.0, error=lambda found: UserError(f"{found} is odd")
        )
        return ObjectiveResult(
            loss=loss, loss_N=loss.detach()[None], origin_N=("a:1",), metrics=(), checks=(check,)
        )

    with pytest.raises(UserError, match=f"{value} is odd"):
        take_step(stepper(module, objective), [OneRow()], 1.0)
    assert all(torch.equal(one, two) for one, two in zip(before, module.parameters(), strict=True))
    with pytest.raises(UserError, match="is odd"):
        objective(OneRow()).refuse_failed_checks()
