"""Words that name judges, with settings behind commas: ``openai:URL#model,how=letter,draws=5``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from plaudit.config import did_you_mean
from plaudit.errors import UserError
from plaudit.feedback.judges.constitution import Constitution, constitution_named
from plaudit.feedback.judges.money import Prices, parse_prices

How = Literal["verdict", "letter", "reasons", "points", "answer"]
"""How a judge says what it thinks: a word behind reasons, a letter, a clamped letter behind reasons, points
for each answer, or whether each is right, given the true answer."""
HOWS: tuple[How, ...] = get_args(How)
"""Every way to say it."""
SERVER, LOCAL, CALL, JURY, SPREAD = "openai:", "model:", "call:", "jury:", "spread:"
"""What words begin with: a server, a model's folder, a function, several that vote, one of several for each
task."""
LETTERS = ("A", "B")
"""What stands for the answers that are shown first and second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToAsk:
    """How a judge is asked, whoever it is.

    Example: ``HowToAsk(how="letter", draws=5)``
    """

    how: How | None = None
    """How it says what it thinks; None leaves that to who asks: a verdict for an evaluation, a letter for
    rows, points for a reward."""
    draws: int = 8
    """How often a letter is drawn where a server gives no log-probs."""
    temperature: float = 0.0
    """The sampling temperature of replies; of several draws 1 where it is 0."""
    max_tokens: int = 512
    clamp: float = 0.4
    """Of reasons: the chance lies between this and 1 less it, since reasons make judges too sure; 0: no."""
    points: int = 5
    """The most points that an answer is given; the fewest are 1."""
    rubric: Path | None = None
    """A file of aspects with their weights; None: the answer as a whole."""
    constitution: Constitution | None = None
    """The principles that say what counts; None: the wording's own words."""
    principles: int | Literal["all"] = 1
    """How many of them are drawn for a task; the log-odds of several are averaged."""
    preamble: str | None = None
    """What stands above the question: examples, say."""
    price: Prices | None = None
    """What a million tokens cost."""
    requests: int | None = None
    """How many requests are under way at the same time."""
    token_from: str | None = None
    """The environment variable with the server's token."""

    def __post_init__(self) -> None:
        if self.how is not None and self.how not in HOWS:
            raise UserError(f"how={self.how}{did_you_mean(self.how, HOWS) or ''}: one of {', '.join(HOWS)}")
        if min(self.draws, self.max_tokens, self.requests or 1) < 1 or not 2 <= self.points <= 9:
            raise UserError("draws, max-tokens and requests are at least 1, points 2 to 9 (one digit)")
        if not 0 <= self.temperature < math.inf or not 0 <= self.clamp <= 0.5:
            raise UserError("temperature is 0 or more, clamp from 0 to 0.5")
        self._refuse_constitution()

    @property
    def drawn_principles(self) -> int:
        """How many principles a task is judged by at most; 0 without a constitution."""
        if self.constitution is None:
            return 0
        return len(self.constitution.principles) if self.principles == "all" else self.principles

    def _refuse_constitution(self) -> None:
        """Refuse principles without a constitution, more than it has, and a way to ask that has no use for
        them.
        """
        if self.constitution is None:
            if self.principles != 1:
                raise UserError(
                    f"principles={self.principles} are of a constitution: constitution=FILE, or ours"
                )
            return
        there = len(self.constitution.principles)
        if self.principles != "all" and not 1 <= self.principles <= there:
            raise UserError(
                f"principles={self.principles}: {self.constitution.name} has {there}; give 1 to {there}, or "
                "all"
            )
        if self.how == "answer":
            raise UserError(
                "how=answer compares with the true answer, and a constitution says what is better; leave one "
                "of them out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeWord:
    """A judge's word, taken apart.

    Example: ``parse_judge_word("openai:http://127.0.0.1:8000/v1#small,how=letter").place``
    """

    place: str
    """The word without what is set: a server, a folder, a file, a rule."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    def how(self, default: HowToAsk | None = None) -> HowToAsk:
        """How it is asked: as it is set in the word, else as in the default."""
        base = default or HowToAsk()
        values = {name: getattr(base, name) for name in HowToAsk.__dataclass_fields__}
        for name, value in self.settings.items():
            key = name.replace("-", "_")
            try:
                values[key] = _CONVERTERS[key](value)
            except UserError as error:
                raise UserError(f"{self.place}: {error}") from error
            except ValueError as error:
                raise UserError(f"{self.place}: {name}={value}: expected a number") from error
        try:
            return HowToAsk(**values)
        except UserError as error:
            raise UserError(f"{self.place}: {error}") from error


def parse_principles(word: str) -> int | Literal["all"]:
    """How many principles are drawn for a task, or all.

    >>> parse_principles("3"), parse_principles("all")
    (3, 'all')
    """
    if word == "all":
        return "all"
    try:
        return int(word)
    except ValueError as error:
        raise UserError(f"principles={word}: expected a number, or all") from error


def read_preamble(word: str) -> str:
    """The text of a file that stands above every question."""
    try:
        text = Path(word).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UserError(f"preamble={word}: cannot be read as a text: {error}") from error
    if not text:
        raise UserError(f"preamble={word}: there is nothing in it")
    return text


_CONVERTERS: Mapping[str, Callable[[str], object]] = {
    "how": str,
    "draws": int,
    "temperature": float,
    "max_tokens": int,
    "clamp": float,
    "points": int,
    "rubric": Path,
    "constitution": constitution_named,
    "principles": parse_principles,
    "preamble": read_preamble,
    "price": parse_prices,
    "requests": int,
    "token_from": str,
}
_SETTING = re.compile(r",([a-z][a-z-]*)=([^,]*)")
_SETTINGS = re.compile(rf"^(.*?)((?:{_SETTING.pattern})*)$", re.DOTALL)


def parse_judge_word(word: str) -> JudgeWord:
    """A word and what is set behind it; an unknown setting is refused by name.

    >>> parsed = parse_judge_word("openai:http://127.0.0.1:8000/v1#small,how=letter,draws=5")
    >>> parsed.place, parsed.how().draws
    ('openai:http://127.0.0.1:8000/v1#small', 5)
    """
    found = _SETTINGS.match(word)
    assert found is not None, "the pattern takes any text"
    settings = dict(_SETTING.findall(found[2]))
    for name in settings:
        if name.replace("-", "_") not in _CONVERTERS:
            names = sorted(key.replace("_", "-") for key in _CONVERTERS)
            hint = did_you_mean(name, names) or f"; there is {', '.join(names)}"
            raise UserError(f"{word}: nothing is called {name}{hint}")
    return JudgeWord(place=found[1], settings=settings)


def asks_a_model(word: str) -> bool:
    """Whether a word names models that are asked in words, alone or as a jury.

    >>> asks_a_model("openai:http://127.0.0.1:8000/v1#small"), asks_a_model("length:1-20")
    (True, False)
    """
    return word.startswith((SERVER, LOCAL, CALL, JURY, SPREAD))
