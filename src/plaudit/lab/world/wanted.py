"""Requests for rows of the world, by kind, count, annotators and prompts, and their stage; no torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from plaudit.bounds import FromOne, check_bounds
from plaudit.data.files import file_ending
from plaudit.data.records import Demonstration, Record
from plaudit.data.write import check_output_path, write_records
from plaudit.errors import UserError
from plaudit.lab.world.annotators import ASPECTS, POOLS, Aspect, annotator_pool
from plaudit.lab.world.demonstrators import demonstrator_pool, worth_sentence
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.questions import CATEGORIES, Category
from plaudit.runs import StageKind, StageResult, command_line, options_of

RowKind = Literal[
    "demonstrations",
    "comparisons",
    "rankings",
    "ratings",
    "thumbs",
    "prompts",
    "red-team",
    "twins",
    "plain-text",
    "helpful-only",
    "revisions",
    "critiques",
    "points",
]
CRITIQUE_KIND = "critiques"
"""Ratings with a true critique beside each: made for critics, and written with a field more."""
RECORD_KINDS: tuple[str, ...] = tuple(kind for kind in get_args(RowKind) if kind != CRITIQUE_KIND)
JUDGED_KINDS = ("comparisons", "rankings", "ratings", "thumbs")
_SPLIT_KINDS = tuple(kind for kind in get_args(RowKind) if kind != "plain-text")
_KINDS_OF_SETTING: Mapping[str, Sequence[str]] = {
    "annotators": JUDGED_KINDS,
    "aspect": JUDGED_KINDS,
    "model": JUDGED_KINDS,
    "temperature": JUDGED_KINDS,
    "answers": ("rankings",),
    "demonstrators": ("demonstrations",),
    "split": _SPLIT_KINDS,
    "category": _SPLIT_KINDS,
}
"""The kinds that a setting matters to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    make: RowKind
    """The kind of rows."""
    n: FromOne | None = None
    """How many; none: 1000, and of prompts all that there are."""
    annotators: str | None = None
    """The pool that judges (plaudit world annotators); none: crowd."""
    demonstrators: str | None = None
    """The pool that writes demonstrations (plaudit world demonstrators); none: authors, who err never."""
    aspect: Aspect | None = None
    """The part of an answer's worth that they judge alone: helpful, concise …; none: all of it."""
    model: Path | None = None
    """Whose answers are judged; none: answers in the manner of the base corpus."""
    temperature: float | None = None
    """The model's scores are divided by it when it answers; none: 1."""
    split: Split | None = None
    """Whose prompts; none: train."""
    category: tuple[Category, ...] = ()
    """Kinds of prompts; none: the eight that the shipped model has read, in turn."""
    answers: int | None = None
    """Answers in a ranking, 2 to 9; none: 4."""
    device: str = "auto"
    """Where the model answers: cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        for setting, kinds in _KINDS_OF_SETTING.items():
            if getattr(self, setting) not in (None, ()) and self.make not in kinds:
                raise UserError(f"--{setting} says nothing to {self.make}; it goes with {', '.join(kinds)}")
        check_bounds(self)
        if self.annotators is not None and self.annotators not in POOLS:
            raise UserError(f"there is no pool {self.annotators!r}; choose from {', '.join(POOLS)}")
        if self.demonstrators is not None:
            # For its complaint.
            demonstrator_pool(self.demonstrators)
        self._refuse_temperatures()
        if self.aspect is not None and self.aspect not in ASPECTS:
            raise UserError(f"nobody can be asked about {self.aspect!r}; choose from {', '.join(ASPECTS)}")

    def _refuse_temperatures(self) -> None:
        if self.temperature is None:
            return
        if self.model is None:
            raise UserError("--temperature is of a model's answers: it goes with --model")
        if not 0 < self.temperature < math.inf:
            # At 0 all answers to a prompt are the same one.
            raise UserError(f"temperature {self.temperature:g}: expected a number above 0")

    def sentence(self, rows: int) -> str:
        """What was made, in words.

        >>> RowRequest(make="thumbs", n=8).sentence(8)
        '8 rows of thumbs by the crowd pool, train split, seed 0'
        """
        judged = f" by the {self.annotators or 'crowd'} pool" if self.make in JUDGED_KINDS else ""
        judged += f" by the {self.demonstrators} pool" if self.demonstrators else ""
        judged += f", asked what is {self.aspect}" if self.aspect else ""
        split = "" if self.make == "plain-text" else f", {self.split or 'train'} split"
        return f"{rows} rows of {self.make}{judged}{split}, seed {self.seed}"


def write_requested_rows(request: RowRequest, path: Path) -> tuple[str, ...]:
    check_output_path(path)
    if request.make == CRITIQUE_KIND:
        from plaudit.lab.world.teaching import critiques, write_critiques

        file_ending(path, (".jsonl",))
        critiqued = critiques(request.n or 1000, **_prompt_selection(request))
        write_critiques(critiqued, path)
        return (request.sentence(len(critiqued)),)
    rows = _make_rows(request)
    sentence = request.sentence(write_records(rows, path).rows)
    written = [row for row in rows if isinstance(row, Demonstration)]
    # Of authors it is known beforehand.
    return (sentence, worth_sentence(written)) if request.demonstrators else (sentence,)


def _make_rows(request: RowRequest) -> Sequence[Record]:
    from plaudit.lab.world import making, teaching
    from plaudit.lab.world.teaching import helpful_only, revisions
    from plaudit.lab.world.twins import twins

    if request.make in JUDGED_KINDS:
        return _make_judged_rows(request)
    n, selection = request.n or 1000, _prompt_selection(request)
    makers: Mapping[str, Callable[[], Sequence[Record]]] = {
        "demonstrations": lambda: making.demonstrations(
            n, demonstrator_pool(request.demonstrators or "authors"), **selection
        ),
        "prompts": lambda: making.prompts(request.n, **selection),
        "red-team": lambda: making.prompts(request.n, **selection, red_team=True),
        "twins": lambda: twins(request.n, **selection),
        "points": lambda: teaching.points(n, **selection),
        "plain-text": lambda: making.plain_statements(n, seed=request.seed),
        "helpful-only": lambda: helpful_only(n, **selection),
        "revisions": lambda: revisions(n, **selection),
    }
    return makers[request.make]()


def _make_judged_rows(request: RowRequest) -> Sequence[Record]:
    from plaudit.lab.world import verdicts
    from plaudit.lab.world.making import answer_tasks, check_answers

    if request.model is not None:
        from plaudit.evaluation.policies.generate import DividedSampler
        from plaudit.lab.world.making import model_answer_tasks

        temperature = 1.0 if request.temperature is None else request.temperature
        answer_tasks = partial(
            model_answer_tasks, DividedSampler(request.model, device=request.device), temperature=temperature
        )
    makers: Mapping[str, Callable[..., Sequence[Record]]] = {
        "comparisons": verdicts.make_comparisons,
        "rankings": verdicts.make_rankings,
        "ratings": verdicts.make_ratings,
        "thumbs": verdicts.make_thumbs,
    }
    answers = {"comparisons": 2, "rankings": 4 if request.answers is None else request.answers}
    if request.make == "rankings":
        check_answers(answers["rankings"])
    judged_tasks = answer_tasks(
        request.n or 1000, answers=answers.get(request.make, 1), **_prompt_selection(request)
    )
    judges = annotator_pool(request.annotators or "crowd", aspect=request.aspect)
    return makers[request.make](judges, judged_tasks, request.seed)


def _prompt_selection(request: RowRequest) -> dict[str, Any]:
    return {
        "split": request.split or "train",
        "seed": request.seed,
        "categories": request.category or CATEGORIES,
    }


def _run_stage(settings: RowRequest, out: Path, *_: object) -> StageResult:
    path = out / "rows.jsonl"
    sentences = write_requested_rows(settings, path)
    options = {**options_of(settings, "make"), "category": [*settings.category]}
    command = command_line("plaudit world make", settings.make, out=path, **options)
    return StageResult(sentences=sentences, command=command)


WORLD_ROWS = StageKind(
    name="world-rows",
    produces="rows",
    settings=RowRequest,
    accepts={"model": ("model",)},
    run=_run_stage,
    weight=5,
    divides=lambda settings: settings.model is not None,
)
