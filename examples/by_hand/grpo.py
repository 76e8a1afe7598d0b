"""GRPO on one page: the whole loop from a prompt to a better policy, with nothing behind a trainer.

Shao et al. 2024, arXiv:2402.03300. For every prompt a group of answers is drawn and scored; an answer's
advantage is how far it stands above its group; the policy moves towards what stood above, held near what it
was by a clipped ratio and near its reference by β · KL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from plaudit.advantages.group import z_score
from plaudit.data.records import Prompt, Task
from plaudit.errors import UserError
from plaudit.losses.divergence import k3
from plaudit.losses.policy import clipped
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import sequence_mean
from plaudit.models.policy import Policy
from plaudit.rewards.base import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tensors.masked import broadcast_to_tokens
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.encode import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoSettings:
    steps: int = 100
    """How often answers are drawn."""
    prompts: int = 8
    """Prompts of a step."""
    group: int = 8
    """Completions of each prompt (the group size)."""
    inner: int = 1
    """How often the policy moves on the same answers."""
    learning_rate: float = 1e-5
    """AdamW's learning rate."""
    clip: float = 0.2
    """ε: beyond 1 ± ε a ratio brings nothing more."""
    beta: float = 0.04
    """Weight of the divergence from the reference; 0 needs none."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How answers are drawn; every token has to be possible."""

    def __post_init__(self) -> None:
        if self.group < 2:
            raise UserError(f"group {self.group}: an answer alone stands above nobody; give 2 or more")
        if not self.sampling.is_unrestricted:
            raise UserError("sampling: with tokens left out, the ratio is not that of the drawing policy")


def grpo_by_hand(
    policy: Policy,
    reference: Policy,
    encoder: Encoder,
    prompts: Sequence[Prompt],
    reward: Reward,
    settings: GrpoSettings,
) -> Iterator[float]:
    """Train the policy in place; yields the mean score of each step's completions, before they change it."""
    sampler = LocalSampler.from_policy(policy, encoder)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    rng = torch.Generator().manual_seed(settings.sampling.seed)
    for step in range(settings.steps):
        step_prompts = [
            prompts[p] for p in torch.randperm(len(prompts), generator=rng)[: settings.prompts].tolist()
        ]
        sampling = replace(settings.sampling, seed=settings.sampling.seed + step)
        encoded = [sampler.encode(prompt.prompt) for prompt in step_prompts]
        groups = sampler.generate(encoded, sampling, n=settings.group)
        batch, score_N = _score_groups(step_prompts, groups, reward, policy.device)
        advantage_NT = broadcast_to_tokens(z_score(score_N, batch.group_N), batch.mask_NT)
        with torch.no_grad():
            old_logp_NT = policy.score(batch, temperature=sampling.temperature).logp_NT
            ref_logp_NT = reference.score(batch, temperature=sampling.temperature).logp_NT
        for _ in range(settings.inner):
            logp_NT = policy.score(batch, temperature=sampling.temperature).logp_NT
            ratio_NT = ratio(log_ratio(logp_NT, old_logp_NT, batch.mask_NT))
            loss_NT = clipped(ratio_NT, advantage_NT, low=settings.clip, high=settings.clip)
            loss_NT = loss_NT + settings.beta * k3(log_ratio(logp_NT, ref_logp_NT, batch.mask_NT))
            sequence_mean(loss_NT, batch.mask_NT, completions=len(score_N)).backward()
            clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        yield float(score_N.mean())


def _score_groups(
    prompts: Sequence[Prompt], groups: Sequence[Sequence[Rollout]], reward: Reward, device: torch.device
) -> tuple[TokenBatch, Tensor]:
    """The completions that have a verdict, as a batch, and their scores."""
    tasks = [
        Task(
            prompt=prompt.prompt,
            answers=tuple(answer.answer.text for answer in group),
            ended=tuple(answer.answer.ended for answer in group),
            reference_answer=prompt.answer,
            metadata=prompt.metadata,
        )
        for prompt, group in zip(prompts, groups, strict=True)
    ]
    examples, scores = list[Example](), list[float]()
    for group, row in zip(groups, reward.scores(tasks), strict=True):
        scored = [
            (_as_completion(rollout), score)
            for rollout, score in zip(group, row, strict=True)
            if score is not None
        ]
        if scored:
            examples.append(
                Example(prompt=group[0].prompt, completions=tuple(completion for completion, _ in scored))
            )
            scores += [score for _, score in scored]
    if not scores:
        raise UserError(f"{reward.name} has a verdict on none of the answers, so nothing can be learnt")
    return batch_of(examples).to(device), torch.tensor(scores, device=device)


def _as_completion(rollout: Rollout) -> Completion:
    return Completion(ids=rollout.ids, mask=(True,) * len(rollout.ids), finished=rollout.answer.ended)
