"""One optimiser step, the same for every trainer: add up the pieces, check, clip, move.

A batch comes in pieces (micro-batches); each piece's loss is already divided by the count of the whole
batch over all ranks, so gradients simply add up. Nothing moves unless every number is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plaudit.training.metrics import Metric, Number, add
from plaudit.training.optimizer import set_learning_rate
from plaudit.training.parallel import Ranks

Piece = TypeVar("Piece")
"""What goes through the model at once; each trainer has its own kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an objective makes of one piece.

    Example: ``Terms(loss=…, loss_N=…, origin_N=("a.jsonl:3",), metrics=(mean("loss", 61.5, 24),))``
    """

    loss: Float[Tensor, ""]
    """To be differentiated; divided by global counts, so that pieces and ranks add up."""
    loss_N: Float[Tensor, " N"]
    """Each completion's own share, detached: it tells which rows went wrong."""
    origin_N: tuple[str, ...]
    """File and row of each completion."""
    metrics: tuple[Metric, ...]
    """What to report, as sums with their weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A number that was not finite, found before anything moved.

    Example: ``Fault(what="loss", rows=("a.jsonl:3",))``
    """

    what: str
    """loss, gradient, or gradient of these rows together."""
    rows: tuple[str, ...]
    """The rows that it came from."""

    def sentence(self, step: int) -> str:
        """What happened, for the user."""
        shown = ", ".join(self.rows[:5])
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return f"step {step}: the {self.what} ({shown}{more}) is not a finite number; no weight was changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step did.

    Example: ``Outcome(metrics=(…,), gradient_norm=0.8, fault=None)``
    """

    metrics: tuple[Metric, ...]
    """The pieces' metrics, added up over pieces and ranks."""
    gradient_norm: float
    """Before clipping."""
    fault: Fault | None
    """Why nothing moved; None when the step was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Generic[Piece]):
    """All that a step needs and that stays the same from step to step.

    Example: ``Machine(module=policy, optimizer=…, objective=…, alone=…, clip=1.0, ranks=alone())``
    """

    module: nn.Module
    """What is trained."""
    optimizer: torch.optim.Optimizer
    """What moves it."""
    objective: Callable[[Piece], Terms]
    """From a piece to its terms; it knows the counts of the batch at hand."""
    alone: Callable[[Piece], Sequence[Piece]]
    """A piece divided into its rows: to find the one that makes a gradient infinite."""
    clip: float
    """Largest gradient norm; 0 for none."""
    ranks: Ranks
    """This process among its peers."""
    between: Callable[[], None] = lambda: None
    """Called before each piece: the place to stop a long step."""
    apart: tuple[nn.Module, ...] = ()
    """Parts of the module whose gradients are clipped each by itself; none: the module as one."""
    leap: Callable[[Sequence[Piece]], Sequence[Metric]] | None = None
    """Moves weights by their gradients in a way of its own, and takes those gradients away; with figures."""


def take_step(machine: Machine[Piece], pieces: Sequence[Piece], rate: float) -> Outcome:
    """Accumulate, check, clip and step; every rank must bring the same number of pieces."""
    machine.optimizer.zero_grad(set_to_none=True)
    metrics: list[Metric] = []
    bad: list[str] = []
    origins: list[str] = []
    for piece in pieces:
        machine.between()
        terms = machine.objective(piece)
        metrics += terms.metrics
        origins += terms.origin_N
        bad += _rows_not_finite(terms)
        terms.loss.backward()
    trained = [p for p in machine.module.parameters() if p.requires_grad]
    machine.ranks.sum_gradients(trained)
    norm = gradient_norm(trained)
    fault = _loss_fault(machine.ranks.gather_words(bad))
    if fault is None and not math.isfinite(norm):
        fault = _gradient_fault(machine, pieces, origins)
    if fault is None:
        if machine.leap is not None:
            metrics += machine.leap(pieces)
        _clip(machine, norm)
        set_learning_rate(machine.optimizer, rate)
        machine.optimizer.step()
    machine.optimizer.zero_grad(set_to_none=True)
    return Outcome(metrics=add_over_ranks(metrics, machine.ranks), gradient_norm=norm, fault=fault)


def gradient_norm(parameters: Sequence[nn.Parameter]) -> float:
    """The Euclidean norm of all gradients together, over all ranks when they are sharded."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def add_over_ranks(metrics: Sequence[Metric], ranks: Ranks) -> tuple[Metric, ...]:
    """The same metric of all pieces and ranks as one; ranks report the same names in the same order."""
    mine = add(metrics)
    if ranks.world == 1:
        return mine
    rows = ranks.every([float(x) for metric in mine for x in (metric.total, metric.weight)])
    return add(
        replace(metric, total=_as(metric.total, row[2 * m]), weight=row[2 * m + 1])
        for row in rows
        for m, metric in enumerate(mine)
    )


def _as(mine: Number, theirs: float) -> Number:
    """Another rank's figure: a count stays whole."""
    return int(theirs) if isinstance(mine, int) and theirs.is_integer() else theirs


def _rows_not_finite(terms: Terms) -> list[str]:
    if bool(torch.isfinite(terms.loss_N).all()):
        return []
    finite = torch.isfinite(terms.loss_N).tolist()
    return [origin for origin, good in zip(terms.origin_N, finite, strict=True) if not good]


def _loss_fault(bad: Sequence[str]) -> Fault | None:
    return Fault(what="loss", rows=tuple(dict.fromkeys(bad))) if bad else None


def _gradient_fault(machine: Machine[Piece], pieces: Sequence[Piece], origins: Sequence[str]) -> Fault:
    """The rows to blame; all of the batch when each alone is well, or weights are divided over ranks."""
    rows = machine.ranks.gather_words(_rows_of_bad_gradient(machine, pieces))
    if rows:
        return Fault(what="gradient", rows=tuple(dict.fromkeys(rows)))
    every = tuple(dict.fromkeys(machine.ranks.gather_words(origins)))
    return Fault(what="gradient of these rows together", rows=every)


def _rows_of_bad_gradient(machine: Machine[Piece], pieces: Sequence[Piece]) -> list[str]:
    """The rows whose own gradient is not finite; none is looked for in sharded weights."""
    trained = [p for p in machine.module.parameters() if p.requires_grad]
    single = [row for piece in pieces for row in machine.alone(piece)]
    sharded = any(isinstance(p, DTensor) for p in trained)
    rows: list[str] = []
    for row in [] if sharded else single:
        machine.optimizer.zero_grad(set_to_none=True)
        terms = machine.objective(row)
        terms.loss.backward()
        if not math.isfinite(gradient_norm(trained)):
            rows += terms.origin_N
    return rows


def _clip(machine: Machine[Any], norm: float) -> None:
    """Scale gradients down to the largest norm, of each part that stands apart or of all together."""
    for part in machine.apart or (machine.module,):
        trained = [p for p in part.parameters() if p.requires_grad]
        own = gradient_norm(trained) if machine.apart else norm
        if 0 < machine.clip < own:
            _scale(trained, machine.clip / own)


def _scale(parameters: Sequence[nn.Parameter], factor: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
