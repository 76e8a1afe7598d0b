"""Claims about gradient estimators: those that are exact in expectation, and by how much others miss ∇J.

Each estimator is put together from the cells that training uses, and summed over every group of answers that
can come. A known bias that vanished would be news, and its claim would fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs.claim import Claim, ProofSetup
from examples.proofs.estimators import (
    Advantage,
    Estimator,
    ExactBatch,
    completion_advantage,
    cosine,
    exact_batch,
    expected_gradient,
    gae_estimator,
    grpo_advantage,
    kl_penalised_reinforce,
    perturbed_policy,
    reinforce,
    relative_error,
    remax_advantage,
    rloo_advantage,
    sequence_mean_loss,
    stale_values,
    token_ratios,
    token_rewards_without_kl,
    token_sum,
    true_values,
)
from examples.proofs.exact import objective_gradient
from plaudit.advantages.group import centred, leave_one_out, running_mean_baseline
from plaudit.advantages.temporal import bandit, gae, monte_carlo, one_step
from plaudit.losses import policy
from plaudit.losses.divergence import k3
from plaudit.losses.ratio import completion_log_ratio, log_ratio
from plaudit.losses.reduce import fixed_length, token_mean
from plaudit.tensors.groups import size_of_group, sum_of_group
from plaudit.tensors.masked import broadcast_to_tokens

TOPIC = "estimators"
EXACT = 1e-10


def unbiased_claim(
    sentence: str,
    *estimators: Estimator,
    sizes: Sequence[int] = (3,),
    scale: Callable[[int], float] = lambda size: 1.0,
) -> Claim:
    """The expected gradient of each, times a known factor of G, is ∇ E r."""

    def measure(setup: ProofSetup) -> float:
        logp_PY = perturbed_policy(setup.language)
        exact_PY = objective_gradient(logp_PY, setup.language, 0.0)
        return max(
            relative_error(scale(size) * expected_gradient(estimator, batch), exact_PY)
            for size in sizes
            for batch in [exact_batch(setup.language, logp_PY, size=size)]
            for estimator in estimators
        )

    return Claim(TOPIC, sentence, measure, high=EXACT)


def kl_penalised_claim(sentence: str, make_estimator: Callable[[float], Estimator]) -> Claim:
    """The expected gradient of what is made for a β is ∇ (E r − β KL(π ‖ π_ref))."""

    def measure(setup: ProofSetup) -> float:
        # Away from π_ref, at which every log-ratio is 0 and a wrong β would not show.
        logp_PY = perturbed_policy(setup.language)
        estimate_PY = expected_gradient(
            make_estimator(setup.beta), exact_batch(setup.language, logp_PY, size=1)
        )
        return relative_error(estimate_PY, objective_gradient(logp_PY, setup.language, setup.beta))

    return Claim(TOPIC, sentence, measure, high=EXACT)


def same_gradient_claim(sentence: str, *estimators: Estimator, drift: int | float = 0.0) -> Claim:
    """All have the first one's expected gradient; with a drift, on answers of a policy that far away."""

    def measure(setup: ProofSetup) -> float:
        logp_PY = perturbed_policy(setup.language)
        old_PY = perturbed_policy(setup.language, logp_PY, seed=1, width=drift)
        batch = exact_batch(setup.language, logp_PY, size=3, old_PY=old_PY)
        first_PY, *others = (expected_gradient(estimator, batch) for estimator in estimators)
        return max(relative_error(other_PY, first_PY) for other_PY in others)

    return Claim(TOPIC, sentence, measure, high=EXACT)


def _constant_baseline(mean: int | float) -> Estimator:
    return reinforce(completion_advantage(lambda batch: running_mean_baseline(batch.reward_N, mean=mean)))


def _dr_grpo_loss(batch: ExactBatch) -> Tensor:
    advantage_NT = broadcast_to_tokens(centred(batch.reward_N, batch.group_N), batch.mask_NT)
    loss_NT = batch.weighted(policy.policy_gradient(batch.logp_NT, advantage_NT))
    # Times the constant length that Dr. GRPO divides by: what remains is its factor (G − 1)/G.
    longest = loss_NT.shape[1]
    return longest * fixed_length(loss_NT, batch.mask_NT, completions=1, longest=longest)


def _pair_estimator(cell: Callable[..., Tensor]) -> Estimator:
    """Groups of two lie side by side, as P3O wants them."""

    def estimator(batch: ExactBatch) -> Tensor:
        log_ratio_N = completion_log_ratio(
            log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT), batch.mask_NT
        )
        return (
            batch.share_N * cell(log_ratio_N, leave_one_out(batch.reward_N, batch.group_N), clip=0.2)
        ).sum()

    return estimator


def _bandit_advantage(critic: Advantage) -> Advantage:
    return lambda batch: bandit(batch.reward_N, critic(batch)[:, 0], batch.mask_NT)


def _td_advantage(batch: ExactBatch) -> Tensor:
    return one_step(token_rewards_without_kl(batch), true_values(batch), batch.mask_NT, gamma=1)


def _monte_carlo_advantage(batch: ExactBatch) -> Tensor:
    return monte_carlo(token_rewards_without_kl(batch), stale_values(batch), batch.mask_NT, gamma=1)


def _fixed_advantage(batch: ExactBatch) -> Tensor:
    """Advantages of a critic that is wrong: what they are does not matter to a surrogate."""
    return gae(token_rewards_without_kl(batch), stale_values(batch), batch.mask_NT, gamma=1, lam=0.95)


def _surrogate_estimator(cell: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    return lambda batch: token_sum(cell(token_ratios(batch), _fixed_advantage(batch)), batch)


def _kl_triggered_loss(batch: ExactBatch) -> Tensor:
    cell = partial(policy.kl_triggered, kl_NT=torch.zeros_like(batch.logp_NT), limit=0.025)
    return _surrogate_estimator(cell)(batch)


def _grpo_estimator(cell: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    return lambda batch: sequence_mean_loss(cell(token_ratios(batch), grpo_advantage(batch)), batch)


def _kl_penalised_loss(batch: ExactBatch) -> Tensor:
    log_ratio_NT = log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT)
    # The old policy sampled, so KL(π_old ‖ π) is estimated with −ρ.
    return _surrogate_estimator(partial(policy.kl_penalised, kl_NT=k3(-log_ratio_NT), beta=1.0))(batch)


def _masked_unclipped(ratio_NT: Tensor, advantage_NT: Tensor) -> Tensor:
    unclipped_mask_NT = policy.unclipped_tokens(ratio_NT, advantage_NT, low=0.2, high=0.2)
    return policy.unclipped(ratio_NT, advantage_NT).masked_fill(~unclipped_mask_NT, 0.0)


_ppo_clip = partial(policy.clipped, low=0.2, high=0.2)
UNBIASED = (
    unbiased_claim("reinforce, no baseline: ∇J; error", _constant_baseline(0)),
    unbiased_claim(
        "reinforce, a constant baseline of −3 or 10; error", _constant_baseline(-3), _constant_baseline(10)
    ),
    unbiased_claim(
        "reinforce, a critic's V(x), exact or stale; error",
        reinforce(_bandit_advantage(true_values)),
        reinforce(_bandit_advantage(stale_values)),
    ),
    unbiased_claim("rloo, groups of 2 and 3; error", reinforce(rloo_advantage), sizes=(2, 3)),
    unbiased_claim("remax, the likeliest answer for a baseline; error", reinforce(remax_advantage)),
    unbiased_claim(
        "dr-grpo, groups of 2 and 3: (G − 1) / G of ∇J; error",
        _dr_grpo_loss,
        sizes=(2, 3),
        scale=lambda size: size / (size - 1),
    ),
    unbiased_claim(
        "p3o, both clips, its factor 1; error",
        _pair_estimator(policy.p3o_separate),
        _pair_estimator(policy.p3o_joint),
        sizes=(2,),
    ),
    unbiased_claim("a2c, TD(0) with exact V of prefixes; error", reinforce(_td_advantage)),
    unbiased_claim(
        "ppo, GAE with exact V, λ = 0, 0.5, 0.95, 1; error", *map(gae_estimator, (0, 0.5, 0.95, 1))
    ),
    unbiased_claim(
        "a stale V, λ = 1 and reward-to-go: still ∇J; error",
        gae_estimator(1, stale_values),
        reinforce(_monte_carlo_advantage),
    ),
    kl_penalised_claim("k1 at each token of the reward: ∇(E r − β KL); error", kl_penalised_reinforce),
    same_gradient_claim(
        "first step: each surrogate's gradient is −A ∇log π's; error",
        reinforce(_fixed_advantage),
        _surrogate_estimator(policy.unclipped),
        _surrogate_estimator(_ppo_clip),
        _surrogate_estimator(partial(policy.dual_clipped, low=0.2, high=0.2, ceiling=3)),
        _surrogate_estimator(partial(policy.rolled_back, low=0.2, high=0.2, slope=0.3)),
        _kl_triggered_loss,
        _kl_penalised_loss,
        lambda batch: token_sum(
            policy.cispo(batch.logp_NT, token_ratios(batch), _fixed_advantage(batch), high=0.28), batch
        ),
    ),
    same_gradient_claim(
        "first step: GRPO with its clip is GRPO without; error",
        _grpo_estimator(policy.unclipped),
        _grpo_estimator(_ppo_clip),
    ),
    same_gradient_claim(
        "later: PPO's clip is a mask on the unclipped ratio; error",
        _surrogate_estimator(_ppo_clip),
        _surrogate_estimator(_masked_unclipped),
        drift=0.5,
    ),
)

GROUP_SIZES = (2, 4, 8, 16, 32, 64)
"""Groups that are written out where prompts have two answers."""
GradientFigure = Callable[[Float[Tensor, "P Y"], Float[Tensor, "P Y"]], float]


def gradient_figure(setup: ProofSetup, estimator: Estimator, figure: GradientFigure) -> float:
    """A figure of the expected gradient, from groups of 3 answers of the policy itself, beside ∇ E r."""
    logp_PY = perturbed_policy(setup.language)
    batch = exact_batch(setup.language, logp_PY, size=3)
    return figure(expected_gradient(estimator, batch), objective_gradient(logp_PY, setup.language, 0.0))


def relative_length(estimate_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """How long it is, over the exact one."""
    return (estimate_PY.norm() / exact_PY.norm()).item()


def _grpo_reweighted_errors(setup: ProofSetup) -> list[float]:
    """GRPO's error against Σ over prompts of ∇J over the std of its rewards, at each size of groups."""
    language, logp_PY = setup.two_answers, perturbed_policy(setup.two_answers)
    prob_PY = logp_PY.exp()
    centred_PY = language.reward_PY - (prob_PY * language.reward_PY).sum(-1, keepdim=True)
    std_P1 = (prob_PY * centred_PY.square()).sum(-1, keepdim=True).sqrt()
    exact_PY = objective_gradient(logp_PY, language, 0.0) / std_P1
    return [
        relative_error(
            expected_gradient(
                reinforce(grpo_advantage), exact_batch(language, logp_PY, size=size, ordered=False)
            ),
            exact_PY,
        )
        for size in GROUP_SIZES
    ]


def _sequence_mean_loss(batch: ExactBatch) -> Tensor:
    return sequence_mean_loss(policy.policy_gradient(batch.logp_NT, rloo_advantage(batch)), batch)


def _token_mean_loss(batch: ExactBatch) -> Tensor:
    """A batch is one group: Σ over its tokens / how many it has."""
    length_N = batch.mask_NT.sum(-1).to(batch.share_N.dtype)
    # The mean length, since share_N holds 1/G already: together they divide by all tokens of the group.
    tokens_N = sum_of_group(length_N, batch.group_N) / size_of_group(length_N, batch.group_N)
    loss_NT = policy.policy_gradient(batch.logp_NT, rloo_advantage(batch)) / tokens_N[:, None]
    return token_mean(batch.weighted(loss_NT), batch.mask_NT, tokens=1)


def _length_normalised_error(setup: ProofSetup) -> float:
    """∇ E (r − V) / |y| with V = E r of each prompt held, which is what the sequence mean climbs."""
    logp_PY = perturbed_policy(setup.language)
    value_P1 = (logp_PY.exp() * setup.language.reward_PY).sum(-1, keepdim=True)
    per_token_PY = (setup.language.reward_PY - value_P1) / setup.language.length_Y
    aimed_PY = objective_gradient(logp_PY, replace(setup.language, reward_PY=per_token_PY), 0.0)
    batch = exact_batch(setup.language, logp_PY, size=3)
    return relative_error(expected_gradient(_sequence_mean_loss, batch), aimed_PY)


_bias_claim = partial(Claim, TOPIC)


def _gradient_figure_of(estimator: Estimator, figure: GradientFigure) -> Callable[[ProofSetup], float]:
    return partial(gradient_figure, estimator=estimator, figure=figure)


def _largest_rise(setup: ProofSetup) -> float:
    return max(later - sooner for sooner, later in pairwise(_grpo_reweighted_errors(setup)))


_z_scored_reinforce = reinforce(grpo_advantage)
BIASED = (
    _bias_claim(
        "grpo's z-score, groups of 3: not ∇J; cosine",
        _gradient_figure_of(_z_scored_reinforce, cosine),
        low=0.5,
        high=0.999,
    ),
    _bias_claim(
        "grpo's z-score: its length over ∇J's",
        _gradient_figure_of(_z_scored_reinforce, relative_length),
        low=0.2,
        high=2.0,
    ),
    _bias_claim(
        "grpo, two answers, groups of 64: Σ ∇J of a prompt / its std; error",
        lambda lab: _grpo_reweighted_errors(lab)[-1],
        high=0.1,
    ),
    _bias_claim("grpo, from 2 to 64: ever nearer to that; largest rise", _largest_rise, high=0.0),
    _bias_claim(
        "sequence mean: not ∇J; cosine", _gradient_figure_of(_sequence_mean_loss, cosine), low=0.5, high=0.999
    ),
    _bias_claim(
        "sequence mean: its length over ∇J's",
        _gradient_figure_of(_sequence_mean_loss, relative_length),
        low=0.2,
        high=1.0,
    ),
    _bias_claim(
        "sequence mean: it climbs E (r − V) / |y|, V held; error", _length_normalised_error, high=EXACT
    ),
    _bias_claim(
        "token mean of one group of 3: not ∇J; cosine",
        _gradient_figure_of(_token_mean_loss, cosine),
        low=0.5,
        high=0.9999,
    ),
    _bias_claim(
        "a2c, TD(0) with a stale V: not ∇J; error",
        _gradient_figure_of(gae_estimator(0, stale_values), relative_error),
        low=0.01,
    ),
    _bias_claim(
        "ppo, λ = 0.95 with a stale V: not ∇J; error",
        _gradient_figure_of(gae_estimator(0.95, stale_values), relative_error),
        low=1e-3,
    ),
)
