"""All exercises of the lab, in the order in which they are best taken."""

from __future__ import annotations

from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError
from plaudit.lab import (
    coefficients,
    collapse,
    confidence,
    leash,
    objectives,
    over_optimisation,
    pooling,
    unseen,
)
from plaudit.lab.exercise import Exercise

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
    known = {one.name: one for one in EXERCISES}
    for name in names:
        if name not in known and name != "all":
            raise UserError(
                f"there is no exercise {name!r}{did_you_mean(name, ['all', *known])}; "
                f"there are {', '.join(known)}, and all"
            )
    wanted = [one for name in names for one in (known if name == "all" else [name])]
    return tuple(known[name] for name in dict.fromkeys(wanted))
