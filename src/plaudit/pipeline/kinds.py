"""The kinds of stages: what each gives, what it can be told, and which settings take another's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from plaudit.configs.settings import all_settings
from plaudit.pipeline.kind_settings import (
    CombineSettings,
    EvaluateSettings,
    JudgeRewardSettings,
    RowsSettings,
)
from plaudit.recipes.methods import METHODS, TABLES, config_types
from plaudit.world.wanted import WantedRows

Sort = Literal["model", "reward", "rows", "groups", "evaluation"]
"""What a stage gives to those below it."""
_MODEL: tuple[Sort, ...] = ("model",)
_REWARD: tuple[Sort, ...] = ("reward",)
_ROWS: tuple[Sort, ...] = ("rows",)
_SCORER: tuple[Sort, ...] = ("model", "reward")
_TAKEN_IN_TRAINING: Mapping[str, tuple[Sort, ...]] = {
    "model": _SCORER,
    "data": _ROWS,
    "prompts": _ROWS,
    "held_out": _ROWS,
    "reward": _REWARD,
    "judge.by": _REWARD,
    "process.by": _REWARD,
    "comparisons": _REWARD,
    "reference.model": _MODEL,
    "critic.model": _SCORER,
    "ptx.data": _ROWS,
    "loop.data": _ROWS,
    "pretraining.data": _ROWS,
    "reward.normalise": _ROWS,
    "teacher": _MODEL,
    "context": (),
}
"""The settings of training that name something outside of it, and what of a pipeline each may name."""
_REWARDS = ("reward", "text-reward", "ranker", "critic")
_WEIGHTS = {"Preference optimisation": 30, "Policy optimisation": 90, "Loops that make their own rows": 120}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of stage.

    Example: ``kind_named("dpo").gives`` is "model"
    """

    name: str
    """What a config calls it."""
    gives: Sort
    """What it makes."""
    settings: type
    """What it can be told."""
    takes: Mapping[str, tuple[Sort, ...]]
    """The settings that name rows, models or rewards, and which of them a stage above may give."""
    weight: int
    """How long it takes beside others, where nobody has measured: seconds of a small run."""
    trains: bool = False
    """Whether it is a training run, with checkpoints and a run folder of its own."""


@cache
def kinds() -> Mapping[str, Kind]:
    """All of them, by name."""
    return {kind.name: kind for kind in (*_plain_kinds(), *_training_kinds())}


def _plain_kinds() -> tuple[Kind, ...]:
    judged: dict[str, tuple[Sort, ...]] = {"models": _REWARD, "data": _ROWS}
    evaluated: dict[str, tuple[Sort, ...]] = {
        "policies": _MODEL,
        "against": _MODEL,
        "judge": _REWARD,
        "reward": _REWARD,
        "prompts": _ROWS,
        "choices": (),
    }
    combined: dict[str, tuple[Sort, ...]] = {
        "members": _REWARD,
        "policy": _MODEL,
        "reference": _MODEL,
        "normalise": _ROWS,
    }
    return (
        Kind(name="world-rows", gives="rows", settings=WantedRows, takes={"model": _MODEL}, weight=5),
        Kind(name="rows", gives="rows", settings=RowsSettings, takes={"data": _ROWS}, weight=2),
        Kind(name="combine", gives="reward", settings=CombineSettings, takes=combined, weight=1),
        Kind(name="evaluate", gives="evaluation", settings=EvaluateSettings, takes=evaluated, weight=20),
        Kind(name="judge-reward", gives="evaluation", settings=JudgeRewardSettings, takes=judged, weight=10),
    )


def _training_kinds() -> tuple[Kind, ...]:
    weights = {name: weight for table in TABLES for name in table.rows for weight in [_WEIGHTS[table.title]]}
    return tuple(
        Kind(
            name=name,
            gives="reward" if name in _REWARDS else "groups" if name == "group" else "model",
            settings=config,
            takes=_taken(config),
            weight=weights.get(name, 120 if name == "rlhf" else 20),
            trains=True,
        )
        for name, config in config_types().items()
    )


def _taken(config: type) -> dict[str, tuple[Sort, ...]]:
    leaves = {setting.key for setting in all_settings(config) if setting.group is None}
    return {name: sorts for name, sorts in _TAKEN_IN_TRAINING.items() if name in leaves}


def plain_names() -> tuple[str, ...]:
    """Kinds that are no rows of the tables of algorithms, for messages."""
    return (*(kind.name for kind in _plain_kinds()), *METHODS)
