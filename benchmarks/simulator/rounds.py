"""Rounds as events: answers that end, pieces that are learnt from, weights on their way, servers that fail.

Round r (from 0) is drawn by weights that at least r − ahead rounds have left. Within a server all answers go
on at the same pace, so its next event is the end of its shortest one; who joins, ends or fails changes it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.simulator.servers import Lengths

StepSeconds = Callable[[int, float], float]
"""Seconds of a decoding step, by answers under way and their context in tokens."""
LearnSeconds = Callable[[Lengths], float]
"""Seconds of learning from a piece, by the lengths of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Who waits for whom.

    Example: ``Schedule(servers=2, groups=16, group_size=8, slots=64)``
    """

    servers: int
    groups: int
    """Prompts of a round."""
    group_size: int
    slots: int
    """Answers that a server has under way at once."""
    ahead: float = 0.0
    """Rounds that may be drawn before those that they follow are learnt from (lag, staleness)."""
    pieces: int = 1
    """Of a round, each learnt from as soon as it is there; 1 waits for all of it."""
    in_order: bool = True
    """Whether a piece is of certain prompts, or of those whose answers ended first."""
    in_flight: bool = False
    """Whether answers go on while weights change, and those of the next round join them."""
    sync_seconds: float = 0.0
    """Of weights on their way to the servers, while these stand still."""
    rest_seconds: float = 0.0
    """Of a round, behind its learning: rewards, switching GPUs from one work to the other."""
    prompt: float = 0.0
    """Tokens of a prompt."""
    mean_hours: float = math.inf
    """Between two failures of one server."""
    restart_seconds: float = 0.0
    """Until a server that failed is back."""

    @property
    def answers(self) -> int:
        """Of a round."""
        return self.groups * self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulation came to.

    Example: ``Outcome(step_seconds=120.0, trainers_idle=0.4, servers_idle=0.3)``
    """

    step_seconds: float
    """Of a round, on average."""
    trainers_idle: float
    servers_idle: float
    """Shares of the time without anything to learn from, and without any answer under way."""


@dataclass(slots=True)
class _Running:
    """A server: the answers under way by the step at which they end, and how far it is."""

    ends: list[tuple[float, int]] = field(default_factory=list)
    steps: float = 0.0
    context: float = 0.0
    since: float = 0.0
    event: int = 0
    """The number of its pending event; those with another number are void."""
    next_steps: float = 0.0
    next_seconds: float = 0.0
    is_up: bool = True
    busy: float = 0.0

    def advance(self, now: float) -> None:
        """Bring steps and context to this moment."""
        passed = now - self.since
        if self.ends and passed > 0:
            share = min(1.0, passed / self.next_seconds)
            self.steps += self.next_steps * share
            self.context += len(self.ends) * self.next_steps * share
            self.busy += passed
        self.since = now

    def finished(self) -> list[int]:
        """Takes out the answers that have ended."""
        answers: list[int] = []
        while self.ends and self.ends[0][0] <= self.steps + 1e-6:
            answers.append(heapq.heappop(self.ends)[1])
        return answers


class _Simulation:
    """The state of a run, and what each event does to it."""

    def __init__(
        self,
        schedule: Schedule,
        step_seconds: StepSeconds,
        learn_seconds: LearnSeconds,
        rounds: Sequence[Lengths],
        *,
        warm_up: int,
        seed: int,
    ) -> None:
        self.schedule, self.step_seconds, self.learn_seconds = schedule, step_seconds, learn_seconds
        self.lengths = np.concatenate(rounds)
        self.rounds = len(rounds)
        self.servers = [_Running() for _ in range(schedule.servers)]
        self.generator = np.random.default_rng(seed)
        self.events: list[tuple[float, int, str, Any]] = []
        self.count = 0
        self.now = 0.0
        self.next_answer = 0
        self.again: deque[int] = deque()
        self.ended = 0
        self.missing = [schedule.group_size] * (schedule.groups * self.rounds)
        self.complete: deque[int] = deque()
        self.whole_groups = 0
        self.pieces_learnt = 0
        self.version = self.served_version = 0
        self.is_syncing = self.is_learning = False
        self.learnt_at: list[float] = []
        self.learning = 0.0
        self.warm_up = warm_up
        self.before = (0.0, 0.0, 0.0)
        for server in range(schedule.servers):
            self._plan_failure(server)

    def run(self) -> None:
        self._draw()
        while len(self.learnt_at) < self.rounds:
            self.now, _, kind, what = heapq.heappop(self.events)
            if kind == "answer":
                self._on_answer(*what)
            elif kind == "learnt":
                self._on_learnt(what)
            elif kind == "synced":
                self._on_synced(what)
            else:
                self._on_failure(*what)

    def times(self) -> tuple[float, float, float]:
        """So far: the clock, and how long trainers learnt and servers drew, on average."""
        for server in self.servers:
            server.advance(self.now)
        return self.now, self.learning, sum(server.busy for server in self.servers) / len(self.servers)

    def _push(self, seconds: float, kind: str, what: Any) -> None:
        # The count breaks ties, so that equal times come in the order in which they were planned.
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, kind, what))

    def _draw(self) -> None:
        """Send out what may be drawn, to the least busy servers."""
        if self.is_syncing or not self._may_begin():
            return
        slots = self.schedule.slots
        free = [(len(server.ends), i) for i, server in enumerate(self.servers) if server.is_up]
        free = [entry for entry in free if entry[0] < slots]
        heapq.heapify(free)
        joined: dict[int, list[int]] = {}
        while free and (answer := self._next()) is not None:
            busy, index = free[0]
            joined.setdefault(index, []).append(answer)
            if busy + 1 < slots:
                heapq.heapreplace(free, (busy + 1, index))
            else:
                heapq.heappop(free)
        for index, answers in joined.items():
            server = self.servers[index]
            server.advance(self.now)
            for answer in answers:
                heapq.heappush(server.ends, (server.steps + float(self.lengths[answer]), answer))
                server.context += self.schedule.prompt
            self._plan_answer(index)

    def _may_begin(self) -> bool:
        """Whether servers have the weights of the next answer; a round of one version gets it here."""
        schedule, round_number = self.schedule, self.next_answer // self.schedule.answers
        if schedule.in_flight or self.again or self.next_answer % schedule.answers:
            return True
        wanted = max(0, round_number - math.floor(schedule.ahead))
        if self.ended < self.next_answer or self.version < wanted:
            return False
        if wanted > self.served_version:
            self._sync(wanted)
            return False
        return True

    def _next(self) -> int | None:
        """The answer to draw next; None where it has to wait."""
        if self.again:
            return self.again.popleft()
        schedule, answer = self.schedule, self.next_answer
        if answer >= len(self.lengths):
            return None
        if schedule.in_flight:
            allowed = answer < schedule.answers * (self.served_version + 1 + schedule.ahead)
        else:
            allowed = answer % schedule.answers != 0 or self.ended == answer
        if not allowed:
            return None
        self.next_answer += 1
        return answer

    def _plan_answer(self, index: int) -> None:
        """The end of a server's shortest answer, by its pace halfway there."""
        server = self.servers[index]
        server.event += 1
        if not server.ends or not server.is_up or self.is_syncing:
            return
        answers, steps = len(server.ends), max(0.0, server.ends[0][0] - server.steps)
        pace = self.step_seconds(answers, server.context + answers * steps / 2)
        server.next_steps, server.next_seconds = steps, max(steps * pace, 1e-12)
        self._push(server.next_seconds, "answer", (index, server.event))

    def _on_answer(self, index: int, event: int) -> None:
        server = self.servers[index]
        if event != server.event:
            return
        server.advance(self.now)
        for answer in server.finished():
            server.context -= self.schedule.prompt + float(self.lengths[answer])
            group = answer // self.schedule.group_size
            self.ended += 1
            self.missing[group] -= 1
            if not self.missing[group]:
                self.complete.append(group)
        self._draw()
        # Whoever joined has planned anew already.
        if event == server.event:
            self._plan_answer(index)
        self._learn()

    def _piece(self) -> list[int] | None:
        """The groups to learn from next; None where they are not there yet."""
        schedule = self.schedule
        size = schedule.groups // schedule.pieces
        if not schedule.in_order:
            return [self.complete.popleft() for _ in range(size)] if len(self.complete) >= size else None
        while self.whole_groups < len(self.missing) and not self.missing[self.whole_groups]:
            self.whole_groups += 1
        last = (self.pieces_learnt + 1) * size
        return list(range(last - size, last)) if self.whole_groups >= last else None

    def _learn(self) -> None:
        if self.is_learning or self.pieces_learnt >= self.rounds * self.schedule.pieces:
            return
        groups = self._piece()
        if groups is None:
            return
        size = self.schedule.group_size
        lengths_N = np.concatenate([self.lengths[group * size : (group + 1) * size] for group in groups])
        self.is_learning = True
        self.pieces_learnt += 1
        is_last = self.pieces_learnt % self.schedule.pieces == 0
        seconds = self.learn_seconds(lengths_N) + (self.schedule.rest_seconds if is_last else 0.0)
        self.learning += seconds
        self._push(seconds, "learnt", is_last)

    def _on_learnt(self, is_last: bool) -> None:
        self.is_learning = False
        if is_last:
            self.version += 1
            self.learnt_at.append(self.now)
            if len(self.learnt_at) == self.warm_up:
                self.before = self.times()
            if self.schedule.in_flight:
                # Trainers and servers come together for it.
                self.is_learning = True
                self._sync(self.version)
                return
            self._draw()
        self._learn()

    def _sync(self, version: int) -> None:
        self.is_syncing = True
        for index, server in enumerate(self.servers):
            server.advance(self.now)
            self._plan_answer(index)
        self._push(self.schedule.sync_seconds, "synced", version)

    def _on_synced(self, version: int) -> None:
        self.is_syncing, self.served_version = False, version
        if self.schedule.in_flight:
            self.is_learning = False
        for index, server in enumerate(self.servers):
            server.since = self.now
            self._plan_answer(index)
        self._draw()
        self._learn()

    def _plan_failure(self, index: int) -> None:
        if math.isfinite(self.schedule.mean_hours):
            seconds = float(self.generator.exponential(self.schedule.mean_hours * 3600))
            self._push(seconds, "failure", (index, False))

    def _on_failure(self, index: int, is_back: bool) -> None:
        """A server goes, and what it had under way is asked of others; or it is back."""
        server = self.servers[index]
        server.is_up = is_back
        server.advance(self.now)
        if is_back:
            self._plan_failure(index)
        else:
            self.again.extend(answer for _, answer in sorted(server.ends, key=lambda end: end[1]))
            server.ends, server.context = [], 0.0
            self._plan_answer(index)
            self._push(self.schedule.restart_seconds, "failure", (index, True))
        self._draw()


def simulate(
    schedule: Schedule,
    step_seconds: StepSeconds,
    learn_seconds: LearnSeconds,
    rounds: Sequence[Lengths],
    *,
    warm_up: int = 2,
    seed: int = 0,
) -> Outcome:
    """Run all rounds; what is reported leaves out the first ones, in which nothing overlaps yet."""
    if schedule.groups % schedule.pieces:
        raise ValueError(f"{schedule.groups} groups are not divided by {schedule.pieces} pieces")
    if len(rounds) <= warm_up:
        raise ValueError(f"{len(rounds)} rounds leave none to measure behind {warm_up} of warming up")
    simulation = _Simulation(schedule, step_seconds, learn_seconds, rounds, warm_up=warm_up, seed=seed)
    simulation.run()
    seconds, learning, drawing = (
        float(after - before) for after, before in zip(simulation.times(), simulation.before, strict=True)
    )
    return Outcome(
        step_seconds=seconds / (len(rounds) - warm_up),
        trainers_idle=1 - learning / seconds,
        servers_idle=1 - drawing / seconds,
    )
