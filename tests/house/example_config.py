"""A config with a setting of every kind, for the tests of options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How a step is taken."""

    beta2: float = 0.95
    """How slowly the squared gradient is averaged,
    from 0 to 1 (100 %)."""
    nesterov: bool = False
    """Whether the momentum looks ahead."""

    def __post_init__(self) -> None:
        if not 0 <= self.beta2 < 1:
            raise ValueError(f"beta2 is {self.beta2}; it must lie in [0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Small adapters."""

    rank: int = 16
    """The rank of an adapter."""
    targets: tuple[str, ...] = ("q", "v")
    """Which matrices get one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A run."""

    model: Path
    """The folder of the base model."""
    out: Path
    """The folder that the run leaves behind."""
    learning_rate: float = 1e-5
    """The peak of the schedule."""
    max_steps: int | None = None
    """Where to stop; none is at the end of the data."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """The shape of the learning rate over time."""
    shuffle: bool = True
    """Whether rows are drawn in a random order."""
    name: str | None = None
    """What the run is called."""
    weights: tuple[float, ...] = ()
    """One weight a data file."""
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(beta2=0.9))
    """How a step is taken."""
    lora: Lora | None = None
    """Train adapters instead of the whole model."""
