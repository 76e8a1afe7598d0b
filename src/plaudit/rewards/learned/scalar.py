"""Learned rewards as numbers: a reward model's, one an answer or one a step, or a policy's implicit reward.

The implicit reward needs no reward model: β times how much likelier the policy finds an answer than its
reference does.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.models.backbone import evaluation_mode
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.batching import TOKENS_AT_ONCE, ScoredByModels, ScoringResult
from plaudit.rewards.learned.process import Solution, encode_steps
from plaudit.tokens.batch import Example, TokenBatch
from plaudit.tokens.encode import Encoder


class LearnedReward(ScoredByModels):
    """A reward model and its tokenizer, ready to score."""

    def __init__(
        self, name: str, model: RewardModel, encoder: Encoder, *, tokens_at_once: int = TOKENS_AT_ONCE
    ) -> None:
        """Take a model that is on its device, in the layout that it was proven in."""
        super().__init__(name, [model], encoder, tokens_at_once)
        self.model = model

    @property
    def encoder(self) -> Encoder:
        return self._scorer.encoder

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None for an answer that the model cannot be shown."""
        return self.score_tasks(tasks).rows

    def score_tasks(self, tasks: Sequence[Task]) -> ScoringResult:
        """The scores of the tasks, with the reason of every None."""
        with evaluation_mode(self.model):
            return self._scorer.score_tasks(tasks, self.model.rewards)

    def states(self, tasks: Sequence[Task]) -> list[list[Float[np.ndarray, " H"] | None]]:
        """What the head reads of each answer; None for one that the model cannot be shown."""
        if self.model.pooling == "mean":
            raise UserError(
                f"{self.name}: its reward is a mean over tokens, so that its head reads no single state; "
                "choose disagreement"
            )
        states = list[Float[np.ndarray, " H"]]()

        def numbers(batch: TokenBatch) -> Float[Tensor, " N"]:
            _, state_NH = self.model.rewards_and_states(batch, self.model.read_at(batch))
            states.extend(state_NH.double().cpu().numpy())
            return torch.arange(len(states) - len(state_NH), len(states), dtype=torch.float64)

        with evaluation_mode(self.model):
            rows = self._scorer.score_tasks(tasks, numbers).rows
        return [[None if number is None else states[int(number)] for number in row] for row in rows]

    def step_logits(self, solutions: Sequence[Solution]) -> tuple[tuple[float, ...] | None, ...]:
        """For each solution a score for each step, read at the step's last token.
        Of a model that learned from labelled steps they are the log-odds that a step is right (Lightman et
        al. 2023, arXiv:2305.20050); any other model was never taught what to say there. None where the
        solution cannot be shown to the model, or a step of it cannot be found among the tokens."""
        ends: dict[Example, tuple[int, ...]] = {}
        places: dict[Example, list[int]] = {}
        for s, solution in enumerate(solutions):
            encoded = self._encode_solution(solution)
            if isinstance(encoded, str):
                self._scorer.refused[encoded] += 1
                continue
            example, step_ends = encoded
            ends[example] = step_ends
            places.setdefault(example, []).append(s)
        logits: list[tuple[float, ...] | None] = [None] * len(solutions)
        for micro_batch in self._scorer.micro_batches(list(places)):
            step_values = self._step_values(micro_batch, [ends[example] for example in micro_batch])
            for example, values in zip(micro_batch, step_values, strict=True):
                for s in places[example]:
                    logits[s] = values
        return tuple(logits)

    def _encode_solution(self, solution: Solution) -> tuple[Example, tuple[int, ...]] | str:
        try:
            example, ends = encode_steps(solution, self._scorer.encoder)
        except UserError as error:
            return str(error)
        fitted = self._scorer.fit(example)
        return fitted if isinstance(fitted, str) else (fitted, ends)

    def _step_values(
        self, micro_batch: Sequence[Example], ends: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[float, ...]]:
        # C steps of the longest solution; −1 pads the others, and its scores are cut off again below.
        longest = max(map(len, ends))
        end_NC = torch.tensor([[*row_ends, *[-1] * (longest - len(row_ends))] for row_ends in ends])
        with evaluation_mode(self.model):
            numbers = self._scorer.finite_scores(
                lambda batch: self.model.step_rewards(batch, end_NC), micro_batch
            )
        for n, row_ends in enumerate(ends):
            yield tuple(numbers[n * longest : n * longest + len(row_ends)])


def implicit_reward(
    logp_NT: Float[Tensor, "N T"], ref_logp_NT: Float[Tensor, "N T"] | None, *, beta: int | float
) -> Float[Tensor, " N"]:
    """β (log π(y|x) − log π_ref(y|x)), up to a number that is the same for all answers to a prompt.
    Rafailov et al. 2023 (DPO), arXiv:2305.18290. Without a reference it is β log π(y|x), as Xu et al. 2024
    (CPO), arXiv:2401.08417, have it: how likely the policy finds the answer.

    >>> implicit_reward(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -4.0]]), beta=0.1)
    tensor([0.3000])
    """
    log_ratio_NT = logp_NT if ref_logp_NT is None else logp_NT - ref_logp_NT
    # A sum and no mean, as in DPO's loss; masked places are 0 in both terms.
    return beta * log_ratio_NT.sum(-1)


def refuse_beta(beta: int | float) -> None:
    """Complain about a β that turns the reward round, or into nothing."""
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta {beta}: expected a number above 0, the one that the policy was trained with")


class ImplicitReward(ScoredByModels):
    """Two policies, or one alone, as a reward; scores compare answers to one prompt, not to different ones.
    The tokens are those of training, the end-of-turn token among them: an answer that did not end by itself
    is scored as if it had ended there."""

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
        self._models = (policy,) if reference is None else (policy, reference)
        super().__init__(name, self._models, encoder, tokens_at_once)
        self._policy, self._reference, self._beta = policy, reference, beta

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return self.score_tasks(tasks).rows

    def score_tasks(self, tasks: Sequence[Task]) -> ScoringResult:
        with evaluation_mode(*self._models):
            return self._scorer.score_tasks(tasks, self._rewards)

    def _rewards(self, batch: TokenBatch) -> Tensor:
        logp_NT = self._policy.score(batch).logp_NT
        ref_logp_NT = None if self._reference is None else self._reference.score(batch).logp_NT
        return implicit_reward(logp_NT, ref_logp_NT, beta=self._beta)
