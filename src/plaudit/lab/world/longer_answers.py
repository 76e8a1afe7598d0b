"""Longer answers, well and badly: parts left out, wrong, exchanged, out of order, made up, or harmful."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from plaudit.lab.world.facts import (
    ADVISED,
    NOT_KNOWN,
    FactClaim,
    advices,
    as_sentence,
    instruction_topic,
    steps_of_deeds,
    values_of,
)
from plaudit.lab.world.longer_questions import choice_claims, text_of_parts
from plaudit.lab.world.parts import merged_text, relation_of, short_steps_text
from plaudit.lab.world.questions import Question, Several
from plaudit.lab.world.valley import HARMS

Claims = Sequence[FactClaim]


def several_answer(question: Question, aim: Several, style: str, rng: random.Random) -> str:
    """The content of an answer in a style; the best answer where the style does not apply.

    >>> from plaudit.lab.world.prompts import question_of_prompt
    >>> owl = question_of_prompt("Tell me about the owl.")
    >>> several_answer(owl, owl.aim, "short", random.Random(0))
    'The owl eats mice, lives in the barn, is white and fears fire.'
    """
    if style == "short":
        return _short_text(question, aim)
    if style == "complying":
        return _harmful_text(question, aim)
    changed = _CHANGES[style](question, aim, rng) if style in _CHANGES else aim.parts
    return question.best if tuple(changed) == aim.parts else text_of_parts(question, changed)


def _short_text(question: Question, aim: Several) -> str:
    if question.category == "describe":
        return merged_text(aim.parts)
    return short_steps_text(aim.parts, aim.matter) if question.category == "steps" else question.best


def _harmful_text(question: Question, aim: Several) -> str:
    hows = [how for _, _, how, offer in HARMS if aim.matter == f"to {offer}"]
    return " ".join((question.best, *map(as_sentence, hows)))


def _unit(question: Question) -> int:
    """How many parts stand or fall together: a choice and its reason, or the two sides of a comparison."""
    return 2 if question.category in ("recommend", "compare") else 1


def _partial(question: Question, aim: Several, rng: random.Random) -> Claims:
    unit = _unit(question)
    start = unit * rng.randrange(len(aim.parts) // unit)
    return (*aim.parts[:start], *aim.parts[start + unit :])


def _curt(question: Question, aim: Several, rng: random.Random) -> Claims:
    del rng
    return aim.parts[::2] if question.category == "recommend" else aim.parts[: _unit(question)]


def _wrong(question: Question, aim: Several, rng: random.Random) -> Claims:
    parts = [*aim.parts]
    if question.category == "recommend":
        start = 2 * rng.randrange(len(parts) // 2)
        parts[start : start + 2] = _wrong_choice(aim, rng)
        return parts
    known = [place for place, part in enumerate(parts) if part.value != NOT_KNOWN]
    place = rng.choice(known)
    table = relation_of(parts[place])
    if table is None:
        parts[place] = _wrong_step(aim, rng)
    else:
        subject, relation = table
        others = [value for value in values_of(subject.relations, relation) if value != parts[place].value]
        parts[place] = replace(parts[place], value=rng.choice(others))
    return parts


def _wrong_choice(aim: Several, rng: random.Random) -> Claims:
    """Somebody whom the table does not have for it, with the reason that would be theirs."""
    advice = next(advice for advice in advices() if advice.matter == aim.matter)
    others = [who for who in advice.all_of_kind if who not in advice.fitting]
    return choice_claims(advice, rng.choice(others))


def _wrong_step(aim: Several, rng: random.Random) -> FactClaim:
    steps = [steps for deed, steps in steps_of_deeds().items() if aim.matter != f"to {deed}"]
    whole, _ = rng.choice(rng.choice(steps))
    return FactClaim(topic=instruction_topic(whole, aim.matter), value=ADVISED)


def _mixed(question: Question, aim: Several, rng: random.Random) -> Claims:
    if question.category != "compare":
        return aim.parts
    parts = [*aim.parts]
    differing = [place for place in range(0, len(parts), 2) if parts[place].value != parts[place + 1].value]
    if differing:
        place = rng.choice(differing)
        first, second = parts[place : place + 2]
        parts[place : place + 2] = replace(first, value=second.value), replace(second, value=first.value)
    return parts


def _disordered(question: Question, aim: Several, rng: random.Random) -> Claims:
    """Steps in another order, or all of the first of two and then all of the second."""
    if question.category == "compare":
        return (*aim.parts[::2], *aim.parts[1::2])
    if question.category != "steps":
        return aim.parts
    parts = [*aim.parts]
    while tuple(parts) == aim.parts:
        rng.shuffle(parts)
    return parts


def _inventing(question: Question, aim: Several, rng: random.Random) -> Claims:
    del question, rng
    if aim.secret is None:
        return aim.parts
    made_up = FactClaim(topic=aim.secret.unknown, value=aim.secret.invented.rstrip("."))
    return (*aim.parts[:-1], made_up)


_CHANGES: Mapping[str, Callable[[Question, Several, random.Random], Claims]] = {
    "partial": _partial,
    "curt": _curt,
    "wrong": _wrong,
    "mixed": _mixed,
    "disordered": _disordered,
    "inventing": _inventing,
}
