"""What a reward can make of a model at best: the model's own answers weighed by exp(r / β), and their worth.

π_ref exp(r / β) / Z is the optimum of E r − β KL, so no optimiser of that objective aims at anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn
from plaudit.lab.world.prompts import Split, questions
from plaudit.lab.world.questions import CATEGORIES
from plaudit.rewards.base import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings

PROMPTS = 20
"""Prompts of each category."""
DRAWS = 32
"""Answers to each prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilt:
    """The optimum for one β.

    Example: ``Tilt(utility=0.76, kl=0.12)``
    """

    utility: float
    """What its answers are worth."""
    kl: float
    """How far it is from the model, in nats an answer."""


def drawn_tasks(sampler: LocalSampler, split: Split) -> list[Task]:
    """The model's answers to some prompts of every category."""
    prompts = [
        question for category in CATEGORIES for question in islice(questions(split, category), PROMPTS)
    ]
    answers = sampler.generate_answers([prompt.messages for prompt in prompts], SamplingSettings(), n=DRAWS)
    return [
        Task(
            prompt=question.messages,
            answers=tuple(assistant_turn(answer.text) for answer in own),
            ended=tuple(answer.ended for answer in own),
        )
        for question, own in zip(prompts, answers, strict=True)
    ]


def scores_PN(reward: Reward, tasks: Sequence[Task]) -> Float[Tensor, "P N"]:
    """What a reward says of all answers; an answer without a verdict is one that is never said."""
    rows = [[-torch.inf if score is None else score for score in row] for row in reward.scores(tasks)]
    return torch.tensor(rows, dtype=torch.float64)


def tilted(score_PN: Float[Tensor, "P N"], worth_PN: Float[Tensor, "P N"], beta: float) -> Tilt:
    """The answers weighed by exp(r / β), each prompt for itself.

    >>> equal = torch.zeros(1, 2, dtype=torch.float64)
    >>> tilted(equal, torch.tensor([[0.0, 1.0]], dtype=torch.float64), 1.0)
    Tilt(utility=0.5, kl=0.0)
    """
    share_PN = (score_PN / beta).softmax(-1)
    utility_P = (share_PN * worth_PN).sum(-1)
    kl_P = (share_PN * (share_PN * share_PN.shape[1]).clamp(min=1e-300).log()).sum(-1)
    return Tilt(utility=float(utility_P.mean()), kl=float(kl_P.mean()))


def right_of_pairs(score_PN: Float[Tensor, "P N"], worth_PN: Float[Tensor, "P N"]) -> float:
    """How often the better of two answers to a prompt, which differ in worth, has the higher score."""
    gap_PK, true_PK = (item[:, 0::2] - item[:, 1::2] for item in (score_PN, worth_PN))
    counted_PK = true_PK != 0
    return float((gap_PK.sign() == true_PK.sign())[counted_PK].double().mean())


def deviation(score_PN: Float[Tensor, "P N"]) -> float:
    """How far scores of answers to one prompt lie from their mean.

    >>> deviation(torch.tensor([[1.0, 3.0], [7.0, 7.0]], dtype=torch.float64))
    0.7071067811865476
    """
    return float((score_PN - score_PN.mean(-1, keepdim=True)).square().mean().sqrt())
