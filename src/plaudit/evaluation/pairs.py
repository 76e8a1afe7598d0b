"""From feedback and a reward to pairs of scored answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from plaudit.errors import UserError
from plaudit.records.feedback import Comparison, Ranking
from plaudit.records.judging import Task
from plaudit.records.messages import Text, words
from plaudit.records.preferred import chance_of
from plaudit.rewards.reward import Reward

Judged = Comparison | Ranking
"""The records that an evaluation reads."""
Scores = Mapping[tuple[Text, tuple[Text, ...], Text], float | None]
"""Of each answer to each prompt, beside the answers that it was judged with: some rewards compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPair:
    """Two answers to one prompt, what people said of them and what a model says.

    Example: ``ScoredPair(prompt="2 + 2?", answers=("4", "5"), rewards=(1.2, -0.3), chance=1.0, …)``
    """

    prompt: Text
    """What was asked; pairs of one prompt are resampled together."""
    answers: tuple[str, str]
    """The words of both."""
    rewards: tuple[float | None, float | None]
    """By the model; None is no verdict."""
    chance: float
    """That the first is the better one; ½ is a tie."""
    truths: tuple[float | None, float | None] = (None, None)
    """The true utility of both, where it is known."""
    category: str | None = None
    """The kind of prompt, or the subset of a benchmark."""
    annotator: str | None = None
    """Who judged."""
    group: str | None = None
    """The group of who judged."""
    strength: float | None = None
    """How clear the preference was."""
    places: tuple[int, int] | None = None
    """Where each stood in its row; None where the row is ordered by preference, and so says nothing."""
    origin: str = ""
    """File and row."""


def scores_of(records: Iterable[Judged], reward: Reward) -> Scores:
    """The score of every answer beside those that it was judged with; the same row is asked for once.

    >>> from plaudit.rewards.reward import FunctionReward
    >>> short = FunctionReward(name="short", function=lambda prompt, answer: -float(len(answer)))
    >>> scores_of([Comparison(prompt="Hi", chosen="Yo", rejected="Hello")], short)
    {('Hi', ('Yo', 'Hello'), 'Yo'): -2.0, ('Hi', ('Yo', 'Hello'), 'Hello'): -5.0}
    """
    return task_scores(list(_tasks(records)), reward)


def task_scores(tasks: Sequence[Task], reward: Reward) -> Scores:
    """The score of every answer of every task."""
    rows = reward.scores(tasks)
    if [len(row) for row in rows] != [len(task.answers) for task in tasks]:
        raise UserError(f"{reward.name}: a reward returns one score for each answer of each task")
    return {
        (task.prompt, task.answers, answer): score
        for task, row in zip(tasks, rows, strict=True)
        for answer, score in zip(task.answers, row, strict=True)
    }


def scored_pairs(
    records: Iterable[Judged], scores: Scores, truths: Scores | None = None, *, placed: bool = True
) -> tuple[ScoredPair, ...]:
    """A comparison is one pair, a ranking all of its pairs; equal ranks are ties.

    ``placed`` says whether the answers of a ranking stand in the order in which they were shown.
    """
    return tuple(pair for record in records for pair in _pairs(record, scores, truths or {}, placed))


def _tasks(records: Iterable[Judged]) -> Iterator[Task]:
    shown = dict.fromkeys((record.prompt, shown_of(record)) for record in records)
    return (Task(prompt=prompt, answers=answers, ended=(True,) * len(answers)) for prompt, answers in shown)


def shown_of(record: Judged) -> tuple[Text, ...]:
    """The different answers of a record, in its order."""
    return tuple(dict.fromkeys(answers_of(record)))


def answers_of(record: Judged) -> tuple[Text, ...]:
    """All answers of a record, in its order."""
    return record.completions if isinstance(record, Ranking) else (record.chosen, record.rejected)


def _pairs(record: Judged, scores: Scores, truths: Scores, placed: bool) -> Iterator[ScoredPair]:
    answers, shown = answers_of(record), shown_of(record)
    for one, other in combinations(range(len(answers)), 2):
        keys = tuple((record.prompt, shown, answers[place]) for place in (one, other))
        ranking = isinstance(record, Ranking)
        yield ScoredPair(
            prompt=record.prompt,
            answers=(words(answers[one]), words(answers[other])),
            rewards=(scores[keys[0]], scores[keys[1]]),
            truths=(truths.get(keys[0]), truths.get(keys[1])),
            chance=_order(record.ranks[one], record.ranks[other]) if ranking else chance_of(record),
            category=record.category,
            annotator=record.annotator,
            group=record.group,
            strength=None if ranking else record.strength,
            places=(one, other) if ranking and placed else None,
            origin=record.origin,
        )


def _order(rank: float, other: float) -> float:
    return 0.5 if rank == other else float(rank < other)
