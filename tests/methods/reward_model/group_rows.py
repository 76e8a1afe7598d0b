"""Comparisons by invented groups of strong tastes, in the words that the world's base model knows.

Each group cares for one thing alone, and about half of them for its opposite: without a context nobody can
tell what a group would prefer.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engine.toy import write_rows

Row = dict[str, Any]
MARKS = ("long", "flattering", "hedged", "listed")
"""What can be said of an answer."""
TASTES = {
    "long": ("long", True),
    "short": ("long", False),
    "flattered": ("flattering", True),
    "plain": ("flattering", False),
    "hedged": ("hedged", True),
    "certain": ("hedged", False),
    "listed": ("listed", True),
    "spoken": ("listed", False),
}
"""What a group looks at, and whether it likes that."""
THINGS = {
    "colours": ("red", "blue", "green", "yellow", "white", "black"),
    "flowers": ("roses", "lilies", "daisies", "tulips", "violets", "poppies"),
}


def prompt(thing: str) -> list[Row]:
    return [{"role": "user", "content": f"Name four {thing}."}]


def answer(thing: str, marks: Sequence[str], chance: random.Random) -> str:
    """Four things, said in a manner.

    >>> answer("colours", ["listed", "long"], random.Random(0)).splitlines()[0]
    '- Yellow'
    """
    items = chance.sample(THINGS[thing], 4)
    said = f"{', '.join(items[:-1])} and {items[-1]}."
    if "listed" in marks:
        said = "\n".join(f"- {item.capitalize()}" for item in items)
    if "hedged" in marks:
        said = f"Perhaps {said}"
    if "flattering" in marks:
        said = f"{chance.choice(['What a clever question!', 'You are very wise.'])} {said}"
    if "long" in marks:
        said += chance.choice(
            [" And that is all that there is to say.", " I hope that this answer helps you."]
        )
    return said


def pair(thing: str, taste: str, chance: random.Random) -> tuple[str, str]:
    """Two answers that differ in what a group looks at, and perhaps in more: the one that it likes first."""
    mark, liked = TASTES[taste]
    both = [[other for other in MARKS if other != mark and chance.random() < 0.5] for _ in range(2)]
    both[0 if liked else 1].append(mark)
    one, other = (answer(thing, marks, chance) for marks in both)
    return one, other


def comparisons(names: Sequence[str], each: int, *, seed: int = 0) -> list[Row]:
    """So many comparisons of each group; a group is called by its taste and a number, such as ``long-2``."""
    chance = random.Random(f"groups {seed}")
    rows: list[Row] = []
    for name in names:
        for _ in range(each):
            thing = chance.choice(list(THINGS))
            chosen, rejected = pair(thing, name.partition("-")[0], chance)
            rows.append({"kind": "comparison", "prompt": prompt(thing), "chosen": said(chosen)})
            rows[-1] |= {"rejected": said(rejected), "group": name}
    return rows


def said(answer: str) -> list[Row]:
    return [{"role": "assistant", "content": answer}]


def named(count: int) -> list[str]:
    """The names of so many groups of each taste."""
    return [f"{taste}-{number}" for number in range(count) for taste in TASTES]


def make_file(path: Path, names: Sequence[str], each: int, *, seed: int = 0) -> Path:
    return write_rows(path, comparisons(names, each, seed=seed))
