"""Rewards read from what a language model says of an answer.

- text reward: log P(good) − log P(bad), the log-odds of the word for a good answer (Zhang et al. 2024,
  arXiv:2408.15240);
- ranker: the chance that one answer is better than another (`worded_ranker`);
- critic: points that follow from a critique that the model writes first (`worded_critic`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from plaudit.data.generative_judging import GenerativeRewardSettings, PairwiseRankerSettings, pointwise_prompt
from plaudit.data.judging import Task
from plaudit.models.load import DtypeName, device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from plaudit.rewards.base import TaskScores
from plaudit.rewards.llm.critic import CritiqueReward
from plaudit.rewards.llm.generative import LanguageJudgeModel, read_language_judge_spec, reply_probabilities
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rollouts.build import sampler_of_folder
from plaudit.tokens.encode import make_encoder


class GenerativeReward:
    """A model that says whether an answer is good.

    Example: ``GenerativeReward(model).scores(tasks)``
    """

    def __init__(self, model: LanguageJudgeModel) -> None:
        """Take a language judge that was trained with the settings of a generative reward."""
        settings = model.spec.settings
        assert isinstance(settings, GenerativeRewardSettings)
        self._model, self._settings = model, settings

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._model.name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self._model.scorer.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """log P(good) − log P(bad) of every answer; None where the model cannot be shown it whole."""
        return self._score_answers(tasks, lambda logps: logps[0] - logps[1])

    def probabilities(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """P(good) / (P(good) + P(bad)) of every answer: σ of the score."""
        return self._score_answers(tasks, lambda logps: reply_probabilities(logps)[0])

    def _score_answers(
        self, tasks: Sequence[Task], score: Callable[[Sequence[float]], float]
    ) -> tuple[TaskScores, ...]:
        form = self._model.form
        questions = [
            pointwise_prompt(self._settings, form, task.prompt, answer)
            for task in tasks
            for answer in task.answers
        ]
        replies = iter(self._model.logps(questions))
        return tuple(
            tuple(None if (logps := next(replies)) is None else score(logps) for _ in task.answers)
            for task in tasks
        )


def load_language_judge(
    folder: Path, device: str | torch.device = "auto", dtype: DtypeName | torch.dtype = "auto"
) -> GenerativeReward | PairwiseRanker | CritiqueReward:
    """The reward of a folder that holds worded.json: a model folder, or a run folder with one in it.

    It is called what the folder is called; a run's ``model`` folder is called what the run is.
    """
    model_folder = folder / "model" if (folder / "model").is_dir() else folder
    spec = read_language_judge_spec(model_folder)
    target = device_of(device) if isinstance(device, str) else device
    products = precision(dtype, target).products if isinstance(dtype, str) else dtype
    encoder = make_encoder(model_folder)
    policy = Policy(load_model(model_folder, dtype=products, device=target))
    layout, _ = choose_layout(policy, "packed")
    policy.use_layout(layout)
    name = model_folder.absolute().parent.name if model_folder.name == "model" else model_folder.name
    model = LanguageJudgeModel(name, policy.requires_grad_(False).eval(), encoder, spec)
    if isinstance(spec.settings, GenerativeRewardSettings):
        return GenerativeReward(model)
    if isinstance(spec.settings, PairwiseRankerSettings):
        return PairwiseRanker(model)
    return CritiqueReward(model, sampler_of_folder(model_folder, device=str(target)))
