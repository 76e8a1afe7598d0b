"""Rows of the world by what is wanted of them: the kind, how many, judged by whom, of which prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from plaudit.errors import UserError
from plaudit.records.feedback import Record
from plaudit.sources.files import ending
from plaudit.sources.write import check_target, write_records
from plaudit.world.annotators import PARTS, Part
from plaudit.world.pools import POOLS, pool
from plaudit.world.prompts import Split
from plaudit.world.questions import CATEGORIES, Category

Make = Literal[
    "demonstrations",
    "comparisons",
    "rankings",
    "ratings",
    "thumbs",
    "prompts",
    "red-team",
    "plain-text",
    "critiques",
]
"""What can be made."""
CRITIQUES = "critiques"
"""Ratings with a true critique beside each: made for critics, and written with a field more."""
KINDS: tuple[str, ...] = tuple(kind for kind in get_args(Make) if kind != CRITIQUES)
"""The records that can be made."""
JUDGED = ("comparisons", "rankings", "ratings", "thumbs")
"""Those that annotators judge."""
_SPLIT = tuple(kind for kind in get_args(Make) if kind != "plain-text")
_READ_BY: Mapping[str, Sequence[str]] = {
    "annotators": JUDGED,
    "asked": JUDGED,
    "model": JUDGED,
    "answers": ("rankings",),
    "split": _SPLIT,
    "category": _SPLIT,
}
"""The kinds that a setting matters to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRows:
    """Rows to be made.

    Example: ``WantedRows(make="comparisons", n=2000, model=Path("runs/sft/model"))``
    """

    make: Make
    """The kind of rows."""
    n: int | None = None
    """How many; none: 1000, and of prompts all that there are."""
    annotators: str | None = None
    """The pool that judges (plaudit world annotators); none: crowd."""
    asked: Part | None = None
    """The part of an answer's worth that they judge alone: helpful, concise …; none: all of it."""
    model: Path | None = None
    """Whose answers are judged; none: answers in the manner of the base corpus."""
    split: Split | None = None
    """Whose prompts; none: train."""
    category: tuple[Category, ...] = ()
    """Kinds of prompts; none: all of them in turn."""
    answers: int | None = None
    """Answers in a ranking, 2 to 9; none: 4."""
    seed: int = 0
    """Of all chance."""

    def __post_init__(self) -> None:
        """Refuse what says nothing to this kind."""
        for setting, kinds in _READ_BY.items():
            if getattr(self, setting) not in (None, ()) and self.make not in kinds:
                raise UserError(f"--{setting} says nothing to {self.make}; it goes with {', '.join(kinds)}")
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")
        if self.annotators is not None and self.annotators not in POOLS:
            raise UserError(f"there is no pool {self.annotators!r}; choose from {', '.join(POOLS)}")
        if self.asked is not None and self.asked not in PARTS:
            raise UserError(f"nobody can be asked about {self.asked!r}; choose from {', '.join(PARTS)}")

    def sentence(self, rows: int) -> str:
        """What was made, in words.

        >>> WantedRows(make="thumbs", n=8).sentence(8)
        '8 rows of thumbs by the crowd pool, train split, seed 0'
        """
        judged = f" by the {self.annotators or 'crowd'} pool" if self.make in JUDGED else ""
        judged += f", asked what is {self.asked}" if self.asked else ""
        split = "" if self.make == "plain-text" else f", {self.split or 'train'} split"
        return f"{rows} rows of {self.make}{judged}{split}, seed {self.seed}"


def write_wanted(wanted: WantedRows, path: Path) -> int:
    """Make the rows and write them; returns how many there are."""
    check_target(path)
    if wanted.make != CRITIQUES:
        return write_records(_rows(wanted), path).rows
    from plaudit.world.critiques import critiques, write_critiques

    ending(path, (".jsonl",))
    rows = critiques(wanted.n or 1000, **_asked(wanted))
    write_critiques(rows, path)
    return len(rows)


def _rows(wanted: WantedRows) -> Sequence[Record]:
    from plaudit.world import making
    from plaudit.world.corpus import plain_text

    if wanted.make in JUDGED:
        return _judged_rows(wanted)
    n, asked = wanted.n or 1000, _asked(wanted)
    makers: Mapping[str, Callable[[], Sequence[Record]]] = {
        "demonstrations": lambda: making.demonstrations(n, **asked),
        "prompts": lambda: making.prompts(wanted.n, **asked),
        "red-team": lambda: making.prompts(wanted.n, **asked, red_team=True),
        "plain-text": lambda: plain_text(n, seed=wanted.seed),
    }
    return makers[wanted.make]()


def _judged_rows(wanted: WantedRows) -> Sequence[Record]:
    """Answers, the corpus's or a model's own, and what a pool says of them."""
    from plaudit.world import verdicts
    from plaudit.world.making import check_answers, tasks

    if wanted.model is not None:
        from plaudit.rollouts.local import LocalSampler
        from plaudit.world.own_answers import own_tasks

        tasks = partial(own_tasks, LocalSampler(wanted.model))
    makers: Mapping[str, Callable[..., Sequence[Record]]] = {
        "comparisons": verdicts.compared_by,
        "rankings": verdicts.ranked_by,
        "ratings": verdicts.rated_by,
        "thumbs": verdicts.thumbed_by,
    }
    answers = {"comparisons": 2, "rankings": 4 if wanted.answers is None else wanted.answers}
    if wanted.make == "rankings":
        check_answers(answers["rankings"])
    found = tasks(wanted.n or 1000, answers=answers.get(wanted.make, 1), **_asked(wanted))
    judges = pool(wanted.annotators or "crowd", asked=wanted.asked)
    return makers[wanted.make](judges, found, wanted.seed)


def _asked(wanted: WantedRows) -> dict[str, Any]:
    return {
        "split": wanted.split or "train",
        "seed": wanted.seed,
        "categories": wanted.category or CATEGORIES,
    }
