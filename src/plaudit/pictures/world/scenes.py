"""Scenes of coloured shapes on a grid, with what they are known to hold; their pictures and captions.

The picture of a scene is drawn from whole numbers alone, without any font of the system, so that it is the
same on every machine.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from plaudit.errors import UserError
from plaudit.evaluation.policies import Split
from plaudit.files.pictures import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_POPULARITY = (5, 4, 3, 2, 2, 2, 2)
"""How often a scene has a shape or a colour beside others: the first three are the popular ones."""
SHAPES = ("circle", "star", "square", "triangle", "moon", "ring", "heart")
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "blue": (40, 90, 210),
    "yellow": (240, 214, 30),
    "green": (40, 150, 60),
    "orange": (245, 140, 20),
    "purple": (140, 50, 170),
    "black": (25, 25, 30),
}
SIZES: Mapping[str, int] = {"small": 36, "big": 58}
"""Half of a shape's width, where half a cell is 64."""
PLACES = (
    *("at the top left", "at the top", "at the top right"),
    *("at the left", "in the middle", "at the right"),
    *("at the bottom left", "at the bottom", "at the bottom right"),
)
"""What the cells of the grid are called, row by row."""
WORDS = ("bee", "box", "cat", "cup", "fox", "hat", "key", "map", "owl", "sea", "sun", "tea")
DIGITS = tuple("0123456789")
MOST_THINGS = 4
_TENTHS: Mapping[int, Split] = {0: "test", 1: "validation"}
_MOST_MISSES = 2000
_PAPER, _INK = (250, 247, 240), (70, 70, 80)
_CANVAS, _CELL = 384, 128
_LETTERS = "0123456789abcefhklmnopstuwxy"
_ROWS = (
    "75557262277174771717557117471774757711227575775717"
    "25755656563444374647746445575555655444475775565555255526564434216722225555755775"
    "5525555222"
)
"""Letters in five rows of three pixels, each row the digit that its bits make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A shape somewhere in a picture."""

    shape: str
    colour: str
    size: str
    cell: int
    """Its place in the grid, 0 to 8, row by row."""

    @property
    def place(self) -> str:
        return PLACES[self.cell]

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A digit or a word that is written in a picture."""

    text: str
    cell: int

    @property
    def kind(self) -> str:
        return "digit" if self.text in DIGITS else "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that there is to see in a picture."""

    things: tuple[Thing, ...]
    """In the order of their cells, at least one."""
    sign: Sign | None = None

    @property
    def text(self) -> str:
        """The graph as JSON, of which `scene_of` makes the scene again."""
        return json.dumps(asdict(self))

    @property
    def name(self) -> str:
        """A name that no other scene has."""
        return blake2b(self.text.encode(), digest_size=8).hexdigest()

    @property
    def split(self) -> Split:
        """The only split that it may be used in, by its name."""
        return _TENTHS.get(int(self.name, 16) % 10, "train")


def scene_of(graph: str | Mapping[str, Any]) -> Scene:
    """The scene of a graph, or of its JSON."""
    try:
        facts: Any = json.loads(graph) if isinstance(graph, str) else graph
        things = tuple(Thing(**thing) for thing in facts["things"])
        return Scene(things=things, sign=Sign(**facts["sign"]) if facts.get("sign") else None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{str(graph)[:80]} is no scene of the picture world ({error})") from error


def scenes(
    split: Split = "train", *, seed: int = 0, most: int = MOST_THINGS, signs: float = 0.3
) -> Iterator[Scene]:
    """Different scenes of a split, of one thing to ``most``, a share of ``signs`` with a digit or a word."""
    rng = random.Random(f"scenes {split} {seed}")
    before, misses = set[Scene](), 0
    while misses < _MOST_MISSES:
        scene = _draw(rng, rng.randint(1, most), rng.random() < signs)
        misses += 1
        if scene.split == split and scene not in before:
            misses = 0
            before.add(scene)
            yield scene
    raise UserError(f"the {split} split has no more scenes of at most {most} things: ask for fewer")


def _draw(rng: random.Random, things: int, sign: bool) -> Scene:
    cells = rng.sample(range(9), things + sign)
    drawn = list[Thing]()
    for cell in sorted(cells[:things]):
        # Things often share their shape or colour, so that there is something to count and to mix up.
        like = rng.choice(drawn) if drawn and rng.random() < 0.5 else None
        shape, colour = (rng.choices([*names], _POPULARITY)[0] for names in (SHAPES, COLOURS))
        if like is not None and rng.random() < 0.5:
            shape = like.shape
        elif like is not None:
            colour = like.colour
        drawn.append(Thing(shape=shape, colour=colour, size=rng.choice([*SIZES]), cell=cell))
    text = rng.choice(DIGITS if rng.random() < 0.5 else WORDS)
    return Scene(things=tuple(drawn), sign=Sign(text=text, cell=cells[-1]) if sign else None)


def first_scenes(n: int, split: Split = "train", **drawing: Any) -> list[Scene]:
    """The first n of `scenes`."""
    return [*islice(scenes(split, **drawing), n)]


def phrase(thing: Thing) -> str:
    """A thing with all that can be said of it.

    >>> phrase(Thing(shape="star", colour="orange", size="big", cell=4))
    'a big orange star in the middle'
    """
    return f"a {thing.size} {thing.name} {thing.place}"


def joined(phrases: list[str]) -> str:
    """Phrases in a row: "a, b and c"."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def caption(scene: Scene) -> str:
    """All of a scene in a few words, as a model that draws is given it; no other scene has the same caption.

    >>> caption(Scene(things=(Thing(shape="ring", colour="red", size="small", cell=0),)))
    'a small red ring at the top left'
    """
    sign = [f"the {sign.kind} {sign.text} {PLACES[sign.cell]}" for sign in [scene.sign] if sign]
    return joined([*map(phrase, scene.things), *sign])


def render(scene: Scene, size: int = 48) -> "Image":
    """The picture of a scene, so many pixels wide and high."""
    from PIL import ImageDraw

    library = pillow()
    canvas = library.new("RGB", (_CANVAS, _CANVAS), _PAPER)
    pen = ImageDraw.Draw(canvas)
    for thing in scene.things:
        _draw_shape(pen, thing.shape, *_centre(thing.cell), SIZES[thing.size], COLOURS[thing.colour])
    if scene.sign is not None:
        _draw_sign(pen, scene.sign)
    return canvas.resize((size, size), library.Resampling.BOX)


def _centre(cell: int) -> tuple[int, int]:
    return cell % 3 * _CELL + _CELL // 2, cell // 3 * _CELL + _CELL // 2


def _draw_shape(pen: Any, shape: str, x: int, y: int, r: int, colour: tuple[int, int, int]) -> None:
    third = r // 3
    match shape:
        case "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        case "ring":
            pen.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=r * 2 // 5)
        case "square":
            pen.rectangle((x - r + 4, y - r + 4, x + r - 4, y + r - 4), fill=colour)
        case "triangle":
            pen.polygon([(x, y - r), (x + r, y + r - 4), (x - r, y + r - 4)], fill=colour)
        case "moon":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
            pen.ellipse((x - third, y - r, x + 2 * r - third, y + r), fill=_PAPER)
        case "heart":
            half = r // 2
            for middle in (x - half, x + half):
                pen.ellipse((middle - half, y - r + 6, middle + half, y + 6), fill=colour)
            flank = y - half + 22
            pen.polygon([(x - r + 4, flank), (x, y - half), (x + r - 4, flank), (x, y + r)], fill=colour)
        case _:
            points = [
                (x + round(far * math.sin(turn)), y - round(far * math.cos(turn)))
                for turn, far in ((k * math.pi / 5, r * 2 // 5 if k % 2 else r) for k in range(10))
            ]
            pen.polygon(points, fill=colour)


def _draw_sign(pen: Any, sign: Sign) -> None:
    x, y = _centre(sign.cell)
    wide, high = (24, 20) if len(sign.text) == 1 else (11, 16)
    left, top = x - (4 * len(sign.text) - 1) * wide // 2, y - 5 * high // 2
    for at, letter in enumerate(sign.text):
        rows = _ROWS[5 * _LETTERS.index(letter) :][:5]
        for row, column in product(range(5), range(3)):
            if int(rows[row]) >> (2 - column) & 1:
                x0, y0 = left + (4 * at + column) * wide, top + row * high
                pen.rectangle((x0, y0, x0 + wide - 1, y0 + high - 1), fill=_INK)
