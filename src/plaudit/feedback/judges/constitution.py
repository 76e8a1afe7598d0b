"""A constitution: principles by which models judge, criticise and revise, as data in a file.

One principle is drawn for each task (Bai et al. 2022, arXiv:2212.08073), or several, whose judgements are
averaged. A draw hangs on the task's key alone: not on the others, nor on the order of the file.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from plaudit.errors import UserError
from plaudit.feedback.judges.rubric import check_weight, read_entry, read_yaml

OURS = "ours"
"""The word for the constitution that comes with plaudit."""
_TEXTS = ("choose", "critique", "revise")
_EXPECTED = f"id, {', '.join(_TEXTS)}"


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
        check_weight(self.weight)
        names: object = self.categories
        is_list = isinstance(names, list | tuple)
        if not is_list or not all(isinstance(name, str) and name.strip() for name in names):
            raise UserError(f"categories is {[*names] if is_list else names!r}: expected a list of words")
        object.__setattr__(self, "categories", tuple(names))
        # On one line, however the file breaks them.
        for name in _TEXTS:
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))

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
    name = OURS if path is None else str(path)
    rows = read_yaml(path or files("plaudit.feedback.judges") / "constitution.yaml", name, "a constitution")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{name}: expected a list of principles, each with {_EXPECTED}")
    principles = (_principle(f"{name}, principle {number}", row) for number, row in enumerate(rows, 1))
    return Constitution(name=name, principles=tuple(principles))


def constitution_named(word: str) -> Constitution:
    """The constitution of a file, or ``ours``."""
    return read_constitution(None if word == OURS else Path(word))


def _principle(where: str, row: object) -> Principle:
    name = row.get("id") if isinstance(row, dict) else None
    where = f"{where} ({name})" if isinstance(name, str) and name.strip() else where
    return read_entry(Principle, where, row, _EXPECTED)


def _waiting_time(key: str, principle: Principle) -> float:
    words = f"{key}\0{principle.id}".encode("utf-8", "surrogatepass")
    share = (int.from_bytes(hashlib.sha256(words).digest()[:7]) + 0.5) / 2**56
    return -math.log(share) / principle.weight
