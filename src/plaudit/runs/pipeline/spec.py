"""A pipeline as it was written down, checked: kinds of stages, the stages in order, and what they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from plaudit.config import Setting, SettingPath, all_settings, resolve
from plaudit.data.write import RowsSettings
from plaudit.errors import UserError
from plaudit.evaluation.policies import WRITTEN
from plaudit.evaluation.settings import EvaluateSettings, JudgeRewardSettings
from plaudit.feedback.attacking import AttackSettings
from plaudit.feedback.judges.constitution import OURS
from plaudit.feedback.judging import JudgeRowsSettings
from plaudit.feedback.revising import ReviseSettings
from plaudit.files import hub
from plaudit.lab.world.shipped import base_model_folder
from plaudit.lab.world.wanted import RowRequest
from plaudit.methods.registry import TABLES, TRAINING_INPUTS, config_types
from plaudit.rewards.combine.request import CombineSettings
from plaudit.rewards.kinds import JUDGE_REWARD
from plaudit.rewards.word_files import refuse_circle, word_from
from plaudit.runs.pipeline.collecting import CollectSettings
from plaudit.runs.pipeline.references import stage_in

WORLD = "world"
"""The word for the model that comes with plaudit."""
ResultType = Literal["model", "reward", "rows", "groups", "evaluation"]
"""What a stage gives to those below it."""
_MODEL: tuple[ResultType, ...] = ("model",)
_REWARD: tuple[ResultType, ...] = ("reward",)
_ROWS: tuple[ResultType, ...] = ("rows",)
_REWARD_METHODS = ("reward", "text-reward", "ranker", "critic")
_TABLE_WEIGHTS = {
    "Preference optimisation": 30,
    "Policy optimisation": 90,
    "Loops that make their own rows": 120,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """One kind of stage.

    Example: ``stage_kinds()["dpo"].produces`` is "model"
    """

    name: str
    produces: ResultType
    settings: type
    accepts: Mapping[str, tuple[ResultType, ...]]
    """The settings that name rows, models or rewards, and which of them a stage above may give."""
    weight: int
    """How long it takes beside others, where nobody has measured: seconds of a small run."""
    trains: bool = False
    """Whether it is a training run, with checkpoints and a run folder of its own."""
    resumes: bool = False
    """Whether it goes on from what it had begun, though it is no training run."""


FIELD_NAMES = ("columns", "leave_out")
"""The settings that say what the fields of a file are; each is a list of words."""
_EVALUATED: Mapping[str, tuple[ResultType, ...]] = {
    **dict.fromkeys(("policies", "against"), _MODEL),
    **dict.fromkeys(("judge", "reward"), _REWARD),
    **{"prompts": _ROWS, "choices": (), "right": ()},
}
PROMPTED_PARTS: Mapping[str, tuple[ResultType, ...]] = {"folder": _MODEL, "shots": _ROWS, "system": ()}
"""What the words of prompted policies name, and which of it a stage above may give."""
PROMPTED = "prompted"
"""Under this name the inputs of a stage have what the words of its prompted policies name."""
_COMBINED = {**dict.fromkeys(("policy", "reference"), _MODEL), "members": _REWARD, "normalise": _ROWS}
_ATTACKED: Mapping[str, tuple[ResultType, ...]] = {
    "targets": _MODEL,
    **dict.fromkeys(("prompts", "twins"), _ROWS),
    **dict.fromkeys(("judge", "refusal"), _REWARD),
    **dict.fromkeys(("by", "templates", "constitution"), ()),
}
_REVISED: Mapping[str, tuple[ResultType, ...]] = {
    **{"model": _MODEL, "prompts": _ROWS, "data": _ROWS},
    **dict.fromkeys(("by", "constitution", "marks"), ()),
}
_JUDGED = {"models": _REWARD, "data": _ROWS}
_JUDGED_ROWS: Mapping[str, tuple[ResultType, ...]] = {
    **{"by": _REWARD, "model": _MODEL, "prompts": _ROWS, "data": _ROWS},
    **dict.fromkeys(("rubric", "constitution", "preamble", "calibrate"), ()),
}
_COLLECTED = {"model": _MODEL, "prompts": _ROWS, "data": _ROWS, "project": ()}
KINDS_WITHOUT_TRAINING = (
    StageKind(name="world-rows", produces="rows", settings=RowRequest, accepts={"model": _MODEL}, weight=5),
    StageKind(name="rows", produces="rows", settings=RowsSettings, accepts={"data": _ROWS}, weight=2),
    StageKind(name="combine", produces="reward", settings=CombineSettings, accepts=_COMBINED, weight=1),
    StageKind(
        name="evaluate", produces="evaluation", settings=EvaluateSettings, accepts=_EVALUATED, weight=20
    ),
    StageKind(
        name="judge-reward", produces="evaluation", settings=JudgeRewardSettings, accepts=_JUDGED, weight=10
    ),
    StageKind(
        name="judge",
        produces="rows",
        settings=JudgeRowsSettings,
        accepts=_JUDGED_ROWS,
        weight=10,
        resumes=True,
    ),
    StageKind(name="attack", produces="evaluation", settings=AttackSettings, accepts=_ATTACKED, weight=20),
    StageKind(name="revise", produces="rows", settings=ReviseSettings, accepts=_REVISED, weight=10),
    StageKind(
        name="collect",
        produces="rows",
        settings=CollectSettings,
        accepts=_COLLECTED,
        weight=10,
        resumes=True,
    ),
)
"""Rows, combined rewards, evaluations, and labels."""


@cache
def stage_kinds() -> Mapping[str, StageKind]:
    """All kinds of stages by name: rows, rewards, evaluations, and every training method."""
    weights = {name: _TABLE_WEIGHTS[table.title] for table in TABLES for name in table.rows}
    kinds = {kind.name: kind for kind in KINDS_WITHOUT_TRAINING}
    for name, config in config_types().items():
        leaves = {setting.key for setting in all_settings(config) if setting.group is None}
        kinds[name] = StageKind(
            name=name,
            produces="reward" if name in _REWARD_METHODS else "groups" if name == "group" else "model",
            settings=config,
            accepts={key: types for key, types in TRAINING_INPUTS.items() if key in leaves},
            weight=weights.get(name, 120 if name == "rlhf" else 20),
            trains=True,
        )
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class HubNames:
    """The commits that the words of a pipeline mean on the hub: those that it began with, and new ones."""

    recorded: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names with commits that the pipeline's folder has, by kind and word."""
    used: dict[str, str] = field(default_factory=dict[str, str])
    """The names with commits of the words that were looked up, in the same way."""

    def local_word(self, word: str, kind: hub.Kind) -> str:
        """`hub.local_word`, with the commit that is recorded for the word; says if the hub has moved on."""
        key = f"{kind} {word}"
        pinned = None if hub.is_plain_path(word, kind) else self.recorded.get(key)
        if pinned is not None:
            hub.say_moved_on(word, kind, pinned, "plaudit run --fresh takes what the hub has now")
        found = hub.local_word(pinned or word, kind)
        name = hub.recorded_name(found)
        if hub.is_commit_name(name):
            self.used[key] = name
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage."""

    name: str
    """What the others call it: ``$name``."""
    kind: StageKind
    """The kind of stage: what it does and what it makes."""
    raw_settings: Mapping[str, Any]
    """Its settings as they were written, by their whole names."""
    values: Mapping[SettingPath, object]
    """The same checked, by the names that lead to them."""
    inputs: Mapping[str, tuple[str, ...]]
    """The settings that name something outside, with the words: ``$sft``, a path, a rule."""
    where: str
    """File, line and name, for messages."""
    weight: int | float
    """How long it takes beside others."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The stages whose results it reads."""
        words = [word for input_words in self.inputs.values() for word in input_words]
        return tuple(dict.fromkeys(name for word in words if (name := stage_in(word)) is not None))

    def config(self, input_values: Mapping[SettingPath, object], out: Path = Path("run")) -> Any:
        """The record of its kind's settings, with ``input_values`` in place of the words of its inputs."""
        values = {**self.values, **input_values}
        if self.kind.trains:
            values["out",] = out
        try:
            return resolve(self.kind.settings, values, {})
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """What a pipeline says beside its stages.

    Example: ``PipelineSettings(name="valley", model="world", jobs=2, threads=1)``
    """

    name: str = ""
    """What its folder is called; empty: as the file."""
    seed: int = 0
    """Of every stage that names none."""
    device: str = "auto"
    """Of every stage that names none: cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    model: str | None = None
    """What $model means: a folder, or world for the model that comes with plaudit."""
    helper: str | None = None
    """What $helper means where ``by`` names who judges, revises, attacks: openai:http://host/v1#model."""
    jobs: int = 1
    """How many stages run side by side, each in a process of its own."""
    threads: int | None = None
    """Threads of each stage; none: as many as there are cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(PipelineSettings):
    """What it says, and its stages."""

    stages: tuple[Stage, ...]
    """In an order in which each comes after those that it needs."""
    hub_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names with commits of what it takes from the hub, as `HubNames` has them."""

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def with_dependents(self, names: set[str]) -> set[str]:
        """These stages and all that read their results, however far down."""
        found = set(names)
        for stage in self.stages:
            if found & set(stage.needs):
                found.add(stage.name)
        return found


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their whole names, with underscores.

    >>> dict(flatten({"policy": {"kl-coef": 0.1}, "policy.beta": 1}))
    {'policy.kl_coef': 0.1, 'policy.beta': 1}
    """
    for name, value in settings.items():
        key = prefix + str(name).replace("-", "_")
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


def word_path(word: str) -> Path:
    """The folder or file of a word; world is the shipped model, unless a folder is called so."""
    return base_model_folder() if word == WORLD and not Path(word).exists() else Path(word)


def file_in_word(word: str) -> Path | None:
    """The file or folder that a word means, where it means one: ``file.py:function`` means its file.

    >>> file_in_word("number") is None
    True
    """
    if Path(word).exists():
        return Path(word)
    file, colon, _ = word.rpartition(":")
    return Path(file) if colon and file.endswith(".py") and Path(file).is_file() else None


_PATH_SETTINGS = ("policies", "policy", "against", "members")
_JUDGE_SETTINGS = ("judge", "models", "refusal", "by")
"""These take whoever compares two answers, beside those who score one."""
_NO_REWARD_SETTINGS = (
    *("held_out", "model", "comparisons", "targets", "templates", "marks"),
    *("constitution", "rubric", "preamble", "calibrate"),
    *_PATH_SETTINGS,
)


def absolute_word(word: str, setting: Setting, names: HubNames, *, rows: bool) -> str:
    """The word of an input as it can be read from any folder; complains about what is not there."""
    if word == WRITTEN and setting.key in ("policies", "against") and not Path(word).exists():
        return word
    if word == OURS and setting.key == "constitution":
        return word
    if word != WORLD:
        word = names.local_word(word, "dataset" if rows else "model")
    file = file_in_word(word)
    if word != WORLD and file is not None:
        return f"{file.absolute()}{word.removeprefix(str(file)) if word.startswith(str(file)) else ''}"
    if word != WORLD and _must_be_path(word, setting):
        hint = hub.name_hint(word, "dataset" if rows else "model")
        raise UserError(f"{setting.key}: {word}: there is no such file or folder{hint}")
    if not rows and word not in ("gold", "people", WORLD, WRITTEN):
        word = word_from(word, Path.cwd())
    if setting.key not in _NO_REWARD_SETTINGS and word not in ("gold", "people", WORLD):
        _check_scorer(word, setting.key)
    return word


def _check_scorer(word: str, key: str) -> None:
    """Look rules, functions and judges up now, so that a slip of the pen does not show after an hour."""
    from plaudit.evaluation.policies.judge import check_judge
    from plaudit.rewards.comparing import compares_pairs
    from plaudit.rewards.registry import resolve_reward

    try:
        refuse_circle(word)
        is_judge = key in _JUDGE_SETTINGS and compares_pairs(word)
        if is_judge or word.startswith(JUDGE_REWARD):
            check_judge(word.removeprefix(JUDGE_REWARD), has_gold=False)
        elif "://" not in word:
            resolve_reward(word)
    except UserError as error:
        raise UserError(f"{key}: {error}") from error


def _must_be_path(word: str, setting: Setting) -> bool:
    """Whether the word can only be a path; rows held out may be a share or a number instead."""
    if setting.key == "held_out":
        return not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word)
    members: tuple[Any, ...] = get_args(setting.value_type) or (setting.value_type,)
    return Path in members or setting.key in _PATH_SETTINGS
