"""Every claim holds, every algorithm has one, and a loss that is not what it says is caught."""

from dataclasses import replace
from itertools import product

import pytest
from torch.nn.functional import logsigmoid

from examples.proofs.claim import Claim, measure_claim, proof_setup
from examples.proofs.exact import make_language
from examples.proofs.prove import CLAIMS, prove
from plaudit.errors import UserError
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.row import PreferenceAlgorithm, UnpairedAlgorithm
from plaudit.tensors.needs import needs, needs_of

LAB = proof_setup(seed=0, beta=0.5)


def case(claim):
    long = "transformer" in claim.sentence or "running" in claim.sentence or "hold 50" in claim.sentence
    return pytest.param(claim, id=f"{claim.name}: {claim.sentence}", marks=[pytest.mark.slow] * long)


@pytest.mark.one_in(143)
@pytest.mark.parametrize("claim", [case(claim) for claim in CLAIMS])
def test_the_claim_holds(claim):
    found = measure_claim(claim, LAB)
    assert found.holds, f"expected {claim.expected}, measured {found.value:.2e}"


def test_every_algorithm_has_a_claim():
    assert {claim.name for claim in CLAIMS} >= set(PREFERENCE_ALGORITHMS)


def test_a_figure_that_is_not_a_number_never_holds():
    assert not measure_claim(Claim(name="dpo", sentence="…", measure=lambda lab: float("nan")), LAB).holds


def like(cell, other):
    """The other function, with what the cell needs."""
    return needs(*needs_of(cell))(other)


def doubled(name, **settings):
    """β twice as large in the loss as it is said."""
    return preference_algorithm(name, **settings | {"beta": 2 * settings["beta"]})


def swapped(name, **settings):
    """The preferred answer taken for the other one."""
    row = preference_algorithm(name, **settings)
    if isinstance(row, UnpairedAlgorithm):
        turned = like(row.loss, lambda said, label_B, known: row.loss(said, 1 - label_B, known))
    else:
        turned = like(row.loss, lambda chosen, rejected, known: row.loss(rejected, chosen, known))
    return replace(row, loss=turned)


def shifted(name, **settings):
    """Twice the log-ratio: what comes of summing over prompt tokens too, or of counting an answer twice."""
    row = preference_algorithm(name, **settings)
    return replace(row, link=like(row.link, lambda ratio_B: 2 * row.link(ratio_B)))


CAUGHT = "dpo ipo ipo-mean robust-dpo f-dpo r-dpo dpo-norm cdpo exo simpo sppo bco bco-pair pl-dpo wpo tr-dpo"
QUICK = {("dpo", swapped), ("dpo", shifted), ("ipo", shifted), ("sppo", swapped)}
WRONG = [*product([*CAUGHT.split(), "cpo"], (doubled, swapped, shifted)), ("nca", doubled)]
WRONG += [("kto", swapped), ("apo-zero-unpaired", swapped)]


def wrong_row(name, wrong):
    slow = wrong is not doubled and (name, wrong) not in QUICK
    return pytest.param(name, wrong, id=f"{name}-{wrong.__name__}", marks=[pytest.mark.slow] * slow)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("name", "wrong"), [wrong_row(*row) for row in WRONG])
def test_a_wrong_loss_is_caught(name, wrong):
    place = proof_setup(seed=0, beta=0.5, rows=wrong)
    # The closed forms alone: that it is away from π* is true of a wrong loss too.
    closed = [c for c in CLAIMS if c.name == name and c.high < 1 and "transformer" not in c.sentence]
    assert closed
    assert not all(measure_claim(claim, place).holds for claim in closed)


def mine(chosen, rejected, known):
    return -logsigmoid(0.1 * (chosen.delta_B - rejected.delta_B))


def test_a_loss_of_ones_own_in_five_lines_is_proven():
    proof = prove(PreferenceAlgorithm(loss=mine, beta=0.1))
    assert proof.reaches_optimum
    assert proof.lost < 1e-8
    assert "reaches π*" in proof.sentence


def test_an_algorithm_is_proven_by_name_in_a_language_of_ones_own():
    language = make_language(seed=2)
    assert prove("dpo", language=language, beta=0.1).reaches_optimum
    assert not prove("ipo", language=language).reaches_optimum


def test_a_row_that_says_another_beta_than_its_loss_has_is_caught():
    proof = prove(PreferenceAlgorithm(loss=mine, beta=0.2), language=make_language(seed=2))
    assert not proof.is_stationary
    assert proof.distance > 0.05
    assert "does not rest" in proof.sentence


def test_a_loss_that_could_rest_at_the_optimum_and_turns_away_is_told_apart():
    def hill(chosen, rejected, known):
        return -((0.1 * (chosen.delta_B - rejected.delta_B)).sigmoid() - 0.5).square() * 0

    proof = prove(PreferenceAlgorithm(loss=hill, beta=0.1))
    assert proof.is_stationary
    assert not proof.reaches_optimum
    assert "does not get there" in proof.sentence


def test_proofs_refuse_what_they_cannot_mean():
    with pytest.raises(UserError, match="said twice"):
        prove(PreferenceAlgorithm(loss=mine, beta=0.1), beta=0.3)
    with pytest.raises(UserError, match="above 0"):
        prove(PreferenceAlgorithm(loss=mine, beta=0.0))
    with pytest.raises(UserError, match="did you mean ipo"):
        prove("ippo")
