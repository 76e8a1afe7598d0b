"""PPO on one page: RLHF as InstructGPT has it, from a prompt and a reward to a better policy.

Schulman et al. 2017, arXiv:1707.06347; of language models Ziegler et al. 2019, arXiv:1909.08593. A critic
says at each token what is to be expected; the token is worth what came beyond that, less β · KL on the way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.utils import clip_grad_norm_

from plaudit.advantages.temporal import gae, returns, token_rewards
from plaudit.data.records import Prompt, Task
from plaudit.errors import UserError
from plaudit.losses.policy import clipped, clipped_squared_error
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import token_mean
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tensors.masked import whiten
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.encode import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings:
    """The settings of ``ppo_by_hand``."""

    steps: int = 100
    """How often answers are drawn."""
    prompts: int = 16
    """Prompts of a step, each answered once."""
    epochs: int = 4
    """How often policy and critic move on the same answers."""
    learning_rate: float = 1e-5
    """Of AdamW, for both."""
    clip: float = 0.2
    """ε: beyond 1 ± ε a ratio brings nothing more, and a value that has moved by ε neither."""
    lam: float = 0.95
    """GAE's λ: 0 trusts the critic, 1 what happened."""
    beta: float = 0.05
    """How dear distance from the reference is."""
    vf_coef: float = 0.1
    """How much the critic's loss counts beside the policy's."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How answers are drawn; every token has to be possible."""

    def __post_init__(self) -> None:
        if not self.sampling.is_unrestricted:
            raise UserError("sampling: with tokens left out, the ratio is not that of the drawing policy")


def ppo_by_hand(
    policy: Policy,
    reference: Policy,
    critic: RewardModel,
    encoder: Encoder,
    prompts: Sequence[Prompt],
    reward: Reward,
    settings: PpoSettings,
) -> Iterator[float]:
    """Train policy and critic in place; yields the mean score of each step's answers, before they change."""
    learnt = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.AdamW(learnt, lr=settings.learning_rate, weight_decay=0.0)
    sampler, heat = LocalSampler.from_policy(policy, encoder), settings.sampling.temperature
    for step in range(settings.steps):
        batch, scores = _draw(sampler, prompts, reward, settings, step)
        mask_NT, tokens = batch.mask_NT, int(batch.mask_NT.sum())
        with torch.no_grad():
            old_logp_NT = policy.score(batch, temperature=heat).logp_NT
            ref_logp_NT = reference.score(batch, temperature=heat).logp_NT
            old_value_NT = critic.values(batch, at="before")
        kl_NT, score_N = log_ratio(old_logp_NT, ref_logp_NT, mask_NT), old_logp_NT.new_tensor(scores)
        reward_NT = token_rewards(score_N, kl_NT, mask_NT, beta=settings.beta)  # the score at the last token
        raw_NT = gae(reward_NT, old_value_NT, mask_NT, gamma=1.0, lam=settings.lam)
        # The critic learns how much came; whitening, which forgets that, is for the policy alone.
        return_NT, advantage_NT = returns(raw_NT, old_value_NT, mask_NT), whiten(raw_NT, mask_NT)
        for _ in range(settings.epochs):
            logp_NT = policy.score(batch, temperature=heat).logp_NT
            ratio_NT = ratio(log_ratio(logp_NT, old_logp_NT, mask_NT))  # the first time 1 everywhere
            loss_NT = clipped(ratio_NT, advantage_NT, low=settings.clip, high=settings.clip)
            value_NT = critic.values(batch, at="before")
            error_NT = clipped_squared_error(value_NT, old_value_NT, return_NT, clip=settings.clip)
            token_mean(loss_NT + settings.vf_coef * error_NT, mask_NT, tokens=tokens).backward()
            clip_grad_norm_(policy.parameters(), 1.0)  # each by itself: a critic that errs far
            clip_grad_norm_(critic.parameters(), 1.0)  # must not still the policy
            optimizer.step()
            optimizer.zero_grad()
        yield float(score_N.mean())


def _draw(
    sampler: LocalSampler, prompts: Sequence[Prompt], reward: Reward, settings: PpoSettings, step: int
) -> tuple[TokenBatch, list[float]]:
    """An answer to each of the step's prompts, and its score; no verdict is None, never 0, and left out."""
    sampling = replace(settings.sampling, seed=settings.sampling.seed + step)
    chosen = random.Random(sampling.seed).sample(prompts, min(settings.prompts, len(prompts)))
    drawn = [item for [item] in sampler.generate([sampler.encode(row.prompt) for row in chosen], sampling)]
    tasks = [
        Task(
            prompt=prompt.prompt,
            answers=(rollout.answer.text,),
            ended=(rollout.answer.ended,),
            reference_answer=prompt.answer,
            metadata=prompt.metadata,
        )
        for prompt, rollout in zip(chosen, drawn, strict=True)
    ]
    scored = [
        (rollout, s) for rollout, (s,) in zip(drawn, reward.scores(tasks), strict=True) if s is not None
    ]
    if not scored:
        raise UserError(f"{reward.name} has a verdict on none of the answers, so nothing can be learnt")
    return batch_of([_as_example(index) for index, _ in scored]), [score for _, score in scored]


def _as_example(rollout: Rollout) -> Example:
    answer = Completion(ids=rollout.ids, mask=(True,) * len(rollout.ids), finished=rollout.answer.ended)
    return Example(prompt=rollout.prompt, completions=(answer,))
