"""How far a policy is from its reference, and how much it leaves to chance, on answers of its own.

KL(π ‖ π_ref) = E_{y ~ π} Σ_t log π(y_t) − log π_ref(y_t): the mean over answers that π drew, from the whole
distribution, is exact on average (k1 in Schulman's naming, 2020). The entropy of the next token is exact at
each place that an answer came to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int

from plaudit.engine.ranks import divide_rows
from plaudit.errors import UserError
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.models.policy import Policy
from plaudit.rollouts.sampler import Rollout
from plaudit.tensors.logprobs import Extra
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.microbatch import micro_batches_in_order

TOKENS_PER_FORWARD = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionScore:
    logp: float
    """Σ log π of its tokens, in nats."""
    entropy: float
    """Σ of the entropies of the distributions that they were chosen from."""
    tokens: int


CompletionScores = Sequence[Sequence[CompletionScore]]


def score_rollouts(
    policy: Policy, groups: Sequence[Sequence[Rollout]], *, temperature: int | float = 1.0
) -> CompletionScores:
    return score_examples(policy, [_rollouts_example(group) for group in groups], temperature=temperature)


def score_examples(
    policy: Policy, examples: Sequence[Example], *, temperature: int | float = 1.0, entropy: bool = True
) -> CompletionScores:
    """Scores of any completions by a policy, as tokens; the completions of one prompt share its computation.
    Entropies, a quarter of the work, are 0 where they are not asked for."""
    score = partial(_score_part, policy, temperature=temperature, also=("entropy",) if entropy else ())
    return divide_rows(examples, lambda part, _: score(part), tuple[CompletionScore, ...])


def _score_part(
    policy: Policy, examples: Sequence[Example], *, temperature: int | float, also: Sequence[Extra]
) -> CompletionScores:
    # Examples of like length share a micro-batch and little is padded; their own order comes back below.
    by_length = sorted(range(len(examples)), key=lambda index: examples[index].tokens)
    scores: list[CompletionScore] = []
    for piece in micro_batches_in_order([examples[index] for index in by_length], TOKENS_PER_FORWARD):
        scores += _score_piece(policy, piece, temperature, also=also)
    remaining = iter(scores)
    by_index = {index: tuple(next(remaining) for _ in examples[index].completions) for index in by_length}
    return tuple(by_index[index] for index in range(len(examples)))


def estimate_kl(
    scores: CompletionScores, reference_scores: CompletionScores, resampling: Resampling
) -> tuple[Estimate, Estimate]:
    """KL(π ‖ π_ref) per completion and per token, from both models' log-probs of what π drew."""
    pairs = [
        (item, other)
        for policy_group, reference_group in zip(scores, reference_scores, strict=True)
        for item, other in zip(policy_group, reference_group, strict=True)
    ]
    gap_B = np.array([first.logp - other.logp for first, other in pairs])
    tokens_B = np.array([float(pair.tokens) for pair, _ in pairs])
    prompt_B = prompt_index(scores)
    # Weighted by its tokens this is Σ gap / Σ tokens; a mean of answers' own rates would favour short ones.
    by_token = bootstrap_mean(gap_B / tokens_B, prompt_B, resampling, weight_B=tokens_B, share=False)
    return bootstrap_mean(gap_B, prompt_B, resampling, share=False), by_token


def mean_entropy(scores: CompletionScores, resampling: Resampling) -> Estimate:
    """The mean entropy of the next token, in nats, over the tokens of the policy's answers."""
    flat = [rollout for group in scores for rollout in group]
    tokens_B = np.array([float(rollout.tokens) for rollout in flat])
    mean_B = np.array([rollout.entropy / rollout.tokens for rollout in flat])
    return bootstrap_mean(mean_B, prompt_index(scores), resampling, weight_B=tokens_B, share=False)


def prompt_index(groups: Sequence[Sequence[object]]) -> Int[np.ndarray, " B"]:
    return np.array([index for index, group in enumerate(groups) for _ in group], dtype=np.int64)


def _rollouts_example(group: Sequence[Rollout]) -> Example:
    # All of it was sampled, an end-of-turn token included.
    completions = tuple(
        Completion(ids=rollout.ids, mask=(True,) * len(rollout.ids), finished=rollout.answer.ended)
        for rollout in group
    )
    return Example(prompt=group[0].prompt, completions=completions)


def _score_piece(
    policy: Policy, piece: Sequence[Example], temperature: int | float, *, also: Sequence[Extra]
) -> list[CompletionScore]:
    batch = batch_of(piece).to(policy.device)
    with torch.no_grad():
        # At the temperature of sampling: k1 is unbiased only for the distribution that the answers came from.
        scores = policy.score(batch, also=also, temperature=float(temperature))
    entropy_NT = torch.zeros_like(scores.logp_NT) if scores.entropy_NT is None else scores.entropy_NT
    # float64 before the sum: a KL is the small difference of two long sums of log-probs.
    sums = (scores.logp_NT.double().sum(-1).tolist(), entropy_NT.double().sum(-1).tolist())
    if not all(math.isfinite(value) for sums_of_kind in sums for value in sums_of_kind):
        raise UserError("the model's log-probs are not numbers: its weights are damaged, or a run diverged")
    return [
        CompletionScore(logp=logp, entropy=entropy, tokens=tokens)
        for logp, entropy, tokens in zip(*sums, batch.length_N.tolist(), strict=True)
    ]
