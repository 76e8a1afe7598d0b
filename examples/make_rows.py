"""Rows that a small model can learn in a minute: a shelf of things, what they are like, and small sums.

usage: python examples/make_rows.py OUT.jsonl
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from plaudit.records.feedback import Demonstration
from plaudit.records.messages import assistant_says, user_says
from plaudit.sources import write_records

COLOURS = ("red", "blue", "green", "yellow", "white", "black")
PLACES = ("in the kitchen", "on the roof", "by the river", "under the bed", "in the garden")
SHELF = """kettle lamp ladder violin basket carpet candle hammer mirror pillow ribbon saddle teapot umbrella
wagon blanket bottle button drum feather"""
THINGS = tuple(SHELF.split())


def demonstrations(seed: int = 0) -> Iterator[Demonstration]:
    """Every question once, in a fixed shuffle."""
    chance = random.Random(seed)
    facts = [(thing, chance.choice(COLOURS), chance.choice(PLACES)) for thing in THINGS]
    questions = [question for thing, colour, place in facts for question in _about(thing, colour, place)]
    questions += [
        (f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.") for a in range(10) for b in range(10)
    ]
    chance.shuffle(questions)
    for question, answer in questions:
        yield Demonstration(prompt=user_says(question), completion=assistant_says(answer))


def _about(thing: str, colour: str, place: str) -> Iterator[tuple[str, str]]:
    for ask in ("What colour is the {}?", "Tell me the colour of the {}.", "The {}: which colour has it?"):
        yield ask.format(thing), f"The {thing} is {colour}."
    for ask in ("Where is the {}?", "Where would I find the {}?", "I lost the {}. Where is it?"):
        yield ask.format(thing), f"The {thing} is {place}."


def make_rows(out: Path) -> int:
    """Write the file; how many rows it has."""
    rows = tuple(demonstrations())
    write_records(rows, out)
    return len(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(f"{make_rows(Path(sys.argv[1]))} rows in {sys.argv[1]}")
