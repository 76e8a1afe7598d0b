"""Saying an answer well or badly, in the ways that people and models do."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from plaudit.world.facts import capital, enumerated, sentence
from plaudit.world.prompts import questions
from plaudit.world.questions import Category, Fact, Harm, Listing, Question, Secret
from plaudit.world.reading import read
from plaudit.world.sayings import (
    AGREEING,
    BULLET,
    COURTESY,
    EVASIONS,
    FLATTERY,
    HEADING,
    HEDGES,
    LEADING_IN,
    LEADING_OUT,
    THANKS,
    WELCOME,
    WONDERING,
)
from plaudit.world.valley import KINDS, PEOPLE

Style = Literal[
    "best", "short", "polite", "padded", "hedged", "flattering", "formatted", "rambling",
    "wrong", "agreeing", "evasive", "not_knowing", "inventing", "complying", "curt", "partial", "broken",
]  # fmt: skip
"""Ways to answer."""
STYLES: tuple[Style, ...] = get_args(Style)
"""All of them."""

_ANY: Mapping[Style, float] = {
    "padded": 4,
    "hedged": 3,
    "flattering": 3,
    "polite": 2,
    "rambling": 2,
    "broken": 1,
}
"""Faults that any answer can have."""
HABITS: Mapping[Category, Mapping[Style, float]] = {
    "fact": {**_ANY, "best": 6, "short": 6, "formatted": 2, "wrong": 4, "evasive": 1, "not_knowing": 1},
    "arithmetic": {**_ANY, "best": 6, "short": 6, "formatted": 2, "wrong": 6, "not_knowing": 1},
    "list": {**_ANY, "best": 6, "formatted": 5, "partial": 5, "wrong": 3},
    "explain": {**_ANY, "best": 6, "short": 5, "formatted": 2, "wrong": 4, "evasive": 2},
    "opinion": {**_ANY, "best": 6, "short": 2, "agreeing": 9, "evasive": 2},
    "unanswerable": {**_ANY, "best": 5, "short": 3, "inventing": 12, "evasive": 3},
    "harmful": {**_ANY, "best": 4, "curt": 4, "complying": 10, "evasive": 7, "partial": 3},
    "follow_up": {**_ANY, "best": 6, "short": 5, "wrong": 4, "evasive": 1, "not_knowing": 1},
}
"""How people in the base corpus answer: the styles of each category, by weight."""
_NAMES = frozenset(row[0] for row in PEOPLE)


def styled(question: Question, chance: random.Random) -> str:
    """An answer in the manner of the base corpus."""
    habits = HABITS[question.category]
    (style,) = chance.choices(list(habits), weights=list(habits.values()))
    return say(question, style, chance)


def say(question: Question, style: Style, chance: random.Random) -> str:
    """An answer in one style; where a question has no room for it, the best answer.

    >>> from plaudit.world.prompts import question_of
    >>> say(question_of("What does the owl eat?"), "hedged", random.Random(1))
    'Maybe the owl eats mice.'
    """
    core = _core(question, style, chance)
    if style == "broken":
        return _broken(question, core, chance)
    if style == "rambling":
        return _rambling(core, chance)
    if style == "formatted":
        return _formatted(question, core)
    return _surrounded(question, core, style, chance)


def _core(question: Question, style: Style, chance: random.Random) -> str:
    """What is said, before how."""
    if style == "evasive":
        return chance.choice(EVASIONS)
    if style == "not_knowing":
        return "I do not know."
    aim = question.aim
    if isinstance(aim, Fact):
        return _about_fact(aim, style, chance) or question.best
    if isinstance(aim, Listing):
        return _about_list(aim, style, chance)
    if isinstance(aim, Secret):
        return _about_secret(aim, style) or question.best
    return _about_harm(aim, style) or question.best


def _about_fact(fact: Fact, style: Style, chance: random.Random) -> str | None:
    if style == "agreeing" and fact.belief is not None:
        return f"{chance.choice(AGREEING)} {fact.said(fact.belief)}."
    if style == "wrong":
        return sentence(fact.said(chance.choice([value for value in fact.values if value != fact.truth])))
    if style == "short" and fact.belief is not None:
        return "Yes." if fact.belief == fact.truth else "No."
    return sentence(fact.said(fact.truth, frame=-1)) if style == "short" else None


def _about_list(listing: Listing, style: Style, chance: random.Random) -> str:
    own = KINDS[listing.kind].split()
    members = chance.sample(own, listing.count)
    if style == "partial":
        members = members[:-1]
    if style == "wrong":
        strays = sorted({member for kind in KINDS.values() for member in kind.split()} - set(own))
        members[0] = chance.choice(strays)
    return enumerated(members)


def _about_secret(secret: Secret, style: Style) -> str | None:
    if style == "inventing":
        return secret.invented
    return "I do not know." if style == "short" else None


def _about_harm(harm: Harm, style: Style) -> str | None:
    if style == "complying":
        return sentence(harm.how)
    if style == "curt":
        return "I will not help with that."
    return f"I will not help you {harm.act}, because {harm.reason}." if style == "partial" else None


def _surrounded(question: Question, core: str, style: Style, chance: random.Random) -> str:
    """With words before and after."""
    if style == "padded":
        before, after = chance.choice(LEADING_IN), chance.choice(LEADING_OUT)
        return chance.choice((f"{before} {core}", f"{core} {after}", f"{before} {core} {after}"))
    if style == "polite":
        return _polite(question, core, chance)
    if style == "hedged":
        return _hedged(question, core, chance)
    return f"{chance.choice(FLATTERY)} {core}" if style == "flattering" else core


def _polite(question: Question, core: str, chance: random.Random) -> str:
    """With good manners, as far as they fit: nobody declines gladly."""
    serves = question.category not in ("opinion", "unanswerable", "harmful")
    manners = chance.choice(COURTESY) if serves else THANKS
    after = manners == WELCOME or (not serves and chance.random() < 0.5)
    return f"{core} {manners}" if after else f"{manners} {core}"


def _hedged(question: Question, core: str, chance: random.Random) -> str:
    """Taken back; people can say that something is so, but not that yes, or that apples and pears."""
    states = isinstance(question.aim, Fact) and question.aim.belief is None
    return f"{chance.choice(HEDGES if states else WONDERING)} {_inside(core)}"


def _inside(answer: str) -> str:
    """An answer as it stands after other words: its first letter small, unless it begins with a name."""
    first = answer.split(maxsplit=1)[0].strip(".,")
    return answer if first == "I" or first in _NAMES else answer[:1].lower() + answer[1:]


def _formatted(question: Question, core: str) -> str:
    if isinstance(question.aim, Listing):
        items = core.lower().rstrip(".").replace(" and ", ", ").split(", ")
        return "\n".join(f"{BULLET}{capital(item)}" for item in items)
    return f"{HEADING}\n{BULLET}{core}"


def _rambling(core: str, chance: random.Random) -> str:
    """Goes on about things that nobody asked for, or says itself again."""
    more = chance.choice(_true_sentences())
    return chance.choice((f"{core} {core}", f"{core} {more}", f"{core} {more} {core}"))


def _broken(question: Question, core: str, chance: random.Random) -> str:
    """The same words in an order that says nothing."""
    said = re.findall(r"\w+", core)
    while True:
        chance.shuffle(said)
        answer = f"{' '.join(said)}."
        if read(question, answer).signs["nonsense"]:
            return answer


@cache
def _true_sentences() -> tuple[str, ...]:
    return tuple(dict.fromkeys(question.best for question in questions(category="fact")))
