"""Where rows of policy optimisation end: claims hold elsewhere too, and a row that is another is caught."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from examples.proofs.claim import measure_claim, proof_setup
from examples.proofs.claims.policy import POLICY_CLAIMS, AscentSchedule, ascent_distance, converged_by_ascent
from examples.proofs.estimators import ExactBatch
from examples.proofs.exact import (
    END,
    TransformerPolicy,
    make_language,
    optimum,
    total_variation,
    two_answer_language,
)
from examples.proofs.group_rest import (
    fixed_point,
    group_advantages,
    k2_solution,
    mean_advantage,
    two_answer_fixed_point,
    two_answer_fixed_point_in_the_limit,
)
from examples.proofs.learn import expected_estimator
from plaudit.losses.divergence import k1, k2, k3
from plaudit.methods.policy.algorithms import policy_algorithm
from plaudit.methods.policy.batch import ExperienceTensors, GroupRef, Round
from plaudit.methods.policy.cells import fixed_length, token_mean
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.objective import PolicyMicrobatch, policy_objective
from plaudit.models.policy import NoReference
from plaudit.tensors.needs import needs, needs_of
from plaudit.tokens.batch import Completion, Example

SPOKEN = make_language(seed=3)


def pushed(factor, name, **settings):
    """The row with its advantages times a factor."""
    row = policy_algorithm(name, **settings)

    @needs(*needs_of(row.advantage))
    def advantage(facts):
        return factor * row.advantage(facts)

    return replace(row, advantage=advantage)


def without_the_std(name, **settings):
    if "advantage" not in settings and name == "grpo":
        settings["advantage"] = "group-mean"
    return policy_algorithm(name, **settings)


def on_twice_the_leash(name, **settings):
    row = policy_algorithm(name, **settings)
    return replace(row, kl_coef=2 * row.kl_coef)


def estimated_by(row, estimator):
    """The row with this estimator, wherever its KL counts."""
    places = {"reward": {"reward_kl": estimator}, "loss": {"loss_kl": estimator}, "none": {}}
    return replace(row, **places[row.divergence])


def held_otherwise(name, **settings):
    """k3 for k1 and k2, k2 for k3."""
    row = policy_algorithm(name, **settings)
    return estimated_by(row, k2 if k3 in (row.reward_kl, row.loss_kl) else k3)


REACHING = {
    claim for claim in POLICY_CLAIMS if claim.sentence.endswith(("reaches π*", "reaches it", "(G − 1)"))
}
LEASHED = REACHING | {
    claim for claim in POLICY_CLAIMS if claim.high == 1e-6 and "no KL" not in claim.sentence
}
RESTS = {claim for claim in POLICY_CLAIMS if "Ā" in claim.sentence or "√⅞" in claim.sentence}
LOUD = {claim for claim in POLICY_CLAIMS if "how large rewards are" in claim.sentence}
AT_PREFIXES = {claim for claim in POLICY_CLAIMS if "Ā" in claim.sentence}


WRONG = {
    "without the std": (without_the_std, RESTS | LOUD),
    # Σ (r − mean)² / G under the root in place of G − 1, for groups of 3.
    "the other std": (partial(pushed, math.sqrt(3 / 2)), RESTS),
    "turned": (partial(pushed, -1), LEASHED),
    "twice the leash": (on_twice_the_leash, LEASHED),
    "held otherwise": (held_otherwise, LEASHED),
    "tokens alike": (
        lambda name, **how: replace(policy_algorithm(name, **how), reduction=token_mean),
        AT_PREFIXES,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "caught"), WRONG.values(), ids=WRONG)
def test_a_wrong_row_is_caught(wrong, caught):
    where = proof_setup(seed=3, beta=0.5, policies=wrong)
    assert caught
    missed = [f"{claim.name}: {claim.sentence}" for claim in caught if measure_claim(claim, where).holds]
    assert not missed


@pytest.mark.slow
def test_a_row_without_its_kl_stays_with_the_tilt_of_its_steps():
    def without_kl(name, **settings):
        return replace(policy_algorithm(name, **settings), reward_kl=None, loss_kl=None)

    unleashed = proof_setup(seed=3, beta=0.5, policies=without_kl)
    for claim in POLICY_CLAIMS:
        if claim in LEASHED:
            assert not measure_claim(claim, unleashed).holds, claim.sentence
        elif "no KL" in claim.sentence:
            assert measure_claim(claim, unleashed).holds


@pytest.mark.slow
def test_ppo_with_its_whitening_reaches_the_optimum_with_ever_shorter_steps():
    where = proof_setup(seed=3, beta=0.5)
    way = AscentSchedule(rate=0.15, rounds=200, steps=4, shrink=0.95)
    assert ascent_distance(where, name="ppo", way=way) < 1e-6
    assert ascent_distance(where, name="ppo", way=replace(way, rounds=60, shrink=1.0)) > 1e-6


def test_k1_in_the_loss_holds_nothing():
    where = proof_setup(
        seed=3, policies=lambda name, **settings: estimated_by(policy_algorithm(name, **settings), k1)
    )
    way = AscentSchedule(rate=0.45, rounds=100, group_size=3)
    cells = {"advantage": "group-mean", "reduction": "fixed", "kl_estimator": "k2"}
    # The steps alone: 100 of 0.45 / β times 2/3 of the reward.
    assert total_variation(converged_by_ascent(where, "grpo", way, **cells), optimum(SPOKEN, 0.5 / 30)) < 1e-6


def test_the_mean_advantage_is_that_of_all_groups_one_by_one():
    prob = SPOKEN.ref_logp_PY[0].exp().tolist()
    reward = SPOKEN.reward_PY[0].tolist()
    found_PY = mean_advantage(group_advantages(SPOKEN, 3, epsilon=0.1), SPOKEN.ref_logp_PY.exp())
    for y in (0, 7, 14):
        wanted = 0.0
        for i in range(15):
            for j in range(15):
                three = torch.tensor([reward[y], reward[i], reward[j]], dtype=torch.float64)
                wanted += prob[i] * prob[j] * ((three[0] - three.mean()) / (three.std() + 0.1)).item()
        assert found_PY[0, y].item() == pytest.approx(wanted, abs=1e-12)
    # Over the policy it is 0: whatever a group gives to one answer it takes from the others.
    assert (found_PY * SPOKEN.ref_logp_PY.exp()).sum(-1).abs().max() < 1e-12


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_two_answers_rest_where_the_equation_of_all_prefixes_has_them(size):
    two = two_answer_language(seed=3)
    closed_PY = two_answer_fixed_point(two, size, beta=0.5)
    assert total_variation(fixed_point(two, group_advantages(two, size), beta=0.5), closed_PY) < 1e-10
    prob_PY = closed_PY.exp()
    advantage_PY = mean_advantage(group_advantages(two, size), prob_PY)
    assert (prob_PY * (0.5 - advantage_PY) - 0.5 * two.ref_logp_PY.exp()).abs().max() < 1e-10
    assert prob_PY.sum(-1).sub(1).abs().max() < 1e-12


def test_groups_without_end_solve_a_quadratic_equation():
    two = two_answer_language(seed=3)
    better = two.reward_PY.argmax(-1, keepdim=True)
    q_P1 = two_answer_fixed_point_in_the_limit(two, beta=0.7).exp().gather(-1, better)
    p_P1 = two.ref_logp_PY.exp().gather(-1, better)
    assert ((0.7 * (q_P1 - p_P1)).square() - q_P1 * (1 - q_P1)).abs().max() < 1e-12
    assert bool((q_P1 > p_P1).all())


@pytest.mark.slow
def test_the_other_std_is_another_beta():
    tied = {"epsilon": 1e-300}
    other_PY = fixed_point(SPOKEN, group_advantages(SPOKEN, 3, correction=0, **tied), beta=0.5)
    same_PY = fixed_point(SPOKEN, group_advantages(SPOKEN, 3, **tied), beta=0.5 * math.sqrt(2 / 3))
    assert total_variation(other_PY, same_PY) < 1e-10


def test_k2_and_the_mean_rest_where_working_backwards_ends():
    """From the last token to the first: π(v | s) ∝ π_ref(v | s) exp((G − 1) / G β · E r behind it)."""
    beta, size = 0.5, 3
    found_PY = fixed_point(
        SPOKEN, group_advantages(SPOKEN, size, scaled=False), beta=beta, solution=k2_solution, by_answer=False
    )
    wanted = torch.zeros_like(found_PY)
    for p in range(2):
        for y, said in enumerate(SPOKEN.responses):
            wanted[p, y] = _backwards(p, (), said, (size - 1) / (size * beta))[1]
    assert total_variation(found_PY, wanted) < 1e-10


def _backwards(p, begun, said, gain):
    """The mean reward behind a beginning, and log π of the rest of what is said."""
    if begun in SPOKEN.responses:
        return SPOKEN.reward_PY[p, SPOKEN.responses.index(begun)].item(), 0.0
    behind = [_backwards(p, (*begun, v), said, gain) for v in range(3)]
    chance = [
        sum(
            SPOKEN.ref_logp_PY[p, y].exp().item()
            for y, other in enumerate(SPOKEN.responses)
            if other[: len(begun) + 1] == (*begun, v)
        )
        for v in range(3)
    ]
    tilted = [c * math.exp(gain * worth) for c, (worth, _) in zip(chance, behind, strict=True)]
    mean = sum(t * worth for t, (worth, _) in zip(tilted, behind, strict=True)) / sum(tilted)
    if said[: len(begun)] != begun or said == begun:
        return mean, 0.0
    v = said[len(begun)]
    return mean, math.log(tilted[v] / sum(tilted)) + behind[v][1]


def _trained(row, speaker, seen, advantage_NT):
    """The trainer's loss of a round with these answers."""
    completions = tuple(
        Completion(ids=said, mask=(True,) * len(said), finished=said[-1] == END) for said in SPOKEN.responses
    )
    zero_NT = torch.zeros_like(advantage_NT)
    told = ExperienceTensors(
        old_logp_NT=seen.old_logp_NT,
        ref_logp_NT=SPOKEN.ref_logp_PYT.flatten(0, 1),
        advantage_NT=advantage_NT,
        value_NT=zero_NT,
        return_NT=zero_NT,
        weight_NT=torch.ones_like(zero_NT),
    )
    examples = tuple(Example(prompt=prompt, completions=completions) for prompt in SPOKEN.prompts)
    drawn = Round(number=1, examples=examples, experience=told, metrics=(), max_tokens=3)
    places = tuple(GroupRef(group=group, tokens=example.tokens) for group, example in enumerate(examples))
    counts = drawn.loss_counts([0, 1])
    piece = PolicyMicrobatch(
        round=drawn, groups=places, counts=counts, is_first_update=False, is_only_update=False
    )
    watchers = ScoringModels(policy=speaker.policy, reference=NoReference(), critic=None, temperature=1.0)
    return policy_objective(row, watchers)(piece).loss


ROWS = {
    "grpo": {"kl_coef": 0.3},
    "gspo": {},
    "dr-grpo": {"divergence": "reward", "kl_coef": 0.3},
    "cispo": {"reduction": "answers"},
}


@pytest.mark.parametrize("name", ROWS)
def test_the_loss_is_the_one_of_the_trainer(name):
    """One group of all answers to each prompt, on an older policy's words, through a transformer."""
    speaker = TransformerPolicy(SPOKEN)
    row = policy_algorithm(name, **ROWS[name])
    logp_NT = speaker().flatten(0, 1)
    draw = torch.Generator().manual_seed(0)
    noise_NT = 0.3 * torch.randn(logp_NT.shape, generator=draw, dtype=torch.float64)
    old_NT = (logp_NT.detach() + noise_NT) * SPOKEN.mask_YT.repeat(2, 1)
    prompt_N, answer_N = torch.arange(2).repeat_interleave(15), torch.arange(15).repeat(2)
    seen = ExactBatch(
        language=SPOKEN,
        logit_PY=SPOKEN.ref_logp_PY,
        logp_NT=logp_NT,
        old_logp_NT=old_NT,
        prompt_N=prompt_N,
        answer_N=answer_N,
        group_N=prompt_N,
        share_N=torch.full((30,), 1 / 30, dtype=torch.float64),
    )
    kept = []
    found = expected_estimator(
        replace(row, advantage=lambda facts: kept.append(row.advantage(facts)) or kept[0])
    )(seen)
    longest = 3 if row.reduction is fixed_length else 1
    trained = _trained(row, speaker, seen, kept[0])
    assert found.item() / longest == pytest.approx(trained.item(), rel=1e-12)
    weights = speaker.parameters()
    mine = torch.autograd.grad(found / longest, weights, retain_graph=True)
    for own, other in zip(mine, torch.autograd.grad(trained, weights), strict=True):
        assert (own - other).abs().max() < 1e-12
