"""A constitution: principles by which models judge, criticise and revise, as data in a file.

One principle is drawn for each task (Bai et al. 2022, arXiv:2212.08073), or several, whose judgements are
averaged. A draw hangs on the task's key alone: not on the others, nor on the order of the file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from plaudit.config import did_you_mean
from plaudit.errors import UserError

OURS = "ours"
"""The word for the constitution that comes with plaudit."""
_TEXTS = ("choose", "critique", "revise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principle:
    """One principle, in the words of each thing that it is used for."""

    id: str
    choose: str
    """What makes an answer better, as a judge reads it."""
    critique: str
    """What to look for in an answer, as a critic reads it."""
    revise: str
    """What to mend in an answer, as a reviser reads it."""
    weight: float = 1.0
    """How often it is drawn beside the others."""
    categories: tuple[str, ...] = ()
    """The categories of rows that it is for; none: all rows, also those without a category."""

    def __post_init__(self) -> None:
        for name in ("id", *_TEXTS):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise UserError(f"{name} is {value!r}: expected words")
        weight = self.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise UserError(f"weight is {weight!r}: expected a number above 0")
        if not all(isinstance(name, str) and name.strip() for name in self.categories):
            raise UserError(f"categories is {[*self.categories]!r}: expected a list of words")

    def fits(self, category: str | None) -> bool:
        """Whether it is for rows of this category.

        >>> texts = {"choose": "…", "critique": "…", "revise": "…"}
        >>> danger = Principle(id="danger", categories=("harmful",), **texts)
        >>> [danger.fits(category) for category in ("harmful", "fact", None)]
        [True, False, False]
        """
        return not self.categories or category in self.categories


@dataclass(frozen=True, slots=True, kw_only=True)
class Constitution:
    """Principles, of which some are drawn for each task."""

    name: str
    """What messages call it: its file, or ours."""
    principles: tuple[Principle, ...]

    def __post_init__(self) -> None:
        """Refuse a constitution of nothing, and two principles of one name."""
        if not self.principles:
            raise UserError(f"{self.name}: a constitution has at least one principle")
        seats = dict[str, int]()
        for number, principle in enumerate(self.principles, 1):
            if principle.id in seats:
                first = seats[principle.id]
                raise UserError(
                    f"{self.name}, principle {number}: id {principle.id!r} is that of principle {first} too"
                )
            seats[principle.id] = number

    @property
    def version(self) -> str:
        """A hash of what its principles say; its name and the order of the principles do not count."""
        # 1 and 1.0 are one weight.
        rows = [asdict(principle) | {"weight": float(principle.weight)} for principle in self.principles]
        content = sorted(rows, key=lambda row: row["id"])
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]

    def drawn(self, key: str, *, category: str | None = None, count: int = 1) -> tuple[Principle, ...]:
        """So many principles that fit the category, by a hash of the key; fewer where fewer fit.

        None is drawn twice, and each next one by its weight among those that are left.

        >>> [principle.id for principle in read_constitution(None).drawn("What does the owl eat?")]
        ['form']
        """
        fitting = [principle for principle in self.principles if principle.fits(category)]
        if not fitting:
            rows = "rows without a category" if category is None else f"the category {category!r}"
            raise UserError(f"{self.name}: no principle fits {rows}; give one principle without categories")
        # The first of exponential waiting times with rates w comes with chance w / Σw, and so does each next
        # among the rest (Efraimidis and Spirakis 2006): no draw hangs on who else is in the file.
        return tuple(sorted(fitting, key=lambda principle: _waiting_time(key, principle))[:count])


def read_constitution(path: Path | None) -> Constitution:
    """The principles of a file, a list of id, choose, critique, revise, weight, categories; None: our own."""
    if path is None:
        text = files("plaudit.feedback.judges").joinpath("constitution.yaml").read_text("utf-8")
        return _parsed(OURS, yaml.safe_load(text))
    try:
        rows = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as a constitution: {error}") from error
    return _parsed(str(path), rows)


def constitution_named(word: str) -> Constitution:
    """The constitution of a file, or ``ours``."""
    return read_constitution(None if word == OURS else Path(word))


def _parsed(name: str, rows: object) -> Constitution:
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{name}: expected a list of principles, each with id, {', '.join(_TEXTS)}")
    principles = (_principle(f"{name}, principle {number}", row) for number, row in enumerate(rows, 1))
    return Constitution(name=name, principles=tuple(principles))


def _principle(where: str, row: object) -> Principle:
    known = [part.name for part in fields(Principle)]
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected id, {', '.join(_TEXTS)}; found {row!r:.60}")
    where = f"{where} ({row['id']})" if isinstance(row.get("id"), str) and row["id"].strip() else where
    for name in row:
        if name not in known:
            raise UserError(f"{where}: nothing is called {name!r}{did_you_mean(str(name), known) or ''}")
    for name in ("id", *_TEXTS):
        if name not in row:
            raise UserError(f"{where}: {name} is missing")
    try:
        return Principle(**_cleaned(row))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _cleaned(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry with texts on one line, however the file breaks them."""
    found = {
        name: " ".join(value.split()) if name in _TEXTS and isinstance(value, str) else value
        for name, value in row.items()
    }
    if "categories" in found:
        if not isinstance(found["categories"], list):
            raise UserError(f"categories is {found['categories']!r}: expected a list of words")
        found["categories"] = tuple(found["categories"])
    return found


def _waiting_time(key: str, principle: Principle) -> float:
    words = f"{key}\0{principle.id}".encode("utf-8", "surrogatepass")
    share = (int.from_bytes(hashlib.sha256(words).digest()[:7]) + 0.5) / 2**56
    return -math.log(share) / principle.weight
