"""A pipeline as it was written down, checked: stages in the order in which they run, and what they name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from plaudit.config import Setting, SettingPath, resolve
from plaudit.errors import UserError
from plaudit.pipeline.stages import StageKind
from plaudit.world.shipped import base_model_folder

START_MODEL = "model"
"""What the pipeline's own model is called, where a stage names it: ``$model``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage.

    Example: ``Stage(name="sft", kind=stage_kinds()["sft"], raw_settings={"model": "$model", …}, …)``
    """

    name: str
    """What the others call it: ``$name``."""
    kind: StageKind
    """What it does."""
    raw_settings: Mapping[str, Any]
    """Its settings as they were said, by the names of the settings."""
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
        return tuple(
            dict.fromkeys(word[1:] for word in words if word[:1] == "$" and word != f"${START_MODEL}")
        )

    def config(self, input_values: Mapping[SettingPath, object], out: Path = Path("run")) -> Any:
        """The record that the kind is told, with what inputs really are."""
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
    model: str | None = None
    """What $model means: a folder, or world for the model that comes with plaudit."""
    jobs: int = 1
    """How many stages run side by side, each in a process of its own."""
    threads: int | None = None
    """Threads of each stage; none: as many as there are cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(PipelineSettings):
    """What it says, and its stages.

    Example: ``Pipeline(name="valley", model="world", jobs=2, threads=1, stages=(…))``
    """

    stages: tuple[Stage, ...]
    """In an order in which each comes after those that it needs."""

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def with_dependents(self, names: set[str]) -> set[str]:
        """These stages and all that read their results, however far down."""
        names_found = set(names)
        for stage in self.stages:
            if names_found & set(stage.needs):
                names_found.add(stage.name)
        return names_found


WORLD = "world"
"""The word for the model that comes with plaudit."""
_NO_REWARDS = ("gold", "people")
_PATH_SETTINGS = ("policies", "against", "members")
_NO_REWARD_SETTINGS = ("held_out", "model", "comparisons", *_PATH_SETTINGS)


def word_path(word: str) -> Path:
    """The folder or file of a word; world is the shipped model, unless a folder is called so."""
    return base_model_folder() if word == WORLD and not Path(word).exists() else Path(word)


def absolute_word(word: str, setting: Setting) -> str:
    """The word of an input as it can be read from any folder; complains about what is not there."""
    file = file_in_word(word)
    if word != WORLD and file is not None:
        return f"{file.absolute()}{word.removeprefix(str(file)) if word.startswith(str(file)) else ''}"
    if word != WORLD and _must_be_path(word, setting):
        raise UserError(f"{setting.key}: {word}: there is no such file or folder")
    if setting.key not in _NO_REWARD_SETTINGS and word not in _NO_REWARDS and "://" not in word:
        # Rules and functions are looked up now, so that a slip of the pen does not show after an hour.
        from plaudit.rewards.registry import resolve_reward

        try:
            resolve_reward(word)
        except UserError as error:
            raise UserError(f"{setting.key}: {error}") from error
    return word


def file_in_word(word: str) -> Path | None:
    """The file or folder that a word means, where it means one: ``file.py:function`` means its file.

    >>> file_in_word("number") is None
    True
    """
    if Path(word).exists():
        return Path(word)
    file, colon, _ = word.rpartition(":")
    return Path(file) if colon and file.endswith(".py") and Path(file).is_file() else None


def _must_be_path(word: str, setting: Setting) -> bool:
    """Whether the word can only be a path; rows held out may be a share or a number instead."""
    if setting.key == "held_out":
        return not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word)
    members: tuple[Any, ...] = get_args(setting.value_type) or (setting.value_type,)
    return Path in members or setting.key in _PATH_SETTINGS
