"""All exercises of the lab, what their folders show, their pages, and a reward that is wrong on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from examples.exercises import (
    coefficients,
    collapse,
    confidence,
    labelling,
    leash,
    objectives,
    over_optimisation,
    pages,
    pooling,
    unseen,
)
from examples.exercises.exercise import Exercise
from plaudit.config import did_you_mean
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.files import atomic


def exercise_folder(exercise: Exercise, out: Path) -> pages.PipelineFolder:
    return pages.PipelineFolder(path=(out / exercise.name).absolute())


def analyse_exercise(exercise: Exercise, folder: pages.PipelineFolder) -> pages.ExerciseResult:
    """The result of an exercise in a folder; raises `UserError` while a stage of it has not ended."""
    stages = [stage.name for stage in pages.read_pipeline(exercise.config).stages]
    missing = [name for name in stages if pages.read_manifest(folder.stage(name)) is None]
    if missing:
        raise UserError(
            f"{folder.path}: {pages.counted(len(missing), 'stage')} of {exercise.name} not finished "
            f"({', '.join(missing)}); run python -m examples.exercises {exercise.name} first"
        )
    return exercise.analyse(folder)


EXERCISES: tuple[Exercise, ...] = (
    pooling.EXERCISE,
    unseen.EXERCISE,
    leash.EXERCISE,
    objectives.EXERCISE,
    coefficients.EXERCISE,
    over_optimisation.EXERCISE,
    collapse.EXERCISE,
    confidence.EXERCISE,
    labelling.EXERCISE,
)
"""First what a reward is worth, then what optimising it does; last what labelling is like."""


def exercises_named(names: list[str]) -> tuple[Exercise, ...]:
    """The exercises of these names, once each, in the order of the names; ``all`` is all of them."""
    by_name = {exercise.name: exercise for exercise in EXERCISES}
    for name in names:
        if name not in by_name and name != "all":
            raise UserError(
                f"there is no exercise {name!r}{did_you_mean(name, ['all', *by_name])}; "
                f"there are {', '.join(by_name)}, and all"
            )
    chosen = [item for name in names for item in (by_name if name == "all" else [name])]
    return tuple(by_name[name] for name in dict.fromkeys(chosen))


def setting_changes(exercise: Exercise, folder: pages.PipelineFolder) -> tuple[str, ...]:
    """How a run's settings differ from its exercise's, as ``own.n: 6, not 1500``, where that matters."""
    ran, planned = pages.read_pipeline(folder.config), pages.read_pipeline(exercise.config)
    before, after = {stage.name for stage in planned.stages}, {stage.name for stage in ran.stages}
    return (
        *(f"stage {name} was added" for name in sorted(after - before)),
        *(f"stage {name} is missing" for name in sorted(before - after)),
        *_setting_differences(*(_settings_by_name(each, before & after) for each in (ran, planned))),
    )


def _setting_differences(ran: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*planned, *ran)):
        if name not in planned:
            yield f"{name}: {ran[name]}"
        elif name not in ran:
            yield f"{name}: not said, and not {planned[name]}"
        elif ran[name] != planned[name]:
            yield f"{name}: {ran[name]}, not {planned[name]}"


def _settings_by_name(pipeline: pages.Pipeline, stages: set[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"seed": pipeline.seed, "model": pipeline.model}
    for stage in pipeline.stages:
        if stage.name in stages:
            given = {"do": stage.kind.name, **stage.raw_settings}
            settings |= {f"{stage.name}.{key}": value for key, value in given.items()}
    return settings


def write_exercise_page(
    exercise: Exercise, folder: pages.PipelineFolder, result: pages.ExerciseResult
) -> Path:
    """Writes the page beside the pipeline's own report and summary; returns where it is."""
    pipeline = pages.read_pipeline_folder(folder.path)
    pages.write_summary(pipeline)
    pages.write_report(folder.path, pipeline=pipeline)
    path = folder.path / pages.PAGE_FILE
    atomic.write_text(
        path, pages.exercise_page(exercise, pipeline, result, setting_changes(exercise, folder))
    )
    return path


def write_overview_page(out: Path, results: Mapping[str, pages.ExerciseResult]) -> Path:
    """Writes the page over all exercises in a folder; ``results`` are those that were looked at just now."""
    path = out / pages.PAGE_FILE
    atomic.write_text(path, pages.overview_page([*_exercise_results(out, results)], EXERCISES))
    return path


def _exercise_results(
    out: Path, results: Mapping[str, pages.ExerciseResult]
) -> Iterator[tuple[Exercise, pages.ExerciseResult | str]]:
    for exercise in EXERCISES:
        folder = exercise_folder(exercise, out)
        if exercise.name in results:
            yield exercise, results[exercise.name]
        elif folder.config.exists():
            try:
                yield exercise, analyse_exercise(exercise, folder)
            except UserError as error:
                yield exercise, str(error)


def long(answer: Text) -> float:
    """One point for every hundred letters, whatever they say.

    >>> long("The owl eats mice.")
    0.18
    """
    return len(plain_text(answer)) / 100
