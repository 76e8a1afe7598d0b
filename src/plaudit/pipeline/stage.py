"""A pipeline as it was written down, checked: stages in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit.configs.resolve import resolve
from plaudit.configs.settings import Names
from plaudit.errors import UserError
from plaudit.pipeline.kinds import Kind

START = "model"
"""What the pipeline's own model is called, where a stage names it: ``$model``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage.

    Example: ``Stage(name="sft", kind=kinds()["sft"], said={"model": "$model", …}, …)``
    """

    name: str
    """What the others call it: ``$name``."""
    kind: Kind
    """What it does."""
    said: Mapping[str, Any]
    """Its settings as they were said, by the names of the settings."""
    values: Mapping[Names, object]
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
        words = [word for own in self.inputs.values() for word in own]
        return tuple(dict.fromkeys(word[1:] for word in words if word[:1] == "$" and word != f"${START}"))

    def config(self, real: Mapping[Names, object], out: Path = Path("run")) -> Any:
        """The record that the kind is told, with what inputs really are."""
        values = {**self.values, **real}
        if self.kind.trains:
            values["out",] = out
        try:
            return resolve(self.kind.settings, values, {})
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All stages.

    Example: ``Pipeline(name="valley", seed=0, model="world", jobs=2, threads=1, stages=(…))``
    """

    name: str
    """What its folder is called."""
    seed: int
    """Of every stage that names none."""
    model: str | None
    """What ``$model`` means: a folder, or the word world."""
    jobs: int
    """How many stages run side by side."""
    threads: int | None
    """Threads of each; None leaves them as they are."""
    stages: tuple[Stage, ...]
    """In an order in which each comes after those that it needs."""

    def stage(self, name: str) -> Stage:
        """The stage of a name."""
        return next(stage for stage in self.stages if stage.name == name)

    def below(self, names: set[str]) -> set[str]:
        """These stages and all that read their results, however far down."""
        found = set(names)
        for stage in self.stages:
            if found & set(stage.needs):
                found.add(stage.name)
        return found
