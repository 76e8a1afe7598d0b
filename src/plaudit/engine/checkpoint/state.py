"""The state that a checkpoint holds: weights and optimiser state by name, and all random generators.

A resumed run draws the same numbers. An optimiser may keep a tensor (AdamW's moments), a number (a step
count) or both, for each weight in its ``state`` and for each group in ``param_groups`` (schedule-free
optimisers do); all of it is saved, so that any optimiser resumes exactly. Of divided weights each rank writes
its rows and reads those that it has then, so a checkpoint of two ranks resumes on one, or on four.
"""

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
from torch.distributed.tensor import DTensor

from plaudit.engine.checkpoint.save import TensorShapes, TrainState
from plaudit.engine.checkpoint.tensors import StoredPart, stored_kind
from plaudit.engine.distributed import Ranks, copy_into, local_rows
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
        """The state as tensors, whole or divided like weights, for a checkpoint; called on every rank."""
        ...

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from a checkpoint's tensors."""
        ...


@runtime_checkable
class HoldsWeights(Protocol):
    """An optimiser that keeps weights and its memory of them in parts of its own (DeepSpeed)."""

    shapes: Mapping[str, tuple[tuple[int, ...], str]]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight that learns, whole; every rank must come."""
        ...

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """What is kept of each, by weight and key, whole; every rank must come."""
        ...

    def load(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Take both from a checkpoint; every rank must come."""
        ...


class RunningMean:
    """The mean of the exponential running means of two metrics: m ← (1 − share) · m + share · value.
    Example: BCO's δ is ``RunningMean(("reward_chosen", "reward_rejected"), share=0.1)``."""

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
    Gorbatovski et al. 2024 (TR-DPO), arXiv:2404.09656."""

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
        return {name: weight.detach() for name, weight in self._module.named_parameters()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self._module.named_parameters():
                restore(weight, tensors, name)


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
    for path in (*state.facts, *state.tensors):
        owner, _, key = path.rpartition("/")
        if owner in parameters:
            entry = _weight_entry(parameters[owner], state, path)
            optimizer.state[parameters[owner]][key] = entry
        else:
            group = optimizer.param_groups[int(owner.removeprefix("group "))]
            group[key] = _group_entry(group.get(key), state, path)


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


def _weight_entry(parameter: nn.Parameter, state: OptimizerState, path: str) -> Any:
    if path in state.facts:
        return _from_json(state.facts[path])
    shape, dtype = stored_kind(state.tensors, path)
    # A number for each weight, or one for each of its rows.
    per_row = [parameter[..., :1]] if parameter.ndim else []
    likes = [like for like in (parameter, *per_row) if like.shape == shape]
    if not likes:
        return state.tensors[path].clone().to(parameter.device)
    weight_entry = torch.zeros_like(likes[0], dtype=dtype).detach()
    restore(weight_entry, state.tensors, path)
    return weight_entry


def _group_entry(present: object, state: OptimizerState, path: str) -> Any:
    if path in state.facts:
        return _from_json(state.facts[path])
    value = state.tensors[path].clone()
    return value.to(present.device) if isinstance(present, Tensor) else value


CheckpointMetadata = Mapping[str, Any]
StatefulParts = Mapping[str, Stateful]
"""State beside the weights, by the name of its part in a checkpoint."""


def snapshot(
    stepper: Stepper[Any], stateful: StatefulParts, *, step: int, facts: CheckpointMetadata
) -> TrainState:
    """What this rank writes of the training state; every rank must call it.
    Tensors are those that training goes on with: they are to be written, or copied, before its next step."""
    module, optimizer, ranks = stepper.module, stepper.optimizer, stepper.ranks
    optimizer_state = read_optimizer_state(module, optimizer)
    weights: Mapping[str, Tensor] = {name: p.detach() for name, p in trained_parameters(module).items()}
    memory = optimizer_state.tensors
    if isinstance(optimizer, HoldsWeights):
        # One after the other, so that no device holds a whole copy of what is divided.
        weights, memory = (_for_first(each, ranks) for each in (optimizer.weights(), optimizer.moments()))
    parts = {
        "model": weights,
        "optimizer": memory,
        "chance": gather_rng_states(ranks),
        **{name: part.tensors() for name, part in stateful.items()},
    }
    pieces = {name: local_piece(part, ranks) for name, part in parts.items()}
    written = {name: piece for name, piece in pieces.items() if piece is not None}
    return TrainState(
        step=step,
        tensors={name: tensors for name, (tensors, _) in written.items()},
        pieces={name: place for name, (_, place) in written.items() if place != WHOLE},
        facts={**facts, "optimizer": optimizer_state.facts},
    )


WHOLE = (0, 1)


def _for_first(tensors: Iterator[tuple[str, Tensor]], ranks: Ranks) -> dict[str, Tensor]:
    """All of these on the first rank's CPU; nothing on the others, which have to come."""
    return {name: tensor.cpu() if ranks.is_first else torch.empty(0) for name, tensor in tensors}


def local_piece(
    tensors: Mapping[str, Tensor], ranks: Ranks
) -> tuple[Mapping[str, Tensor], tuple[int, int]] | None:
    """What this rank writes of a part, and which piece of how many that is; None where others write it."""
    mesh = next((tensor.device_mesh for tensor in tensors.values() if isinstance(tensor, DTensor)), None)
    if mesh is None:
        return (tensors, WHOLE) if ranks.is_first else None
    piece, is_copy = mesh.get_local_rank(mesh.ndim - 1), mesh.ndim > 1 and mesh.get_local_rank(0) > 0
    if is_copy:
        return None
    local = {name: t.to_local() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    if piece:
        # What is not divided the first one writes; and where rows are few, the last ones have none.
        local = {name: t for name, t in local.items() if isinstance(tensors[name], DTensor) and t.numel()}
    return local, (piece, mesh.size(mesh.ndim - 1))


def expected_shapes(module: nn.Module, optimizer: object = None) -> TensorShapes:
    if isinstance(optimizer, HoldsWeights):
        return {"model": optimizer.shapes}
    return {"model": {name: (tuple(p.shape), str(p.dtype)) for name, p in trained_parameters(module).items()}}


def load_snapshot(
    state: TrainState, module: nn.Module, optimizer: torch.optim.Optimizer | None, ranks: Ranks
) -> None:
    """Restore the weights and, with an optimiser, its state and the random generators."""
    weights, memory = state.tensors["model"], state.tensors["optimizer"]
    if isinstance(optimizer, HoldsWeights):
        optimizer.load(weights, memory)
        weights, memory = {}, {}
    parameters = trained_parameters(module)
    with torch.no_grad():
        for name in weights:
            restore(parameters[name], weights, name)
    if optimizer is None:
        return
    write_optimizer_state(module, optimizer, OptimizerState(tensors=memory, facts=state.facts["optimizer"]))
    _restore_rank_rng_state(state, ranks)


def restore(target: Tensor, saved: Mapping[str, Tensor], name: str) -> None:
    """Give a tensor its saved numbers; of a divided one only this rank's rows are read."""
    if isinstance(target, DTensor) and isinstance(saved, StoredPart):
        target.to_local().copy_(saved.rows(name, *local_rows(target)))
    else:
        copy_into(target, saved[name])


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
