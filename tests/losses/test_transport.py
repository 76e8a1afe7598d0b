"""AOT: sorted batches against torch.sort over the whole batch, in one piece and in several."""

import pytest
import torch
from torch.nn.functional import logsigmoid

from plaudit.losses.preference import (
    SortedPartners,
    aot,
    aot_unpaired,
    cdpo,
    completion_logps,
    forward_kl_link,
    match_sorted,
)
from tests.losses.preference_batch import drawn, numbers, said

OWN = {"beta": 0.3, "smoothing": 0.1}
BOTH = [aot, aot_unpaired]
both = pytest.mark.parametrize("loss", BOTH, ids=lambda value: value.__name__)


def batch(seed, count=9, link=None):
    leaves = [side.requires_grad_() for side in drawn(seed, 2, count).unbind()]
    refs = drawn(seed + 100, 2, count)
    also = {} if link is None else {"link": link}
    return leaves, [
        completion_logps(leaf, ref, torch.ones_like(ref), **also)
        for leaf, ref in zip(leaves, refs, strict=True)
    ]


def smoothed(logit_B):
    return -0.9 * logsigmoid(logit_B) - 0.1 * logsigmoid(-logit_B)


def directly(loss, chosen, rejected):
    """The papers' form: both figures sorted over the batch, with the gradient through torch.sort."""
    if loss is aot:
        mine_B, yours_B = chosen.logp_B - rejected.logp_B, chosen.ref_logp_B - rejected.ref_logp_B
    else:
        mine_B, yours_B = chosen.delta_B, rejected.delta_B
    return smoothed(0.3 * (mine_B.sort().values - yours_B.sort().values)).sum()


def piece(record, part):
    return completion_logps(record.logp_B[part], record.ref_logp_B[part], record.length_B[part])


def piece_of(beside, part):
    return SortedPartners(**{name: getattr(beside, name)[part] for name in SortedPartners.__slots__})


def agree(found, wanted, leaves, tolerance):
    assert found.item() == pytest.approx(wanted.item(), abs=tolerance)
    grads = (torch.autograd.grad(value, leaves, retain_graph=True) for value in (found, wanted))
    for grad_B, wanted_B in zip(*grads, strict=True):
        torch.testing.assert_close(grad_B, wanted_B, rtol=0, atol=tolerance)


@both
@pytest.mark.parametrize("seed", range(5))
def test_value_and_gradient_are_those_of_sorting_the_batch(loss, seed):
    leaves, sides = batch(seed)
    found, wanted = loss(*sides, match_sorted(*sides), **OWN).sum(), directly(loss, *sides)
    agree(found, wanted, leaves, 1e-12)


@both
@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_a_batch_matched_as_a_whole_have_its_value_and_gradient(loss, seed):
    leaves, sides = batch(seed)
    beside = match_sorted(*sides)
    parts = [slice(0, 1), slice(1, 6), slice(6, 9)]
    found = sum(
        loss(*(piece(side, part) for side in sides), piece_of(beside, part), **OWN).sum() for part in parts
    )
    agree(found, directly(loss, *sides), leaves, 1e-12)


def test_partners_by_hand():
    """Gaps 3, 1, 2 of ranks 3, 1, 2 beside the reference's 10, 30, 20 sorted; the same for either side."""
    logp_B, lose_B = numbers(3.0, 1.0, 2.0), numbers(0.0, 0.0, 0.0)
    chosen = completion_logps(logp_B, numbers(10.0, 30.0, 20.0), torch.ones(3, dtype=torch.float64))
    rejected = completion_logps(lose_B, lose_B, torch.ones(3, dtype=torch.float64))
    assert match_sorted(chosen, rejected).for_gap_B.tolist() == [30.0, 10.0, 20.0]
    beside = match_sorted(said(numbers(5.0, -1.0, 2.0)), said(numbers(0.5, 0.1, 0.9)))
    assert beside.for_chosen_B.tolist() == [0.9, 0.1, 0.5]
    assert beside.for_rejected_B.tolist() == [2.0, -1.0, 5.0]


@both
def test_a_batch_of_one_pair_is_cdpo(loss):
    leaves, sides = batch(3, count=1)
    found, wanted = loss(*sides, match_sorted(*sides), **OWN).sum(), cdpo(*sides, **OWN).sum()
    agree(found, wanted, leaves, 1e-14)


@both
def test_finite_differences_agree_while_the_order_stays(loss):
    leaves, sides = batch(7)
    refs = [side.ref_logp_B for side in sides]

    def value(*given):
        made = [
            completion_logps(leaf, ref, torch.ones_like(ref)) for leaf, ref in zip(given, refs, strict=True)
        ]
        return loss(*made, match_sorted(*made), **OWN).sum()

    assert torch.autograd.gradcheck(value, leaves)


def test_partners_have_no_gradient_and_unpaired_ones_come_through_the_link():
    leaves, sides = batch(8, link=forward_kl_link)
    beside = match_sorted(*sides)
    assert not any(getattr(beside, name).requires_grad for name in SortedPartners.__slots__)
    found, wanted = aot_unpaired(*sides, beside, **OWN).sum(), directly(aot_unpaired, *sides)
    agree(found, wanted, leaves, 1e-10)


@both
def test_equal_figures_and_huge_ones_stay_numbers(loss):
    ends = torch.tensor([-1e4, 0.0, 0.0, 1e4, 1e4, -1e4])
    leaves = [ends.clone().requires_grad_(), ends.flip(0).clone().requires_grad_()]
    sides = [said(leaf) for leaf in leaves]
    loss_B = loss(*sides, match_sorted(*sides), **OWN)
    assert bool(loss_B.isfinite().all())
    for grad_B in torch.autograd.grad(loss_B.sum(), leaves):
        assert bool(grad_B.isfinite().all())
