"""What a step reports: sums with their weights, so that micro-batches and ranks add up to one figure.

A mean of means is wrong as soon as two micro-batches differ in size. So nothing is divided until
everything has been added: each micro-batch hands on a total and its weight, and the quotient is
taken once. What each name means is in `plaudit.training.metric_docs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

Number = int | float
"""A figure; counts stay whole."""

How = Literal["mean", "sum", "max"]
"""How two pieces of one metric become one: by weight, by adding, or by taking the larger."""

_OWN_KEYS = frozenset({"step", "steps", "epoch", "timing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One piece of a figure: a total and what it has to be divided by in the end.

    Example: ``Metric(name="loss", total=61.5, weight=24.0)`` is a loss of 2.5625 over 24 tokens.
    """

    name: str
    """What it is called in the report, such as ``held_out/loss``."""
    total: Number
    """The sum, the count or the largest value so far."""
    weight: Number = 1.0
    """What the sum is over: tokens, rows; for counts and largest values it has no meaning."""
    how: How = "mean"
    """How it is joined with another piece of the same name."""

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise ValueError(f"metric {self.name!r} has the weight {self.weight}; a weight is 0 or more")

    @property
    def value(self) -> Number:
        """The figure itself; a mean over nothing is not a number.

        >>> Metric(name="loss", total=6.0, weight=4.0).value
        1.5
        """
        if self.how != "mean":
            return self.total
        return self.total / self.weight if self.weight else math.nan


def mean(name: str, total: Number, weight: Number) -> Metric:
    """A figure that is a sum over tokens or rows, divided by how many there are."""
    return Metric(name=name, total=total, weight=weight)


def count(name: str, total: Number) -> Metric:
    """A figure that adds up: tokens, rows."""
    return Metric(name=name, total=total, how="sum")


def largest(name: str, value: Number) -> Metric:
    """A figure of which the largest counts: the longest answer."""
    return Metric(name=name, total=value, how="max")


def add(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """The pieces of micro-batches or ranks, one for each name, in the order in which names first appear.

    The sums are rounded once, at the end (`math.fsum`), so the order of the pieces does not matter.

    >>> [piece.value for piece in add([mean("loss", 2.0, 1), mean("loss", 4.0, 3), count("rows", 5)])]
    [1.5, 5]
    """
    pieces: dict[str, list[Metric]] = {}
    for metric in metrics:
        pieces.setdefault(metric.name, []).append(metric)
    return tuple(_joined(same) for same in pieces.values())


def values_of(metrics: Iterable[Metric]) -> dict[str, Number]:
    """The figures by name, once everything has been added.

    >>> values_of([mean("loss", 2.0, 1), mean("loss", 4.0, 3)])
    {'loss': 1.5}
    """
    return {metric.name: metric.value for metric in add(metrics)}


def perplexity(loss: Number) -> float:
    """exp(loss) of a mean loss per token in nats; infinite where a float cannot hold it.

    >>> perplexity(0.0), perplexity(1e4)
    (1.0, inf)
    """
    return math.exp(loss) if loss < 709 or math.isnan(loss) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """All figures of one step.

    Example: ``StepReport(step=12, steps=100, epoch=0.24, values={"loss": 1.9}, timing={"seconds": 0.8})``
    """

    step: int
    """Which step this is, counted from 1 over the whole run, resumed or not."""
    steps: int
    """How many steps the whole run has."""
    epoch: Number
    """How often the data has been gone through, in whole and part."""
    values: Mapping[str, Number]
    """What the same run would give again, bit for bit."""
    timing: Mapping[str, Number]
    """What no two runs share: seconds, tokens per second, memory."""

    def __post_init__(self) -> None:
        for name in self.values:
            if name in _OWN_KEYS or name.startswith("timing/"):
                raise ValueError(f"a metric may not be called {name!r}: the report uses that name itself")

    def flat(self) -> dict[str, Number]:
        """Every figure under one name, as trackers want it; timing under ``timing/``."""
        timing = {f"timing/{name}": value for name, value in self.timing.items()}
        return {"epoch": self.epoch, **self.values, **timing}

    def as_json(self) -> dict[str, object]:
        """The line of metrics.jsonl; JSON has no NaN or infinity, so those become null.

        >>> StepReport(step=1, steps=2, epoch=0.5, values={"loss": math.nan}, timing={}).as_json()
        {'step': 1, 'steps': 2, 'epoch': 0.5, 'loss': None, 'timing': {}}
        """
        own = {"step": self.step, "steps": self.steps, "epoch": self.epoch}
        return {**own, **finite_or_none(self.values), "timing": finite_or_none(self.timing)}

    @classmethod
    def from_json(cls, line: Mapping[str, object]) -> StepReport:
        """The report that a line of metrics.jsonl was written from."""
        return cls(
            step=cast("int", line["step"]),
            steps=cast("int", line["steps"]),
            epoch=cast("Number", line["epoch"]),
            values=_numbers({name: value for name, value in line.items() if name not in _OWN_KEYS}),
            timing=_numbers(cast("Mapping[str, object]", line["timing"])),
        )


def finite_or_none(values: Mapping[str, Number]) -> dict[str, Number | None]:
    """The figures as JSON can hold them.

    >>> finite_or_none({"loss": math.inf, "rows": 4})
    {'loss': None, 'rows': 4}
    """
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _joined(pieces: list[Metric]) -> Metric:
    first = pieces[0]
    if any(piece.how != first.how for piece in pieces):
        kinds = sorted({piece.how for piece in pieces})
        raise ValueError(f"metric {first.name!r} is joined in two ways, {' and '.join(kinds)}; choose one")
    totals = [piece.total for piece in pieces]
    total = _max(totals) if first.how == "max" else _sum(totals)
    return Metric(name=first.name, total=total, weight=_sum([p.weight for p in pieces]), how=first.how)


def _max(numbers: list[Number]) -> Number:
    # The built-in max keeps or drops a NaN depending on where it stands.
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def _sum(numbers: list[Number]) -> Number:
    # fsum refuses +inf and -inf together, where a report should say "not a number".
    exact = math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)
    return int(exact) if all(isinstance(number, int) for number in numbers) else exact


def _numbers(values: Mapping[str, object]) -> dict[str, Number]:
    return {name: math.nan if value is None else cast("Number", value) for name, value in values.items()}
