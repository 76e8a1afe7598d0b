"""Which moves make up a run: rounds of answers, each learnt from in one or several moves.

A move is a step of the loop. A round begins when the first of its moves is asked for and lives until the
last one is done; it is kept in every checkpoint between two moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from plaudit.batches.question import Question
from plaudit.errors import UserError
from plaudit.losses.control import doubling, proportional
from plaudit.training.collect import Collector
from plaudit.training.metrics import Number
from plaudit.training.parallel import Ranks
from plaudit.training.policy import Piece, PolicyPiece
from plaudit.training.policy_experience import Experience
from plaudit.training.policy_memory import Curriculum, Replay
from plaudit.training.policy_round import Round

PATIENCE = 3
"""Rounds in a row without a verdict after which a run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How the coefficient of a divergence follows a target, and when a round ends early.

    Example: ``Control(how="proportional", start=0.1, target=6.0, horizon=10_000)``
    """

    how: Literal["fixed", "proportional", "doubling"] = "fixed"
    """Not at all; by Ziegler et al. 2019, from the KL to the reference; by PPO, from that of a round."""
    start: int | float = 0.0
    """The coefficient at first."""
    target: int | float = 0.0
    """The KL that is aimed at."""
    horizon: int | float = 10_000
    """Answers in which the proportional one goes all the way."""
    stop_at: int | float = 0.0
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; 0 never."""


@dataclass(slots=True)
class Memory:
    """What rounds hand on to each other.

    Example: ``Memory(beta=0.1)``
    """

    beta: float
    """The coefficient now."""
    scores: int = 0
    """How many scores there were."""
    mean: float = 0.0
    """Their mean."""
    stopped: int = 0
    """The newest round that was ended early."""
    idle: int = 0
    """The newest round without anything to learn."""
    bad: int = 0
    """Rounds in a row of which the reward said nothing that could be learnt from."""

    def facts(self) -> list[float]:
        """As numbers."""
        counts = (self.scores, self.stopped, self.idle, self.bad)
        return [self.beta, self.mean, *map(float, counts)]

    @classmethod
    def from_facts(cls, facts: Sequence[float]) -> Memory:
        """From numbers."""
        beta, mean, *counts = facts
        scores, stopped, idle, bad = map(int, counts)
        return cls(beta=beta, mean=mean, scores=scores, stopped=stopped, idle=idle, bad=bad)


@dataclass(kw_only=True)
class Rounds:
    """The rounds of a run; a companion of its weights.

    Example: ``Rounds(questions=rows.train, collector=…, experience=…, control=Control(), ranks=…, seed=0)``
    """

    questions: Sequence[Question]
    """All that can be asked."""
    collector: Collector
    """Draws and scores."""
    experience: Experience
    """Makes rounds of what was judged."""
    control: Control
    """How the coefficient moves."""
    ranks: Ranks
    """This process among its peers."""
    seed: int
    """Of the order within rounds."""
    beside: Callable[[int], Sequence[Piece]] = field(default=lambda step: ())
    """Further pieces of a move: text that the policy shall not forget."""
    refuse_alone: bool = False
    """Whether a group of one answer can teach nothing."""
    curriculum: Curriculum | None = None
    """Chooses the prompts of a round; without one the order does."""
    replay: Replay | None = None
    """Groups of earlier rounds that are learnt from again."""

    def __post_init__(self) -> None:
        """Begin without a round."""
        self.memory = Memory(beta=float(self.control.start))
        self.current: Round | None = None

    @property
    def inner(self) -> int:
        """Moves of a round."""
        return self.experience.epochs * self.experience.minibatches

    def pieces(self, step: int, batch: Sequence[int]) -> Sequence[Piece]:
        """This rank's pieces of a move, given the questions of its round; none where it is passed over."""
        number, move = 1 + (step - 1) // self.inner, (step - 1) % self.inner
        if number in (self.memory.stopped, self.memory.idle):
            return ()
        if self.current is None or self.current.number != number:
            rows = batch if self.curriculum is None else self.curriculum.choose(number, len(batch))
            self.current = self._begin(number, [self.questions[row] for row in rows])
            if self.current is None:
                return ()
        moves = self.current.moves(self.experience.epochs, self.experience.minibatches, self.seed)
        groups = [minibatch for epoch in moves for minibatch in epoch][move]
        if not groups:
            return ()
        room = self.experience.tokens_at_once
        shares = self.current.shares(groups, ranks=self.ranks.world, tokens_at_once=room)
        counts = self.current.counts(groups)
        own = [
            PolicyPiece(
                round=self.current,
                places=places,
                counts=counts,
                first=move == 0,
                only=not self.experience.must_look,
                penalty=self.memory.beta if self.experience.row.adaptive else 0.0,
            )
            for places in shares[self.ranks.rank]
        ]
        return [*own, *self.beside(step)]

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Follow the targets; the last move of a round ends it."""
        apart = float(figures.get("kl_old", math.nan))
        number, last = 1 + (step - 1) // self.inner, step % self.inner == 0
        if self.current is None:
            return
        if self.control.stop_at and apart > self.control.stop_at:
            self.memory.stopped, last = number, True
        if not last:
            return
        if self.control.how == "doubling":
            self.memory.beta = doubling(self.memory.beta, kl=apart, target=self.control.target)
        if self.control.how == "proportional" and "kl" in figures:
            self.memory.beta = proportional(
                self.memory.beta,
                kl=float(figures["kl"]),
                target=self.control.target,
                samples=sum(len(example.completions) for example in self.current.examples),
                horizon=self.control.horizon,
            )
        self.current = None

    def tensors(self) -> Mapping[str, Tensor]:
        """The memory, and the round that is under way."""
        kept = {"memory": torch.tensor(self.memory.facts(), dtype=torch.float64)}
        for part in (self.curriculum, self.replay, self.current):
            kept |= {} if part is None else part.tensors()
        return kept

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on in the middle of a round, or before the next one."""
        self.memory = Memory.from_facts(tensors["memory"].tolist())
        for part in (self.curriculum, self.replay):
            if part is not None:
                part.take_up(tensors)
        self.current = Round.from_tensors(tensors) if "facts" in tensors else None

    def _begin(self, number: int, questions: Sequence[Question]) -> Round | None:
        collected = self.collector.collect(questions, number, self.questions)
        if self.curriculum is not None:
            self.curriculum.learn(collected.seen)
        objection = self.collector.objection(collected, alone=not self.refuse_alone)
        if objection is not None:
            self.memory.bad += 1
            # A reward that has worked may fail for a while.
            if not self.memory.scores or self.memory.bad >= PATIENCE:
                raise UserError(f"round {number}: {objection}")
        if objection is not None or not collected.groups:
            self.memory.idle = number
            return None
        self.memory.bad = 0
        if self.replay is not None:
            collected = replace(collected, again=self.replay.again(collected.groups, number))
        usual = self.memory.mean if self.memory.scores else None
        made = self.experience.round(collected, number, beta=self._beta, usual=usual)
        self._remember(made, collected.fresh)
        return made

    @property
    def _beta(self) -> float:
        """What the KL in the reward counts; of an adaptive row the memory holds another coefficient."""
        row = self.experience.row
        return float(row.beta) if row.adaptive else self.memory.beta

    def _remember(self, made: Round, new: int) -> None:
        """The mean of all scores so far: what the next round is measured against."""
        total = self.memory.scores + new
        self.memory.mean += (made.mean - self.memory.mean) * new / total
        self.memory.scores = total
