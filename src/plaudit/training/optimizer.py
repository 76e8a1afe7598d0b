"""Optimisers and learning-rate schedules: small, and open to a user's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping

import torch
from torch import nn

from plaudit.errors import UserError
from plaudit.training.settings import OptimizerSettings

Group = dict[str, object]
"""Parameters that share their settings, as torch wants them."""
MULTIPLE = "rate_multiple"
"""The entry of a group that learns at a rate of its own."""


def rate_share(step: int, steps: int, settings: OptimizerSettings) -> float:
    """The share of the peak rate at step 1, 2 … ``steps``: a linear warm-up, then the schedule's decay.

    >>> settings = OptimizerSettings(schedule="linear", warmup=0.5, floor=0.0)
    >>> [rate_share(step, 4, settings) for step in (1, 2, 3, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warm = round(settings.warmup * steps) if settings.warmup < 1 else int(settings.warmup)
    if step <= warm:
        return step / warm
    done = (step - 1 - warm) / max(1, steps - warm)
    left = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))),
    }[settings.schedule]
    return settings.floor + (1.0 - settings.floor) * left


def make_optimizer(
    module: nn.Module, rate: float, settings: OptimizerSettings, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimiser by name; ``package.module:function`` is called with the parameter groups and the rate.

    ``rates`` names the parts of the module that learn at a multiple of the rate.
    """
    groups = _groups(module, settings.weight_decay, rates or {})
    if not groups:
        raise UserError("no weight of this model can be trained: every parameter is frozen")
    if ":" in settings.name:
        made = _own(settings.name)(groups, lr=rate)
        if not isinstance(made, torch.optim.Optimizer):
            raise UserError(
                f"optimizer.name: {settings.name} gave a {type(made).__name__}, not a torch.optim.Optimizer"
            )
        return made
    if settings.name not in OPTIMIZERS:
        near = difflib.get_close_matches(settings.name, OPTIMIZERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"optimizer.name: {settings.name!r} is not one of {', '.join(OPTIMIZERS)} "
            f"nor of the form package.module:function{hint}"
        )
    return OPTIMIZERS[settings.name](groups, rate, settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate in every group, or its own multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(MULTIPLE, 1.0)


def _adamw(groups: list[Group], rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        groups,
        lr=rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def _sgd(groups: list[Group], rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=rate, momentum=settings.beta1)


OPTIMIZERS: Mapping[str, Callable[[list[Group], float, OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
}
"""The optimisers known by name."""


def _groups(module: nn.Module, weight_decay: float, rates: Mapping[str, float]) -> list[Group]:
    """Matrices decay; biases and norms do not. A part with a rate of its own has groups of its own."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    groups: list[Group] = []
    for part in (None, *rates):
        own = [p for name, p in trained.items() if _part(name, rates) == part]
        multiple: Group = {} if part is None else {MULTIPLE: rates[part]}
        matrices: Group = {
            "params": [p for p in own if p.ndim >= 2],
            "weight_decay": weight_decay,
            **multiple,
        }
        vectors: Group = {"params": [p for p in own if p.ndim < 2], "weight_decay": 0.0, **multiple}
        groups += [matrices, vectors]
    return [group for group in groups if group["params"]]


def _part(name: str, rates: Mapping[str, float]) -> str | None:
    """The part with a rate of its own that a parameter belongs to."""
    first = name.partition(".")[0]
    return first if first in rates else None


def _own(path: str) -> Callable[..., object]:
    module, _, function = path.partition(":")
    if not {"", os.getcwd()} & {*sys.path}:
        # An installed command does not look in the present folder, where a user's own module lies.
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(f"optimizer.name: {path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise UserError(f"optimizer.name: {path!r} is a {type(found).__name__}, and a function is needed")
    try:
        inspect.signature(found).bind([], lr=0.0)
    except TypeError as error:
        raise UserError(
            f"optimizer.name: {path!r} is called as f(parameter groups, lr=…): {error}"
        ) from error
    return found
