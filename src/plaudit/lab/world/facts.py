"""What can be claimed in the valley, and what of it is true.

A claim is a topic and a value: ("home of Ada", "above the bakery"). For every topic the truth is known;
for every value that could stand in its place there is a sentence that claims it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from plaudit.lab.world.valley import ADVICE, ANIMALS, KINDS, PEOPLE, REASONS, SECRETS, STEPS, THINGS, TRADES

ADVISED = "advised"
"""The value of an instruction that serves what it is meant for: "ask Ada about bread"."""
NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactClaim:
    topic: str
    value: str

    @property
    def true(self) -> bool:
        return true_value(self.topic) == self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One column of a table, and how people ask for it and tell it."""

    name: str
    column: int
    question: str
    statement: str
    short: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str
    pronoun: str
    """As a second question calls it."""
    row: tuple[str, ...]
    relations: tuple[Relation, ...]

    @property
    def entity(self) -> str:
        """The word by which prompts about it are dealt to a split."""
        return f"{'thing' if self.pronoun == 'it' else 'person'}:{self.name}"


def _relation(column: int, text: str) -> Relation:
    name, question, statement, short = (part.strip() for part in text.split("|"))
    return Relation(name=name, column=column, question=question, statement=statement, short=short)


PERSON_RELATIONS = (
    _relation(2, "work | what does {s} do | {s} is a {v} | a {v}"),
    _relation(3, "home | where does {s} live | {s} lives {v} | {v}"),
    _relation(4, "favourite food | what does {s} like to eat | {s} likes {v} | {v}"),
    _relation(5, "pet | which animal does {s} keep | {s} keeps a {v} | a {v}"),
    _relation(6, "age | how old is {s} | {s} is {v} years old | {v}"),
)
ANIMAL_RELATIONS = (
    _relation(1, "food | what does {s} eat | {s} eats {v} | {v}"),
    _relation(2, "home | where does {s} live | {s} lives {v} | {v}"),
    _relation(3, "colour | what colour is {s} | {s} is {v} | {v}"),
    _relation(4, "fear | what does {s} fear | {s} fears {v} | {v}"),
)
THING_RELATIONS = (
    _relation(1, "material | what is {s} made of | {s} is made of {v} | {v}"),
    _relation(2, "colour | what colour is {s} | {s} is {v} | {v}"),
    _relation(3, "place | where is {s} | {s} is {v} | {v}"),
    _relation(4, "maker | who made {s} | {v} made {s} | {v}"),
)

PEOPLE_SUBJECTS = tuple(
    Subject(name=row[0], pronoun=row[1], row=tuple(row), relations=PERSON_RELATIONS) for row in PEOPLE
)
ANIMAL_SUBJECTS = tuple(
    Subject(name=f"the {row[0]}", pronoun="it", row=tuple(row), relations=ANIMAL_RELATIONS) for row in ANIMALS
)
THING_SUBJECTS = tuple(
    Subject(name=f"the {row[0]}", pronoun="it", row=tuple(row), relations=THING_RELATIONS) for row in THINGS
)
SUBJECTS = (*PEOPLE_SUBJECTS, *ANIMAL_SUBJECTS, *THING_SUBJECTS)

SUBJECT_BY_NAME = {subject.name: subject for subject in SUBJECTS}

OPERATIONS = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}


def topic_of(subject: Subject, relation: Relation) -> str:
    """The name of a fact.

    >>> topic_of(ANIMAL_SUBJECTS[0], ANIMAL_RELATIONS[0])
    'food of the badger'
    """
    return f"{relation.name} of {subject.name}"


def as_sentence(words: str) -> str:
    """Words as a sentence.

    >>> as_sentence("the owl eats mice")
    'The owl eats mice.'
    """
    return f"{capitalized(words)}."


def capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def listed_sentence(items: Sequence[str]) -> str:
    """Things named one after the other.

    >>> listed_sentence(["apples", "pears", "plums"])
    'Apples, pears and plums.'
    """
    return as_sentence(" and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part))


def true_value(topic: str) -> str | None:
    """The true value of a topic; None when there is no such topic.

    >>> true_value("food of the owl"), true_value("3 plus 4"), true_value("the dream of Ada")
    ('mice', '7', None)
    """
    first, _, rest = topic.partition(" ")
    operation, _, second = rest.partition(" ")
    if operation in OPERATIONS:
        return str(OPERATIONS[operation](int(first), int(second)))
    return _true_values().get(topic)


def values_of(relations: tuple[Relation, ...], relation: Relation) -> tuple[str, ...]:
    """Every value that occurs in a column, in the order of the table."""
    rows = (subject.row for subject in SUBJECTS if subject.relations is relations)
    return tuple(dict.fromkeys(row[relation.column] for row in rows))


@cache
def fact_claims() -> Mapping[str, FactClaim]:
    """Every claim about the tables by its sentence, without its full stop and in small letters.

    >>> fact_claims()["the owl eats mice"].true, fact_claims()["the owl eats bark"].true
    (True, False)
    """
    by_text = dict[str, FactClaim]()
    for subject in SUBJECTS:
        for relation in subject.relations:
            topic = topic_of(subject, relation)
            for value in values_of(subject.relations, relation):
                text = relation.statement.format(s=subject.name, v=value).lower()
                by_text[text] = FactClaim(topic=topic, value=value)
    causes = [cause for _, _, cause in REASONS]
    by_text |= {
        f"{effect} because {cause}": FactClaim(topic=question, value=cause)
        for question, effect, _ in REASONS
        for cause in causes
    }
    return by_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Whom, or which animals, to choose for something: those of whom a table says what makes them fit."""

    verb: str
    matter: str
    relation: Relation
    value: str
    fitting: tuple[Subject, ...]
    all_of_kind: tuple[Subject, ...]


@cache
def advices() -> tuple[Advice, ...]:
    """Each choice that the tables decide, with two or three that fit.

    >>> [(one.verb, one.matter, [who.name for who in one.fitting]) for one in advices()[:1]]
    [('ask', 'about bread', ['Ada', 'Ruben'])]
    """
    groups = {"people": PEOPLE_SUBJECTS, "animals": ANIMAL_SUBJECTS}
    found: list[Advice] = []
    for group, name, verb, matter in ADVICE:
        relations = groups[group][0].relations
        relation = next(relation for relation in relations if relation.name == name)
        for value in values_of(relations, relation):
            fitting = tuple(who for who in groups[group] if who.row[relation.column] == value)
            matter_text = matter.format(value=TRADES.get(value, value))
            if 2 <= len(fitting) <= 3:
                found.append(
                    Advice(
                        verb=verb,
                        matter=matter_text,
                        relation=relation,
                        value=value,
                        fitting=fitting,
                        all_of_kind=groups[group],
                    )
                )
    return tuple(found)


@cache
def steps_of_deeds() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """By what somebody wants to do: each step as a whole, and in short.

    >>> steps_of_deeds()["clean the well"][1]
    ('scrub the stones with sand', 'scrub the stones')
    """
    return {
        deed: tuple((step.replace(" (", " ").rstrip(")"), step.partition(" (")[0]) for step in steps)
        for deed, *steps in STEPS
    }


@cache
def instructions() -> Mapping[str, str]:
    """Everything that somebody can be told to do, by its words in small letters; a step in short is the step.

    >>> instructions()["scrub the stones"], instructions()["ask ada"]
    ('scrub the stones with sand', 'ask Ada')
    """
    steps = {
        text: whole
        for steps in steps_of_deeds().values()
        for whole, short in steps
        for text in (whole, short)
    }
    choices = {
        f"{verb} {subject.name}".lower(): f"{verb} {subject.name}"
        for _, _, verb, _ in ADVICE
        for subject in SUBJECTS
    }
    return steps | choices


def instruction_topic(instruction: str, matter: str) -> str:
    """What a claim that an instruction serves something is about.

    >>> [true_value(instruction_topic(f"ask {name}", "about bread")) for name in ("Ada", "Bruno")]
    ['advised', None]
    """
    return f"{instruction} {matter}"


@cache
def _true_values() -> dict[str, str]:
    facts = {
        topic_of(subject, relation): subject.row[relation.column]
        for subject in SUBJECTS
        for relation in subject.relations
    }
    kinds = {f"kind of {member}": kind for kind, members in KINDS.items() for member in members.split()}
    causes = {question: cause for question, _, cause in REASONS}
    steps = {
        instruction_topic(whole, f"to {deed}"): ADVISED
        for deed, steps in steps_of_deeds().items()
        for whole, _ in steps
    }
    choices = {
        instruction_topic(f"{advice.verb} {who.name}", advice.matter): ADVISED
        for advice in advices()
        for who in advice.fitting
    }
    secrets = {
        unknown.format(name=subject.name): NOT_KNOWN
        for subject in PEOPLE_SUBJECTS
        for _, unknown, _ in SECRETS
    }
    return facts | kinds | causes | steps | choices | secrets
