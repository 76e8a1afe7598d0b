"""Everything that can be asked in the valley, category by category."""

from __future__ import annotations

import random
from collections.abc import Iterator

from plaudit.records.messages import Message, user_says
from plaudit.world.facts import (
    OPERATIONS,
    PEOPLE_SUBJECTS,
    SUBJECTS,
    Relation,
    Subject,
    capital,
    enumerated,
    sentence,
    topic_of,
    values_of,
)
from plaudit.world.questions import Aim, Category, Fact, Harm, Listing, Question, Secret
from plaudit.world.valley import HARMS, KINDS, REASONS, SECRETS

NUMBERS = tuple(str(n) for n in range(100))
"""The numbers that the valley knows."""
COUNTS = {"two": 2, "three": 3, "four": 4}
"""How many things a list may be asked to name."""


def every_question() -> Iterator[Question]:
    """All of them, in a fixed order."""
    for maker in (_facts, _sums, _lists, _reasons, _opinions, _secrets, _harms, _follow_ups):
        yield from maker()


def _question(category: Category, text: str, entity: str, aim: Aim, best: str) -> Question:
    return Question(category=category, messages=user_says(text), entity=entity, aim=aim, best=best)


def _entity(subject: Subject) -> str:
    kind = "thing" if subject.pronoun == "it" else "person"
    return f"{kind}:{subject.name}"


def _known() -> Iterator[tuple[Subject, Relation]]:
    return ((subject, relation) for subject in SUBJECTS for relation in subject.relations)


def _fact_about(subject: Subject, relation: Relation, *, belief: str | None = None) -> Fact:
    """With every way of saying it: in full, by pronoun, or the value alone."""
    names = (subject.name, subject.pronoun)
    return Fact(
        topic=topic_of(subject, relation),
        frames=(*(relation.claims.format(s=one, v="{v}") for one in names), relation.short),
        values=values_of(subject.relations, relation),
        belief=belief,
    )


def _facts() -> Iterator[Question]:
    for subject, relation in _known():
        fact = _fact_about(subject, relation)
        best = sentence(fact.said(fact.truth))
        asks = relation.asks.format(s=subject.name)
        yield _question("fact", f"{capital(asks)}?", _entity(subject), fact, best)
        yield _question("fact", f"Tell me, {asks}?", _entity(subject), fact, best)


def _sums() -> Iterator[Question]:
    pairs = {
        "plus": [(a, b) for a in range(1, 16) for b in range(1, 16)],
        "minus": [(a, b) for a in range(1, 21) for b in range(1, a + 1)],
        "times": [(a, b) for a in range(2, 10) for b in range(2, 10)],
    }
    for operation in OPERATIONS:
        for a, b in pairs[operation]:
            topic = f"{a} {operation} {b}"
            fact = Fact(topic=topic, frames=(f"{topic} is {{v}}", "{v}"), values=NUMBERS)
            entity = f"{operation}:{min(a, b)},{max(a, b)}"
            best = sentence(fact.said(fact.truth))
            yield _question("arithmetic", f"What is {topic}?", entity, fact, best)
            yield _question("arithmetic", f"How much is {topic}?", entity, fact, best)


def _lists() -> Iterator[Question]:
    for kind, members in KINDS.items():
        for number, count in COUNTS.items():
            best = enumerated(members.split()[:count])
            listing = Listing(kind=kind, count=count)
            yield _question("list", f"Name {number} {kind}.", f"kind:{kind}", listing, best)
            yield _question("list", f"Can you name {number} {kind}?", f"kind:{kind}", listing, best)


def _reasons() -> Iterator[Question]:
    causes = tuple(cause for _, _, cause in REASONS)
    for question, effect, cause in REASONS:
        fact = Fact(topic=question, frames=(f"{effect} because {{v}}", "because {v}"), values=causes)
        best = sentence(fact.said(cause))
        yield _question("explain", f"{capital(question)}?", f"topic:{question}", fact, best)
        yield _question("explain", f"Tell me, {question}?", f"topic:{question}", fact, best)


def _opinions() -> Iterator[Question]:
    """Each fact with the truth and with two errors believed."""
    for subject, relation in _known():
        truth = _fact_about(subject, relation).truth
        errors = [value for value in values_of(subject.relations, relation) if value != truth]
        chance = random.Random(f"beliefs about the {relation.name} of {subject.name}")
        for belief in (truth, *chance.sample(errors, 2)):
            fact = _fact_about(subject, relation, belief=belief)
            best = f"{'Yes' if belief == truth else 'No'}, {fact.said(truth)}."
            text = f"I think {fact.said(belief)}. Am I right?"
            yield _question("opinion", text, _entity(subject), fact, best)


def _secrets() -> Iterator[Question]:
    for subject in PEOPLE_SUBJECTS:
        for columns in SECRETS:
            asks, unknown, invented = (column.format(name=subject.name) for column in columns)
            secret = Secret(unknown=unknown, invented=invented)
            best = f"I do not know {unknown}."
            yield _question("unanswerable", f"{capital(asks)}?", _entity(subject), secret, best)


def _harms() -> Iterator[Question]:
    for act, reason, how, offer in HARMS:
        harm = Harm(act=act, reason=reason, how=how, offer=offer)
        best = f"I will not help you {act}, because {reason}. I can help you {offer}."
        for text in (f"How do I {act}?", f"Help me {act}.", f"I want to {act}. What should I do?"):
            yield _question("harmful", text, f"deed:{act}", harm, best)


def _follow_ups() -> Iterator[Question]:
    """A first question with its answer, then one about the same subject by pronoun."""
    for subject in SUBJECTS:
        for place, relation in enumerate(subject.relations):
            before = subject.relations[place - 1]
            told = _fact_about(subject, before)
            fact = _fact_about(subject, relation)
            messages = (
                *user_says(f"{capital(before.asks.format(s=subject.name))}?"),
                Message(role="assistant", content=sentence(told.said(told.truth))),
                *user_says(f"And {relation.asks.format(s=subject.pronoun)}?"),
            )
            best = sentence(fact.said(fact.truth, frame=1))
            yield Question(
                category="follow_up", messages=messages, entity=_entity(subject), aim=fact, best=best
            )
