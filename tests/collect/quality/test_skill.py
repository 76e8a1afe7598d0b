"""Skill: planted people come out, special cases are crowd-kit's methods, and the crowd with spammers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.skill import PEER, PEERS, SEEDS, ask_peers, crowd, lead_over, our_figures, peer_figures
from plaudit.collect.quality.skill import (
    FIRST,
    SECOND,
    TIE,
    Pseudo,
    Votes,
    fit_skill,
    theta_intervals,
    truth_of,
    truth_without,
)
from tests.peer import ASKED, RECORDED, PeerValues

NONE = Pseudo(read=0.0, clicked=0.0, habit=0.0, tie=0.0)


def planted(seed, theta, habit, pairs=400, overlap=4, tie=0.1, orders=True) -> tuple[Votes, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, pairs, p=[(1 - tie) / 2, (1 - tie) / 2, tie])
    people = np.array([rng.choice(len(theta), overlap, replace=False) for _ in range(pairs)]).ravel()
    pair = np.repeat(np.arange(pairs), overlap)
    swapped = (rng.random(len(pair)) < 0.5) & orders
    clicked = np.array([rng.choice(3, p=habit[person]) for person in people])
    clicked = np.where(swapped & (clicked != TIE), 1 - clicked, clicked)
    choice = np.where(rng.random(len(pair)) < np.array(theta)[people], truth[pair], clicked)
    votes = Votes(
        pair_B=pair, person_B=people, choice_B=choice, swapped_B=swapped, pairs=pairs, people=len(theta)
    )
    return votes, truth


THETA = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.3, 0.05]
HABIT = [[1 / 3, 1 / 3, 1 / 3]] * 5 + [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]


def votes_alike(seed=0) -> Votes:
    """Votes that were all shown in one order: space of answers and of what was shown are one."""
    return planted(seed, THETA, HABIT, pairs=80, orders=False)[0]


ALIKE = ("one-coin", "MACE, no priors")
"""The methods that are special cases where all orders are alike."""


def ask_alike():
    votes = votes_alike()
    rows = np.stack([votes.pair_B, votes.person_B, votes.choice_B], axis=1).tolist()
    return dict(zip(ALIKE, ask_peers([(name, rows) for name in ALIKE]), strict=True))


def ask_crowds():
    return peer_figures([crowd(seed) for seed in SEEDS])


ALIKE_VALUES, CROWD_VALUES = (
    PeerValues(
        file=Path(__file__).with_name("peer_values") / f"{name}.json",
        ask=ask,
        python=PEER,
        packages=("crowd-kit", "pandas", "numpy"),
    )
    for name, ask in (("skill_alike", ask_alike), ("skill_crowds", ask_crowds))
)
SOURCES = [RECORDED, pytest.param(ASKED, marks=pytest.mark.peer(PEER))]


@pytest.fixture(scope="module", params=SOURCES)
def peer(request):
    return ALIKE_VALUES.answers(request.param)


@pytest.mark.peer(PEER)
@pytest.mark.parametrize("values", [ALIKE_VALUES, CROWD_VALUES], ids=["alike", "crowds"])
def test_the_record_is_what_the_peer_says(values):
    values.prove()


def test_planted_skills_lie_in_their_intervals_nineteen_times_of_twenty():
    inside = list[bool]()
    for seed in range(12):
        votes, _ = planted(seed, THETA, HABIT)
        low, high = theta_intervals(votes, fit_skill(votes))
        inside += [a <= theta <= b for theta, a, b in zip(THETA, low, high, strict=True)]
    # 96 intervals: fewer than 84 hits come once in a few thousand times, were each right with 95 %.
    assert sum(inside) >= 84


def test_planted_habits_come_out():
    found = fit_skill(planted(3, THETA, HABIT, pairs=1500)[0])
    assert found.habit_JK[5].argmax() == SECOND
    assert found.habit_JK[6].argmax() == TIE
    assert found.habit_JK[7] == pytest.approx([0.9, 0.05, 0.05], abs=0.06)
    assert found.tie == pytest.approx(0.1, abs=0.03)


def test_chances_are_as_often_right_as_they_say():
    chance, right = list[float](), list[bool]()
    for seed in range(10):
        votes, truth = planted(seed, THETA, HABIT, overlap=2, tie=0.0)
        found = fit_skill(votes).first_U
        chance += np.maximum(found, 1 - found).tolist()
        right += ((found > 0.5) == (truth == FIRST)).tolist()
    chance_A, right_A = np.array(chance), np.array(right)
    for low in (0.5, 0.7, 0.9):
        band = (chance_A >= low) & (chance_A < low + 0.2)
        assert right_A[band].mean() == pytest.approx(chance_A[band].mean(), abs=0.05)


def test_with_one_order_a_worker_of_one_coin_is_one_whose_habit_is_even(peer):
    votes, said = votes_alike(), peer["one-coin"]
    skill = np.array([said["skill"][str(person)] for person in range(votes.people)])
    # Right with θ, and by luck with a third of what is clicked.
    theta = (3 * skill - 1) / 2
    # One-coin has a prior for each label, and this model the same for either side: so compare likelihoods.
    prior = np.array([said["priors"].get(label, 0.0) for label in "012"])
    found = truth_of(votes, theta, np.full((votes.people, 3), 1 / 3), 1 / 3) * prior
    assert found / found.sum(axis=1, keepdims=True) == pytest.approx(np.array(said["fitted"]), abs=1e-9)


def test_with_one_order_the_chances_are_those_of_mace(peer):
    votes, said = votes_alike(), peer["MACE, no priors"]
    names = [str(person) for person in range(votes.people)]
    theta = np.array([said["skill"][name] for name in names])
    habit = np.array([[said["habit"][name][label] for label in "012"] for name in names])
    found = truth_of(votes, theta, habit, 1 / 3)
    truth = np.array(said["truth"])
    # crowd-kit leaves the sums of a pair as they come; the chances are its shares.
    assert found == pytest.approx(truth / truth.sum(axis=1, keepdims=True), abs=1e-9)


def test_the_chance_without_a_vote_is_that_of_votes_among_which_it_is_not():
    votes, _ = planted(1, THETA, HABIT, pairs=50)
    fit = fit_skill(votes)
    without = truth_without(votes, fit)
    for row in range(0, len(votes.pair_B), 17):
        others = np.arange(len(votes.pair_B)) != row
        rest = Votes(
            pair_B=votes.pair_B[others],
            person_B=votes.person_B[others],
            choice_B=votes.choice_B[others],
            swapped_B=votes.swapped_B[others],
            pairs=votes.pairs,
            people=votes.people,
        )
        expected = truth_of(rest, fit.theta_J, fit.habit_JK, fit.tie)[votes.pair_B[row]]
        assert without[row] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_which_answer_is_called_the_first_plays_no_part(seed):
    votes, _ = planted(seed, THETA, HABIT, pairs=40)
    turned_pairs = np.random.default_rng(seed).random(votes.pairs) < 0.5
    turned = turned_pairs[votes.pair_B]
    other = Votes(
        pair_B=votes.pair_B,
        person_B=votes.person_B,
        choice_B=np.where(turned & (votes.choice_B != TIE), 1 - votes.choice_B, votes.choice_B),
        swapped_B=votes.swapped_B ^ turned,
        pairs=votes.pairs,
        people=votes.people,
    )
    found, also = fit_skill(votes), fit_skill(other)
    assert also.theta_J == pytest.approx(found.theta_J, abs=1e-9)
    assert np.where(turned_pairs, 1 - also.first_U, also.first_U) == pytest.approx(found.first_U, abs=1e-9)


def test_no_votes_and_a_lone_voter_are_no_fault():
    empty = np.array([], dtype=int)
    nothing = Votes(
        pair_B=empty, person_B=empty, choice_B=empty, swapped_B=empty.astype(bool), pairs=0, people=0
    )
    assert len(fit_skill(nothing).theta_J) == 0
    lone = Votes(
        pair_B=np.arange(3),
        person_B=np.zeros(3, dtype=int),
        choice_B=np.array([FIRST, SECOND, TIE]),
        swapped_B=np.zeros(3, dtype=bool),
        pairs=3,
        people=1,
    )
    low, high = theta_intervals(lone, fit_skill(lone))
    # Nobody else says anything, so nothing but the pseudo-counts is known.
    assert high[0] - low[0] > 0.6
    # One imagined pair of each truth beside five that nobody has called equal.
    assert fit_skill(replace(nothing, pairs=5)).tie == pytest.approx(1 / 8, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_on_the_worlds_crowd_no_peers_consensus_is_right_more_often(source):
    peers = CROWD_VALUES.answers(source)
    ours = our_figures([crowd(seed) for seed in SEEDS])
    lead = {name: lead_over(ours, peers[name]) for name in PEERS}
    for name in ("majority", "one-coin", "MACE", "MMSR"):
        assert lead[name][0] > 0, name
    for name in ("majority", "one-coin", "MMSR"):
        assert lead[name][0] - lead[name][1] > 0, name
    # As often as Dawid and Skene's model, which knows no order: the difference is within chance, and small.
    mean, half = lead["Dawid–Skene"]
    assert mean + half > 0 > mean - half
    assert mean > -0.005
    assert min(ours["auc"]) >= 0.98


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_the_habits_of_those_who_do_not_read_are_named(seed):
    found = crowd(seed)
    fit = fit_skill(found.votes)
    for person in (found.honest, found.honest + 1):
        assert fit.habit_JK[person].argmax() == FIRST
        assert fit.habit_JK[person, FIRST] > 0.7
    for person in (found.honest + 2, found.honest + 3):
        assert fit.habit_JK[person, :2].max() < 0.75
