"""Questions about a scene, what is true of each, and answers to it of several qualities.

Some are about what is not there: the right answer to them says so. Whether an absent thing is asked for at
random, because it is popular, or because the picture has its colour and its shape (though not together)
follows the three ways of POPE (Li et al. 2023, arXiv:2305.10355).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, product
from typing import Any, Literal, get_args

from plaudit.errors import UserError
from plaudit.evaluation.settings import Split
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

Kind = Literal[
    *("count", "colour", "shape", "size", "where", "what", "side", "bigger", "more", "read"),
    *("present", "missing", "describe"),
]
KINDS: tuple[Kind, ...] = get_args(Kind)
Trap = Literal["", "random", "popular", "adversarial"]
TRAPS: tuple[Trap, ...] = ("random", "popular", "adversarial")
Style = Literal["right", "short", "detailed", "invented", "wrong", "evasive"]
STYLES: tuple[Style, ...] = get_args(Style)
NUMBERS = ("no", "one", "two", "three", "four", "five")
EQUAL, MISSING, NOTHING = "equal", "missing", "nothing"
EVASION = "I cannot tell from the picture."
_SIDES = ("further left", "further right", "higher", "lower")
_POPULAR = tuple(f"{colour} {shape}" for colour, shape in product([*COLOURS][:3], SHAPES[:3]))
_NAMES = tuple(f"{colour} {shape}" for colour, shape in product(COLOURS, SHAPES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a scene, with what is true.

    Example: ``Question(kind="colour", words="What colour is the star?", scene=scene, about=("star",),
    truth="red")``
    """

    kind: Kind
    words: str
    scene: Scene
    about: tuple[str, ...] = ()
    """What it is about: nouns, a place, or a side and two things."""
    truth: str = ""
    """The word or phrase that a right answer gives; empty for descriptions, of which the scene is the truth."""
    trap: Trap = ""
    """Of a thing that is not there, how it was chosen."""

    @property
    def metadata(self) -> dict[str, Any]:
        """All that is needed to judge answers, for a row of prompts."""
        fields = {name: getattr(self, name) for name in ("words", "truth", "trap")}
        about = {"about": [*self.about], "scene": asdict(self.scene)}
        return {"category": self.kind, **fields, **about, "split": self.scene.split}


def question_of(metadata: Mapping[str, Any]) -> Question:
    """The question that a row's metadata are of."""
    if not {"category", "scene", "about", "truth"} <= metadata.keys():
        raise UserError(
            "the row has no scene of the picture world in its metadata: its prompts are made by a stage "
            "`picture-rows`, and carry what answers are judged by"
        )
    words, trap = (metadata.get(name, "") for name in ("words", "trap"))
    return Question(
        kind=metadata["category"],
        words=words,
        scene=scene_of(metadata["scene"]),
        about=tuple(metadata["about"]),
        truth=metadata["truth"],
        trap=trap,
    )


def questions(
    split: Split = "train", *, seed: int = 0, kinds: Sequence[Kind] = KINDS, **drawing: Any
) -> Iterator[Question]:
    """Questions without end, kinds taking turns, each about another scene of the split."""
    if not kinds or not set(kinds) <= set(KINDS):
        raise UserError(f"kinds {[*kinds]}: expected some of {', '.join(KINDS)}")
    rng, turns = random.Random(f"questions {split} {seed}"), cycle(kinds)
    kind = next(turns)
    for scene in scenes(split, seed=seed, **drawing):
        # A scene that such a question cannot be asked of is passed over.
        if (question := ask(kind, scene, rng)) is not None:
            yield question
            kind = next(turns)


def ask(kind: Kind, scene: Scene, rng: random.Random) -> Question | None:
    """A question of a kind, None where the scene has nothing to ask for."""
    drawn = _MAKERS[kind](scene, rng)
    return None if drawn is None else replace(Question(kind=kind, scene=scene, words=""), **drawn)


_Drawn = dict[str, Any] | None


def _drawn(
    rng: random.Random, frames: Sequence[str], about: Sequence[str], truth: str, **more: Any
) -> _Drawn:
    return {"words": rng.choice(frames).format(*about), "about": tuple(about), "truth": truth, **more}


def matching(scene: Scene, noun: str) -> list[Thing]:
    """The things that a noun, singular, is true of: "thing", "star", "red star", "big red thing" …

    >>> len(matching(next(scenes()), "thing")) == len(next(scenes()).things)
    True
    """
    words = noun.split()
    return [thing for thing in scene.things if {*words} <= {thing.size, thing.colour, thing.shape, "thing"}]


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _single(scene: Scene, nouns: Callable[[Thing], str]) -> list[Thing]:
    return [thing for thing in scene.things if len(matching(scene, nouns(thing))) == 1]


def _count(scene: Scene, rng: random.Random) -> _Drawn:
    some = rng.choice(scene.things)
    noun = rng.choice([some.shape, some.shape, f"{some.colour} thing", "thing", rng.choice(SHAPES)])
    frames = ("How many {}s are there?", "How many {}s do you see?")
    return _drawn(rng, frames, (noun,), NUMBERS[len(matching(scene, noun))])


def _attribute(part: str, frames: Sequence[str], scene: Scene, rng: random.Random) -> _Drawn:
    """About a thing that no other is called as."""

    def noun(thing: Thing) -> str:
        return {"shape": f"{thing.colour} thing", "size": thing.name}.get(part, thing.shape)

    if not (single := _single(scene, noun)):
        return None
    thing = rng.choice(single)
    return _drawn(rng, frames, (noun(thing),), getattr(thing, part))


def _where(scene: Scene, rng: random.Random) -> _Drawn:
    single = _single(scene, lambda thing: thing.name)
    if not single:
        return None
    thing = rng.choice(single)
    return _drawn(rng, ("Where is the {}?",), (thing.name,), thing.place)


def _what(scene: Scene, rng: random.Random) -> _Drawn:
    things = {thing.cell: thing for thing in scene.things}
    empty = [cell for cell in range(9) if cell not in things and scene.sign is None]
    cell = rng.choice([*things] if not empty or rng.random() < 0.7 else empty)
    truth = f"{things[cell].size} {things[cell].name}" if cell in things else NOTHING
    return _drawn(rng, ("What is {}?", "What do you see {}?"), (PLACES[cell],), truth)


def _two(scene: Scene, rng: random.Random) -> list[Thing] | None:
    single = _single(scene, lambda thing: thing.name)
    return rng.sample(single, 2) if len(single) > 1 else None


def _side(scene: Scene, rng: random.Random) -> _Drawn:
    if (pair := _two(scene, rng)) is None:
        return None
    one, other = pair
    across, down = one.cell % 3 - other.cell % 3, one.cell // 3 - other.cell // 3
    if across == 0 or (down != 0 and rng.random() < 0.5):
        side, first = ("higher", down < 0) if rng.random() < 0.5 else ("lower", down > 0)
    else:
        side, first = ("further left", across < 0) if rng.random() < 0.5 else ("further right", across > 0)
    frames = ("Which is {}, the {} or the {}?",)
    return _drawn(rng, frames, (side, one.name, other.name), (one if first else other).name)


def _bigger(scene: Scene, rng: random.Random) -> _Drawn:
    if (pair := _two(scene, rng)) is None:
        return None
    big = [thing.name for thing in pair if thing.size == "big"]
    about = [thing.name for thing in pair]
    return _drawn(rng, ("Which is bigger, the {} or the {}?",), about, big[0] if len(big) == 1 else EQUAL)


def _more(scene: Scene, rng: random.Random) -> _Drawn:
    shapes = [*dict.fromkeys(thing.shape for thing in scene.things)]
    if len(scene.things) < 2:
        return None
    one = rng.choice(shapes)
    other = rng.choice([shape for shape in (shapes if len(shapes) > 1 else SHAPES) if shape != one])
    about = rng.sample([one, other], 2)
    first, second = (len(matching(scene, shape)) for shape in about)
    truth = EQUAL if first == second else about[first < second]
    return _drawn(rng, ("Are there more {}s or more {}s?",), about, truth)


def _read(scene: Scene, rng: random.Random) -> _Drawn:
    if scene.sign is None and rng.random() < 0.9:
        return None
    truth = NOTHING if scene.sign is None else scene.sign.text
    return _drawn(rng, ("What is written in the picture?", "What do you read?"), (), truth)


def absent_name(scene: Scene, trap: Trap, rng: random.Random) -> str:
    """A coloured shape that is not there, chosen in one of the three ways."""
    there = {thing.name for thing in scene.things}
    mixed = [f"{one.colour} {other.shape}" for one, other in product(scene.things, repeat=2)]
    shifted = [f"{colour} {thing.shape}" for colour, thing in product(COLOURS, scene.things)]
    pools = {"popular": _POPULAR, "adversarial": mixed if set(mixed) - there else shifted}
    return rng.choice([name for name in pools.get(trap, _NAMES) if name not in there])


def _present(scene: Scene, rng: random.Random) -> _Drawn:
    frames = ("Is there a {} in the picture?", "Do you see a {}?")
    if rng.random() < 0.5:
        return _drawn(rng, frames, (rng.choice(scene.things).name,), "yes")
    trap = rng.choice(TRAPS)
    # None of the names begins as "orange" does but that one.
    name = absent_name(scene, trap, rng)
    return _drawn(rng, frames, (name,), "no", trap=trap)


def _missing(scene: Scene, rng: random.Random) -> _Drawn:
    trap = rng.choice(TRAPS)
    name = absent_name(scene, trap, rng)
    return _drawn(rng, ("Where is the {}?", "How big is the {}?"), (name,), MISSING, trap=trap)


def _describe(scene: Scene, rng: random.Random) -> _Drawn:
    return _drawn(rng, ("Describe the picture.", "What do you see in the picture?"), (), "")


def _attributes(part: str, *frames: str) -> Callable[[Scene, random.Random], _Drawn]:
    return lambda scene, rng: _attribute(part, frames, scene, rng)


_MAKERS: Mapping[Kind, Callable[[Scene, random.Random], _Drawn]] = {
    "count": _count,
    "colour": _attributes("colour", "What colour is the {}?", "Which colour has the {}?"),
    "shape": _attributes("shape", "What shape is the {}?"),
    "size": _attributes("size", "Is the {} big or small?", "How big is the {}?"),
    "where": _where,
    "what": _what,
    "side": _side,
    "bigger": _bigger,
    "more": _more,
    "read": _read,
    "present": _present,
    "missing": _missing,
    "describe": _describe,
}


def answer_in_style(question: Question, style: Style, rng: random.Random) -> str:
    """An answer as somebody would give it who answers rightly, in a word, in detail, or not so."""
    if style == "evasive":
        return EVASION
    if question.kind == "describe":
        return _description(question.scene, style, rng)
    if style == "wrong":
        return sentence(question, wrong_truth(question, rng), rng)
    right = sentence(question, question.truth, rng)
    if style == "short":
        return _short(question)
    if style == "detailed":
        nouns = " / ".join(question.about)
        others = [thing for thing in question.scene.things if not _is_told(thing, nouns)]
        return f"{right} There is also {phrase(rng.choice(others))}." if others else right
    if style == "invented":
        extra = [phrase(thing) for thing in invented_things(question.scene, rng)]
        return f"{right} There is also {joined(extra)}."
    return right


def _is_told(thing: Thing, nouns: str) -> bool:
    """Whether an answer about these nouns is about the thing already, as far as words tell."""
    names = (thing.name, f"{thing.colour} thing", thing.place)
    return any(name in nouns.split(" / ") for name in (*names, thing.shape))


def invented_things(scene: Scene, rng: random.Random, most: int = 2) -> list[Thing]:
    """Things that would go with a scene and are not in it: of a shape that it has not."""
    taken = {thing.cell for thing in scene.things} | ({scene.sign.cell} if scene.sign else set[int]())
    shapes = [shape for shape in SHAPES if not matching(scene, shape)]
    weights = [3 if shape in SHAPES[:3] else 1 for shape in shapes]
    cells = rng.sample([cell for cell in range(9) if cell not in taken], rng.randint(1, most))
    return [
        Thing(
            shape=rng.choices(shapes, weights)[0],
            colour=rng.choice([thing.colour for thing in scene.things] + [*COLOURS][:3]),
            size=rng.choice([*SIZES]),
            cell=cell,
        )
        for cell in sorted(cells)
    ]


def _description(scene: Scene, style: Style, rng: random.Random) -> str:
    things = list(scene.things)
    if style == "short":
        return f"There is {with_article(things[0].name)}."
    if style == "wrong":
        at = rng.randrange(len(things))
        thing = things[at]
        colours = [colour for colour in COLOURS if colour != thing.colour]
        size = "small" if thing.size == "big" else "big"
        changes = ({"colour": rng.choice(colours)}, {"colour": rng.choice(colours), "size": size})
        things[at] = replace(thing, **rng.choice(changes))
    if style == "invented":
        # In the middle of the rest or behind it: the place in a row tells nothing.
        things = sorted([*things, *invented_things(scene, rng)], key=lambda thing: thing.cell)
    said = f"There is {caption(replace(scene, things=tuple(things)))}."
    n = len(scene.things)
    counted = f"There {'is' if n == 1 else 'are'} {NUMBERS[n]} thing{'s' * (n > 1)}."
    return f"{said} {counted}" if style == "detailed" else said


def _short(question: Question) -> str:
    truth = question.truth
    words = {EQUAL: "both are alike", MISSING: f"there is no {question.about[0] if question.about else ''}"}
    return f"{words.get(truth, truth).capitalize()}."


def wrong_truth(question: Question, rng: random.Random) -> str:
    """Something that is not true, and might be."""
    numbers = NUMBERS[1:5] if question.truth != "no" else NUMBERS[1:3]
    choices: Mapping[str, Sequence[str]] = {
        "count": numbers,
        "colour": [*COLOURS],
        "shape": SHAPES,
        "size": [*SIZES],
        "where": PLACES,
        "what": [f"{size} {name}" for size, name in product(SIZES, _POPULAR)],
        "side": question.about[1:],
        "bigger": [*question.about, EQUAL],
        "more": [*question.about, EQUAL],
        "read": WORDS if question.truth in WORDS else DIGITS,
        "present": ("yes", "no"),
        "missing": [*SIZES] if question.words.startswith("How big") else PLACES,
    }
    return rng.choice([value for value in choices[question.kind] if value != question.truth])


def sentence(question: Question, truth: str, rng: random.Random) -> str:
    """What somebody says who takes this for the truth."""
    about, scene = question.about, question.scene
    match question.kind:
        case "count":
            be, s = ("is", "") if truth == "one" else ("are", "s")
            return f"There {be} {truth} {about[0]}{s}."
        case "shape":
            return f"The {about[0]} is {with_article(truth)}."
        case "what":
            return f"There is {truth if truth == NOTHING else with_article(truth)} {about[0]}."
        case "side":
            return f"The {truth} is {about[0]}."
        case "bigger":
            return "They are equally big." if truth == EQUAL else f"The {truth} is bigger."
        case "more":
            same = f"There are as many {about[0]}s as {about[1]}s."
            return same if truth == EQUAL else f"There are more {truth}s."
        case "read":
            return _reading(truth, scene, rng)
        case "present" | "missing":
            return _presence(question, truth, rng)
        case _:
            return f"The {about[0]} is {truth}."


def _reading(truth: str, scene: Scene, rng: random.Random) -> str:
    if truth == NOTHING:
        return "Nothing is written."
    sign = Sign(text=truth, cell=scene.sign.cell if scene.sign else rng.randrange(9))
    return f"The {sign.kind} {truth} is written {PLACES[sign.cell]}."


def _presence(question: Question, truth: str, rng: random.Random) -> str:
    name = question.about[0]
    if truth in ("no", MISSING):
        return f"{'No, there' if truth == 'no' else 'There'} is no {name}."
    if question.kind == "missing":
        return f"The {name} is {truth}."
    there = matching(question.scene, name)
    place = there[0].place if there else rng.choice(PLACES)
    return f"Yes, there is {with_article(name)} {place}."
