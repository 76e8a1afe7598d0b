"""Questions with several things to say: how their parts are told, and answers to them in every style."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from plaudit.data.records import assistant_turn, user_turn
from plaudit.lab.world import facts
from plaudit.lab.world.facts import FactClaim
from plaudit.lab.world.questions import Question, Several, Unanswerable, short_question
from plaudit.lab.world.valley import FIRST, HARMS, LAST, SECRETS, THEN, UNKNOWN

_NAME = re.compile(rf"\b({'|'.join(facts.SUBJECT_BY_NAME)})\b")


def relation_of(claim: FactClaim) -> tuple[facts.Subject, facts.Relation] | None:
    """Of whom a claim is, and which column of the tables; None where it is of no table.

    >>> subject, relation = relation_of(FactClaim(topic="food of the owl", value="bark"))
    >>> subject.name, relation.name
    ('the owl', 'food')
    """
    name, _, of = claim.topic.partition(" of ")
    subject = facts.SUBJECT_BY_NAME.get(of)
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
    current: facts.Subject | None = None
    for claim in claims:
        words, subject = _phrase(claim, current, matter)
        joint = None if before is None else _joint(before, claim)
        if joint is None:
            sentences.append(words)
        else:
            sentences[-1] += f"{joint}{words}"
        before, current = claim, subject
    return " ".join(map(facts.as_sentence, sentences))


def merged_text(claims: Sequence[FactClaim]) -> str:
    """The same of one subject in a single sentence; what is not known keeps one of its own.

    >>> owl = {"food of the owl": "mice", "colour of the owl": "white"}
    >>> merged_text([FactClaim(topic=topic, value=value) for topic, value in owl.items()])
    'The owl eats mice and is white.'
    """
    known = [claim for claim in claims if relation_of(claim) is not None]
    phrases: list[str] = []
    current: facts.Subject | None = None
    for claim in known:
        words, current = _phrase(claim, current, "")
        phrases.append(
            words if not phrases else words.removeprefix(f"{current.pronoun} ") if current else words
        )
    rest = [facts.as_sentence(_phrase(claim, current, "")[0]) for claim in claims if claim not in known]
    return " ".join((facts.listed_sentence(phrases), *rest))


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
    short = {whole: text for text, whole in facts.instructions().items() if len(text) < len(whole)}
    words = [_instruction(claim, matter) for claim in steps]
    return facts.as_sentence(", ".join(short.get(step, step) for step in words))


def _instruction(claim: FactClaim, matter: str) -> str:
    return claim.topic.removesuffix(f" {matter}")


def _phrase(claim: FactClaim, current: facts.Subject | None, matter: str) -> tuple[str, facts.Subject | None]:
    """A claim's words without a full stop, and about whom they are; whom was spoken of is a pronoun."""
    table = relation_of(claim)
    if table is not None:
        subject, relation = table
        name = subject.pronoun if subject is current else subject.name
        return relation.statement.format(s=name, v=claim.value), subject
    if claim.value == facts.ADVISED:
        words = _instruction(claim, matter)
        named = _NAME.search(words)
        return words, None if named is None else facts.SUBJECT_BY_NAME[named[1]]
    if claim.value == facts.NOT_KNOWN:
        return f"{UNKNOWN} {_with_pronoun(claim.topic, current)}", current
    return _with_pronoun(claim.value, current), current


def _with_pronoun(words: str, current: facts.Subject | None) -> str:
    return words if current is None else words.replace(current.name, current.pronoun)


def _joint(before: FactClaim, claim: FactClaim) -> str | None:
    """What stands between two claims of one sentence; None where the second has a sentence of its own."""
    table, table_before = relation_of(claim), relation_of(before)
    if table is None:
        return None
    if before.value == facts.ADVISED:
        return ", because " if before.topic.find(table[0].name) >= 0 else None
    same = table_before is not None and table_before[1] is table[1] and table_before[0] is not table[0]
    return ", and " if same else None


IN_SHORT = "And once more in short?"
"""The second turn that asks for the steps in short."""
_COUNTS = {2: "two", 3: "three"}


def longer_questions(split_by_entity: Mapping[str, str]) -> Iterator[Question]:
    """All of them, in a fixed order; only what is of one split is compared."""
    for subject in facts.SUBJECTS:
        aim = Several(parts=_all_claims(subject), subjects=(subject.name,))
        for text in (f"Tell me about {subject.name}.", f"What can you tell me about {subject.name}?"):
            yield short_question("describe", text, subject.entity, aim, facts_text(aim.parts))
    yield from _secret_questions()
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


def _all_claims(
    subject: facts.Subject, relations: Sequence[facts.Relation] | None = None
) -> tuple[FactClaim, ...]:
    return tuple(
        FactClaim(topic=facts.topic_of(subject, relation), value=subject.row[relation.column])
        for relation in relations or subject.relations
    )


def _secret_questions() -> Iterator[Question]:
    for subject in facts.PEOPLE_SUBJECTS:
        for _, unknown, invented in SECRETS:
            secret = Unanswerable(
                unknown=unknown.format(name=subject.name), invented=invented.format(name=subject.name)
            )
            parts = (*_all_claims(subject), FactClaim(topic=secret.unknown, value=facts.NOT_KNOWN))
            text = f"Tell me about {subject.name} and say {unknown.format(name=subject.pronoun)}."
            aim = Several(parts=parts, subjects=(subject.name,), secret=secret)
            yield short_question("describe", text, subject.entity, aim, facts_text(parts))


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
            aim = Several(parts=parts, order="pairs", subjects=(first.name, second.name))
            yield short_question("compare", text, first.entity, aim, facts_text(parts))


def _pairs(split_by_entity: Mapping[str, str]) -> Iterator[tuple[facts.Subject, facts.Subject]]:
    for group in (facts.PEOPLE_SUBJECTS, facts.ANIMAL_SUBJECTS, facts.THING_SUBJECTS):
        yield from (
            (first, second)
            for first, second in combinations(group, 2)
            if split_by_entity[first.entity] == split_by_entity[second.entity]
        )


def _recommend_questions() -> Iterator[Question]:
    for advice in facts.advices():
        parts = tuple(claim for subject in advice.fitting for claim in choice_claims(advice, subject))
        group = "animals" if advice.fitting[0].pronoun == "it" else "people"
        choice = f"{_COUNTS[len(advice.fitting)]} {group}"
        for text in (
            f"Which {choice} should I {advice.verb} {advice.matter}, and why?",
            f"Tell me which {choice} I should {advice.verb} {advice.matter}, and why.",
        ):
            aim = Several(parts=parts, matter=advice.matter)
            entity = f"advice:{advice.verb} {advice.matter}"
            yield short_question("recommend", text, entity, aim, facts_text(parts, advice.matter))


def choice_claims(advice: facts.Advice, subject: facts.Subject) -> tuple[FactClaim, FactClaim]:
    """That a subject is to be chosen, and the reason: both are true of those that fit alone."""
    return (
        FactClaim(
            topic=facts.instruction_topic(f"{advice.verb} {subject.name}", advice.matter), value=facts.ADVISED
        ),
        FactClaim(topic=facts.topic_of(subject, advice.relation), value=advice.value),
    )


def _steps_questions() -> Iterator[Question]:
    """How something is done; then what comes after one of its steps, or all of it in short."""
    acts = {offer: act for act, _, _, offer in HARMS}
    for deed, steps in facts.steps_of_deeds().items():
        matter = f"to {deed}"
        parts = tuple(
            FactClaim(topic=facts.instruction_topic(whole, matter), value=facts.ADVISED) for whole, _ in steps
        )
        entity = f"deed:{acts[deed]}" if deed in acts else f"craft:{deed}"
        whole_text = steps_text(parts, matter, begins=True)
        aim = Several(parts=parts, order="sequence", matter=matter)
        first = short_question("steps", f"How do I {deed}, step by step?", entity, aim, whole_text)
        yield first
        talk = (*first.messages, *assistant_turn(whole_text))
        for place, (_, short) in enumerate(steps[:-2], start=1):
            rest = replace(aim, parts=parts[place:])
            messages = (*talk, *user_turn(f"And what comes after I {short}?"))
            best = steps_text(rest.parts, matter, begins=False)
            yield replace(first, messages=messages, aim=rest, best=best)
        messages = (*talk, *user_turn(IN_SHORT))
        yield replace(first, messages=messages, best=short_steps_text(parts, matter))


Claims = Sequence[FactClaim]


def several_answer(question: Question, aim: Several, style: str, rng: random.Random) -> str:
    """The content of an answer in a style; the best answer where the style does not apply.

    >>> from plaudit.lab.world.prompts import question_of_prompt
    >>> owl = question_of_prompt("Tell me about the owl.")
    >>> several_answer(owl, owl.aim, "short", random.Random(0))
    'The owl eats mice, lives in the barn, is white and fears fire.'
    """
    if style == "short":
        if question.category == "describe":
            return merged_text(aim.parts)
        return short_steps_text(aim.parts, aim.matter) if question.category == "steps" else question.best
    if style == "complying":
        hows = [how for _, _, how, offer in HARMS if aim.matter == f"to {offer}"]
        return " ".join((question.best, *map(facts.as_sentence, hows)))
    changed = _CHANGES[style](question, aim, rng) if style in _CHANGES else aim.parts
    return question.best if tuple(changed) == aim.parts else text_of_parts(question, changed)


def _unit(question: Question) -> int:
    """How many parts stand or fall together: a choice and its reason, or the two sides of a comparison."""
    return 2 if question.category in ("recommend", "compare") else 1


def _partial(question: Question, aim: Several, rng: random.Random) -> Claims:
    unit = _unit(question)
    start = unit * rng.randrange(len(aim.parts) // unit)
    return (*aim.parts[:start], *aim.parts[start + unit :])


def _curt(question: Question, aim: Several, rng: random.Random) -> Claims:
    return aim.parts[::2] if question.category == "recommend" else aim.parts[: _unit(question)]


def _wrong(question: Question, aim: Several, rng: random.Random) -> Claims:
    parts = [*aim.parts]
    if question.category == "recommend":
        start = 2 * rng.randrange(len(parts) // 2)
        advice = next(advice for advice in facts.advices() if advice.matter == aim.matter)
        # Somebody whom the table does not have for it, with the reason that would be theirs.
        others = [who for who in advice.all_of_kind if who not in advice.fitting]
        parts[start : start + 2] = choice_claims(advice, rng.choice(others))
        return parts
    place = rng.choice([place for place, part in enumerate(parts) if part.value != facts.NOT_KNOWN])
    table = relation_of(parts[place])
    if table is None:
        steps = [steps for deed, steps in facts.steps_of_deeds().items() if aim.matter != f"to {deed}"]
        whole, _ = rng.choice(rng.choice(steps))
        parts[place] = FactClaim(topic=facts.instruction_topic(whole, aim.matter), value=facts.ADVISED)
    else:
        subject, relation = table
        values = facts.values_of(subject.relations, relation)
        wrong = rng.choice([value for value in values if value != parts[place].value])
        parts[place] = replace(parts[place], value=wrong)
    return parts


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
