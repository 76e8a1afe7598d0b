"""A pipeline as it was written down, checked: the stages in order, and the words by which they name things.

A word names another stage: ``$sft``, or within the word of a judge ``model:$critic,how=letter``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from plaudit.config import Setting, SettingPath, did_you_mean, resolve
from plaudit.errors import UserError, located
from plaudit.evaluation.policies import WRITTEN
from plaudit.files import hub
from plaudit.rewards.word_files import refuse_circle, word_from
from plaudit.runs.pipeline.kinds import MODEL, ROWS, Accepted, StageKind
from plaudit.wings import everything, load, offered

WORLD = "world"
"""The word for the model that comes with plaudit."""
JUDGED = "judge:"
"""What the word of a reward begins with that is a judge."""
PROMPTED_PARTS: Accepted = {"folder": MODEL, "shots": ROWS, "system": ()}
"""What the words of prompted policies name, and which of it a stage above may give."""
PROMPTED = "prompted"
"""Under this name the inputs of a stage have what the words of its prompted policies name."""
START_MODEL = "model"
"""What the pipeline's own model is called, where a stage names it: ``$model``."""
HELPER = "helper"
"""What the model that judges, revises and attacks is called, where ``by`` names it: ``$helper``."""
_IN_JUDGE = re.compile(r"((?:judge:)*model:)\$([A-Za-z0-9_-]+)(,.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A stage that a word names, and the text around it."""

    name: str
    before: str = ""
    behind: str = ""

    @property
    def is_whole(self) -> bool:
        return not self.before

    def word(self, path: str) -> str:
        return f"{self.before}{path}{self.behind}"


def reference_in(word: str) -> Reference | None:
    """The reference in a word, to a stage or to the pipeline's own model; None where there is none.

    >>> reference_in("$sft"), reference_in("runs/sft")
    (Reference(name='sft', before='', behind=''), None)
    >>> reference_in("model:$critic,how=letter")
    Reference(name='critic', before='model:', behind=',how=letter')
    """
    if word.startswith("$"):
        return Reference(name=word[1:])
    found = _IN_JUDGE.fullmatch(word)
    return found and Reference(before=found[1], name=found[2], behind=found[3] or "")


def stage_in(word: str) -> str | None:
    """The name of the stage that a word names; the pipeline's own model is none.

    >>> stage_in("$sft"), stage_in("$model"), stage_in("model:$critic")
    ('sft', None, 'critic')
    """
    found = reference_in(word)
    return None if found is None or found.name == START_MODEL else found.name


def with_helper(word: str, helper: str) -> str:
    """A word in which ``$helper`` stands for this one; settings behind it stay.

    >>> with_helper("$helper,how=points", "model:runs/sft"), with_helper("$reward", "model:runs/sft")
    ('model:runs/sft,how=points', '$reward')
    """
    return f"{helper}{word.removeprefix(f'${HELPER}')}" if names_helper(word) else word


def names_helper(word: str) -> bool:
    """Whether a word is ``$helper``, with or without settings.

    >>> names_helper("$helper"), names_helper("$helper,how=points"), names_helper("$helpers")
    (True, True, False)
    """
    return word.partition(",")[0] == f"${HELPER}"


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
    """One stage.

    Example: ``Stage(name="sft", kind=stage_kinds()["sft"], raw_settings={"model": "$model"}, …)``
    """

    name: str
    """What the others call it: ``$name``."""
    kind: StageKind
    """What it does and what it makes."""
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
    processes: int | None = None
    """In how many processes it runs, where it can run in several; none: as the pipeline says."""

    @property
    def divides(self) -> bool:
        """Whether it can run in several processes."""
        return self.kind.trains or self.kind.divides(self.config({}))

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
        with located(self.where):
            return resolve(self.kind.settings, values, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
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
    processes: int | None = None
    """In how many processes each stage runs; none: one, or all that torchrun or its like began."""
    threads: int | None = None
    """Threads of each process; none: a stage has as many as there are cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(PipelineSettings):
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
    """The folder or file of a word; world and other models that come along, unless a folder is called so."""
    if not is_shipped(word) or Path(word).exists():
        return Path(word)
    return offered("base_model_folder")() if word == WORLD else load(everything("models")[word])


def is_shipped(word: object) -> bool:
    """Whether a word means a model that comes along with a wing."""
    return word == WORLD or word in everything("models")


def file_in_word(word: str) -> Path | None:
    """The file or folder that a word means, where it means one: ``file.py:function`` means its file."""
    if Path(word).exists():
        return Path(word)
    file, colon, _ = word.rpartition(":")
    return Path(file) if colon and file.endswith(".py") and Path(file).is_file() else None


_PATH_SETTINGS = ("policies", "policy", "against", "members")
_JUDGE_SETTINGS = ("judge", "judges", "models", "refusal", "by")
"""These take whoever compares two answers, beside those who score one."""
_NO_REWARD_SETTINGS = (
    *("held_out", "model", "comparisons", "targets", "templates", "marks"),
    *("constitution", "rubric", "preamble", "calibrate"),
    *_PATH_SETTINGS,
)


def absolute_word(
    word: str, setting: Setting, names: HubNames, *, rows: bool, own: tuple[str, ...] = ()
) -> str:
    """The word of an input as it can be read from any folder; complains about what is not there.
    ``own`` are the words that the kind of stage has for this setting, beside files."""
    if word in own and not Path(word).exists():
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
        _check_scorer(word, setting.key, own)
    return word


def _check_scorer(word: str, key: str, own: tuple[str, ...]) -> None:
    # Look rules, functions and judges up now, so that a slip of the pen does not show after an hour.
    from plaudit.evaluation.policies.judge import check_judge
    from plaudit.rewards.comparing import compares_pairs
    from plaudit.rewards.registry import resolve_reward

    try:
        refuse_circle(word)
        is_judge = key in _JUDGE_SETTINGS and compares_pairs(word)
        if is_judge or word.startswith(JUDGED):
            check_judge(word.removeprefix(JUDGED), has_gold=False)
        elif "://" not in word:
            resolve_reward(word)
    except UserError as error:
        words = f"; or {', '.join(own)}{did_you_mean(word, own)}" if own else ""
        raise UserError(f"{key}: {error}{words}") from error


def _must_be_path(word: str, setting: Setting) -> bool:
    # Whether the word can only be a path; rows held out may be a share or a number instead.
    if setting.key == "held_out":
        return not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word)
    members: tuple[Any, ...] = get_args(setting.value_type) or (setting.value_type,)
    return Path in members or setting.key in _PATH_SETTINGS
