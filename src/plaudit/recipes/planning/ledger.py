"""The memory of a run, a line for each thing that lies in it, and what lies on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import nn

from plaudit.batches.tokens import Completion, Example
from plaudit.models.growing import ROOM
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel
from plaudit.recipes.config import RunConfig
from plaudit.recipes.planning.machine import Machine
from plaudit.recipes.planning.roles import KEPT, LIVE, Roles, size_of
from plaudit.recipes.planning.rows import PlannedRows
from plaudit.recipes.planning.schedule import Schedule
from plaudit.recipes.planning.simulate import Setting, kept_a_token, look_peak, step_peak
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.reward_config import RewardConfig
from plaudit.rollouts.local import MOST_AT_ONCE
from plaudit.training.optimizer import make_optimizer
from plaudit.training.settings import OptimizerSettings

HELD_BACK = 0.25
"""The share of passing memory that is lost between blocks on a CPU; measured by benchmarks/planning.py."""
_END = Completion(ids=(0,), mask=(True,), finished=True)
ALWAYS, STEP, DRAW = "always", "step", "draw"
"""When a line is in memory: at any time, while a step is taken, while answers are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that takes memory.

    Example: ``Line(name="weights", bytes=44_000_000, when="always", why="11,010,304 numbers in float32")``
    """

    name: str
    """What it is."""
    bytes: int
    """How much it takes in one process."""
    when: str
    """When it is there."""
    why: str
    """How that comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All that one process holds.

    Example: ``ledger(config, roles, planned, machine).peak``
    """

    lines: tuple[Line, ...]
    """Each thing."""

    def during(self, when: str) -> int:
        """Bytes of the lines of a moment, without those that are always there."""
        return sum(line.bytes for line in self.lines if line.when == when)

    @property
    def peak(self) -> int:
        """The most at once: steps and drawing follow each other."""
        return self.during(ALWAYS) + max(self.during(STEP), self.during(DRAW))

    def with_process(self, size: int) -> Ledger:
        """The same, with what Python and its libraries take."""
        line = Line(name="process", bytes=size, when=ALWAYS, why="Python, its libraries, the rows")
        return Ledger(lines=(line, *self.lines)) if size else self

    def as_measured(self, size: int, process: int) -> Ledger:
        """The same, where a process took so much above its libraries, and that was more than was thought."""
        missing = size + process - self.peak
        if missing <= 0:
            return self
        line = Line(
            name="found by measuring", bytes=missing, when=ALWAYS, why="what steps took beyond all this"
        )
        return Ledger(lines=(*self.lines, line))


def ledger(
    config: RunConfig, roles: Roles, planned: Schedule, rows: PlannedRows, machine: Machine, process: int
) -> Ledger:
    """The memory of one process, of which Python and its libraries take ``process``."""
    bare = Ledger(lines=tuple(_lines(config, roles, planned, rows, machine)))
    moving = max(bare.during(STEP), bare.during(DRAW))
    if machine.where == "cpu":
        why = f"{HELD_BACK:.0%} of what comes and goes, which malloc does not hand back (as measured)"
        held = Line(name="allocator", bytes=int(HELD_BACK * moving), when=ALWAYS, why=why)
        bare = Ledger(lines=(*bare.lines, held))
    return bare.with_process(process)


def moments_of(settings: OptimizerSettings) -> dict[str, tuple[bool, torch.dtype]]:
    """What an optimiser remembers of a weight: whether in its shape, in which numbers; found by trying."""
    module = nn.Linear(64, 64, bias=False)
    optimizer = make_optimizer(module, 1e-3, settings)
    module.weight.grad = torch.zeros_like(module.weight)
    optimizer.step()
    held = {key: one for key, one in optimizer.state[module.weight].items() if isinstance(one, torch.Tensor)}
    return {key: (one.shape == module.weight.shape, one.dtype) for key, one in held.items()}


def at_least(config: RunConfig, roles: Roles, planned: Schedule, rows: PlannedRows, process: int) -> int:
    """What one process holds of all this even if a step left nothing behind: found without going through one.

    A run of which this does not fit need not be looked at further.
    """
    return Ledger(lines=tuple(_held(config, roles, planned, rows))).with_process(process).peak


def _lines(
    config: RunConfig, roles: Roles, planned: Schedule, rows: PlannedRows, machine: Machine
) -> Iterator[Line]:
    yield from _held(config, roles, planned, rows)
    yield _activations(config, roles, planned, machine)
    if planned.rounds is not None:
        yield from _drawing(roles, planned, rows, machine)


def _held(config: RunConfig, roles: Roles, planned: Schedule, rows: PlannedRows) -> Iterator[Line]:
    """What is counted from the models alone."""
    share = planned.ranks if config.shard else 1
    trained = _trained(roles)
    divided = f", divided over {share} processes" if share > 1 else ""
    kind = str(roles.numbers.weights).removeprefix("torch.")
    for name, model in (("weights", roles.learner), ("critic", roles.critic), ("reference", roles.frozen)):
        if model is not None:
            size = size_of(model)
            own = f"{size.every:,} numbers in {kind}, {size.trained:,} of them learn{divided}"
            yield Line(name=name, bytes=size.bytes // share, when=ALWAYS, why=own)
    for one in roles.asked:
        why = f"{one.size.every:,} numbers, {one.folder}"
        yield Line(name=one.name, bytes=one.size.bytes, when=ALWAYS, why=why)
    ratio = sum(whole for whole, _ in moments_of(config.optimizer).values())
    state = trained * ratio // share
    yield Line(
        name="optimiser",
        bytes=state,
        when=ALWAYS,
        why=f"{config.optimizer.name}: {ratio} numbers for each that learns{divided}",
    )
    if roles.reference == KEPT:
        tokens = sum(one.trained_tokens for one in (*rows.train, *rows.held_out))
        yield Line(
            name="reference",
            bytes=4 * tokens,
            when=ALWAYS,
            why=f"log-probs of {tokens:,} tokens, computed once",
        )
    yield Line(name="gradients", bytes=trained // share, when=STEP, why="a number for each that learns")


def _learners(roles: Roles) -> list[Policy | RewardModel]:
    return [one for one in (roles.learner, roles.critic) if one is not None]


def _trained(roles: Roles) -> int:
    """Bytes of all that learns."""
    return sum(
        p.numel() * p.element_size() for one in _learners(roles) for p in one.parameters() if p.requires_grad
    )


def _activations(config: RunConfig, roles: Roles, planned: Schedule, machine: Machine) -> Line:
    setting = setting_of(config, roles, machine)
    asked = roles.frozen if isinstance(config, PreferenceConfig) and roles.reference == LIVE else None
    peak = step_peak(_learners(roles), asked, planned.largest, setting, several=planned.pieces > 1)
    tokens = sum(one.tokens for one in planned.largest)
    how = (
        "each layer's input, the rest computed again"
        if config.memory.checkpointing
        else "all layers, the head in blocks"
    )
    return Line(
        name="activations",
        bytes=peak - _trained(roles),
        when=STEP,
        why=f"a piece of {tokens:,} tokens: {how}",
    )


def setting_of(config: RunConfig, roles: Roles, machine: Machine) -> Setting:
    """How a piece of this run is computed."""
    alike = not isinstance(config, PreferenceConfig | PolicyConfig | RewardConfig)
    return Setting(device=machine.device, numbers=roles.numbers, alike=alike)


def _drawing(roles: Roles, planned: Schedule, rows: PlannedRows, machine: Machine) -> Iterator[Line]:
    assert planned.rounds is not None
    assert isinstance(roles.learner, Policy)
    setting = Setting(device=machine.device, numbers=roles.numbers, alike=False)
    answers, rounds = planned.rounds.answers, planned.rounds
    whole = ceil(min(planned.batch_size, planned.rows) / planned.ranks) * answers
    side = min(whole, MOST_AT_ONCE[machine.where])
    prompts = ceil(side / answers)
    longest = sorted((len(one.prompt) for one in rows.train), reverse=True)[:prompts]
    places = prompts * longest[0] + side * ROOM * ceil(rounds.longest / ROOM)
    products = roles.numbers.products.itemsize
    a_token = kept_a_token(roles.learner, setting) * products
    yield Line(
        name="cache of the sampler",
        bytes=places * a_token,
        when=DRAW,
        why=f"keys and values of {side} answers side by side, {places:,} places of {a_token:,} bytes",
    )
    packed = [Example(prompt=(0,) * (length - 1 or 1), completions=(_END,)) for length in longest]
    embedding: Any = roles.learner.base.get_input_embeddings()
    words: int = embedding.weight.shape[0]
    reading = look_peak(roles.learner, packed, setting)
    saying = 2 * side * words * 4
    yield Line(
        name="reading and drawing",
        bytes=max(reading, saying),
        when=DRAW,
        why=f"{prompts} prompts at once, {sum(longest):,} tokens; then {words:,} scores for each answer",
    )
