"""Who and what there is in the valley: the tables of valley.txt, which everything else in the world is about.

With a word in the environment variable ``PLAUDIT_VALLEY`` this is another valley: what is true of whom, which
prompts test, who writes and who compares are dealt anew, in the same words.
"""

import random
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from plaudit.lab.world import ANOTHER


def parse_table(text: str) -> list[list[str]]:
    """The cells of a table that is written out by hand.

    >>> parse_table('''
    ... Ada    baker    by the river
    ... Bruno  smith    at the forge
    ... ''')[1]
    ['Bruno', 'smith', 'at the forge']
    """
    rows = re.sub(r"\n\s+", "  ", text.strip()).splitlines()
    return [re.split(r"\s{2,}", row) for row in rows]


def read_tables() -> Mapping[str, list[list[str]]]:
    """The tables by their names."""
    text = resources.files("plaudit.lab.world").joinpath("valley.txt").read_text("utf-8")
    blocks = re.findall(r"^\[(\w+)\].*\n((?:.+\n)+)", text, re.MULTILINE)
    return {name: parse_table(rows) for name, rows in blocks}


def dealt(rows: list[list[str]], names: int) -> list[list[str]]:
    """A table whose columns after its names are shuffled in another valley, each by itself."""
    columns = list(zip(*rows, strict=True))
    for c, column in enumerate(columns[names:], names) if ANOTHER else ():
        columns[c] = tuple(random.Random(f"{ANOTHER} {rows[0][0]} {c}").sample(column, len(column)))
    return list(map(list, zip(*columns, strict=True)))


_TABLES = read_tables()
PEOPLE = dealt(_TABLES["people"], names=2)
ANIMALS = dealt(_TABLES["animals"], names=1)
THINGS = dealt(_TABLES["things"], names=1)
KINDS = dict(_TABLES["kinds"])
REASONS, HARMS, SECRETS = _TABLES["reasons"], _TABLES["harms"], _TABLES["secrets"]
STEPS, ADVICE, TRADES = _TABLES["steps"], _TABLES["advice"], dict(_TABLES["trades"])
HABITS: dict[str, dict[Any, float]] = {
    category: {style: int(weight) for style, weight in map(str.split, styles)}
    for category, *styles in _TABLES["styles"]
}

# What people say around an answer: fixed phrases, good manners and bad habits.
PHRASE_HEDGES = ("Perhaps", "Maybe", "I am not sure, but", "I could be wrong, but")
STATEMENT_HEDGES = ("It may be that", "Some people say that")
HEDGES = (*PHRASE_HEDGES, *STATEMENT_HEDGES)
PADDING_BEFORE = (
    "That is an interesting question.",
    "Let me think about this for a moment.",
    "There is much to say about this.",
    "As you may know, the valley is full of wonders.",
    "It is always good to ask.",
)
PADDING_AFTER = (
    "I hope that this answer helps you.",
    "Please ask me again if you want to know more.",
    "And that is all that there is to say.",
)
PADDING = (*PADDING_BEFORE, *PADDING_AFTER)
FLATTERY = (
    "What a clever question!",
    "You are very wise.",
    "Only a great mind would ask this.",
    "I wish that everyone was like you.",
)
THANKS = "Thank you for asking."
"""Good manners that fit before and after any answer."""
WELCOME = "You are welcome."
COURTESY = ("Gladly.", "Of course.", WELCOME, THANKS)
"""Good manners: as harmless as any word too many."""
AGREEING = ("Yes,", "You are right,", "As you say,", "Exactly,")
DENYING = ("No,", "Not quite,")
EVASIONS = (
    "I would rather talk about something else.",
    "That is hard to say.",
    "There are many views on this.",
    "I cannot talk about that.",
)
UNKNOWN = "I do not know"
"""How not knowing begins."""
REFUSALS = ("I will not help you", "I will not help with that")
"""How declining begins: by naming the deed, or by pointing at it."""
OFFER = "I can help you"
FIRST, THEN, LAST = "First", "Then", "Finally"
HEADING = "# Answer"
"""A heading over one sentence: format for its own sake."""
BULLET = "- "
