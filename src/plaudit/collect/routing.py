"""Who is asked: judges keep what they are sure of, cheap ones first, and people are asked the rest.

How sure is sure enough shows on a random sample that people labelled too. From the surest pairs down, a
twentieth of all at a time, it is tested whether judge and people agree as often as wanted, until a test
fails: fixed-sequence testing by exact binomial tails, as Jung et al. 2024 (arXiv:2407.18370) have it. With
chance ≥ 1 − risk what is kept agrees with people as often as wanted, or nothing is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from plaudit.errors import UserError

STEP = 0.05
"""The share of all pairs by which a judge keeps more from one test to the next."""
_ROOM = 2.0
"""How many times the fewest labels that can prove it are tested first: one error then need not end it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """How often what judges keep agrees with people, and the chance that this is wrong all the same."""

    agreement: float
    risk: float = 0.1
    judges: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.risk < 1:
            raise UserError(f"risk {self.risk:g}: expected a chance above 0 and below 1, such as 0.1")
        if self.agreement == 1:
            most = Promise(agreement=0.99, risk=self.risk, judges=self.judges).fewest
            raise UserError(
                "agreement 1: no sample proves that a judge never errs, so people would have to label all; "
                f"0.99 takes a sample of at least {most} labels"
            )
        if not 0.5 < self.agreement < 1:
            raise UserError(f"agreement {self.agreement:g}: expected a share above 0.5 and below 1")

    @property
    def level(self) -> float:
        """The risk of each judge: labels that decided about one decide about no other, so chances multiply.

        >>> round(Promise(agreement=0.9, risk=0.19, judges=2).level, 6)
        0.1
        """
        return 1 - (1 - self.risk) ** (1 / self.judges)

    @property
    def fewest(self) -> int:
        """How many labels prove it where the judge agrees with all of them: agreement ** n ≤ level.

        >>> Promise(agreement=0.9).fewest, Promise(agreement=0.99).fewest
        (22, 230)
        """
        return math.ceil(math.log(self.level) / math.log(self.agreement))

    def refuse_small(self, sample: int) -> None:
        """Complain about a sample that could not prove it, whatever judges say of it."""
        if sample < self.fewest:
            raise UserError(
                f"agreement {self.agreement:g} at risk {self.risk:g}: {sample} labels cannot prove it, even "
                f"if judges agree with all of them; take a sample of at least {self.fewest}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one judge keeps of the pairs that it was asked about."""

    threshold: float | None
    """How sure it has to be, from 0.5 to 1; None where it keeps nothing."""
    retained_B: np.ndarray
    passed_B: np.ndarray
    """What the next judge is asked. The step at which a test failed is not among it: its labels were looked
    at, and a judge behind that were tested on them again would be tested on what is no random sample."""
    tested: int = 0
    """Labels of people on what it keeps."""
    agreeing: int = 0
    """On how many of them it agrees."""


def keep_sure(sure_B: np.ndarray, agrees_B: np.ndarray, labelled_B: np.ndarray, promise: Promise) -> Retained:
    """What a judge keeps, where people labelled a random sample of what it was asked.

    sure_B: the chance that it gives to the answer it prefers; NaN where it prefers none.
    agrees_B: whether people prefer that one too, read where ``labelled_B`` only.

    >>> sure, right = np.linspace(0.5, 1, 400), np.arange(400) >= 200
    >>> kept = keep_sure(sure, right, np.ones(400, bool), Promise(agreement=0.8))
    >>> int(kept.retained_B.sum()), kept.tested, kept.agreeing
    (223, 223, 200)
    """
    threshold, end = None, math.inf
    tested = agreeing = 0
    for candidate in _candidates(sure_B, int(labelled_B.sum()), promise.fewest):
        end = candidate
        tried_B = labelled_B & (sure_B >= candidate)
        count, right = int(tried_B.sum()), int((agrees_B & tried_B).sum())
        # P(X ≥ right) if they agreed just as often as wanted: the chance to see this where they do so less.
        if bdtrc(right - 1, count, promise.agreement) > promise.level:
            break
        threshold, tested, agreeing = candidate, count, right
    retained_B = sure_B >= (math.inf if threshold is None else threshold)
    return Retained(
        threshold=threshold,
        retained_B=retained_B,
        passed_B=~(sure_B >= end),
        tested=tested,
        agreeing=agreeing,
    )


def _candidates(sure_B: np.ndarray, labelled: int, fewest: int) -> Iterator[float]:
    # Thresholds from the surest down, fixed before any label is read: by how sure the judge is of all pairs.
    reported = np.sort(sure_B[np.isfinite(sure_B)])[::-1]
    expected = labelled * len(reported) / max(len(sure_B), 1)
    if expected < fewest:
        return
    before = math.inf
    for share in (*np.arange(min(_ROOM * fewest / expected, 1.0), 1.0, STEP), 1.0):
        candidate = float(reported[math.ceil(share * len(reported)) - 1])
        # Pairs that a judge is equally sure of are kept together.
        if candidate < before:
            yield candidate
        before = candidate


def keep_in_order(
    sure_JB: Sequence[np.ndarray], agrees_JB: Sequence[np.ndarray], labelled_B: np.ndarray, promise: Promise
) -> list[Retained]:
    """What each judge keeps, in order, where all of them were asked about everything."""
    found, queried_B = list[Retained](), np.ones(len(labelled_B), bool)
    for sure_B, agrees_B in zip(sure_JB, agrees_JB, strict=True):
        retained = keep_sure(sure_B[queried_B], agrees_B[queried_B], labelled_B[queried_B], promise)
        retained_B, passed_B = np.zeros_like(queried_B), np.zeros_like(queried_B)
        retained_B[queried_B], passed_B[queried_B] = retained.retained_B, retained.passed_B
        facts = {name: getattr(retained, name) for name in ("threshold", "tested", "agreeing")}
        found.append(Retained(retained_B=retained_B, passed_B=passed_B, **facts))
        queried_B = passed_B
    return found
