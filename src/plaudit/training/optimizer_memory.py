"""What an optimiser remembers, by name: tensors beside plain facts, so that any optimiser resumes exactly.

An optimiser may keep a tensor (AdamW's moments), a number (a step count) or both, for each weight in its
``state`` and for each group in ``param_groups`` (schedule-free optimisers do). All of it is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.errors import UserError
from plaudit.training.shards import put

_PLAIN = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Everything an optimiser remembers.

    Example: ``Memory(tensors={"w/exp_avg": …}, facts={"w/count": 3, "group 0/momentum": 0.9})``
    """

    tensors: Mapping[str, Tensor]
    """By weight or group, and key."""
    facts: Mapping[str, Any]
    """The same for what is not a tensor."""


def read(module: nn.Module, optimizer: torch.optim.Optimizer) -> Memory:
    """What the optimiser remembers now; what could not be put back is a `UserError`."""
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for place, held in _places(module, optimizer).items():
        for key, value in held.items():
            if type(key) is not str or "/" in key:
                raise UserError(_refusal(optimizer, f"something as {key!r}", "name it without '/'"))
            if isinstance(value, Tensor):
                tensors[f"{place}/{key}"] = value
            elif not callable(value):
                facts[f"{place}/{key}"] = _as_json(value, optimizer, key)
    return Memory(tensors=tensors, facts=facts)


def write(module: nn.Module, optimizer: torch.optim.Optimizer, memory: Memory) -> None:
    """Make the optimiser remember this and nothing else."""
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for path, value in {**memory.facts, **memory.tensors}.items():
        place, _, key = path.rpartition("/")
        if place in parameters:
            optimizer.state[parameters[place]][key] = _of_weight(parameters[place], value)
        else:
            group = optimizer.param_groups[int(place.removeprefix("group "))]
            group[key] = _of_group(group.get(key), value)


def _places(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Mapping[str, Any]]:
    """Each weight's and each group's memory; which weights a group holds follows from the config."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    for owner in optimizer.state:
        if owner not in names:
            what = f"something for {owner!r}, which is no weight of the model"
            raise UserError(_refusal(optimizer, what, "keep it with a weight or a group"))
    groups = {
        f"group {number}": {key: value for key, value in group.items() if key != "params"}
        for number, group in enumerate(optimizer.param_groups)
    }
    return {**{name: optimizer.state[p] for p, name in names.items() if p in optimizer.state}, **groups}


def _as_json(value: object, optimizer: torch.optim.Optimizer, key: str) -> object:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple | list) and all(type(item) in _PLAIN for item in value):
        return {type(value).__name__: list(value)}
    what = f"a {type(value).__name__} as {key!r}, which a checkpoint does not hold"
    raise UserError(_refusal(optimizer, what, "keep tensors, numbers or text"))


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return tuple(value["tuple"]) if "tuple" in value else value["list"]


def _refusal(optimizer: torch.optim.Optimizer, what: str, advice: str) -> str:
    name = type(optimizer).__name__
    return f"optimizer.name: {name} remembers {what}; a run with it could not go on after a stop: {advice}"


def _of_weight(parameter: nn.Parameter, value: Any) -> Any:
    """A tensor is placed as its weight is."""
    if not isinstance(value, Tensor):
        return _from_json(value)
    if value.shape != parameter.shape:
        return value.clone().to(parameter.device)
    held = torch.zeros_like(parameter, dtype=value.dtype).detach()
    put(held, value)
    return held


def _of_group(present: object, value: Any) -> Any:
    """A tensor is placed as the present one is."""
    if not isinstance(value, Tensor):
        return _from_json(value)
    return value.clone().to(present.device) if isinstance(present, Tensor) else value.clone()
