"""What the lab calls exact, against brute force and finite differences."""

import math

import pytest
import torch

from examples.proofs import exact
from examples.proofs.evidence import (
    certain_preferences,
    pairs,
    repeated_pairs,
    thumbs,
    win_rates,
    with_flipped_labels,
)
from examples.proofs.exact import (
    END,
    TablePolicy,
    TransformerPolicy,
    batch_of_all,
    make_language,
    token_logps,
    two_answer_language,
    with_reference,
)
from plaudit.errors import UserError

SPOKEN = make_language(seed=3)
BETA = 0.7


def some_policy(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(SPOKEN.reward_PY.shape, generator=draw, dtype=torch.float64).log_softmax(-1)


def test_every_string_is_one_answer_and_no_other_can_be_said():
    assert len(set(SPOKEN.responses)) == len(SPOKEN.responses) == 15
    assert all((END in said[:-1]) is False for said in SPOKEN.responses)
    assert all(said[-1] == END or len(said) == 3 for said in SPOKEN.responses)
    assert SPOKEN.ref_logp_PY.exp().sum(-1).tolist() == pytest.approx([1, 1], abs=1e-12)


def test_the_same_seed_is_the_same_language_and_another_one_is_another():
    assert torch.equal(make_language(seed=3).reward_PY, SPOKEN.reward_PY)
    assert not torch.equal(make_language(seed=4).reward_PY, SPOKEN.reward_PY)


@pytest.mark.parametrize("faults", [{"prompts": 0}, {"symbols": 0}, {"length": 0}, {"length": 9}])
def test_a_language_that_is_empty_or_cannot_be_written_out_is_refused(faults):
    with pytest.raises(UserError):
        make_language(**faults)


def test_token_log_probs_of_a_distribution_are_those_of_its_beginnings():
    logp_PY = some_policy()
    token_PYT, power_PYT = token_logps(logp_PY, SPOKEN)
    prob = dict(zip(SPOKEN.responses, logp_PY[1].exp().tolist(), strict=True))
    for y, said in enumerate(SPOKEN.responses):
        for t in range(len(said)):
            before = sum(p for other, p in prob.items() if other[:t] == said[:t])
            shares = [sum(p for y, p in prob.items() if y[: t + 1] == (*said[:t], v)) for v in range(3)]
            assert token_PYT[1, y, t].exp().item() == pytest.approx(shares[said[t]] / before)
            assert power_PYT[1, y, t].exp().item() == pytest.approx(sum((s / before) ** 2 for s in shares))
        assert not token_PYT[1, y, len(said) :].any()
    assert token_PYT.sum(-1).sub(logp_PY).abs().max() < 1e-12


def test_no_policy_is_worth_more_than_the_optimum_which_is_worth_its_log_partition():
    star_PY = exact.optimum(SPOKEN, BETA)
    best = exact.objective(star_PY, SPOKEN, BETA)
    partition_P = (SPOKEN.ref_logp_PY + SPOKEN.reward_PY / BETA).logsumexp(-1)
    assert best == pytest.approx(BETA * partition_P.mean().item())
    for seed in range(20):
        assert exact.objective((star_PY + 0.1 * some_policy(seed)).log_softmax(-1), SPOKEN, BETA) < best


def test_the_gradient_of_the_objective_is_the_one_of_finite_differences():
    logit_PY = some_policy()
    gradient_PY = exact.objective_gradient(logit_PY, SPOKEN, BETA)
    for place in ((0, 0), (0, 7), (1, 14)):
        step = torch.zeros_like(logit_PY)
        step[place] = 1e-6
        up, down = (
            exact.objective((logit_PY + sign * step).log_softmax(-1), SPOKEN, BETA) for sign in (1, -1)
        )
        assert gradient_PY[place].item() == pytest.approx((up - down) / 2e-6, abs=1e-8)


def test_kl_and_total_variation_by_hand():
    one, other = torch.tensor([[0.5, 0.5]]).double().log(), torch.tensor([[0.75, 0.25]]).double().log()
    assert exact.kl(one, other).item() == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(2))
    assert exact.total_variation(one, other) == pytest.approx(0.25)


def test_pairs_come_as_often_as_they_are_drawn_and_preferred():
    found = pairs(SPOKEN, SPOKEN.ref_logp_PY.exp())
    mu_PY, wins_PYY = SPOKEN.ref_logp_PY.exp(), exact.preferences(SPOKEN)
    b = int(((found.prompt_B == 1) & (found.chosen_B == 4) & (found.rejected_B == 9)).nonzero())
    wanted = mu_PY[1, 4] * mu_PY[1, 9] * wins_PYY[1, 4, 9]
    assert found.weight_B.sum().item() == pytest.approx(1)
    # Over both orders the chances of a prompt's pairs add up to one, an answer against itself counts half.
    whole = sum((mu_PY[p, :, None] * mu_PY[p, None, :] * wins_PYY[p]).sum() for p in range(2))
    assert found.weight_B[b].item() == pytest.approx((wanted / whole).item())


def test_counted_pairs_have_the_shares_of_weighed_ones():
    found = pairs(SPOKEN)
    repeated = repeated_pairs(found, rows=4096)
    assert len(repeated.weight_B) == 4096
    best = SPOKEN.reward_PY[0].argmax()
    shares = [
        one.weight_B[(one.prompt_B == 0) & (one.chosen_B == best)].sum().item() for one in (found, repeated)
    ]
    assert shares[0] == pytest.approx(shares[1], abs=1 / 4096)


def test_chances_add_up_to_one_however_sure_or_noisy():
    for chance_PYY in (certain_preferences(SPOKEN), with_flipped_labels(exact.preferences(SPOKEN), 0.2)):
        assert (chance_PYY + chance_PYY.mT).sub(1).abs().max() < 1e-12
    assert win_rates(SPOKEN, SPOKEN.ref_logp_PY.exp()).mul(SPOKEN.ref_logp_PY.exp()).sum(-1).tolist() == (
        pytest.approx([0.5, 0.5])
    )
    assert thumbs(SPOKEN).label_B.tolist() == pytest.approx(SPOKEN.reward_PY.sigmoid().flatten().tolist())


def test_the_transformer_is_scored_by_the_projects_policy_and_says_nothing_but_the_answers():
    spoken = with_reference(SPOKEN, TransformerPolicy(SPOKEN))
    assert spoken.ref_logp_PY.exp().sum(-1).tolist() == pytest.approx([1, 1], abs=1e-12)
    assert torch.equal(batch_of_all(SPOKEN).mask_NT[:15], SPOKEN.mask_YT)
    assert token_logps(spoken.ref_logp_PY, spoken)[0].sub(spoken.ref_logp_PYT).abs().max() < 1e-10


def test_a_table_starts_as_the_reference():
    assert TablePolicy(SPOKEN)().sub(SPOKEN.ref_logp_PYT).abs().max() < 1e-12
    assert two_answer_language(prompts=3).reward_PY.shape == (3, 2)
