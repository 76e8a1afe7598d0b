"""Which of two answers is better, asked in both orders; and from pairs to a winner and to scores.

P(a before b) = ½ + ½ (P(first | a, b) − P(first | b, a)): what the model gives to whichever is first counts
as often for one side as for the other (Wang et al. 2023, arXiv:2305.17926). Both answers in one input: Jiang
et al. 2023, arXiv:2306.02561.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, count
from statistics import fmean
from typing import ClassVar

from plaudit.data.generative_judging import PairwiseRankerSettings, pairwise_prompt
from plaudit.data.judging import Mark, Verdict
from plaudit.data.records import Task, Text
from plaudit.errors import UserError
from plaudit.rewards.base import RewardTraits, TaskScores, mean_if_complete
from plaudit.rewards.llm.generative import LanguageJudgeModel, RewardInWords, reply_probabilities

AnswerPair = tuple[Text, Text, Text]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    first: float
    """The mean chance of the answer that stands first, over both orders of each pair; ½ is no bias."""
    flipped: float
    """The share of pairs in which the other answer is preferred when their order is turned round."""
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    round: int
    """In which round of a tournament, counted from 1."""
    first: int
    second: int
    probability: float

    @property
    def winner(self) -> int:
        """The better of the two; of equals the one named first.

        >>> Match(round=1, first=4, second=2, probability=0.3).winner
        2
        """
        return self.first if self.probability >= 0.5 else self.second


class PairwiseRanker(RewardInWords):
    """A model that says which of two answers is better: a judge, and by round robin or knock-out a reward."""

    traits: ClassVar[RewardTraits] = RewardTraits(compares_answers=True)

    def __init__(self, model: LanguageJudgeModel) -> None:
        """Take a model trained to compare pairs; its settings say how matches become scores."""
        settings = model.spec.settings
        assert isinstance(settings, PairwiseRankerSettings)
        self._model, self._settings = model, settings

    def win_probabilities(self, tasks: Sequence[Task]) -> TaskScores:
        """That the first of two answers is better; None where the model cannot be shown both whole."""
        return tuple(
            _debiased_probability(orders)
            for orders in self._first_probabilities([_answer_pair(task) for task in tasks])
        )

    def position_bias(self, tasks: Sequence[Task]) -> PositionBias:
        """How far the place of an answer decides, over tasks of two answers."""
        orders_by_pair = self._first_probabilities([_answer_pair(task) for task in tasks])
        judged = [orders for orders in orders_by_pair if orders is not None]
        if not judged:
            raise UserError(f"{self.name}: no pair has a verdict, so there is no bias to measure")
        return PositionBias(
            first=fmean(share for orders in judged for share in orders),
            # The same side of ½ in both orders means that the place won, and another answer each time.
            flipped=fmean((forth > 0.5) == (back > 0.5) for forth, back in judged),
            pairs=len(judged),
        )

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """Two answers by their chance, more by round robin; None where a pair has no verdict.
        Nothing is left to chance, so every seed gives the same verdicts."""
        pairs = [task for task in tasks if len(task.answers) == 2]
        probabilities = iter(self.win_probabilities(pairs) if pairs else ())
        return [
            self._verdict(task, next(probabilities) if len(task.answers) == 2 else None) for task in tasks
        ]

    def _verdict(self, task: Task, probability: float | None) -> Verdict | None:
        if len(task.answers) == 2 and probability is None:
            return None
        row = self.scores([task])[0] if probability is None else (probability, 1 - probability)
        verdicts = [score for score in row if score is not None]
        if len(verdicts) < len(row):
            return None
        marks = tuple(Mark(rank=1 + sum(other > score for other in verdicts)) for score in verdicts)
        return Verdict(marks=marks, annotator=self.name, probability=probability)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """How each answer does against the others of its task, from 0 to 1.
        In a round robin the mean of its chances, or Borda's count: the share of the others that it beats, a
        draw being half. In a knock-out, of m − 1 matches, the share of the rounds that it was not thrown out
        in. None for an answer that is alone, or that could not be compared as often as that takes."""
        if self._settings.counting == "knock-out":
            return tuple(self._knock_out_scores(task) for task in tasks)
        places = [
            (t, pair) for t, task in enumerate(tasks) for pair in combinations(range(len(task.answers)), 2)
        ]
        pairs = [(tasks[t].prompt, tasks[t].answers[a], tasks[t].answers[b]) for t, (a, b) in places]
        won: list[list[list[float | None]]] = [[[] for _ in task.answers] for task in tasks]
        for (t, (a, b)), orders in zip(places, self._first_probabilities(pairs), strict=True):
            points = self._points(_debiased_probability(orders))
            won[t][a].append(points)
            won[t][b].append(None if points is None else 1 - points)
        return tuple(tuple(mean_if_complete(points_by_opponent) for points_by_opponent in row) for row in won)

    def tournament(self, task: Task, *, seed: int | None = None) -> tuple[int, tuple[Match, ...]] | None:
        """Single elimination: the place of the winner, and m − 1 matches of m answers.
        Drawn by the seed (none: as they are shown). Whoever has no partner in a round goes on to the next.
        None where a match has no verdict."""
        remaining = list(range(len(task.answers)))
        if seed is not None:
            random.Random(f"tournament {seed}").shuffle(remaining)
        played: list[Match] = []
        for number in count(1):
            if len(remaining) < 2:
                break
            opponents = list(zip(remaining[::2], remaining[1::2], strict=False))
            pairs = [(task.prompt, task.answers[first], task.answers[second]) for first, second in opponents]
            matches: list[Match] = []
            for (first, second), orders in zip(opponents, self._first_probabilities(pairs), strict=True):
                probability = _debiased_probability(orders)
                if probability is None:
                    return None
                matches.append(Match(round=number, first=first, second=second, probability=probability))
            played += matches
            remaining = [match.winner for match in matches] + (remaining[-1:] if len(remaining) % 2 else [])
        return remaining[0], tuple(played)

    def _knock_out_scores(self, task: Task) -> tuple[float | None, ...]:
        played = self.tournament(task) if len(task.answers) > 1 else None
        if played is None:
            return (None,) * len(task.answers)
        _, matches = played
        rounds = matches[-1].round
        left_in = {match.first + match.second - match.winner: match.round for match in matches}
        # The winner is in no match's losers: it has outlived all rounds.
        return tuple((left_in.get(answer, rounds + 1) - 1) / rounds for answer in range(len(task.answers)))

    def _points(self, probability: float | None) -> float | None:
        if probability is None or self._settings.counting == "mean":
            return probability
        return 0.5 if probability == 0.5 else float(probability > 0.5)

    def _first_probabilities(self, pairs: Sequence[AnswerPair]) -> list[tuple[float, float] | None]:
        settings, form = self._settings, self._model.form
        ordered = [
            (prompt, order) for prompt, pair, other in pairs for order in ((pair, other), (other, pair))
        ]
        replies = iter(
            self._model.logps([pairwise_prompt(settings, form, prompt, order) for prompt, order in ordered])
        )
        both = [(next(replies), next(replies)) for _ in pairs]
        return [
            None
            if first is None or other is None
            else (reply_probabilities(first)[0], reply_probabilities(other)[0])
            for first, other in both
        ]


def _answer_pair(task: Task) -> AnswerPair:
    if len(task.answers) != 2:
        raise UserError(
            f"a ranker compares two answers, and the task has {len(task.answers)}: ask for scores"
        )
    return task.prompt, *task.answers


def _debiased_probability(orders: tuple[float, float] | None) -> float | None:
    return None if orders is None else 0.5 + 0.5 * (orders[0] - orders[1])
