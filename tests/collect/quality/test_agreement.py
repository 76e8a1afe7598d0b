"""Agreement: published values, independent implementations, intervals, and what is undefined."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.skill import PEER, ask_peers
from plaudit.collect.quality import agreement
from plaudit.collect.quality.agreement import NO_OVERLAP, ONE_PROMPT, ONE_VALUE, Values, agreements
from plaudit.evaluation.stats import Resampling
from tests.peer import ASKED, RECORDED, PeerValues

# Four people and twelve things, some of which were left out (Krippendorff 2011; Gwet's raters in irrCAC).
TABLE = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
FEW = Resampling(times=200)


def values_of(table, categories=5, level="ordinal", prompts=None) -> Values:
    rows = [
        (unit, person, value - 1)
        for person, row in enumerate(table)
        for unit, value in enumerate(row)
        if value is not None
    ]
    units, people, values = (np.array(column) for column in zip(*rows, strict=True))
    prompt = units if prompts is None else np.array(prompts)[units]
    return Values(
        unit_B=units,
        person_B=people,
        value_B=values,
        prompt_B=prompt,
        guidelines_B=np.zeros(len(rows), dtype=int),
        categories=categories,
        level=level,
    )


def random_table(seed, people=4, units=30, categories=4):
    rng = np.random.default_rng(seed)
    truth = rng.integers(1, categories + 1, units)
    values = np.where(
        rng.random((people, units)) < 0.7, truth, rng.integers(1, categories + 1, (people, units))
    )
    missing = rng.random((people, units)) < 0.3
    return [
        [None if gone else int(value) for value, gone in zip(*rows, strict=True)]
        for rows in zip(values, missing, strict=True)
    ]


TABLES = [TABLE, *(random_table(seed) for seed in range(3))]
PAIR = [[1, 1, 2, 3, 3, 1, 2], [1, 2, 2, 3, 1, 1, 2]]


def ask():
    return ask_peers([*(("alpha", table) for table in TABLES), ("percent", PAIR)])


VALUES = PeerValues(
    file=Path(__file__).with_name("peer_values") / "agreement.json",
    ask=ask,
    python=PEER,
    packages=("krippendorff", "evalica", "scikit-learn"),
)


@pytest.fixture(scope="module", params=[RECORDED, pytest.param(ASKED, marks=pytest.mark.peer(PEER))])
def peer(request):
    return VALUES.answers(request.param)


@pytest.mark.peer(PEER)
def test_the_record_is_what_the_peers_say():
    VALUES.prove()


def test_the_published_values_come_out():
    nominal, ordinal = (agreements(values_of(TABLE, level=level), FEW) for level in ("nominal", "ordinal"))
    assert nominal.alpha.value == pytest.approx(0.743, abs=5e-4)
    assert ordinal.alpha.value == pytest.approx(0.815, abs=5e-4)
    # Gwet's AC1 of the same table, and the agreement that it corrects.
    assert nominal.gwet.value == pytest.approx(0.77544, abs=5e-6)
    assert nominal.percent.value == pytest.approx(0.8181818, abs=5e-8)


def test_ac2_is_what_one_finds_by_hand():
    # Two people, three things: (1, 1), (1, 2), (3, 3) of three values.
    found = agreements(values_of([[1, 1, 3], [1, 2, 3]], categories=3), FEW).gwet
    observed, shares = (1 + 2 / 3 + 1) / 3, np.array([1.5, 0.5, 1]) / 3
    expected = (3 + 4 * 2 / 3) / (3 * 2) * (shares * (1 - shares)).sum()
    assert found.value == pytest.approx((observed - expected) / (1 - expected), abs=1e-12)


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_alpha_is_that_of_krippendorffs_package_and_of_evalica(peer, number):
    for place, level in enumerate(("nominal", "ordinal")):
        found = agreements(values_of(TABLES[number], level=level), FEW).alpha.value
        assert found == pytest.approx(peer[number]["krippendorff"][place], abs=1e-9)
        assert found == pytest.approx(peer[number]["evalica"][place], abs=1e-9)


def test_the_share_of_two_people_is_the_accuracy_of_either_by_the_other(peer):
    assert agreements(values_of(PAIR), FEW).percent.value == pytest.approx(peer[-1], abs=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(["nominal", "ordinal"]))
def test_the_draws_of_the_bootstrap_are_measured_as_the_whole_is(seed, level):
    values = values_of(random_table(seed, people=3, units=12), level=level)
    _, counts = agreement._counts(values)
    sums = agreement._sums_by_prompt(counts, np.arange(len(counts)), values).sum(axis=0, keepdims=True)
    found = agreements(values, FEW)
    if found.alpha.value is not None:
        assert agreement._alpha(sums, values)[0] == pytest.approx(found.alpha.value, abs=1e-9)


def test_the_bootstrap_over_kinds_of_prompts_is_that_over_prompts():
    values = values_of(random_table(5, people=3, units=300))
    found = agreements(values, Resampling(times=2000)).percent
    _, counts = agreement._counts(values)
    shares = [((row * (row - 1)).sum() / (row.sum() * (row.sum() - 1))) for row in counts if row.sum() >= 2]
    rng = np.random.default_rng(1)
    draws = [np.mean(rng.choice(shares, len(shares))) for _ in range(2000)]
    assert [found.low, found.high] == pytest.approx(list(np.quantile(draws, (0.025, 0.975))), abs=0.012)


def test_answers_to_one_prompt_widen_the_interval_though_nothing_else_changes():
    table = random_table(7, people=3, units=40)
    doubled = [row + row for row in table]
    apart = agreements(values_of(doubled), Resampling(times=1000)).alpha
    together = agreements(values_of(doubled, prompts=[*range(40), *range(40)]), Resampling(times=1000)).alpha
    assert together.value == apart.value
    assert together.high - together.low > 1.2 * (apart.high - apart.low)


def test_what_is_undefined_is_said_and_never_called_full_agreement():
    alone = agreements(values_of([[1, 2, None], [None, None, 3]]), FEW)
    assert (alone.alpha.value, alone.alpha.reason, alone.units) == (None, NO_OVERLAP, 0)
    assert alone.percent.value is None
    unanimous = agreements(values_of([[2, 2, 2], [2, 2, 2]]), FEW)
    assert (unanimous.alpha.value, unanimous.alpha.reason) == (None, ONE_VALUE)
    assert (unanimous.gwet.value, unanimous.percent.value) == (None, 1.0)


def test_of_one_prompt_there_is_a_value_and_no_interval():
    found = agreements(values_of(TABLE, prompts=[0] * 12), FEW).alpha
    assert found.value == pytest.approx(0.815, abs=5e-4)
    assert (found.low, found.high, found.reason) == (None, None, ONE_PROMPT)


@given(st.permutations(range(4)))
def test_nobody_is_the_measure_of_the_others(order):
    found = agreements(values_of(TABLE), FEW)
    turned = agreements(values_of([TABLE[person] for person in order]), FEW)
    assert turned.alpha.value == pytest.approx(found.alpha.value, abs=1e-12)
    assert turned.gwet.value == pytest.approx(found.gwet.value, abs=1e-12)
