"""How fast this machine is at this very run: some of its steps are taken, and thrown away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from plaudit.recipes.config import RunConfig
from plaudit.recipes.kinds import kind_of
from plaudit.recipes.learner import Learner, begin, machine_of
from plaudit.recipes.planning.roles import KEPT
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.training.flops import memory_mib
from plaudit.training.metrics import values_of
from plaudit.training.order import Order
from plaudit.training.parallel import Ranks, joined
from plaudit.training.policy import PolicyPiece
from plaudit.training.step import take_step

LONG = 10.0
"""Seconds after which no further step is begun."""
FIRST = 2
"""Prompts of the first round, which shows how long a whole one would take."""
MIB = 1024 * 1024
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What was measured, or what somebody says.

    Example: ``Pace(tokens=1500.0, answers=4.2, answer_tokens=61.0, seconds=11.3, steps=6, peak=None)``
    """

    tokens: float
    """Tokens a second in optimiser steps."""
    answers: float | None = None
    """Answers a second that are drawn, scored and looked at; None where nobody knows."""
    answer_tokens: int | None = None
    """How long answers were on average."""
    seconds: float = 0.0
    """How long was measured."""
    steps: int = 0
    """Optimiser steps that were taken."""
    peak: int | None = None
    """The most bytes that the measurement took, where the system says so."""


@dataclass(slots=True)
class _Spent:
    """What steps have cost so far.

    Example: ``_Spent()``
    """

    moving: float = 0.0
    asking: float = 0.0
    tokens: int = 0
    answers: int = 0
    answer_tokens: int = 0
    steps: int = 0


def measured(method: str, config: RunConfig, reference: str, long: int | float = LONG) -> Pace:
    """Take steps at a rate of zero on the run's own rows, and write nothing."""
    if reference == KEPT:
        # All of it would be computed for a few steps; what a look costs is known from a live one.
        assert isinstance(config, PreferenceConfig)
        config = replace(config, reference=replace(config.reference, kind="live"))
    began = time.perf_counter()
    with joined(config.device) as ranks:
        before = memory_mib(str(ranks.device))
        learner = kind_of(method, config).prepare(begin(config, ranks))
        trial = _Trial(learner, config, ranks)
        spent = trial.policy(long) if learner.inner > 1 or trial.draws else trial.rows(long)
        after = memory_mib(str(ranks.device))
    own = None if before.now is None else int((after.peak - before.now) * MIB)
    return Pace(
        tokens=spent.tokens / spent.moving,
        answers=spent.answers / spent.asking if spent.answers else None,
        answer_tokens=round(spent.answer_tokens / spent.answers) if spent.answers else None,
        seconds=time.perf_counter() - began,
        steps=spent.steps,
        peak=own if after.device_peak is None else int(after.device_peak * MIB),
    )


class _Trial:
    """A learner that takes steps."""

    def __init__(self, learner: Learner[Any], config: RunConfig, ranks: Ranks) -> None:
        self._learner = learner
        self._order = Order(rows=learner.rows, batch_size=config.batch_size, seed=config.seed)
        self._machine = machine_of(config, learner, ranks)
        self.draws = learner.subject is not None and learner.subject.sampler is not None

    def rows(self, long: int | float) -> _Spent:
        """Steps on rows as they are: one piece to warm up, then as many of a step's as there is time for."""
        warm, spent = _Spent(), _Spent()
        self._step(1, self._learner.pieces(1, self._order.batch(1))[:1], warm)
        a_piece, until = warm.moving, time.perf_counter() + long - warm.moving
        number = 1
        while not spent.steps or time.perf_counter() + a_piece < until:
            pieces = self._learner.pieces(number, self._order.batch(number))
            room = max(1, int((until - time.perf_counter()) / max(a_piece, 1e-9)))
            if spent.steps and len(pieces) > room:
                break
            self._step(number, pieces[:room], spent)
            number += 1
        return spent

    def policy(self, long: int | float) -> _Spent:
        """Rounds of answers: a small one to warm up, then as large as there is time for."""
        size = min(FIRST, self._order.batch_size, self._order.rows)
        spent, until = _Spent(), time.perf_counter() + long
        number, taken = 1, self._round(1, size, spent)
        while number == 1 or time.perf_counter() + taken < until:
            room = int(size * (until - time.perf_counter()) / taken)
            whole = max(size, min(room, len(self._order.batch(1))))
            spent = spent if whole == size and number > 1 else _Spent()
            number, size = number + 1, whole
            taken = self._round(number, size, spent)
        return spent

    def _round(self, number: int, size: int, spent: _Spent) -> float:
        inner, began = self._learner.inner, time.perf_counter()
        for step in range((number - 1) * inner + 1, number * inner + 1):
            asked = time.perf_counter()
            pieces = self._learner.pieces(step, self._order.batch(number)[:size])
            spent.asking += time.perf_counter() - asked
            if not pieces:
                continue
            if step == (number - 1) * inner + 1:
                answers = [one for row in _examples(pieces[0]) for one in row.completions]
                spent.answers += len(answers)
                spent.answer_tokens += sum(len(one.ids) for one in answers)
            self._step(step, pieces, spent)
        return time.perf_counter() - began

    def _step(self, step: int, pieces: Sequence[Any], spent: _Spent) -> None:
        began = time.perf_counter()
        outcome = take_step(self._machine, pieces, 0.0)
        figures = values_of(outcome.metrics)
        spent.moving += time.perf_counter() - began
        spent.tokens += int(figures["tokens"])
        spent.steps += 1
        for companion in self._learner.companions.values():
            companion.after(step, figures)


def _examples(piece: Any) -> Sequence[Any]:
    return piece.round.examples if isinstance(piece, PolicyPiece) else ()
