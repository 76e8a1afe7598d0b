"""A model that is ready to learn, and all that a run asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from torch import nn

from plaudit.batches.template import Encoder, make_encoder
from plaudit.checks.subject import Subject
from plaudit.models.files import Precision, precision
from plaudit.recipes.config import RunConfig
from plaudit.training.chance import seed_everything
from plaudit.training.companion import Companion
from plaudit.training.metrics import Metric, StepReport
from plaudit.training.optimizer import make_optimizer
from plaudit.training.parallel import Ranks
from plaudit.training.plan import Pause
from plaudit.training.sinks.sink import Sample
from plaudit.training.step import Machine, Terms

Piece = TypeVar("Piece")
"""What goes through the model at once; each kind of run has its own."""
Remark = Callable[[Sequence[StepReport]], Mapping[str, str]]
"""From all reports so far to sentences: how each begins, by which it is known again, and how it goes on."""


def silence(reports: Sequence[StepReport]) -> Mapping[str, str]:
    """Nothing to say."""
    del reports
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a run has before it has a model.

    Example: ``Start(encoder=make_encoder(config.model), numbers=precision(…), ranks=ranks, aside=None)``
    """

    encoder: Encoder
    """The tokenizer and its template."""
    numbers: Precision
    """What products are made in."""
    ranks: Ranks
    """This process among its peers."""
    aside: Path | None
    """Where rows that cannot be used are listed; None on every rank but the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner(Generic[Piece]):
    """A model that is ready to learn, and all that a run asks of it.

    Example: SFT's is made by ``recipes.supervised``, a reward model's by ``recipes.reward``.
    """

    module: nn.Module
    """What is trained, on its device and divided over the ranks."""
    objective: Callable[[Piece], Terms]
    """From a piece to what a step minimises."""
    alone: Callable[[Piece], Sequence[Piece]]
    """A piece divided into its rows."""
    rows: int
    """How many rows are trained."""
    pieces: Callable[[int, Sequence[int]], Sequence[Piece]]
    """This rank's pieces of a step, given its number and those of its rows."""
    work: Callable[[Sequence[Piece]], float]
    """Floating-point operations of these pieces."""
    evaluate: Callable[[Pause], Sequence[Metric]] | None
    """Held-out figures; None when nothing is held out."""
    measured: tuple[str, ...]
    """The held-out figures by which the best checkpoint may be chosen."""
    sample: Callable[[Pause], Sequence[Sample]] | None
    """What the model says now; None for silence."""
    write: Callable[[], None]
    """Writes the result into the run folder; every rank must come."""
    notes: tuple[str, ...]
    """What was decided, for the user."""
    companions: Mapping[str, Companion] = field(default_factory=dict[str, Companion])
    """What moves beside the weights, by the name of its part in a checkpoint."""
    remark: Remark = silence
    """What is worth saying of the figures so far."""
    inner: int = 1
    """Steps that a batch of rows is learnt from."""
    apart: tuple[nn.Module, ...] = ()
    """Parts of the module whose gradients are clipped each by itself."""
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    """Parts of the module that learn at a multiple of the rate."""
    leap: Callable[[Sequence[Piece]], Sequence[Metric]] | None = None
    """Moves weights in a way of its own."""
    subject: Subject | None = None
    """What is looked over before the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Piece]):
    """One way to learn, as the run sees it.

    Example: ``Kind(name="sft", prepare=…, inputs=())``
    """

    name: str
    """What the user calls it."""
    prepare: Callable[[Start], Learner[Piece]]
    """Reads the rows and loads the model."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that it reads beside rows and model; a run that goes on wants the same ones."""


def begin(config: RunConfig, ranks: Ranks, aside: Path | None = None) -> Start:
    """What every run has first: its chance, its tokenizer and its numbers."""
    seed_everything(config.seed, ranks.rank)
    return Start(
        encoder=make_encoder(config.model, turns=config.turns),
        numbers=precision(config.dtype, ranks.device),
        ranks=ranks,
        aside=aside,
    )


def machine_of(config: RunConfig, learner: Learner[Piece], ranks: Ranks) -> Machine[Piece]:
    """What takes the steps of a run."""
    return Machine(
        module=learner.module,
        optimizer=make_optimizer(learner.module, config.learning_rate, config.optimizer, learner.rates),
        objective=learner.objective,
        alone=learner.alone,
        clip=config.optimizer.clip,
        ranks=ranks,
        apart=learner.apart,
        leap=learner.leap,
    )
