"""The reward that a policy has learned without a reward model: how much likelier it has made an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.batching import (
    TOKENS_AT_ONCE,
    BatchScorer,
    ScoringResult,
    evaluation_mode,
    model_limits,
)
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.encode import Encoder


def implicit_reward(
    logp_NT: Float[Tensor, "N T"], ref_logp_NT: Float[Tensor, "N T"] | None, *, beta: int | float
) -> Float[Tensor, " N"]:
    """β (log π(y|x) − log π_ref(y|x)), up to a number that is the same for all answers to a prompt.

    Rafailov et al. 2023 (DPO), arXiv:2305.18290. Without a reference it is β log π(y|x), as Xu et al. 2024
    (CPO), arXiv:2401.08417, have it: how likely the policy finds the answer.

    >>> import torch
    >>> implicit_reward(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -4.0]]), beta=0.1)
    tensor([0.3000])
    """
    log_ratio_NT = logp_NT if ref_logp_NT is None else logp_NT - ref_logp_NT
    return beta * log_ratio_NT.sum(-1)


def refuse_beta(beta: int | float) -> None:
    """Complain about a β that turns the reward round, or into nothing."""
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta {beta}: expected a number above 0, the one that the policy was trained with")


class ImplicitReward:
    """Two policies, or one alone, as a reward; scores compare answers to one prompt, not to different ones.

    The tokens are those of training, the end-of-turn token among them: an answer that did not end by itself
    is scored as if it had ended there.

    Example: ``ImplicitReward("dpo", policy, reference, encoder, beta=0.1).scores(tasks)``
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        reference: Policy | None,
        encoder: Encoder,
        *,
        beta: int | float,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        """Take policies that are on one device and read the same tokens, each in its proven layout."""
        refuse_beta(beta)
        if reference is not None and policy.device != reference.device:
            raise UserError(f"the policy is on {policy.device} and its reference on {reference.device}")
        self._name = name
        self._policy, self._reference = policy, reference
        self._models = (policy,) if reference is None else (policy, reference)
        self._beta = beta
        self._scorer = BatchScorer(
            name=name,
            encoder=encoder,
            limits=model_limits([*self._models], tokens_at_once),
            device=policy.device,
        )

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self._scorer.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None for an answer that the models cannot be shown."""
        return self.score_tasks(tasks).rows

    def score_tasks(self, tasks: Sequence[Task]) -> ScoringResult:
        """The scores of the tasks, with the reason of every None."""
        with evaluation_mode(*self._models):
            return self._scorer.score_tasks(tasks, self._rewards)

    def _rewards(self, batch: TokenBatch) -> Tensor:
        logp_NT = self._policy.score(batch).logp_NT
        ref_logp_NT = None if self._reference is None else self._reference.score(batch).logp_NT
        return implicit_reward(logp_NT, ref_logp_NT, beta=self._beta)
