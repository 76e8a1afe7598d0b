"""The exact expected loss, against loops that write it out, and where learning ends."""

import math
from dataclasses import replace

import pytest
import torch

from examples.proofs import learn
from examples.proofs.evidence import pairs, thumbs
from examples.proofs.exact import make_language, optimum, preferences, token_logps, total_variation
from plaudit.errors import UserError
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.row import PreferenceAlgorithm

SPOKEN = make_language(seed=1)
STAR_PY = optimum(SPOKEN, 0.5)
STAR_PYT = token_logps(STAR_PY, SPOKEN)[0]


def work_of(name, **settings):
    row = preference_algorithm(name, **settings)
    return learn.learning_problem(
        row, pairs(SPOKEN) if isinstance(row, PreferenceAlgorithm) else thumbs(SPOKEN), SPOKEN
    )


def loss_of(work, logp_PYT):
    return learn.expected_loss(work, logp_PYT, learn.frozen_terms(work, logp_PYT)).item()


def ordered_pairs():
    wins_PYY = preferences(SPOKEN).tolist()
    return [(p, i, j, wins_PYY[p][i][j] / 225) for p in range(2) for i in range(15) for j in range(15)]


def test_the_expected_loss_of_dpo_is_the_sum_over_all_ordered_pairs():
    shift_PY = (STAR_PY - SPOKEN.ref_logp_PY).tolist()
    by_hand = sum(
        share * math.log1p(math.exp(-0.3 * (shift_PY[p][i] - shift_PY[p][j])))
        for p, i, j, share in ordered_pairs()
    )
    assert loss_of(work_of("dpo", beta=0.3), STAR_PYT) == pytest.approx(by_hand)


def test_a_rows_nll_is_per_token_and_of_the_preferred_answer():
    work = work_of("dpo", beta=0.3)
    with_nll = replace(work, row=replace(work.row, nll_coef=2.0))
    mean_PY = (STAR_PY / SPOKEN.length_Y).tolist()
    by_hand = sum(-2 * share * mean_PY[p][i] for p, i, _, share in ordered_pairs())
    assert loss_of(with_nll, STAR_PYT) - loss_of(work, STAR_PYT) == pytest.approx(by_hand)


@pytest.mark.parametrize("cap", [0, 1])
def test_on_policy_weights_are_a_product_of_both_answers(cap):
    work = work_of("wpo", beta=0.3, weight_cap=cap)
    factor_PY = ((STAR_PYT - token_logps(STAR_PY, SPOKEN)[1]).sum(-1) / SPOKEN.length_Y).exp()
    weight_B = learn.frozen_terms(work, STAR_PYT).weight_B
    at = work.feedback.prompt_B, work.feedback.chosen_B, work.feedback.rejected_B
    wanted_B = factor_PY[at[0], at[1]] * factor_PY[at[0], at[2]]
    assert wanted_B.max() > 1
    wanted_B = wanted_B.where(wanted_B < 1, 1.0) if cap else wanted_B
    assert weight_B.sub(wanted_B).abs().max() < 1e-12


def test_a_running_reference_point_is_halfway_between_good_and_bad():
    work = work_of("bco", beta=0.5)
    reward_PY = 0.5 * (STAR_PY - SPOKEN.ref_logp_PY)
    good_PY = SPOKEN.reward_PY.sigmoid()
    means = [(share * reward_PY).sum() / share.sum() for share in (good_PY, 1 - good_PY)]
    assert learn.frozen_terms(work, STAR_PYT).context.baseline == pytest.approx((sum(means) / 2).item())


def test_a_mismatched_reference_point_is_never_below_zero():
    assert learn.frozen_terms(work_of("kto"), STAR_PYT).context.baseline == 0
    raised_PYT = SPOKEN.ref_logp_PYT + 0.5 * SPOKEN.mask_YT
    assert learn.frozen_terms(work_of("kto"), raised_PYT).context.baseline == pytest.approx(
        0.5 * SPOKEN.length_Y.double().mean().item()
    )


def test_the_slope_is_the_one_of_finite_differences():
    work = work_of("ipo", beta=0.5)
    step = torch.zeros_like(STAR_PY)
    slopes = []
    for place in ((p, y) for p in range(2) for y in range(15)):
        step[place] = 1e-5
        up, down = (
            loss_of(work, token_logps((STAR_PY + sign * step).log_softmax(-1), SPOKEN)[0]) for sign in (1, -1)
        )
        slopes.append(abs(up - down) / 2e-5)
        step[place] = 0
    assert learn.largest_gradient(work, STAR_PY) == pytest.approx(max(slopes), rel=1e-5)


@pytest.mark.slow
def test_learning_ends_where_the_slope_is_gone_also_for_a_loss_with_kinks():
    work = work_of("dpo", beta=0.5)
    assert learn.largest_gradient(work, learn.minimise_table(work)) < 1e-7
    hinge = work_of("hinge", beta=0.5)
    stopped_PY = learn.minimise_table(hinge, effort=learn.OptimiserBudget(rounds=1, steps=5))
    for seed in range(10):
        draw = torch.Generator().manual_seed(seed)
        other_PY = stopped_PY + 0.05 * torch.randn(2, 15, generator=draw, dtype=torch.float64)
        other_PYT = token_logps(other_PY.log_softmax(-1), SPOKEN)[0]
        assert loss_of(hinge, other_PYT) > loss_of(hinge, token_logps(stopped_PY, SPOKEN)[0])


def test_what_is_held_comes_to_rest():
    assert total_variation(learn.minimise_table(work_of("wpo", beta=0.5)), STAR_PY) < 1e-5


def test_a_loss_that_reduces_or_forgets_the_policy_is_refused_in_words():
    row = PreferenceAlgorithm(loss=lambda chosen, rejected, known: chosen.delta_B.mean(), beta=0.1)
    with pytest.raises(UserError, match="one number for each"):
        learn.minimise_table(learn.learning_problem(row, pairs(SPOKEN), SPOKEN))
    row = PreferenceAlgorithm(loss=lambda chosen, rejected, known: chosen.ref_logp_B, beta=0.1)
    with pytest.raises(UserError, match="no gradient"):
        learn.minimise_table(learn.learning_problem(row, pairs(SPOKEN), SPOKEN))
