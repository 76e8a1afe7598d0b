"""The kinds of stages: what each gives, what it can be told, and which settings take another's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from plaudit.config import all_settings
from plaudit.data.write import RowsSettings
from plaudit.methods.registry import METHODS, TABLES, config_types
from plaudit.rewards.combine.manifest import CombineSettings
from plaudit.world.wanted import EvaluateSettings, JudgeRewardSettings, RowRequest

ResultType = Literal["model", "reward", "rows", "groups", "evaluation"]
"""What a stage gives to those below it."""
_MODEL: tuple[ResultType, ...] = ("model",)
_REWARD: tuple[ResultType, ...] = ("reward",)
_ROWS: tuple[ResultType, ...] = ("rows",)
_SCORER: tuple[ResultType, ...] = ("model", "reward")
_TRAINING_INPUTS: Mapping[str, tuple[ResultType, ...]] = {
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
_REWARD_METHODS = ("reward", "text-reward", "ranker", "critic")
_TABLE_WEIGHTS = {
    "Preference optimisation": 30,
    "Policy optimisation": 90,
    "Loops that make their own rows": 120,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """One kind of stage.

    Example: ``kind_named("dpo").produces`` is "model"
    """

    name: str
    """What a config calls it."""
    produces: ResultType
    """What it makes."""
    settings: type
    """What it can be told."""
    accepts: Mapping[str, tuple[ResultType, ...]]
    """The settings that name rows, models or rewards, and which of them a stage above may give."""
    weight: int
    """How long it takes beside others, where nobody has measured: seconds of a small run."""
    trains: bool = False
    """Whether it is a training run, with checkpoints and a run folder of its own."""


@cache
def stage_kinds() -> Mapping[str, StageKind]:
    """All kinds of stages by name: rows, rewards, evaluations, and every training method."""
    return {kind.name: kind for kind in (*_kinds_without_training(), *_training_kinds())}


_EVALUATE_INPUTS: Mapping[str, tuple[ResultType, ...]] = {
    "policies": _MODEL,
    "against": _MODEL,
    "judge": _REWARD,
    "reward": _REWARD,
    "prompts": _ROWS,
    "choices": (),
}
_COMBINE_INPUTS: Mapping[str, tuple[ResultType, ...]] = {
    "members": _REWARD,
    "policy": _MODEL,
    "reference": _MODEL,
    "normalise": _ROWS,
}
_OTHER_KINDS: tuple[tuple[str, ResultType, type, Mapping[str, tuple[ResultType, ...]], int], ...] = (
    ("world-rows", "rows", RowRequest, {"model": _MODEL}, 5),
    ("rows", "rows", RowsSettings, {"data": _ROWS}, 2),
    ("combine", "reward", CombineSettings, _COMBINE_INPUTS, 1),
    ("evaluate", "evaluation", EvaluateSettings, _EVALUATE_INPUTS, 20),
    ("judge-reward", "evaluation", JudgeRewardSettings, {"models": _REWARD, "data": _ROWS}, 10),
)
"""Name, result, settings, inputs and weight of the kinds that train nothing."""


def _kinds_without_training() -> tuple[StageKind, ...]:
    return tuple(
        StageKind(name=name, produces=produces, settings=settings, accepts=accepts, weight=weight)
        for name, produces, settings, accepts, weight in _OTHER_KINDS
    )


def _training_kinds() -> tuple[StageKind, ...]:
    weights = {
        name: weight for table in TABLES for name in table.rows for weight in [_TABLE_WEIGHTS[table.title]]
    }
    return tuple(
        StageKind(
            name=name,
            produces="reward" if name in _REWARD_METHODS else "groups" if name == "group" else "model",
            settings=config,
            accepts=_training_inputs(config),
            weight=weights.get(name, 120 if name == "rlhf" else 20),
            trains=True,
        )
        for name, config in config_types().items()
    )


def _training_inputs(config: type) -> dict[str, tuple[ResultType, ...]]:
    leaves = {setting.key for setting in all_settings(config) if setting.group is None}
    return {name: result_types for name, result_types in _TRAINING_INPUTS.items() if name in leaves}


def kind_names() -> tuple[str, ...]:
    """Kinds that are no rows of the tables of algorithms, for messages."""
    return (*(kind.name for kind in _kinds_without_training()), *METHODS)
