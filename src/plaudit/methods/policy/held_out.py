"""Held-out evaluation of a policy, and the trial round that preflight checks look at.

Reward, independent judge, length, entropy and KL are measured on held-out prompts. The random numbers are the
same at each evaluation, so that only learning changes the figures. The trial gives checks, before a run
begins, a round of a few short completions, or the likelihood of given text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor

from plaudit.data.records import plain_text
from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, mean_metric, merge_metrics, values_of
from plaudit.engine.sinks.base import Sample
from plaudit.engine.step import InterruptCheck, ObjectiveResult, merge_over_ranks
from plaudit.errors import UserError
from plaudit.losses.divergence import full_vocabulary_kl, k3
from plaudit.losses.ratio import completion_log_ratio, log_ratio
from plaudit.methods.policy import collect
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.iterations import RolloutRounds, policy_updates
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.methods.supervised.objective import SupervisedMicrobatch, likelihood_objective, microbatches_of
from plaudit.models.backbone import head_of
from plaudit.models.policy import FullDistributionReference, NoReference
from plaudit.rewards.base import Reward
from plaudit.rollouts.local import example_from_rollouts
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tensors.masked import masked_sum
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.microbatch import micro_batches_in_order
from plaudit.tokens.prompts import EncodedPrompt

HELD_OUT_METRICS = ("reward", "length_mean", "frac_finished", "entropy", "kl", "kl_k3", "sqrt_kl")
"""The held-out metrics; the last three where there is a reference."""
_PROMPT_MOMENTS = ("held_out/judge_of_prompts", "held_out/judge_of_prompts_squared")
MAX_EXACT_KL_VOCABULARY = 4096
MAX_DISTRIBUTION_CELLS = 2**24
"""The most probabilities (tokens × vocabulary) held at once."""
PROMPTS_PER_BATCH = 64
"""Prompts between two interrupt checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEvaluator:
    """Generates, scores and measures completions of held-out prompts."""

    sampler: collect.RolloutSampler
    reward: collect.RewardSource
    judge: Reward | None
    models: ScoringModels
    sampling: SamplingSettings
    prompts: Sequence[EncodedPrompt]
    completions_per_prompt: int
    ranks: Ranks
    tokens_at_once: int

    def evaluate(self, check_interrupt: InterruptCheck) -> Sequence[Metric]:
        """The held-out metrics over all ranks, each of which evaluates its share of the prompts."""
        self.sampler.refresh()
        rank_prompts = self.prompts[self.ranks.rows.rank :: self.ranks.rows.world_size]
        metrics: list[Metric] = list(self._metrics([], []))
        # A pause asks all ranks: each comes as often as the one with the most prompts.
        for start in range(0, -(-len(self.prompts) // self.ranks.rows.world_size), PROMPTS_PER_BATCH):
            check_interrupt()
            prompts = rank_prompts[start : start + PROMPTS_PER_BATCH]
            groups = collect.generate_completions(
                prompts, self.sampler, self.sampling, n=self.completions_per_prompt
            )
            metrics += self._metrics(prompts, groups)
        merged = _with_standard_error(merge_over_ranks(metrics, self.ranks))
        # The root of the merged mean: a mean of roots would depend on how prompts fell on ranks.
        kl = values_of(merged).get("held_out/kl_k3")
        root = () if kl is None else (mean_metric("held_out/sqrt_kl", math.sqrt(max(0.0, float(kl))), 1),)
        return merge_metrics([*merged, *root])

    def sample(self, prompts: Sequence[EncodedPrompt], check_interrupt: InterruptCheck) -> list[Sample]:
        """The likeliest answer to each, with its score, on the first rank; every rank must come."""
        greedy = SamplingSettings(temperature=0, max_tokens=self.sampling.max_tokens, stop=self.sampling.stop)
        check_interrupt()
        self.sampler.refresh()
        if not self.ranks.is_first:
            return []
        groups = collect.generate_completions(prompts, self.sampler, greedy, n=1)
        return [_group_sample(group) for group in collect.score_groups(prompts, groups, self.reward)]

    def _metrics(
        self, prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[Rollout]]
    ) -> tuple[Metric, ...]:
        """Sums with their weights; of no prompts too, so that every rank names the same figures."""
        answers = [answer for group in groups for answer in group]
        tokens = sum(answer.answer.tokens for answer in answers)
        metrics = [_mean_score("held_out/reward", collect.score_groups(prompts, groups, self.reward))]
        if self.judge is not None:
            judged = collect.score_groups(prompts, groups, self.judge)
            known_P = [[score for score in group.scores if score is not None] for group in judged]
            mean_P = [fmean(known) for known in known_P if known]
            metrics.append(_mean_score("held_out/judge", judged))
            # Answers to one prompt are alike: what varies by chance is the mean of a prompt.
            for name, power in zip(_PROMPT_MOMENTS, (1, 2), strict=True):
                metrics.append(mean_metric(name, math.fsum(mean**power for mean in mean_P), len(mean_P)))
        metrics += [
            mean_metric("held_out/length_mean", tokens, len(answers)),
            mean_metric(
                "held_out/frac_finished", sum(answer.answer.ended for answer in answers), len(answers)
            ),
            mean_metric(
                "held_out/entropy", -math.fsum(x for answer in answers for x in answer.whole_logp), tokens
            ),
        ]
        if not isinstance(self.models.reference, NoReference):
            metrics += self._kl_metrics(prompts, groups)
        return tuple(metrics)

    def _kl_metrics(
        self, prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[Rollout]]
    ) -> list[Metric]:
        """KL(π ‖ π_ref) of whole answers, by the sum of k1 and by that of k3."""
        examples = [
            example_from_rollouts(prompt, group) for prompt, group in zip(prompts, groups, strict=True)
        ]
        kl_sums = [self._kl_sums(microbatch) for microbatch in self._pieces(examples, self.tokens_at_once)]
        count = sum(len(group) for group in groups)
        sums = [math.fsum(pair[which] for pair in kl_sums) for which in (0, 1)]
        metrics = [
            mean_metric(f"held_out/{name}", total, count)
            for name, total in zip(("kl", "kl_k3"), sums, strict=True)
        ]
        vocabulary = head_of(self.models.policy.base).layer.weight.shape[0]
        if (
            isinstance(self.models.reference, FullDistributionReference)
            and vocabulary <= MAX_EXACT_KL_VOCABULARY
        ):
            exact = math.fsum(
                self._exact_kl(microbatch)
                for microbatch in self._pieces(examples, MAX_DISTRIBUTION_CELLS // vocabulary)
            )
            metrics.append(mean_metric("held_out/kl_exact", exact, count))
        return metrics

    def _pieces(self, examples: Sequence[Example], tokens_at_once: int) -> list[Sequence[Example]]:
        """As many on every rank: what is divided computes only where all do, on nothing if need be."""
        pieces: list[Sequence[Example]] = [*micro_batches_in_order(examples, tokens_at_once)]
        most = max(int(count) for [count] in self.ranks.rows.all_gather([len(pieces)]))
        prompt = self.prompts[0]
        unlearnt = Completion(ids=prompt.prompt[-1:], mask=(False,), finished=False)
        nothing = Example(prompt=prompt.prompt, completions=(unlearnt,), extras=prompt.extras)
        return [*pieces, *[[nothing]] * (most - len(pieces))]

    def _exact_kl(self, microbatch: Sequence[Example]) -> float:
        """Σ over tokens of KL(π ‖ π_ref) of the whole next-token distributions."""
        batch = batch_of(microbatch).to(self.models.policy.device)
        assert isinstance(self.models.reference, FullDistributionReference)
        with torch.no_grad():
            policy_MV = self.models.policy.distributions(batch, temperature=self.models.temperature)
        return float(
            full_vocabulary_kl(
                policy_MV, self.models.reference.distributions(batch).to(policy_MV.dtype)
            ).sum()
        )

    def _kl_sums(self, microbatch: Sequence[Example]) -> tuple[float, float]:
        batch = batch_of(microbatch).to(self.models.policy.device)
        with torch.no_grad():
            logp_NT = self.models.policy.score(batch, temperature=self.models.temperature).logp_NT
        ref_NT: Tensor = self.models.reference.logp(microbatch, batch).to(logp_NT.dtype)
        log_ratio_NT = log_ratio(logp_NT, ref_NT, batch.mask_NT)
        k1_sum = float(completion_log_ratio(log_ratio_NT, batch.mask_NT).sum())
        return k1_sum, float(masked_sum(k3(log_ratio_NT), batch.mask_NT))


def _with_standard_error(metrics: Sequence[Metric]) -> list[Metric]:
    """With the standard error of the judge's mean over prompts in place of what it is made of."""
    moments = {metric.name: metric for metric in metrics if metric.name in _PROMPT_MOMENTS}
    others = [metric for metric in metrics if metric.name not in moments]
    if not moments or (prompts := float(moments[_PROMPT_MOMENTS[0]].weight)) < 2:
        return others
    mean, square = (float(moments[name].total) / prompts for name in _PROMPT_MOMENTS)
    error = math.sqrt(max(0.0, square - mean**2) / (prompts - 1))
    return [*others, mean_metric("held_out/judge_se", error, 1)]


def _mean_score(name: str, groups: Sequence[collect.ScoredGroup]) -> Metric:
    scores = [score for group in groups for score in group.scores if score is not None]
    return mean_metric(name, math.fsum(scores), len(scores))


def _group_sample(group: collect.ScoredGroup) -> Sample:
    [answer], [score] = group.rollouts, group.scores
    score_text = "no verdict" if score is None else f"{score:+.3g}"
    ellipsis = "" if answer.answer.ended else " …"
    text = answer.answer.text
    if answer.played is not None:
        text = " / ".join(f"{turn.role}: {turn.text}" for turn in answer.played.turns)
    completion = f"{score_text}  {text}{ellipsis}"
    prompt = plain_text(group.prompt.text)
    return Sample(prompt=prompt, completion=completion, expected=group.prompt.reference_answer)


MAX_ROLLOUT_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTrial:
    """Rounds of a run that can be tried: the run itself knows nothing of them."""

    rounds: RolloutRounds
    models: ScoringModels

    def small_round(self) -> tuple[tuple[PolicyMicrobatch, ...], str] | None:
        """A round of two prompts with short answers; None where all of them are left out."""
        shaper = self.rounds.experience.shaper
        # Scores of a trial must not enter the running scale of the run.
        shaper_state = shaper.tensors()
        prompts = list(range(min(len(self.rounds.prompts), 2)))
        try:
            drawn = next(policy_updates(_small_rounds(self.rounds), 1, lambda _: prompts))
        except UserError:
            # What is wrong with the reward is for the checks of the reward to say.
            return None
        finally:
            shaper.load_tensors(shaper_state)
        pieces = [piece for piece in drawn if isinstance(piece, PolicyMicrobatch)]
        if not pieces:
            return None
        policy_round = pieces[0].round
        answers = sum(len(example.completions) for example in policy_round.examples)
        description = f"a round of {answers} short answers"
        if not bool(policy_round.experience.advantage_NT.any()):
            # As good as each other, so that nothing could be learnt of them.
            advantage_NT = policy_round.experience.advantage_NT
            sign_N = 1 - 2 * torch.arange(answers).remainder(2)
            alternating_NT = sign_N[:, None].expand_as(advantage_NT).to(advantage_NT)
            experience = replace(policy_round.experience, advantage_NT=alternating_NT)
            policy_round = replace(policy_round, experience=experience)
            description += ", called good and bad in turn"
        # As later updates: what is checked at a first one holds only while no weight has moved.
        later = {"round": policy_round, "is_first_update": False, "is_only_update": False}
        return tuple(replace(piece, **later) for piece in pieces), description

    def likelihood(
        self, examples: Sequence[Example]
    ) -> tuple[Callable[[SupervisedMicrobatch], ObjectiveResult], tuple[SupervisedMicrobatch, ...]]:
        """Likelihood of given text under the policy: what is minimised, and the pieces."""
        pieces = microbatches_of(examples, self.rounds.ranks, sum(example.tokens for example in examples))
        return likelihood_objective(self.models.policy), pieces


def _small_rounds(rounds: RolloutRounds) -> RolloutRounds:
    """The same rounds with few and short completions, one minibatch and no replay or curriculum."""
    collector, rival = rounds.collector, rounds.collector.rival
    return replace(
        rounds,
        collector=replace(
            collector,
            sampling=_short_sampling(collector.sampling),
            room=None,
            rival=None if rival is None else replace(rival, sampling=_short_sampling(rival.sampling)),
            completions_per_prompt=min(2, collector.completions_per_prompt),
        ),
        experience=replace(rounds.experience, minibatches=1, epochs=1),
        extra_microbatches=lambda step: (),
        curriculum=None,
        replay=None,
        ahead=None,
        streams=None,
    )


def _short_sampling(sampling: SamplingSettings) -> SamplingSettings:
    return replace(sampling, max_tokens=min(MAX_ROLLOUT_TOKENS, sampling.max_tokens))
