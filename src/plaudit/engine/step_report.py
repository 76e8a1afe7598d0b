"""What a step reports, as sinks write it and pages read it; importing this does not import torch.

What every metric means is said in metrics.yaml, which the table in docs/metrics.md is made of.
"""

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from statistics import median
from typing import Any, Literal, cast

import yaml

_RESERVED_KEYS = frozenset({"step", "steps", "epoch", "timing"})

Number = int | float
"""A figure; counts stay whole."""


def current_metric_name(name: str) -> str:
    """The name that a metric has now, with its prefix.

    >>> current_metric_name("held_out/sqrt_kl"), current_metric_name("loss")
    ('held_out/sqrt_kl', 'loss')
    """
    prefix, slash, last = name.rpartition("/")
    return f"{prefix}{slash}{old_metric_names().get(last, last)}" if prefix in ("", "held_out") else name


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
            if name in _RESERVED_KEYS or name.startswith("timing/"):
                raise ValueError(f"a metric may not be called {name!r}: the report uses that name itself")

    def flattened(self) -> dict[str, Number]:
        """Every figure under one name, as trackers want it; timing under ``timing/``."""
        timing = {f"timing/{name}": value for name, value in self.timing.items()}
        return {"epoch": self.epoch, **self.values, **timing}

    def as_json(self) -> dict[str, object]:
        """The line of metrics.jsonl; JSON has no NaN or infinity, so those become null.

        >>> StepReport(step=1, steps=2, epoch=0.5, values={"loss": math.nan}, timing={}).as_json()
        {'step': 1, 'steps': 2, 'epoch': 0.5, 'loss': None, 'timing': {}}
        """
        counters = {"step": self.step, "steps": self.steps, "epoch": self.epoch}
        return {**counters, **finite_or_none(self.values), "timing": finite_or_none(self.timing)}

    @classmethod
    def from_json(cls, line: Mapping[str, object]) -> "StepReport":
        """The report that a line of metrics.jsonl was written from; old names of metrics are read too."""
        return cls(
            step=cast("int", line["step"]),
            steps=cast("int", line["steps"]),
            epoch=cast("Number", line["epoch"]),
            values=_with_nan(
                {current_metric_name(key): value for key, value in line.items() if key not in _RESERVED_KEYS}
            ),
            timing=_with_nan(cast("Mapping[str, object]", line["timing"])),
        )


def finite_series(name: str, reports: Sequence[StepReport]) -> list[float]:
    """The finite values of a figure, report after report."""
    values = [float(report.values[name]) for report in reports if name in report.values]
    return [value for value in values if math.isfinite(value)]


def finite_or_none(values: Mapping[str, Number]) -> dict[str, Number | None]:
    """The figures as JSON can hold them.

    >>> finite_or_none({"loss": math.inf, "rows": 4})
    {'loss': None, 'rows': 4}
    """
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _with_nan(values: Mapping[str, object]) -> dict[str, Number]:
    return {name: math.nan if value is None else cast("Number", value) for name, value in values.items()}


SLOW_STEP = "slow step: "
SLOW_FACTOR = 5.0
"""A step that takes so many times what is expected of it is slow."""
LEAST_DELAY = 1.0
"""A step that ends fewer seconds late is not spoken of."""
STEPS_TO_EXPECT = 8
"""From so many steps on it is known what a step takes; the newest hundred count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPace:
    """What steps have taken for their work, by which a step that takes far longer is noticed. Example:
    ``StepPace(phases=4)`` where four steps learn from each round of answers, which the first draws."""

    phases: int = 1
    """Steps of a round; those at the same place of it are compared."""
    _rates: defaultdict[int, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=100)), init=False
    )

    def slow_step_note(self, step: int, seconds: float, work: float) -> str | None:
        """A sentence about a step that is slow beside those before it; ``work`` is its arithmetic."""
        rates = self._rates[step % self.phases]
        work = max(work, 1.0)
        expected = median(rates) * work if len(rates) >= STEPS_TO_EXPECT else math.inf
        count = len(rates)
        rates.append(seconds / work)
        if seconds < SLOW_FACTOR * expected or seconds < expected + LEAST_DELAY:
            return None
        return (
            f"{SLOW_STEP}step {step} took {seconds:.1f} s, {seconds / expected:.0f} times what as much work "
            f"has taken in the {count} steps before it (their median). Look whether another process has the "
            "machine, memory is swapped, a reward or a disk lets the run wait, or, on a GPU, a kernel is "
            "made anew for each length. This is said once in a run"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    name: str
    """Its name in the report; those under ``timing`` carry ``timing/``."""
    what: str
    normal: str
    """What a healthy run shows."""
    strange: str
    """What an odd value means and where to look."""
    better: Literal["lower", "higher"] | None = None
    """Which direction is better, where one is; the best checkpoint is chosen by it."""
    was: str | None = None
    """What it was called before; that name is read for one release."""


@cache
def metric_docs() -> Mapping[str, MetricDoc]:
    """Every metric that plaudit's own trainers report, by name, in the order of the page."""
    written = yaml.safe_load(resources.files("plaudit.engine").joinpath("metrics.yaml").read_text("utf-8"))
    return {
        name: MetricDoc(name=name, **(_as_on_held_out_rows(entry["as"], written) if "as" in entry else entry))
        for name, entry in written.items()
    }


@cache
def old_metric_names() -> Mapping[str, str]:
    return {doc.was: doc.name for doc in metric_docs().values() if doc.was is not None}


def _as_on_held_out_rows(name: str, written: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    what = f"{name} on the rows that are never trained: the same rows at every look."
    return {key: text for key, text in written[name].items() if key != "was"} | {"what": what}


def lower_is_better(name: str) -> bool | None:
    """Whether a lower value is better; None where neither direction is, or the name is not one of ours.

    >>> lower_is_better("held_out/loss"), lower_is_better("learning_rate")
    (True, None)
    """
    doc = metric_docs().get(name)
    return None if doc is None or doc.better is None else doc.better == "lower"
