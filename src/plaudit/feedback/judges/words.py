"""Words that name judges, with settings behind commas: ``openai:URL#model,how=letter,draws=5``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plaudit.config import did_you_mean
from plaudit.errors import UserError, located
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import parse_prices

SERVER, LOCAL, CALL, JURY, SPREAD = "openai:", "model:", "call:", "jury:", "spread:"
"""Words begin with these: a server, a folder, a function, several that vote, one of several per task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeWord:
    """A judge's word, taken apart."""

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
        with located(self.place):
            return HowToAsk(**values)


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
    with located(f"preamble={word}: cannot be read as a text", OSError, ValueError):
        text = Path(word).read_text("utf-8").strip()
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
