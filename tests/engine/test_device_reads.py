"""A step waits for the device once: figures, norms and checks are read together, and all else stays there."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import plaudit
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import mean_metric, merge_metrics, read_scalars
from plaudit.engine.step import ObjectiveResult, StepCheck, Stepper, take_step
from plaudit.errors import UserError
from plaudit.methods.policy.objective import ActorCritic
from plaudit.methods.reward_model import objective as reward
from plaudit.methods.supervised import objective as supervised
from plaudit.models.policy import Policy, scatter_to_mask
from plaudit.models.reward_model import FreshHead
from plaudit.tokens.batch import TokenBatch, batch_of
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


FLOORS = ("models/", "tensors/", "tokens/")
"""Where a number may be read as long as it lies on the host."""
CALLED_THROUGH = ("torch/overrides.py", "torch/_tensor.py", "torch/functional.py", "torch/_jit_internal.py")
"""Files of torch that stand between a call and what it calls."""


class DeviceReads(TorchFunctionMode):
    """Notes where engine and methods wait for numbers of the device; below, of what is made of such tensors.

    There is no device here: weights and the tensors of batches that were moved stand for what lies on one,
    and with them all that is computed of them. Backward is autograd's own and is not listened to: of maximum
    likelihood it reads once whether the gradient made ahead is the right one (`tensors/logprobs.py`).
    """

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.places: list[str] = []
        self.floors: list[str] = []
        # The tensors are held, so that no id is given a second time.
        self._on_device: dict[int, Tensor] = {}
        self.move([] if module is None else [*module.parameters(), *module.buffers()])

    def move(self, value: Any) -> None:
        """All tensors within lie on the device from now on."""
        self._on_device |= {id(one): one for one in tree_leaves(value) if isinstance(one, Tensor)}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        by_mask = name in ("__getitem__", "__setitem__") and _has_mask(args[1])
        on_device = any(id(one) in self._on_device for one in tree_leaves((args, kwargs)))
        caller = _caller()
        if (name in READS | COUNTS or by_mask) and caller.is_relative_to(SOURCE):
            where = caller.relative_to(SOURCE).as_posix()
            if where.startswith(("engine/", "methods/", "losses/", "advantages/")):
                self.places.append(f"{where}:{name}")
            elif where.startswith(FLOORS) and on_device:
                self.floors.append(f"{where}:{name}")
        result = func(*args, **(kwargs or {}))
        if on_device:
            # What is written into is on the device as well.
            self.move((result, args[:1] if name.endswith("_") else ()))
        return result


def _caller() -> Path:
    """The file that asks, behind those by which torch hands a call on."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(CALLED_THROUGH):
        frame = frame.f_back
    return Path("" if frame is None else frame.f_code.co_filename)


def batches_on_device(
    monkeypatch: pytest.MonkeyPatch, reads: DeviceReads, *, forgetful: bool = False
) -> None:
    """A batch that is moved is made of other tensors, as on a GPU; ``forgetful``: and remembers no others."""

    def to(batch: TokenBatch, device: object) -> TokenBatch:
        del device
        tensors = {one.name: getattr(batch, one.name) for one in fields(batch) if one.init}
        moved = {name: one.clone() for name, one in tensors.items() if isinstance(one, Tensor)}
        reads.move(moved)
        there = replace(batch, **moved)
        object.__setattr__(there, "_host", there if forgetful else batch.host)
        return there

    monkeypatch.setattr(TokenBatch, "to", to)


def _has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, Tensor) and part.dtype == torch.bool for part in parts)


def stepper(module: torch.nn.Module, objective: Any) -> Stepper[Any]:
    optimizer = torch.optim.AdamW(module.parameters())
    return Stepper(module=module, optimizer=optimizer, objective=objective, clip=1.0, ranks=single_process())


def sft_step(folder: Path) -> tuple[Stepper[Any], Sequence[Any]]:
    del folder
    model = Policy(build("llama", torch.float64)).train()
    examples = [row.example for row in preference.rows_for("dpo")]
    pieces = supervised.microbatches_of(examples, single_process(), 30)
    return stepper(model, supervised.likelihood_objective(model)), pieces


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
    return replace(stepper(actor, scene.objective), clip_groups=parts), scene.pieces()


ON_THE_CPU_ALONE = {"tensors/logprobs.py:__getitem__"}
"""Targets are looked up in the vocabulary where they are made; once more only where that costs nothing."""
STEPS: dict[str, Callable[[Path], tuple[Stepper[Any], Sequence[Any]]]] = {
    "sft": sft_step,
    "reward comparisons": lambda folder: reward_step("comparisons", folder),
    "reward rankings": lambda folder: reward_step("rankings", folder),
    "reward ratings": lambda folder: reward_step("ratings", folder),
    "reward steps": lambda folder: reward_step("steps", folder),
    "dpo": lambda folder: preference_step("dpo", folder),
    "kto": lambda folder: preference_step("kto", folder),
    "grpo": lambda folder: policy_step("grpo", folder),
    "ppo": lambda folder: policy_step("ppo", folder),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_reads_the_device_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, pieces = STEPS[name](tmp_path)
    reads = DeviceReads(built.module)
    batches_on_device(monkeypatch, reads)
    with reads:
        outcome = take_step(built, pieces, 1e-3)
    assert outcome.fault is None
    assert outcome.gradient_norm > 0
    assert reads.places == ["engine/metrics.py:tolist"]
    assert set(reads.floors) <= ON_THE_CPU_ALONE


@pytest.mark.parametrize("name", ["sft", "reward comparisons", "grpo"])
def test_a_batch_that_forgets_its_host_is_noticed(name, tmp_path, monkeypatch):
    built, pieces = STEPS[name](tmp_path)
    reads = DeviceReads(built.module)
    batches_on_device(monkeypatch, reads, forgetful=True)
    with reads:
        take_step(built, pieces, 1e-3)
    assert {"tokens/microbatch.py:tolist", "models/backbone.py:unique"} <= set(reads.floors)


def test_a_packed_forward_pass_needs_no_number_of_the_device() -> None:
    """On torch's meta device there are none: whatever is read there is an error.

    Of padded rows transformers itself reads the mask and the positions.
    """
    model = Policy(build("llama", torch.float32)).to("meta")
    batch = batch_of([row.example for row in preference.rows_for("dpo")]).to("meta")
    state_MH = model.backbone.states(batch, lambda inputs: inputs.state_NT[batch.host.mask_NT])
    assert state_MH.shape[0] == int(batch.host.mask_NT.sum())
    assert scatter_to_mask(state_MH[:, 0], batch).shape == batch.mask_NT.shape


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
    tokens = 1

    def rows(self) -> "list[OneRow]":
        return [self]

    def shares(self, ranks: int, budget: int) -> "list[list[OneRow]]":
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
