"""Questions whose best answer has several parts: to describe, compare, recommend, and help step by step.

They stand beside the world's other questions and are asked for by the name of their category alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from plaudit.data.records import assistant_turn, user_turn
from plaudit.lab.world.facts import (
    ADVISED,
    ANIMAL_SUBJECTS,
    NOT_KNOWN,
    PEOPLE_SUBJECTS,
    SUBJECTS,
    THING_SUBJECTS,
    Advice,
    FactClaim,
    Relation,
    Subject,
    advices,
    instruction_topic,
    steps_of_deeds,
    topic_of,
)
from plaudit.lab.world.parts import facts_text, short_steps_text, steps_text
from plaudit.lab.world.questions import Question, Several, Unanswerable
from plaudit.lab.world.valley import HARMS, SECRETS

IN_SHORT = "And once more in short?"
"""The second turn that asks for the steps in short."""
_COUNTS = {2: "two", 3: "three"}


def longer_questions(split_by_entity: Mapping[str, str]) -> Iterator[Question]:
    """All of them, in a fixed order; only what is of one split is compared."""
    yield from _describe_questions()
    yield from _compare_questions(split_by_entity)
    yield from _recommend_questions()
    yield from _steps_questions()


def text_of_parts(question: Question, claims: Sequence[FactClaim]) -> str:
    """Claims as an answer to a question says them."""
    aim = question.aim
    assert isinstance(aim, Several), question.category
    if question.category != "steps":
        return facts_text(claims, aim.matter)
    if question.messages[-1].content == IN_SHORT:
        return short_steps_text(claims, aim.matter)
    return steps_text(claims, aim.matter, begins=len(question.messages) == 1)


def _all_claims(subject: Subject, relations: Sequence[Relation] | None = None) -> tuple[FactClaim, ...]:
    return tuple(
        FactClaim(topic=topic_of(subject, relation), value=subject.row[relation.column])
        for relation in relations or subject.relations
    )


def _describe_questions() -> Iterator[Question]:
    for subject in SUBJECTS:
        aim = Several(parts=_all_claims(subject), subjects=(subject.name,))
        for text in (f"Tell me about {subject.name}.", f"What can you tell me about {subject.name}?"):
            yield Question(
                category="describe",
                messages=user_turn(text),
                entity=subject.entity,
                aim=aim,
                best=facts_text(aim.parts),
            )
    yield from _secret_questions()


def _secret_questions() -> Iterator[Question]:
    for subject in PEOPLE_SUBJECTS:
        for _, unknown, invented in SECRETS:
            secret = Unanswerable(
                unknown=unknown.format(name=subject.name), invented=invented.format(name=subject.name)
            )
            parts = (*_all_claims(subject), FactClaim(topic=secret.unknown, value=NOT_KNOWN))
            yield Question(
                category="describe",
                messages=user_turn(
                    f"Tell me about {subject.name} and say {unknown.format(name=subject.pronoun)}."
                ),
                entity=subject.entity,
                aim=Several(parts=parts, subjects=(subject.name,), secret=secret),
                best=facts_text(parts),
            )


def _compare_questions(split_by_entity: Mapping[str, str]) -> Iterator[Question]:
    for pair in _pairs(split_by_entity):
        # A seed for each pair: what is compared does not hang on the pairs before it.
        rng = random.Random(f"compared {pair[0].name} {pair[1].name}")
        first, second = rng.sample(pair, 2)
        named = rng.sample(first.relations, 2)
        both = f"Compare {first.name} and {second.name}"
        by_names = f"{both} by {named[0].name} and {named[1].name}."
        for text, relations in ((f"{both}.", first.relations), (by_names, named)):
            sides = zip(_all_claims(first, relations), _all_claims(second, relations), strict=True)
            parts = tuple(claim for side in sides for claim in side)
            yield Question(
                category="compare",
                messages=user_turn(text),
                entity=first.entity,
                aim=Several(parts=parts, order="pairs", subjects=(first.name, second.name)),
                best=facts_text(parts),
            )


def _pairs(split_by_entity: Mapping[str, str]) -> Iterator[tuple[Subject, Subject]]:
    for group in (PEOPLE_SUBJECTS, ANIMAL_SUBJECTS, THING_SUBJECTS):
        yield from (
            (first, second)
            for first, second in combinations(group, 2)
            if split_by_entity[first.entity] == split_by_entity[second.entity]
        )


def _recommend_questions() -> Iterator[Question]:
    for advice in advices():
        parts = tuple(claim for subject in advice.fitting for claim in choice_claims(advice, subject))
        group = "animals" if advice.fitting[0].pronoun == "it" else "people"
        choice = f"{_COUNTS[len(advice.fitting)]} {group}"
        for text in (
            f"Which {choice} should I {advice.verb} {advice.matter}, and why?",
            f"Tell me which {choice} I should {advice.verb} {advice.matter}, and why.",
        ):
            yield Question(
                category="recommend",
                messages=user_turn(text),
                entity=f"advice:{advice.verb} {advice.matter}",
                aim=Several(parts=parts, matter=advice.matter),
                best=facts_text(parts, advice.matter),
            )


def choice_claims(advice: Advice, subject: Subject) -> tuple[FactClaim, FactClaim]:
    """That a subject is to be chosen, and the reason: both are true of those that fit alone."""
    return (
        FactClaim(topic=instruction_topic(f"{advice.verb} {subject.name}", advice.matter), value=ADVISED),
        FactClaim(topic=topic_of(subject, advice.relation), value=advice.value),
    )


def _steps_questions() -> Iterator[Question]:
    """How something is done; then what comes after one of its steps, or all of it in short."""
    acts = {offer: act for act, _, _, offer in HARMS}
    for deed, steps in steps_of_deeds().items():
        matter = f"to {deed}"
        parts = tuple(FactClaim(topic=instruction_topic(whole, matter), value=ADVISED) for whole, _ in steps)
        entity = f"deed:{acts[deed]}" if deed in acts else f"craft:{deed}"
        opening = user_turn(f"How do I {deed}, step by step?")
        whole_text = steps_text(parts, matter, begins=True)
        aim = Several(parts=parts, order="sequence", matter=matter)
        yield Question(category="steps", messages=opening, entity=entity, aim=aim, best=whole_text)
        talk = (*opening, *assistant_turn(whole_text))
        for place, (_, short) in enumerate(steps[:-2], start=1):
            rest = Several(parts=parts[place:], order="sequence", matter=matter)
            yield Question(
                category="steps",
                messages=(*talk, *user_turn(f"And what comes after I {short}?")),
                entity=entity,
                aim=rest,
                best=steps_text(rest.parts, matter, begins=False),
            )
        yield Question(
            category="steps",
            messages=(*talk, *user_turn(IN_SHORT)),
            entity=entity,
            aim=aim,
            best=short_steps_text(parts, matter),
        )
