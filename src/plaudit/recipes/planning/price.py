"""The price of a run: its arithmetic, memory, disk and time in one record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.planning.disk import Stored, stored
from plaudit.recipes.planning.ledger import Ledger, at_least, ledger
from plaudit.recipes.planning.machine import Machine
from plaudit.recipes.planning.pace import Pace
from plaudit.recipes.planning.roles import KEPT, Roles, roles_of
from plaudit.recipes.planning.rows import PlannedRows
from plaudit.recipes.planning.schedule import Schedule, schedule
from plaudit.recipes.policy import as_long
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.preference import as_named
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.reward_config import RewardConfig

FORWARD, BACKWARD, FROZEN = 2, 4, 2
"""Operations a weight and token: forward, backward, and backward where the weight does not learn."""
LOOKS = 10
"""How often held-out rows are looked at where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a price is asked for.

    Example: ``Planned(method="sft", config=config, rows=rows, machine=machine, process=400_000_000)``
    """

    method: str
    """What the user calls it."""
    config: RunConfig
    """The run, as `as_run` gives it."""
    rows: PlannedRows
    """What it learns from."""
    machine: Machine
    """Where it runs."""
    process: int
    """Bytes that Python and its libraries take; 0 beside a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of a whole run.

    Example: ``Times(moves=3600.0, drawing=1200.0, looks=90.0, before=40.0).total``
    """

    moves: float
    """Optimiser steps."""
    drawing: float
    """Answers: drawn, scored and looked at."""
    looks: float
    """Held-out rows."""
    before: float
    """Log-probs of a reference that are computed once."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.moves + self.drawing + self.looks + self.before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Price:
    """What a run costs.

    Example: ``price(planned).fits``
    """

    planned: Planned
    """What was asked."""
    schedule: Schedule
    """Its arithmetic."""
    roles: Roles
    """Its models."""
    memory: Ledger
    """What one process holds."""
    disk: tuple[Stored, ...]
    """What it writes."""

    @property
    def fits(self) -> bool:
        """Whether a process has the memory that it needs."""
        return self.memory.peak <= self.planned.machine.memory


def at_home(found: Price, process: int) -> Price:
    """The same in a process whose Python and libraries take so much."""
    planned = replace(found.planned, process=process)
    return replace(found, planned=planned, memory=found.memory.with_process(process))


def as_measured(found: Price, pace: Pace | None) -> Price:
    """The same, where steps took more than was thought."""
    if pace is None or pace.peak is None:
        return found
    return replace(found, memory=found.memory.as_measured(pace.peak, found.planned.process))


def as_run(method: str, config: RunConfig) -> RunConfig:
    """The run that a command begins; one that is made of several runs is planned by its largest one."""
    if isinstance(config, PolicyConfig):
        return as_long(method, config)
    if isinstance(config, PreferenceConfig):
        return as_named(method, config)
    if isinstance(config, RewardConfig) and config.pretraining.data is not None:
        raise UserError(
            "--pretraining.data makes two runs of one: plan each by itself, the first with its rows as --data"
        )
    return config


def price(planned: Planned) -> Price:
    """All but the time."""
    config, machine = planned.config, planned.machine
    numbers = schedule(planned.method, config, planned.rows, ranks=machine.ranks)
    roles = roles_of(planned.method, config, machine, numbers.rows)
    return Price(
        planned=planned,
        schedule=numbers,
        roles=roles,
        memory=ledger(config, roles, numbers, planned.rows, machine, planned.process),
        disk=stored(config, roles, planned.rows),
    )


def may_fit(planned: Planned) -> bool:
    """Whether what can be counted without going through a step fits; much quicker than `price`."""
    config, machine = planned.config, planned.machine
    numbers = schedule(planned.method, config, planned.rows, ranks=machine.ranks)
    roles = roles_of(planned.method, config, machine, numbers.rows)
    return at_least(config, roles, numbers, planned.rows, planned.process) <= machine.memory


def times(found: Price, pace: Pace) -> Times:
    """Seconds at this pace: each kind of token costs what it costs in the steps that were measured."""
    config, rows, ranks = found.planned.config, found.planned.rows, found.planned.machine.ranks
    method = found.planned.method
    numbers = schedule(method, config, rows, ranks=ranks, answer_tokens=pace.answer_tokens)
    own = FORWARD + (FROZEN if config.lora.rank else BACKWARD)
    kept = found.roles.reference == KEPT
    # What was measured of a run with kept log-probs had a live reference, which costs one look more.
    looked = FORWARD / (own + (FORWARD if kept and pace.steps else 0))
    move = 1 - looked if kept and pace.steps else 1.0
    tokens = pace.tokens * ranks
    looks = _looks(config, numbers) if numbers.held_out else 0
    if numbers.rounds is None:
        held_out = sum(one.tokens for one in rows.held_out)
        every = sum(one.tokens for one in (*rows.train, *rows.held_out))
        before = looked * every / tokens if kept else 0.0
        return Times(
            moves=move * numbers.tokens / tokens,
            drawing=0.0,
            looks=looks * looked * held_out / tokens,
            before=before,
        )
    each = numbers.rounds.answers + numbers.rounds.rivals
    drawn = numbers.drawn * each / numbers.rounds.answers
    answers = tokens / numbers.rounds.longest if pace.answers is None else pace.answers * ranks
    asked = looks * numbers.held_out * _judged(config)
    return Times(moves=numbers.tokens / tokens, drawing=drawn / answers, looks=asked / answers, before=0.0)


def _looks(config: RunConfig, numbers: Schedule) -> int:
    every = config.evaluate_every or -(-numbers.steps // LOOKS)
    return -(-numbers.steps // every)


def _judged(config: RunConfig) -> int:
    return config.judge.answers if isinstance(config, PolicyConfig) else 1
