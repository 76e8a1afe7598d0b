"""The last word on a run: last and best figures, counts, and what the user should know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plaudit.training.metric_docs import lower_is_better
from plaudit.training.metrics import Number, StepReport, finite_or_none

COUNTS = ("tokens", "rows")
"""The figures that add up over a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best value of one figure and when it was reached.

    Example: ``Best(step=80, value=1.73)``
    """

    step: int
    """The first step that reached it."""
    value: Number
    """The value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What summary.json holds.

    Example: ``Summary(step=100, steps=100, last={"loss": 1.8}, best={}, counts={"rows": 800}, timing={})``
    """

    step: int
    """The last step that was done."""
    steps: int
    """How many steps the run has; more than ``step`` when it was stopped early."""
    last: Mapping[str, Number]
    """The last value of every figure."""
    best: Mapping[str, Best]
    """The best value of every figure that has a better direction."""
    counts: Mapping[str, Number]
    """Tokens and rows of the whole run."""
    timing: Mapping[str, Number]
    """Seconds of all steps, tokens per second over all of them, most memory, mean utilisation."""
    notes: tuple[str, ...] = ()
    """What the user should know: warnings, a tracker that was switched off."""

    def as_json(self) -> dict[str, object]:
        """The summary as JSON can hold it."""
        return {
            "step": self.step,
            "steps": self.steps,
            "last": finite_or_none(self.last),
            "best": {name: {"step": best.step, "value": best.value} for name, best in self.best.items()},
            "counts": dict(self.counts),
            "timing": finite_or_none(self.timing),
            "notes": list(self.notes),
        }


def summarise(reports: Iterable[StepReport], notes: Iterable[str] = ()) -> Summary:
    """The summary of a whole run from its reports, in order.

    >>> one = StepReport(step=1, steps=2, epoch=0.5, values={"loss": 2.0, "rows": 8}, timing={})
    >>> two = StepReport(step=2, steps=2, epoch=1.0, values={"loss": 2.5, "rows": 8}, timing={})
    >>> summary = summarise([one, two])
    >>> summary.last["loss"], summary.best["loss"], summary.counts["rows"]
    (2.5, Best(step=1, value=2.0), 16)
    """
    done = tuple(reports)
    last: dict[str, Number] = {}
    best: dict[str, Best] = {}
    for report in done:
        last.update(report.values)
        for name, value in report.values.items():
            if _improves(name, value, best.get(name)):
                best[name] = Best(step=report.step, value=value)
    return Summary(
        step=done[-1].step if done else 0,
        steps=done[-1].steps if done else 0,
        last=last,
        best=best,
        counts={name: _total(done, name) for name in COUNTS},
        timing=_timing(done),
        notes=tuple(notes),
    )


def _improves(name: str, value: Number, best: Best | None) -> bool:
    lower = lower_is_better(name)
    if lower is None or not math.isfinite(value):
        return False
    return best is None or (value < best.value if lower else value > best.value)


def _total(done: tuple[StepReport, ...], name: str) -> Number:
    return sum(report.values.get(name, 0) for report in done)


def _timing(done: tuple[StepReport, ...]) -> dict[str, Number]:
    seconds = sum(report.timing.get("seconds", 0.0) for report in done)
    timing = {"seconds": seconds}
    if seconds > 0:
        timing["tokens_per_second"] = _total(done, "tokens") / seconds
    memory = [report.timing["memory_mib"] for report in done if "memory_mib" in report.timing]
    if memory:
        timing["memory_mib"] = max(memory)
    times = [(r.timing["mfu"], r.timing.get("seconds", 0.0)) for r in done if "mfu" in r.timing]
    measured = sum(weight for _, weight in times)
    if measured > 0:
        timing["mfu"] = sum(mfu * weight for mfu, weight in times) / measured
    return timing
