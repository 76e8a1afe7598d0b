"""Questions, the answers that were drawn to them, and what a reward says of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plaudit.batches.question import Question
from plaudit.batches.tokens import Completion, Example
from plaudit.errors import UserError
from plaudit.rewards.cascade import KeepsParts, Parted
from plaudit.rewards.reward import Reward, Row
from plaudit.rewards.step_pay import Paid
from plaudit.rollouts.environment import Environment, Outcome
from plaudit.rollouts.episodes import EpisodeSampler
from plaudit.rollouts.sampler import Sampler
from plaudit.rollouts.sampling import Rollout, SamplingSettings
from plaudit.training.judged_steps import OfSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class OfEpisodes:
    """What episodes are worth by the environments that they were played in.

    Example: ``OfEpisodes(name="tools.py:shop", environment=shop)``
    """

    name: str
    """What the environment is called."""
    environment: Environment
    """It itself."""

    def parted(self, groups: Sequence[Sequence[Rollout]]) -> Parted:
        """The outcome of every episode, with its parts."""
        played = [[one.played.outcome for one in group if one.played is not None] for group in groups]
        names = dict.fromkeys(name for group in played for one in group for name in one.parts)
        return Parted(
            rows=tuple(tuple(_number(one.score) for one in group) for group in played),
            parts={
                name: tuple(tuple(_part(one, name) for one in group) for group in played) for name in names
            },
        )


Scorer = Reward | OfEpisodes | OfSteps
"""Who says what an answer is worth."""
Speaker = Sampler | EpisodeSampler
"""Who answers: in one turn, or in an episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGroup:
    """The answers to one question.

    Example: ``judged(questions, groups, reward)[0].scores``
    """

    question: Question
    """What was asked."""
    answers: tuple[Rollout, ...]
    """What was said, as the tokens that were drawn."""
    scores: Row
    """A number for each answer; None is no verdict, which is never 0."""
    parts: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """What the scores are made of, where the reward keeps that."""
    steps: tuple[Paid | None, ...] = ()
    """What the steps of each answer are paid, of which its score is the sum; empty where nobody says so."""

    @property
    def paid_for(self) -> tuple[Paid | None, ...]:
        """The same for each answer, None where nobody says so."""
        return self.steps or (None,) * len(self.answers)

    def only(self, kept: Sequence[bool]) -> JudgedGroup:
        """The same with these answers alone."""
        places = [k for k, keep in enumerate(kept) if keep]
        return JudgedGroup(
            question=self.question,
            answers=tuple(self.answers[k] for k in places),
            scores=tuple(self.scores[k] for k in places),
            parts={name: tuple(row[k] for k in places) for name, row in self.parts.items()},
            steps=tuple(self.steps[k] for k in places) if self.steps else (),
        )

    def with_verdict(self) -> JudgedGroup:
        """Only the answers that have a verdict."""
        return self.only([score is not None for score in self.scores])


def example_of(question: Question, answers: Sequence[Rollout]) -> Example:
    """The very tokens that were drawn, and between them those of an environment, which are not trained."""
    completions = tuple(
        Completion(
            ids=one.ids,
            mask=(True,) * len(one.ids) if one.mask is None else one.mask,
            finished=one.answer.ended,
        )
        for one in answers
    )
    return Example(prompt=question.prompt, completions=completions, origin=question.origin)


def answers_to(
    questions: Sequence[Question], speaker: Speaker, settings: SamplingSettings, *, n: int
) -> list[list[Rollout]]:
    """For every question ``n`` answers."""
    if isinstance(speaker, EpisodeSampler):
        return speaker.play(questions, settings, n=n)
    return speaker.rollouts([question.text for question in questions], settings, n=n)


def judged(
    questions: Sequence[Question], groups: Sequence[Sequence[Rollout]], reward: Scorer
) -> list[JudgedGroup]:
    """Every group with its scores; a reward that says nothing sensible is refused."""
    tasks = [
        question.task((one.answer.text, one.answer.ended) for one in group)
        for question, group in zip(questions, groups, strict=True)
    ]
    steps: Sequence[tuple[Paid | None, ...]] = ((),) * len(tasks)
    if isinstance(reward, OfEpisodes):
        parted = reward.parted(groups)
        rows = parted.rows
    elif isinstance(reward, OfSteps):
        found = reward.paid(tasks, groups)
        parted, steps = found.whole, found.steps
        rows = parted.rows
    else:
        parted = reward.parted(tasks) if isinstance(reward, KeepsParts) else None
        rows = (reward.scores(tasks) if parted is None else parted.rows) if tasks else ()
    if len(rows) != len(tasks):
        raise UserError(f"{reward.name} was asked about {len(tasks)} prompts and answered {len(rows)}")
    judgements = [
        _group(question, tuple(group), row, _parts(parted, place), reward.name)
        for place, (question, group, row) in enumerate(zip(questions, groups, rows, strict=True))
    ]
    return [replace(one, steps=own) for one, own in zip(judgements, steps, strict=True)]


def _parts(parted: Parted | None, place: int) -> dict[str, Row]:
    return {} if parted is None else {name: rows[place] for name, rows in parted.parts.items()}


def _group(
    question: Question, answers: tuple[Rollout, ...], row: Row, parts: Mapping[str, Row], name: str
) -> JudgedGroup:
    where = question.origin or repr(str(question.text)[:40])
    if len(row) != len(answers):
        raise UserError(f"{name} gave {len(row)} scores for the {len(answers)} answers to {where}")
    for answer, score in zip(answers, row, strict=True):
        if score is not None and not math.isfinite(score):
            raise UserError(
                f"{name} gave {score} for {answer.answer.text[:40]!r}, an answer to {where}; a score is a "
                "finite number, or None for no verdict"
            )
    return JudgedGroup(question=question, answers=answers, scores=row, parts=parts)


def _part(outcome: Outcome, name: str) -> float | None:
    return _number(outcome.parts.get(name))


def _number(value: int | float | None) -> float | None:
    return None if value is None else float(value)
