"""Optimisers and learning-rate schedules: small, and open to a user's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plaudit.engine.settings import OptimizerSettings
from plaudit.errors import UserError

ParamGroup = dict[str, object]
"""Parameters that share their settings, as torch wants them."""
RATE_MULTIPLE_KEY = "rate_multiple"
"""The entry of a group that learns at a rate of its own."""


def schedule_factor(step: int, steps: int, settings: OptimizerSettings) -> float:
    """The share of the peak rate at step 1, 2 … ``steps``: a linear warm-up, then the schedule's decay.

    >>> settings = OptimizerSettings(schedule="linear", warmup=0.5, floor=0.0)
    >>> [schedule_factor(step, 4, settings) for step in (1, 2, 3, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    # Below 1 it is a share of the run, from 1 on a number of steps: both readings are common.
    warmup_steps = round(settings.warmup * steps) if settings.warmup < 1 else int(settings.warmup)
    if step <= warmup_steps:
        return step / warmup_steps
    # Counted from 0 at the first step after the warm-up: that step still learns at the full peak.
    progress = (step - 1 - warmup_steps) / max(1, steps - warmup_steps)
    decay = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress))),
    }[settings.schedule]
    return settings.floor + (1.0 - settings.floor) * decay


def make_optimizer(
    module: nn.Module, rate: float, settings: OptimizerSettings, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimiser by name; ``package.module:function`` is called with the parameter groups and the rate.

    ``rates`` names the parts of the module that learn at a multiple of the rate.
    """
    groups = _parameter_groups(module, settings.weight_decay, rates or {})
    if not groups:
        raise UserError("no weight of this model can be trained: every parameter is frozen")
    if ":" in settings.name:
        optimizer = _import_optimizer(settings.name)(groups, lr=rate)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UserError(
                f"optimizer.name: {settings.name} gave a {type(optimizer).__name__}, not a "
                "torch.optim.Optimizer"
            )
        return optimizer
    if settings.name not in OPTIMIZERS:
        suggestions = difflib.get_close_matches(settings.name, OPTIMIZERS, n=1)
        hint = f"; did you mean {suggestions[0]!r}?" if suggestions else ""
        raise UserError(
            f"optimizer.name: {settings.name!r} is not one of {', '.join(OPTIMIZERS)} "
            f"nor of the form package.module:function{hint}"
        )
    return OPTIMIZERS[settings.name](groups, rate, settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate in every group, or its own multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(RATE_MULTIPLE_KEY, 1.0)


def _adamw(groups: list[ParamGroup], rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    if settings.state == "bfloat16":
        return HalfStateAdamW(groups, rate, settings)
    return torch.optim.AdamW(
        groups,
        lr=rate,
        # Weight decay is set in each group and not here: vectors have none.
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        # A few kernels for all weights in place of several for each:
        # the update is bound by memory, not arithmetic.
        fused=True,
    )


STATE_AT_ONCE = 2**24
"""Numbers of a weight that are widened at once: moments in float32 would be as large as they were before."""


class HalfStateAdamW(torch.optim.Optimizer):
    """AdamW whose moments are kept in bfloat16 and computed with in float32.

    Rounded to the nearest, a running mean with β near 1 would stand still, since each step changes it by less
    than a rounding; rounded by chance it is right on average. Chance follows from the step and the weight
    alone, so a resumed run draws the same.
    """

    def __init__(self, groups: list[ParamGroup], rate: float, settings: OptimizerSettings) -> None:
        """Weight decay stands in each group."""
        super().__init__(groups, {"lr": rate})
        self._betas, self._eps = (settings.beta1, settings.beta2), settings.eps

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  overloaded
        """Move every weight that has a gradient."""
        assert closure is None, "gradients are there already"
        number = 0
        for group in self.param_groups:
            for weight in group["params"]:
                number += 1
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["step"] = torch.zeros(())
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = torch.zeros_like(weight, dtype=torch.bfloat16)
                state["step"] += 1
                tensors = (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])
                self._move(group, int(state["step"]), number, [_local(x).view(-1) for x in tensors])

    def _move(self, group: Mapping[str, Any], step: int, number: int, flat: Sequence[Tensor]) -> None:
        (beta1, beta2), rate = self._betas, group["lr"]
        generator = torch.Generator(flat[0].device)
        generator.manual_seed(int.from_bytes(blake2b(f"{step}/{number}".encode(), digest_size=8).digest()))
        flat[0].mul_(1 - rate * group["weight_decay"])
        for weight, grad, mean_half, square_half in zip(*(x.split(STATE_AT_ONCE) for x in flat), strict=True):
            mean = mean_half.float().lerp_(grad.float(), 1 - beta1)
            square = square_half.float().mul_(beta2).addcmul_(grad.float(), grad.float(), value=1 - beta2)
            # By the moments before they are rounded, as in float32.
            size = (square / (1 - beta2**step)).sqrt_().add_(self._eps)
            weight.addcdiv_(mean, size, value=-rate / (1 - beta1**step))
            mean_half.copy_(round_stochastically(mean, generator))
            square_half.copy_(round_stochastically(square, generator))


def round_stochastically(wide: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 numbers in bfloat16: up or down with such a chance that the mean is the number.

    >>> half = round_stochastically(torch.full((40_000,), 1 + 2**-9), torch.Generator().manual_seed(0))
    >>> half.unique().tolist(), round(float(half.double().mean() - 1) * 512, 1)
    ([1.0, 1.0078125], 1.0)
    """
    bits = wide.view(torch.int32)
    noise = torch.randint(0, 2**16, wide.shape, generator=generator, device=wide.device, dtype=torch.int32)
    # bfloat16 is the upper half of float32: what the noise carries over decides, and the rest is cut off.
    return (bits + noise).bitwise_and_(~0xFFFF).view(torch.float32).bfloat16()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _sgd(groups: list[ParamGroup], rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=rate, momentum=settings.beta1)


OPTIMIZERS: Mapping[str, Callable[[list[ParamGroup], float, OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
}
"""The optimisers known by name."""


def _parameter_groups(module: nn.Module, weight_decay: float, rates: Mapping[str, float]) -> list[ParamGroup]:
    """Matrices decay; biases and norms do not. A part with a rate of its own has groups of its own."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    groups: list[ParamGroup] = []
    for part in (None, *rates):
        part_parameters = [p for name, p in trained.items() if _part_of(name, rates) == part]
        multiple: ParamGroup = {} if part is None else {RATE_MULTIPLE_KEY: rates[part]}
        matrices: ParamGroup = {
            # Decay pulls towards 0, which is no neutral value for a norm's gain or a bias.
            "params": [p for p in part_parameters if p.ndim >= 2],
            "weight_decay": weight_decay,
            **multiple,
        }
        vectors: ParamGroup = {
            "params": [p for p in part_parameters if p.ndim < 2],
            "weight_decay": 0.0,
            **multiple,
        }
        groups += [matrices, vectors]
    return [group for group in groups if group["params"]]


def _part_of(name: str, rates: Mapping[str, float]) -> str | None:
    """The part with a rate of its own that a parameter belongs to."""
    first = name.partition(".")[0]
    return first if first in rates else None


def _import_optimizer(path: str) -> Callable[..., object]:
    module, _, function = path.partition(":")
    if not {"", os.getcwd()} & {*sys.path}:
        # An installed command does not look in the present folder, where a user's own module lies.
        sys.path.append(os.getcwd())
    try:
        loaded = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UserError(f"optimizer.name: {path!r} cannot be imported: {error}") from error
    if not callable(loaded):
        raise UserError(f"optimizer.name: {path!r} is a {type(loaded).__name__}, and a function is needed")
    try:
        inspect.signature(loaded).bind([], lr=0.0)
    except TypeError as error:
        raise UserError(
            f"optimizer.name: {path!r} is called as f(parameter groups, lr=…): {error}"
        ) from error
    return loaded
