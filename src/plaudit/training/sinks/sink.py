"""The seam between a trainer and whatever shows or keeps its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from plaudit.training.metrics import StepReport
from plaudit.training.sinks.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What a sink is told when a process begins or takes up a run.

    Example: ``RunStart(name="sft-toy", steps=100, done=40)`` is taken up after its 40th step.
    """

    name: str
    """The run's name, usually that of its folder."""
    steps: int
    """How many steps the whole run has."""
    done: int = 0
    """How many of them an earlier process has done; more than 0 only on resume."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The resolved configuration, for trackers that show it beside the curves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One thing the model said.

    Example: ``Sample(prompt="Name a fruit.", completion="An apple.", expected="A pear.")``
    """

    prompt: str
    """What it was asked."""
    completion: str
    """What it answered."""
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

    def open(self, run: RunStart) -> None:
        """Get ready; forget what an earlier process reported after step ``run.done``."""
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

    def sync(self) -> None:
        """Make what was reported so far survive a kill: a trainer calls this before it saves a checkpoint."""
        ...

    def close(self, summary: Summary | None) -> None:
        """End; ``None`` means that the run broke off or was stopped and may be taken up later."""
        ...
