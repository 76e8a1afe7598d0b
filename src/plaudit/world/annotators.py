"""Simulated annotators: people of the valley who judge by the true utility, and by their weaknesses.

An annotator sees each answer's utility, bent by biases, adds Gumbel noise at a temperature T, and puts the
answers in order: a Plackett–Luce choice (Luce 1959, Plackett 1975), which for two answers is Bradley and
Terry's (1952), P(a before b) = σ((v_a − v_b) / T). What feels closer than ``indifference`` is called a tie,
and then P(a before b) = σ((v_a − v_b − indifference) / T), the model of Rao and Kupper (1967).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

from plaudit.errors import UserError
from plaudit.records.judging import Mark, Task, Verdict
from plaudit.records.messages import Text, words
from plaudit.world.gold import Gold, judge
from plaudit.world.prompts import question_of
from plaudit.world.reading import read

Bias = Literal["length", "position", "flattery", "format", "evasion"]
"""What can bend a judgement."""
BIASES: tuple[Bias, ...] = get_args(Bias)
"""All of them."""
Part = Literal["helpful", "honest", "harmless", "concise", "plain"]
"""What can be asked about instead of the whole utility."""
PARTS: tuple[Part, ...] = get_args(Part)
"""All of them."""
EULER = 0.5772156649015329
"""The mean of Gumbel's distribution."""
LONGEST = 60
"""Words from which an answer does not feel any longer."""
CLEAR, GREAT = 0.2, 0.5
"""Gaps between the best and the next from which a preference has strength 2, and 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """A simulated person.

    Example: ``Annotator(name="crowd-3", group="crowd", temperature=0.15, biases={"length": 0.1})``
    """

    name: str
    """A pseudonym; the noise is drawn by it, so two of one name and one setting always agree."""
    group: str
    """The group that shares its taste."""
    temperature: int | float = 0.1
    """How noisy the choice is; at 0 the better-looking answer always wins."""
    biases: Mapping[Bias, int | float] = field(default_factory=dict[Bias, int | float])
    """Worth added for every ten words, for standing first, for each flattery or agreement, for headings and
    bullets, for evasion; below 0 it is taken away."""
    indifference: int | float = 0.02
    """Answers that feel closer than this are called equal; at 0 there is always a choice."""
    flip: int | float = 0.0
    """The chance that the scale is read the wrong way round."""
    careless: int | float = 0.0
    """The chance of judging at random, without reading."""
    adversary: bool = False
    """Whether the scale is turned round on purpose; nothing is reported then."""
    words_a_second: int | float = 4.0
    """How fast they read."""
    asked: Part | None = None
    """The part of the utility that they are asked about and judge alone; None: all of it."""

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise UserError(f"annotator {self.name}: {fault}")

    def judge(self, task: Task, seed: int) -> Verdict:
        """Read, rank, rate and report."""
        chance = random.Random(f"{self.name} {seed} {words(task.prompt)}")
        careless = chance.random() < self.careless
        turned = (chance.random() < self.flip) != self.adversary
        felt = [chance.random() if careless else self._felt(seen, chance) for seen in self._seen(task)]
        if turned:
            felt = [1 - value for value in felt]
        marks = tuple(
            Mark(
                rank=rank,
                rating=_rating(value),
                flags=() if careless or self.adversary else flags_of(_sight(task.prompt, answer, ended)[0]),
            )
            for rank, value, answer, ended in zip(
                _ranks(felt, self.indifference), felt, task.answers, task.ended, strict=True
            )
        )
        return Verdict(
            marks=marks,
            strength=_strength(felt, marks),
            seconds=self._seconds(task, chance, careless=careless),
            annotator=self.name,
            group=self.group,
        )

    def chance_of_first(self, task: Task) -> float:
        """The probability that the first of two answers is called the better one.

        >>> task = Task(prompt="What does the owl eat?", answers=("Mice.", "Bark."), ended=(True, True))
        >>> round(Annotator(name="ada", group="bakers", temperature=0.5).chance_of_first(task), 2)
        0.86
        """
        return self.chances(task)[0]

    def chances(self, task: Task) -> tuple[float, float]:
        """The probability of either of two answers to be called the better one; what is left is a tie's."""
        if len(task.answers) != 2:
            raise UserError(f"chances are known for two answers, not for {len(task.answers)}")
        first, second = self._seen(task)
        turned = 1 - self.flip if self.adversary else self.flip
        one, other = self._ahead(first - second), self._ahead(second - first)
        return (1 - turned) * one + turned * other, (1 - turned) * other + turned * one

    def chance_of_tie(self, task: Task) -> float:
        """The probability that two answers are called equal."""
        return 1 - sum(self.chances(task))

    def _ahead(self, gap: float) -> float:
        """The chance of an answer that looks better by a gap, on a scale that is not turned round."""
        # So often is one of two draws at random the greater by more than the indifference.
        unread = (1 - min(1, self.indifference)) ** 2 / 2
        if self.temperature == 0:
            attentive = float(gap > 0 and gap >= self.indifference)
        else:
            attentive = 0.5 * (1 + math.tanh((gap - self.indifference) / self.temperature / 2))
        return (1 - self.careless) * attentive + self.careless * unread

    def _seen(self, task: Task) -> list[float]:
        """The worth of each answer, in what they are asked about, as this person sees it."""
        sights = (
            _sight(task.prompt, answer, ended) for answer, ended in zip(task.answers, task.ended, strict=True)
        )
        return [
            float(getattr(gold, self.asked or "utility"))
            + sum(weight * causes[bias] for bias, weight in self.biases.items() if bias != "position")
            + (self.biases.get("position", 0.0) if place == 0 else 0.0)
            for place, (gold, causes) in enumerate(sights)
        ]

    def _felt(self, seen: float, chance: random.Random) -> float:
        """With Gumbel noise of mean 0: the largest of several is then a softmax choice."""
        gumbel = -math.log(-math.log(chance.uniform(1e-12, 1 - 1e-12)))
        return seen + self.temperature * (gumbel - EULER)

    def _seconds(self, task: Task, chance: random.Random, *, careless: bool) -> float:
        """To read the answers, or to have a glance at them."""
        total = sum(len(words(answer).split()) for answer in task.answers)
        pace = 0.2 if careless else chance.uniform(0.8, 1.4)
        return round(1.0 + pace * total / self.words_a_second, 1)


def flags_of(gold: Gold) -> tuple[str, ...]:
    """What an honest reader reports."""
    named = {"harmful": gold.harmless < 0.5, "false": gold.honest <= 0.5, "unfinished": gold.ended < 1}
    return tuple(name for name, wrong in named.items() if wrong)


@lru_cache(maxsize=20_000)
def _sight(prompt: Text, answer: Text, ended: bool) -> tuple[Gold, Mapping[str, float]]:
    """What there is to see in an answer: its worth, and how much it has of each bias's cause."""
    question, said = question_of(prompt), words(answer)
    reading = read(question, said, ended=ended)
    signs = reading.signs
    causes = {
        "length": min(reading.words, LONGEST) / 10,
        "flattery": float(signs["flattery"] + signs["agrees"]),
        "format": float(signs["mark"] > 0),
        "evasion": float(signs["evasion"] > 0),
    }
    return judge(question, said, ended=ended), causes


def _ranks(felt: Sequence[float], indifference: int | float) -> list[int]:
    """1 for the best; whatever is closer to the best of its group than the indifference shares its rank."""
    ranks = [1] * len(felt)
    order = sorted(range(len(felt)), key=lambda place: -felt[place])
    top = order[0]
    for better, place in enumerate(order):
        gap = felt[top] - felt[place]
        if gap > 0 and gap >= indifference:
            top, ranks[place] = place, better + 1
        else:
            ranks[place] = ranks[top]
    return ranks


def _rating(value: float) -> int:
    """1 to 5 from a utility."""
    return max(1, min(5, 1 + round(4 * value)))


def _strength(felt: Sequence[float], marks: Sequence[Mark]) -> int | None:
    """How far the best stands out; one answer alone stands out from nothing."""
    if len(felt) < 2:
        return None
    if [mark.rank for mark in marks].count(1) > 1:
        return 0
    best, following = sorted(felt, reverse=True)[:2]
    return 1 + (best - following >= CLEAR) + (best - following >= GREAT)


def _faults(annotator: Annotator) -> Iterator[str]:
    """Settings that mean nothing."""
    if annotator.asked not in (None, *PARTS):
        yield f"nobody can be asked about {annotator.asked!r}; there is {', '.join(PARTS)}"
    for bias, weight in annotator.biases.items():
        if bias not in BIASES:
            yield f"no bias is called {bias!r}; there are {', '.join(BIASES)}"
        if not math.isfinite(weight):
            yield f"bias {bias} {weight}: expected a finite number"
    expected = {
        "temperature": ("0 or more", 0 <= annotator.temperature < math.inf),
        "indifference": ("0 or more", 0 <= annotator.indifference < math.inf),
        "flip": ("a chance from 0 to 1", 0 <= annotator.flip <= 1),
        "careless": ("a chance from 0 to 1", 0 <= annotator.careless <= 1),
        "words_a_second": ("more than 0", 0 < annotator.words_a_second < math.inf),
    }
    for name, (what, holds) in expected.items():
        if not holds:
            yield f"{name} {getattr(annotator, name)}: expected {what}"
