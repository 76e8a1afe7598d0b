"""What was run otherwise than an exercise has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plaudit.lab.exercise import Exercise
from plaudit.pipeline.folder import Folder
from plaudit.pipeline.reading import read_pipeline
from plaudit.pipeline.stage import Pipeline


def changes(exercise: Exercise, folder: Folder) -> tuple[str, ...]:
    """Every setting that differs, as ``own.n: 6, not 1500``; what changes no result is passed over."""
    ran, planned = read_pipeline(folder.config), read_pipeline(exercise.config)
    names = {stage.name for stage in ran.stages}, {stage.name for stage in planned.stages}
    return (
        *(f"stage {name} was added" for name in sorted(names[0] - names[1])),
        *(f"stage {name} is missing" for name in sorted(names[1] - names[0])),
        *_differing(_settings(ran, names[0] & names[1]), _settings(planned, names[0] & names[1])),
    )


def _differing(ran: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*planned, *ran)):
        if name not in planned:
            yield f"{name}: {ran[name]}"
        elif name not in ran:
            yield f"{name}: not said, and not {planned[name]}"
        elif ran[name] != planned[name]:
            yield f"{name}: {ran[name]}, not {planned[name]}"


def _settings(pipeline: Pipeline, stages: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": pipeline.seed, "model": pipeline.model}
    for stage in pipeline.stages:
        if stage.name in stages:
            found |= {f"{stage.name}.do": stage.kind.name, **dict(_flat(stage.said, stage.name))}
    return found


def _flat(said: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}.{name}")
        else:
            yield f"{above}.{name}", value
