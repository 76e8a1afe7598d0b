"""A critique first, then points: the score is what the points are expected to be, given the critique.

score = 1/k Σ_j Σ_s s · P(s | answer, critique_j), with k critiques drawn from the model itself
(critiques before the reward: Ankner et al. 2024, arXiv:2408.11791).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol, runtime_checkable

from plaudit.data.generative_judging import CritiqueSettings, critique_prompt, points_prompt
from plaudit.data.records import Task, Text
from plaudit.errors import UserError
from plaudit.rewards.base import TaskScores
from plaudit.rewards.llm.generative import LanguageJudgeModel, RewardInWords, reply_probabilities
from plaudit.rollouts.sampler import Answer, SamplingSettings


@runtime_checkable
class CritiqueWriter(Protocol):
    """Writes critiques; `LocalSampler` is one."""

    def check(self, prompt: Text) -> None: ...

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every question, ``n`` critiques."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CritiqueScore:
    critiques: tuple[str, ...]
    points: tuple[float | None, ...]
    """The points to expect after each; None where critique and answer together are too long to be shown."""
    score: float | None
    """Their mean; None where none is known."""


class CritiqueReward(RewardInWords):
    def __init__(self, model: LanguageJudgeModel, writer: CritiqueWriter, *, seed: int = 0) -> None:
        """Take a critique model and a sampler of the same model; the seed draws the critiques."""
        settings = model.spec.settings
        assert isinstance(settings, CritiqueSettings)
        self._model, self._settings, self._writer = model, settings, writer
        self._sampling = SamplingSettings(
            temperature=settings.temperature, max_tokens=settings.tokens, seed=seed
        )

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """The expected points of every answer, on average over its critiques; None where there are none."""
        return tuple(tuple(item.score for item in row) for row in self.critique_scores(tasks))

    def critique_scores(self, tasks: Sequence[Task]) -> tuple[tuple[CritiqueScore, ...], ...]:
        """The critiques of every answer and what follows from them.

        The same answer to the same prompt gets the same critiques, whatever else is asked for.
        """
        settings, form = self._settings, self._model.form
        pairs = dict.fromkeys((task.prompt, answer) for task in tasks for answer in task.answers)
        questions = {pair: critique_prompt(settings, form, *pair) for pair in pairs}
        critiques_by_question = self._write_critiques(dict.fromkeys(questions.values()))
        critiqued = [
            (pair, critique) for pair in pairs for critique in critiques_by_question[questions[pair]]
        ]
        logps_by_critique = self._model.logps(
            [points_prompt(settings, form, pair, critique) for pair, critique in critiqued]
        )
        points_by_pair: dict[tuple[Text, Text], list[tuple[str, float | None]]] = {pair: [] for pair in pairs}
        for (pair, critique), logps in zip(critiqued, logps_by_critique, strict=True):
            points_by_pair[pair].append((critique, None if logps is None else _expected_points(logps)))
        return tuple(
            tuple(_critique_score(points_by_pair[task.prompt, answer]) for answer in task.answers)
            for task in tasks
        )

    def _write_critiques(self, questions: Mapping[Text, None]) -> dict[Text, tuple[str, ...]]:
        """The critiques for each question; none for one that cannot be shown to the model."""
        readable: list[Text] = []
        for question in questions:
            try:
                self._writer.check(question)
            except UserError as error:
                self._model.scorer.refused[str(error)] += 1
            else:
                readable.append(question)
        replies = (
            self._writer.generate_answers(readable, self._sampling, n=self._settings.critiques)
            if readable
            else []
        )
        texts = {
            question: tuple(answer.text for answer in answers)
            for question, answers in zip(readable, replies, strict=True)
        }
        return {question: texts.get(question, ()) for question in questions}


def _expected_points(logps: Sequence[float]) -> float:
    """Σ s P(s), the points being 1, 2, …

    >>> round(_expected_points((-1.0, -1.0, -1.0)), 6)
    2.0
    """
    return sum(points * share for points, share in enumerate(reply_probabilities(logps), start=1))


def _critique_score(points_by_critique: Sequence[tuple[str, float | None]]) -> CritiqueScore:
    expected = [points for _, points in points_by_critique if points is not None]
    return CritiqueScore(
        critiques=tuple(critique for critique, _ in points_by_critique),
        points=tuple(points for _, points in points_by_critique),
        score=fmean(expected) if expected else None,
    )
