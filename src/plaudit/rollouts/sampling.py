"""How answers are drawn, and what an answer is; importing this does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How the next token is chosen, and for how long.

    Example: ``SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=64, seed=1)``
    """

    temperature: int | float = 1.0
    """Scores are divided by it: below 1 is bolder, above 1 wilder, 0 always takes the likeliest token."""
    top_p: int | float = 1.0
    """Only the likeliest tokens are drawn, as few as together have this probability; 1 is all of them."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut."""
    seed: int = 0
    """Where chance begins: the same seed gives the same answers."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature {self.temperature}: expected 0 (the likeliest token) or more")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: expected a share above 0 and at most 1 (1 is every token)")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens {self.max_tokens}: expected 1 or more")

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said.

    Example: ``Answer(text="An apple.", tokens=4, ended=True)``
    """

    text: str
    """The words, without control tokens."""
    tokens: int
    """How many tokens were drawn, the one that ended the turn among them."""
    ended: bool
    """Whether the model ended its turn by itself; False means that it was cut."""
