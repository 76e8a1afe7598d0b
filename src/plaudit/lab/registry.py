"""Looks at the folder of an exercise, once all of it is there.

All exercises of the lab, in the order in which they are best taken.

Rewards that are wrong on purpose.
"""

from __future__ import annotations

from pathlib import Path

from plaudit.config.fields import did_you_mean
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.lab.exercise import Claim, Exercise, ExerciseResult
from plaudit.lab.exercises import (
    coefficients,
    collapse,
    confidence,
    leash,
    objectives,
    over_optimisation,
    pooling,
    unseen,
)
from plaudit.pipeline.read import read_pipeline
from plaudit.pipeline.store import PipelineFolder, read_manifest
from plaudit.report.words import counted

VERDICTS = {True: "holds", False: "does not hold", None: "not decided"}
"""How a claim came out, in words."""


def claim_verdict(claim: Claim) -> str:
    """A claim's outcome, in words.

    >>> claim_verdict(Claim(statement="Answers grow.", holds=None,
    ...     evidence="27 tokens (20 to 40) became 31 (22 to 45)"))
    'not decided'
    """
    return VERDICTS[claim.holds]


def exercise_folder(exercise: Exercise, out: Path) -> PipelineFolder:
    """Where an exercise lies."""
    return PipelineFolder(path=(out / exercise.name).absolute())


def analyse_exercise(exercise: Exercise, folder: PipelineFolder) -> ExerciseResult:
    """The result of an exercise in a folder; raises `UserError` while a stage of it has not ended."""
    stages = [stage.name for stage in read_pipeline(exercise.config).stages]
    missing = [name for name in stages if read_manifest(folder.stage(name)) is None]
    if missing:
        raise UserError(
            f"{folder.path}: {counted(len(missing), 'stage')} of {exercise.name} not finished "
            f"({', '.join(missing)}); run plaudit lab {exercise.name} first"
        )
    return exercise.analyse(folder)


def claims_summary(result: ExerciseResult) -> str:
    """How many claims came out how.

    >>> claims_summary(ExerciseResult(claims=(Claim(statement="Answers grow.", holds=True,
    ...     evidence="8 tokens became 48"),)))
    '1 of 1 claim holds'
    """
    holding = sum(claim.holds is True for claim in result.claims)
    undecided = sum(claim.holds is None for claim in result.claims)
    summary = f"{holding} of {counted(len(result.claims), 'claim')} {'holds' if holding == 1 else 'hold'}"
    return f"{summary}, {undecided} not decided" if undecided else summary


EXERCISES: tuple[Exercise, ...] = (
    pooling.EXERCISE,
    unseen.EXERCISE,
    leash.EXERCISE,
    objectives.EXERCISE,
    coefficients.EXERCISE,
    over_optimisation.EXERCISE,
    collapse.EXERCISE,
    confidence.EXERCISE,
)
"""First what a reward is worth, then what optimising it does."""


def exercises_named(names: list[str]) -> tuple[Exercise, ...]:
    """The exercises of these names, once each, in the order of the names; ``all`` is all of them."""
    by_name = {one.name: one for one in EXERCISES}
    for name in names:
        if name not in by_name and name != "all":
            raise UserError(
                f"there is no exercise {name!r}{did_you_mean(name, ['all', *by_name])}; "
                f"there are {', '.join(by_name)}, and all"
            )
    chosen = [one for name in names for one in (by_name if name == "all" else [name])]
    return tuple(by_name[name] for name in dict.fromkeys(chosen))


def long(answer: Text) -> float:
    """One point for every hundred letters, whatever they say.

    >>> long("The owl eats mice.")
    0.18
    """
    return len(plain_text(answer)) / 100
