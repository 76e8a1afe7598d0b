"""Rows about pictures, written to a folder with the pictures beside them, and the stage that makes them."""

import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from plaudit.bounds import FromOne, check_bounds
from plaudit.data.judging import to_comparison
from plaudit.data.records import Demonstration, Message, Part, Prompt, Record, Task, assistant_turn
from plaudit.data.write import check_output_path, write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies import Split
from plaudit.pictures.world.crowd import people
from plaudit.pictures.world.questions import (
    KINDS,
    STYLES,
    Kind,
    Question,
    answer_in_style,
    questions,
    usual_answer,
)
from plaudit.pictures.world.scenes import render
from plaudit.runs import StageKind, StageResult

RowKind = Literal["demonstrations", "comparisons", "prompts"]
PICTURES = "pictures"
"""The folder of the pictures, beside the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRows:
    make: RowKind
    """The kind of rows."""
    n: FromOne = 1000
    """How many, each about a picture of its own."""
    split: Split = "train"
    """Whose scenes: no scene is in two splits."""
    questions: tuple[Kind, ...] = ()
    """Kinds of questions, in turn; none: all of them."""
    annotators: str | None = None
    """The pool that compares: crowd, experts or dazzled; none: crowd."""
    errors: bool = False
    """Whether demonstrators err and invent as the teachers of the shipped model did."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.make not in get_args(RowKind):
            raise UserError(f"make {self.make!r}: expected one of {', '.join(get_args(RowKind))}")
        if self.annotators is not None and self.make != "comparisons":
            raise UserError(f"annotators says nothing to {self.make}: it goes with comparisons")
        people(self.annotators or "crowd")


def prompt_of(question: Question) -> tuple[Message, ...]:
    """What the user says: the picture, named as it lies beside the rows, and the question."""
    picture = Part(kind="image", source=f"{PICTURES}/{question.scene.name}.png")
    return (Message(role="user", content=(picture, Part(kind="text", text=question.words))),)


def task_of(question: Question, answers: list[str]) -> Task:
    """The question with answers, for rewards and people."""
    return Task(
        prompt=prompt_of(question),
        answers=tuple(map(assistant_turn, answers)),
        ended=(True,) * len(answers),
        category=question.kind,
        metadata=question.metadata,
    )


def rows(request: PictureRows) -> Iterator[tuple[Question, Record]]:
    """The rows, each with its question; their pictures are still to be written."""
    rng = random.Random(f"rows {request.make} {request.split} {request.seed}")
    pool = people(request.annotators or "crowd")
    kinds = request.questions or KINDS
    for question in islice(questions(request.split, seed=request.seed, kinds=kinds), request.n):
        prompt, right = prompt_of(question), answer_in_style(question, "right", rng)
        if request.make == "prompts":
            yield question, Prompt(prompt=prompt, answer=right, metadata=question.metadata)
        elif request.make == "demonstrations":
            answer = usual_answer(question, rng) if request.errors else right
            completion = assistant_turn(answer)
            yield question, Demonstration(prompt=prompt, completion=completion, category=question.kind)
        else:
            task = task_of(question, _two_answers(question, rng))
            (verdict,) = rng.choice(pool).verdicts([task], rng.getrandbits(32))
            assert verdict is not None
            yield question, to_comparison(task, verdict)


def _two_answers(question: Question, rng: random.Random) -> list[str]:
    """What people usually answer, and something else, in an order that says nothing."""
    usual = other = usual_answer(question, rng)
    while other == usual:
        other = answer_in_style(question, rng.choice(STYLES), rng)
    return rng.sample([usual, other], 2)


def write_rows(request: PictureRows, path: Path) -> str:
    """Write the rows and, in a folder beside them, their pictures; says in a sentence what was made."""
    check_output_path(path)
    folder = path.parent / PICTURES
    folder.mkdir(exist_ok=True)

    def written() -> Iterator[Record]:
        for question, record in rows(request):
            render(question.scene).save(folder / f"{question.scene.name}.png", optimize=True)
            yield record

    n = write_records(written(), path).rows
    judged = f" by the {request.annotators or 'crowd'} pool" if request.make == "comparisons" else ""
    return f"{n} rows of {request.make} about pictures{judged}, {request.split} split, seed {request.seed}"


def _run_stage(settings: PictureRows, out: Path, *_: object) -> StageResult:
    code = f"from {__name__} import *; write_rows({settings!r}, Path('rows.jsonl'))"
    sentence = write_rows(settings, out / "rows.jsonl")
    return StageResult(sentences=(sentence,), command=f"python -c {shlex.quote(code)}")


PICTURE_ROWS = StageKind(
    name="picture-rows", produces="rows", settings=PictureRows, accepts={}, run=_run_stage, weight=5
)
