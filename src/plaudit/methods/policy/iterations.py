"""The iterations of a policy run: rounds of rollouts, each used for one or several updates.

`policy_updates` is the loop: it pulls rounds from a `RolloutSource` and gives the micro-batches of one step
after another. A round lives from its first step to its last and is part of every checkpoint between them, so
that a run which was killed there goes on with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from plaudit.engine.distributed import Ranks
from plaudit.engine.loop import BatchRows
from plaudit.engine.metrics import Metric, mean_metric, values_of
from plaudit.engine.step import merge_over_ranks
from plaudit.engine.step_report import Number
from plaudit.errors import UserError
from plaudit.losses.divergence import double_or_halve_beta, proportional_beta
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.collect import (
    CollectedRollouts,
    PassRateCurriculum,
    ReplayBuffer,
    RolloutCollector,
)
from plaudit.methods.policy.experience import ExperienceMaker
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch, old_kl_reader
from plaudit.rollouts.sampler import WeightsVersion
from plaudit.tensors.masked import masked_sum
from plaudit.tokens.prompts import EncodedPrompt

MAX_ROUNDS_WITHOUT_VERDICT = 3
"""The number of rounds in a row without a verdict after which a run ends."""
SMALLEST_ADVANTAGE = 1e-3
"""Advantages below this are rounding of equal scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KlControl:
    """The schedule of the KL coefficient, and the KL at which a round ends early."""

    schedule: Literal["fixed", "proportional", "doubling"] = "fixed"
    """Fixed, proportional to the KL (Ziegler et al. 2019), or doubling and halving (PPO)."""
    start_coefficient: int | float = 0.0
    target_kl: int | float = 0.0
    horizon: int | float = 10_000
    """Completions over which the proportional controller makes up the whole error."""
    stop_at: int | float = 0.0
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; 0 never."""


@dataclass(slots=True)
class RoundMemory:
    beta: float
    """The current KL coefficient."""
    score_count: int = 0
    mean_score: float = 0.0
    stopped_round: int = 0
    """The newest round that was ended early."""
    idle_round: int = 0
    """The newest round that had nothing to learn."""
    rounds_without_verdict: int = 0
    rounds_without_signal: int = 0
    """Rounds since the beginning in which no prompt told two answers apart; −1 once one has."""

    def to_numbers(self) -> list[float]:
        counts = (self.score_count, self.stopped_round, self.idle_round)
        in_a_row = (self.rounds_without_verdict, self.rounds_without_signal)
        return [self.beta, self.mean_score, *map(float, counts + in_a_row)]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> RoundMemory:
        beta, mean, *counts = numbers
        # A checkpoint of an earlier version does not say whether a prompt has told two answers apart.
        scores, stopped, idle, bad, flat = map(int, counts if len(counts) == 5 else [*counts, -1])
        return cls(
            beta=beta,
            mean_score=mean,
            score_count=scores,
            stopped_round=stopped,
            idle_round=idle,
            rounds_without_verdict=bad,
            rounds_without_signal=flat,
        )


@runtime_checkable
class RolloutSource(Protocol):
    """Where the rounds of a run come from: drawn here by the policy, or handed on by whatever drew them."""

    @property
    def updates_per_round(self) -> int: ...

    def rounds(self, first: int, batch_rows: BatchRows) -> Iterator[Round | None]:
        """The rounds from this number on; None in place of one from which nothing can be learnt."""
        ...

    def microbatches(self, step: int, policy_round: Round | None) -> Sequence[AnyMicrobatch]:
        """This rank's micro-batches of a step of a round; none where the step is skipped."""
        ...


def policy_updates(
    source: RolloutSource, first: int, batch_rows: BatchRows
) -> Iterator[Sequence[AnyMicrobatch]]:
    """The micro-batches of each step from ``first`` on: a loop over rounds, and in each over its steps."""
    inner = source.updates_per_round
    step = first
    # Steps and rounds count from 1: (first − 1) // inner rounds are over by now.
    for policy_round in source.rounds(1 + (first - 1) // inner, batch_rows):
        # A run that goes on in the middle of a round takes only the steps that are left of it.
        for _ in range((step - 1) % inner, inner):
            yield source.microbatches(step, policy_round)
            step += 1
        # The next round is made while this loop waits for it: two at once would take twice the memory.
        del policy_round


@dataclass(kw_only=True)
class RolloutRounds:
    """The rounds of a run that draws its own answers, as state beside the weights."""

    prompts: Sequence[EncodedPrompt]
    collector: RolloutCollector
    experience: ExperienceMaker
    kl_control: KlControl
    ranks: Ranks
    seed: int
    weights: WeightsVersion = field(default_factory=WeightsVersion)
    """Counts how often the policy's weights have moved."""
    extra_microbatches: Callable[[int], Sequence[AnyMicrobatch]] = field(default=lambda step: ())
    """Further micro-batches of an update: text for the PTX loss."""
    needs_comparison: bool = False
    """Whether a group of one completion carries no signal."""
    max_flat_rounds: int = 3
    """After so many rounds from the beginning in which no prompt told two answers apart it ends; 0 never."""
    curriculum: PassRateCurriculum | None = None
    """Samples the prompts of a round; without it they come in order."""
    replay: ReplayBuffer | None = None

    def __post_init__(self) -> None:
        self.memory = RoundMemory(beta=float(self.kl_control.start_coefficient))
        self.current: Round | None = None
        self.objection = ""

    @property
    def updates_per_round(self) -> int:
        return self.experience.epochs * self.experience.minibatches

    def rounds(self, first: int, batch_rows: BatchRows) -> Iterator[Round | None]:
        """The rounds from this number on, each drawn when it is pulled; one that is under way goes on."""
        for number in count(first):
            yield self._round(number, batch_rows)

    def _round(self, number: int, batch_rows: BatchRows) -> Round | None:
        # Both numbers come back with a checkpoint: a round that was ended, or had nothing to teach, is not
        # drawn once more on resume.
        if number in (self.memory.stopped_round, self.memory.idle_round):
            return None
        if self.current is None or self.current.number != number:
            batch = batch_rows(number)
            rows = batch if self.curriculum is None else self.curriculum.sample_prompts(number, len(batch))
            self.current = self._new_round(number, [self.prompts[row] for row in rows])
        return self.current

    def microbatches(self, step: int, policy_round: Round | None) -> Sequence[AnyMicrobatch]:
        # policy_updates still holds the round that after_step has ended; its other steps come out empty.
        if policy_round is None or policy_round.number == self.memory.stopped_round:
            return ()
        update = (step - 1) % self.updates_per_round
        # Computed again at each step and never stored: a function of seed, round and epoch.
        minibatches = policy_round.minibatches(self.experience.epochs, self.experience.minibatches, self.seed)
        groups = [minibatch for epoch in minibatches for minibatch in epoch][update]
        if not groups:
            return ()
        token_budget = self.experience.tokens_at_once
        shares = policy_round.rank_microbatches(
            groups, ranks=self.ranks.world_size, tokens_at_once=token_budget
        )
        # Before the division over ranks: denominators are those of the whole minibatch.
        counts = policy_round.loss_counts(groups)
        policy_microbatches = [
            PolicyMicrobatch(
                round=policy_round,
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
        # Before any return: a version too many costs one transfer of weights, one too few stale answers.
        self.weights.moved()
        # NaN compares False: a step without rollouts neither ends a round nor moves the coefficient.
        old_kl = float(metrics.get("approx_kl", math.nan))
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
            # Asked after the round's last move: the step's own figure is from before it. With two moves it is
            # that of the first one, which starts where the penalty has no slope, and no loop would close.
            kl = self._kl_to_old(self.current)
            self.memory.beta = double_or_halve_beta(self.memory.beta, kl=kl, target=self.kl_control.target_kl)
        # No KL is reported where a mixture gave the answers; the coefficient then stays.
        if self.kl_control.schedule == "proportional" and "kl" in metrics:
            self.memory.beta = proportional_beta(
                self.memory.beta,
                kl=float(metrics["kl"]),
                target=self.kl_control.target_kl,
                samples=sum(len(self.current.examples[group].completions) for group in self.current.fresh),
                horizon=self.kl_control.horizon,
            )
        # Let go before the next round is made, and left out of checkpoints between rounds.
        self.current = None

    def _kl_to_old(self, policy_round: Round) -> float:
        """KL(π_old ‖ π) a token over the states of a round's own answers, by the weights of this moment."""
        models = self.experience.models
        shares = policy_round.rank_microbatches(
            policy_round.fresh, ranks=self.ranks.world_size, tokens_at_once=self.experience.tokens_at_once
        )
        metrics: list[Metric] = []
        for refs in shares[self.ranks.rank]:
            batch, index_n = policy_round.batch(refs)
            batch = batch.to(models.policy.device)
            experience = policy_round.experience.rows(index_n, batch.mask_NT.shape[1], models.policy.device)
            with torch.no_grad():
                reader = old_kl_reader(experience, models.temperature)
                kl_NT = models.score(batch, readers=[reader]).read[-1]
            metrics.append(mean_metric("kl", masked_sum(kl_NT, batch.mask_NT), batch.mask_NT.sum()))
        return float(values_of(merge_over_ranks(metrics, self.ranks))["kl"])

    def tensors(self) -> Mapping[str, Tensor]:
        tensors = {"memory": torch.tensor(self.memory.to_numbers(), dtype=torch.float64)}
        for part in (self.curriculum, self.replay, self.current):
            tensors |= {} if part is None else part.tensors()
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state, in the middle of a round or before the next one."""
        # The weights came back too: a sampler in another process still has those from before.
        self.weights.moved()
        self.memory = RoundMemory.from_numbers(tensors["memory"].tolist())
        for part in (self.curriculum, self.replay):
            if part is not None:
                part.load_tensors(tensors)
        self.current = Round.from_tensors(tensors) if "facts" in tensors else None

    def _new_round(self, round_number: int, prompts: Sequence[EncodedPrompt]) -> Round | None:
        collected = self.collector.collect(prompts, round_number, self.prompts)
        if self.curriculum is not None:
            # Of dropped groups as well: that a prompt is always passed shows in these alone.
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
            self.objection = f"round {round_number}: {objection}"
        if objection is not None or not collected.groups:
            self.memory.idle_round = round_number
            if objection is None:
                self._count_signal(collected, None)
            return None
        self.memory.rounds_without_verdict = 0
        if self.replay is not None:
            collected = replace(collected, replayed=self.replay.sample_groups(collected.groups, round_number))
        # Before this round joins in: a baseline made of an answer's own score would be biased.
        mean_score = self.memory.mean_score if self.memory.score_count else None
        new_round = self.experience.make_round(
            collected, round_number, kl_coefficient=self._beta, mean_score=mean_score
        )
        self._update_mean_score(new_round, collected.new_completions)
        self._count_signal(collected, new_round)
        return new_round

    def _count_signal(self, collected: CollectedRollouts, new_round: Round | None) -> None:
        """Ends a run that cannot learn: a reward that is the same for all answers gives no gradient, ever."""
        memory = self.memory
        if not self.needs_comparison or memory.rounds_without_signal < 0:
            return
        flat = collected.zero_std == len(collected.all_groups)
        # What is done to scores (a price of length, say) may tell answers apart that the reward does not.
        if new_round is not None and new_round.experience.advantage_NT.abs().max() > SMALLEST_ADVANTAGE:
            flat = False
        memory.rounds_without_signal = memory.rounds_without_signal + 1 if flat else -1
        if self.max_flat_rounds and memory.rounds_without_signal >= self.max_flat_rounds:
            group = collected.all_groups[0]
            prompt = group.prompt.origin or "the first prompt"
            raise UserError(
                f"all answers to each prompt have had one and the same score for {self.max_flat_rounds} "
                f"rounds (now {group.scores[0]} for those to {prompt}), so nothing is learnt. Look at what "
                f"{self.collector.reward.name} says of answers that differ (plaudit check), draw more, "
                "or choose prompts that are sometimes answered well and sometimes not; --draw.flat-rounds 0 "
                "waits for ever"
            )

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
