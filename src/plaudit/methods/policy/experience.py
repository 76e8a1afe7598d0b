"""From scored rollouts to a round with log-probs, values, advantages, returns and metrics.

All of it is found before the first move. The policy is asked by the very pieces of the first epoch's moves,
so that at the first move its ratio to itself is 1. The first of these pieces is then computed once for both:
its graph waits for the first move. Process rewards become payments at tokens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache

import torch
from torch import Tensor

from plaudit.advantages.group import mean_of_others
from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, mean_metric
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.engine.step import StepCheck
from plaudit.errors import UserError
from plaudit.losses.ratio import WeightBounds, effective_share, log_ratio, truncated_importance_weight
from plaudit.methods.algorithm import usable
from plaudit.methods.policy.batch import (
    KL_METRICS,
    ExperienceTensors,
    FirstPass,
    GroupRef,
    Round,
    assemble_over_ranks,
    distribution_reader,
    round_metrics,
    sampling_logp_diff_metrics,
    unpacked_distributions,
)
from plaudit.methods.policy.collect import CollectedRollouts, step_payments
from plaudit.methods.policy.row import AdvantageInputs, PolicyAlgorithm
from plaudit.methods.policy.shaping import ScoreShaper
from plaudit.models.mixture import MixtureScorer
from plaudit.models.policy import (
    FullDistributionReference,
    ModelReference,
    Policy,
    Reference,
    StateReader,
    TokenScores,
)
from plaudit.models.reward_model import RewardModel, ValueHead
from plaudit.rollouts.local import example_from_rollouts
from plaudit.tensors.masked import broadcast_to_tokens, masked_mean, whiten
from plaudit.tokens.batch import Example, TokenBatch, batch_of

RankMicrobatches = Sequence[Sequence[GroupRef]]
"""The micro-batches of this rank, each as the groups that are in it."""
MAX_SAMPLER_GAP = {torch.float64: 1e-4, torch.float32: 1e-4}
"""The largest mean gap (nats a token) between sampler and trainer log-probs, by what passes compute in."""
DEFAULT_CAP = 2.0
"""The cap of importance weights of tokens of older weights, where none was named."""
_ROUNDED = (
    "the sampler's log-probs differ from the policy's by more than 0.03 nats a token: in 16 bits this model "
    "differs from itself by as much. --tis-cap 2 weighs answers by the difference, --dtype float32 has none"
)
_note_once = cache(ConsoleSink(quiet=True).note)
MAX_SAMPLER_GAP_HALF = 0.03
"""The largest mean gap in 16 bits. TRL's issue 5312 has 0.2 of stale weights, 0.02 of fresh ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringModels:
    policy: Policy
    reference: Reference
    critic: RewardModel | ValueHead | None
    temperature: int | float
    """Scores are divided by it, as they were when answers were drawn."""

    def score(
        self, batch: TokenBatch, *, entropy: bool = False, readers: Sequence[StateReader] = ()
    ) -> TokenScores:
        """What the policy says of the tokens; a critic that is a head on its states is the first reader."""
        shared = [self.critic.read] if isinstance(self.critic, ValueHead) else []
        also = ("entropy",) if entropy else ()
        state_readers = [*shared, *readers]
        return self.policy.score(batch, also=also, temperature=self.temperature, state_readers=state_readers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceWeighting:
    cap: int | float = 0.0
    """The largest weight π_old / μ of a token, where the sampler's log-probs differ; 0 weighs nothing."""
    bounds: WeightBounds = "capped"
    has_replay: bool = False
    """Whether answers of earlier rounds come again, which are always weighed."""
    lag: int = 0
    """By how many rounds the weights that draw are older at most; such answers are always weighed."""

    @property
    def limit(self) -> float:
        return self.cap or (DEFAULT_CAP if self.has_replay or self.lag else 0.0)

    def metrics(
        self, round_number: int, old_logp_NT: Tensor, sampler_logp_NT: Tensor, mask_NT: Tensor
    ) -> tuple[Metric, ...]:
        """What the weights of new answers come to, where they were drawn ahead."""
        if not self.lag:
            return ()
        weight_NT = truncated_importance_weight(
            old_logp_NT, sampler_logp_NT, mask_NT, cap=math.inf, bounds=self.bounds
        )
        weight_M = weight_NT[mask_NT]
        beyond = float((weight_M > self.limit).double().mean())
        return (
            # The first rounds are drawn with the weights that the run begins with.
            mean_metric("rollout_lag", min(self.lag, round_number - 1), 1),
            mean_metric("effective_samples", float(effective_share(weight_M.double())), 1),
            mean_metric("frac_weights_bounded", beyond, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceMaker:
    row: PolicyAlgorithm
    models: ScoringModels
    shaper: ScoreShaper
    ranks: Ranks
    tokens_at_once: int
    minibatches: int
    epochs: int
    room: Callable[[int], int]
    """The largest number of tokens of a completion, by the round's number."""
    weighting: ImportanceWeighting
    reference_share: int | float = 0.0
    """The reference's share in the mixture that answers are drawn from; 0: the policy alone draws them."""

    def make_round(
        self,
        collected: CollectedRollouts,
        round_number: int,
        *,
        kl_coefficient: int | float,
        mean_score: int | float | None,
        scored_NTX: Tensor | None = None,
    ) -> Round:
        """``kl_coefficient`` is that of now, ``mean_score`` the mean of the rounds before, if any.
        ``scored_NTX`` are the log-probs of policy and reference, where these have been asked."""
        self.shaper.longest = self.room(round_number)
        # New groups first: everything below finds them as the first `new_completions` rows.
        groups = (*collected.groups, *collected.replayed)
        examples = tuple(example_from_rollouts(group.prompt, group.rollouts) for group in groups)
        batch = batch_of(examples)
        rollout_round = self._empty_round(
            round_number, examples, _empty_experience(batch), len(collected.groups)
        )
        sampler_logp_NT = _sampler_logps(collected, batch, self.models.policy.logp_dtype)
        token_scores, old_distribution = self._token_scores(rollout_round, sampler_logp_NT, scored_NTX)
        old_logp_NT, ref_NT, _ = token_scores
        inputs = self._advantage_inputs(
            collected, batch, token_scores, kl_coefficient=kl_coefficient, mean_score=mean_score
        )
        policy_tensors = {"old_logp_NT": old_logp_NT, "ref_logp_NT": ref_NT, **old_distribution}
        gap_metrics: tuple[Metric, ...] = ()
        if self.needs_old_logps:
            # Replayed answers came of older weights; only new ones have to agree with the sampler.
            fresh = slice(collected.new_completions)
            expected_logp_NT, compared_NT = self._expected_sampler_logps(examples, batch, old_logp_NT)
            drawn_logp_NT, first = sampler_logp_NT[fresh], () if self.reference_share else examples[:1]
            gap_metrics = self._checked_sampler_gap(
                expected_logp_NT[fresh], drawn_logp_NT, compared_NT[fresh], first
            )
            gap_metrics += self.weighting.metrics(
                round_number, old_logp_NT[fresh], drawn_logp_NT, batch.mask_NT[fresh]
            )
        with_experience = self._with_experience(
            rollout_round, inputs, policy_tensors, sampler_logp_NT, collected
        )
        return replace(with_experience, metrics=(*with_experience.metrics, *gap_metrics))

    def _microbatches(self, rollout_round: Round, groups: Sequence[int]) -> RankMicrobatches:
        shares = rollout_round.rank_microbatches(
            groups, ranks=self.ranks.world_size, tokens_at_once=self.tokens_at_once
        )
        return shares[self.ranks.rank]

    def _empty_round(
        self, number: int, examples: tuple[Example, ...], empty: ExperienceTensors, fresh_groups: int
    ) -> Round:
        """A round with empty tensors: only a round can be cut into the pieces that fill them."""
        new_round = Round(
            number=number,
            examples=examples,
            experience=empty,
            metrics=(),
            max_tokens=self.room(number),
            fresh_groups=fresh_groups,
        )
        first_groups = new_round.minibatches(1, self.minibatches, 0)[0][0]
        # In a run's first round the first move is computed anew and compared: what a model draws (dropout)
        # shows there. A mixture needs two tables of the vocabulary, for which a graph leaves no room.
        if number == 1 or not first_groups or self.reference_share > 0:
            return new_round
        # One micro-batch and not more: while it is alone no step needs more memory than without.
        return replace(new_round, first_pass=FirstPass(groups=self._microbatches(new_round, first_groups)[0]))

    def _token_scores(
        self, rollout_round: Round, sampler_logp_NT: Tensor, scored_NTX: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Mapping[str, Tensor]]:
        if scored_NTX is not None:
            old_logp_NT, ref_NT = (each_NT.contiguous() for each_NT in scored_NTX.unbind(-1))
            return (old_logp_NT, ref_NT, torch.zeros_like(old_logp_NT)), {}
        microbatches = [
            microbatch
            for minibatch in rollout_round.minibatches(1, self.minibatches, 0)[0]
            if minibatch
            for microbatch in self._microbatches(rollout_round, minibatch)
        ]
        # The reference first, which leaves no graph behind.
        ref_NT = None
        if "reference" in self.row.needs:
            ref_NT = self._score_round(rollout_round, microbatches, self.models.reference.logp)
        value_NT = torch.zeros_like(sampler_logp_NT)
        if isinstance(self.models.critic, RewardModel):
            value_NT = self._critic_scores(rollout_round, microbatches)
        # With a single update the sampler's log-probs hold the place until the update's own pass.
        old_logp_NT, old_distribution = sampler_logp_NT, dict[str, Tensor]()
        if self.needs_old_logps or isinstance(self.models.critic, ValueHead):
            logp_NT, shared_value_NT, old_distribution = self._policy_scores(rollout_round, microbatches)
            old_logp_NT = logp_NT if self.needs_old_logps else sampler_logp_NT
            value_NT = value_NT if shared_value_NT is None else shared_value_NT
        # Without a reference it is π_old itself: every log-ratio is 0, for no forward pass.
        return (old_logp_NT, old_logp_NT if ref_NT is None else ref_NT, value_NT), old_distribution

    def _checked_sampler_gap(
        self, expected_logp_NT: Tensor, sampler_logp_NT: Tensor, mask_NT: Tensor, first: Sequence[Example]
    ) -> tuple[Metric, ...]:
        """The gap between sampler and trainer log-probs; refused where the sampler is stale."""
        # Drawn ahead, they are those of older weights, and servers have proven which.
        if not self.weighting.lag:
            check = stale_sampler_check(self.models, expected_logp_NT, sampler_logp_NT, mask_NT, first)
            check.refuse(float(check.value))
        return sampling_logp_diff_metrics(expected_logp_NT, sampler_logp_NT, mask_NT)

    def _expected_sampler_logps(
        self, examples: Sequence[Example], batch: TokenBatch, old_logp_NT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The log-probs that the sampler should have reported, and which tokens have one."""
        models = self.models
        if not self.reference_share:
            return old_logp_NT, batch.mask_NT
        assert isinstance(models.reference, FullDistributionReference)
        policy_reference = ModelReference(models.policy, temperature=models.temperature)
        mixture = MixtureScorer(
            policy=policy_reference, reference=models.reference, reference_share=self.reference_share
        )
        return mixture.logp_of_first(examples, batch, least=self.ranks.world_size)

    @property
    def needs_old_logps(self) -> bool:
        """Whether π_old has to be computed before the first update; with a single update it is π itself."""
        several_updates = self.minibatches * self.epochs > 1
        # Weights and the KL in the reward are fixed before the update, and so need π_old by then.
        needs_policy_logps = self.weighting.limit > 0 or self.row.reward_kl is not None
        return several_updates or needs_policy_logps or self.row.max_kl > 0 or self.reference_share > 0

    def _advantage_inputs(
        self,
        collected: CollectedRollouts,
        batch: TokenBatch,
        token_scores: tuple[Tensor, Tensor, Tensor],
        *,
        kl_coefficient: int | float,
        mean_score: int | float | None,
    ) -> AdvantageInputs:
        old_logp_NT, ref_NT, value_NT = token_scores
        new = collected.new_completions
        score_N = self.shaper.shape(collected.scores.to(old_logp_NT.dtype), batch, counted=new)
        kl_NT = torch.zeros_like(old_logp_NT)
        if self.row.reward_kl is not None:
            kl_NT = self.row.reward_kl(log_ratio(old_logp_NT, ref_NT, batch.mask_NT))
        rival_P = self._rival_scores(collected, old_logp_NT.dtype)
        paid_NT, end_NT = self.shaper.shape_payments(
            *step_payments(collected, batch.mask_NT, score_N.dtype), batch.finished_N
        )
        return AdvantageInputs(
            score_N=score_N,
            kl_NT=kl_NT,
            kl_coefficient=kl_coefficient,
            value_NT=value_NT,
            rival_N=rival_P[batch.group_N],
            scores_are_probabilities=collected.scores_are_probabilities,
            # Before the first round there is none; its own mean would hold the score that it is taken from.
            mean_score=mean_of_others(score_N, torch.zeros_like(batch.group_N))
            if mean_score is None
            else mean_score,
            mask_NT=batch.mask_NT,
            group_N=batch.group_N,
            finished_N=batch.finished_N,
            paid_NT=paid_NT,
            end_NT=end_NT,
        )

    def _rival_scores(self, collected: CollectedRollouts, dtype: torch.dtype) -> Tensor:
        """The score of the rival's answer to each prompt, shaped like the others; 0 without one."""
        if not collected.rivals:
            return torch.zeros(len(collected.groups) + len(collected.replayed), dtype=dtype)
        # Shaped as a batch, since costs of length and of being cut ask for tokens and endings.
        batch = batch_of([example_from_rollouts(rival.prompt, rival.rollouts) for rival in collected.rivals])
        scores = torch.tensor([rival.scores[0] for rival in collected.rivals], dtype=dtype)
        return self.shaper.shape(scores, batch, counted=0)

    def _with_experience(
        self,
        rollout_round: Round,
        inputs: AdvantageInputs,
        policy_tensors: Mapping[str, Tensor],
        sampler_logp_NT: Tensor,
        collected: CollectedRollouts,
    ) -> Round:
        """The round with all its tensors; ``policy_tensors`` are those of policy and reference."""
        old_logp_NT = policy_tensors["old_logp_NT"]
        mask_NT = inputs.mask_NT
        what, given = f"{self.row.name}: its advantage", {"score_N": inputs.score_N, "mask_NT": mask_NT}
        raw_NT = usable(what, self.row.advantage(inputs), "a number for each token", mask_NT.shape, given)
        raw_NT = raw_NT.to(old_logp_NT.dtype)
        # A + V is the return; a bandit's V stands for the whole answer, at whichever token it is asked.
        target_NT = (
            broadcast_to_tokens(inputs.reward_N, mask_NT)
            if "bandit_critic" in self.row.needs
            else raw_NT + inputs.value_NT
        )
        return_NT = target_NT.masked_fill(~mask_NT, 0.0)
        # Whitened after the returns are made: the critic learns in the unit of rewards, not of this round.
        advantage_NT = whiten(raw_NT, mask_NT) if self.row.whitens_advantages else raw_NT
        weight_NT = self._token_weights(old_logp_NT, sampler_logp_NT, inputs, collected.new_completions)
        experience = ExperienceTensors(
            **policy_tensors,
            advantage_NT=advantage_NT,
            value_NT=inputs.value_NT,
            return_NT=return_NT,
            weight_NT=weight_NT,
        )
        metrics = round_metrics(self.row, inputs, experience, collected, sampler_logp_NT)
        if self.reference_share:
            # Over answers of another distribution the mean of log π − log π_ref is no KL of the policy.
            metrics = tuple(metric for metric in metrics if metric.name not in KL_METRICS)
        mean_score_of_new = float(inputs.score_N[: collected.new_completions].mean())
        return replace(rollout_round, experience=experience, metrics=metrics, mean_score=mean_score_of_new)

    def _token_weights(
        self, old_logp_NT: Tensor, sampler_logp_NT: Tensor, inputs: AdvantageInputs, new_completions: int
    ) -> Tensor:
        mask_NT = inputs.mask_NT
        weight_NT = broadcast_to_tokens(
            self.shaper.loss_mask(inputs.finished_N).to(old_logp_NT.dtype), mask_NT
        )
        if self.weighting.limit > 0:
            bounds = self.weighting.bounds
            correction_NT = truncated_importance_weight(
                old_logp_NT, sampler_logp_NT, mask_NT, cap=self.weighting.limit, bounds=bounds
            )
            # Without a cap of its own only replay is corrected: new answers are this policy's.
            if not (self.weighting.cap or self.weighting.lag):
                correction_NT[:new_completions] = 1.0
            weight_NT = weight_NT * correction_NT
        return weight_NT

    def _score_round(
        self,
        rollout_round: Round,
        microbatches: RankMicrobatches,
        score: Callable[[Sequence[Example], TokenBatch], Tensor],
        *,
        is_trained: bool = False,
    ) -> Tensor:
        """The values of a scoring function for all tokens of a round, computed over all ranks."""
        # ``is_trained``: it is of what moves, and the pass of the first micro-batch may wait for its move.
        scored: list[tuple[Tensor, Tensor]] = []
        # The first one last: while its graph waits, this model computes no other micro-batch.
        for number in reversed(range(len(microbatches))):
            batch, index_n = rollout_round.batch(microbatches[number])
            with torch.set_grad_enabled(is_trained and rollout_round.first_pass is not None and number == 0):
                value_nt = score(
                    [rollout_round.examples[ref.group] for ref in microbatches[number]],
                    batch.to(self.ranks.device),
                ).detach()
            # A placeholder repeats a group that another rank scores: added up it would count twice.
            is_counted = all(ref.is_counted for ref in microbatches[number])
            scored.append((index_n, value_nt if is_counted else torch.zeros_like(value_nt)))
        size = (
            sum(len(example.completions) for example in rollout_round.examples),
            rollout_round.experience.old_logp_NT.shape[1],
        )
        return assemble_over_ranks(scored, size, self.ranks)

    def _policy_scores(
        self, rollout_round: Round, microbatches: RankMicrobatches
    ) -> tuple[Tensor, Tensor | None, Mapping[str, Tensor]]:
        """By one pass log-probs, values of a critic on the same states, and distributions if asked."""
        first = rollout_round.first_pass
        has_values = isinstance(self.models.critic, ValueHead)
        has_distributions = "old_distribution" in self.row.needs
        readers = [distribution_reader(self.models.temperature)] if has_distributions else []

        def score(examples: Sequence[Example], batch: TokenBatch) -> Tensor:
            del examples
            # Entropies are for the loss alone, and dear.
            entropy = bool(self.row.entropy_coef) and torch.is_grad_enabled()
            scores = self.models.score(batch, entropy=entropy, readers=readers)
            if first is not None and torch.is_grad_enabled():
                first.scores = scores
            # One tensor, as ranks add up one.
            each = (value if value.ndim == 3 else value[..., None] for value in scores.read)
            return torch.cat((scores.logp_NT[..., None], *each), -1)

        # The move reads how far it is from the distributions that are only found here: its pass is another.
        found_NTX = self._score_round(rollout_round, microbatches, score, is_trained=not has_distributions)
        # Contiguous, as a checkpoint stores them.
        logp_NT = found_NTX[..., 0].contiguous()
        value_NT = found_NTX[..., 1].contiguous() if has_values else None
        old = unpacked_distributions(found_NTX[..., 1 + has_values :]) if has_distributions else {}
        return logp_NT, value_NT, old

    def _critic_scores(self, rollout_round: Round, microbatches: RankMicrobatches) -> Tensor:
        first, critic = rollout_round.first_pass, self.models.critic
        assert isinstance(critic, RewardModel)

        def score(examples: Sequence[Example], batch: TokenBatch) -> Tensor:
            del examples
            value_NT = critic.values(batch, at="before")
            if first is not None and torch.is_grad_enabled():
                first.value_NT = value_NT
            return value_NT

        return self._score_round(rollout_round, microbatches, score, is_trained=True)


def stale_sampler_check(
    models: ScoringModels,
    expected_logp_NT: Tensor,
    sampler_logp_NT: Tensor,
    mask_NT: Tensor,
    first: Sequence[Example] = (),
) -> StepCheck:
    """Whether the sampler's log-probs are those of the trained policy; with stale weights they are not. In 16
    bits some models differ from themselves by more than the limit. Then the first answers, if they are given,
    are scored in all digits: the sampler may be twice as far from the policy as the policy from these."""
    policy, narrowed = models.policy, models.policy.backbone.narrowed
    expected_logp_NT = expected_logp_NT.detach()

    def twice_the_rounding() -> float:
        with torch.no_grad(), policy.backbone.in_full():
            batch = batch_of(first).to(policy.device)
            full_nt = policy.score(batch, temperature=models.temperature).logp_NT
        rows, tokens = full_nt.shape
        mask_nt = mask_NT[:rows, :tokens]
        rounding_nt = full_nt.to(mask_nt.device) - expected_logp_NT[:rows, :tokens]
        _note_once(_ROUNDED)
        return 2 * float(masked_mean(rounding_nt.abs(), mask_nt))

    # The mean, not the largest: rounding moves single tokens, and stale weights move all of them.
    mean_gap = masked_mean((expected_logp_NT - sampler_logp_NT).abs(), mask_NT)
    # A pass through divided weights would wait for ranks that have nothing to find.
    is_rounded = narrowed is not None and not narrowed.is_by_shards and narrowed.dtype.itemsize < 4
    return StepCheck(
        higher_limit=twice_the_rounding if is_rounded and first else None,
        # Where log-probs are no numbers it is not the sampler: the loss says so, and names the rows.
        value=mean_gap.nan_to_num(nan=0.0),
        limit=MAX_SAMPLER_GAP.get(policy.backbone.compute_dtype, MAX_SAMPLER_GAP_HALF),
        error=lambda gap: UserError(
            f"the answers were not drawn from the policy that is trained: its own log-probs of them "
            f"differ from the sampler's by {gap:.2g} nats a token on average. Either the sampler has "
            "other (older) weights or another tokenizer, or one of the two computes this model wrongly "
            "(with dropout, perhaps); try --memory.layout right, and --dtype float32"
        ),
    )


def _sampler_logps(collected: CollectedRollouts, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """The sampler's log-probs among all tokens, in the numbers of the policy's own."""
    # float32 at least: bfloat16 would round a log-prob of −5 by more than a hundredth.
    sampler_logp_NT = torch.zeros(batch.mask_NT.shape, dtype=torch.promote_types(dtype, torch.float32))
    groups = (*collected.groups, *collected.replayed)
    for n, answer in enumerate(answer for group in groups for answer in group.rollouts):
        sampler_logp_NT[n, : len(answer.ids)] = torch.tensor(answer.whole_logp, dtype=sampler_logp_NT.dtype)
    return sampler_logp_NT


def _empty_experience(batch: TokenBatch) -> ExperienceTensors:
    zero_NT = torch.zeros(batch.mask_NT.shape)
    needed = (field.name for field in fields(ExperienceTensors) if field.default is MISSING)
    return ExperienceTensors(**dict.fromkeys(needed, zero_NT))
