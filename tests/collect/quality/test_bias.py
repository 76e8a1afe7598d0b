"""Biases, drift and proposals: what was planted comes out, within its interval, and statsmodels agrees."""

from dataclasses import replace

import numpy as np
import pytest

from plaudit.collect.quality.bias import (
    ONE_SIDE,
    TOO_FEW,
    Course,
    Preferences,
    clustered_share,
    drifts,
    fit_with_places,
    holm_of_known,
    odds_of,
)
from plaudit.collect.quality.report import Standards, proposals, standards_of
from plaudit.collect.quality.result import Drift, Figure, PersonQuality

PLACES = (0.0, 0.0, 0.8, -0.6, 0.3)
LENGTH, LIST, REFUSAL, OTHERS = 0.5, -0.4, 0.9, 0.7


def drawn(seed: int, rows: int = 3000) -> Preferences:
    """Preferences of people with set log-odds for a place, a doubling, a list, a refusal and the others."""
    rng = np.random.default_rng(seed)
    person = rng.integers(0, len(PLACES), rows)
    length = rng.normal(size=rows)
    lists, refusals = rng.integers(-1, 2, rows), rng.integers(-1, 2, rows)
    others = rng.normal(size=rows)
    logit = np.array(PLACES)[person] + LENGTH * length + LIST * lists + REFUSAL * refusals + OTHERS * others
    gap = np.column_stack([100 * length, length * np.log(2), lists, refusals])
    return Preferences(
        person_B=person,
        first_B=rng.random(rows) < 1 / (1 + np.exp(-logit)),
        gap_BF=gap,
        others_B=others * np.log(2),
        prompt_B=rng.integers(0, rows // 2, rows),
        people=len(PLACES),
    )


def test_planted_odds_lie_in_their_intervals_nineteen_times_of_twenty():
    inside = list[bool]()
    for seed in range(20):
        found = odds_of(drawn(seed))
        for planted, figure in zip(PLACES, found.place, strict=True):
            inside.append(figure.low <= np.exp(planted) <= figure.high)
        for planted, odds in zip((LENGTH, LIST, REFUSAL, OTHERS), found.shared, strict=True):
            inside.append(odds.odds.low <= np.exp(planted) <= odds.odds.high)
    # 180 intervals: fewer than 161 hits come once in a few thousand times.
    assert sum(inside) >= 161


def test_who_has_no_bias_is_seldom_accused_and_who_has_one_is():
    accused = [[p is not None and p < 0.05 for p in odds_of(drawn(seed)).place_p] for seed in range(20)]
    assert sum(row[0] or row[1] for row in accused) <= 4
    assert all(row[2] and row[3] for row in accused)


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_that_of_statsmodels(seed):
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    given = drawn(seed, rows=600)
    gap = np.column_stack([given.gap_BF[:, 1:], given.others_B])
    found = fit_with_places(gap, given.person_B, given.first_B.astype(float), given.prompt_B)
    design = np.column_stack([np.eye(given.people)[given.person_B], gap])
    groups = np.unique(given.prompt_B, return_inverse=True)[1]
    peer = GLM(given.first_B.astype(float), design, family=Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": groups}
    )
    assert found.beta_C == pytest.approx(np.asarray(peer.params), abs=1e-9)
    assert found.covariance_CC == pytest.approx(np.asarray(peer.cov_params()), abs=1e-9)


def test_who_always_clicks_one_place_has_no_odds_and_is_told_of_by_the_p_value():
    given = drawn(0)
    found = odds_of(replace(given, first_B=given.first_B | (given.person_B == 1)))
    assert (found.place[1].value, found.place[1].reason) == (None, ONE_SIDE)
    assert found.place_p[1] < 1e-9
    few = odds_of(replace(given, person_B=np.where(np.arange(3000) < 10, 5, given.person_B), people=6))
    assert (few.place[5].value, few.place[5].reason, few.place_p[5]) == (None, TOO_FEW, None)


def test_what_never_differs_has_no_odds_and_says_so():
    given = drawn(0)
    gap = given.gap_BF.copy()
    gap[:, 3] = 0
    odds = odds_of(replace(given, gap_BF=gap)).shared[2]
    assert (odds.name, odds.odds.value, odds.odds.reason) == ("refusal", None, "no two answers differ in it")


def test_without_any_preference_there_is_nothing_to_fit():
    nothing = np.array([], dtype=int)
    empty = Preferences(
        person_B=nothing,
        first_B=nothing.astype(bool),
        gap_BF=np.zeros((0, 4)),
        others_B=np.zeros(0),
        prompt_B=nothing,
        people=2,
    )
    found = odds_of(empty)
    assert [figure.value for figure in found.place] == [None, None]
    assert all(odds.odds.value is None for odds in found.shared)


def test_an_interval_of_clustered_labels_covers_what_it_should():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        chances = rng.choice([0.4, 0.9], 60).repeat(6)
        found = clustered_share(rng.random(360) < chances, np.arange(60).repeat(6))
        inside += found.low <= 0.65 <= found.high
    assert 0.91 <= inside / 400 <= 0.985


@pytest.mark.slow
def test_holm_is_statsmodels():
    from statsmodels.stats.multitest import multipletests

    for seed in range(5):
        p = np.random.default_rng(seed).random(7) ** 3
        found = holm_of_known([*p[:3], None, *p[3:]])
        assert found.pop(3) is None
        assert found == pytest.approx(multipletests(p, method="holm")[1], abs=1e-12)


def test_drift_is_found_where_it_is_and_corrected_for_all_people():
    rng = np.random.default_rng(0)

    def course(right: float) -> Course:
        before, now = rng.random(150) < 0.9, rng.random(50) < right
        return Course(gold=[None] * 200, others=[*before.tolist(), *now.tolist()], seconds=[None] * 200)

    steady, tired = drifts([*(course(0.9) for _ in range(5)), course(0.5)])[4:]
    assert steady[0].p > 0.05
    assert (tired[0].what, tired[0].n) == ("others", 50)
    assert tired[0].p < 1e-4


NONE = Figure(value=None, reason="")


def card(name: str, **more: object) -> PersonQuality:
    values = {
        "name": name,
        "standing": "active",
        "labels": 100,
        "seconds": 10.0,
        "skill": Figure(value=0.8, low=0.7, high=0.9, n=100),
        "held_out": Figure(value=0.85, low=0.8, high=0.9, n=90),
        "habit": "",
        "habit_shares": {},
        "place_p": None,
        "drift": (),
        "skipped": 0,
        **dict.fromkeys(
            ("gold", "judge", "pasted", "consistency", "first", "longer", "lists", "refusals", "place_odds"),
            NONE,
        ),
    }
    return PersonQuality(**{**values, **more})  # type: ignore[arg-type]


def proposed(**more: object) -> tuple[str, str] | None:
    gone = card("gone", standing="suspended")
    cards = [gone, *(card(f"a{number}") for number in range(3)), card("odd", **more)]
    found = proposals(cards, standards_of(cards, 0.65))
    assert all(proposal.name == "odd" for proposal in found)
    return (found[0].standing, "; ".join(found[0].reasons)) if found else None


@pytest.mark.parametrize(
    ("more", "standing", "words"),
    [
        (
            {"gold": Figure(value=0.4, low=0.25, high=0.58, n=30)},
            "suspended",
            "12 of 30 gold answers are right",
        ),
        ({"gold": Figure(value=0.6, low=0.31, high=0.83, n=10)}, "watch", "6 of 10 gold answers are right"),
        (
            {"skill": Figure(value=0.1, low=0.02, high=0.3, n=60), "habit": "first"},
            "suspended",
            "reads 10% of 60 pairs (2% to 30%)",
        ),
        ({"skill": Figure(value=0.4, low=0.2, high=0.6, n=20)}, "watch", "where 80% is usual"),
        (
            {"first": Figure(value=0.2, low=0.1, high=0.3, n=80), "place_p": 1e-6},
            "watch",
            "the answer shown second in 80% of 80 preferences",
        ),
        ({"held_out": Figure(value=0.6, low=0.5, high=0.7, n=90)}, "watch", "where 85% is usual"),
        ({"consistency": Figure(value=0.4, low=0.3, high=0.6, n=30)}, "watch", "40% of 30 repeated tasks"),
        ({"seconds": 2.0}, "watch", "takes 2.0 s a label in the median, where 10.0 s is usual"),
        (
            {"drift": (Drift(what="seconds", before=12.0, now=3.0, p=0.001, n=50),)},
            "watch",
            "took 3.0 s for the last 50 labels, 12.0 s before",
        ),
    ],
)
def test_each_rule_proposes_with_its_figures_in_words(more, standing, words):
    found = proposed(**more)
    assert found is not None
    assert found[0] == standing
    assert words in found[1]


def test_nothing_is_proposed_of_the_usual_the_merely_faster_and_those_it_holds_for():
    assert proposed() is None
    assert proposed(drift=(Drift(what="seconds", before=12.0, now=8.0, p=1e-9, n=50),)) is None
    assert proposed(seconds=2.0, standing="watch") is None
    assert proposed(gold=Figure(value=0.1, low=0.0, high=0.3, n=30), standing="suspended") is None


def test_two_people_are_no_measure_of_each_other():
    found = standards_of([card("a1"), card("a2", seconds=1.0)], 0.65)
    assert found == Standards(gold_floor=0.65, skill=None, seconds=None, held_out=None, judge=None)
