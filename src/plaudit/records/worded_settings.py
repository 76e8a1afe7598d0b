"""The words in which a model judges; all of them can be changed, for a tokenizer that knows others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSettings:
    """How a conversation and its answers are quoted.

    Example: ``QuoteSettings(mark="| ", user="Question", assistant="Reply")``
    """

    mark: str = "> "
    """What every quoted line begins with, and no other line."""
    user: str = "User"
    """The header of a user's turn."""
    assistant: str = "Assistant"
    """The header of an assistant's turn."""
    answer: str = "Answer"
    """The header of an answer that is judged."""
    critique: str = "Critique"
    """The header of a critique."""

    def __post_init__(self) -> None:
        """Refuse what would let a quotation be taken for something else."""
        sign = self.mark.strip()
        if not sign or sign[0].isalnum() or self.mark.splitlines() != [self.mark]:
            raise UserError("quote.mark must be a sign on one line, not a letter or digit, as in '> '")
        headers = (self.user, self.assistant, self.answer, self.critique)
        for header in headers:
            if not header.strip() or header.splitlines() != [header] or header.startswith(sign):
                raise UserError(
                    f"quote: the header {header!r} must be words on one line that do not begin with {sign!r}"
                )
        if len(set(headers)) < len(headers):
            raise UserError(f"quote: the headers {', '.join(headers)} must differ from each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRewardSettings:
    """The words for a good and for a bad answer.

    Example: ``TextRewardSettings(good="Yes", bad="No", ask="Is it right?")``
    """

    good: str = "Good"
    """The word for an answer that was preferred."""
    bad: str = "Bad"
    """The word for one that was not."""
    ask: str = "Is the answer good? Reply {good} or {bad}."
    """What is asked below the answer; {good} and {bad} stand for the words."""
    aspect: str | None = None
    """Which aspect's thumbs count, where rows rate several."""

    def __post_init__(self) -> None:
        """Refuse words that say nothing."""
        _refuse_alike("words.good and words.bad", (self.good, self.bad))
        _refuse_no_question("words.ask", self.ask)

    @property
    def words(self) -> tuple[str, str]:
        """What can be replied."""
        return self.good, self.bad

    @property
    def asked(self) -> str:
        """The question.

        >>> TextRewardSettings(good="Yes", bad="No", ask="{good} or {bad}?").asked
        'Yes or No?'
        """
        return self.ask.replace("{good}", self.good).replace("{bad}", self.bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerSettings:
    """The labels of two answers.

    Example: ``RankerSettings(first="1", second="2", order="both")``
    """

    first: str = "A"
    """The label of the answer that is shown first."""
    second: str = "B"
    """The label of the other one."""
    ask: str = "Which answer is better? Reply {first} or {second}."
    """What is asked below the answers; {first} and {second} stand for the labels."""
    order: Literal["random", "both"] = "random"
    """In which order a pair is shown: a random one, or both, as two rows."""

    def __post_init__(self) -> None:
        """Refuse labels that say nothing."""
        _refuse_alike("words.first and words.second", (self.first, self.second))
        _refuse_no_question("words.ask", self.ask)
        if self.order not in ("random", "both"):
            raise UserError(f"words.order {self.order!r}: expected random or both")

    @property
    def words(self) -> tuple[str, str]:
        """What can be replied."""
        return self.first, self.second

    @property
    def asked(self) -> str:
        """The question."""
        return self.ask.replace("{first}", self.first).replace("{second}", self.second)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """How critiques are asked for and written, and what points there are.

    Example: ``CriticSettings(points=10, critiques=8, temperature=0.7)``
    """

    ask: str = "Write a critique of the answer."
    """What is asked first."""
    ask_points: str = "How many points from 1 to {points} does the answer deserve?"
    """What is asked below the critique; {points} stands for the most that there are."""
    points: int = 5
    """The most points that there are; the fewest are 1."""
    critiques: int = 4
    """How many critiques are written of an answer; their scores are averaged."""
    temperature: float = 1.0
    """How they are drawn: 0 always takes the likeliest word, and then one critique is all that there is."""
    tokens: int = 128
    """The longest critique."""

    def __post_init__(self) -> None:
        """Refuse what cannot be asked or averaged."""
        _refuse_no_question("words.ask", self.ask)
        _refuse_no_question("words.ask_points", self.ask_points)
        if self.points < 2 or self.critiques < 1 or self.tokens < 1:
            raise UserError("words: points must be at least 2, critiques and tokens at least 1")
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"words.temperature must be 0 or more, not {self.temperature}")
        if self.temperature == 0 and self.critiques > 1:
            raise UserError(
                f"words.critiques {self.critiques} at temperature 0 are all the same; ask for 1, "
                "or raise the temperature"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """What can be replied.

        >>> CriticSettings(points=3).words
        ('1', '2', '3')
        """
        return tuple(str(point) for point in range(1, self.points + 1))

    @property
    def asked(self) -> str:
        """The question for points."""
        return self.ask_points.replace("{points}", str(self.points))


WordedSettings = TextRewardSettings | RankerSettings | CriticSettings
"""The words of any of the three."""


def _refuse_alike(names: str, pair: tuple[str, str]) -> None:
    if not all(word.strip() for word in pair) or pair[0].strip() == pair[1].strip():
        raise UserError(f"{names} must be two different words, not {pair[0]!r} and {pair[1]!r}")


def _refuse_no_question(name: str, ask: str) -> None:
    if not ask.strip():
        raise UserError(f"{name} is empty; write what the model should be asked")
