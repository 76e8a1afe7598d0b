"""What comes before a loss: links by their divergence, measures, price, hold, weight."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses import preference
from plaudit.methods.preference.algorithms import preference_algorithm
from tests.losses.preference_batch import drawn, numbers, said, tokens

LINKS = {
    "kl": preference.reverse_kl_link,
    "forward kl": preference.forward_kl_link,
    "jensen-shannon": preference.jensen_shannon_link,
    "alpha": partial(preference.alpha_divergence_link, alpha=0.5),
    "alpha above 1": partial(preference.alpha_divergence_link, alpha=2),
    "alpha below 0": partial(preference.alpha_divergence_link, alpha=-1.0),
}
each_link = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)


@each_link
def test_a_link_is_0_and_of_slope_1_where_both_agree_and_rises_everywhere(link):
    """Jensen–Shannon's slope is ½: its f is half of the others' at u = 1."""
    ratio_B = torch.arange(-15.0, 16.0, dtype=torch.float64, requires_grad=True)
    shift_B = link(ratio_B)
    (slope_B,) = torch.autograd.grad(shift_B.sum(), ratio_B)
    assert shift_B[15].item() == 0
    assert slope_B[15].item() == (0.5 if link is preference.jensen_shannon_link else 1.0)
    assert bool((slope_B > 0).all())


@pytest.mark.parametrize(
    ("link", "f"),
    [
        (preference.reverse_kl_link, lambda u: u * u.log()),
        (preference.forward_kl_link, lambda u: -u.log()),
        (preference.jensen_shannon_link, lambda u: u * u.log() - (1 + u) * ((1 + u) / 2).log()),
        # With a = 1 − α: (u^a − a u − (1 − a)) / (a (a − 1)).
        (
            partial(preference.alpha_divergence_link, alpha=0.3),
            lambda u: (u**0.7 - 0.7 * u - 0.3) / (0.7 * -0.3),
        ),
    ],
)
def test_a_link_is_the_slope_of_its_divergence(link, f):
    """KL, forward KL, JS and alpha are E_ref f(u); Δ is f′(u), less what it is at u = 1."""
    u_B = torch.linspace(0.05, 8, 40, dtype=torch.float64, requires_grad=True)
    one_B = numbers(1.0).requires_grad_()
    slope_B, at_one_B = (torch.autograd.grad(f(u).sum(), u)[0] for u in (u_B, one_B))
    torch.testing.assert_close(link(u_B.log()), slope_B - at_one_B, rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(ratio=st.floats(-5, 5))
def test_the_alpha_divergences_run_from_reverse_to_forward_kl(ratio):
    ratio_B = numbers(ratio)
    assert preference.alpha_divergence_link(ratio_B, alpha=1e-9).item() == pytest.approx(ratio, abs=1e-7)
    assert preference.alpha_divergence_link(ratio_B, alpha=1) == preference.forward_kl_link(ratio_B)
    ends = sorted((preference.forward_kl_link(ratio_B).item(), ratio))
    assert ends[0] - 1e-12 <= preference.alpha_divergence_link(ratio_B, alpha=0.5).item() <= ends[1] + 1e-12


def test_bounded_links_stay_below_their_bounds_and_the_tangent_meets_its_link_at_30_nats():
    far_B = numbers(1e4)
    assert preference.forward_kl_link(far_B).item() == 1.0
    assert preference.jensen_shannon_link(far_B).item() == pytest.approx(math.log(2))
    assert preference.alpha_divergence_link(far_B, alpha=0.5).item() == 2.0
    ratio_B = numbers(-29.9, -30.0, -30.1).requires_grad_()
    shift_B = preference.forward_kl_link(ratio_B)
    assert shift_B[:2].tolist() == [-math.expm1(29.9), -math.expm1(30.0)]
    (slope_B,) = torch.autograd.grad(shift_B.sum(), ratio_B)
    assert slope_B.tolist() == pytest.approx([math.exp(29.9), math.exp(30), math.exp(30)])


@each_link
def test_finite_differences_agree_on_a_link(link):
    assert torch.autograd.gradcheck(link, drawn(0, 8).requires_grad_())


@pytest.mark.parametrize("link", [*list(LINKS.values())[:5]], ids=list(LINKS)[:5])
@pytest.mark.parametrize("loss", [preference.dpo, preference.nca, partial(preference.bco_pair, baseline=0.1)])
def test_a_link_of_huge_ratios_stays_a_number(link, loss):
    """Where e^x overflows, Δ goes on along its tangent: an answer far below the reference has a slope."""
    ends = torch.tensor([-1e4, -200.0, -90.0, -20.0, 0.0, 90.0, 1e4])
    sides = [side.flatten().requires_grad_() for side in torch.meshgrid(ends, ends, indexing="ij")]
    nothing = torch.zeros_like(sides[0])
    loss_B = loss(
        *(preference.completion_logps(side, nothing, nothing + 1, link) for side in sides), beta=0.1
    )
    grads = torch.autograd.grad(loss_B.sum(), sides)
    assert bool(loss_B.isfinite().all())
    assert all(bool(grad_B.isfinite().all()) for grad_B in grads)
    fallen_B = (sides[0] < -80) & (sides[1] == 0)
    assert bool((grads[0][fallen_B] < 0).all())


def test_a_record_has_the_shift_of_its_ratio_and_no_reference_is_a_reference_of_0():
    one = preference.completion_logps(numbers(-3.0), numbers(-4.0), numbers(2.0), preference.forward_kl_link)
    assert one.delta_B.item() == pytest.approx(1 - math.exp(-1))
    assert preference.completion_logps(numbers(-3.0), numbers(0.0), numbers(2.0)).delta_B.item() == -3.0


MEASURES = {
    "sum": preference.sum_logps,
    "mean": preference.mean_logps,
    "part": partial(preference.length_desensitised_logps, share=0.25),
}


@pytest.mark.parametrize("name", MEASURES)
def test_finite_differences_agree_on_a_measure_and_masked_tokens_have_no_gradient(name):
    told, shorter_B = tokens(1), torch.tensor([1, 2, 3, 1, 9])
    value_BT = drawn(2, 5, 7).requires_grad_()
    measure = partial(MEASURES[name], mask_BT=told.mask_NT, shorter_B=shorter_B)
    assert torch.autograd.gradcheck(measure, value_BT)
    (grad_BT,) = torch.autograd.grad(
        MEASURES[name](told.logp_NT, told.mask_NT, shorter_B).sum(), told.logp_NT
    )
    assert bool((grad_BT[~told.mask_NT] == 0).all())
    assert bool((grad_BT[told.mask_NT] > 0).all())


def test_a_share_of_1_is_the_sum_and_of_0_the_start_as_long_as_the_shorter_answer():
    told, shorter_B = tokens(3), torch.tensor([1, 2, 3, 1, 9])
    logp_BT, mask_BT = told.logp_NT, told.mask_NT
    whole_B = preference.length_desensitised_logps(logp_BT, mask_BT, shorter_B, share=1)
    torch.testing.assert_close(whole_B, preference.sum_logps(logp_BT, mask_BT, shorter_B), rtol=0, atol=1e-14)
    start_B = preference.length_desensitised_logps(logp_BT, mask_BT, shorter_B, share=0.0)
    for row, length in enumerate(shorter_B.tolist()):
        wanted = logp_BT[row][mask_BT[row]][:length].sum()
        assert start_B[row].item() == pytest.approx(wanted.item())


def test_the_mean_is_the_sum_where_one_token_counts_and_an_empty_answer_is_0():
    logp_BT = -drawn(4, 2, 3).abs()
    mask_BT = torch.tensor([[False, True, False], [False, False, False]])
    shorter_B = torch.ones(2, dtype=torch.long)
    assert preference.mean_logps(logp_BT, mask_BT, shorter_B).tolist() == [logp_BT[0, 1].item(), 0.0]


def test_equal_lengths_cost_dpo_nothing_and_a_longer_winner_is_pushed_less():
    win_B, lose_B = drawn(6, 2, 6)
    plain_B = preference.dpo(said(win_B), said(lose_B), beta=0.1)
    even = [preference.with_length_penalty(said(side_B), penalty=3.0) for side_B in (win_B, lose_B)]
    torch.testing.assert_close(preference.dpo(*even, beta=0.1), plain_B, rtol=0, atol=1e-13)
    slopes = []
    for length in (4.0, 40.0):
        leaf_B = win_B.clone().requires_grad_()
        given = (said(leaf_B, length), said(lose_B))
        sides = [preference.with_length_penalty(side, penalty=0.5) for side in given]
        slopes.append(torch.autograd.grad(preference.dpo(*sides, beta=0.1).sum(), leaf_B)[0].abs())
    assert bool((slopes[1] < slopes[0]).all())


def test_a_hold_is_nothing_until_an_answer_has_fallen_and_then_smaugs():
    """−log σ(β(h − λ max(0, log π_ref(y_w) / π(y_w)))): one up by 1, one down by 1, λ = 5, β = ½."""
    chosen = preference.completion_logps(numbers(-3.0, -5.0), numbers(-4.0, -4.0), numbers(2.0, 2.0))
    held = preference.with_dpop_penalty(chosen, penalty=5.0)
    assert held.delta_B.tolist() == [1.0, -1.0 - 5.0]
    assert held.logp_B is chosen.logp_B
    loss_B = preference.dpo(held, said(numbers(0.0, 0.0)), beta=0.5)
    assert loss_B.tolist() == pytest.approx([math.log1p(math.exp(-0.5)), math.log1p(math.exp(3))])


def test_a_fallen_answer_is_raised_by_one_and_the_hold_and_finite_differences_agree():
    ref_B, length_B = drawn(7, 6), torch.ones(6, dtype=torch.float64)
    logp_B = drawn(8, 6).requires_grad_()

    def held(value_B):
        return preference.with_dpop_penalty(
            preference.completion_logps(value_B, ref_B, length_B), penalty=5
        ).delta_B

    (grad_B,) = torch.autograd.grad(held(logp_B).sum(), logp_B)
    assert grad_B.tolist() == torch.where(logp_B < ref_B, 6.0, 1.0).tolist()
    assert 0 < int((logp_B < ref_B).sum()) < 6
    assert torch.autograd.gradcheck(held, logp_B)
    assert torch.autograd.gradcheck(
        lambda value_B: preference.with_length_penalty(said(value_B), penalty=0.3).delta_B, logp_B
    )


def test_pairs_of_likeliest_answers_count_once_and_no_more_unless_the_cap_is_off():
    """Zhou et al. 2024 clamp a pair's weight at 1: greedy answers are likelier than what is drawn."""
    logp_BTV = (3 * drawn(2, 4, 6, 5)).log_softmax(-1)
    likeliest_BT, sampled_BT = logp_BTV.max(-1).values, logp_BTV.min(-1).values
    power_BT, mask_BT = (2 * logp_BTV).logsumexp(-1), torch.ones(4, 6, dtype=torch.bool)
    likely_B, rare_B = (preference.wpo_weight(one, power_BT, mask_BT) for one in (likeliest_BT, sampled_BT))
    assert bool((likely_B > 1).all())
    usual, open_ended = preference_algorithm("wpo"), preference_algorithm("wpo", weight_cap=0)
    assert usual.pair_weight(likely_B, likely_B).tolist() == [1.0] * 4
    # The product is what is clamped: a likely answer stands for its unlikely partner.
    wanted = [min(a * b, 1.0) for a, b in zip(likely_B.tolist(), rare_B.tolist(), strict=True)]
    assert usual.pair_weight(likely_B, rare_B).tolist() == pytest.approx(wanted)
    assert max(wanted) < 1
    assert torch.equal(open_ended.pair_weight(likely_B, likely_B), likely_B * likely_B)
    other = preference_algorithm("dpo", weighting="on-policy", weight_cap=2.0)
    assert float(other.pair_weight(likely_B, likely_B).max()) <= 2.0


def test_the_weight_is_1_of_an_even_choice_and_small_of_what_is_never_said():
    flat_BT = torch.full((1, 3), -math.log(5), dtype=torch.float64)
    everything_BT = torch.ones(1, 3, dtype=torch.bool)
    assert preference.wpo_weight(flat_BT, flat_BT, everything_BT).item() == pytest.approx(1.0)
    assert preference.wpo_weight(flat_BT - 1e4, flat_BT, everything_BT).item() == 0.0
