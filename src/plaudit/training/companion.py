"""What moves beside the weights: a running mean, a reference that follows. Part of every checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from plaudit.training.metrics import Number
from plaudit.training.shards import put, whole


@runtime_checkable
class Companion(Protocol):
    """Something that changes after steps and that a resumed run must find as it was."""

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """A step was taken; ``figures`` are those of its whole batch. Every rank comes."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """What a checkpoint keeps, on the CPU; every rank comes."""
        ...

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint kept."""
        ...


class RunningMean:
    """A mean of two figures that forgets: value ← (1 − share) · value + share · ½(first + second).

    Example: BCO's δ is ``RunningMean(("reward_chosen", "reward_rejected"), share=0.1)``.
    """

    def __init__(self, of: tuple[str, str], *, share: float) -> None:
        """Start at 0, where rewards start."""
        self.value = 0.0
        self._of, self._share = of, share

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Move towards this step's figures; a batch without one of them moves nothing."""
        del step
        middle = 0.5 * sum(float(figures.get(name, math.nan)) for name in self._of)
        if math.isfinite(middle):
            self.value += self._share * (middle - self.value)

    def tensors(self) -> Mapping[str, Tensor]:
        """The value."""
        return {"value": torch.tensor([self.value], dtype=torch.float64)}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The value as it was."""
        self.value = float(tensors["value"])


class Follower:
    """A module that follows another one: every so many steps it moves a share of the way, or all of it.

    Gorbatovski et al. 2024 (TR-DPO), arXiv:2404.09656.

    Example: ``Follower(reference, of=policy, every=64, share=0.6)``
    """

    def __init__(self, module: nn.Module, *, of: nn.Module, every: int, share: float) -> None:
        """Both hold the same weights under the same names, whole or divided alike."""
        self._own, self._other = dict(module.named_parameters()), dict(of.named_parameters())
        self._every, self._share = every, share

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Move when it is time."""
        del figures
        if step % self._every == 0:
            with torch.no_grad():
                for name, weight in self._own.items():
                    weight.lerp_(self._other[name].detach(), self._share)

    def tensors(self) -> Mapping[str, Tensor]:
        """All weights."""
        return {name: whole(weight.detach()).cpu() for name, weight in self._own.items()}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The weights as they were."""
        with torch.no_grad():
            for name, weight in self._own.items():
                put(weight, tensors[name])
