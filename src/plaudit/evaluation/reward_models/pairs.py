"""From feedback and a reward to pairs of scored answers, and these pairs as columns of numbers."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int

from plaudit.data.records import (
    Comparison,
    Ranking,
    Task,
    Text,
    answers_of,
    plain_text,
    preference_probability,
)
from plaudit.engine.ranks import divide_rows, of_all_ranks
from plaudit.rewards.base import Reward, TaskScores, checked_scores, refusal_counts

PreferenceRecord = Comparison | Ranking
ScoresByAnswer = Mapping[tuple[Text, tuple[Text, ...], Text], float | None]
"""The score of each answer, by prompt, by the answers judged with it (some rewards compare) and by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPair:
    """Two answers to one prompt, with the annotators' preference and a model's rewards."""

    prompt: Text
    """What was asked; pairs of one prompt are resampled together."""
    answers: tuple[str, str]
    rewards: tuple[float | None, float | None]
    p_first: float
    """The probability that the first is the better one; ½ is a tie."""
    truths: tuple[float | None, float | None] = (None, None)
    category: str | None = None
    annotator: str | None = None
    group: str | None = None
    strength: float | None = None
    places: tuple[int, int] | None = None
    """Where each was shown, or stood in its row; None where neither is known."""
    origin: str = ""


def score_records(records: Iterable[PreferenceRecord], reward: Reward) -> ScoresByAnswer:
    """The score of every answer beside those that it was judged with; the same row is asked for once.

    >>> from plaudit.rewards.base import FunctionReward
    >>> short = FunctionReward(name="short", function=lambda prompt, answer: -float(len(answer)))
    >>> score_records([Comparison(prompt="Hi", chosen="Yo", rejected="Hello")], short)
    {('Hi', ('Yo', 'Hello'), 'Yo'): -2.0, ('Hi', ('Yo', 'Hello'), 'Hello'): -5.0}
    """
    # One set of answers is scored once, however many people judged it.
    answer_sets = dict.fromkeys((record.prompt, distinct_answers(record)) for record in records)
    # Records do not say whether an answer was cut off; people judged it as it stands.
    tasks = [
        Task(prompt=prompt, answers=answers, ended=(True,) * len(answers)) for prompt, answers in answer_sets
    ]
    return score_tasks(tasks, reward)


def divided_scores(reward: Reward, tasks: Sequence[Task]) -> list[TaskScores]:
    """The scores of each task's answers, by as many ranks as there are."""
    return divide_rows(tasks, lambda part, _: checked_scores(reward, part), TaskScores)


def divided_refusals(reward: Reward | None) -> Counter[str]:
    """Why answers had no verdict so far, and how many, on all ranks."""
    each = of_all_ranks([*refusal_counts(reward).items()], tuple[str, int])
    return sum((Counter({why: times}) for why, times in each), Counter())


def score_tasks(tasks: Sequence[Task], reward: Reward) -> ScoresByAnswer:
    return {
        (task.prompt, task.answers, answer): score
        for task, row in zip(tasks, divided_scores(reward, tasks), strict=True)
        for answer, score in zip(task.answers, row, strict=True)
    }


def scored_pairs(
    records: Iterable[PreferenceRecord],
    scores: ScoresByAnswer,
    truths: ScoresByAnswer | None = None,
    *,
    in_shown_order: bool = True,
) -> tuple[ScoredPair, ...]:
    """A comparison is one pair, a ranking all of its pairs; equal ranks are ties.
    ``in_shown_order`` says whether the answers of a ranking stand in the order in which they were shown."""
    return tuple(
        pair for record in records for pair in _record_pairs(record, scores, truths or {}, in_shown_order)
    )


def distinct_answers(record: PreferenceRecord) -> tuple[Text, ...]:
    return tuple(dict.fromkeys(answers_of(record)))


def _record_pairs(
    record: PreferenceRecord, scores: ScoresByAnswer, truths: ScoresByAnswer, in_shown_order: bool
) -> Iterator[ScoredPair]:
    answers, distinct = answers_of(record), distinct_answers(record)
    for first, other in combinations(range(len(answers)), 2):
        keys = tuple((record.prompt, distinct, answers[place]) for place in (first, other))
        is_ranking = isinstance(record, Ranking)
        yield ScoredPair(
            prompt=record.prompt,
            answers=(plain_text(answers[first]), plain_text(answers[other])),
            rewards=(scores[keys[0]], scores[keys[1]]),
            truths=(truths.get(keys[0]), truths.get(keys[1])),
            p_first=_rank_preference(record.ranks[first], record.ranks[other])
            if is_ranking
            else preference_probability(record),
            category=record.category,
            annotator=record.annotator,
            group=record.group,
            strength=None if is_ranking else record.strength,
            places=_places(record, first, other, in_shown_order),
            origin=record.origin,
        )


def _places(record: PreferenceRecord, first: int, other: int, in_shown_order: bool) -> tuple[int, int] | None:
    if record.places:
        return record.places[first], record.places[other]
    # A comparison lists its chosen answer first, which tells the label and no place.
    return (first, other) if isinstance(record, Ranking) and in_shown_order else None


def _rank_preference(rank: float, other: float) -> float:
    return 0.5 if rank == other else float(rank < other)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumns:
    """Scored pairs as arrays: a row for each of B pairs that have a verdict."""

    gap_B: Float[np.ndarray, " B"]
    """The reward of the first answer less that of the second."""
    p_first_B: Float[np.ndarray, " B"]
    prompt_B: Int[np.ndarray, " B"]

    @property
    def has_preference_B(self) -> Bool[np.ndarray, " B"]:
        return self.p_first_B != 0.5


def pair_columns(pairs: Sequence[ScoredPair]) -> PairColumns:
    return PairColumns(
        gap_B=np.array([reward_gap(pair) for pair in pairs], dtype=float),
        p_first_B=np.array([pair.p_first for pair in pairs], dtype=float),
        prompt_B=group_index([pair.prompt for pair in pairs]),
    )


def has_verdict(pair: ScoredPair) -> bool:
    return None not in pair.rewards


def reward_gap(pair: ScoredPair) -> float:
    first, second = pair.rewards
    assert first is not None, pair.origin
    assert second is not None, pair.origin
    return first - second


def group_index(names: Sequence[Hashable]) -> Int[np.ndarray, " B"]:
    """The index of each name among the different names, in the order of appearance.

    >>> group_index(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    index_of = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([index_of[name] for name in names], dtype=np.int64)
