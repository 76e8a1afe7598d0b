"""The policy objective: the loss of a minibatch of scored rollouts, for any algorithm's cells.

It runs records of cells (``row.py``) and knows no algorithm by name. What an answer was worth is fixed when
its round begins (``experience.py``); here a piece of it is looked at by the policy that moves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plaudit.engine.metrics import Metric, mean_metric, sum_metric
from plaudit.engine.step import ObjectiveResult, StepCheck
from plaudit.errors import UserError
from plaudit.losses.divergence import k3
from plaudit.losses.policy import (
    clipped_high,
    clipped_low,
    clipped_squared_error,
    squared_error,
    trusted_completions,
)
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import token_mean
from plaudit.methods.algorithm import usable
from plaudit.methods.policy.batch import ExperienceTensors, GroupRef, Round
from plaudit.methods.policy.experience import ScoringModels, stale_sampler_check
from plaudit.methods.policy.row import LossCounts, PolicyAlgorithm, SurrogateInputs
from plaudit.methods.supervised.objective import SupervisedMicrobatch, likelihood_objective
from plaudit.models.backbone import Head
from plaudit.models.policy import Policy, StateReader, TokenScores, readout_of
from plaudit.models.reward_model import RewardModel, ValueHead
from plaudit.tensors.divergences import CoarseDistribution, coarse_kl
from plaudit.tensors.masked import masked_mean_rows, masked_sum, masked_sum_rows
from plaudit.tokens.batch import TokenBatch

MAX_SELF_LOG_RATIO_HALF = 0.2
"""The same in 16 bits, for the token that is furthest off."""
MAX_SELF_LOG_RATIO = 1e-4
"""The largest log-ratio of the policy to itself at a round's first update, nats a token in float32."""


class ActorCritic(nn.Module):
    """The trained module: the policy, and the critic where the algorithm has one."""

    def __init__(self, policy: Policy, critic: RewardModel | ValueHead | None) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMicrobatch:
    """Groups that go through the model together (one micro-batch of a minibatch)."""

    round: Round
    groups: tuple[GroupRef, ...]
    counts: LossCounts
    """How much there is in the **whole** minibatch, over all pieces and ranks."""
    is_first_update: bool
    is_only_update: bool
    """Whether the round has a single update and π_old is not computed: it is the policy itself."""
    kl_penalty: int | float = 0.0

    @property
    def tokens(self) -> int:
        return sum(ref.tokens for ref in self.groups)

    def rows(self) -> "tuple[PolicyMicrobatch, ...]":
        return tuple(replace(self, groups=(ref,)) for ref in self.groups)

    def shares(self, ranks: int, budget: int) -> "tuple[tuple[PolicyMicrobatch, ...], ...]":
        groups = [ref.group for ref in self.groups]
        divided = self.round.rank_microbatches(groups, ranks=ranks, tokens_at_once=budget)
        return tuple(tuple(replace(self, groups=refs) for refs in share) for share in divided)


AnyMicrobatch = PolicyMicrobatch | SupervisedMicrobatch
"""A micro-batch of scored rollouts, or of text for the PTX loss."""


def policy_objective(
    row: PolicyAlgorithm, models: ScoringModels, *, value_clip: int | float = 0.0
) -> Callable[[PolicyMicrobatch], ObjectiveResult]:
    """The row's loss over the tokens of a minibatch, and the critic's.
    ``value_clip`` is how far a value may move within a round before nothing more is gained; 0: no limit."""

    def objective(microbatch: PolicyMicrobatch) -> ObjectiveResult:
        batch, index_n = microbatch.round.batch(microbatch.groups)
        batch = batch.to(models.policy.device)
        experience = microbatch.round.experience.rows(index_n, batch.mask_NT.shape[1], models.policy.device)
        scores, value_NT = _passes(row, models, microbatch, batch, experience)
        checks: list[StepCheck] = []
        # A single update has no pass before it: the sampler's log-probs stand for π_old until here.
        if microbatch.is_only_update:
            first = [microbatch.round.examples[ref.group] for ref in microbatch.groups[:1]]
            logps = (scores.logp_NT, experience.old_logp_NT)
            checks.append(stale_sampler_check(models, *logps, batch.mask_NT, first))
            experience = _with_policy_as_old(row, experience, scores, batch)
        log_ratio_NT = log_ratio(scores.logp_NT, experience.old_logp_NT, batch.mask_NT)
        if microbatch.is_first_update:
            checks.append(_same_policy_check(log_ratio_NT, models, batch))
        inputs = _surrogate_inputs(row, scores, experience, log_ratio_NT, batch, microbatch.kl_penalty)
        loss_NT = _token_losses(row, inputs, experience, scores.entropy_NT)
        loss_NT = loss_NT.masked_fill(_zero_loss_mask(experience, inputs, row.off_policy_mask), 0.0)
        # By the counts of the whole minibatch: however it is divided, its pieces add up to one gradient.
        loss = row.reduction(loss_NT, batch.mask_NT, microbatch.counts)
        loss = usable(f"{row.name}: its reduction", loss, "one number", (), {"loss_NT": loss_NT})
        error_NT, total_loss, total_NT = None, loss, loss_NT
        if value_NT is not None:
            error_NT = _value_loss(value_NT, experience, value_clip)
            error = token_mean(error_NT, batch.mask_NT, tokens=microbatch.counts.tokens)
            total_loss, total_NT = loss + row.vf_coef * error, loss_NT + error_NT
        return ObjectiveResult(
            loss=total_loss,
            loss_N=masked_sum_rows(total_NT.detach(), batch.mask_NT),
            origin_N=batch.origin_N,
            # Those of the round come with each piece: as means of equal numbers they stay what they are.
            metrics=(*_update_metrics(row, microbatch, inputs, loss, error_NT), *microbatch.round.metrics),
            checks=tuple(checks),
        )

    return objective


def ptx_loss(models: ScoringModels, weight: int | float, microbatch: SupervisedMicrobatch) -> ObjectiveResult:
    """The PTX loss: weight · −log π per token of pretraining text (Ouyang et al. 2022, PPO-ptx)."""
    # A mean over the text's own tokens, so that γ is per token of text, however long rollouts are.
    result = likelihood_objective(models.policy)(microbatch)
    metrics = tuple(replace(metric, name="ptx_loss") for metric in result.metrics if metric.name == "loss")
    return replace(result, loss=weight * result.loss, loss_N=weight * result.loss_N, metrics=metrics)


def _passes(
    row: PolicyAlgorithm,
    models: ScoringModels,
    microbatch: PolicyMicrobatch,
    batch: TokenBatch,
    experience: ExperienceTensors,
) -> tuple[TokenScores, Tensor | None]:
    """What the policy that moves says of the tokens, and the critic's values, where there is one."""
    # Where the round knows its distributions, how far the policy is from them is the last thing read.
    first = microbatch.round.first_pass
    scores, value_NT = None, None
    if first is not None and microbatch.is_first_update:
        # Computed when the round began, by the very weights of its first move, unless they are taken already.
        scores, value_NT = first.take(microbatch.groups)
    if scores is None:
        has_old = experience.old_top_NTK is not None
        readers = [old_kl_reader(experience, models.temperature)] if has_old else []
        scores = models.score(batch, entropy=bool(row.entropy_coef), readers=readers)
    if isinstance(models.critic, ValueHead):
        # Its values came with the policy's own pass; a critic of its own takes a second one.
        value_NT = scores.read[0]
    elif models.critic is not None and value_NT is None:
        value_NT = models.critic.values(batch, at="before")
    return scores, value_NT


def old_kl_reader(experience: ExperienceTensors, temperature: int | float) -> StateReader:
    """Reads KL(π_old ‖ π) off the states of each trained token."""

    def read(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        assert experience.old_top_NTK is not None
        assert experience.old_coarse_NTC is not None
        old = CoarseDistribution(
            top_MK=experience.old_top_NTK.flatten(0, 1)[batch.trained_M].long(),
            logp_MC=experience.old_coarse_NTC.flatten(0, 1)[batch.trained_M],
        )
        return (coarse_kl(old, readout_of(hidden_MH, head, temperature)),)

    return read


def _token_losses(
    row: PolicyAlgorithm, inputs: SurrogateInputs, experience: ExperienceTensors, entropy_NT: Tensor | None
) -> Tensor:
    # π_old / μ corrects what was sampled; the divergence and the entropy below are π's own, unweighted.
    given = {"logp_NT": inputs.logp_NT, "advantage_NT": inputs.advantage_NT}
    wanted = "a loss for each token, such as -ratio_NT * advantage_NT, and not their mean"
    loss_NT = usable(f"{row.name}: its surrogate", row.surrogate(inputs), wanted, inputs.logp_NT.shape, given)
    loss_NT = loss_NT * experience.weight_NT
    if row.loss_kl is not None:
        loss_NT = loss_NT + row.kl_coef * row.loss_kl(inputs.ref_log_ratio_NT)
    if entropy_NT is not None:
        loss_NT = loss_NT - row.entropy_coef * entropy_NT
    return loss_NT


def _with_policy_as_old(
    row: PolicyAlgorithm, experience: ExperienceTensors, scores: TokenScores, batch: TokenBatch
) -> ExperienceTensors:
    """With a single move π_old is π: to compute it twice would give the same numbers."""
    # detach: the ratio is then 1 in value and has the gradient of log π, as REINFORCE wants it.
    policy_logp_NT = scores.logp_NT.detach().masked_fill(~batch.mask_NT, 0.0)
    ref_logp_NT = experience.ref_logp_NT if "reference" in row.needs else policy_logp_NT
    return replace(experience, old_logp_NT=policy_logp_NT, ref_logp_NT=ref_logp_NT)


def _zero_loss_mask(
    experience: ExperienceTensors, inputs: SurrogateInputs, max_rarity: int | float
) -> Tensor:
    """The mask of tokens whose loss is 0 but which are counted: weight 0, or a bad, rare completion."""
    # They stay in the denominator: if it shrank with them, the tokens left would weigh more.
    zero_weight_NT = experience.weight_NT == 0
    if not max_rarity:
        return zero_weight_NT
    # Sequences are masked as wholes; where tokens have advantages of their own the mean stands for them.
    advantage_N = masked_mean_rows(inputs.advantage_NT, inputs.mask_NT)
    within_limit_N = trusted_completions(
        inputs.log_ratio_NT.detach(), advantage_N, inputs.mask_NT, limit=max_rarity
    )
    return zero_weight_NT | ~within_limit_N[:, None]


def _surrogate_inputs(
    row: PolicyAlgorithm,
    scores: TokenScores,
    experience: ExperienceTensors,
    log_ratio_NT: Tensor,
    batch: TokenBatch,
    penalty: int | float,
) -> SurrogateInputs:
    return SurrogateInputs(
        logp_NT=scores.logp_NT,
        log_ratio_NT=log_ratio_NT,
        ratio_NT=ratio(row.ratio(log_ratio_NT, batch.mask_NT)),
        advantage_NT=experience.advantage_NT,
        # e^ρ − 1 − ρ is never below 0, unlike −ρ, and its mean over tokens of π_old is KL(π_old ‖ π): k3 the
        # other way round, whose tangent keeps pulling back what has become far likelier.
        old_kl_NT=k3(-log_ratio_NT),
        ref_log_ratio_NT=log_ratio(scores.logp_NT, experience.ref_logp_NT, batch.mask_NT),
        mask_NT=batch.mask_NT,
        kl_penalty=penalty,
        # In a round of a single update the policy is still the one that it began with.
        whole_old_kl_NT=torch.zeros_like(scores.logp_NT)
        if experience.old_top_NTK is None
        else scores.read[-1],
    )


def _value_loss(value_NT: Tensor, experience: ExperienceTensors, clip: int | float) -> Tensor:
    if clip:
        return clipped_squared_error(value_NT, experience.value_NT, experience.return_NT, clip=clip)
    return squared_error(value_NT, experience.return_NT)


def _update_metrics(
    row: PolicyAlgorithm,
    microbatch: PolicyMicrobatch,
    inputs: SurrogateInputs,
    loss: Tensor,
    value_NT: Tensor | None,
) -> tuple[Metric, ...]:
    """What adds up over pieces: sums over tokens, whatever the reduction."""
    mask_NT = inputs.mask_NT
    # All stay tensors: reading a number here would make every micro-batch wait for the device.
    tokens = mask_NT.sum()
    ratio_NT = inputs.ratio_NT.detach()
    fresh_NT = _drawn_for_this_round(microbatch, mask_NT)
    # Over whole distributions where what steers by it asked for them.
    whole_NT = None if microbatch.round.experience.old_top_NTK is None else inputs.whole_old_kl_NT
    old_kl_NT = inputs.old_kl_NT.detach() if whole_NT is None else whole_NT
    # Placeholders compute along on a rank without groups and must not be counted twice.
    counted_groups = [ref for ref in microbatch.groups if ref.is_counted]

    # The loss of a piece is its share of the minibatch's, so the shares add up.
    metrics = [
        Metric(name="loss", total=loss.detach(), how="sum"),
        mean_metric("ratio", masked_sum(ratio_NT, mask_NT), tokens),
        # An estimate over answers of π_old, so those of earlier policies have no part in it.
        mean_metric("approx_kl", masked_sum(old_kl_NT, fresh_NT), fresh_NT.sum()),
        *_clip_metrics(row, ratio_NT, inputs, tokens),
    ]
    if "adaptive_penalty" in row.needs:
        metrics.append(mean_metric("penalty_coef", microbatch.kl_penalty * tokens.double(), tokens))
    if value_NT is not None:
        metrics.append(mean_metric("value_loss", masked_sum(value_NT.detach(), mask_NT), tokens))
    return (
        *metrics,
        sum_metric("tokens", sum(ref.tokens for ref in counted_groups)),
        sum_metric("rows", len(counted_groups)),
    )


def _clip_metrics(
    row: PolicyAlgorithm, ratio_NT: Tensor, inputs: SurrogateInputs, tokens: Tensor
) -> Iterator[Metric]:
    if row.clip_range is None or not any(row.clip_range):
        return
    low, high = row.clip_range
    low_NT = clipped_low(ratio_NT, inputs.advantage_NT, low=low) & inputs.mask_NT
    high_NT = clipped_high(ratio_NT, inputs.advantage_NT, high=high) & inputs.mask_NT
    yield mean_metric("clip_frac_low", low_NT.sum(), tokens)
    yield mean_metric("clip_frac_high", high_NT.sum(), tokens)


def _drawn_for_this_round(microbatch: PolicyMicrobatch, mask_NT: Tensor) -> Tensor:
    examples, fresh = microbatch.round.examples, microbatch.round.fresh
    if len(fresh) == len(examples):
        return mask_NT
    drawn = [ref.group in fresh for ref in microbatch.groups for _ in examples[ref.group].completions]
    return mask_NT & torch.tensor(drawn).to(mask_NT.device, non_blocking=True)[:, None]


def _same_policy_check(log_ratio_NT: Tensor, models: ScoringModels, batch: TokenBatch) -> StepCheck:
    """Whether the policy agrees with itself at the first update of a round; with dropout it does not."""
    largest_N = log_ratio_NT.detach().abs().amax(-1)

    def error(largest: float) -> UserError:
        origin = batch.origin_N[int(largest_N.argmax())] or "a prompt"
        return UserError(
            f"before the first move of a round the policy differs from itself by {largest:.2g} nats at a "
            f"token of an answer to {origin}, so ratios begin at {1 + largest:.2f} and not at 1: the model "
            "gives other numbers for the same tokens each time (dropout, or something else that is drawn). "
            "Set its dropout to 0 in config.json"
        )

    dtype = models.policy.backbone.compute_dtype
    limit = {torch.float64: 1e-9, torch.float32: MAX_SELF_LOG_RATIO}.get(dtype, MAX_SELF_LOG_RATIO_HALF)
    return StepCheck(value=largest_N.max(), limit=limit, error=error)
