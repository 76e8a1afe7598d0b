"""Optimisers and learning-rate schedules: small, and open to a user's own."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plaudit.config import did_you_mean
from plaudit.engine.settings import OptimizerSettings
from plaudit.errors import UserError, located
from plaudit.files.user_code import import_user_module

ParamGroup = dict[str, object]
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
    ``rates`` names the parts of the module that learn at a multiple of the rate."""
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
        raise UserError(
            f"optimizer.name: {settings.name!r} is not one of {', '.join(OPTIMIZERS)} nor of the form "
            f"package.module:function{did_you_mean(settings.name, OPTIMIZERS)}"
        )
    return OPTIMIZERS[settings.name](groups, rate, settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate in every group, or its own multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(RATE_MULTIPLE_KEY, 1.0)


def _adamw(groups: list[ParamGroup], rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    if settings.state != "float32":
        return CompactAdamW(groups, rate, settings)
    return torch.optim.AdamW(
        groups,
        lr=rate,
        # Weight decay is set in each group and not here: vectors have none.
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        # A few kernels for all weights, not several for each: memory and not arithmetic bounds the update.
        fused=True,
    )


STATE_AT_ONCE = 2**24
"""Numbers of a weight that are widened at once: moments in float32 would be as large as they were before."""


class CompactAdamW(torch.optim.Optimizer):
    """AdamW whose moments are kept in bfloat16 or in 8 bits, and computed with in float32.

    Rounded to the nearest, a running mean with β near 1 would stand still, since each step changes it by less
    than a rounding; rounded by chance it is right on average. Chance follows from the step and the weight
    alone, so a resumed run draws the same.

    In 8 bits a moment is a float8 (e4m3) times a factor for each row of the weight. The second moment is kept
    as its root, and rounded up where float8 has no more digits: as 0 it would make the next step endless.
    """

    def __init__(self, groups: list[ParamGroup], rate: float, settings: OptimizerSettings) -> None:
        super().__init__(groups, {"lr": rate})
        self._betas, self._eps = (settings.beta1, settings.beta2), settings.eps
        self._new_state = _bytes_state if settings.state == "float8" else _half_state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  overloaded
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
                    state.update(self._new_state(weight))
                state["step"] += 1
                self._move(group, number, weight, state)

    def _move(self, group: Mapping[str, Any], number: int, weight: Tensor, state: dict[str, Tensor]) -> None:
        (beta1, beta2), rate, step = self._betas, group["lr"], int(state["step"])
        flat = {"weight": weight, "grad": weight.grad, **{k: v for k, v in state.items() if k != "step"}}
        rows = {name: _local(x).view(-1, x.shape[-1] if x.ndim > 1 else 1) for name, x in flat.items()}
        at_once = max(1, STATE_AT_ONCE // max(1, rows["weight"].shape[1]))
        generator = torch.Generator(rows["weight"].device)
        generator.manual_seed(int.from_bytes(blake2b(f"{step}/{number}".encode(), digest_size=8).digest()))
        rows["weight"].mul_(1 - rate * group["weight_decay"])
        for parts in zip(*(x.split(at_once) for x in rows.values()), strict=True):
            part = dict(zip(rows, parts, strict=True))
            grad = part["grad"].float()
            moments = _Moments(part, generator)
            mean = moments.mean().lerp_(grad, 1 - beta1)
            square = moments.square().mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            # By the moments before they are rounded, as in float32.
            size = (square / (1 - beta2**step)).sqrt_().add_(self._eps)
            part["weight"].addcdiv_(mean, size, value=-rate / (1 - beta1**step))
            moments.store(mean, square)


def _half_state(weight: Tensor) -> dict[str, Tensor]:
    return {name: torch.zeros_like(weight, dtype=torch.bfloat16) for name in ("exp_avg", "exp_avg_sq")}


def _bytes_state(weight: Tensor) -> dict[str, Tensor]:
    # A vector's moments are small beside a matrix's, and each number would need a factor of its own.
    if weight.ndim < 2:
        return _half_state(weight)
    factor = weight.detach()[..., :1]
    state: dict[str, Tensor] = {}
    for name in ("exp_avg", "exp_avg_rms"):
        # As bytes, which ranks can send and any file can hold.
        state[name] = torch.zeros_like(weight, dtype=torch.uint8)
        state[f"{name}_factor"] = torch.zeros_like(factor, dtype=torch.float32)
    return state


@dataclass(frozen=True, slots=True)
class _Moments:
    part: Mapping[str, Tensor]
    generator: torch.Generator

    def mean(self) -> Tensor:
        if "exp_avg_factor" in self.part:
            return from_float8(self.part["exp_avg"], self.part["exp_avg_factor"])
        return self.part["exp_avg"].float()

    def square(self) -> Tensor:
        if "exp_avg_rms" in self.part:
            return from_float8(self.part["exp_avg_rms"], self.part["exp_avg_rms_factor"]).square_()
        return self.part["exp_avg_sq"].float()

    def store(self, mean: Tensor, square: Tensor) -> None:
        if "exp_avg_rms" not in self.part:
            self.part["exp_avg"].copy_(round_stochastically(mean, self.generator))
            self.part["exp_avg_sq"].copy_(round_stochastically(square, self.generator))
            return
        for name, values in (("exp_avg", mean), ("exp_avg_rms", square.sqrt_())):
            codes, factor = to_float8(values, self.generator, roots=name == "exp_avg_rms")
            self.part[name].copy_(codes)
            self.part[f"{name}_factor"].copy_(factor)


def to_float8(wide: Tensor, generator: torch.Generator, *, roots: bool = False) -> tuple[Tensor, Tensor]:
    """The bytes of float8 numbers (e4m3) and each row's factor, rounded by chance, right on average.
    Of ``roots`` the squares are right on average: those of roots that are would be too large. And what is
    small beside its row, where float8 loses its digits, is rounded up, never to 0."""
    largest = wide.abs().amax(-1, keepdim=True)
    factor = largest / _FLOAT8.max
    scaled = wide / factor.where(largest > 0, 1.0)
    noise = torch.randint(0, 2**20, wide.shape, generator=generator, device=wide.device, dtype=torch.int32)
    bits = scaled.view(torch.int32)
    if roots:
        # Of r, p of the way from a to b, b's chance is (r² − a²)/(b² − a²) = p − p(1 − p)(b − a)/(a + b), by
        # the first 10 of p's 20 binary digits; in units of b − a, a is 8 to 15.
        p_1024 = bits.bitwise_right_shift(10).bitwise_and_(1023)
        bits = bits - p_1024.mul_(1024 - p_1024) // bits.bitwise_right_shift(19).bitwise_and_(14).add_(17)
    # 3 of float32's 23 binary digits stay: what the noise carries over decides, and the rest is cut off.
    normal = (bits + noise).bitwise_and_(~0xFFFFF).view(torch.float32)
    # Below its smallest whole number float8 has steps of one size.
    steps = scaled / _FLOAT8_STEP
    small = (steps.ceil() if roots else (steps + noise / 2**20).floor()) * _FLOAT8_STEP
    rounded = normal.where(scaled.abs() >= _FLOAT8.smallest_normal, small)
    return rounded.clamp_(-_FLOAT8.max, _FLOAT8.max).to(torch.float8_e4m3fn).view(torch.uint8), factor


def from_float8(codes: Tensor, factor: Tensor) -> Tensor:
    return codes.view(torch.float8_e4m3fn).float() * factor


_FLOAT8 = torch.finfo(torch.float8_e4m3fn)
_FLOAT8_STEP = 2.0**-9
"""The distance of its numbers where they have no digits left."""


def round_stochastically(wide: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 numbers in bfloat16: up or down with such a chance that the mean is the number."""
    bits = wide.view(torch.int32)
    noise = torch.randint(0, 2**16, wide.shape, generator=generator, device=wide.device, dtype=torch.int32)
    # bfloat16 is the upper half of float32: what the noise carries over decides, and the rest is cut off.
    return (bits + noise).bitwise_and_(~0xFFFF).view(torch.float32).bfloat16()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


OPTIMIZERS: Mapping[str, Callable[[list[ParamGroup], float, OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": lambda groups, rate, settings: torch.optim.SGD(groups, lr=rate, momentum=settings.beta1),
}


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _parameter_groups(module: nn.Module, weight_decay: float, rates: Mapping[str, float]) -> list[ParamGroup]:
    """Matrices decay; biases and norms do not. A part with a rate of its own has groups of its own."""
    trained = trained_parameters(module)
    groups: list[ParamGroup] = []
    for part in (None, *rates):
        part_parameters = [p for name, p in trained.items() if _part_of(name, rates) == part]
        multiple: ParamGroup = {} if part is None else {RATE_MULTIPLE_KEY: rates[part]}
        matrices = [p for p in part_parameters if p.ndim >= 2]
        vectors = [p for p in part_parameters if p.ndim < 2]
        # Decay pulls towards 0, which is no neutral value for a norm's gain or a bias.
        for params, decay in ((matrices, weight_decay), (vectors, 0.0)):
            groups.append({"params": params, "weight_decay": decay, **multiple})
    return [group for group in groups if group["params"]]


def _part_of(name: str, rates: Mapping[str, float]) -> str | None:
    first = name.partition(".")[0]
    return first if first in rates else None


def _import_optimizer(path: str) -> Callable[..., object]:
    module, _, function = path.partition(":")
    with located(f"optimizer.name: {path!r} cannot be imported", ImportError, AttributeError):
        loaded = getattr(import_user_module(module), function)
    if not callable(loaded):
        raise UserError(f"optimizer.name: {path!r} is a {type(loaded).__name__}, and a function is needed")
    with located(f"optimizer.name: {path!r} is called as f(parameter groups, lr=…)", TypeError):
        inspect.signature(loaded).bind([], lr=0.0)
    return loaded
