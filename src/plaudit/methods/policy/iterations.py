"""The iterations of a policy run: rounds of rollouts, each used for one or several updates.

`policy_updates` is the loop: it pulls rounds from a `RolloutSource` and gives the micro-batches of one step
after another. A round lives from its first step to its last and is part of every checkpoint between them, so
that a run which was killed there goes on with the same bits.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from queue import SimpleQueue
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from plaudit.engine.distributed import Ranks, single_process
from plaudit.engine.loop import BatchRows
from plaudit.engine.metrics import Metric, mean_metric, values_of
from plaudit.engine.step import GrowingBatch, merge_over_ranks
from plaudit.engine.step_report import Number
from plaudit.errors import UserError
from plaudit.losses.divergence import double_or_halve_beta, proportional_beta
from plaudit.methods.policy.batch import (
    PassRateCurriculum,
    ReplayBuffer,
    Round,
    RoundMemory,
    assemble_over_ranks,
)
from plaudit.methods.policy.collect import (
    CollectedRollouts,
    RolloutCollector,
    ScoredGroup,
    group_as_json,
    group_from_json,
)
from plaudit.methods.policy.experience import ExperienceMaker
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch, old_kl_reader
from plaudit.methods.policy.row import KlControl, LossCounts
from plaudit.rollouts.sampler import WeightsVersion
from plaudit.tensors.masked import masked_sum
from plaudit.tokens.microbatch import micro_batches_in_order
from plaudit.tokens.prompts import EncodedPrompt

DrawnT = TypeVar("DrawnT")
PIECES = 8
"""Into how many micro-batches at least a round that is learnt from as it comes is divided, on each rank."""
MAX_ROUNDS_WITHOUT_VERDICT = 3
"""The number of rounds in a row without a verdict after which a run ends."""
SMALLEST_ADVANTAGE = 1e-3
"""Advantages below this are rounding of equal scores."""


AnyRound = Round | GrowingBatch[AnyMicrobatch]
"""A round, or the micro-batches of one that is still being drawn."""


@runtime_checkable
class RolloutSource(Protocol):
    """Where the rounds of a run come from: drawn here by the policy, or handed on by whatever drew them."""

    @property
    def updates_per_round(self) -> int: ...

    def rounds(self, first: int, batch_rows: BatchRows) -> Iterator[AnyRound | None]:
        """The rounds from this number on; None in place of one from which nothing can be learnt."""
        ...

    def microbatches(self, step: int, policy_round: AnyRound | None) -> Sequence[AnyMicrobatch]:
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


@runtime_checkable
class BackgroundSampler(Protocol):
    """A sampler elsewhere, which draws while weights move here."""

    ranks: Ranks

    def later(self, draw: Callable[[], DrawnT]) -> Future[DrawnT]:
        """What ``draw`` draws with the weights of now, one such call after the other; all ranks come."""
        ...


def arriving(
    sampler: BackgroundSampler, draw: Callable[[Callable[[ScoredGroup], None]], None]
) -> Iterator[ScoredGroup]:
    """The groups that ``draw`` hands over, while it goes on in the background."""
    here = SimpleQueue[ScoredGroup | None]()
    drawing = sampler.later(partial(draw, here.put))
    drawing.add_done_callback(lambda _: here.put(None))
    yield from iter(here.get, None)
    # What went wrong there is raised here.
    drawing.result()


class RoundsAhead:
    """Rounds that are drawn while those before them are learnt from.
    Round r is drawn with the weights that round r − 1 − lag has left. A checkpoint holds the rounds that its
    own weights did not draw, so that a run that goes on needs no weights of before."""

    def __init__(
        self,
        lag: int,
        last_round: int,
        collector: RolloutCollector,
        sampler: BackgroundSampler,
        prompts: Sequence[EncodedPrompt],
    ) -> None:
        """``prompts`` are all of the run, and ``last_round`` is its last: none is drawn behind it."""
        self._lag, self._last_round = lag, last_round
        self._sampler, self._prompts = sampler, prompts
        # In a group of their own: in the other one this thread's ranks speak while it draws.
        self._collector = replace(collector, ranks=sampler.ranks)
        self._groups: dict[int, Future[list[ScoredGroup]]] = {}
        self._seconds: dict[int, float] = {}

    def begin(self, number: int, prompts: Callable[[int], Sequence[EncodedPrompt]]) -> None:
        """Have all rounds drawn, with the weights of now, that are to be under way in this one."""
        for ahead in range(number, min(number + self._lag, self._last_round) + 1):
            if ahead not in self._groups:
                self._groups[ahead] = self._sampler.later(partial(self._draw, ahead, prompts(ahead)))

    def _draw(self, number: int, prompts: Sequence[EncodedPrompt]) -> list[ScoredGroup]:
        begin = time.perf_counter()
        groups = self._collector.draw(prompts, number, self._prompts)
        self._seconds[number] = time.perf_counter() - begin
        return groups

    def take(self, number: int) -> tuple[list[ScoredGroup], float]:
        """The groups of a round, once they are there, and how long they were drawn in this process."""
        return self._groups.pop(number).result(), self._seconds.pop(number, 0.0)

    def tensors(self) -> Mapping[str, Tensor]:
        """The groups of rounds that are drawn by now, or are under way and waited for."""
        place = {id(prompt): row for row, prompt in enumerate(self._prompts)}
        rounds = {
            number: [group_as_json(place[id(group.prompt)], group) for group in future.result()]
            for number, future in self._groups.items()
        }
        return {"ahead": torch.frombuffer(bytearray(json.dumps(rounds).encode()), dtype=torch.uint8)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        for future in self._groups.values():
            # What is under way was drawn for weights that are taken back.
            future.exception()
        self._groups = {}
        rounds = json.loads(bytes(tensors["ahead"].tolist())) if "ahead" in tensors else {}
        for number, lines in rounds.items():
            future = self._groups[int(number)] = Future()
            future.set_result([group_from_json(line, self._prompts)[1] for line in lines])


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
    ahead: RoundsAhead | None = None
    """Who draws rounds while others are learnt from; without it each is drawn when it begins."""
    streams: BackgroundSampler | None = None
    """Who draws a round while it is learnt from, group by group; without it all of it is drawn before."""
    streams_at_once: bool = True
    """Whether that begins with the first group, or waits for the last, and comes to the same weights."""

    def __post_init__(self) -> None:
        self.memory = RoundMemory(beta=float(self.kl_control.start_coefficient))
        self.current: Round | None = None
        self.objection = ""
        self._timing: dict[str, float] = {}

    @property
    def updates_per_round(self) -> int:
        return self.experience.epochs * self.experience.minibatches

    def rounds(self, first: int, batch_rows: BatchRows) -> Iterator[AnyRound | None]:
        """The rounds from this number on, each drawn when it is pulled; one that is under way goes on."""
        for number in count(first):
            yield self._round(number, batch_rows)

    def _round(self, number: int, batch_rows: BatchRows) -> AnyRound | None:
        # Both numbers come back with a checkpoint: a round that was ended, or had nothing to teach, is not
        # drawn once more on resume.
        if number in (self.memory.stopped_round, self.memory.idle_round):
            return None
        if self.current is None or self.current.number != number:
            prompts = self._prompts_of(batch_rows, number)
            if self.streams is not None and len(prompts) >= self.ranks.world_size:
                return GrowingBatch(partial(self._stream, self.streams, number, prompts))
            self.current = self._new_round(number, self._collect(number, batch_rows))
        return self.current

    def _prompts_of(self, batch_rows: BatchRows, number: int) -> Sequence[EncodedPrompt]:
        batch = batch_rows(number)
        rows = batch if self.curriculum is None else self.curriculum.sample_prompts(number, len(batch))
        return [self.prompts[row] for row in rows]

    def _collect(self, number: int, batch_rows: BatchRows) -> CollectedRollouts:
        prompts = partial(self._prompts_of, batch_rows)
        begin = time.perf_counter()
        if self.ahead is None:
            collected = self.collector.collect(prompts(number), number, self.prompts)
            drawn = time.perf_counter() - begin
        else:
            self.ahead.begin(number, prompts)
            groups, drawn = self.ahead.take(number)
            collected = self.collector.assemble(groups, len(batch_rows(number)))
        self._timing = {"draw_seconds": drawn, "wait_seconds": time.perf_counter() - begin}
        return collected

    def _stream(
        self,
        sampler: BackgroundSampler,
        number: int,
        prompts: Sequence[EncodedPrompt],
        whole: GrowingBatch[AnyMicrobatch],
    ) -> Iterator[PolicyMicrobatch]:
        """A round's micro-batches on this rank, each as a round of its own once its groups are there."""
        # They are the same ones however fast answers come. Behind the last one the round is put together.
        answers, longest = len(prompts) * self.collector.completions_per_prompt, self.experience.room(number)
        most = LossCounts(tokens=answers * longest, completions=answers, max_tokens=longest)
        waited = 0.0
        here, scored = list[ScoredGroup](), list[Tensor]()
        coming = self._coming(sampler, number, prompts, here)
        while True:
            waiting = time.perf_counter()
            collected = next(coming, None)
            waited += time.perf_counter() - waiting
            if not any(more for [more] in self.ranks.all_gather([collected is not None])):
                break
            piece = self._piece(number, collected, here, most)
            if collected is not None:
                sizes = [len(group.rollouts) for group in collected.groups]
                experience = piece.round.experience
                scored += torch.stack((experience.old_logp_NT, experience.ref_logp_NT), -1).split(sizes)
            yield piece
        self._timing["wait_seconds"] = waited
        all_groups = self.collector.exchange(here, prompts)
        collected = self.collector.assemble(all_groups, len(prompts))
        self.current = self._new_round(number, collected, self._scored(all_groups, scored))
        # Of a round that teaches nothing after all nothing is learnt.
        there = None if self.current is None else self.current.loss_counts(range(len(collected.groups)))
        whole.factor = self._share_of_loss(there, most)
        whole.metrics = () if self.current is None else self.current.metrics

    def _coming(
        self,
        sampler: BackgroundSampler,
        number: int,
        prompts: Sequence[EncodedPrompt],
        here: list[ScoredGroup],
    ) -> Iterator[CollectedRollouts]:
        """This rank's groups, as many together as are learnt from at once; all are added to ``here``."""

        def draw(take: Callable[[ScoredGroup], None]) -> None:
            begin = time.perf_counter()
            self.collector.draw_each(prompts, number, take)
            self._timing["draw_seconds"] = time.perf_counter() - begin

        groups = arriving(sampler, draw)
        if not self.streams_at_once:
            groups = iter(list(groups))
        together = -(-len(self.collector.share_of(prompts)) // PIECES)
        while chunk := list(islice(groups, together)):
            here += chunk
            for piece in micro_batches_in_order(chunk, self.experience.tokens_at_once):
                if (collected := self.collector.assemble(piece, len(piece))).groups:
                    yield collected

    def _piece(
        self, number: int, collected: CollectedRollouts | None, here: Sequence[ScoredGroup], most: LossCounts
    ) -> PolicyMicrobatch:
        """Some groups of a round; without any the first one again, which then teaches nothing."""
        groups = collected
        if groups is None:
            # Weights that are divided over ranks compute only where all do.
            groups = self.collector.assemble([replace(here[0], scores=(0.0,) * len(here[0].rollouts))], 1)
        single = replace(self.experience, ranks=single_process(self.ranks.device), tokens_at_once=sys.maxsize)
        piece = single.make_round(groups, number, kl_coefficient=self._beta, mean_score=0.0)
        [[refs]] = piece.rank_microbatches(range(len(piece.examples)), ranks=1, tokens_at_once=sys.maxsize)
        if collected is None:
            refs = tuple(replace(ref, is_counted=False) for ref in refs)
        if piece.first_pass is not None:
            piece.first_pass.groups = refs
        return PolicyMicrobatch(
            round=replace(piece, metrics=()),
            groups=refs,
            counts=most,
            is_first_update=True,
            is_only_update=not self.experience.needs_old_logps,
        )

    def _scored(self, all_groups: Sequence[ScoredGroup], here: Sequence[Tensor]) -> Tensor | None:
        """The log-probs of policy and reference over a round, of which each rank has those of its groups."""
        taught = [self.collector.assemble([group], 1).groups for group in all_groups]
        if not any(taught):
            return None
        dtype = torch.promote_types(self.experience.models.policy.logp_dtype, torch.float32)
        # A rank may have none, and all add up the same numbers.
        rows, start, mine = [(torch.tensor([0]), torch.zeros(1, 1, 2, dtype=dtype))], 0, iter(here)
        for place, groups in enumerate(taught):
            for group in groups:
                index_n = torch.arange(start, start + len(group.rollouts))
                start += len(group.rollouts)
                if place % self.ranks.world_size == self.ranks.rank:
                    rows.append((index_n, next(mine)))
        longest = max(len(rollout.ids) for [group] in filter(None, taught) for rollout in group.rollouts)
        return assemble_over_ranks(rows, (start, longest), self.ranks)

    def _share_of_loss(self, there: LossCounts | None, most: LossCounts) -> float:
        """What to multiply losses with that were divided by these counts; 0 where nothing is there."""
        if there is None:
            return 0.0
        loss, mask = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
        reduction = self.experience.row.reduction
        return float(reduction(loss, mask, there) / reduction(loss, mask, most))

    def timing(self) -> Mapping[str, float]:
        """How long a round was drawn and waited for, once, with its first step."""
        timing, self._timing = self._timing, {}
        return timing

    def microbatches(self, step: int, policy_round: AnyRound | None) -> Sequence[AnyMicrobatch]:
        if isinstance(policy_round, GrowingBatch):
            return policy_round
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
        round_number = 1 + (step - 1) // self.updates_per_round
        is_last_update = step % self.updates_per_round == 0
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
        for part in (self.curriculum, self.replay, self.current, self.ahead):
            tensors |= {} if part is None else part.tensors()
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state, in the middle of a round or before the next one."""
        # The weights came back too: a sampler in another process still has those from before.
        self.weights.moved()
        self.memory = RoundMemory.from_numbers(tensors["memory"].tolist())
        for part in (self.curriculum, self.replay, self.ahead):
            if part is not None:
                part.load_tensors(tensors)
        self.current = Round.from_tensors(tensors) if "facts" in tensors else None

    def _new_round(
        self, round_number: int, collected: CollectedRollouts, scored_NTX: Tensor | None = None
    ) -> Round | None:
        """A round of these rollouts, of which policy and reference may have said what they have to say."""
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
            collected, round_number, kl_coefficient=self._beta, mean_score=mean_score, scored_NTX=scored_NTX
        )
        # The mean of all scores so far: what the next round is measured against.
        memory, new = self.memory, collected.new_completions
        memory.score_count += new
        memory.mean_score += (new_round.mean_score - memory.mean_score) * new / memory.score_count
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
