"""The state that a checkpoint holds: weights and optimiser state by name, and all random generators.

A resumed run draws the same numbers. An optimiser may keep a tensor (AdamW's moments), a number (a step
count) or both, for each weight in its ``state`` and for each group in ``param_groups`` (schedule-free
optimisers do); all of it is saved, so that any optimiser resumes exactly. Sharded weights are gathered into
whole ones, so a checkpoint of two ranks resumes on one, or on four.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from plaudit.engine.checkpoint.save import TensorShapes, TrainState
from plaudit.engine.distributed import Ranks, copy_into, full_tensor
from plaudit.engine.optimizer import trained_parameters
from plaudit.engine.step import Stepper
from plaudit.engine.step_report import Number
from plaudit.errors import UserError


@runtime_checkable
class Stateful(Protocol):
    """State beside the weights that changes after steps and is saved and restored with a checkpoint."""

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Called on every rank after each step; ``metrics`` are those of its whole batch."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """The state as CPU tensors, for a checkpoint; called on every rank."""
        ...

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from a checkpoint's tensors."""
        ...


class RunningMean:
    """The mean of the exponential running means of two metrics: m ← (1 − share) · m + share · value.

    Example: BCO's δ is ``RunningMean(("reward_chosen", "reward_rejected"), share=0.1)``.
    """

    def __init__(self, metrics: tuple[str, str], *, share: float) -> None:
        """Start at 0, where rewards start."""
        self._metrics, self._share = metrics, share
        self._means = [0.0, 0.0]

    @property
    def value(self) -> float:
        return 0.5 * sum(self._means)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Move towards this step's figures; one that a batch did not have stays."""
        del step
        for index, name in enumerate(self._metrics):
            value = float(metrics.get(name, math.nan))
            if math.isfinite(value):
                self._means[index] += self._share * (value - self._means[index])

    def tensors(self) -> Mapping[str, Tensor]:
        return {"means": torch.tensor(self._means, dtype=torch.float64)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._means = tensors["means"].tolist()


class EmaReference:
    """A reference that is interpolated towards the policy, or replaced by it, every so many steps.

    Gorbatovski et al. 2024 (TR-DPO), arXiv:2404.09656.
    """

    def __init__(self, module: nn.Module, *, source: nn.Module, every: int, share: float) -> None:
        """Both hold the same weights under the same names, whole or divided alike."""
        self._module, self._source = module, source
        self._every, self._share = every, share

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Interpolate towards the source's weights every ``every`` steps."""
        del metrics
        if step % self._every == 0:
            # Asked for now: dividing a module over ranks gives it other parameters.
            source_weights = dict(self._source.named_parameters())
            with torch.no_grad():
                for name, weight in self._module.named_parameters():
                    weight.lerp_(source_weights[name].detach(), self._share)

    def tensors(self) -> Mapping[str, Tensor]:
        return {name: full_tensor(weight.detach()).cpu() for name, weight in self._module.named_parameters()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self._module.named_parameters():
                copy_into(weight, tensors[name])


RngState = Mapping[str, Tensor]
"""The states of torch's, numpy's and Python's random generators at one moment, as a checkpoint holds them."""


def seed_everything(seed: int, rank: int) -> None:
    """Start every generator; ranks draw different numbers."""
    rank_seed = random.Random(f"{seed}/{rank}").getrandbits(32)
    torch.manual_seed(rank_seed)
    np.random.seed(rank_seed)
    random.seed(rank_seed)


@contextmanager
def deterministic_kernels() -> Iterator[None]:
    """While this lasts torch takes kernels that add up in one order, and warns where it has none."""
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    # cuBLAS reads it when it is first used: a process that has multiplied on a GPU already may be too late.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # Memory that nobody has written is read by nobody here: filling it would only cost time.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


def capture_rng_state() -> RngState:
    _, words, *position_and_gauss = np.random.get_state()
    gpu = {"torch_gpu": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {}
    return {
        "torch_cpu": torch.get_rng_state(),
        "numpy_words": torch.from_numpy(np.asarray(words).astype(np.int64)),
        # Without its Gaussian: plaudit draws none.
        "python": torch.tensor(random.getstate()[1]),
        "numpy_facts": torch.tensor(position_and_gauss, dtype=torch.float64),
        **gpu,
    }


def restore_rng_state(state: RngState) -> None:
    torch.set_rng_state(state["torch_cpu"])
    if "torch_gpu" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["torch_gpu"])
    position, has_gauss, gauss = state["numpy_facts"].tolist()
    words = state["numpy_words"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words, int(position), int(has_gauss), gauss))
    random.setstate((3, tuple(state["python"].tolist()), None))


_JSON_TYPES = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerState:
    tensors: Mapping[str, Tensor]
    """By weight or group, and key."""
    facts: Mapping[str, Any]


def read_optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> OptimizerState:
    """The optimiser's state now; what could not be restored is a `UserError`."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for owner, entries in _state_by_owner(module, optimizer).items():
        for key, value in entries.items():
            if type(key) is not str or "/" in key:
                problem = _unstorable_message(optimizer, f"something as {key!r}", "name it without '/'")
                raise UserError(problem)
            if isinstance(value, Tensor):
                tensors[f"{owner}/{key}"] = value
            elif not callable(value):
                plain[f"{owner}/{key}"] = _as_json(value, optimizer, key)
    return OptimizerState(tensors=tensors, facts=plain)


def write_optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer, state: OptimizerState) -> None:
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for path, value in {**state.facts, **state.tensors}.items():
        owner, _, key = path.rpartition("/")
        if owner in parameters:
            optimizer.state[parameters[owner]][key] = _weight_entry(parameters[owner], value)
        else:
            group = optimizer.param_groups[int(owner.removeprefix("group "))]
            group[key] = _group_entry(group.get(key), value)


def _state_by_owner(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Mapping[str, Any]]:
    """Each weight's and each group's memory; which weights a group holds follows from the config."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    for owner in optimizer.state:
        if owner not in names:
            value_text = f"something for {owner!r}, which is no weight of the model"
            raise UserError(_unstorable_message(optimizer, value_text, "keep it with a weight or a group"))
    groups = {
        f"group {index}": {key: value for key, value in group.items() if key != "params"}
        for index, group in enumerate(optimizer.param_groups)
    }
    return {**{name: optimizer.state[p] for p, name in names.items() if p in optimizer.state}, **groups}


def _as_json(value: object, optimizer: torch.optim.Optimizer, key: str) -> object:
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, tuple | list) and all(type(item) in _JSON_TYPES for item in value):
        return {type(value).__name__: list(value)}
    what = f"a {type(value).__name__} as {key!r}, which a checkpoint does not hold"
    raise UserError(_unstorable_message(optimizer, what, "keep tensors, numbers or text"))


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return tuple(value["tuple"]) if "tuple" in value else value["list"]


def _unstorable_message(optimizer: torch.optim.Optimizer, what: str, advice: str) -> str:
    name = type(optimizer).__name__
    return f"optimizer.name: {name} remembers {what}; a run with it could not go on after a stop: {advice}"


def _weight_entry(parameter: nn.Parameter, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return _from_json(value)
    # A number for each weight, or one for each of its rows.
    per_row = [parameter[..., :1]] if parameter.ndim else []
    likes = [like for like in (parameter, *per_row) if like.shape == value.shape]
    if not likes:
        return value.clone().to(parameter.device)
    weight_entry = torch.zeros_like(likes[0], dtype=value.dtype).detach()
    copy_into(weight_entry, value)
    return weight_entry


def _group_entry(present: object, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return _from_json(value)
    return value.clone().to(present.device) if isinstance(present, Tensor) else value.clone()


CheckpointMetadata = Mapping[str, Any]
"""Everything in a checkpoint that is not a tensor."""
StatefulParts = Mapping[str, Stateful]
"""State beside the weights, by the name of its part in a checkpoint."""


def snapshot(
    stepper: Stepper[Any], stateful: StatefulParts, *, step: int, facts: CheckpointMetadata
) -> TrainState:
    """The whole training state for a checkpoint; every rank must call it, the first one writes it."""
    module, optimizer, ranks = stepper.module, stepper.optimizer, stepper.ranks
    model = {name: _full_on_cpu(p, ranks) for name, p in trained_parameters(module).items()}
    optimizer_state = read_optimizer_state(module, optimizer)
    moments = {path: _full_on_cpu(value, ranks) for path, value in optimizer_state.tensors.items()}
    return TrainState(
        step=step,
        tensors={
            "model": model,
            "optimizer": moments,
            "chance": gather_rng_states(ranks),
            **{name: part.tensors() for name, part in stateful.items()},
        },
        facts={**facts, "optimizer": optimizer_state.facts},
    )


def expected_shapes(module: nn.Module) -> TensorShapes:
    return {"model": {name: (tuple(p.shape), str(p.dtype)) for name, p in trained_parameters(module).items()}}


def load_snapshot(
    state: TrainState, module: nn.Module, optimizer: torch.optim.Optimizer | None, ranks: Ranks
) -> None:
    """Restore the weights and, with an optimiser, its state and the random generators."""
    parameters = trained_parameters(module)
    with torch.no_grad():
        for name, values in state.tensors["model"].items():
            copy_into(parameters[name], values)
    if optimizer is None:
        return
    optimizer_state = OptimizerState(tensors=state.tensors["optimizer"], facts=state.facts["optimizer"])
    write_optimizer_state(module, optimizer, optimizer_state)
    _restore_rank_rng_state(state, ranks)


def _full_on_cpu(tensor: Tensor, ranks: Ranks) -> Tensor:
    """The whole tensor on the CPU; only the first rank keeps it."""
    full = full_tensor(tensor.detach())
    return full.cpu() if ranks.is_first else torch.empty(0)


def gather_rng_states(ranks: Ranks) -> dict[str, Tensor]:
    return {
        f"rank{rank}/{name}": torch.tensor(row, dtype=torch.float64).to(part.dtype)
        for name, part in capture_rng_state().items()
        for rank, row in enumerate(ranks.all_gather(part.tolist()))
    }


def _restore_rank_rng_state(state: TrainState, ranks: Ranks) -> None:
    """Restore this rank's generators; a rank that was not in the saved run keeps its own."""
    prefix = f"rank{ranks.rank}/"
    saved = state.tensors["chance"].items()
    if of_rank := {name.removeprefix(prefix): part for name, part in saved if name.startswith(prefix)}:
        restore_rng_state(of_rank)
