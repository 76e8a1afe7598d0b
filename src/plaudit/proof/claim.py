"""A claim about an algorithm, what was measured of it, and the lab in which it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jaxtyping import Float
from torch import Tensor

from plaudit.proof.evidence import Pairs, Thumbs, pairs, thumbs
from plaudit.proof.language import Language, language, two_answers
from plaudit.proof.learn import Effort, Row, settle, task
from plaudit.proof.policy_rows import policy_row
from plaudit.recipes.policy_settings import PolicySettings
from plaudit.recipes.preference_config import PreferenceSettings
from plaudit.recipes.preference_rows import facts_of, row_of
from plaudit.training.policy_row import PolicyRow
from plaudit.training.preference_row import SingleRow

Rows = Callable[[str, PreferenceSettings], Row]
"""From a name and settings to the cells that are proven."""
PolicyRows = Callable[[str, PolicySettings], PolicyRow]
"""The same of policy optimisation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lab:
    """The languages that claims are measured in, and where the rows come from.

    Example: ``lab(seed=0, beta=0.5)``
    """

    beta: float
    """β of every row that has one, and of the objective."""
    spoken: Language
    """Two prompts with fifteen answers each."""
    alone: Language
    """One prompt: for losses with one figure for all prompts."""
    two: Language
    """Prompts with two answers each: whatever a loss wants of a pair can be had."""
    rows: Rows = row_of
    """The table of algorithms; a test puts a wrong one here."""
    policies: PolicyRows = policy_row
    """The one of policy optimisation, likewise."""

    def row(self, name: str, **settings: Any) -> Row:
        """The algorithm at the lab's β, with other settings where they are given."""
        own: dict[str, Any] = {"beta": self.beta} if "beta" in facts_of(name).defaults else {}
        return self.rows(name, PreferenceSettings(**{**own, **settings}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence that a number can refute.

    Example: ``Claim(name="dpo", sentence="…", measure=distance, high=1e-6)``
    """

    name: str
    """The algorithm, or the topic."""
    sentence: str
    """What is claimed, and in which figure."""
    measure: Callable[[Lab], float]
    """The figure."""
    low: int | float = -math.inf
    """The least that it may be."""
    high: int | float = math.inf
    """The most that it may be."""

    @property
    def expected(self) -> str:
        """The bounds in words.

        >>> Claim(name="dpo", sentence="…", measure=lambda lab: 0.0, high=1e-6).expected
        '≤ 1e-06'
        """
        bounds = (("≥", self.low), ("≤", self.high))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A claim with its figure.

    Example: ``measured(claim, lab(seed=0, beta=0.5))``
    """

    claim: Claim
    """What was claimed."""
    value: float
    """What was measured."""

    @property
    def holds(self) -> bool:
        """Whether the figure is within the bounds; what is not a number is not."""
        return self.claim.low <= self.value <= self.claim.high


def lab(*, seed: int = 0, beta: float = 0.5, rows: Rows = row_of, policies: PolicyRows = policy_row) -> Lab:
    """Languages of that seed.

    >>> lab(seed=0, beta=0.5).row("dpo").beta
    0.5
    """
    return Lab(
        beta=beta,
        spoken=language(seed=seed),
        alone=language(seed=seed, prompts=1),
        two=two_answers(seed=seed),
        rows=rows,
        policies=policies,
    )


def measured(claim: Claim, place: Lab) -> Measured:
    """The claim, measured.

    >>> two = Claim(name="sum", sentence="one and one are two", measure=lambda lab: 2.0, low=2, high=2)
    >>> measured(two, lab()).holds
    True
    """
    return Measured(claim=claim, value=float(claim.measure(place)))


def settled(
    row: Row,
    spoken: Language,
    found: Pairs | Thumbs | None = None,
    *,
    baseline: float | None = None,
    start_PY: Float[Tensor, "P Y"] | None = None,
    effort: Effort | None = None,
) -> Float[Tensor, "P Y"]:
    """log π of a table when the row has no more to change; on all pairs (or marks) unless told others."""
    found = feedback(row, spoken) if found is None else found
    return settle(task(row, found, spoken, baseline), start_PY, effort)


@lru_cache(maxsize=128)
def at_rest(place: Lab, name: str, **settings: Any) -> Float[Tensor, "P Y"]:
    """`settled` of an algorithm in the lab's main language; several claims ask for the same one."""
    return settled(place.row(name, **settings), place.spoken)


def feedback(row: Row, spoken: Language) -> Pairs | Thumbs:
    """The feedback that the row reads, in expectation, answers drawn alike."""
    return thumbs(spoken) if isinstance(row, SingleRow) else pairs(spoken)
