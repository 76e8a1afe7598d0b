"""What to run at 8, 64 and 1,024 GPUs: how to share them, how far ahead to draw, and what stays idle.

All of it is assumed but for the data sheets of an H100, the shapes of the models, the share of the bandwidth
that servers reach (fitted on the same row as in `published`) and the rate of failures (Llama 3). plaudit
learns with divided weights (`--shard`: each rank learns from whole groups), servers are vLLM's, weights go as
files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.simulator.faults import FaultPlan, daly, mean_share, run_hours
from benchmarks.simulator.published import drawn
from benchmarks.simulator.rounds import Outcome, Schedule, simulate
from benchmarks.simulator.servers import (
    H100,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_32B,
    AnswerLengths,
    Engine,
    Lengths,
    Model,
    Server,
)
from benchmarks.simulator.trainers import Trainers

LENGTHS = AnswerLengths(mean=3000, cap=16384)
PROMPT = 256.0
GROUP = 16
GROUPS = {8: 64, 64: 512, 1024: 2048}
"""Prompts of a round, by GPUs: beyond some thousands of answers a larger round learns little more."""
LEARNING_SHARE = 0.33
"""Of the rate of products: what plaudit's 1.5B reached on one H200 (docs/plan.md)."""
LOCAL_SHARE = 0.12
"""Of the bandwidth that plaudit's own sampler reached there, all told."""
TRAINING_BYTES = 14
"""Of a parameter: master, gradient and moments (docs/gpu.md), divided over the trainers."""
FILE_RATE = 1e9
"""Bytes a second of weights as files, written, read and checked; two CPU cores did 0.1 to 0.3 GB."""
STALL, RESTART = 30.0, 600.0
"""Seconds of a checkpoint, and from a failure to the next step."""
SERVER_GPUS = {LLAMA_8B.name: 1, QWEN_32B.name: 2, LLAMA_70B.name: 4}
PIECES = 8
ROUNDS, WARM_UP = 5, 2
SAME = "in turn, same GPUs"
MODES = ("in turn", "streamed", "one ahead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run a model on so many GPUs.

    Example: ``Fleet(64, QWEN_32B, Engine(memory_share=0.6)).best("streamed")``
    """

    gpus: int
    model: Model
    trainers: int
    mode: str
    outcome: Outcome
    tokens: float
    """Of a round's answers."""
    effective: float
    """The share of its time that failures and checkpoints leave."""

    @property
    def share(self) -> str:
        """How many GPUs learn, and how many draw."""
        return f"all {self.gpus}" if self.mode == SAME else f"{self.trainers} + {self.gpus - self.trainers}"

    @property
    def idle(self) -> float:
        """The share of all GPUs' time."""
        if self.mode == SAME:
            return self.outcome.trainers_idle + self.outcome.servers_idle - 1
        servers = self.gpus - self.trainers
        return (self.outcome.trainers_idle * self.trainers + self.outcome.servers_idle * servers) / self.gpus


class Fleet:
    """A model on so many GPUs: its rounds, and how long each side takes for every way to share them."""

    def __init__(self, gpus: int, model: Model, engine: Engine, rounds: int = ROUNDS) -> None:
        self.gpus, self.model, self.groups = gpus, model, GROUPS[gpus]
        self.server = Server(model=model, device=H100, engine=engine, gpus=SERVER_GPUS[model.name])
        self.rounds = drawn(LENGTHS, self.groups * GROUP, rounds)
        self.slots = self.server.slots(LENGTHS.mean + PROMPT)
        self.sync_seconds = model.bytes / FILE_RATE

    def splits(self) -> list[int]:
        """GPUs that learn, where the rest draws and both fit."""
        # Whole machines of eight, where there are several.
        unit = max(self.server.gpus, self.gpus // 16, min(8, self.gpus // 8))
        least = TRAINING_BYTES * self.model.parameters / (H100.memory * 0.8)
        return [
            trainers
            for trainers in range(unit, self.gpus, unit)
            if least <= trainers <= self.groups and (self.gpus - trainers) % self.server.gpus == 0
        ]

    def learn_seconds(self, lengths_N: Lengths, trainers: int) -> float:
        """Six operations for each parameter and token, on the rank whose groups have most."""
        totals_G = lengths_N.reshape(-1, GROUP).sum(axis=1)
        # A group's answers share the tokens of its prompt.
        tokens = Trainers(gpus=trainers).gpu_tokens(totals_G, PROMPT)
        return 6 * self.model.parameters * tokens / (H100.rate * LEARNING_SHARE)

    def best(self, mode: str) -> Plan | None:
        """The quickest of the splits that look best; None where the model does not fit."""
        trials = self._promising()
        if not trials:
            return None
        outcomes = [(self.outcome(trainers, mode), trainers) for trainers in trials]
        outcome, trainers = min(outcomes, key=lambda pair: pair[0].step_seconds)
        return self._plan(outcome, trainers, mode)

    def _promising(self) -> list[int]:
        """The splits with the shortest sum of drawing and learning, and with the shorter longer one."""
        times = {trainers: self._sides(trainers) for trainers in self.splits()}
        by_sum = sorted(times, key=lambda trainers: sum(times[trainers]))
        by_longer = sorted(times, key=lambda trainers: max(times[trainers]))
        return sorted({*by_sum[:2], *by_longer[:2]})

    def _sides(self, trainers: int) -> tuple[float, float]:
        """Seconds of drawing and of learning, by the busiest server and with all slots taken all the time."""
        servers = (self.gpus - trainers) // self.server.gpus
        lengths_N = self.rounds[0]
        slots = min(self.slots, -(-len(lengths_N) // servers))
        pace = self.server.step_seconds(slots, slots * (PROMPT + LENGTHS.mean / 2))
        crowded = float(lengths_N.sum()) / servers / slots * pace
        slowest = self.server.draw_seconds(lengths_N[::servers], PROMPT)
        return max(crowded, slowest) + self.sync_seconds, self.learn_seconds(lengths_N, trainers)

    def outcome(self, trainers: int, mode: str, mean_hours: float = math.inf) -> Outcome:
        """Simulated."""
        schedule = Schedule(
            servers=(self.gpus - trainers) // self.server.gpus,
            groups=self.groups,
            group_size=GROUP,
            slots=self.slots,
            ahead=1.0 if mode == "one ahead" else 0.0,
            pieces=self.pieces(trainers) if mode == "streamed" else 1,
            sync_seconds=self.sync_seconds,
            prompt=PROMPT,
            mean_hours=mean_hours,
            restart_seconds=RESTART / 2,
        )
        return self._simulate(schedule, self.server, trainers)

    def shared(self) -> Plan | None:
        """All GPUs draw by plaudit's sampler from whole copies, then learn; None where that does not fit."""
        if self.model.bytes + TRAINING_BYTES * self.model.parameters / self.gpus > H100.memory * 0.8:
            return None
        engine = Engine(memory_share=LOCAL_SHARE)
        server = Server(model=replace(self.model, layer_seconds=0.0), device=H100, engine=engine, gpus=1)
        slots = min(256, server.slots(LENGTHS.mean + PROMPT))
        schedule = Schedule(
            servers=self.gpus, groups=self.groups, group_size=GROUP, slots=slots, prompt=PROMPT
        )
        outcome = self._simulate(schedule, server, self.gpus)
        return self._plan(outcome, self.gpus, SAME)

    def _simulate(self, schedule: Schedule, server: Server, trainers: int) -> Outcome:
        return simulate(
            schedule,
            server.step_seconds,
            lambda lengths_N: self.learn_seconds(lengths_N, trainers),
            self.rounds,
            warm_up=WARM_UP,
        )

    def pieces(self, trainers: int) -> int:
        """Of a streamed round: eight at most, each with a group for every rank, all of the same size."""
        most = max(1, min(PIECES, self.groups // trainers))
        return max(count for count in range(1, most + 1) if self.groups % count == 0)

    def _plan(self, outcome: Outcome, trainers: int, mode: str) -> Plan:
        effective = self.effective(trainers, outcome)
        return Plan(
            gpus=self.gpus,
            model=self.model,
            trainers=trainers,
            mode=mode,
            outcome=outcome,
            tokens=self.tokens(),
            effective=effective,
        )

    def tokens(self) -> float:
        """Of a round's answers, on average over those that are measured."""
        return float(np.mean([lengths_N.sum() for lengths_N in self.rounds[WARM_UP:]]))

    def effective(self, trainers: int, outcome: Outcome) -> float:
        """Failures of trainers stop the run; those of servers are others' work for a while, and left out."""
        plan = FaultPlan(
            mean_seconds=run_hours(trainers) * 3600,
            interval=1.0,
            stall=STALL,
            restart=RESTART,
            repeated=1 - outcome.trainers_idle,
        )
        every = max(1, round(daly(plan) / outcome.step_seconds)) * outcome.step_seconds
        return mean_share(replace(plan, interval=every))


def plans(engine: Engine, gpus: int) -> Iterator[Plan]:
    """For each model the best split of each mode."""
    for model in (LLAMA_8B, QWEN_32B, LLAMA_70B):
        fleet = Fleet(gpus, model, engine)
        candidates = [fleet.shared() if gpus == min(GROUPS) else None, *(fleet.best(mode) for mode in MODES)]
        yield from (plan for plan in candidates if plan is not None)
