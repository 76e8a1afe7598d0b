"""Saying an answer well or badly, in the ways that people and models do."""

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from plaudit.lab.world import valley
from plaudit.lab.world.facts import as_sentence, capitalized, listed_sentence
from plaudit.lab.world.longer import several_answer
from plaudit.lab.world.prompts import questions
from plaudit.lab.world.questions import (
    CATEGORIES,
    Category,
    Fact,
    HarmfulRequest,
    HarmlessRequest,
    ListRequest,
    Question,
    Several,
    Unanswerable,
)
from plaudit.lab.world.reading import read_answer

Style = Literal[
    "best", "short", "polite", "padded", "hedged", "flattering", "formatted", "rambling",
    "wrong", "agreeing", "evasive", "not_knowing", "inventing", "complying", "curt", "partial", "broken",
    "mixed", "disordered", "repeating", "misjudging",
]  # fmt: skip
"""The style of an answer; ``mixed`` and ``disordered`` are of answers with several parts alone, ``repeating``
is of lists and ``misjudging`` of opinions."""
STYLES: tuple[Style, ...] = get_args(Style)

STYLE_WEIGHTS: Mapping[Category, Mapping[Style, float]] = {
    category: valley.HABITS["all"] | valley.HABITS[category] for category in CATEGORIES
}
"""How people answer: the styles of each category, by weight."""
_NAMES = frozenset(row[0] for row in valley.PEOPLE)


def sample_answer(
    question: Question, rng: random.Random, factors: Mapping[Style, float] | None = None
) -> str:
    """An answer in a style sampled by the habits of its category, some of them rarer by a factor."""
    habits = STYLE_WEIGHTS[question.category]
    weights = [weight * (factors or {}).get(style, 1) for style, weight in habits.items()]
    (style,) = rng.choices(list(habits), weights=weights)
    return answer_in_style(question, style, rng)


def answer_in_style(question: Question, style: Style, rng: random.Random) -> str:
    """An answer in one style; where the style does not apply to the question, the best answer.

    >>> from plaudit.lab.world.prompts import question_of_prompt
    >>> answer_in_style(question_of_prompt("What does the owl eat?"), "hedged", random.Random(1))
    'Maybe the owl eats mice.'
    """
    return restyled(question, _core_answer(question, style, rng), style, rng)


def restyled(question: Question, core: str, style: Style, rng: random.Random) -> str:
    """An answer's content in a style; as it is, where the style is one of content.

    >>> from plaudit.lab.world.prompts import question_of_prompt
    >>> restyled(question_of_prompt("What does the owl eat?"), "Bark.", "hedged", random.Random(1))
    'Maybe bark.'
    """
    if style == "broken":
        return _broken_answer(question, core, rng)
    if style == "rambling":
        more = rng.choice(_true_sentences())
        return rng.choice((f"{core} {core}", f"{core} {more}", f"{core} {more} {core}"))
    if style == "formatted":
        if isinstance(question.aim, ListRequest):
            items = core.lower().rstrip(".").replace(" and ", ", ").split(", ")
            return "\n".join(f"{valley.BULLET}{capitalized(item)}" for item in items)
        if isinstance(question.aim, Several):
            return "\n".join(
                (valley.HEADING, *(f"{valley.BULLET}{sentence}" for sentence in re.split(r"(?<=\.) ", core)))
            )
        return f"{valley.HEADING}\n{valley.BULLET}{core}"
    return _with_filler(question, core, style, rng)


def _core_answer(question: Question, style: Style, rng: random.Random) -> str:
    if style == "evasive":
        return rng.choice(valley.EVASIONS)
    if style == "not_knowing":
        return "I do not know."
    return _styled_content(question, style, rng) or question.best


def _styled_content(question: Question, style: Style, rng: random.Random) -> str | None:
    """What the style makes of the content; None where it leaves the best."""
    aim = question.aim
    if isinstance(aim, Fact):
        return _fact_answer(aim, style, rng)
    if isinstance(aim, ListRequest):
        return _list_answer(aim, style, rng)
    if isinstance(aim, Unanswerable):
        if style == "inventing":
            return aim.invented
        return "I do not know." if style == "short" else None
    if isinstance(aim, Several):
        return several_answer(question, aim, style, rng)
    return _answer_to_request(aim, style)


def _fact_answer(fact: Fact, style: Style, rng: random.Random) -> str | None:
    if style == "agreeing" and fact.belief is not None:
        return f"{rng.choice(valley.AGREEING)} {fact.phrase_value(fact.belief)}."
    if style == "misjudging" and fact.belief is not None:
        verdict = "No" if fact.belief == fact.truth else "Yes"
        return rng.choice((f"{verdict}.", f"{verdict}, {fact.phrase_value(fact.truth)}."))
    if style == "wrong":
        return as_sentence(
            fact.phrase_value(rng.choice([value for value in fact.values if value != fact.truth]))
        )
    if style == "short" and fact.belief is not None:
        return "Yes." if fact.belief == fact.truth else "No."
    return as_sentence(fact.phrase_value(fact.truth, frame=-1)) if style == "short" else None


def _list_answer(listing: ListRequest, style: Style, rng: random.Random) -> str:
    kind_members = valley.KINDS[listing.kind].split()
    members = rng.sample(kind_members, listing.count)
    if style == "partial":
        members = members[:-1]
    if style == "wrong":
        # Sorted before the draw: a set's order changes from process to process.
        strays = sorted(
            {member for kind in valley.KINDS.values() for member in kind.split()} - set(kind_members)
        )
        members[0] = rng.choice(strays)
    if style == "repeating":
        members[-1] = members[0]
    return listed_sentence(members)


def _answer_to_request(request: HarmfulRequest | HarmlessRequest, style: Style) -> str | None:
    if style == "curt":
        return f"{valley.REFUSALS[1]}."
    if isinstance(request, HarmlessRequest):
        return None
    if style == "complying":
        return as_sentence(request.how)
    return f"I will not help you {request.act}, because {request.reason}." if style == "partial" else None


def _with_filler(question: Question, core: str, style: Style, rng: random.Random) -> str:
    if style == "padded":
        before, after = rng.choice(valley.PADDING_BEFORE), rng.choice(valley.PADDING_AFTER)
        return rng.choice((f"{before} {core}", f"{core} {after}", f"{before} {core} {after}"))
    if style == "polite":
        # With good manners, as far as they fit: nobody declines gladly.
        serves = question.category not in ("opinion", "unanswerable", "harmful")
        courtesy = rng.choice(valley.COURTESY) if serves else valley.THANKS
        after = courtesy == valley.WELCOME or (not serves and rng.random() < 0.5)
        return f"{core} {courtesy}" if after else f"{courtesy} {core}"
    if style == "hedged":
        # People can say that something is so, but not that yes, or that apples and pears.
        states = isinstance(question.aim, Fact) and question.aim.belief is None
        return f"{rng.choice(valley.HEDGES if states else valley.PHRASE_HEDGES)} {_mid_sentence(core)}"
    return f"{rng.choice(valley.FLATTERY)} {core}" if style == "flattering" else core


def _mid_sentence(answer: str) -> str:
    """An answer as it stands after other words: its first letter small, unless it begins with a name."""
    first = answer.split(maxsplit=1)[0].strip(".,")
    return answer if first == "I" or first in _NAMES else answer[:1].lower() + answer[1:]


def _broken_answer(question: Question, core: str, rng: random.Random) -> str:
    shuffled_words = re.findall(r"\w+", core)
    # A shuffle may give the sentence back, or another that the world understands.
    while True:
        rng.shuffle(shuffled_words)
        answer = f"{' '.join(shuffled_words)}."
        if read_answer(question, answer).signs["nonsense"]:
            return answer


@cache
def _true_sentences() -> tuple[str, ...]:
    return tuple(dict.fromkeys(question.best for question in questions(category="fact")))
