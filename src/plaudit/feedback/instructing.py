"""Prompts with instructions that a program can check, drawn by rule: tasks × kinds of IFEval's instructions.

    made = write_instructed(InstructSettings(n=2000, without=("startend:quotation",)), Path("train.jsonl"))

What may be asked, and in which words, is in ``instructions.yaml``. Kinds that are left out show later what a
policy learnt beyond the kinds that it was rewarded for. Each row that is written has verdicts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from plaudit.bounds import FromOne, check_bounds
from plaudit.config import did_you_mean
from plaudit.data.read import read_records
from plaudit.data.records import Prompt, Task, turns_of, words_of
from plaudit.data.write import check_output_path, write_records
from plaudit.errors import UserError
from plaudit.rewards.verifiable.instructions import InstructionReward

MOST_INSTRUCTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructSettings:
    """Which prompts are made."""

    prompts: Path | None = None
    """Rows whose prompts are the tasks; none: tasks about everyday things, by rule."""
    n: FromOne = 1000
    """How many."""
    most: int = MOST_INSTRUCTIONS
    """The most instructions of a prompt, 1 to 3: half of all prompts have one."""
    without: tuple[str, ...] = ()
    """Kinds of instruction that no prompt may have, held out for a test."""
    only: tuple[str, ...] = ()
    """The kinds that there may be; none: all."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if not 1 <= self.most <= MOST_INSTRUCTIONS:
            raise UserError(f"most {self.most}: expected 1 to {MOST_INSTRUCTIONS}")
        every = instruction_table()["kinds"]
        for kind in (*self.without, *self.only):
            if kind not in every:
                raise UserError(f"there is no kind of instruction {kind!r}{did_you_mean(kind, every)}")
        if not self.kinds:
            raise UserError("no kind of instruction is left")

    @property
    def kinds(self) -> tuple[str, ...]:
        every = self.only or tuple(instruction_table()["kinds"])
        return tuple(kind for kind in every if kind not in self.without)


@cache
def instruction_table() -> Mapping[str, Any]:
    text = resources.files("plaudit.feedback").joinpath("instructions.yaml").read_text("utf-8")
    table = yaml.safe_load(text)
    table["subjects"] = [subject.strip() for subject in table["subjects"].split(",")]
    return table | {name: table[name].split() for name in ("words", "common", "letters")}


def write_instructed(settings: InstructSettings, path: Path) -> tuple[str, ...]:
    """Make the prompts and write those that have verdicts; returns what was made, in sentences."""
    check_output_path(path)
    checkers = InstructionReward()
    tasks, notes = ((), ()) if settings.prompts is None else _tasks_of(settings.prompts)
    made = list(_instructed_prompts(settings, tasks))
    # A word is asked, for an answer without one is not put to a checker.
    answer: Any = {"answers": ("Yes.",), "ended": (True,)}
    verdicts = checkers.verdicts([Task(prompt=row.prompt, metadata=row.metadata, **answer) for row in made])
    rows = [row for row, (verdict,) in zip(made, verdicts, strict=True) if verdict is not None]
    if not rows:
        raise UserError(f"no prompt has a verdict: {'; '.join(checkers.refused)}")
    write_records(rows, path)
    by_kind = Counter(kind for (verdict,) in verdicts for kind, *_ in verdict or ())
    left_out = (f"{count} prompts left out: {why}" for why, count in checkers.refused.items())
    shares = ", ".join(f"{kind} {count}" for kind, count in by_kind.most_common())
    return (f"{len(rows)} prompts with {sum(by_kind.values())} instructions: {shares}", *notes, *left_out)


def _tasks_of(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    turns = [turns_of(record.prompt) for record in read_records(path, threshold=0).records]
    texts = [words_of(row[0]) for row in turns if len(row) == 1 and row[0].role == "user"]
    if not texts:
        raise UserError(f"{path} has no prompt of one text or one user's turn to add instructions to")
    others = len(turns) - len(texts)
    note = f"{others} rows of {path} left out: their prompts are more than one user's turn"
    return tuple(dict.fromkeys(texts)), (note,) if others else ()


def _instructed_prompts(settings: InstructSettings, tasks: Sequence[str]) -> Iterator[Prompt]:
    """Prompts as wanted, no two the same; fewer where chance finds no other any more."""
    rng, made_before = random.Random(f"instructed {settings.seed}"), set[str]()
    kinds = instruction_table()["kinds"]
    if tasks:
        # It is not known which of them can be answered by yes or no.
        kinds = {kind: about for kind, about in kinds.items() if not about.get("question")}
    allowed = [kind for kind in settings.kinds if kind in kinds]
    if not allowed:
        raise UserError(f"{', '.join(settings.kinds)}: goes with questions, not with prompts of yours")
    for number in range(settings.n):
        for _ in range(100):
            prompt = _instructed(number, rng, settings, {kind: kinds[kind] for kind in allowed}, tasks)
            if prompt.prompt not in made_before:
                break
        else:
            raise UserError(f"only {number} prompts differ, and {settings.n} are asked for: ask for fewer")
        made_before.add(str(prompt.prompt))
        yield prompt


def _instructed(
    number: int,
    rng: random.Random,
    settings: InstructSettings,
    kinds: Mapping[str, Any],
    tasks: Sequence[str],
) -> Prompt:
    table = instruction_table()
    most = rng.choice([1, *range(1, settings.most + 1)])
    chosen: list[str] = []
    taken = set[str]()
    for kind in rng.sample([*kinds], len(kinds)):
        parts = set(kinds[kind]["parts"])
        if not chosen or (len(chosen) < most and not taken & (parts | {"all"}) and "all" not in parts):
            chosen.append(kind)
            taken |= parts
    if tasks:
        task = rng.choice(tasks)
    else:
        forms = table["questions" if any(kinds[kind].get("question") for kind in chosen) else "tasks"]
        task = rng.choice(forms).format(rng.choice(table["subjects"]))
    # Words are drawn once a prompt: none is asked for and forbidden.
    words = iter(rng.sample(table["words"], len(table["words"])))
    sentences, kwargs = [], []
    for kind in chosen:
        way = rng.choice(kinds[kind]["ways"])
        about = {name: _value(rng, values, task, words) for name, values in way.get("about", {}).items()}
        lists = {name: ", ".join(value) for name, value in about.items() if isinstance(value, list)}
        sentences.append(rng.choice(way["say"]).format(**about | lists))
        kwargs.append(about)
    prompt = " ".join([task, *sentences])
    return Prompt(prompt=prompt, metadata={"key": number, "instruction_id_list": chosen, "kwargs": kwargs})


def _value(rng: random.Random, values: Any, task: str, words: Iterator[str]) -> Any:
    if isinstance(values, list):
        return rng.choice(values)
    table = instruction_table()
    drawn: Mapping[str, Callable[[], Any]] = {
        "word": lambda: next(words),
        "words": lambda: [next(words) for _ in range(rng.choice([1, 2, 3]))],
        "common": lambda: rng.sample(table["common"], rng.choice([1, 2, 3])),
        "letter": lambda: rng.choice(table["letters"]),
        "task": lambda: task,
    }
    return drawn[values]() if values in drawn else values
