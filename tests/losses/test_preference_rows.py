"""Every row of the table against its formula, written out once more from sums and means of tokens."""

import re
from dataclasses import replace

import pytest
import torch

from plaudit.errors import UserError
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.config import all_parameters
from plaudit.methods.preference.row import PreferenceAlgorithm, UnpairedAlgorithm, with_mixed_losses
from tests.losses.preference_batch import (
    Tokens,
    drawn,
    pair_losses,
    records,
    shorter_of,
    single_losses,
    tokens,
)
from tests.methods.preference import formulas
from tests.methods.preference.pieces import PAIRS, THUMBS

NO_REFERENCE = ("slic", "simpo", "cpo", "orpo", "rrhf")


def sides_of(name, told, shorter_N):
    """The answers one by one, of the tokens that count; where a row has no reference, it is 0."""
    ref_NT = torch.zeros_like(told.ref_NT) if name in NO_REFERENCE else told.ref_NT
    rows = zip(told.logp_NT, ref_NT, told.power_NT, told.mask_NT, shorter_N.tolist(), strict=True)
    return [
        formulas.Side(logp_T=logp_T[mask_T], ref_T=ref_T[mask_T], power_T=power_T[mask_T], shorter=shorter)
        for logp_T, ref_T, power_T, mask_T, shorter in rows
    ]


def written_out(name, chosen, rejected):
    shorter_N = shorter_of(chosen, rejected)
    pairs = list(zip(*(sides_of(name, told, shorter_N) for told in (chosen, rejected)), strict=True))
    if name in formulas.RANKED:
        return sum(formulas.RANKED[name](pair, (1.0, 2.0)) for pair in pairs)
    return (formulas.sorted_sum if name in formulas.SORTED else formulas.pair_sum)(
        name, [(*pair, 1.0, 1.0) for pair in pairs]
    )


def both_sides(seed=0):
    return tokens(seed), tokens(seed + 50)


def agree(found_N, wanted_N, leaves):
    """The same sum over the batch, and the same gradient by every token."""
    assert found_N.sum().item() == pytest.approx(wanted_N.sum().item(), abs=1e-10)
    grads = (torch.autograd.grad(value_N.sum(), leaves, retain_graph=True) for value_N in (found_N, wanted_N))
    for grad_NT, wanted_NT in zip(*grads, strict=True):
        torch.testing.assert_close(grad_NT, wanted_NT, rtol=1e-9, atol=1e-10)


def test_every_row_is_written_out_here():
    assert {*formulas.FORMULAS, *formulas.SORTED, *formulas.RANKED} == set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("swapped", [False, True], ids=["as told", "swapped"])
def test_a_row_of_pairs_is_its_formula_in_either_order(name, swapped):
    """A swapped label is the same formula with its sides exchanged, hold and NLL included."""
    chosen, rejected = reversed(both_sides()) if swapped else both_sides()
    found_N = pair_losses(preference_algorithm(name), chosen, rejected, baseline=formulas.DELTA)
    agree(found_N, written_out(name, chosen, rejected), [chosen.logp_NT, rejected.logp_NT])


@pytest.mark.parametrize("name", THUMBS)
def test_a_row_of_single_answers_is_its_formula(name):
    told, label_N = tokens(3), torch.tensor([1.0, 0.0, 1.0, 0.0, 0.25], dtype=torch.float64)
    delta_N = torch.stack([side.ratio_T.sum() for side in sides_of(name, told, told.mask_NT.sum(-1))])
    gain_N = 0.1 * delta_N - {"kto": 0.1 * formulas.DELTA, "bco": formulas.DELTA}.get(name, 0.0)
    row = preference_algorithm(name)
    found_N = single_losses(
        row, told, label_N, formulas.DELTA if row.needs & {"running_mean", "mismatched"} else 0.0
    )
    agree(found_N, formulas.SINGLE[name](gain_N, label_N), [told.logp_NT])


@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_a_row_is_as_its_facts_say(name):
    facts, row = PREFERENCE_ALGORITHMS[name], preference_algorithm(name)
    assert name == facts.name == row.name
    assert (facts.formula, facts.defaults) == (row.formula, row.settings)
    assert isinstance(row, UnpairedAlgorithm if facts.data == "thumbs" else PreferenceAlgorithm)
    assert ("reference" in row.needs) == (name not in NO_REFERENCE)
    assert row.beta == facts.defaults.get("beta", 1.0)
    assert set(facts.defaults) <= set(all_parameters())
    assert re.search(r"20\d\d", facts.paper)
    assert all(one.doc != f"A setting of {name.replace('-', '_')}." for one in facts.parameters.values())


def test_only_rows_that_measure_from_a_point_ask_for_one():
    needs = {name: preference_algorithm(name).needs for name in PREFERENCE_ALGORITHMS}
    running, mismatched = {"running_mean"}, {"mismatched"}
    asked = {name: some & (running | mismatched) for name, some in needs.items()}
    points = {"bco-pair": running, "mpo": running, "kto": mismatched, "bco": running}
    assert {name: some for name, some in asked.items() if some} == points
    assert [name for name in PAIRS if "sorted_batch" in needs[name]] == ["aot", "aot-unpaired"]


@pytest.mark.parametrize("name", PAIRS)
def test_the_reference_enters_where_there_is_one_and_nowhere_else(name):
    chosen, rejected = both_sides(1)
    other = replace(chosen, ref_NT=chosen.ref_NT - 0.25)
    row = preference_algorithm(name)
    losses = [pair_losses(row, side, rejected, baseline=formulas.DELTA) for side in (chosen, other)]
    assert torch.equal(*losses) == (name in NO_REFERENCE)


@pytest.mark.parametrize("name", [name for name in PAIRS if not name.startswith("aot")])
def test_a_batch_in_parts_has_the_losses_of_the_whole(name):
    chosen, rejected = both_sides(2)
    row = preference_algorithm(name)
    whole_N = pair_losses(row, chosen, rejected, baseline=formulas.DELTA)
    parts = [
        pair_losses(row, cut(chosen, part), cut(rejected, part), baseline=formulas.DELTA)
        for part in (slice(0, 2), slice(2, 5))
    ]
    torch.testing.assert_close(torch.cat(parts), whole_N, rtol=0, atol=1e-12)


def cut(told, part):
    return Tokens(**{name: getattr(told, name)[part] for name in Tokens.__slots__})


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", PAIRS)
def test_finite_differences_agree_on_a_row(name):
    """By the tokens of both sides; the weight has no gradient, so its row is taken without."""
    told = [replace(one, mask_NT=torch.ones_like(one.mask_NT)) for one in both_sides(4)]
    row = replace(preference_algorithm(name), weight=None)
    refs = [-drawn(seed, 5, 7).abs() for seed in (8, 9)]

    def value(*given):
        parts = zip(told, given, refs, strict=True)
        sides = [replace(one, logp_NT=logp_NT, ref_NT=ref_NT) for one, logp_NT, ref_NT in parts]
        return pair_losses(row, *sides, baseline=formulas.DELTA).sum()

    leaves = [(-drawn(seed, 5, 7).abs() - 0.05).requires_grad_() for seed in (6, 7)]
    assert torch.autograd.gradcheck(value, leaves)


def test_a_mix_is_the_weighted_sum_under_the_rows_own_cells():
    chosen, rejected = both_sides(6)
    weights = {"hinge": 0.5, "aot": 2.0, "bco-pair": 0.3}
    parts = [(weight, preference_algorithm(name)) for name, weight in weights.items()]
    row = with_mixed_losses(parts, preference_algorithm("dpop"))
    assert {"sorted_batch", "running_mean"} <= row.needs
    assert row.dpop_lambda == 50.0
    under = [(weight, replace(part, dpop_lambda=50.0)) for weight, part in parts]
    wanted_N = sum(weight * pair_losses(part, chosen, rejected, formulas.DELTA) for weight, part in under)
    agree(pair_losses(row, chosen, rejected, formulas.DELTA), wanted_N, [chosen.logp_NT, rejected.logp_NT])


def test_a_mix_by_name_has_the_rows_beta_and_a_mix_of_one_is_that_one():
    chosen, rejected = both_sides(7)
    named = preference_algorithm("mpo", beta=0.4, nll_coef=0.0, mix=("hinge=1", "ipo=0.25"))
    wanted_N = sum(
        weight * pair_losses(preference_algorithm(name, beta=0.4), chosen, rejected)
        for name, weight in (("hinge", 1), ("ipo", 0.25))
    )
    leaves = [chosen.logp_NT, rejected.logp_NT]
    agree(pair_losses(named, chosen, rejected), wanted_N, leaves)
    alone = preference_algorithm("mpo", nll_coef=0.0, mix=("nca=1",))
    plain_N = pair_losses(preference_algorithm("nca"), chosen, rejected)
    agree(pair_losses(alone, chosen, rejected), plain_N, leaves)


@pytest.mark.parametrize(
    ("name", "near"),
    [("dppo", "dpo"), ("simp0", "simpo"), ("robust", "robust-dpo"), ("KTO", "kto"), ("plain", None)],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(UserError, match=f"no preference algorithm is called '{name}'") as caught:
        preference_algorithm(name)
    hint = re.search(r"did you mean (.+)\?", str(caught.value))
    assert (hint and hint[1]) == near


def test_the_records_a_row_makes_have_length_and_no_reference_where_there_is_none():
    chosen, rejected = both_sides(9)
    for name in ("dpo", "cpo"):
        made, _ = records(preference_algorithm(name), chosen, rejected)
        assert made.length_B.tolist() == chosen.mask_NT.sum(-1).tolist()
        assert bool(made.ref_logp_B.any()) == (name == "dpo")
        torch.testing.assert_close(made.delta_B, made.logp_B - made.ref_logp_B)
