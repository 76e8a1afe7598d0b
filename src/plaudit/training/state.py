"""Between a live module with its optimiser and a checkpoint: names, tensors, nothing else.

Sharded weights are gathered into whole ones, so a checkpoint of two ranks resumes on one, or on four.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.training import optimizer_memory
from plaudit.training.chance import Chance, capture, restore
from plaudit.training.checkpoint import Shapes, TrainState
from plaudit.training.companion import Companion
from plaudit.training.optimizer_memory import Memory
from plaudit.training.parallel import Ranks
from plaudit.training.shards import put, whole
from plaudit.training.step import Machine

Facts = Mapping[str, Any]
"""Everything in a checkpoint that is not a tensor."""
Companions = Mapping[str, Companion]
"""What moves beside the weights, by the name of its part in a checkpoint."""


def snapshot(machine: Machine[Any], companions: Companions, *, step: int, facts: Facts) -> TrainState:
    """Everything a run needs to go on; every rank must ask, the first one writes it."""
    module, optimizer, ranks = machine.module, machine.optimizer, machine.ranks
    model = {name: _plain(p, ranks) for name, p in module.named_parameters() if p.requires_grad}
    memory = optimizer_memory.read(module, optimizer)
    moments = {path: _plain(value, ranks) for path, value in memory.tensors.items()}
    return TrainState(
        step=step,
        tensors={
            "model": model,
            "optimizer": moments,
            "chance": gather_chance(ranks),
            **{name: companion.tensors() for name, companion in companions.items()},
        },
        facts={**facts, "optimizer": memory.facts},
    )


def expected_shapes(module: nn.Module) -> Shapes:
    """The weights that a checkpoint of this module must hold."""
    return {
        "model": {
            name: (tuple(p.shape), str(p.dtype)) for name, p in module.named_parameters() if p.requires_grad
        }
    }


def take_up(
    state: TrainState, module: nn.Module, optimizer: torch.optim.Optimizer | None, ranks: Ranks
) -> None:
    """Put the weights back and, when there is an optimiser, its state and the random generators."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, values in state.tensors["model"].items():
            put(parameters[name], values)
    if optimizer is None:
        return
    memory = Memory(tensors=state.tensors["optimizer"], facts=state.facts["optimizer"])
    optimizer_memory.write(module, optimizer, memory)
    _spread_chance(state, ranks)


def _plain(tensor: Tensor, ranks: Ranks) -> Tensor:
    """The whole tensor on the CPU; only the first rank keeps it."""
    full = whole(tensor.detach())
    return full.cpu() if ranks.first else torch.empty(0)


def gather_chance(ranks: Ranks) -> dict[str, Tensor]:
    """The random generators of every rank, as tensors."""
    mine = capture()
    parts = {
        "torch_cpu": mine.torch_cpu,
        "numpy_words": mine.numpy_words,
        "python": torch.tensor(mine.python),
        "numpy_facts": torch.tensor(mine.numpy_facts, dtype=torch.float64),
    }
    if mine.torch_gpu is not None:
        parts["torch_gpu"] = mine.torch_gpu
    tensors: dict[str, Tensor] = {}
    for name, part in parts.items():
        for rank, row in enumerate(ranks.every(part.tolist())):
            tensors[f"rank{rank}/{name}"] = torch.tensor(row, dtype=torch.float64).to(part.dtype)
    return tensors


def _spread_chance(state: TrainState, ranks: Ranks) -> None:
    """Each rank takes its own generators; a rank that was not there before keeps its fresh ones."""
    saved = state.tensors["chance"]
    own = f"rank{ranks.rank}/"
    if f"{own}torch_cpu" not in saved:
        return
    position, has_gauss, gauss = saved[f"{own}numpy_facts"].tolist()
    restore(
        Chance(
            torch_cpu=saved[f"{own}torch_cpu"],
            torch_gpu=saved.get(f"{own}torch_gpu"),
            numpy_words=saved[f"{own}numpy_words"],
            numpy_facts=(int(position), int(has_gauss), gauss),
            python=tuple(saved[f"{own}python"].tolist()),
        )
    )
