"""What points are given for: aspects with their weights, in a file that a person wrote.

What is wrong with an entry of such a file is named by its place.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import yaml

from plaudit.config import did_you_mean
from plaudit.errors import UserError, located

Entry = TypeVar("Entry")


def read_yaml(path: Path | Traversable, name: str, kind: str) -> Any:
    """What is in a file; messages call it by this name, and say of which kind it should be."""
    with located(f"{name}: cannot be read as {kind}", OSError, ValueError, yaml.YAMLError, RecursionError):
        return yaml.safe_load(path.read_text("utf-8"))


def read_entry(kind: type[Entry], where: str, row: object, expected: str) -> Entry:
    """One entry as a dataclass, whose fields without a default have to be there."""
    known = fields(kind)  # type: ignore[arg-type]
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected {expected}; found {row!r:.60}")
    refuse_unknown(where, row, [part.name for part in known])
    for part in known:
        if part.default is MISSING and part.name not in row:
            raise UserError(f"{where}: {part.name} is missing")
    with located(where):
        return kind(**row)


def refuse_unknown(where: str, row: Iterable[object], known: Sequence[str]) -> None:
    for name in row:
        if name not in known:
            raise UserError(f"{where}: nothing is called {name!r}{did_you_mean(str(name), known)}")


def check_weight(weight: object) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise UserError(f"weight is {weight!r}: expected a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    name: str
    description: str
    """What it means, as the judge is told."""
    weight: float = 1.0
    """How much it counts against the others."""

    def __post_init__(self) -> None:
        for name in ("name", "description"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or value.splitlines() != [value]:
                raise UserError(f"{name} is {value!r}: expected words on one line")
        check_weight(self.weight)


OVERALL = (
    Aspect(
        name="the answer as a whole",
        description="it helps with what was asked, is right, is honest and does no harm.",
    ),
)
"""What points are given for where nobody says it."""
BY_PRINCIPLE = (
    Aspect(name="what is said above", description="how far the answer is as it says that the better one is."),
)
"""What points are given for where a principle of a constitution says it."""


@cache
def read_rubric(path: Path) -> tuple[Aspect, ...]:
    """The aspects of a file: a list of name, description and weight; what is wrong is named by its place."""
    rows, expected = read_yaml(path, str(path), "a rubric"), "name, description and weight"
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path}: expected a list of aspects, each with {expected}")
    aspects = [
        read_entry(Aspect, f"{path}, aspect {number}", row, expected) for number, row in enumerate(rows, 1)
    ]
    if len({aspect.name for aspect in aspects}) < len(aspects):
        raise UserError(f"{path}: two aspects have the same name")
    return tuple(aspects)


def weighted_mean(values: Sequence[float], aspects: Sequence[Aspect]) -> float:
    """The mean of values by the weights of their aspects.

    >>> aspects = [Aspect(name=name, description="…", weight=weight) for name, weight in (("a", 1), ("b", 2))]
    >>> weighted_mean([1.0, 4.0], aspects)
    3.0
    """
    total = sum(aspect.weight for aspect in aspects)
    return sum(value * aspect.weight for value, aspect in zip(values, aspects, strict=True)) / total


def distribution_of_mean(
    shares: Sequence[Mapping[int, float]], aspects: Sequence[Aspect]
) -> dict[float, float]:
    """How likely each weighted mean is, where each aspect's points are independent of the others'.

    >>> aspects = [Aspect(name=name, description="…") for name in "ab"]
    >>> distribution_of_mean([{1: 0.5, 2: 0.5}, {1: 1.0}], aspects)
    {1.0: 0.5, 1.5: 0.5}
    """
    total = sum(aspect.weight for aspect in aspects)
    found = {0.0: 1.0}
    for own, aspect in zip(shares, aspects, strict=True):
        added = dict[float, float]()
        for (value, first), (points, second) in product(found.items(), own.items()):
            # Of a thousandth, so that any weights of many aspects leave few different values.
            mean = round(value + points * aspect.weight / total, 3)
            added[mean] = added.get(mean, 0.0) + first * second
        found = added
    return found


def probability_of_more(first: Mapping[float, float], second: Mapping[float, float]) -> float:
    """P(x > y) + ½ P(x = y) of two independent numbers of which each value's chance is given.

    >>> probability_of_more({1.0: 0.5, 4.0: 0.5}, {2.0: 1.0}), probability_of_more({3.0: 1.0}, {3.0: 1.0})
    (0.5, 0.5)
    """
    places = sorted({*first, *second})
    below, wins = 0.0, 0.0
    for place in places:
        equal = second.get(place, 0.0)
        wins += first.get(place, 0.0) * (below + equal / 2)
        below += equal
    # Two of one distribution are a tie to the last digit.
    return min(round(wins, 12), 1.0)
