"""Rewards of several sources by one word: ``cascade:FILE``, ``blend:FILE``, ``gated:FILE``.

A file is a list of rewards by their words (rules, folders, judges, functions), so that they combine wherever
a reward has a name: ``--reward``, configs, pipelines, ``eval reward``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from plaudit.config import did_you_mean
from plaudit.data.records import Task
from plaudit.errors import UserError, located
from plaudit.rewards.base import Reward, RewardTraits
from plaudit.rewards.combine import cascade
from plaudit.rewards.combine.cascade import Blend, Cascade, OfParts, ScoresWithParts, Tier

_Numbers = Sequence[Mapping[str, float | None]]
_KEYS = {"cascade": ("sure", "centre"), "blend": ("weight",), "gated": ("below",)}
_MEMBERS = {"cascade": "two rewards or more", "blend": "two rewards or more", "gated": "a gate and another"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated(OfParts):
    """One reward that decides where it is low, and another elsewhere (Llama 2, Touvron et al. 2023)."""

    name: str
    gate: Reward
    """Its own score counts where it is below the threshold."""
    other: Reward
    below: float = 0.0

    def __post_init__(self) -> None:
        """Refuse two parts of the same name: figures could not tell them apart."""
        cascade.refuse_duplicate_names(self.name, self.traits.members)

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=(self.gate, self.other))

    def scores_with_parts(self, tasks: Sequence[Task]) -> ScoresWithParts:
        """The scores, what each said, and where the gate decides."""
        gates, others = self.gate.scores(tasks), self.other.scores(tasks)
        closed = tuple(
            tuple(None if score is None else float(score < self.below) for score in row) for row in gates
        )
        rows = tuple(
            tuple(
                None if is_closed is None else gate if is_closed else other
                for is_closed, gate, other in zip(*columns, strict=True)
            )
            for columns in zip(closed, gates, others, strict=True)
        )
        parts = {self.gate.name: gates, self.other.name: others, f"{self.gate.name} decides": closed}
        return ScoresWithParts(rows=rows, parts=parts)


def combined_by_name(word: str, resolve: Callable[[str], Reward]) -> Reward:
    """The reward of such a word; ``resolve`` makes a reward of each member's word."""
    kind, _, place = word.partition(":")
    path = Path(place)
    rows = _read(path, kind)
    # A folder takes its time to load: what is wrong with a number is said before.
    numbers = [{key: _number(path, n, row, key) for key in _KEYS[kind]} for n, row in enumerate(rows, 1)]
    rewards = [resolve(str(row["reward"])) for row in rows]
    return _MAKERS[kind](path.stem, rewards, numbers)


def member_words(word: str) -> list[str]:
    kind, _, place = word.partition(":")
    return [str(row["reward"]) for row in _read(Path(place), kind)]


def _cascade(name: str, rewards: Sequence[Reward], numbers: _Numbers) -> Cascade:
    tiers = tuple(
        Tier(reward=reward, confidence_threshold=row["sure"], centre=row["centre"] or 0.0)
        for reward, row in zip(rewards, numbers, strict=True)
    )
    return Cascade(name=name, tiers=tiers)


def _blend(name: str, rewards: Sequence[Reward], numbers: _Numbers) -> Blend:
    weights = [row["weight"] for row in numbers]
    if None in weights:
        raise UserError(f"{name}: member {weights.index(None) + 1}: weight is missing; give shares of 1")
    return Blend(name=name, rewards=tuple(rewards), weights=tuple(w for w in weights if w is not None))


def _gated(name: str, rewards: Sequence[Reward], numbers: _Numbers) -> Gated:
    if len(rewards) != 2 or numbers[1]["below"] is not None:
        raise UserError(f"{name}: the first reward is the gate, with below; the second decides elsewhere")
    gate, other = rewards
    return Gated(name=name, gate=gate, other=other, below=numbers[0]["below"] or 0.0)


_MAKERS: Mapping[str, Callable[[str, Sequence[Reward], _Numbers], Reward]] = {
    "cascade": _cascade,
    "blend": _blend,
    "gated": _gated,
}


def _read(path: Path, kind: str) -> list[Mapping[str, object]]:
    with located(f"{path}: cannot be read as a list of rewards", OSError, ValueError, yaml.YAMLError):
        rows = yaml.safe_load(path.read_text("utf-8"))
    if not isinstance(rows, list) or len(rows) < 2:
        raise UserError(f"{path}: expected a list of {_MEMBERS[kind]}, each with its word as reward")
    return [_member(path, number, row, ("reward", *_KEYS[kind])) for number, row in enumerate(rows, 1)]


def _member(path: Path, number: int, row: object, names: Sequence[str]) -> Mapping[str, object]:
    if isinstance(row, str):
        return {"reward": row}
    if not isinstance(row, dict) or not isinstance(row.get("reward"), str):
        raise UserError(f"{path}, member {number}: expected a reward's word, found {row!r:.60}")
    for name in row:
        if name not in names:
            raise UserError(
                f"{path}, member {number}: nothing is called {name!r}{did_you_mean(str(name), names)}"
            )
    return row


def _number(path: Path, number: int, row: Mapping[str, object], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{path}, member {number}: {key} is {value!r}, expected a number")
    return float(value)
