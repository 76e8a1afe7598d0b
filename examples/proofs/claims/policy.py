"""Claims about where policy optimisation ends: at π* or elsewhere, and TRPO's natural step on the way.

The algorithms are those of training, followed in expectation on answers of the policy itself. Where they
should end is worked out without their cells; GRPO's own end is among them. TRPO steps under a hard KL.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs import estimators, group_rest
from examples.proofs.claim import Claim, ProofSetup
from examples.proofs.claims.estimators import TOPIC
from examples.proofs.exact import kl, mean_reward, objective, objective_gradient, optimum, total_variation
from examples.proofs.learn import expected_estimator
from plaudit.advantages.group import leave_one_out
from plaudit.advantages.temporal import bandit
from plaudit.losses.divergence import k1
from plaudit.losses.policy import clipped
from plaudit.methods.policy import trpo
from plaudit.tensors.groups import group_sums
from plaudit.tensors.masked import broadcast_to_tokens, masked_sum_rows

STARTS = 8
LIMITS = (0.001, 0.01, 0.1, 1.0)
"""δ: from a step that the second order describes to one that it does not."""


def fisher(logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "D D"]:
    """The Hessian of the mean KL(π_old ‖ π) at π_old, written out: diag(π) − π πᵀ for each prompt, over P."""
    prob_PY = logp_PY.exp()
    return torch.block_diag(*[row_Y.diag() - row_Y.outer(row_Y) for row_Y in prob_PY]) / len(prob_PY)


def natural_gradient(
    setup: ProofSetup, logp_PY: Float[Tensor, "P Y"]
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """TRPO's direction by conjugate gradients, and the product v → F v by differentiating the KL twice."""
    logit_PY = logp_PY.clone().requires_grad_()
    mean_kl = kl(logp_PY, logit_PY.log_softmax(-1)).mean()
    # create_graph: F v is the derivative of ∇KL · v, so the slope itself has to be differentiable.
    (slope_PY,) = torch.autograd.grad(mean_kl, logit_PY, create_graph=True)

    def product(towards_D: Tensor) -> Tensor:
        along = slope_PY.flatten().dot(towards_D)
        return torch.autograd.grad(along, logit_PY, retain_graph=True)[0].flatten()

    gradient_D = objective_gradient(logp_PY, setup.language, 0.0).flatten()
    return trpo.conjugate_gradients(product, gradient_D, steps=200, tolerance=1e-20), product


def trpo_step(setup: ProofSetup, logp_PY: Float[Tensor, "P Y"], limit: float) -> trpo.StepEvaluation | None:
    """TRPO's step with what it was worth, in exact KL; none where no length improved."""
    towards_D, product = natural_gradient(setup, logp_PY)
    full_PY = trpo.largest_step_within_kl(towards_D, product(towards_D), limit=limit).view(logp_PY.shape)

    def trial(size: float) -> trpo.StepEvaluation:
        new_PY = (logp_PY + size * full_PY).log_softmax(-1)
        gained = mean_reward(new_PY, setup.language) - mean_reward(logp_PY, setup.language)
        return trpo.StepEvaluation(improvement=gained, kl=kl(logp_PY, new_PY).mean().item())

    size = trpo.backtracking_line_search(trial, limit=limit)
    return None if size is None else trial(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class AscentSchedule:
    """How an expected gradient is followed, from the reference on."""

    rate: int | float
    """The step times β: a leash that holds more needs smaller ones."""
    rounds: int
    steps: int = 1
    group_size: int = 1
    natural: bool = True
    """Whether gradients are divided by π, which is F⁻¹ ∇ of a table but for a constant."""
    shrink: int | float = 1.0
    """What each round's step is of the one before: whitened advantages never become small."""


def ascend(estimator: estimators.Estimator, setup: ProofSetup, way: AscentSchedule) -> Float[Tensor, "P Y"]:
    """log π where the ascent ends."""
    logp_PY = setup.language.ref_logp_PY
    for round in range(way.rounds):
        # Over β: a natural step is then this share of the way to π*, whatever β is.
        old_PY, rate = logp_PY, way.rate * way.shrink**round / setup.beta
        for _ in range(way.steps):
            batch = estimators.exact_batch(
                setup.language, logp_PY, size=way.group_size, old_PY=old_PY, ordered=False
            )
            step_PY = estimators.expected_gradient(estimator, batch)
            # Over π(y) / P it is the natural gradient: rare answers move as readily as common ones.
            scale_PY = logp_PY.exp() / len(logp_PY) if way.natural else torch.ones(())
            logp_PY = (logp_PY + rate * step_PY / scale_PY).log_softmax(-1)
    return logp_PY


def kl_penalised_rloo(setup: ProofSetup) -> estimators.Estimator:
    """RLOO of r − β KL of the whole completion."""
    return estimators.reinforce(
        lambda batch: broadcast_to_tokens(
            leave_one_out(_kl_penalised_reward(batch, setup.beta), batch.group_N), batch.mask_NT
        )
    )


def kl_penalised_ppo(setup: ProofSetup) -> estimators.Estimator:
    """PPO's clip of token ratios, A = r − β KL less its mean, all of the old policy."""

    def estimator(batch: estimators.ExactBatch) -> Tensor:
        worth_N, prompts = _kl_penalised_reward(batch, setup.beta), len(batch.logit_PY)
        # share_N adds up to 1/P for a prompt; times P this is its mean worth under the old policy.
        mean_P = prompts * group_sums(batch.share_N * worth_N, batch.prompt_N, groups=prompts)
        advantage_NT = bandit(worth_N, mean_P[batch.prompt_N], batch.mask_NT)
        return estimators.token_sum(
            clipped(estimators.token_ratios(batch), advantage_NT, low=0.2, high=0.2), batch
        )

    return estimator


def _kl_penalised_reward(batch: estimators.ExactBatch, beta: float) -> Tensor:
    """r − β (log π_old − log π_ref)."""
    shift_NT = batch.old_logp_NT - batch.per_completion(batch.language.ref_logp_PYT)
    return batch.reward_N - beta * masked_sum_rows(k1(shift_NT), batch.mask_NT)


def _start_policies(setup: ProofSetup) -> list[Tensor]:
    return [estimators.perturbed_policy(setup.language, seed=seed) for seed in range(STARTS)]


def _direction_error(setup: ProofSetup) -> float:
    """The direction against the explicit Fisher matrix; a shift of a prompt's logits means nothing."""
    return max(
        estimators.relative_error(
            _centred(natural_gradient(setup, logp_PY)[0], logp_PY), _explicit_direction(setup, logp_PY)
        )
        for logp_PY in _start_policies(setup)
    )


def _explicit_direction(setup: ProofSetup, logp_PY: Tensor) -> Tensor:
    gradient_D = objective_gradient(logp_PY, setup.language, 0.0).flatten()
    return _centred(torch.linalg.pinv(fisher(logp_PY), rtol=1e-13) @ gradient_D, logp_PY)


def _centred(flat_D: Tensor, logp_PY: Tensor) -> Tensor:
    step_PY = flat_D.view(logp_PY.shape)
    return step_PY - step_PY.mean(-1, keepdim=True)


@lru_cache(maxsize=16)
def _steps(setup: ProofSetup) -> list[tuple[float, trpo.StepEvaluation | None]]:
    return [
        (limit, trpo_step(setup, logp_PY, limit)) for logp_PY in _start_policies(setup) for limit in LIMITS
    ]


def _largest_kl_ratio(setup: ProofSetup) -> float:
    """KL over δ; no step at all is not a number, and no bound holds it."""
    return max(
        (math.nan if evaluation is None else evaluation.kl / limit for limit, evaluation in _steps(setup)),
        key=lambda ratio: math.inf if math.isnan(ratio) else ratio,
    )


def _smallest_improvement(setup: ProofSetup) -> float:
    return min(math.nan if evaluation is None else evaluation.improvement for _, evaluation in _steps(setup))


def _optimum_distance(
    setup: ProofSetup, *, row: Callable[[ProofSetup], estimators.Estimator], way: AscentSchedule
) -> float:
    return total_variation(ascend(row(setup), setup, way), optimum(setup.language, setup.beta))


def _missing_objective_share(
    setup: ProofSetup, *, row: Callable[[ProofSetup], estimators.Estimator], way: AscentSchedule
) -> float:
    """How much of J is missing at the end, over what was missing at the reference."""
    start, end, best = (
        objective(logp_PY, setup.language, setup.beta)
        for logp_PY in (
            setup.language.ref_logp_PY,
            ascend(row(setup), setup, way),
            optimum(setup.language, setup.beta),
        )
    )
    return (best - end) / (best - start)


_ascent_claim = partial(Claim, TOPIC)


_rloo_distance = partial(
    _optimum_distance, row=kl_penalised_rloo, way=AscentSchedule(rate=0.1, rounds=200, group_size=2)
)
_ppo_distance = partial(
    _optimum_distance, row=kl_penalised_ppo, way=AscentSchedule(rate=0.1, rounds=100, steps=4)
)
_plain_ascent_missing = partial(
    _missing_objective_share,
    row=kl_penalised_rloo,
    way=AscentSchedule(rate=4, rounds=600, group_size=2, natural=False),
)
ASCENTS = (
    _ascent_claim("trpo: conjugate gradients solve F s = ∇J; error", _direction_error, high=1e-6),
    _ascent_claim("trpo: 8 starts, δ from 0.001 to 1; largest exact KL over δ", _largest_kl_ratio, high=1.0),
    _ascent_claim("trpo: and E r rises; the least rise", _smallest_improvement, low=1e-6),
    _ascent_claim("rloo, k1 in the reward, natural ascent: reaches π*", _rloo_distance, high=1e-6),
    _ascent_claim("ppo, clip 0.2, 4 steps on old answers, the same: reaches π*", _ppo_distance, high=1e-6),
    _ascent_claim(
        "rloo, plain ascent, 600 steps: nearer; J missing over π_ref's", _plain_ascent_missing, high=0.5
    ),
)

SMALL_GROUP = 3
"""Answers in a group where each prompt has fifteen: few enough to write all groups out."""
LARGE_GROUP = 8
"""Where each has two: as many as GRPO's row draws."""
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
CLOSE = 1e-6
"""How near an ascent comes to where it should end."""


@lru_cache(maxsize=64)
def converged_by_ascent(
    setup: ProofSetup, name: str, way: AscentSchedule, *, two: bool = False, **settings: Any
) -> Float[Tensor, "P Y"]:
    """log π where the row ends at the lab's β, of fifteen answers or of two; several claims ask for one."""
    row = setup.policy_factory(name, **{"kl_coef": setup.beta, **settings})
    return ascend(expected_estimator(row), replace(setup, language=setup.two_answers) if two else setup, way)


def ascent_distance(setup: ProofSetup, *, name: str, way: AscentSchedule, **settings: Any) -> float:
    """Total variation between where the row ends and π*."""
    return total_variation(
        converged_by_ascent(setup, name, way, **settings), optimum(setup.language, setup.beta)
    )


def k3_ascent(setup: ProofSetup, size: int) -> AscentSchedule:
    """Steps for k3: it pulls what has become rare by β π_ref / π = β − A, and |z| is at most (G − 1) / √G."""
    steepest = setup.beta + (size - 1) / math.sqrt(size)
    return AscentSchedule(rate=1.5 * setup.beta / steepest, rounds=250, group_size=size)


def _grpo_fixed_point_distance(setup: ProofSetup) -> float:
    fixed_point_PY = group_rest.fixed_point(
        setup.language, group_rest.group_advantages(setup.language, SMALL_GROUP), beta=setup.beta
    )
    return total_variation(converged_by_ascent(setup, "grpo", k3_ascent(setup, SMALL_GROUP)), fixed_point_PY)


def _grpo_optimum_distance(setup: ProofSetup) -> float:
    return ascent_distance(setup, name="grpo", way=k3_ascent(setup, SMALL_GROUP))


def _reward_scale_effect(setup: ProofSetup, *, where: Callable[[ProofSetup], Tensor]) -> float:
    loud = replace(setup, two_answers=replace(setup.two_answers, reward_PY=10 * setup.two_answers.reward_PY))
    return total_variation(where(loud), where(setup))


def _grpo_two_answers(setup: ProofSetup) -> Tensor:
    return converged_by_ascent(setup, "grpo", k3_ascent(setup, LARGE_GROUP), two=True)


def _largest_rise_by_group_size(setup: ProofSetup) -> float:
    """The largest rise of the distance to groups without end, from 2 to 64."""
    limit_PY = group_rest.two_answer_fixed_point_in_the_limit(setup.two_answers, beta=setup.beta)
    distances = [
        total_variation(group_rest.two_answer_fixed_point(setup.two_answers, size, beta=setup.beta), limit_PY)
        for size in GROUP_SIZES
    ]
    return max(later - sooner for sooner, later in pairwise(distances))


def _mean_and_k2(setup: ProofSetup, *, two: bool) -> Tensor:
    cells = {"advantage": "group-mean", "kl_estimator": "k2", "reduction": "fixed"}
    return converged_by_ascent(
        setup, "grpo", AscentSchedule(rate=0.45, rounds=100, group_size=SMALL_GROUP), two=two, **cells
    )


def _effective_beta(setup: ProofSetup) -> float:
    """A group's mean has the answer itself in it: its push is (G − 1) / G of what it should be."""
    return setup.beta * SMALL_GROUP / (SMALL_GROUP - 1)


def _mean_and_k2_two_answers_distance(setup: ProofSetup) -> float:
    return total_variation(_mean_and_k2(setup, two=True), optimum(setup.two_answers, _effective_beta(setup)))


def _mean_and_k2_prefix_distance(setup: ProofSetup) -> float:
    groups_PY = group_rest.group_advantages(setup.language, SMALL_GROUP, scaled=False)
    fixed_point_PY = group_rest.fixed_point(
        setup.language, groups_PY, beta=setup.beta, solution=group_rest.k2_solution, by_answer=False
    )
    return total_variation(_mean_and_k2(setup, two=False), fixed_point_PY)


def _mean_and_k2_optimum_distance(setup: ProofSetup) -> float:
    return total_variation(_mean_and_k2(setup, two=False), optimum(setup.language, _effective_beta(setup)))


def _unregularised_distance(setup: ProofSetup) -> float:
    """Steps that add up to s tilt the reference by s (G − 1) / G of the reward: no more, and without end."""
    way = AscentSchedule(rate=0.1, rounds=20, group_size=SMALL_GROUP)
    logp_PY = converged_by_ascent(setup, "dr-grpo", way, kl_coef=None)
    return total_variation(logp_PY, optimum(setup.language, _effective_beta(setup) / (way.rate * way.rounds)))


def _optimum_claim(name: str, sentence: str, way: AscentSchedule, **settings: Any) -> Claim:
    return Claim(name, sentence, partial(ascent_distance, name=name, way=way, **settings), high=CLOSE)


_grpo_claim = partial(Claim, "grpo")
_steady_schedule = AscentSchedule(rate=0.3, rounds=60)
_pair_schedule = replace(_steady_schedule, group_size=2)
_triple_schedule = AscentSchedule(rate=0.45, rounds=60, group_size=SMALL_GROUP)
_epoch_schedule = AscentSchedule(rate=0.1, rounds=50, steps=4)
_decaying_schedule = AscentSchedule(rate=0.5, rounds=250, group_size=SMALL_GROUP, shrink=0.96)
POLICY_CLAIMS = (
    _optimum_claim("reinforce", "reaches π*", _steady_schedule),
    _optimum_claim("a2c", "exact V: reaches π*", _steady_schedule),
    _optimum_claim(
        "ppo", "exact V, not whitened, 4 epochs: reaches π*", _epoch_schedule, whiten_advantages=False
    ),
    _optimum_claim("rloo", "groups of 2: reaches π*", _pair_schedule),
    _optimum_claim("remax", "reaches π*", _steady_schedule),
    _optimum_claim("p3o", "reaches π*", _pair_schedule),
    _grpo_claim(
        "two answers, G = 8: β (π − π_ref) = √⅞ E √(x (1 − x)); reaches it",
        lambda setup: total_variation(
            _grpo_two_answers(setup),
            group_rest.two_answer_fixed_point(setup.two_answers, LARGE_GROUP, beta=setup.beta),
        ),
        high=CLOSE,
    ),
    _grpo_claim(
        "its rest does not see how large rewards are: ten times moves it",
        partial(_reward_scale_effect, where=_grpo_two_answers),
        high=0.01,
    ),
    _grpo_claim(
        "where that moves π*",
        partial(_reward_scale_effect, where=lambda setup: optimum(setup.two_answers, setup.beta)),
        low=0.05,
    ),
    _grpo_claim(
        "larger groups: nearer to β (π − π_ref) = √(π (1 − π)); largest rise",
        _largest_rise_by_group_size,
        high=0.0,
    ),
    _grpo_claim(
        "more answers: β m π_ref / (β m + λ − Ā) at each prefix; reaches it",
        _grpo_fixed_point_distance,
        high=CLOSE,
    ),
    _grpo_claim("there it is away from π*", _grpo_optimum_distance, low=0.01),
    _optimum_claim(
        "grpo", "KL in the reward, ever shorter steps: reaches π*", _decaying_schedule, divergence="reward"
    ),
    _grpo_claim(
        "mean for z, k2, two answers: reaches π* of β G / (G − 1)",
        _mean_and_k2_two_answers_distance,
        high=CLOSE,
    ),
    _grpo_claim(
        "more answers: π_ref exp((G − 1) Q / G β) at each prefix; reaches it",
        _mean_and_k2_prefix_distance,
        high=CLOSE,
    ),
    _grpo_claim("Q knows no later KL: away from that π*", _mean_and_k2_optimum_distance, low=0.001),
    _optimum_claim("dr-grpo", "KL in the reward: reaches π*", _triple_schedule, divergence="reward"),
    Claim(
        "dr-grpo",
        "as it is, no KL: π* of β = G / (G − 1) s after steps of s in all; it goes on",
        _unregularised_distance,
        high=CLOSE,
    ),
)
