"""Looks at the folder of an exercise, once all of it is there."""

from __future__ import annotations

from pathlib import Path

from plaudit.errors import UserError
from plaudit.lab.exercise import Claim, Exercise, Seen
from plaudit.page.words import counted
from plaudit.pipeline.folder import Folder, read_seal
from plaudit.pipeline.reading import read_pipeline

VERDICTS = {True: "holds", False: "does not hold", None: "not decided"}
"""How a claim came out, in words."""


def verdict(claim: Claim) -> str:
    """How a claim came out.

    >>> verdict(Claim(says="Answers grow.", holds=None, saw="27 tokens (20 to 40) became 31 (22 to 45)"))
    'not decided'
    """
    return VERDICTS[claim.holds]


def place_of(exercise: Exercise, out: Path) -> Folder:
    """Where an exercise lies."""
    return Folder(path=(out / exercise.name).absolute())


def looked(exercise: Exercise, folder: Folder) -> Seen:
    """What is to be seen there; refused while a stage of it has not ended."""
    stages = [stage.name for stage in read_pipeline(exercise.config).stages]
    missing = [name for name in stages if read_seal(folder.stage(name)) is None]
    if missing:
        raise UserError(
            f"{folder.path}: {counted(len(missing), 'stage')} of {exercise.name} not finished "
            f"({', '.join(missing)}); run plaudit lab {exercise.name} first"
        )
    return exercise.look(folder)


def tally(seen: Seen) -> str:
    """How many claims came out how.

    >>> tally(Seen(claims=(Claim(says="Answers grow.", holds=True, saw="8 tokens became 48"),)))
    '1 of 1 claim holds'
    """
    held = sum(claim.holds is True for claim in seen.claims)
    open_ = sum(claim.holds is None for claim in seen.claims)
    said = f"{held} of {counted(len(seen.claims), 'claim')} {'holds' if held == 1 else 'hold'}"
    return f"{said}, {open_} not decided" if open_ else said
