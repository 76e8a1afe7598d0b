"""State that changes beside the weights (a running mean, an EMA reference), part of every checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from plaudit.engine.distributed import copy_into, full_tensor
from plaudit.engine.step_report import Number


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
        """The mean of both running means."""
        return 0.5 * sum(self._means)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Move towards this step's figures; one that a batch did not have stays."""
        del step
        for index, name in enumerate(self._metrics):
            value = float(metrics.get(name, math.nan))
            if math.isfinite(value):
                self._means[index] += self._share * (value - self._means[index])

    def tensors(self) -> Mapping[str, Tensor]:
        """Both means."""
        return {"means": torch.tensor(self._means, dtype=torch.float64)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore both means."""
        self._means = tensors["means"].tolist()


class EmaReference:
    """A reference that is interpolated towards the policy, or replaced by it, every so many steps.

    Gorbatovski et al. 2024 (TR-DPO), arXiv:2404.09656.

    Example: ``EmaReference(reference, source=policy, every=64, share=0.6)``
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
        """All weights of the reference."""
        return {name: full_tensor(weight.detach()).cpu() for name, weight in self._module.named_parameters()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the reference's weights."""
        with torch.no_grad():
            for name, weight in self._module.named_parameters():
                copy_into(weight, tensors[name])
