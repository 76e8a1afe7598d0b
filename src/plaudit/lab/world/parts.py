"""Claims as a text: what a longer answer says, in plain sentences that go on about whom they named.

The same few rules phrase the best answer and the bad ones, which claim something else or in another order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plaudit.lab.world.facts import (
    ADVISED,
    NOT_KNOWN,
    SUBJECT_BY_NAME,
    FactClaim,
    Relation,
    Subject,
    as_sentence,
    instructions,
    listed_sentence,
)
from plaudit.lab.world.sayings import FIRST, LAST, THEN, UNKNOWN

_NAME = re.compile(rf"\b({'|'.join(SUBJECT_BY_NAME)})\b")


def relation_of(claim: FactClaim) -> tuple[Subject, Relation] | None:
    """Of whom a claim is, and which column of the tables; None where it is of no table.

    >>> subject, relation = relation_of(FactClaim(topic="food of the owl", value="bark"))
    >>> subject.name, relation.name
    ('the owl', 'food')
    """
    name, _, of = claim.topic.partition(" of ")
    subject = SUBJECT_BY_NAME.get(of)
    if subject is None:
        return None
    relation = next((relation for relation in subject.relations if relation.name == name), None)
    return None if relation is None else (subject, relation)


def facts_text(claims: Sequence[FactClaim], matter: str = "") -> str:
    """Sentences that make these claims; a choice has its reason, and what is said of two stands together.

    >>> facts_text([FactClaim(topic=f"food of the {kind}", value="mice") for kind in ("owl", "hawk")])
    'The owl eats mice, and the hawk eats mice.'
    """
    sentences: list[str] = []
    before: FactClaim | None = None
    current: Subject | None = None
    for claim in claims:
        words, subject = _phrase(claim, current, matter)
        joint = None if before is None else _joint(before, claim)
        if joint is None:
            sentences.append(words)
        else:
            sentences[-1] += f"{joint}{words}"
        before, current = claim, subject
    return " ".join(map(as_sentence, sentences))


def merged_text(claims: Sequence[FactClaim]) -> str:
    """The same of one subject in a single sentence; what is not known keeps one of its own.

    >>> owl = {"food of the owl": "mice", "colour of the owl": "white"}
    >>> merged_text([FactClaim(topic=topic, value=value) for topic, value in owl.items()])
    'The owl eats mice and is white.'
    """
    known = [claim for claim in claims if relation_of(claim) is not None]
    phrases: list[str] = []
    current: Subject | None = None
    for claim in known:
        words, current = _phrase(claim, current, "")
        phrases.append(
            words if not phrases else words.removeprefix(f"{current.pronoun} ") if current else words
        )
    rest = [as_sentence(_phrase(claim, current, "")[0]) for claim in claims if claim not in known]
    return " ".join((listed_sentence(phrases), *rest))


def steps_text(steps: Sequence[FactClaim], matter: str, *, begins: bool) -> str:
    """A sentence for each step, with its place in words; an answer that goes on has no first step.

    >>> steps = [FactClaim(topic=f"{step} to catch a fish", value="advised") for step in ("wait", "pull")]
    >>> steps_text(steps, "to catch a fish", begins=True), steps_text(steps, "to catch a fish", begins=False)
    ('First wait. Finally pull.', 'Then wait. Finally pull.')
    """
    words = [_instruction(claim, matter) for claim in steps]
    marks = [THEN] * len(words)
    if begins:
        marks[0] = FIRST
    if len(words) > 1:
        marks[-1] = LAST
    return " ".join(f"{mark} {step}." for mark, step in zip(marks, words, strict=True))


def short_steps_text(steps: Sequence[FactClaim], matter: str) -> str:
    """One sentence with what each step is in short.

    >>> short_steps_text([FactClaim(topic="scrub the stones with sand to clean the well", value="advised")],
    ...     "to clean the well")
    'Scrub the stones.'
    """
    short = {whole: text for text, whole in instructions().items() if len(text) < len(whole)}
    words = [_instruction(claim, matter) for claim in steps]
    return as_sentence(", ".join(short.get(step, step) for step in words))


def _instruction(claim: FactClaim, matter: str) -> str:
    return claim.topic.removesuffix(f" {matter}")


def _phrase(claim: FactClaim, current: Subject | None, matter: str) -> tuple[str, Subject | None]:
    """A claim's words without a full stop, and about whom they are; whom was spoken of is a pronoun."""
    table = relation_of(claim)
    if table is not None:
        subject, relation = table
        name = subject.pronoun if subject is current else subject.name
        return relation.statement.format(s=name, v=claim.value), subject
    if claim.value == ADVISED:
        words = _instruction(claim, matter)
        named = _NAME.search(words)
        return words, None if named is None else SUBJECT_BY_NAME[named[1]]
    if claim.value == NOT_KNOWN:
        return f"{UNKNOWN} {_with_pronoun(claim.topic, current)}", current
    return _with_pronoun(claim.value, current), current


def _with_pronoun(words: str, current: Subject | None) -> str:
    return words if current is None else words.replace(current.name, current.pronoun)


def _joint(before: FactClaim, claim: FactClaim) -> str | None:
    """What stands between two claims of one sentence; None where the second has a sentence of its own."""
    table, table_before = relation_of(claim), relation_of(before)
    if table is None:
        return None
    if before.value == ADVISED:
        return ", because " if before.topic.find(table[0].name) >= 0 else None
    same = table_before is not None and table_before[1] is table[1] and table_before[0] is not table[0]
    return ", and " if same else None
