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
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.losses.divergence import k3
from plaudit.losses.policy import clipped
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import sequence_mean
from plaudit.models.policy import Policy
from plaudit.records.feedback import Prompt
from plaudit.records.judging import Task
from plaudit.rewards.reward import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import Rollout, SamplingSettings
from plaudit.tensors.masked import spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
    """What can be set.

    Example: ``Grpo(steps=50, learning_rate=1e-4)``
    """

    steps: int = 100
    """How often answers are drawn."""
    prompts: int = 8
    """Prompts of a step."""
    group: int = 8
    """Answers to each."""
    inner: int = 1
    """How often the policy moves on the same answers."""
    learning_rate: float = 1e-5
    """Of AdamW."""
    clip: float = 0.2
    """ε: beyond 1 ± ε a ratio brings nothing more."""
    beta: float = 0.04
    """Weight of the divergence from the reference; 0 needs none."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How answers are drawn; every token has to be possible."""

    def __post_init__(self) -> None:
        """Refuse what would teach nothing, or something else."""
        if self.group < 2:
            raise UserError(
                f"group {self.group}: an answer that is alone stands above nobody; give 2 or more"
            )
        if not self.sampling.whole:
            raise UserError(
                "sampling: with tokens left out, the ratio is not that of the policy that drew them"
            )


def grpo_by_hand(
    policy: Policy, reference: Policy, encoder: Encoder, prompts: Sequence[Prompt], reward: Reward, how: Grpo
) -> Iterator[float]:
    """Train the policy in place; after each step the mean score of its answers before it."""
    sampler = LocalSampler.of(policy, encoder)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=how.learning_rate, weight_decay=0.0)
    chance = torch.Generator().manual_seed(how.sampling.seed)
    for step in range(how.steps):
        asked = [prompts[p] for p in torch.randperm(len(prompts), generator=chance)[: how.prompts].tolist()]
        drawn = replace(how.sampling, seed=how.sampling.seed + step)
        groups = sampler.rollouts([one.prompt for one in asked], drawn, n=how.group)
        batch, score_N = _judged(asked, groups, reward, policy.device)
        advantage_NT = spread(z_score(score_N, batch.group_N), batch.mask_NT)
        with torch.no_grad():
            old_logp_NT = policy.score(batch, temperature=drawn.temperature).logp_NT
            ref_logp_NT = reference.score(batch, temperature=drawn.temperature).logp_NT
        for _ in range(how.inner):
            logp_NT = policy.score(batch, temperature=drawn.temperature).logp_NT
            ratio_NT = ratio(log_ratio(logp_NT, old_logp_NT, batch.mask_NT))
            loss_NT = clipped(ratio_NT, advantage_NT, low=how.clip, high=how.clip)
            loss_NT = loss_NT + how.beta * k3(log_ratio(logp_NT, ref_logp_NT, batch.mask_NT))
            sequence_mean(loss_NT, batch.mask_NT, completions=len(score_N)).backward()
            clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        yield float(score_N.mean())


def _judged(
    asked: Sequence[Prompt], groups: Sequence[Sequence[Rollout]], reward: Reward, device: torch.device
) -> tuple[TokenBatch, Tensor]:
    """The answers that have a verdict, as the tokens that were drawn, and their scores."""
    tasks = [
        Task(
            prompt=one.prompt,
            answers=tuple(answer.answer.text for answer in group),
            ended=tuple(answer.answer.ended for answer in group),
            truth=one.answer,
            facts=one.metadata,
        )
        for one, group in zip(asked, groups, strict=True)
    ]
    examples, scores = list[Example](), list[float]()
    for group, row in zip(groups, reward.scores(tasks), strict=True):
        judged = [
            (_completion(one), score) for one, score in zip(group, row, strict=True) if score is not None
        ]
        if judged:
            examples.append(Example(prompt=group[0].prompt, completions=tuple(one for one, _ in judged)))
            scores += [score for _, score in judged]
    if not scores:
        raise UserError(f"{reward.name} has a verdict on none of the answers, so nothing can be learnt")
    return batch_of(examples).to(device), torch.tensor(scores, device=device)


def _completion(drawn: Rollout) -> Completion:
    return Completion(ids=drawn.ids, mask=(True,) * len(drawn.ids), finished=drawn.answer.ended)
