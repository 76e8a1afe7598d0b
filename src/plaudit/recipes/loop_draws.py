"""What a round is asked, and what is answered to it: drawn, scored, and kept as lines of JSON."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from plaudit.batches.cut import Refused
from plaudit.batches.question import Question, questions_of
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.recipes.config import RowSettings
from plaudit.records.dicts import text_as_plain
from plaudit.records.messages import words
from plaudit.rewards.reward import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import SamplingSettings
from plaudit.sources.layouts import ReadOptions
from plaudit.sources.read import read_records
from plaudit.training import durable, exact_json
from plaudit.training.judged_answers import JudgedGroup, judged

AT_ONCE = 64
"""Prompts that are answered, and then scored, before the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer, as it is kept.

    Example: ``Said(text="An apple.", tokens=4, ended=True, score=0.7)``
    """

    text: str
    """The words."""
    tokens: int
    """How many tokens were drawn."""
    ended: bool
    """Whether it came to an end by itself."""
    score: float | None
    """What the reward says; None is no verdict."""


@runtime_checkable
class Asking(Protocol):
    """What is known of the prompts of a loop."""

    @property
    def prompts(self) -> Path:
        """Their file."""
        ...

    @property
    def format(self) -> str | None:
        """Its layout; None: told from the rows."""
        ...

    @property
    def rows(self) -> RowSettings:
        """How it is read."""
        ...

    @property
    def room(self) -> int:
        """The longest prompt beside which the longest answer fits, in tokens."""
        ...


def questions(config: Asking, encoder: Encoder, aside: Path) -> tuple[tuple[Question, ...], list[str]]:
    """The prompts of the file, each once, and what is to be said of them; too many bad ones are refused."""
    reading = read_records(
        config.prompts,
        format=config.format,
        threshold=config.rows.threshold,
        quarantine=aside / "quarantine-prompts.jsonl",
        options=ReadOptions(split=config.rows.split, ties=config.rows.ties),
    )
    found = questions_of(reading.records, encoder, config.room)
    asking = [one for one in found.examples if _asks(one)]
    silent = [
        Refused(origin=one.origin, reason="there is no prompt in it")
        for one in found.examples
        if not _asks(one)
    ]
    refused = [*found.refused, *silent]
    if not asking:
        why = f" ({refused[0].origin}: {refused[0].reason})" if refused else ""
        raise UserError(f"{config.prompts}: there is no prompt to answer{why}")
    if len(refused) > math.floor(config.rows.threshold * (len(asking) + len(refused)) + 1e-9):
        first = "\n".join(f"  {one.origin}: {one.reason}" for one in refused[:5])
        raise UserError(
            f"{config.prompts}: {len(refused)} prompts cannot be answered, above the threshold of "
            f"{config.rows.threshold:.1%}. The first:\n{first}\nMend them, or set --rows.threshold higher"
        )
    notes = [f"{count} rows: {note}" for note, count in found.notes.items()]
    notes += [f"{len(refused)} prompts cannot be answered ({refused[0].reason} …)"] if refused else []
    return tuple(asking), [reading.sentence, *notes]


def share_of(asked: Sequence[Question], count: int | None, number: int, seed: int) -> list[Question]:
    """The prompts of a round: all of them, or so many, others in each round until all had their turn."""
    if count is None or count >= len(asked):
        return list(asked)
    order = list(range(len(asked)))
    random.Random(f"{seed}/prompts").shuffle(order)
    first = (number - 1) * count
    return [asked[order[(first + k) % len(order)]] for k in range(count)]


def draw(
    asked: Sequence[Question], sampler: LocalSampler, reward: Reward, settings: SamplingSettings, n: int
) -> Iterator[JudgedGroup]:
    """For each prompt ``n`` answers with their scores."""
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        yield from judged(some, sampler.rollouts([one.text for one in some], settings, n=n), reward)


def write_answers(path: Path, groups: Sequence[JudgedGroup]) -> None:
    """All answers, a line for each prompt; the file appears whole or not at all."""
    durable.write_text(path, "".join(exact_json.dumps(_line(group)) + "\n" for group in groups))


def read_answers(path: Path) -> list[tuple[Said, ...]]:
    """What was written, prompt by prompt."""
    fields = Said.__dataclass_fields__
    # Of all that a text may break a line with, JSON escapes this one alone.
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    return [
        tuple(Said(**{name: one[name] for name in fields}) for one in exact_json.loads(line)["answers"])
        for line in lines
    ]


def _asks(question: Question) -> bool:
    text = question.text
    last = text if isinstance(text, str) else text[-1:]
    return bool(words(last).strip()) and (isinstance(text, str) or text[-1].role in ("user", "tool"))


def _line(group: JudgedGroup) -> Mapping[str, Any]:
    answers: list[dict[str, object]] = []
    for place, (one, score) in enumerate(zip(group.answers, group.scores, strict=True)):
        said = one.answer
        parts = {name: row[place] for name, row in group.parts.items()}
        own = {"text": said.text, "tokens": said.tokens, "ended": said.ended, "score": score}
        answers.append({**own, "parts": parts} if parts else dict(own))
    question = group.question
    return {"prompt": text_as_plain(question.text), "origin": question.origin, "answers": answers}
