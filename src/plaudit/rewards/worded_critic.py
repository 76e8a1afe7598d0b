"""A critique first, then points: the score is what the points are expected to be, given the critique.

score = 1/k Σ_j Σ_s s · P(s | answer, critique_j), with k critiques drawn from the model itself
(critiques before the reward: Ankner et al. 2024, arXiv:2408.11791).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import Text
from plaudit.records.worded_form import ask_critique, ask_points
from plaudit.records.worded_settings import CriticSettings
from plaudit.rewards.reward import Row
from plaudit.rewards.worded_model import WordedModel, shares
from plaudit.rollouts.sampling import Answer, SamplingSettings


@runtime_checkable
class Writer(Protocol):
    """Writes critiques; `LocalSampler` is one."""

    def check(self, prompt: Text) -> None:
        """Complain about a question that cannot be answered."""
        ...

    def sample(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every question, ``n`` critiques."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Criticism:
    """What a critic says of one answer.

    Example: ``Criticism(critiques=("It is wrong.", "It is too long."), points=(1.2, 2.6), score=1.9)``
    """

    critiques: tuple[str, ...]
    """What it wrote."""
    points: tuple[float | None, ...]
    """The points to expect after each; None where critique and answer together are too long to be shown."""
    score: float | None
    """Their mean; None where none is known."""


class Critic:
    """A model that writes critiques and gives points.

    Example: ``Critic(model, LocalSampler(folder), seed=1).criticisms([task])``
    """

    def __init__(self, model: WordedModel, writer: Writer, *, seed: int = 0) -> None:
        """Take a model that was trained to, and a sampler of the same model; the seed draws the critiques."""
        settings = model.wording.settings
        assert isinstance(settings, CriticSettings)
        self._model, self._settings, self._writer = model, settings, writer
        self._drawing = SamplingSettings(
            temperature=settings.temperature, max_tokens=settings.tokens, seed=seed
        )

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._model.name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how often it held so far."""
        return dict(self._model.reader.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """The expected points of every answer, on average over its critiques; None where there are none."""
        return tuple(tuple(one.score for one in row) for row in self.criticisms(tasks))

    def criticisms(self, tasks: Sequence[Task]) -> tuple[tuple[Criticism, ...], ...]:
        """The critiques of every answer and what follows from them.

        The same answer to the same prompt gets the same critiques, whatever else is asked for.
        """
        settings, form = self._settings, self._model.form
        judged = dict.fromkeys((task.prompt, answer) for task in tasks for answer in task.answers)
        asked = {pair: ask_critique(settings, form, *pair) for pair in judged}
        written = self._written(dict.fromkeys(asked.values()))
        told = [(pair, critique) for pair in judged for critique in written[asked[pair]]]
        found = self._model.logps([ask_points(settings, form, pair, critique) for pair, critique in told])
        given: dict[tuple[Text, Text], list[tuple[str, float | None]]] = {pair: [] for pair in judged}
        for (pair, critique), logps in zip(told, found, strict=True):
            given[pair].append((critique, None if logps is None else _expected(logps)))
        return tuple(tuple(_criticism(given[task.prompt, one]) for one in task.answers) for task in tasks)

    def _written(self, questions: Mapping[Text, None]) -> dict[Text, tuple[str, ...]]:
        """The critiques for each question; none for one that cannot be shown to the model."""
        fitting: list[Text] = []
        for question in questions:
            try:
                self._writer.check(question)
            except UserError as error:
                self._model.reader.refused[str(error)] += 1
            else:
                fitting.append(question)
        said = self._writer.sample(fitting, self._drawing, n=self._settings.critiques) if fitting else []
        texts = {
            question: tuple(answer.text for answer in answers)
            for question, answers in zip(fitting, said, strict=True)
        }
        return {question: texts.get(question, ()) for question in questions}


def _expected(logps: Sequence[float]) -> float:
    """Σ s P(s), the points being 1, 2, …

    >>> round(_expected((-1.0, -1.0, -1.0)), 6)
    2.0
    """
    return sum(points * share for points, share in enumerate(shares(logps), start=1))


def _criticism(given: Sequence[tuple[str, float | None]]) -> Criticism:
    known = [points for _, points in given if points is not None]
    return Criticism(
        critiques=tuple(critique for critique, _ in given),
        points=tuple(points for _, points in given),
        score=fmean(known) if known else None,
    )
