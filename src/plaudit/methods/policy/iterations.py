"""The iterations of a policy run: rounds of rollouts, each used for one or several updates.

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

from plaudit.engine.distributed import Ranks
from plaudit.engine.step_report import Number
from plaudit.errors import UserError
from plaudit.losses.kl_control import double_or_halve_beta, proportional_beta
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.collect import PassRateCurriculum, ReplayBuffer, RolloutCollector
from plaudit.methods.policy.experience import ExperienceMaker
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from plaudit.tokens.prompts import EncodedPrompt

MAX_ROUNDS_WITHOUT_VERDICT = 3
"""The number of rounds in a row without a verdict after which a run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KlControl:
    """The schedule of the KL coefficient, and the KL at which a round ends early.

    Example: ``KlControl(schedule="proportional_beta", start_coefficient=0.1, target_kl=6.0, horizon=10_000)``
    """

    schedule: Literal["fixed", "proportional", "doubling"] = "fixed"
    """Fixed, proportional to the KL (Ziegler et al. 2019), or doubling and halving (PPO)."""
    start_coefficient: int | float = 0.0
    """The initial coefficient."""
    target_kl: int | float = 0.0
    """The target KL."""
    horizon: int | float = 10_000
    """Completions over which the proportional controller makes up the whole error."""
    stop_at: int | float = 0.0
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; 0 never."""


@dataclass(slots=True)
class RoundMemory:
    """State that rounds hand on to each other.

    Example: ``RoundMemory(beta=0.1)``
    """

    beta: float
    """The current KL coefficient."""
    score_count: int = 0
    """How many scores there were so far."""
    mean_score: float = 0.0
    """The mean score so far."""
    stopped_round: int = 0
    """The newest round that was ended early."""
    idle_round: int = 0
    """The newest round that had nothing to learn."""
    rounds_without_verdict: int = 0
    """Rounds in a row without a usable verdict."""

    def to_numbers(self) -> list[float]:
        """The state as numbers, for a checkpoint."""
        counts = (self.score_count, self.stopped_round, self.idle_round, self.rounds_without_verdict)
        return [self.beta, self.mean_score, *map(float, counts)]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> RoundMemory:
        """The state from a checkpoint's numbers."""
        beta, mean, *counts = numbers
        scores, stopped, idle, bad = map(int, counts)
        return cls(
            beta=beta,
            mean_score=mean,
            score_count=scores,
            stopped_round=stopped,
            idle_round=idle,
            rounds_without_verdict=bad,
        )


@dataclass(kw_only=True)
class RolloutRounds:
    """The rounds of a run, as state beside the weights.

    Example: ``RolloutRounds(questions=rows.train, collector=…, experience=…,
        kl_control=KlControl(), ranks=…, seed=0)``
    """

    questions: Sequence[EncodedPrompt]
    """All training prompts."""
    collector: RolloutCollector
    """Generates and scores rollouts."""
    experience: ExperienceMaker
    """Makes training tensors of scored rollouts."""
    kl_control: KlControl
    """The schedule of the KL coefficient."""
    ranks: Ranks
    """This process among its peers."""
    seed: int
    """The seed of the shuffle within rounds."""
    extra_microbatches: Callable[[int], Sequence[AnyMicrobatch]] = field(default=lambda step: ())
    """Further micro-batches of an update: text for the PTX loss."""
    needs_comparison: bool = False
    """Whether a group of one completion carries no signal."""
    curriculum: PassRateCurriculum | None = None
    """Samples the prompts of a round; without it they come in order."""
    replay: ReplayBuffer | None = None
    """The replay buffer, if any."""

    def __post_init__(self) -> None:
        """Begin without a round."""
        self.memory = RoundMemory(beta=float(self.kl_control.start_coefficient))
        self.current: Round | None = None

    @property
    def updates_per_round(self) -> int:
        """Updates per round."""
        return self.experience.epochs * self.experience.minibatches

    def microbatches(self, step: int, batch: Sequence[int]) -> Sequence[AnyMicrobatch]:
        """This rank's micro-batches of an update, given its round's prompts; none where it is skipped."""
        round_number, update = 1 + (step - 1) // self.updates_per_round, (step - 1) % self.updates_per_round
        if round_number in (self.memory.stopped_round, self.memory.idle_round):
            return ()
        if self.current is None or self.current.number != round_number:
            rows = (
                batch if self.curriculum is None else self.curriculum.sample_prompts(round_number, len(batch))
            )
            self.current = self._new_round(round_number, [self.questions[row] for row in rows])
            if self.current is None:
                return ()
        minibatches = self.current.minibatches(self.experience.epochs, self.experience.minibatches, self.seed)
        groups = [minibatch for epoch in minibatches for minibatch in epoch][update]
        if not groups:
            return ()
        token_budget = self.experience.tokens_at_once
        shares = self.current.rank_microbatches(
            groups, ranks=self.ranks.world_size, tokens_at_once=token_budget
        )
        counts = self.current.loss_counts(groups)
        policy_microbatches = [
            PolicyMicrobatch(
                round=self.current,
                groups=refs,
                counts=counts,
                is_first_update=update == 0,
                is_only_update=not self.experience.needs_old_logps,
                kl_penalty=self.memory.beta if "adaptive_penalty" in self.experience.row.needs else 0.0,
            )
            for refs in shares[self.ranks.rank]
        ]
        return [*policy_microbatches, *self.extra_microbatches(step)]

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Adapt the KL coefficient, and end the round after its last update."""
        old_kl = float(metrics.get("kl_old", math.nan))
        round_number, is_last_update = (
            1 + (step - 1) // self.updates_per_round,
            step % self.updates_per_round == 0,
        )
        if self.current is None:
            return
        if self.kl_control.stop_at and old_kl > self.kl_control.stop_at:
            self.memory.stopped_round, is_last_update = round_number, True
        if not is_last_update:
            return
        if self.kl_control.schedule == "doubling":
            self.memory.beta = double_or_halve_beta(
                self.memory.beta, kl=old_kl, target=self.kl_control.target_kl
            )
        if self.kl_control.schedule == "proportional" and "kl" in metrics:
            self.memory.beta = proportional_beta(
                self.memory.beta,
                kl=float(metrics["kl"]),
                target=self.kl_control.target_kl,
                samples=sum(len(example.completions) for example in self.current.examples),
                horizon=self.kl_control.horizon,
            )
        self.current = None

    def tensors(self) -> Mapping[str, Tensor]:
        """The state between rounds, and the round that is under way."""
        tensors = {"memory": torch.tensor(self.memory.to_numbers(), dtype=torch.float64)}
        for part in (self.curriculum, self.replay, self.current):
            tensors |= {} if part is None else part.tensors()
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state, in the middle of a round or before the next one."""
        self.memory = RoundMemory.from_numbers(tensors["memory"].tolist())
        for part in (self.curriculum, self.replay):
            if part is not None:
                part.load_tensors(tensors)
        self.current = Round.from_tensors(tensors) if "facts" in tensors else None

    def _new_round(self, round_number: int, questions: Sequence[EncodedPrompt]) -> Round | None:
        collected = self.collector.collect(questions, round_number, self.questions)
        if self.curriculum is not None:
            self.curriculum.record_scores(collected.all_groups)
        objection = self.collector.objection(collected, single_is_enough=not self.needs_comparison)
        if objection is not None:
            self.memory.rounds_without_verdict += 1
            # A reward that has worked may fail for a while.
            if (
                not self.memory.score_count
                or self.memory.rounds_without_verdict >= MAX_ROUNDS_WITHOUT_VERDICT
            ):
                raise UserError(f"round {round_number}: {objection}")
        if objection is not None or not collected.groups:
            self.memory.idle_round = round_number
            return None
        self.memory.rounds_without_verdict = 0
        if self.replay is not None:
            collected = replace(collected, replayed=self.replay.sample_groups(collected.groups, round_number))
        mean_score = self.memory.mean_score if self.memory.score_count else None
        new_round = self.experience.make_round(
            collected, round_number, kl_coefficient=self._beta, mean_score=mean_score
        )
        self._update_mean_score(new_round, collected.new_completions)
        return new_round

    @property
    def _beta(self) -> float:
        """What the KL in the reward counts; of an adaptive row the memory holds another coefficient."""
        row = self.experience.row
        return float(row.kl_coef) if "adaptive_penalty" in row.needs else self.memory.beta

    def _update_mean_score(self, new_round: Round, new_completions: int) -> None:
        """The mean of all scores so far: what the next round is measured against."""
        total = self.memory.score_count + new_completions
        self.memory.mean_score += (new_round.mean_score - self.memory.mean_score) * new_completions / total
        self.memory.score_count = total
