"""All that ``plaudit train rejection`` and its relatives can be told; without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.loop_table import LoopFacts
from plaudit.recipes.preference_config import PreferenceSettings
from plaudit.recipes.preference_table import PREFERENCES
from plaudit.rollouts.sampling import SamplingSettings

_OF_ALL = ("rounds", "answers", "prompts", "distinct")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What is drawn and chosen; what is not set is as the algorithm has it (``plaudit train --list``).

    Example: ``LoopSettings(rounds=3, answers=8)``
    """

    rounds: int | None = None
    """How often it draws, chooses and trains."""
    answers: int | None = None
    """Answers to each prompt."""
    prompts: int | None = None
    """Prompts of a round, others in each until all had their turn; none: all of them."""
    distinct: bool = False
    """Of equal answers to a prompt only the first can be chosen."""
    improves: int | None = None
    """Rounds that learn from the same answers before new ones are drawn (rest)."""
    threshold: tuple[float, ...] = ()
    """The least score, one for each round; the last one stays."""
    top: tuple[float, ...] = ()
    """In place of a threshold the share of all answers that is kept, the best; one for each round."""
    keep: int | None = None
    """At most so many answers of a prompt, the first that were drawn (expert, rest, rest-em, rso)."""
    beta: float | None = None
    """How dear distance from the drawing policy is: small values accept only the best (rso)."""
    gap: float | None = None
    """Pairs have scores further apart than this (rs-dpo)."""
    teach: str | None = None
    """The row of the preference table that learns from pairs (plaudit train --list)."""
    reference: Literal["auto", "newest", "start"] = "auto"
    """What a round is held near: the model that it trains, or the command's. auto: as the row has it."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning in any row."""
        for name in ("rounds", "answers", "prompts", "improves", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"loop.{name} must be at least 1, not {value}")
        if self.beta is not None and not 0 < self.beta < math.inf:
            raise UserError(f"loop.beta must be a number above 0, not {self.beta:g}")
        if self.gap is not None and not 0 <= self.gap < math.inf:
            raise UserError(f"loop.gap must be a number from 0 on, not {self.gap:g}")
        if not all(math.isfinite(one) for one in self.threshold):
            raise UserError(f"loop.threshold: expected numbers, not {self.threshold}")
        if not all(0 < one <= 1 for one in self.top):
            raise UserError(f"loop.top: expected shares above 0 and at most 1, not {self.top}")
        if self.threshold and self.top:
            raise UserError("loop.threshold and loop.top say the same thing in two ways; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(RunConfig):
    """Rounds of drawing, choosing and training; training settings are those of each round.

    Example: ``LoopConfig(model=Path("sft"), prompts=Path("p.jsonl"), reward="number", out=Path("runs/r"))``
    """

    data: Path = field(init=False)
    """The prompts, under the name that every run has for its rows."""
    prompts: Path
    """The prompts: rows of any kind, of which only the prompts are read, and a reference answer."""
    reward: str
    """What scores answers: a reward's folder, a rule, http://…, module:function or file.py:function."""
    held_out: str = "0"
    """Rows of a round that it does not train: a share of them, or a file; 0 for none."""
    epochs: float = 1.0
    """How often each round goes through its rows."""
    learning_rate: float = 1e-6
    """The peak learning rate, as pairs want it; answers (sft) want about ten times more, LoRA as well."""
    loop: LoopSettings = field(default_factory=LoopSettings)
    """What is drawn and chosen."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How answers are drawn."""
    preference: PreferenceSettings = field(default_factory=PreferenceSettings)
    """The cells of the preference row, where one learns."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        RunConfig.__post_init__(self)
        if self.room < 1:
            raise UserError(
                f"sampling.max_tokens {self.sampling.max_tokens} leaves no room for a prompt within "
                f"max_length {self.max_length}; let answers be shorter, or rows longer"
            )

    @property
    def room(self) -> int:
        """The longest prompt beside which the longest answer fits, in tokens."""
        return self.max_length - self.sampling.max_tokens


def settled(facts: LoopFacts, config: LoopConfig) -> LoopSettings:
    """All settings of an algorithm, its row's where nothing was said; refuses what it does not read."""
    said, unsaid = config.loop, LoopSettings()
    given = [one.name for one in fields(said) if getattr(said, one.name) != getattr(unsaid, one.name)]
    unread = [one for one in given if one not in (*facts.defaults, *facts.also, *_OF_ALL)]
    if unread:
        words = " and ".join(f"loop.{one}" for one in unread)
        raise UserError(f"{words}: {facts.name} has no such setting; leave it out")
    if not facts.pairs and config.preference != PreferenceSettings():
        raise UserError(f"preference: {facts.name} learns answers, not pairs; leave out what is said of it")
    rivals = {"threshold", "top"} if {"threshold", "top"} & {*given} else set[str]()
    usual = {name: value for name, value in facts.defaults.items() if name not in {*given} | rivals}
    how = replace(said, **usual)
    _refuse_nothing_to_choose(facts, config, how)
    _refuse_other_teacher(facts, how)
    return how


def _refuse_nothing_to_choose(facts: LoopFacts, config: LoopConfig, how: LoopSettings) -> None:
    assert how.answers is not None
    if how.answers < facts.least:
        raise UserError(
            f"loop.answers {how.answers}: {facts.name} chooses among the answers to a prompt; draw "
            f"{facts.least} or more"
        )
    if config.sampling.greedy and how.answers > 1:
        raise UserError(
            "sampling.temperature 0 draws the same answer every time, so there is nothing to choose; "
            "give a number above 0"
        )


def _refuse_other_teacher(facts: LoopFacts, how: LoopSettings) -> None:
    teach = how.teach or facts.teach
    if facts.pairs and teach not in PREFERENCES:
        raise UserError(f"loop.teach {teach!r}: give a row of the preference table (plaudit train --list)")
    if facts.pairs and how.reference == "newest" and not PREFERENCES[teach].reference:
        raise UserError(f"loop.reference newest: {teach} has no reference; leave it out")
