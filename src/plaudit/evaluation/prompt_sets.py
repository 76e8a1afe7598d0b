"""Sets of prompts, brought by wings, of which it is known what answers to them are truly worth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from plaudit.errors import UserError
from plaudit.evaluation.policies import WORLD, Split
from plaudit.evaluation.policies.generate import EvaluationPrompt
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion
from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.base import Reward
from plaudit.wings import everything, load

MAX_CLOSED_QUESTIONS = 200


class _Prompts(Protocol):
    def __call__(self, n: int | None, *, split: Split, seed: int) -> tuple[EvaluationPrompt, ...]: ...


class _ClosedQuestions(Protocol):
    def __call__(self, n: int, *, split: Split, seed: int) -> tuple[ChoiceQuestion, ...]: ...


class _Knowledge(Protocol):
    def __call__(
        self, evidence: RewardEvaluationData, *, answers: int, resampling: Resampling
    ) -> RewardEvaluationData: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """Prompts dealt to train, validation and test, with all that is known of answers to them."""

    prompts: _Prompts
    """So many different ones of a split; None: all that there are."""
    closed_questions: _ClosedQuestions
    """Questions of a split with all their answers; at most as many as there are."""
    gold: Callable[[], Reward]
    """The true worth of an answer; what was cut off is worth less."""
    knowledge: _Knowledge
    """Comparisons with their truth, their ceiling and ``answers`` to choose from."""


def prompt_set(name: str = WORLD) -> PromptSet:
    brought = everything("prompts")
    if name not in brought:
        raise UserError(
            f"the prompts {name!r} and the true worth of answers to them come with a wing of plaudit that is "
            f"not installed here; there are {', '.join(brought) or 'none'}: give rows of your own instead"
        )
    prompts: PromptSet = load(brought[name])
    return prompts
