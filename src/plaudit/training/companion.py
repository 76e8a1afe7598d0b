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
        """A step was taken, or passed over; ``figures`` are those of its whole batch. Every rank comes."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """What a checkpoint keeps, on the CPU; every rank comes."""
        ...

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint kept."""
        ...


class RunningMean:
    """Halfway between the means of two figures, each of which forgets: m ← (1 − share) · m + share · figure.

    Example: BCO's δ is ``RunningMean(("reward_chosen", "reward_rejected"), share=0.1)``.
    """

    def __init__(self, of: tuple[str, str], *, share: float) -> None:
        """Start at 0, where rewards start."""
        self._of, self._share = of, share
        self._means = [0.0, 0.0]

    @property
    def value(self) -> float:
        """The middle."""
        return 0.5 * sum(self._means)

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Move towards this step's figures; one that a batch did not have stays."""
        del step
        for place, name in enumerate(self._of):
            figure = float(figures.get(name, math.nan))
            if math.isfinite(figure):
                self._means[place] += self._share * (figure - self._means[place])

    def tensors(self) -> Mapping[str, Tensor]:
        """Both means."""
        return {"means": torch.tensor(self._means, dtype=torch.float64)}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The means as they were."""
        self._means = tensors["means"].tolist()


class Follower:
    """A module that follows another one: every so many steps it moves a share of the way, or all of it.

    Gorbatovski et al. 2024 (TR-DPO), arXiv:2404.09656.

    Example: ``Follower(reference, of=policy, every=64, share=0.6)``
    """

    def __init__(self, module: nn.Module, *, of: nn.Module, every: int, share: float) -> None:
        """Both hold the same weights under the same names, whole or divided alike."""
        self._module, self._of = module, of
        self._every, self._share = every, share

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Move when it is time."""
        del figures
        if step % self._every == 0:
            # Asked for now: dividing a module over ranks gives it other parameters.
            others = dict(self._of.named_parameters())
            with torch.no_grad():
                for name, weight in self._module.named_parameters():
                    weight.lerp_(others[name].detach(), self._share)

    def tensors(self) -> Mapping[str, Tensor]:
        """All weights."""
        return {name: whole(weight.detach()).cpu() for name, weight in self._module.named_parameters()}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The weights as they were."""
        with torch.no_grad():
            for name, weight in self._module.named_parameters():
                put(weight, tensors[name])
