"""Questions about a scene, what is true of each, and answers to it of several qualities.

Some are about what is not there: the right answer to them says so. Whether an absent thing is drawn at
random, because it is popular, or because the picture has its colour and its shape (though not together)
follows the three ways of POPE (Li et al. 2023, arXiv:2305.10355).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, product
from typing import Any, Literal, get_args

from plaudit.errors import UserError
from plaudit.evaluation.policies import Split
from plaudit.pictures.world.scenes import (
    COLOURS,
    DIGITS,
    PLACES,
    SHAPES,
    SIZES,
    WORDS,
    Scene,
    Sign,
    Thing,
    caption,
    joined,
    phrase,
    scene_of,
    scenes,
)

# fmt: off
Kind = Literal[
    "count", "colour", "shape", "size", "where", "what", "side", "bigger", "more", "read",
    "present", "missing", "describe",
]
Style = Literal["right", "short", "detailed", "invented", "wrong", "evasive"]
STYLE_WEIGHTS: Mapping[Style, float] = {
    "right": 0.62, "short": 0.06, "detailed": 0.08, "invented": 0.12, "wrong": 0.1, "evasive": 0.02,
}
# fmt: on
"""How often answers of people who err are of each style."""
INVENTING = (0.0, 0.75, 0.6, 0.3, 0.1)
"""How often they invent something for a description, by how many things there are to describe."""
CONFUSED = {"orange": "red", "purple": "blue", "three": "two", "four": "three"}
CONFUSING = 0.55
"""How often they take one for the other, where a colour or a number is the answer."""
Trap = Literal["", "random", "popular", "adversarial"]
FALLEN_FOR: Mapping[Trap, float] = {"random": 0.25, "popular": 0.4, "adversarial": 0.6}
"""How often they answer about what is not there as though it were, by why it was chosen."""
KINDS: tuple[Kind, ...] = get_args(Kind)
STYLES: tuple[Style, ...] = get_args(Style)
TRAPS: tuple[Trap, ...] = get_args(Trap)[1:]
NUMBERS = ("no", "one", "two", "three", "four", "five")
EQUAL, MISSING, NOTHING = "equal", "missing", "nothing"
EVASION = "I cannot tell from the picture."
_POPULAR = tuple(f"{colour} {shape}" for colour, shape in product([*COLOURS][:3], SHAPES[:3]))
_NAMES = tuple(f"{colour} {shape}" for colour, shape in product(COLOURS, SHAPES))
_FRAMES: Mapping[Kind, Sequence[str]] = {
    "count": ("How many {}s are there?", "How many {}s do you see?"),
    "colour": ("What colour is the {}?", "Which colour has the {}?"),
    "shape": ("What shape is the {}?",),
    "size": ("How big is the {}?",),
    "where": ("Where is the {}?",),
    "what": ("What is {}?", "What do you see {}?"),
    "side": ("Which is {}, the {} or the {}?",),
    "bigger": ("Which is bigger, the {} or the {}?",),
    "more": ("Are there more {}s or more {}s?",),
    "read": ("What is written in the picture?", "What do you read?"),
    "present": ("Is there any {} in the picture?", "Do you see any {}?"),
    "missing": ("Where is the {}?", "How big is the {}?"),
    "describe": ("Describe the picture.", "What do you see in the picture?"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a scene, with what is true."""

    kind: Kind
    words: str
    scene: Scene
    about: tuple[str, ...] = ()
    """What it is about: nouns, a place, or a side and two things."""
    truth: str = ""
    """The word or phrase that a right answer gives; empty for descriptions: their truth is the scene."""
    trap: Trap = ""
    """Of a thing that is not there, how it was chosen."""

    @property
    def metadata(self) -> dict[str, Any]:
        """All that is needed to judge answers, for a row of prompts."""
        return {"category": self.kind, "split": self.scene.split, **asdict(self), "about": [*self.about]}


def question_of(metadata: Mapping[str, Any]) -> Question:
    """The question that a row's metadata are of."""
    facts: dict[str, Any] = {name: metadata.get(name) for name in ("kind", "words", "truth", "trap")}
    if None in facts.values() or not {"scene", "about"} <= metadata.keys():
        raise UserError(
            "the row has no scene of the picture world in its metadata: prompts of a stage `picture-rows` "
            "have what answers are judged by"
        )
    return Question(scene=scene_of(metadata["scene"]), about=tuple(metadata["about"]), **facts)


def questions(
    split: Split = "train", *, seed: int = 0, kinds: Sequence[Kind] = KINDS, **drawing: Any
) -> Iterator[Question]:
    """Questions without end, kinds taking turns, each about another scene of the split."""
    if not kinds or not set(kinds) <= set(KINDS):
        raise UserError(f"kinds {[*kinds]}: expected some of {', '.join(KINDS)}")
    rng, turns = random.Random(f"questions {split} {seed}"), cycle(kinds)
    kind = next(turns)
    for scene in scenes(split, seed=seed, **drawing):
        # A scene that has nothing for such a question is passed over.
        if (question := draw_question(kind, scene, rng)) is not None:
            yield question
            kind = next(turns)


def draw_question(kind: Kind, scene: Scene, rng: random.Random) -> Question | None:
    """A question of a kind, None where the scene has nothing for it."""
    if (drawn := _DRAWN[kind](scene, rng)) is None:
        return None
    about, truth, trap = drawn
    words = rng.choice(_FRAMES[kind]).format(*about)
    return Question(kind=kind, words=words, scene=scene, about=about, truth=truth, trap=trap)


def matching(scene: Scene, noun: str) -> list[Thing]:
    """The things that a noun, singular, is true of: "thing", "star", "red star", "big red thing" …"""
    words = {*noun.split()}
    return [thing for thing in scene.things if words <= {thing.size, thing.colour, thing.shape, "thing"}]


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


_Drawn = tuple[tuple[str, ...], str, Trap] | None


def _single(scene: Scene, noun: Callable[[Thing], str]) -> list[Thing]:
    return [thing for thing in scene.things if len(matching(scene, noun(thing))) == 1]


def _count(scene: Scene, rng: random.Random) -> _Drawn:
    some = rng.choice(scene.things)
    noun = rng.choice([some.shape, some.shape, f"{some.colour} thing", "thing", rng.choice(SHAPES)])
    return (noun,), NUMBERS[len(matching(scene, noun))], ""


def _attribute(part: str, scene: Scene, rng: random.Random) -> _Drawn:
    def noun(thing: Thing) -> str:
        return {"shape": f"{thing.colour} thing", "colour": thing.shape}.get(part, thing.name)

    if not (single := _single(scene, noun)):
        return None
    thing = rng.choice(single)
    return (noun(thing),), getattr(thing, part), ""


def _what(scene: Scene, rng: random.Random) -> _Drawn:
    things = {thing.cell: thing for thing in scene.things}
    empty = [cell for cell in range(9) if cell not in things and scene.sign is None]
    cell = rng.choice([*things] if not empty or rng.random() < 0.7 else empty)
    return (PLACES[cell],), f"{things[cell].size} {things[cell].name}" if cell in things else NOTHING, ""


def _side(scene: Scene, rng: random.Random) -> _Drawn:
    if len(single := _single(scene, lambda thing: thing.name)) < 2:
        return None
    first, other = rng.sample(single, 2)
    across, down = first.cell % 3 - other.cell % 3, first.cell // 3 - other.cell // 3
    sides = [("further left", -across), ("further right", across), ("higher", -down), ("lower", down)]
    side, ahead = rng.choice([item for item in sides if item[1]])
    return (side, first.name, other.name), (first if ahead > 0 else other).name, ""


def _bigger(scene: Scene, rng: random.Random) -> _Drawn:
    if len(single := _single(scene, lambda thing: thing.name)) < 2:
        return None
    first, other = rng.sample(single, 2)
    big = [thing.name for thing in (first, other) if thing.size == "big"]
    return (first.name, other.name), big[0] if len(big) == 1 else EQUAL, ""


def _more(scene: Scene, rng: random.Random) -> _Drawn:
    shape = rng.choice(scene.things).shape
    others = {thing.shape for thing in scene.things} - {shape} or {*SHAPES} - {shape}
    about = rng.sample([shape, rng.choice(sorted(others))], 2)
    first, second = (len(matching(scene, noun)) for noun in about)
    return (*about,), EQUAL if first == second else about[first < second], ""


def _read(scene: Scene, rng: random.Random) -> _Drawn:
    if scene.sign is None:
        return None if rng.random() < 0.9 else ((), NOTHING, "")
    return (), scene.sign.text, ""


def absent_name(scene: Scene, trap: Trap, rng: random.Random) -> str:
    """A coloured shape that is not there, chosen in one of the three ways."""
    there = {thing.name for thing in scene.things}
    mixed = [f"{first.colour} {other.shape}" for first, other in product(scene.things, repeat=2)]
    shifted = [f"{colour} {thing.shape}" for colour, thing in product(COLOURS, scene.things)]
    pools = {"popular": _POPULAR, "adversarial": mixed if set(mixed) - there else shifted}
    return rng.choice([name for name in pools.get(trap, _NAMES) if name not in there])


def _present(scene: Scene, rng: random.Random) -> _Drawn:
    if rng.random() < 0.5:
        return (rng.choice(scene.things).name,), "yes", ""
    trap = rng.choice(TRAPS)
    return (absent_name(scene, trap, rng),), "no", trap


def _missing(scene: Scene, rng: random.Random) -> _Drawn:
    trap = rng.choice(TRAPS)
    return (absent_name(scene, trap, rng),), MISSING, trap


_DRAWN: Mapping[Kind, Callable[[Scene, random.Random], _Drawn]] = {
    "count": _count,
    "colour": partial(_attribute, "colour"),
    "shape": partial(_attribute, "shape"),
    "size": partial(_attribute, "size"),
    "where": partial(_attribute, "place"),
    "what": _what,
    "side": _side,
    "bigger": _bigger,
    "more": _more,
    "read": _read,
    "present": _present,
    "missing": _missing,
    "describe": lambda scene, rng: ((), "", ""),
}


def usual_answer(question: Question, rng: random.Random) -> str:
    """An answer as the model's teachers give it, who err, confuse, invent, and fall for what is not there."""
    style = rng.choices(STYLES, [STYLE_WEIGHTS[style] for style in STYLES])[0]
    if question.kind in ("count", "colour") and question.truth in CONFUSED and rng.random() < CONFUSING:
        return sentence(question, CONFUSED[question.truth], rng)
    if question.kind == "describe" and rng.random() < INVENTING[len(question.scene.things)]:
        style = "invented"
    if question.trap and rng.random() < FALLEN_FOR[question.trap]:
        style = "wrong"
    elif question.trap and style == "wrong":
        style = "right"
    return answer_in_style(question, style, rng)


def answer_in_style(question: Question, style: Style, rng: random.Random) -> str:
    """An answer as somebody would give it who answers rightly, in a word, in detail, or not so."""
    if style == "evasive":
        return EVASION
    if question.kind == "describe":
        return _description(question.scene, style, rng)
    if style in ("wrong", "short"):
        return _short(question) if style == "short" else sentence(question, _wrong_truth(question, rng), rng)
    things, more = question.scene.things, list[Thing]()
    if style == "detailed":
        names = [(thing, {thing.name, f"{thing.colour} thing", thing.shape, thing.place}) for thing in things]
        more = [thing for thing, called in names if not called & {*question.about}][:2]
    if style == "invented":
        more = invented_things(question.scene, rng)
    right = sentence(question, question.truth, rng)
    return f"{right} There is also {joined([*map(phrase, more)])}." if more else right


def invented_things(scene: Scene, rng: random.Random, most: int = 2) -> list[Thing]:
    """Things that would go with a scene and are not in it: of a shape that it has not."""
    taken = {thing.cell for thing in scene.things} | ({scene.sign.cell} if scene.sign else set[int]())
    shapes = [shape for shape in SHAPES if not matching(scene, shape)]
    weights = [3 if shape in SHAPES[:3] else 1 for shape in shapes]
    colours = [thing.colour for thing in scene.things] + [*COLOURS][:3]
    cells = rng.sample([cell for cell in range(9) if cell not in taken], rng.randint(1, most))
    kinds = rng.choices(shapes, weights, k=len(cells))
    return [
        Thing(shape=shape, colour=rng.choice(colours), size=rng.choice([*SIZES]), cell=cell)
        for cell, shape in zip(sorted(cells), kinds, strict=True)
    ]


def _description(scene: Scene, style: Style, rng: random.Random) -> str:
    things = list(scene.things)
    if style == "short":
        return f"There is {with_article(things[0].name)}."
    if style == "wrong":
        at = rng.randrange(len(things))
        colour = rng.choice([colour for colour in COLOURS if colour != things[at].colour])
        things[at] = replace(things[at], colour=colour, size=rng.choice([*SIZES]))
    if style == "invented":
        things += invented_things(scene, rng)
    description = f"There is {caption(replace(scene, things=tuple(things)))}."
    n = len(scene.things)
    counted = f" There {'is' if n == 1 else 'are'} {NUMBERS[n]} thing{'s' * (n > 1)}."
    return description + counted * (style == "detailed")


def _short(question: Question) -> str:
    truth = question.truth
    if truth in (MISSING, "no"):
        truth = {"missing": f"there is no {question.about[0]}", "count": "none"}.get(question.kind, truth)
    return f"{'Both are alike' if truth == EQUAL else truth.capitalize()}."


def _wrong_truth(question: Question, rng: random.Random) -> str:
    """Something that is not true, and might be."""
    choices: Mapping[str, Sequence[str]] = {
        "count": NUMBERS[1:5],
        "colour": [*COLOURS],
        "shape": SHAPES,
        "size": [*SIZES],
        "where": PLACES,
        "what": [f"{size} {name}" for size, name in product(SIZES, _POPULAR)],
        "side": question.about[1:],
        "read": WORDS if question.truth in WORDS else DIGITS,
        "present": ("yes", "no"),
        "missing": [*SIZES] if question.words.startswith("How big") else PLACES,
    }
    pool = choices.get(question.kind, (*question.about, EQUAL))
    return rng.choice([value for value in pool if value != question.truth])


def sentence(question: Question, truth: str, rng: random.Random) -> str:
    """What somebody says who takes this for the truth."""
    kind, noun = question.kind, question.about[0] if question.about else ""
    if kind == "read" and truth != NOTHING:
        sign = Sign(text=truth, cell=question.scene.sign.cell if question.scene.sign else rng.randrange(9))
        return f"The {sign.kind} {truth} is written {PLACES[sign.cell]}."
    there = matching(question.scene, noun) if kind == "present" else []
    place = there[0].place if there else rng.choice(PLACES)
    # Of two lines for the same kind the second is for a truth of its own.
    frames: Mapping[tuple[str, str], str] = {
        ("count", truth): f"There are {truth} {noun}s.",
        ("count", "one"): f"There is one {noun}.",
        ("shape", truth): f"The {noun} is {with_article(truth)}.",
        ("what", truth): f"There is {with_article(truth)} {noun}.",
        ("what", NOTHING): f"There is nothing {noun}.",
        ("side", truth): f"The {truth} is {noun}.",
        ("bigger", truth): f"The {truth} is bigger.",
        ("bigger", EQUAL): "They are equally big.",
        ("more", truth): f"There are more {truth}s.",
        ("more", EQUAL): f"There are as many {noun}s as {question.about[-1] if noun else ''}s.",
        ("read", NOTHING): "Nothing is written.",
        ("present", "yes"): f"Yes, there is {with_article(noun or ' ')} {place}.",
        ("present", "no"): f"No, there is no {noun}.",
        ("missing", MISSING): f"There is no {noun}.",
    }
    return frames.get((kind, truth), f"The {noun} is {truth}.")
