"""What a pipeline's folder tells, in one frozen record that the page reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.result import RewardEvaluation
from plaudit.training.page.facts import RunFacts

State = Literal["done", "begun", "waiting"]
"""Whether a stage has ended, has left something and not ended, or has left nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What one check found.

    Example: ``Looked(name="end-of-turn", verdict="pass", saw="the end of the turn is trained", mend="")``
    """

    name: str
    """The check."""
    verdict: str
    """pass, FAIL, allowed or not applicable."""
    saw: str
    """What it saw."""
    mend: str
    """How to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What went into a stage.

    Example: ``Input(name="model", source="sft", hash="2c26…", from_stage=True)``
    """

    name: str
    """What the stage calls it."""
    source: str
    """The stage or the path that it comes from."""
    hash: str
    """The sha256 of its content."""
    from_stage: bool
    """Whether it comes from a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage, as far as it has come.

    Example: ``Stage(name="ppo", do="ppo", state="done", number=7, …)``
    """

    name: str
    """Its name in the pipeline."""
    number: int
    """Its place, from 1."""
    do: str
    """Its kind: world-rows, sft, ppo, evaluate …"""
    state: State
    """How far it has come."""
    folder: Path
    """Where it lies."""
    needs: tuple[str, ...]
    """The stages that it builds on."""
    settings: Mapping[str, object]
    """As they were resolved."""
    inputs: tuple[Input, ...]
    """What went in."""
    outputs: Mapping[str, str]
    """Each file or folder that came out, with its sha256."""
    key: str
    """The sha256 of everything that decides the result."""
    code: Mapping[str, object]
    """plaudit's version, and in a checkout its commit."""
    seconds: float | None
    """How long it took."""
    ended: str
    """When it ended, as it was written down."""
    command: str
    """The single command that does the same."""
    said: tuple[str, ...]
    """What came of it, in sentences."""
    checks: tuple[Looked, ...]
    """What the checks before it found."""
    run: RunFacts | None
    """Of a training stage: its run folder."""
    found: PolicyEvaluation | None
    """Of an evaluation: what it found."""
    rewards: tuple[RewardEvaluation, ...]
    """Of a stage that judges reward models: what it found."""
    changed: tuple[str, ...]
    """Files that the page reads and that are not as the stage left them."""

    @property
    def link(self) -> str:
        """The part of the page that says where it comes from."""
        return f"stage-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A pipeline as its folder tells it.

    Example: ``read_story(Path("runs/valley")).evaluation``
    """

    path: Path
    """The folder, as the caller named it."""
    name: str
    """What the pipeline is called."""
    config: str
    """The text of pipeline.yaml; empty where it is missing."""
    stages: tuple[Stage, ...]
    """In the order in which they run."""

    @property
    def finished(self) -> bool:
        """Whether every stage has ended."""
        return all(stage.state == "done" for stage in self.stages)

    @property
    def seconds(self) -> float:
        """How long all stages took together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def judged(self) -> Stage | None:
        """The last stage that compared policies."""
        return next((stage for stage in reversed(self.stages) if stage.found is not None), None)

    @property
    def evaluation(self) -> PolicyEvaluation | None:
        """What that stage found."""
        return self.judged.found if self.judged else None

    @property
    def trained(self) -> Iterator[tuple[Stage, RunFacts]]:
        """The stages that have a run folder, with it."""
        return ((stage, stage.run) for stage in self.stages if stage.run is not None)
