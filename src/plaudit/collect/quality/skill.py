"""How well each person reads, what is clicked where somebody does not, and what all together say, as chances.

A person j reads with chance θ_j and then says the truth; otherwise the click follows a habit ξ_j:

    P(said y | truth t) = θ_j · 1[y = t] + (1 − θ_j) · ξ_j(place at which y was shown)

**Truth lives in the space of answers, habit in the space of what was shown**: first, second or tie. MACE
(Hovy et al. 2013) and Dawid and Skene (1979) are given labels whose order is undone, so that who always
clicks the first answer is mere noise to them; where all orders are alike, this model is MACE. It is fitted by
expectation and maximisation (Dempster, Laird, Rubin 1977), with pseudo-counts in place of a restart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

FIRST, SECOND, TIE = 0, 1, 2
"""What may be said of two answers, in either space: the first is better, the second is, or neither."""
MOST_STEPS = 500
"""Steps of the fit at most; some dozens are the rule."""
CLOSE_ENOUGH = 1e-6
"""The fit ends where no θ moves further than this."""
_GRID = 201
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """What people said of pairs of answers, a row a vote."""

    pair_B: Int[np.ndarray, " B"]
    person_B: Int[np.ndarray, " B"]
    choice_B: Int[np.ndarray, " B"]
    """FIRST, SECOND or TIE, in the pair's own order."""
    swapped_B: Bool[np.ndarray, " B"]
    """Whether the pair's second answer was shown first."""
    pairs: int
    people: int
    shown_B: Int[np.ndarray, " B"] = field(init=False)
    """FIRST, SECOND or TIE, in the order in which the answers were shown."""

    def __post_init__(self) -> None:
        turned_B = self.swapped_B & (self.choice_B != TIE)
        object.__setattr__(self, "shown_B", np.where(turned_B, 1 - self.choice_B, self.choice_B))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pseudo:
    """Votes that are imagined beforehand, so that who gave three has no skill of 0 or 1."""

    read: float = 2.0
    clicked: float = 1.0
    habit: float = 1.0
    """Clicks of each person on first, on second and on tie."""
    tie: float = 1.0
    """Pairs that are truly equal, and as many that are better on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    theta_J: Float[np.ndarray, " J"]
    habit_JK: Float[np.ndarray, "J K"]
    """What each clicks otherwise: first, second, tie as shown."""
    tie: float
    """How often two answers are truly equal; either is better as often, since their order is drawn."""
    truth_UK: Float[np.ndarray, "U K"]
    """The chance of each truth of each pair."""
    steps: int

    @property
    def first_U(self) -> Float[np.ndarray, " U"]:
        """The chance that people prefer the first answer of each pair; of a tie either half.

        >>> Skill(theta_J=np.ones(1), habit_JK=np.ones((1, 3)) / 3, tie=0.2, steps=1,
        ...     truth_UK=np.array([[0.7, 0.1, 0.2]])).first_U.round(6)
        array([0.8])
        """
        return self.truth_UK[:, FIRST] + self.truth_UK[:, TIE] / 2


def fit_skill(votes: Votes, pseudo: Pseudo | None = None) -> Skill:
    """θ, ξ and the chances of each truth, at the top of their likelihood with pseudo-counts.

    >>> rng = np.random.default_rng(0)
    >>> truth_U, swapped = rng.integers(0, 2, 200), rng.random(800) < 0.5
    >>> pair, person = np.repeat(np.arange(200), 4), np.tile(np.arange(4), 200)
    >>> choice = np.where(person == 3, np.where(swapped, 1, 0), truth_U[pair])  # the last clicks the first
    >>> found = fit_skill(Votes(pair_B=pair, person_B=person, choice_B=choice, swapped_B=swapped, pairs=200,
    ...     people=4))
    >>> bool(found.theta_J[3] < 0.1), bool(found.theta_J[:3].min() > 0.9), bool(found.habit_JK[3, 0] > 0.9)
    (True, True, True)
    """
    given = Pseudo() if pseudo is None else pseudo
    theta_J = np.full(votes.people, 0.5)
    habit_JK = np.full((votes.people, 3), 1 / 3)
    tie = float((votes.choice_B == TIE).mean()) if len(votes.choice_B) else 0.0
    steps, moved = 0, math.inf
    while moved > CLOSE_ENOUGH and steps < MOST_STEPS:
        truth_UK = truth_of(votes, theta_J, habit_JK, tie)
        before_J, steps = theta_J, steps + 1
        theta_J, habit_JK, tie = _maximised(votes, truth_UK, (theta_J, habit_JK), given)
        moved = float(np.abs(theta_J - before_J).max(initial=0.0))
    truth_UK = truth_of(votes, theta_J, habit_JK, tie)
    return Skill(theta_J=theta_J, habit_JK=habit_JK, tie=tie, truth_UK=truth_UK, steps=steps)


def _support(
    votes: Votes, theta_J: Float[np.ndarray, " J"], habit_JK: Float[np.ndarray, "J K"]
) -> Float[np.ndarray, " B"]:
    # ln P(what was said | it is the truth) / P(what was said | it is not): how much each vote counts.
    # Only this matters, since a habit's click is as likely whatever the truth is.
    clicked_B = (1 - theta_J[votes.person_B]) * habit_JK[votes.person_B, votes.shown_B]
    return np.log1p(theta_J[votes.person_B] / np.maximum(clicked_B, _TINY))


def truth_of(
    votes: Votes, theta_J: Float[np.ndarray, " J"], habit_JK: Float[np.ndarray, "J K"], tie: float
) -> Float[np.ndarray, "U K"]:
    """P(truth | votes) of each pair, for given people."""
    return _normalised(_log_prior(tie) + _by_pair(votes, _support(votes, theta_J, habit_JK)))


def _log_prior(tie: float) -> Float[np.ndarray, " K"]:
    return np.log(np.maximum([(1 - tie) / 2, (1 - tie) / 2, tie], _TINY))


def _by_pair(votes: Votes, support_B: Float[np.ndarray, " B"]) -> Float[np.ndarray, "U K"]:
    return np.bincount(votes.pair_B * 3 + votes.choice_B, support_B, minlength=3 * votes.pairs).reshape(-1, 3)


def _normalised(log_AK: Float[np.ndarray, "A K"]) -> Float[np.ndarray, "A K"]:
    weight_AK = np.exp(log_AK - log_AK.max(axis=1, keepdims=True))
    return weight_AK / weight_AK.sum(axis=1, keepdims=True)


def _maximised(
    votes: Votes,
    truth_UK: Float[np.ndarray, "U K"],
    people: tuple[Float[np.ndarray, " J"], Float[np.ndarray, "J K"]],
    pseudo: Pseudo,
) -> tuple[Float[np.ndarray, " J"], Float[np.ndarray, "J K"], float]:
    theta_J, habit_JK = people
    theta_B = theta_J[votes.person_B]
    clicked_B = (1 - theta_B) * habit_JK[votes.person_B, votes.shown_B]
    # Read, where it was: only then can what was said be the truth by more than the habit's luck.
    read_B = truth_UK[votes.pair_B, votes.choice_B] * theta_B / np.maximum(theta_B + clicked_B, _TINY)
    read_J = np.bincount(votes.person_B, read_B, minlength=votes.people)
    count_J = np.bincount(votes.person_B, minlength=votes.people)
    cell_B = votes.person_B * 3 + votes.shown_B
    clicks_JK = np.bincount(cell_B, 1 - read_B, minlength=3 * votes.people).reshape(-1, 3) + pseudo.habit
    new_theta_J = (read_J + pseudo.read) / np.maximum(count_J + pseudo.read + pseudo.clicked, _TINY)
    tie = (truth_UK[:, TIE].sum() + pseudo.tie) / (votes.pairs + 3 * pseudo.tie)
    return new_theta_J, clicks_JK / np.maximum(clicks_JK.sum(1, keepdims=True), _TINY), float(tie)


def truth_without(votes: Votes, skill: Skill) -> Float[np.ndarray, "B K"]:
    """P(truth | all votes on the pair but this one), for each vote: what the others say.

    The skills of the others are those of the whole fit; theirs alone would take a fit for each person, and
    one person's votes move the others' skills little.
    """
    support_B = _support(votes, skill.theta_J, skill.habit_JK)
    others_BK = (_log_prior(skill.tie) + _by_pair(votes, support_B))[votes.pair_B]
    others_BK[np.arange(len(support_B)), votes.choice_B] -= support_B
    return _normalised(others_BK)


def theta_intervals(
    votes: Votes, skill: Skill, pseudo: Pseudo | None = None
) -> tuple[Float[np.ndarray, " J"], Float[np.ndarray, " J"]]:
    """The central 95 % of each θ, given what the others say and the person's habit.

    P(said y) = θ · P(truth = y | the others) + (1 − θ) · ξ(place of y) for each vote, with the fit's
    pseudo-counts as prior, on a grid. Who shares no pair with anybody gets an interval that says nothing.
    """
    given = Pseudo() if pseudo is None else pseudo
    others_B = truth_without(votes, skill)[np.arange(len(votes.choice_B)), votes.choice_B]
    habit_B = skill.habit_JK[votes.person_B, votes.shown_B]
    theta_G = (np.arange(_GRID) + 0.5) / _GRID
    log_GJ = np.stack(
        [
            np.bincount(
                votes.person_B,
                np.log(np.maximum(theta * others_B + (1 - theta) * habit_B, _TINY)),
                minlength=votes.people,
            )
            for theta in theta_G
        ]
    )
    prior_G = given.read * np.log(theta_G) + given.clicked * np.log(1 - theta_G)
    mass_JG = _normalised((log_GJ + prior_G[:, None]).T)
    cumulative_JG = mass_JG.cumsum(axis=1)
    low_J = theta_G[np.argmax(cumulative_JG >= 0.025, axis=1)]
    high_J = theta_G[np.argmax(cumulative_JG >= 0.975, axis=1)]
    return low_J, high_J
