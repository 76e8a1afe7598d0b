"""What a trainer hands to the loop: its pieces, what it does with them, and how often it looks up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from plaudit.training.companion import Companion
from plaudit.training.metrics import Metric
from plaudit.training.settings import KeepSettings, SafetySettings
from plaudit.training.sinks.sink import Sample
from plaudit.training.step import Machine

Piece = TypeVar("Piece")
"""What goes through the model at once; each trainer has its own kind."""
Pause = Callable[[], None]
"""Called where a long look at the model may be broken off; when a signal has come it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Piece]):
    """A whole run, before it begins.

    Example: ``Plan(steps=100, machine=…, pieces=lambda step: …, epoch_after=order.epoch_after, …)``
    """

    steps: int
    """How many there are."""
    machine: Machine[Piece]
    """What takes a step."""
    pieces: Callable[[int], Sequence[Piece]]
    """This rank's pieces of step 1, 2 …"""
    epoch_after: Callable[[int], float]
    """How often the data has been gone through after a step."""
    work: Callable[[Sequence[Piece]], float]
    """Floating-point operations of these pieces, for the utilisation."""
    evaluate: Callable[[Pause], Sequence[Metric]] | None
    """Held-out figures, added up over ranks; None when nothing is held out."""
    sample: Callable[[Pause], Sequence[Sample]] | None
    """What the model says now; None for silence."""
    rate: Callable[[int], float]
    """The learning rate of a step."""
    safety: SafetySettings
    """What to do when a number is not finite."""
    keep: KeepSettings
    """Which checkpoints stay."""
    evaluate_every: int
    """Steps between held-out figures."""
    sample_every: int
    """Steps between samples."""
    save_every: int
    """Steps between checkpoints."""
    peak_flops: float
    """What the machine could do in a second, over all ranks; 0 when it is not known."""
    name: str
    """What the run is called."""
    config: Mapping[str, Any]
    """The resolved configuration, for trackers."""
    companions: Mapping[str, Companion]
    """What moves beside the weights, by the name of its part in a checkpoint."""
    remark: Callable[[], Sequence[str]]
    """Sentences about the figures so far that have not been said yet; asked on the first rank only."""
