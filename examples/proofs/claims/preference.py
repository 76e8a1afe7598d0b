"""Claims about what preference losses want of an answer by itself, and of the gap between two answers.

A loss that judges an answer by itself sets Δ against a point and wants a Δ of each answer. Probabilities add
up to 1, so it can have them all only by luck; where it cannot, it rests where ∂loss/∂Δ is proportional to π.
q is how often an answer wins against μ, c how often it is called good.

In the language of two answers a loss can have the gap that it wants of a pair. With more answers such gaps
contradict one another (no policy has all of them), so the same losses rest somewhere between; how far from π*
that is, is claimed beside it.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs import exact
from examples.proofs.claim import Claim, ProofSetup, converged_algorithm, converged_policy
from examples.proofs.claims.optimum import off_optimum_claim
from examples.proofs.evidence import pairs, uniform_distribution, win_rates
from examples.proofs.learn import OptimiserBudget, expected_loss, frozen_terms, learning_problem


def stationarity_error(push_PY: Float[Tensor, "P Y"], logp_PY: Float[Tensor, "P Y"]) -> float:
    """How far ∂loss/∂Δ, worked out by hand, is from being proportional to π: 0 at rest."""
    return (push_PY - logp_PY.exp() * push_PY.sum(-1, keepdim=True)).abs().max().item()


def _nca_distance(setup: ProofSetup) -> float:
    """At β = 1 and μ = π_ref the wanted Δ = log 2q adds up by itself, since the mean of q is ½."""
    language, mu_PY = setup.language, setup.language.ref_logp_PY.exp()
    closed_PY = language.ref_logp_PY + (2 * win_rates(language, mu_PY)).log()
    return exact.total_variation(
        converged_policy(setup.row("nca", beta=1.0), language, pairs(language, mu_PY)), closed_PY
    )


def _nca_stationarity(setup: ProofSetup) -> float:
    logp_PY, won_PY, reward_PY = _converged_quantities(setup, "nca")
    return stationarity_error((won_PY + 0.5) * reward_PY.sigmoid() - won_PY, logp_PY)


def _sppo_stationarity(setup: ProofSetup) -> float:
    logp_PY, won_PY, reward_PY = _converged_quantities(setup, "sppo")
    return stationarity_error(reward_PY - (won_PY - 0.5), logp_PY)


def _sppo_step_distance(setup: ProofSetup) -> float:
    """What self-play asks for after one round: answers drawn from π_ref, the winners' weight multiplied."""
    language, mu_PY = setup.language, setup.language.ref_logp_PY.exp()
    step_PY = exact.tilted(language.ref_logp_PY, win_rates(language, mu_PY) / setup.beta)
    return exact.total_variation(
        converged_policy(setup.row("sppo"), language, pairs(language, mu_PY)), step_PY
    )


def _sigmoid_stationarity(setup: ProofSetup, *, name: str) -> float:
    """Of (1 − σ(βΔ)) where an answer is good, σ(βΔ) where it is bad."""
    logp_PY, won_PY, reward_PY = _converged_quantities(setup, name)
    good_rate_PY = won_PY if name == "apo-zero" else setup.language.reward_PY.sigmoid()
    return stationarity_error((1 - 2 * good_rate_PY) * reward_PY.sigmoid() * (-reward_PY).sigmoid(), logp_PY)


def _mass_on_bad_answers(setup: ProofSetup, *, name: str) -> float:
    logp_PY, won_PY, _ = _converged_quantities(setup, name)
    good_rate_PY = won_PY if name == "apo-zero" else setup.language.reward_PY.sigmoid()
    return (logp_PY.exp() * (good_rate_PY < 0.5)).sum(-1).max().item()


def _converged_quantities(setup: ProofSetup, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """log π where the row rests, how often each answer wins, and βΔ."""
    language = setup.language
    logp_PY = converged_algorithm(setup, name)
    reward_PY = setup.beta * (logp_PY - language.ref_logp_PY)
    return logp_PY, win_rates(language, uniform_distribution(language)), reward_PY


def _largest_probability(setup: ProofSetup) -> float:
    return converged_algorithm(setup, "apo-down").exp().max(-1).values.min().item()


def _threshold_distance(setup: ProofSetup, *, name: str) -> float:
    """With one prompt and the δ that lets the wanted βΔ = δ + log-odds add up to 1, all are had."""
    language = setup.single_prompt
    odds_PY = (
        language.reward_PY if name == "bco" else win_rates(language, uniform_distribution(language)).logit()
    )

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return language.ref_logp_PY + (c_P1 + odds_PY) / setup.beta

    closed_PY = exact.normalised_member(family, 1)
    threshold = setup.beta * (closed_PY - language.ref_logp_PY) - odds_PY
    logp_PY = converged_policy(setup.row(name), language, baseline=threshold[0, 0].item())
    return exact.total_variation(logp_PY, closed_PY)


def _dpop_kl(setup: ProofSetup) -> float:
    return exact.kl(converged_algorithm(setup, "dpop"), setup.language.ref_logp_PY).max().item()


def _named(name: str, sentence: str, measure: Callable[..., float], **bounds: float) -> Claim:
    return Claim(name, sentence, partial(measure, name=name), **bounds)


ABSOLUTE = (
    Claim("nca", "β = 1, answers from π_ref: reaches 2 q π_ref", _nca_distance, high=1e-5),
    Claim("nca", "else rests where (q + ½) σ(βΔ) − q is λ π; the rest of it", _nca_stationarity, high=1e-6),
    off_optimum_claim("nca", "there it is away from π*"),
    Claim("sppo", "rests where βΔ − (q − ½) is λ π; the rest of it", _sppo_stationarity, high=1e-6),
    Claim("sppo", "answers from π_ref: near π_ref exp(q / β) / Z", _sppo_step_distance, high=0.1),
    off_optimum_claim("sppo", "one step of self-play is not π*"),
    _named("apo-zero", "drops what loses more than it wins; share kept", _mass_on_bad_answers, high=1e-4),
    _named("apo-zero", "rests where (1 − 2q) σ′(βΔ) is λ π; the rest", _sigmoid_stationarity, high=1e-6),
    off_optimum_claim("apo-zero", "so it is away from π*"),
    Claim("apo-down", "lowers all but one answer; the least π of it", _largest_probability, low=0.99),
    off_optimum_claim("apo-down", "so it is away from π*"),
    _named("kto", "drops what is more often bad than good; share kept", _mass_on_bad_answers, high=1e-4),
    _named("kto", "rests where (1 − 2c) σ′(βΔ) is λ π; the rest", _sigmoid_stationarity, high=1e-6),
    off_optimum_claim("kto", "so it is away from π*"),
    _named("apo-zero-unpaired", "drops what is more often bad than good", _mass_on_bad_answers, high=1e-4),
    off_optimum_claim("apo-zero-unpaired", "so it is away from π*"),
    _named("bco", "one prompt, δ that fits: reaches π*", _threshold_distance, high=1e-5),
    off_optimum_claim("bco", "δ as a running mean: away from π*"),
    _named(
        "bco-pair", "one prompt, δ that fits: reaches π_ref odds(q)^(1/β)", _threshold_distance, high=1e-5
    ),
    off_optimum_claim("bco-pair", "δ as a running mean: away from π*"),
    Claim("dpop", "hold 50: every answer wins at times, so none may fall; KL from π_ref", _dpop_kl, high=0.1),
    off_optimum_claim("dpop", "so it is away from π*"),
)

WantedGap = Callable[[Float[Tensor, " P"]], Float[Tensor, " P"]]
"""From p, the chance that the first answer is preferred, to βh between the two."""
SMOOTHING = 0.1
MARGIN = 1.0
TARGET = 1e-3
SORTING_BUDGET = OptimiserBudget(rounds=100, steps=20)
"""For losses that sort: who stands beside whom is found anew every few steps."""


def smoothed_gap(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """cDPO: the log-odds of labels of which a share is swapped."""
    return ((1 - SMOOTHING) * p_P + SMOOTHING * (1 - p_P)).logit()


def hinge_gap(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """Hinge: a margin of 1 for the likelier winner, however likely."""
    return (p_P - 0.5).sign()


def exo_gap(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """EXO: (2p − 1) times the log-odds of 1 − ε."""
    return (2 * p_P - 1) * math.log((1 - TARGET) / TARGET)


def simpo_gap(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """SimPO: the root t = e^(βh) of (1 − p) g t² − (2p − 1) t − p g = 0, g = e^−γ."""
    shrunk, lead_P = math.exp(-MARGIN), 2 * p_P - 1
    root_P = (lead_P.square() + 4 * p_P * (1 - p_P) * shrunk**2).sqrt()
    return ((lead_P + root_P) / (2 * (1 - p_P) * shrunk)).log()


def discopop_gap(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """DiscoPOP: t = e^−|βh| with p t² + p t = 1 − p, of the likelier winner's p; τ is taken for 0."""
    likelier_P = torch.maximum(p_P, 1 - p_P)
    root_P = (likelier_P.square() + 4 * likelier_P * (1 - likelier_P)).sqrt()
    return -hinge_gap(p_P) * ((root_P - likelier_P) / (2 * likelier_P)).log()


def _gap_distance(setup: ProofSetup, *, name: str, wanted: WantedGap, settings: dict[str, float]) -> float:
    row, language = setup.row(name, **settings), setup.two_answers
    gap_P = wanted(exact.preferences(language)[:, 0, 1]) / setup.beta
    base_PY = language.ref_logp_PY * ("reference" in row.needs)
    # Half of the gap on either side: only the difference counts, and tilted() normalises.
    closed_PY = exact.tilted(base_PY, torch.stack([gap_P, -gap_P], -1) / 2)
    # DiscoPOP has two valleys; the others go to the same place from everywhere.
    return exact.total_variation(
        converged_policy(row, language, start_PY=exact.optimum(language, setup.beta)), closed_PY
    )


def _kl_over_optimum(setup: ProofSetup, *, name: str) -> float:
    """How many nats farther from π_ref than π* is."""
    ref_PY = setup.language.ref_logp_PY
    policy_kl_P, optimum_kl_P = (
        exact.kl(converged_algorithm(setup, name), ref_PY),
        exact.kl(exact.optimum(setup.language, setup.beta), ref_PY),
    )
    return (policy_kl_P - optimum_kl_P).mean().item()


def _first_step_cosine(setup: ProofSetup) -> float:
    """The cosine between DiscoPOP's first step from π_ref and the way that E r rises."""
    language, table = setup.two_answers, exact.TablePolicy(setup.two_answers)
    problem = learning_problem(setup.row("discopop"), pairs(language), language)
    logp_PYT = table()
    loss = expected_loss(problem, logp_PYT, frozen_terms(problem, logp_PYT))
    mean = (logp_PYT.sum(-1).exp() * language.reward_PY).sum()
    # Both gradients go through the one graph of the table's log-probs.
    (down_PY,), (up_PY,) = (
        torch.autograd.grad(value, table.parameters(), retain_graph=True) for value in (loss, mean)
    )
    return torch.nn.functional.cosine_similarity(-down_PY.flatten(), up_PY.flatten(), dim=0).item()


def _well_ranked() -> exact.Language:
    """One prompt whose better answer is clearly better, and the reference prefers it too."""
    seeds = (exact.two_answer_language(seed=seed, prompts=1) for seed in range(100))
    return next(
        seed
        for seed in seeds
        if seed.reward_PY.diff().abs() > 0.5 and seed.reward_PY.diff() * seed.ref_logp_PY.diff() > 0.1
    )


def _aot_distance(setup: ProofSetup) -> float:
    language = _well_ranked()
    logp_PY = converged_policy(setup.row("aot"), language, effort=SORTING_BUDGET)
    return exact.total_variation(logp_PY, exact.optimum(language, setup.beta))


def _aot_better_answer_probability(setup: ProofSetup) -> float:
    language = _well_ranked()
    logp_PY = converged_policy(setup.row("aot-unpaired"), language, effort=SORTING_BUDGET)
    return logp_PY[0, language.reward_PY[0].argmax()].exp().item()


def _odds_ratio_distance(setup: ProofSetup) -> float:
    """ORPO's second term alone: odds of the mean token's probability, π = σ(r + c)^|y|."""
    language = setup.language

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return language.length_Y * torch.nn.functional.logsigmoid(language.reward_PY + c_P1)

    closed_PY = exact.normalised_member(family, len(language.prompts))
    return exact.total_variation(converged_policy(setup.row("orpo", nll_coef=0.0), language), closed_PY)


def _nll_distance(setup: ProofSetup) -> float:
    """ORPO's first term alone: mean log-probs of what was preferred, π ∝ μ q / |y|."""
    language = setup.language
    closed_PY = (exact.preferences(language).mean(-1) / language.length_Y).log().log_softmax(-1)
    return exact.total_variation(converged_policy(setup.row("orpo", orpo_lambda=1e-9), language), closed_PY)


def _two_answer_claim(
    name: str, sentence: str, wanted: WantedGap, high: float = 1e-5, **settings: float
) -> Claim:
    measure = partial(_gap_distance, name=name, wanted=wanted, settings=settings)
    return Claim(name, f"two answers: {sentence}", measure, high=high)


TWO_ANSWER_CLAIMS = (
    _two_answer_claim(
        "cdpo", "βh = log-odds of the labels with swaps", smoothed_gap, label_smoothing=SMOOTHING
    ),
    off_optimum_claim("cdpo", "more answers: away from π*"),
    _named("cdpo", "flatter than π*; KL over π*'s", _kl_over_optimum, high=-0.01),
    _two_answer_claim("hinge", "βh = ±1, however sure people are", hinge_gap, 1e-4),
    off_optimum_claim("hinge", "more answers: away from π*"),
    _two_answer_claim("slic", "without its NLL βh = ±1, h of log π", hinge_gap, 1e-4, nll_coef=0.0),
    off_optimum_claim("slic", "more answers, with its NLL: away from π*"),
    _two_answer_claim("exo", "βh = (2p − 1) log((1 − ε) / ε)", exo_gap, label_smoothing=TARGET),
    off_optimum_claim("exo", "more answers: away from π*"),
    _named("exo", "sharper than π*; KL over π*'s", _kl_over_optimum, low=0.01),
    _two_answer_claim("simpo", "βh solves its equation with γ", simpo_gap, gamma=MARGIN),
    _two_answer_claim(
        "discopop", "from beyond its bump to e^−βh = t, p t² + p t = 1 − p", discopop_gap, 1e-3
    ),
    Claim(
        "discopop", "two answers: its first step from π_ref lowers E r; cosine", _first_step_cosine, high=-0.5
    ),
    Claim("aot", "two answers that π_ref ranks well: reaches π* (by counts)", _aot_distance, high=1e-3),
    off_optimum_claim("aot", "more answers: sorted gaps are not the pairs' own; away from π*"),
    Claim(
        "aot-unpaired", "two answers: nothing holds it; π(better)", _aot_better_answer_probability, low=0.9
    ),
    Claim("orpo", "its odds alone, any λ: reaches π = σ(r + c)^|y|", _odds_ratio_distance, high=1e-5),
    Claim("orpo", "its NLL alone: imitates, π ∝ E p(y ≻ z) / |y|", _nll_distance, high=1e-4),
    off_optimum_claim("orpo", "as it is, away from π*"),
)
