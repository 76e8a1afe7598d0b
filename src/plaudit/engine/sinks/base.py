"""What shows or stores the metrics of a run: the Sink protocol, the sinks of a run, and its summary.

Sinks are chosen by name, fed as one, and kept from harming the training. The summary holds last and best
metrics, counts and notes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from plaudit.engine.step_report import Number, StepReport, finite_or_none, lower_is_better

SUMMED_METRICS = ("tokens", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class BestValue:
    step: int
    value: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedLook:
    step: int
    values: Mapping[str, Number]

    def as_json(self) -> dict[str, object]:
        return {"step": self.step, "values": finite_or_none(self.values)}


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
    best: Mapping[str, BestValue]
    """The best value of every figure that has a better direction."""
    counts: Mapping[str, Number]
    """Tokens and rows of the whole run."""
    timing: Mapping[str, Number]
    """Seconds of all steps, tokens per second over all of them, most memory, mean utilisation."""
    notes: tuple[str, ...] = ()
    """What the user should know: warnings, a tracker that was switched off."""
    selected: SelectedLook | None = None
    """The look whose model is the result; None where that is the last step's."""

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
            **({} if self.selected is None else {"selected": self.selected.as_json()}),
        }


def summarise(
    reports: Iterable[StepReport], notes: Iterable[str] = (), *, selected: int | None = None
) -> Summary:
    """The summary of a whole run from its reports, in order; ``selected`` is the step of its model."""
    done = tuple(reports)
    last: dict[str, Number] = {}
    best: dict[str, BestValue] = {}
    for report in done:
        last.update(report.values)
        for name, value in report.values.items():
            if _improves(name, value, best.get(name)):
                best[name] = BestValue(step=report.step, value=value)
    return Summary(
        step=done[-1].step if done else 0,
        steps=done[-1].steps if done else 0,
        last=last,
        best=best,
        counts={name: _total_of(done, name) for name in SUMMED_METRICS},
        timing=_total_timing(done),
        notes=tuple(notes),
        selected=_selected_look(done, selected),
    )


def _selected_look(done: tuple[StepReport, ...], selected: int | None) -> SelectedLook | None:
    values = next((report.values for report in done if report.step == selected), None)
    if selected is None or values is None or selected == done[-1].step:
        return None
    held_out = {name: value for name, value in values.items() if name.startswith("held_out/")}
    return SelectedLook(step=selected, values=held_out)


def _improves(name: str, value: Number, best: BestValue | None) -> bool:
    lower = lower_is_better(name)
    if lower is None or not math.isfinite(value):
        return False
    return best is None or (value < best.value if lower else value > best.value)


def _total_of(done: tuple[StepReport, ...], name: str) -> Number:
    return sum(report.values.get(name, 0) for report in done)


def _total_timing(done: tuple[StepReport, ...]) -> dict[str, Number]:
    seconds = sum(report.timing.get("seconds", 0.0) for report in done)
    timing = {"seconds": seconds}
    if seconds > 0:
        timing["tokens_per_second"] = _total_of(done, "tokens") / seconds
    memory = [report.timing["memory_mib"] for report in done if "memory_mib" in report.timing]
    if memory:
        timing["memory_mib"] = max(memory)
    times = [(r.timing["mfu"], r.timing.get("seconds", 0.0)) for r in done if "mfu" in r.timing]
    measured = sum(weight for _, weight in times)
    if measured > 0:
        timing["mfu"] = sum(mfu * weight for mfu, weight in times) / measured
    return timing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What a sink is told when a process begins or takes up a run.
    Example: ``RunStart(name="sft-toy", steps=100, done=40)`` is taken up after its 40th step."""

    name: str
    steps: int
    done: int = 0
    """How many of them an earlier process has done; more than 0 only on resume."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The resolved configuration, for trackers that show it beside the curves."""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `FanOutSink.sync` gave when the checkpoint was saved from which the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sampled completion.

    Example: ``Sample(prompt="Name a fruit.", completion="An apple.", expected="A pear.")``
    """

    prompt: str
    """The prompt."""
    completion: str
    """The completion."""
    expected: str | None = None
    """The answer in the data, where there is one."""


@runtime_checkable
class Sink(Protocol):
    """Shows or keeps a run's figures. Only the first process of a run has sinks."""

    @property
    def name(self) -> str:
        """What the user calls it, such as ``tensorboard``."""
        ...

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """Exceptions that mean "this sink no longer works": it is switched off and the run goes on."""
        ...

    def open(self, run: RunStart) -> Sequence[str] | None:
        """Get ready; forget what an earlier process reported after step ``run.done``.

        What all sinks should tell the user of it is returned.
        """
        ...

    def log(self, report: StepReport) -> None:
        """Take one step's figures."""
        ...

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """Take what the model said after a step."""
        ...

    def note(self, text: str) -> None:
        """Take a remark that the user should read, such as a warning."""
        ...

    def sync(self) -> Mapping[str, str] | None:
        """Make what was reported so far survive a kill: a trainer calls this before it saves a checkpoint.

        Of files that a resume stands on it returns a mark of each line, by name.
        """
        ...

    def close(self, summary: Summary | None) -> None:
        """End; ``None`` means that the run broke off or was stopped and may be taken up later."""
        ...


_StepListeners = tuple[Callable[[StepReport], object], ...]
STEP_LISTENERS: ContextVar[_StepListeners] = ContextVar("STEP_LISTENERS", default=())
"""Functions that are told of each step of the runs of this call; what one raises ends the run."""


class FanOutSink:
    """Several sinks as one.
    A sink that fails with one of its own ``faults`` is switched off: one note goes to all the others, and so
    into summary.json, and the training goes on. Any other exception is a fault of the run."""

    name = "sinks"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def open(self, run: RunStart) -> None:
        sentences: list[str] = []
        self._for_each_sink(lambda sink: sentences.extend(sink.open(run) or ()))
        for sentence in sentences:
            self.note(sentence)

    def log(self, report: StepReport) -> None:
        self._for_each_sink(lambda sink: sink.log(report))
        for tell in STEP_LISTENERS.get() if self._sinks else ():
            tell(report)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        self._for_each_sink(lambda sink: sink.sample(step, rows))

    def note(self, text: str) -> None:
        self._for_each_sink(lambda sink: sink.note(text))

    def sync(self) -> dict[str, str]:
        """Have each keep what it was told so far; returns the marks of lines for the checkpoint."""
        marks: dict[str, str] = {}
        self._for_each_sink(lambda sink: marks.update(sink.sync() or {}))
        return marks

    def close(self, summary: Summary | None) -> None:
        """Close each, the run's own record last, so that it can still tell of a tracker that failed."""
        for sink in reversed(self._sinks.copy()):
            if sink in self._sinks:
                self._call_guarded(sink, lambda sink: sink.close(summary))
                self._sinks = [other for other in self._sinks if other is not sink]

    def _for_each_sink(self, action: Callable[[Sink], None]) -> None:
        for sink in self._sinks.copy():
            if sink in self._sinks:
                self._call_guarded(sink, action)

    def _call_guarded(self, sink: Sink, action: Callable[[Sink], None]) -> None:
        try:
            action(sink)
        except sink.faults as fault:
            self._sinks = [other for other in self._sinks if other is not sink]
            reason = f"{type(fault).__name__}: {fault}"
            self.note(f"{sink.name} failed and is switched off; training goes on without it ({reason})")
