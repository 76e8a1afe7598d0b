"""Expected gradients over every group: claims hold elsewhere too, and a wrong estimator is caught."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from examples.proofs import estimators, exact
from examples.proofs.claim import measure_claim, proof_setup
from examples.proofs.claims import policy
from examples.proofs.claims.estimators import kl_penalised_claim, same_gradient_claim, unbiased_claim
from examples.proofs.claims.optimum import kl_gradient, reward_gradient
from examples.proofs.claims.staleness import surrogate_gradient
from examples.proofs.prove import ESTIMATORS
from plaudit.advantages.group import centred
from plaudit.losses.divergence import k2, k3
from plaudit.losses.policy import clipped, policy_gradient, unclipped
from plaudit.tensors.masked import broadcast_to_tokens, last_token_mask

SPOKEN = exact.make_language(seed=3)
PLACES = [(2, 1.0), (1, 0.25), (5, 2.0)]


@cache
def place(seed, beta):
    return proof_setup(seed=seed, beta=beta)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "beta"), PLACES)
@pytest.mark.parametrize("claim", [*ESTIMATORS, *policy.POLICY_CLAIMS], ids=lambda claim: claim.sentence)
def test_claims_hold_of_other_languages_and_leashes(claim, seed, beta):
    found = measure_claim(claim, place(seed, beta))
    assert found.holds, f"expected {claim.expected}, measured {found.value:.2e}"


def with_own_answer(seen):
    return broadcast_to_tokens(centred(seen.reward_N, seen.group_N), seen.mask_NT)


def turned(seen):
    return -estimators.reinforce(estimators.rloo_advantage)(seen)


def best_of_group(seen):
    reward_KG = seen.reward_N.view(-1, 3)
    return broadcast_to_tokens((reward_KG - reward_KG.max(-1, keepdim=True).values).flatten(), seen.mask_NT)


def unended(seen):
    loss_NT = policy_gradient(seen.logp_NT, estimators.rloo_advantage(seen))
    return estimators.token_sum(loss_NT.masked_fill(last_token_mask(seen.mask_NT), 0.0), seen)


WRONG = {
    "a baseline with the answer in it, uncorrected": estimators.reinforce(with_own_answer),
    "the best of the group for a baseline": estimators.reinforce(best_of_group),
    "the wrong sign": turned,
    "z-score said to be unbiased": estimators.reinforce(estimators.grpo_advantage),
    "sequence mean": lambda seen: estimators.sequence_mean_loss(
        policy_gradient(seen.logp_NT, estimators.rloo_advantage(seen)), seen
    ),
    "a stale critic at λ = 0.95": estimators.gae_estimator(0.95, estimators.stale_values),
    "a critic at λ = 0 that is stale": estimators.gae_estimator(0, estimators.stale_values),
    "the last token's log-prob left out": unended,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_estimator_does_not_hold(name):
    assert not measure_claim(unbiased_claim(name, WRONG[name]), place(3, 0.5)).holds


def test_k3_in_the_reward_and_a_forgotten_leash_do_not_hold():
    for cell in (k2, k3, torch.zeros_like):
        assert not measure_claim(
            kl_penalised_claim("wrong", partial(estimators.kl_penalised_reinforce, cell=cell)), place(3, 0.5)
        ).holds
    assert measure_claim(kl_penalised_claim("right", estimators.kl_penalised_reinforce), place(3, 0.5)).holds
    assert estimators.cosine(reward_gradient(place(1, 0.5), cell=k3), kl_gradient(place(1, 0.5))) < 0.9


def test_a_clip_is_not_alike_once_the_policy_has_moved():
    def free(seen):
        return estimators.token_sum(
            unclipped(estimators.token_ratios(seen), estimators.rloo_advantage(seen)), seen
        )

    def held(seen):
        return estimators.token_sum(
            clipped(estimators.token_ratios(seen), estimators.rloo_advantage(seen), low=0.2, high=0.2), seen
        )

    assert measure_claim(same_gradient_claim("first step", free, held), place(3, 0.5)).holds
    assert not measure_claim(same_gradient_claim("later", free, held, drift=0.5), place(3, 0.5)).holds


def test_groups_come_as_often_as_a_policy_says_them():
    logp_PY = estimators.perturbed_policy(SPOKEN)
    seen = estimators.exact_batch(SPOKEN, logp_PY, size=2)
    assert len(seen.share_N) == 2 * 15 * 15 * 2
    k = 2 * (15 * 4 + 9)
    assert seen.answer_N[k : k + 2].tolist() == [4, 9]
    chance = (logp_PY[0, 4] + logp_PY[0, 9]).exp() / 2
    assert seen.share_N[k : k + 2].tolist() == pytest.approx([chance.item() / 2] * 2)
    assert seen.logp_NT[k].sum().item() == pytest.approx(logp_PY[0, 4].item())


def test_groups_without_order_have_the_expectation_of_those_with_one():
    spoken = exact.make_language(seed=3, symbols=1, length=2)
    found, other = (
        estimators.expected_gradient(
            estimators.reinforce(estimators.grpo_advantage),
            estimators.exact_batch(spoken, estimators.perturbed_policy(spoken), size=4, ordered=ordered),
        )
        for ordered in (True, False)
    )
    assert estimators.relative_error(other, found) < 1e-12


def test_gradients_are_those_of_finite_differences():
    logp_PY = estimators.perturbed_policy(SPOKEN)
    exact_PY = exact.objective_gradient(logp_PY, SPOKEN, 0.0)
    old_PY = estimators.perturbed_policy(SPOKEN, seed=1)
    place_of = proof_setup(seed=3)
    step = torch.zeros_like(logp_PY)
    for at in ((0, 3), (1, 11)):
        step[at] = 1e-6
        up, down = (exact.mean_reward((logp_PY + sign * step).log_softmax(-1), SPOKEN) for sign in (1, -1))
        assert exact_PY[at].item() == pytest.approx((up - down) / 2e-6, abs=1e-8)
        step[at] = 0
    # Where the policy is the old one the surrogate has the gradient of J itself, elsewhere it has not.
    assert estimators.relative_error(surrogate_gradient(logp_PY, logp_PY, place_of), exact_PY) < 1e-12
    assert estimators.relative_error(surrogate_gradient(logp_PY, old_PY, place_of), exact_PY) > 0.01


def test_the_value_of_the_empty_beginning_is_the_mean_reward():
    value_PYT = estimators.prefix_values(SPOKEN.ref_logp_PY, SPOKEN.reward_PY, SPOKEN)
    assert value_PYT[:, :, 0].mean().item() == pytest.approx(exact.mean_reward(SPOKEN.ref_logp_PY, SPOKEN))
    whole = SPOKEN.responses.index((1, 2, 2))
    last = [SPOKEN.responses.index((1, 2, token)) for token in range(3)]
    prob_3 = SPOKEN.ref_logp_PY[0, last].exp()
    wanted = (prob_3 * SPOKEN.reward_PY[0, last]).sum() / prob_3.sum()
    assert value_PYT[0, whole, 2].item() == pytest.approx(wanted.item())


def test_the_fisher_matrix_is_the_hessian_that_trpo_multiplies_with():
    place_of, logp_PY = proof_setup(seed=3), estimators.perturbed_policy(SPOKEN)
    towards_D = torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, product = policy.natural_gradient(place_of, logp_PY)
    assert (product(towards_D) - policy.fisher(logp_PY) @ towards_D).abs().max() < 1e-12


@pytest.mark.parametrize("row", [policy.kl_penalised_rloo, policy.kl_penalised_ppo])
def test_an_ascent_on_another_leash_ends_elsewhere(row):
    place_of = proof_setup(seed=3, beta=0.5)
    way = policy.AscentSchedule(rate=0.1, rounds=60, group_size=2 if row is policy.kl_penalised_rloo else 1)
    end_PY = policy.ascend(row(replace(place_of, beta=1.0)), place_of, way)
    assert exact.total_variation(end_PY, exact.optimum(SPOKEN, 1.0)) < 0.01
    assert exact.total_variation(end_PY, exact.optimum(SPOKEN, 0.5)) > 0.05
    assert exact.objective(end_PY, SPOKEN, 0.5) < exact.objective(exact.optimum(SPOKEN, 0.5), SPOKEN, 0.5)
