"""Which of two answers is better, asked in both orders; and from pairs to a winner and to scores.

P(a before b) = ½ + ½ (P(first | a, b) − P(first | b, a)): what the model gives to whichever is first counts
as often for one side as for the other (Wang et al. 2023, arXiv:2305.17926). Both answers in one input: Jiang
et al. 2023, arXiv:2306.02561.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Literal

from plaudit.errors import UserError
from plaudit.records.judging import Mark, Task, Verdict
from plaudit.records.messages import Text
from plaudit.records.worded_form import ask_better
from plaudit.records.worded_settings import RankerSettings
from plaudit.rewards.reward import Row
from plaudit.rewards.worded_model import WordedModel, shares

Pair = tuple[Text, Text, Text]
"""A prompt and two answers to it."""
Counting = Literal["mean", "borda"]
"""The mean chance to beat another answer, or the share of the others that are beaten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """What the place of an answer does to a ranker.

    Example: ``PositionBias(first=0.62, turned=0.2, pairs=100)``
    """

    first: float
    """The mean chance of the answer that stands first, over both orders of each pair; ½ is no bias."""
    turned: float
    """The share of pairs in which the other answer is preferred when their order is turned round."""
    pairs: int
    """How many pairs were asked, each in both orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two answers of a task that met.

    Example: ``Match(one=0, other=3, chance=0.8)``
    """

    one: int
    """The place of the one in the task."""
    other: int
    """The place of the other."""
    chance: float
    """That the one is better."""

    @property
    def winner(self) -> int:
        """The better of the two; of equals the one named first.

        >>> Match(one=4, other=2, chance=0.3).winner
        2
        """
        return self.one if self.chance >= 0.5 else self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """A single elimination.

    Example: ``Tournament(winner=2, matches=(Match(one=0, other=2, chance=0.3), …))``
    """

    winner: int
    """The place of the answer that lost no match."""
    matches: tuple[Match, ...]
    """All that were played: one fewer than there are answers."""


class Ranker:
    """A model that says which of two answers is better: a judge, and by round robin a reward.

    Example: ``Ranker(model).chance(task)``
    """

    def __init__(self, model: WordedModel, *, counting: Counting = "mean") -> None:
        """Take a model that was trained to say so; ``counting`` makes scores of the chances."""
        settings = model.wording.settings
        assert isinstance(settings, RankerSettings)
        self._model, self._settings, self._counting = model, settings, counting

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._model.name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many orders of pairs it held for so far."""
        return dict(self._model.reader.refused)

    def chance(self, task: Task) -> float | None:
        """That the first of two answers is better; None where the model cannot be shown both whole."""
        [chance] = self.chances([task])
        return chance

    def chances(self, tasks: Sequence[Task]) -> Row:
        """The same for many tasks of two answers."""
        return tuple(_chance(orders) for orders in self._orders([_pair_of(task) for task in tasks]))

    def bias(self, tasks: Sequence[Task]) -> PositionBias:
        """How far the place of an answer decides, over tasks of two answers."""
        found = self._orders([_pair_of(task) for task in tasks])
        known = [orders for orders in found if orders is not None]
        if not known:
            raise UserError(f"{self.name}: no pair has a verdict, so there is no bias to measure")
        return PositionBias(
            first=fmean(share for orders in known for share in orders),
            turned=fmean((forth > 0.5) == (back > 0.5) for forth, back in known),
            pairs=len(known),
        )

    def judge(self, task: Task, seed: int = 0) -> Verdict | None:
        """Two answers by their chance, more by round robin; None where a pair has no verdict.

        Nothing is left to chance, so every seed gives the same verdict.
        """
        chance = self.chance(task) if len(task.answers) == 2 else None
        row = self.scores([task])[0] if chance is None else (chance, 1 - chance)
        known = [score for score in row if score is not None]
        if len(known) < len(row):
            return None
        return Verdict(
            marks=tuple(Mark(rank=1 + sum(other > score for other in known)) for score in known),
            annotator=self.name,
            probability=chance,
        )

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """Round robin: how each answer does against the others of its task, from 0 to 1.

        The mean of its chances, or Borda's count: the share of the others that it beats, a draw being half.
        None for an answer that is alone, or that could not be compared with each of the others.
        """
        places = [
            (t, pair) for t, task in enumerate(tasks) for pair in combinations(range(len(task.answers)), 2)
        ]
        pairs = [(tasks[t].prompt, tasks[t].answers[a], tasks[t].answers[b]) for t, (a, b) in places]
        won: list[list[list[float | None]]] = [[[] for _ in task.answers] for task in tasks]
        for (t, (a, b)), orders in zip(places, self._orders(pairs), strict=True):
            points = self._points(_chance(orders))
            won[t][a].append(points)
            won[t][b].append(None if points is None else 1 - points)
        return tuple(tuple(_mean(own) for own in row) for row in won)

    def tournament(self, task: Task, *, seed: int | None = None) -> Tournament | None:
        """Single elimination: m − 1 matches of m answers, drawn by the seed (none: as they are shown).

        Whoever has no partner in a round goes on to the next. None where a match has no verdict.
        """
        left = list(range(len(task.answers)))
        if seed is not None:
            random.Random(f"tournament {seed}").shuffle(left)
        played: list[Match] = []
        while len(left) > 1:
            met = list(zip(left[::2], left[1::2], strict=False))
            pairs = [(task.prompt, task.answers[one], task.answers[other]) for one, other in met]
            matches: list[Match] = []
            for (one, other), orders in zip(met, self._orders(pairs), strict=True):
                chance = _chance(orders)
                if chance is None:
                    return None
                matches.append(Match(one=one, other=other, chance=chance))
            played += matches
            left = [match.winner for match in matches] + (left[-1:] if len(left) % 2 else [])
        return Tournament(winner=left[0], matches=tuple(played))

    def _points(self, chance: float | None) -> float | None:
        if chance is None or self._counting == "mean":
            return chance
        return 0.5 if chance == 0.5 else float(chance > 0.5)

    def _orders(self, pairs: Sequence[Pair]) -> list[tuple[float, float] | None]:
        """What whoever stands first is given: the one answer, and in the other order the other."""
        settings, form = self._settings, self._model.form
        shown = [(prompt, order) for prompt, one, other in pairs for order in ((one, other), (other, one))]
        found = iter(
            self._model.logps([ask_better(settings, form, prompt, order) for prompt, order in shown])
        )
        both = [(next(found), next(found)) for _ in pairs]
        return [
            None if one is None or other is None else (shares(one)[0], shares(other)[0])
            for one, other in both
        ]


def _pair_of(task: Task) -> Pair:
    if len(task.answers) != 2:
        raise UserError(
            f"a ranker compares two answers, and the task has {len(task.answers)}: ask for scores"
        )
    return task.prompt, *task.answers


def _chance(orders: tuple[float, float] | None) -> float | None:
    return None if orders is None else 0.5 + 0.5 * (orders[0] - orders[1])


def _mean(points: Sequence[float | None]) -> float | None:
    """The mean where there is something and none of it is missing."""
    known = [point for point in points if point is not None]
    return fmean(known) if known and len(known) == len(points) else None
