"""Several runs beside each other: which settings differ, what came of each, how each learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plaudit.errors import UserError
from plaudit.reports.reading import is_evaluation, is_pipeline, read_story
from plaudit.reports.story import Stage, Story
from plaudit.training.page.facts import RunFacts, read_facts

_MISSING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run and what the page calls it.

    Example: ``Run(name="valley-2", story=read_story(Path("runs/valley-2")))``
    """

    name: str
    """Unlike that of every other."""
    story: Story
    """What its folder tells."""


def read_runs(folders: Sequence[Path]) -> tuple[Run, ...]:
    """The runs of these folders, under names that tell them apart."""
    real = [folder.resolve() for folder in folders]
    for at, folder in enumerate(real):
        if folder in real[:at]:
            raise UserError(f"{folders[at]}: named twice; a run is not compared with itself")
    shared = 0
    parts = [folder.parts for folder in real]
    while all(len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    return tuple(
        Run(name="/".join(own[shared:]), story=_story(folder))
        for own, folder in zip(parts, folders, strict=True)
    )


def differing(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """Each setting that is not the same in all runs, with what it is in each.

    >>> differing([])
    {}
    """
    told = [dict(_flat(_settings(run.story), "")) for run in runs]
    names = dict.fromkeys(name for one in told for name in one)
    values = {name: tuple(one.get(name, _MISSING) for one in told) for name in names}
    return {name: own for name, own in values.items() if len(set(own)) > 1}


def _story(folder: Path) -> Story:
    if is_pipeline(folder) or is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return read_story(folder)
    facts = read_facts(folder)
    return Story(path=folder, name=facts.name, config=facts.config, stages=(_training(facts),))


def _training(facts: RunFacts) -> Stage:
    """A training run alone, as the only stage."""
    return Stage(
        name="training",
        number=1,
        do="",
        state="done" if facts.finished else "begun",
        folder=facts.path,
        needs=(),
        settings={},
        inputs=(),
        outputs={},
        key="",
        code={},
        seconds=None,
        ended="",
        command="",
        said=(),
        checks=(),
        run=facts,
        found=None,
        rewards=(),
        changed=(),
    )


def _settings(story: Story) -> Any:
    try:
        return yaml.safe_load(story.config) or {}
    except yaml.YAMLError as error:
        raise UserError(
            f"{story.path}: its config is not YAML ({type(error).__name__}). Restore it."
        ) from error


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every setting under its full name; a list of single entries, as of stages, is read as those entries."""
    if isinstance(value, list) and all(isinstance(one, Mapping) and len(one) == 1 for one in value):
        value = {key: inside for one in value for key, inside in one.items()}
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _flat(inside, f"{name}.{key}" if name else str(key))
    else:
        yield name, str(value)
