"""What draws people to an answer beside what it says: its place, its length, a list, a refusal.

Of each person the shares alone; of all together one logistic model, in which everything else is equal:

    logit P(the first shown is preferred) = place[person] + length + list + refusal + what the others say

as differences between the first and the second shown. What the others say stands for the worth of the
answers: without it, whoever prefers right answers would seem to love whatever right answers look like.
Intervals are clustered by prompt (Liang and Zeger 1986), and p-values of people are corrected by Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plaudit.collect.quality.result import Drift, Figure, Odds
from plaudit.collect.quality.skill import FIRST, TIE, Votes
from plaudit.evaluation import stats

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

LEAST_PREFERENCES = 20
"""Preferences that a person needs for odds of their own."""
LENGTHS_DIFFER = 30
"""Characters from which one answer counts as the longer (AlpacaEval's figure)."""
NOTHING = "no label says anything of it"
NO_PREFERENCES = f"nobody has {LEAST_PREFERENCES} preferences of both places"
TOO_FEW = f"fewer than {LEAST_PREFERENCES} preferences"
ONE_SIDE = "always the same place, so that the odds have no end"
_MOST_STEPS, _MOST_STEP = 50, 5.0
_MOST_LOGIT = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Votes for one of two answers, ties left out, as they were shown."""

    person_B: Int[np.ndarray, " B"]
    first_B: Bool[np.ndarray, " B"]
    """Whether the answer shown first is preferred."""
    gap_BF: Float[np.ndarray, "B F"]
    """How much more characters, log-length, lists and refusals the first shown has."""
    others_B: Float[np.ndarray, " B"]
    """The log-odds that the others prefer the first shown."""
    prompt_B: Int[np.ndarray, " B"]
    people: int


def preferences_of(
    votes: Votes,
    looks_UF: Float[np.ndarray, "U F"],
    prompt_U: Int[np.ndarray, " U"],
    others_BK: Float[np.ndarray, "B K"],
) -> Preferences:
    """The preferences among votes; ``others_BK`` are the chances of each truth without the vote itself."""
    chosen = votes.choice_B != TIE
    # From the pair's own order to the one shown: second less first, turned round where it was not swapped.
    sign_B = np.where(votes.swapped_B, 1.0, -1.0)[chosen]
    first_B = np.clip(others_BK[chosen, FIRST] + others_BK[chosen, TIE] / 2, 1e-9, 1 - 1e-9)
    # Bounded, since a chance of 0.9999 is sure of the fit and not of the answers.
    log_odds_B = np.clip(np.log(first_B / (1 - first_B)), -_MOST_LOGIT, _MOST_LOGIT)
    return Preferences(
        person_B=votes.person_B[chosen],
        first_B=votes.shown_B[chosen] == FIRST,
        gap_BF=looks_UF[votes.pair_B[chosen]] * sign_B[:, None],
        others_B=-sign_B * log_odds_B,
        prompt_B=prompt_U[votes.pair_B[chosen]],
        people=votes.people,
    )


def rows_by_person(person_B: Int[np.ndarray, " B"], people: int) -> list[Int[np.ndarray, " N"]]:
    """The rows of each person, in their order."""
    ends_J = np.cumsum(np.bincount(person_B, minlength=people))
    return np.split(np.argsort(person_B, kind="stable"), ends_J)[:people]


def shares_of_people(preferences: Preferences) -> dict[str, list[Figure]]:
    """Of each person the shares for the first shown, the longer, the list and the refusal."""
    rows_J = rows_by_person(preferences.person_B, preferences.people)
    characters_B, _, lists_B, refusals_B = preferences.gap_BF.T
    gaps = {
        "first": np.ones(len(preferences.first_B)),
        "longer": np.where(np.abs(characters_B) > LENGTHS_DIFFER, characters_B, 0.0),
        "lists": lists_B,
        "refusals": refusals_B,
    }
    return {
        name: [
            clustered_share((gap_B[rows] > 0) == preferences.first_B[rows], preferences.prompt_B[rows])
            for rows in (whole[gap_B[whole] != 0] for whole in rows_J)
        ]
        for name, gap_B in gaps.items()
    }


def share(hits: Sequence[bool] | np.ndarray) -> Figure:
    """A share of things that are independent, with Wilson's interval (1927).

    >>> found = share([True] * 22 + [False] * 3)
    >>> found.value, round(found.low, 4), found.n
    (0.88, 0.7004, 25)
    """
    if not len(hits):
        return Figure(value=None, reason=NOTHING)
    value = float(np.mean(hits))
    low, high = stats.wilson_interval(value, len(hits))
    return Figure(value=value, low=low, high=high, n=len(hits))


def clustered_share(hit_B: Bool[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> Figure:
    """A share with Wilson's interval for as many labels as these are worth (Korn and Graubard 1998).

    n is divided by the design effect, the variance of sums over prompts over that of independent labels:
    nine answers that one person has ranked are 36 pairs, but not 36 opinions.

    >>> alone = clustered_share(np.array([True, True, False, True]), np.arange(4))
    >>> twice = clustered_share(np.repeat([True, True, False, True], 2), np.repeat(np.arange(4), 2))
    >>> alone.value == twice.value, round(alone.low, 6) == round(twice.low, 6)
    (True, True)
    """
    if not len(hit_B):
        return Figure(value=None, reason=NOTHING)
    value = float(hit_B.mean())
    cluster_B = np.unique(prompt_B, return_inverse=True)[1]
    error_G = np.bincount(cluster_B, hit_B - value)
    variance = float((error_G**2).sum()) / len(hit_B) ** 2
    # Where all are alike nothing varies, and prompts are what there is.
    worth = value * (1 - value) / variance if variance > 0 else len(error_G)
    low, high = stats.wilson_interval(value, max(1, min(len(hit_B), worth)))  # type: ignore[arg-type]
    return Figure(value=value, low=low, high=high, n=len(hit_B))


@dataclass(frozen=True, slots=True, kw_only=True)
class Biases:
    place: tuple[Figure, ...]
    """Of each person the odds of the first shown."""
    place_p: tuple[float | None, ...]
    """The p-value of each, by Holm's rule for all people."""
    shared: tuple[Odds, ...]
    """Of length, list, refusal and others, for all people together."""


SHARED = (
    ("length", "an answer twice as long"),
    ("list", "an answer with a list"),
    ("refusal", "an answer that refuses"),
    ("others", "an answer of which the others' odds are twice as high"),
)
"""What the model has in common for all people, and what its odds are of."""


def odds_of(preferences: Preferences) -> Biases:
    """Odds ratios with clustered intervals, of each person's place and of what sways all."""
    gap_BF = np.column_stack([preferences.gap_BF[:, 1:], preferences.others_B])
    # In doublings, which a reader can picture, where a logarithm is meant.
    gap_BF[:, [0, 3]] /= math.log(2)
    count_J = np.bincount(preferences.person_B, minlength=preferences.people)
    first_J = np.bincount(preferences.person_B, preferences.first_B, minlength=preferences.people)
    one_side_J = (first_J == 0) | (first_J == count_J)
    fitted_J = (count_J >= LEAST_PREFERENCES) & ~one_side_J
    rows_B = fitted_J[preferences.person_B]
    y_B = preferences.first_B[rows_B].astype(float)
    faults = _faults(gap_BF[rows_B], y_B)
    columns = [feature for feature, fault in enumerate(faults) if not fault]
    people = np.flatnonzero(fitted_J)
    found = fit_with_places(
        gap_BF[rows_B][:, columns],
        np.searchsorted(people, preferences.person_B[rows_B]),
        y_B,
        preferences.prompt_B[rows_B],
    )
    place, p = _place_odds(found, people, count_J)
    shared = _shared_odds(found, len(people), gap_BF[rows_B], faults)
    return Biases(place=tuple(place), place_p=tuple(holm_of_known(p)), shared=shared)


def _place_odds(
    found: PlaceFit, fitted: Int[np.ndarray, " P"], count_J: Int[np.ndarray, " J"]
) -> tuple[list[Figure], list[float | None]]:
    # Of each person the odds of the first shown, with their p-value, or why there are none.
    index_of = {int(person): index for index, person in enumerate(fitted)}
    place, p = list[Figure](), list[float | None]()
    for person, n in enumerate(map(int, count_J)):
        index = index_of.get(person)
        if index is not None:
            place.append(_odds(found, index, n))
            p.append(found.p(index))
            continue
        few = n < LEAST_PREFERENCES
        place.append(Figure(value=None, n=n, reason=TOO_FEW if few else ONE_SIDE))
        # As likely as so many tosses of a coin that all fall alike.
        p.append(None if few else 2.0 ** (1 - n))
    return place, p


def _shared_odds(
    found: PlaceFit, people: int, gap_BF: Float[np.ndarray, "B F"], faults: Sequence[str]
) -> tuple[Odds, ...]:
    # The odds of what is common to all people, or why there are none.
    shared, index = list[Odds](), people
    for feature, (name, unit) in enumerate(SHARED):
        if faults[feature]:
            nothing = Figure(value=None, n=len(gap_BF), reason=faults[feature])
            shared.append(Odds(name=name, unit=unit, odds=nothing, p=None))
            continue
        differing = int((gap_BF[:, feature] != 0).sum())
        shared.append(Odds(name=name, unit=unit, odds=_odds(found, index, differing), p=found.p(index)))
        index += 1
    return tuple(shared)


def _faults(gap_BF: Float[np.ndarray, "B F"], y_B: Float[np.ndarray, " B"]) -> list[str]:
    # Why each feature has no odds; empty where it has.
    if not len(y_B):
        return [NO_PREFERENCES] * gap_BF.shape[1]
    faults = list[str]()
    for feature in range(gap_BF.shape[1]):
        differs_B = gap_BF[:, feature] != 0
        agrees_B = (gap_BF[differs_B, feature] > 0) == (y_B[differs_B] > 0)
        earlier = [other for other in range(feature) if not faults[other]]
        design_BF = gap_BF[:, [*earlier, feature]]
        if not differs_B.any():
            faults.append(stats.NEVER_DIFFERS)
        elif agrees_B.all() or not agrees_B.any():
            preferred = stats.ALWAYS_PREFERRED if agrees_B.all() else stats.NEVER_PREFERRED
            faults.append(f"{preferred} it, so its odds have no end")
        elif np.linalg.matrix_rank(design_BF.T @ design_BF) <= len(earlier):
            faults.append(stats.COLLINEAR)
        else:
            faults.append("")
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFit:
    """Log-odds of a place for each person, and of what is shared, the places first."""

    beta_C: Float[np.ndarray, " C"]
    covariance_CC: Float[np.ndarray, "C C"]

    def error(self, index: int) -> float:
        return math.sqrt(max(0.0, float(self.covariance_CC[index, index])))

    def p(self, index: int) -> float | None:
        """The two-sided p-value of no effect; None where nothing varies."""
        error = self.error(index)
        return math.erfc(abs(float(self.beta_C[index])) / error / math.sqrt(2)) if error > 0 else None


def fit_with_places(
    gap_BF: Float[np.ndarray, "B F"],
    person_B: Int[np.ndarray, " B"],
    y_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
) -> PlaceFit:
    """A logistic regression with a constant for each person, by Newton's steps on a sparse design.

    The covariance is H⁻¹ (Σ_prompts s sᵀ) H⁻¹ with the usual factor for few prompts. The numbers are those of
    statsmodels, whose dense design takes some seconds for fifty people and most of a minute for two hundred.

    >>> found = fit_with_places(np.zeros((8, 0)), np.repeat([0, 1], 4), np.array([1.0, 1, 1, 0, 1, 0, 0, 0]),
    ...     np.arange(8))
    >>> [round(float(odds), 6) for odds in np.exp(found.beta_C)]
    [3.0, 0.333333]
    """
    from scipy.sparse import coo_array, csr_array

    rows, people = len(y_B), int(person_B.max(initial=-1)) + 1
    design = _design(gap_BF, person_B, people)
    beta_C = np.zeros(people + gap_BF.shape[1])
    if not len(beta_C):
        return PlaceFit(beta_C=beta_C, covariance_CC=np.zeros((0, 0)))
    fitted_B, hessian_CC = _curvature(design, beta_C)
    for _ in range(_MOST_STEPS):
        step_C = np.linalg.pinv(hessian_CC) @ (design.T @ (y_B - fitted_B))
        beta_C = beta_C + np.clip(step_C, -_MOST_STEP, _MOST_STEP)
        fitted_B, hessian_CC = _curvature(design, beta_C)
        if np.abs(step_C).max() < 1e-10:
            break
    prompts, cluster_B = np.unique(prompt_B, return_inverse=True)
    member = coo_array((y_B - fitted_B, (cluster_B, np.arange(rows))), shape=(len(prompts), rows))
    score: Any = csr_array(member) @ design
    bread_CC = np.linalg.pinv(hessian_CC)
    factor = len(prompts) / max(1, len(prompts) - 1) * (rows - 1) / max(1, rows - len(beta_C))
    covariance_CC = factor * bread_CC @ (score.T @ score).toarray() @ bread_CC
    return PlaceFit(beta_C=beta_C, covariance_CC=covariance_CC)


def _design(gap_BF: Float[np.ndarray, "B F"], person_B: Int[np.ndarray, " B"], people: int) -> Any:
    # A column of ones for each person's rows, and the features: a sparse matrix.
    from scipy.sparse import csr_array, hstack

    rows = len(person_B)
    places = csr_array((np.ones(rows), (np.arange(rows), person_B)), shape=(rows, people))
    return csr_array(hstack([places, csr_array(gap_BF)]))


def _curvature(design: Any, beta_C: Float[np.ndarray, " C"]) -> tuple[np.ndarray, np.ndarray]:
    from scipy.sparse import diags_array

    # Through log(1 + e⁻ˣ), which neither overflows nor warns.
    fitted_B = np.exp(-np.logaddexp(0, -(design @ beta_C)))
    weighted = diags_array(fitted_B * (1 - fitted_B)) @ design
    return fitted_B, (design.T @ weighted).toarray()


def _odds(found: PlaceFit, index: int, n: int) -> Figure:
    beta, half = float(found.beta_C[index]), 1.959964 * found.error(index)
    # exp overflows near 709; nobody reads odds of a billion to one.
    low, value, high = (math.exp(min(max(end, -20.0), 20.0)) for end in (beta - half, beta, beta + half))
    return Figure(value=value, low=low, high=high, n=n)


def holm_of_known(p: Sequence[float | None]) -> list[float | None]:
    """P-values corrected for how many are known; None stays None."""
    corrected = iter(stats.holm([value for value in p if value is not None]))
    return [None if value is None else next(corrected) for value in p]


LAST = 50
"""How many labels are the last ones."""
LEAST = 5
"""Labels that say something, which a figure needs on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is known of each of a person's labels, in their order; None or NaN where nothing is."""

    gold: Sequence[float | None] | np.ndarray
    """Whether it says what is known to be right."""
    others: Sequence[float | None] | np.ndarray
    """Whether it agrees with what the others say."""
    seconds: Sequence[float | None] | np.ndarray


def drifts(courses: Sequence[Course]) -> list[tuple[Drift, ...]]:
    """The changes of each person, with p-values corrected for all people (Holm 1979), each test by itself.

    >>> slow, fast = [10.0, 11.0, 12.0, 9.0] * 15, [2.0, 3.0] * 25
    >>> nothing = [None] * 110
    >>> (found,), = drifts([Course(gold=nothing, others=nothing, seconds=slow + fast)])
    >>> found.what, found.before, found.now, found.p < 1e-9
    ('seconds', 10.5, 2.5, True)
    """
    found = [_drifts_of(course) for course in courses]
    for what in ("gold", "others", "seconds"):
        corrected = holm_of_known([person[what].p if what in person else None for person in found])
        for person, p in zip(found, corrected, strict=True):
            if p is not None:
                person[what] = replace(person[what], p=p)
    return [tuple(person.values()) for person in found]


def _drifts_of(course: Course) -> dict[str, Drift]:
    # Each figure that has enough labels on both sides, not yet corrected.
    shares = {"gold": course.gold, "others": course.others}
    found = {what: _share_drift(what, values) for what, values in shares.items()}
    found["seconds"] = _seconds_drift(course.seconds)
    return {what: drift for what, drift in found.items() if drift is not None}


def _sides(values: Sequence[float | None] | np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    known_N = np.array(values, dtype=float)
    before, now = (side[~np.isnan(side)] for side in (known_N[:-LAST], known_N[-LAST:]))
    return (before, now) if min(len(before), len(now)) >= LEAST else None


def _share_drift(what: str, values: Sequence[float | None] | np.ndarray) -> Drift | None:
    from scipy.stats import fisher_exact

    sides = _sides(values)
    if sides is None:
        return None
    counts = [[int(side.sum()), int(len(side) - side.sum())] for side in sides]
    before, now = (float(side.mean()) for side in sides)
    p: Any = fisher_exact(counts)[1]
    return Drift(what=what, before=before, now=now, p=float(p), n=len(sides[1]))


def _seconds_drift(values: Sequence[float | None] | np.ndarray) -> Drift | None:
    from scipy.stats import mannwhitneyu

    sides = _sides(values)
    if sides is None:
        return None
    p = float(mannwhitneyu(*sides).pvalue)
    # No number where all of them are the same: then nothing has changed.
    return Drift(
        what="seconds",
        before=float(np.median(sides[0])),
        now=float(np.median(sides[1])),
        p=1.0 if math.isnan(p) else p,
        n=len(sides[1]),
    )
