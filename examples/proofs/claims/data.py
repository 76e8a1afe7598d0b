"""Claims about what lies between data and leash: answers that nobody compared, preferences without doubt, β.

Uncovered answers: Xu et al. 2024, arXiv:2404.10719. DPO sees gaps between answers that were compared and
nothing else, so its minimisers agree on how those are shared out and may say anything else as often as they
like. A reward with a KL leash ties the others to the reference.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from examples.proofs import exact, learn
from examples.proofs.claim import Claim, ProofSetup, converged_algorithm, converged_policy
from examples.proofs.evidence import certain_preferences, pairs, uniform_over
from examples.proofs.exact import kl, objective

BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaResult:
    """What β does: the optimum's distance and reward, and how near DPO comes."""

    beta: float
    kl: float
    reward: float
    """E r of π*."""
    objective: float
    """J(π*) = E r − β KL."""
    distance: float
    """Total variation between what DPO reaches and π*."""


def sweep_betas(setup: ProofSetup) -> tuple[BetaResult, ...]:
    """The optimum and DPO at each of some β."""
    return tuple(_beta_result(replace(setup, beta=beta)) for beta in BETAS)


def compared_answers(language: exact.Language) -> Bool[Tensor, " Y"]:
    return torch.arange(len(language.responses)) % 2 == 0


def _shifted(setup: ProofSetup) -> Float[Tensor, "P Y"]:
    """π*, the same among the compared answers, with 99 % on those that nobody compared."""
    star_PY, covered_Y = exact.optimum(setup.language, setup.beta), compared_answers(setup.language)
    inside_PY = star_PY.masked_fill(~covered_Y, -torch.inf).log_softmax(-1)
    outside_PY = star_PY.masked_fill(covered_Y, -torch.inf).log_softmax(-1)
    return torch.where(covered_Y, inside_PY + math.log(0.01), outside_PY + math.log(0.99))


def mass_on_uncompared(logp_PY: Float[Tensor, "P Y"], covered_Y: Bool[Tensor, " Y"]) -> Float[Tensor, " P"]:
    return (logp_PY.exp() * ~covered_Y).sum(-1)


def _beta_result(setup: ProofSetup) -> BetaResult:
    language, star_PY = setup.language, exact.optimum(setup.language, setup.beta)
    return BetaResult(
        beta=setup.beta,
        kl=kl(star_PY, language.ref_logp_PY).mean().item(),
        reward=exact.mean_reward(star_PY, language),
        objective=objective(star_PY, language, setup.beta),
        distance=exact.total_variation(converged_algorithm(setup, "dpo"), star_PY),
    )


def _compared_only_problem(setup: ProofSetup) -> learn.LearningProblem:
    language = setup.language
    return learn.learning_problem(
        setup.row("dpo"), pairs(language, uniform_over(compared_answers(language), language)), language
    )


def _loss_of_policy(problem: learn.LearningProblem, logp_PY: Float[Tensor, "P Y"]) -> float:
    logp_PYT = exact.token_logps(logp_PY, problem.language)[0]
    return learn.expected_loss(problem, logp_PYT, learn.frozen_terms(problem, logp_PYT)).item()


def _loss_change_by_uncompared(setup: ProofSetup) -> float:
    """The loss of π* and of the same with nearly all of it on answers that nobody compared."""
    problem, star_PY = _compared_only_problem(setup), exact.optimum(setup.language, setup.beta)
    return abs(_loss_of_policy(problem, _shifted(setup)) - _loss_of_policy(problem, star_PY))


def _loss_gain_by_uncompared(setup: ProofSetup) -> float:
    """How much less loss than π_ref a policy has that says nearly always what nobody compared."""
    problem = _compared_only_problem(setup)
    return _loss_of_policy(problem, setup.language.ref_logp_PY) - _loss_of_policy(problem, _shifted(setup))


def _objective_change_by_uncompared(setup: ProofSetup) -> float:
    """What that policy is worth by the objective less what π* is worth: below 0."""
    worth = partial(objective, language=setup.language, beta=setup.beta)
    return worth(_shifted(setup)) - worth(exact.optimum(setup.language, setup.beta))


def _compared_distance(setup: ProofSetup) -> float:
    """Distance of DPO and π* where both are asked for compared answers only."""
    problem, covered_Y = _compared_only_problem(setup), compared_answers(setup.language)
    dpo_PY = converged_policy(problem.row, setup.language, problem.feedback)
    both = (dpo_PY, exact.optimum(setup.language, setup.beta))
    return exact.total_variation(
        *(logp_PY.masked_fill(~covered_Y, -torch.inf).log_softmax(-1) for logp_PY in both)
    )


def _reward_model_mass_ratio(setup: ProofSetup) -> float:
    """How often a leashed policy says uncompared answers, over π_ref; their reward is the lowest seen."""
    language, covered_Y = setup.language, compared_answers(setup.language)
    # The lowest reward seen is what a model that is merely not hopeful says of the unseen.
    lowest_P1 = language.reward_PY[:, covered_Y].min(-1, keepdim=True).values
    learnt_reward_PY = torch.where(covered_Y, language.reward_PY, lowest_P1)
    mass_P, ref_mass_P = (
        mass_on_uncompared(logp_PY, covered_Y)
        for logp_PY in (
            exact.tilted(language.ref_logp_PY, learnt_reward_PY / setup.beta),
            language.ref_logp_PY,
        )
    )
    return (mass_P / ref_mass_P).max().item()


def _transformer_drift(setup: ProofSetup, seed: int) -> float:
    speaker = exact.TransformerPolicy(setup.language, seed=seed)
    language = exact.with_reference(setup.language, speaker)
    covered_Y = compared_answers(language)
    problem = learn.learning_problem(
        setup.row("dpo"), pairs(language, uniform_over(covered_Y, language)), language
    )
    logp_PY = learn.minimise(problem, speaker, learn.OptimiserBudget(rounds=1, steps=100))
    rise_P = mass_on_uncompared(logp_PY, covered_Y) - mass_on_uncompared(language.ref_logp_PY, covered_Y)
    return rise_P.max().item()


def _best_answer_probability(setup: ProofSetup) -> float:
    """The least that DPO says the best answer when preferences leave no doubt."""
    return _at_best_answer(setup, _dpo_on_certain_preferences(setup, setup.beta).exp()).min().item()


def _smallest_margin(setup: ProofSetup) -> float:
    """The least βh between the best answer and another one, at ten times β; of π* it is the reward's lead."""
    beta = 10 * setup.beta
    reward_PY = beta * (_dpo_on_certain_preferences(setup, beta) - setup.language.ref_logp_PY)
    lead_PY = _at_best_answer(setup, reward_PY) - reward_PY
    # Place 0 is the best answer's lead over itself.
    return lead_PY.sort(-1).values[:, 1].min().item()


def _dpo_on_certain_preferences(setup: ProofSetup, beta: float) -> Float[Tensor, "P Y"]:
    preference_pairs = pairs(setup.language, None, certain_preferences(setup.language))
    return converged_policy(replace(setup, beta=beta).row("dpo"), setup.language, preference_pairs)


def _at_best_answer(setup: ProofSetup, figure_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P 1"]:
    return figure_PY.gather(-1, setup.language.reward_PY.argmax(-1, keepdim=True))


def _largest_rise_over_betas(setup: ProofSetup, *, figure: Callable[[BetaResult], float]) -> float:
    figures = [figure(leash) for leash in sweep_betas(setup)]
    return max(later - sooner for sooner, later in pairwise(figures))


DATA_CLAIMS = (
    Claim("coverage", "DPO finds π* among the answers that were compared", _compared_distance, high=1e-5),
    Claim(
        "coverage",
        "its loss is the same with 99 % on answers nobody compared; difference",
        _loss_change_by_uncompared,
        high=1e-12,
    ),
    Claim(
        "coverage",
        "a policy that nearly always says those has less loss than π_ref; gain",
        _loss_gain_by_uncompared,
        low=0.01,
    ),
    Claim(
        "coverage",
        "and is worth less than π* by J = E r − β KL; change",
        _objective_change_by_uncompared,
        high=-0.01,
    ),
    Claim(
        "coverage",
        "a transformer does drift there; largest rise of their share",
        lambda setup: max(_transformer_drift(setup, seed) for seed in range(2)),
        low=0.05,
    ),
    Claim(
        "coverage",
        "reward (unknown = lowest seen) with KL: share over π_ref's",
        _reward_model_mass_ratio,
        high=1.0,
    ),
    Claim(
        "certainty",
        "no doubt in the data: DPO says one answer alone; least π(best)",
        _best_answer_probability,
        low=0.99,
    ),
    Claim(
        "certainty", "at ten times β too it goes on while it can; least lead βh", _smallest_margin, low=8.0
    ),
    Claim(
        "kl_coef",
        "DPO reaches π* at every β from 0.25 to 4; the farthest",
        lambda lab: max(leash.distance for leash in sweep_betas(lab)),
        high=1e-5,
    ),
    Claim(
        "kl_coef",
        "a larger β keeps π* nearer to π_ref; largest rise of KL",
        partial(_largest_rise_over_betas, figure=lambda leash: leash.kl),
        high=0.0,
    ),
    Claim(
        "kl_coef",
        "and costs reward; largest rise of E r",
        partial(_largest_rise_over_betas, figure=lambda leash: leash.reward),
        high=0.0,
    ),
)
