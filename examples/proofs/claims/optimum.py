"""Claims in closed form: the policy that losses of gaps reach, KL from samples, and the best of n answers.

Of each KL estimator it is claimed what it is as a number, as a loss and as a reward. A KL in a loss is
differentiated at the tokens that were said; that the policy also chooses which beginnings it comes to is
lost, unless ρ is of the whole completion (Tang and Munos 2025, arXiv:2506.09477). Of the best of n answers it
is claimed how far it is from the reference, and how well that distance is spent.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs import estimators
from examples.proofs.claim import Claim, ProofSetup, converged_algorithm, converged_policy
from examples.proofs.claims.estimators import EXACT, TOPIC
from examples.proofs.evidence import (
    certain_preferences,
    pairs,
    uniform_distribution,
    win_rates,
    with_flipped_labels,
)
from examples.proofs.exact import (
    Language,
    TransformerPolicy,
    kl,
    normalised_member,
    optimum,
    preferences,
    tilted,
    token_logps,
    total_variation,
    with_reference,
)
from examples.proofs.learn import OptimiserBudget, learning_problem, minimise
from plaudit.advantages.temporal import reward_to_go
from plaudit.evaluation.reward_models.accuracy import best_of_n_kl
from plaudit.losses.divergence import full_vocabulary_kl, k1, k2, k3
from plaudit.losses.policy import policy_gradient
from plaudit.losses.ratio import completion_log_ratio
from plaudit.tensors.masked import masked_sum_rows

TABLE_TOLERANCE = 1e-5
"""How near a table comes to a closed form: L-BFGS stops at 1e-6 or below."""
TRANSFORMER_TOLERANCE = 1e-3
"""How near a transformer comes, which can be almost any distribution, but not with the same ease."""
REFERENCE_UPDATES = 3
"""How often the reference moves in what is claimed of moving references."""


def off_optimum_claim(name: str, sentence: str, **settings: object) -> Claim:
    """The algorithm as it is rests elsewhere than at π*."""
    return Claim(name, sentence, partial(optimum_distance, name=name, **settings), low=0.01)


def optimum_distance(setup: ProofSetup, *, name: str, **settings: object) -> float:
    """Total variation between what the row comes to and π*."""
    return total_variation(converged_algorithm(setup, name, **settings), optimum(setup.language, setup.beta))


def _dpo_on_reference_answers(setup: ProofSetup) -> float:
    language = setup.language
    logp_PY = converged_policy(setup.row("dpo"), language, pairs(language, language.ref_logp_PY.exp()))
    return total_variation(logp_PY, optimum(language, setup.beta))


def _transformer_distance(setup: ProofSetup, *, name: str) -> float:
    transformer = TransformerPolicy(setup.language)
    language = with_reference(setup.language, transformer)
    problem = learning_problem(setup.row(name), pairs(language), language)
    logp_PY = minimise(problem, transformer, OptimiserBudget(rounds=1, steps=1000))
    gains = {"dpo": language.reward_PY, "ipo": win_rates(language, uniform_distribution(language))}
    return total_variation(logp_PY, tilted(language.ref_logp_PY, gains[name] / setup.beta))


def _ipo_distance(setup: ProofSetup, *, on_reference: bool) -> float:
    language = setup.language
    mu_PY = language.ref_logp_PY.exp() if on_reference else uniform_distribution(language)
    closed_PY = tilted(language.ref_logp_PY, win_rates(language, mu_PY) / setup.beta)
    return total_variation(converged_policy(setup.row("ipo"), language, pairs(language, mu_PY)), closed_PY)


def _ipo_certain_distance(setup: ProofSetup) -> float:
    language, sure_PYY = setup.language, certain_preferences(setup.language)
    closed_PY = tilted(language.ref_logp_PY, sure_PYY.mean(-1) / setup.beta)
    return total_variation(
        converged_policy(setup.row("ipo"), language, pairs(language, None, sure_PYY)), closed_PY
    )


def _mean_logp_distance(setup: ProofSetup, *, name: str, **settings: object) -> float:
    """Losses of mean log-probs: (log π − log π_ref) / |y| = gain + c, where c makes the sum 1."""
    language = setup.language
    won = win_rates(language, uniform_distribution(language)) if name == "ipo-mean" else language.reward_PY
    row = setup.row(name, **settings)
    # True is 1 and False 0: without a reference the base is log 1, all answers alike.
    base_PY = language.ref_logp_PY * ("reference" in row.needs)

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return base_PY + language.length_Y * (won / setup.beta + c_P1)

    closed_PY = normalised_member(family, len(won))
    return total_variation(converged_policy(row, language), closed_PY)


def _link_distance(setup: ProofSetup, *, link: str) -> float:
    """The optimum of E r − β D_f: f'(π / π_ref) = r / β + c, so that each link has an inverse."""
    language = setup.language
    inverses = {
        "js": lambda s_PY: s_PY - (2 - s_PY.exp()).log(),
        "forward-kl": lambda s_PY: -(1 - s_PY).log(),
        "alpha": lambda s_PY: -(1 - 0.5 * s_PY).log() / 0.5,
    }

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return language.ref_logp_PY + inverses[link](language.reward_PY / setup.beta + c_P1)

    closed_PY = normalised_member(family, len(language.prompts))
    return total_variation(converged_policy(setup.row("f-dpo", link=link), language), closed_PY)


def _noisy_label_distance(setup: ProofSetup, *, name: str) -> float:
    noisy = pairs(setup.language, None, with_flipped_labels(preferences(setup.language), 0.1))
    return total_variation(
        converged_policy(setup.row(name), setup.language, noisy), optimum(setup.language, setup.beta)
    )


def _length_penalty_distance(setup: ProofSetup) -> float:
    language = setup.language
    closed_PY = tilted(language.ref_logp_PY, language.reward_PY / setup.beta - 0.1 * language.length_Y)
    return total_variation(converged_policy(setup.row("r-dpo", length_alpha=0.1), language), closed_PY)


def _reference_free_distance(setup: ProofSetup) -> float:
    language = setup.language
    closed_PY = (language.reward_PY / setup.beta).log_softmax(-1)
    return total_variation(converged_policy(setup.row("cpo", nll_coef=0.0), language), closed_PY)


def _updated_reference_distance(setup: ProofSetup, *, name: str, share: float) -> float:
    """Each move takes the reference a share of the way to the policy, which then goes as far again."""
    language, row = setup.language, setup.row(name)
    logp_PY = converged_policy(row, language)
    for _ in range(REFERENCE_UPDATES):
        # TR-DPO mixes parameters; a table's are its logits, so the mix is geometric and not of probabilities.
        updated_ref_PY = torch.lerp(language.ref_logp_PY, logp_PY, share).log_softmax(-1)
        language = replace(language, ref_logp_PYT=token_logps(updated_ref_PY, language)[0])
        logp_PY = converged_policy(row, language)
    # Each solve adds r/β to where its reference stands, of which the move before has kept a share.
    gain_PY = (1 + REFERENCE_UPDATES * share) * language.reward_PY / setup.beta
    return total_variation(logp_PY, tilted(setup.language.ref_logp_PY, gain_PY))


def _closed(
    name: str,
    sentence: str,
    measure: Callable[..., float],
    /,
    high: float = TABLE_TOLERANCE,
    **settings: object,
) -> Claim:
    return Claim(name, sentence, partial(measure, **settings), high=high)


def _optimum_claim(name: str, sentence: str, **settings: object) -> Claim:
    return Claim(name, sentence, partial(optimum_distance, name=name, **settings), high=TABLE_TOLERANCE)


CLOSED_FORM_CLAIMS = (
    _optimum_claim("dpo", "reaches π*, all answers drawn alike"),
    _closed("dpo", "reaches π*, answers drawn from π_ref", _dpo_on_reference_answers),
    _closed("dpo", "a transformer reaches π*", _transformer_distance, TRANSFORMER_TOLERANCE, name="dpo"),
    _closed("ipo", "reaches π_ref exp(E p(y ≻ z) / β), z drawn alike", _ipo_distance, on_reference=False),
    _closed("ipo", "the same, z drawn from π_ref", _ipo_distance, on_reference=True),
    _closed("ipo", "the same of preferences without doubt", _ipo_certain_distance),
    _closed("ipo", "a transformer reaches it", _transformer_distance, TRANSFORMER_TOLERANCE, name="ipo"),
    _closed("ipo-mean", "reaches IPO's gaps as mean log-ratios", _mean_logp_distance, name="ipo-mean"),
    _closed(
        "robust-dpo",
        "reaches π* from labels of which 0.1 is swapped",
        _noisy_label_distance,
        name="robust-dpo",
    ),
    Claim(
        "robust-dpo",
        "where DPO on the same labels stays away from π*",
        partial(_noisy_label_distance, name="dpo"),
        low=0.01,
    ),
    _closed("f-dpo", "js: the optimum on Jensen and Shannon's leash", _link_distance, link="js"),
    _closed("f-dpo", "forward-kl: the one on KL(π_ref ‖ π)", _link_distance, link="forward-kl"),
    _closed("f-dpo", "alpha: the one of α = 0.5", _link_distance, link="alpha"),
    _closed("r-dpo", "reaches the optimum of r − 0.1 β |y|", _length_penalty_distance),
    _closed("dpo-norm", "reaches r / β + c as mean log-ratios", _mean_logp_distance, name="dpo-norm"),
    off_optimum_claim("dpo-norm", "which is away from π*"),
    _closed("simpo", "γ = 0: r / β + c as mean log π", _mean_logp_distance, name="simpo", gamma=0.0),
    off_optimum_claim("simpo", "as it is, away from π*: no reference holds it"),
    _closed("cpo", "no NLL: π* of a reference that says all alike", _reference_free_distance),
    off_optimum_claim("cpo", "as it is, away from π*: no reference holds it"),
    _optimum_claim("wpo", "reaches π*: weights do not change what a pair wants"),
    _optimum_claim("pl-dpo", "rankings of two answers: reaches π*"),
    off_optimum_claim("rrhf", "away from π*: no reference holds it"),
    _optimum_claim("ld-dpo", "share 1: reaches π*", ld_alpha=1.0),
    off_optimum_claim("ld-dpo", "share 0.5: away from π*"),
    _optimum_claim("dpop", "λ 0: reaches π*", dpop_lambda=0.0),
    _optimum_claim("mpo", "DPO alone in the mix, no NLL: reaches π*", mix=("dpo=1.0",), nll_coef=0.0),
    off_optimum_claim("mpo", "as it is, away from π*"),
    off_optimum_claim("mdpo", "of words alone DPO with an anchor: away from π*"),
    _optimum_claim("tr-dpo", "before the reference moves: reaches π*"),
    _closed(
        "tr-dpo", "after 3 moves of 0.6: π* of β / 2.8", _updated_reference_distance, name="tr-dpo", share=0.6
    ),
    _closed("sdpo", "after 4 parts: π* of β / 4", _updated_reference_distance, name="sdpo", share=1.0),
)

KlEstimator = Callable[[Tensor], Tensor]


def _single_answers(setup: ProofSetup, *, width: int | float = 1.0) -> estimators.ExactBatch:
    # Each answer of a policy that far from the reference, by itself.
    logp_PY = estimators.perturbed_policy(setup.language, width=width)
    return estimators.exact_batch(setup.language, logp_PY, size=1)


def estimate_moments(
    setup: ProofSetup, cell: KlEstimator, *, width: int | float = 1.0
) -> tuple[float, float]:
    """Mean and variance of a completion's estimate, the sum over its tokens, over all answers."""
    batch = _single_answers(setup, width=width)
    kl_N = masked_sum_rows(cell(batch.ref_log_ratio_NT), batch.mask_NT)
    mean = (batch.share_N * kl_N).sum()
    return mean.item(), (batch.share_N * (kl_N - mean).square()).sum().item()


def value_error(setup: ProofSetup, *, cell: KlEstimator) -> float:
    """How far the mean is from KL(π ‖ π_ref), relative to it."""
    exact = kl(estimators.perturbed_policy(setup.language), setup.language.ref_logp_PY).mean().item()
    return abs(estimate_moments(setup, cell)[0] - exact) / exact


def variance_ratio(setup: ProofSetup, *, cell: KlEstimator, width: int | float) -> float:
    """The variance over that of k1, for a policy that far from the reference."""
    return estimate_moments(setup, cell, width=width)[1] / estimate_moments(setup, k1, width=width)[1]


def kl_gradient(setup: ProofSetup, *, forward: bool = False) -> Float[Tensor, "P Y"]:
    """∇ KL(π ‖ π_ref), or of KL(π_ref ‖ π), mean of the prompts."""
    logit_PY = estimators.perturbed_policy(setup.language).requires_grad_()
    pair = logit_PY.log_softmax(-1), setup.language.ref_logp_PY
    return torch.autograd.grad(kl(*(pair[::-1] if forward else pair)).mean(), logit_PY)[0]


def token_kl_gradient(setup: ProofSetup, *, forward: bool = False) -> Float[Tensor, "P Y"]:
    """∇ of the KL at each token over all of V, at the beginnings that π comes to, held as they are."""
    language, logit_PY = setup.language, estimators.perturbed_policy(setup.language).requires_grad_()
    onward_SVY = estimators.prefix_continuations(language.responses, language.symbols)
    mass_PSV, ref_PSV = (
        torch.einsum("svy,py->psv", onward_SVY, logp_PY.exp())
        for logp_PY in (logit_PY.log_softmax(-1), language.ref_logp_PY)
    )
    step_MV, ref_MV = ((ref / ref.sum(-1, keepdim=True)).log().flatten(0, 1) for ref in (mass_PSV, ref_PSV))
    kl_M = full_vocabulary_kl(*((ref_MV, step_MV) if forward else (step_MV, ref_MV)))
    # Which prefixes π comes to is held: exactly this is lost where a loss looks at tokens.
    reach_M = mass_PSV.sum(-1).flatten().detach() / len(logit_PY)
    return torch.autograd.grad((reach_M * kl_M).sum(), logit_PY)[0]


def loss_gradient(setup: ProofSetup, *, cell: KlEstimator, whole: bool = False) -> Float[Tensor, "P Y"]:
    """The expected gradient of the estimate as a loss, per token or of the whole completion's ρ."""

    def estimator(batch: estimators.ExactBatch) -> Tensor:
        if not whole:
            return estimators.token_sum(cell(batch.ref_log_ratio_NT), batch)
        return batch.weighted(
            cell(completion_log_ratio(batch.ref_log_ratio_NT, batch.mask_NT)[:, None])
        ).sum()

    return -estimators.expected_gradient(estimator, _single_answers(setup))


def reward_gradient(setup: ProofSetup, *, cell: KlEstimator) -> Float[Tensor, "P Y"]:
    """The expected gradient of KL when −KL of each token is its reward, with reward-to-go."""

    def estimator(batch: estimators.ExactBatch) -> Tensor:
        to_go_NT = reward_to_go(-cell(batch.ref_log_ratio_NT.detach()), batch.mask_NT, gamma=1)
        return estimators.token_sum(policy_gradient(batch.logp_NT, to_go_NT), batch)

    return -estimators.expected_gradient(estimator, _single_answers(setup))


def _k1_loss_gradient_norm(setup: ProofSetup) -> float:
    """k1 as a loss, relative to ∇ KL."""
    return max(
        (loss_gradient(setup, cell=k1, whole=whole).norm() / kl_gradient(setup).norm()).item()
        for whole in (False, True)
    )


_kl_claim = partial(Claim, TOPIC)


def _gradient_claim(
    sentence: str,
    estimate: Callable[[ProofSetup], Tensor],
    exact: Callable[[ProofSetup], Tensor],
    **bounds: float,
) -> Claim:
    return _kl_claim(
        sentence,
        lambda setup: estimators.relative_error(estimate(setup), exact(setup)),
        **(bounds or {"high": EXACT}),
    )


_k2_loss, _k3_loss = partial(loss_gradient, cell=k2), partial(loss_gradient, cell=k3)
_forward_kl_gradient, _token_forward_kl_gradient = (
    partial(kl_gradient, forward=True),
    partial(token_kl_gradient, forward=True),
)
_k3_reward = partial(reward_gradient, cell=k3)
KL_CLAIMS = (
    _kl_claim("k1, value: KL(π ‖ π_ref); error", partial(value_error, cell=k1), high=EXACT),
    _kl_claim("k3, value: KL(π ‖ π_ref); error", partial(value_error, cell=k3), high=EXACT),
    _kl_claim("k2, value: not; error", partial(value_error, cell=k2), low=0.001),
    _kl_claim("k3 near π_ref: variance over k1's", partial(variance_ratio, cell=k3, width=0.1), high=0.1),
    _kl_claim("k2 near π_ref: variance over k1's", partial(variance_ratio, cell=k2, width=0.1), high=0.1),
    _kl_claim("k3 far from π_ref: variance over k1's", partial(variance_ratio, cell=k3, width=3.0), low=1.0),
    _kl_claim("k1 as a loss holds nothing; length over ∇KL's", _k1_loss_gradient_norm, high=EXACT),
    _gradient_claim(
        "k2 of a completion as a loss: ∇KL(π ‖ π_ref); error", partial(_k2_loss, whole=True), kl_gradient
    ),
    _gradient_claim(
        "k3 of a completion as a loss: ∇KL(π_ref ‖ π); error",
        partial(_k3_loss, whole=True),
        _forward_kl_gradient,
    ),
    _gradient_claim(
        "k2 of tokens as a loss: ∇ of their KL, prefixes held; error", _k2_loss, token_kl_gradient
    ),
    _gradient_claim("k2 of tokens as a loss: not ∇KL(π ‖ π_ref); error", _k2_loss, kl_gradient, low=0.01),
    _gradient_claim(
        "k3 of tokens as a loss: ∇ of their KL from π_ref, held; error", _k3_loss, _token_forward_kl_gradient
    ),
    _gradient_claim(
        "k3 of tokens as a loss: not ∇KL(π_ref ‖ π); error", _k3_loss, _forward_kl_gradient, low=0.01
    ),
    _gradient_claim(
        "k1 in the reward: ∇KL(π ‖ π_ref); error", partial(reward_gradient, cell=k1), kl_gradient
    ),
    _gradient_claim("k3 in the reward: right value, not ∇KL; error", _k3_reward, kl_gradient, low=0.01),
    _gradient_claim(
        "k3 in the reward: ∇KL less its gradient as a loss; error",
        _k3_reward,
        lambda setup: kl_gradient(setup) - loss_gradient(setup, cell=k3),
    ),
)

BEST_OF_N_TOPIC = "best-of-n"
BEST_OF_SIZES = (2, 4, 16, 64)


def best_of_n_logp(language: Language, n: int) -> Float[Tensor, "P Y"]:
    """log of the chance of each answer to be the best of n draws from π_ref; no two share a reward.
    m(y) = F(r(y))ⁿ − F(below r(y))ⁿ, F the reward's distribution (Beirami et al. 2024, arXiv:2401.01879)."""
    order_PY = language.reward_PY.argsort(-1)
    # A running sum may end above 1 by rounding, and n-th powers would magnify it.
    up_to_PY = language.ref_logp_PY.exp().gather(-1, order_PY).cumsum(-1).clamp(max=1.0)
    sorted_PY = torch.diff(up_to_PY**n, prepend=torch.zeros_like(up_to_PY[:, :1]))
    return torch.zeros_like(sorted_PY).scatter(-1, order_PY, sorted_PY).log()


def _kl_above_bound(setup: ProofSetup) -> float:
    return max(
        value - best_of_n_kl(n)
        for n in BEST_OF_SIZES
        for value in _exact_kls(setup.language, setup.language.reward_PY, n)
    )


def _kl_above_binary_bound(setup: ProofSetup) -> float:
    """Where answers are good or bad and nothing else: KL less −ln of the chance of a good one."""
    good_PY = (setup.language.reward_PY > setup.language.reward_PY.median()).double()
    rare_P = -(good_PY * setup.language.ref_logp_PY.exp()).sum(-1).log()
    excesses = [
        zip(_exact_kls(setup.language, good_PY, n), rare_P.tolist(), strict=True) for n in BEST_OF_SIZES
    ]
    return max(value - rare for pairs in excesses for value, rare in pairs)


def _kl_formula_error(setup: ProofSetup) -> float:
    language = setup.language
    errors = [
        abs(value - exact)
        for n in BEST_OF_SIZES
        for value, exact in zip(
            _exact_kls(language, language.reward_PY, n),
            kl(best_of_n_logp(language, n), language.ref_logp_PY).tolist(),
            strict=True,
        )
    ]
    return max(errors)


def _lost_gain_share(language: Language, n: int) -> Float[Tensor, " P"]:
    best_PY = best_of_n_logp(language, n)
    star_PY = _optimum_at_kl(language, kl(best_PY, language.ref_logp_PY))

    def worth(logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, " P"]:
        return (logp_PY.exp() * language.reward_PY).sum(-1)

    # Both gains are counted from π_ref, so the share does not hang on where rewards have their 0.
    start_P = worth(language.ref_logp_PY)
    return 1 - (worth(best_PY) - start_P) / (worth(star_PY) - start_P)


def _optimum_at_kl(language: Language, far_P: Float[Tensor, " P"]) -> Float[Tensor, "P Y"]:
    """π* of the β at which it is so far from π_ref; KL rises with 1/β."""
    low_P, high_P = torch.zeros_like(far_P), torch.full_like(far_P, 1e3)
    for _ in range(100):
        middle_P = (low_P + high_P) / 2
        near_P = kl(_optimum_at_inverse_beta(language, middle_P), language.ref_logp_PY) < far_P
        low_P, high_P = torch.where(near_P, middle_P, low_P), torch.where(near_P, high_P, middle_P)
    return _optimum_at_inverse_beta(language, low_P)


def _optimum_at_inverse_beta(language: Language, inverse_P: Float[Tensor, " P"]) -> Float[Tensor, "P Y"]:
    return tilted(language.ref_logp_PY, inverse_P[:, None] * language.reward_PY)


def best_of_n_exact_kl(p_Y: Float[np.ndarray, " Y"], reward_Y: Float[np.ndarray, " Y"], n: int) -> float:
    """KL(best-of-n ‖ π) = Σ_ℓ m_ℓ ln(m_ℓ / q_ℓ), in nats, where all answers can be written out.
    q_ℓ is the chance of an answer of reward ℓ, and m_ℓ = F_ℓⁿ − F_{<ℓ}ⁿ that the best of n has it; among
    equals a fair coin decides, so that within a level nothing changes. At most ln n − (n − 1)/n, and less
    where answers share a reward (Beirami et al. 2024, arXiv:2401.01879)."""
    if n < 1 or not np.isclose(p_Y.sum(), 1):
        raise ValueError(f"n {n} and chances that add up to {p_Y.sum()}: expected 1 or more, and 1")
    _, level_Y = np.unique(reward_Y, return_inverse=True)
    q_L = np.bincount(level_Y, p_Y)
    # Divided by its own sum, F ends at exactly 1, and the top level loses no mass to rounding.
    up_to_L = np.cumsum(q_L) / q_L.sum()
    m_L = up_to_L**n - np.concatenate(([0.0], up_to_L[:-1])) ** n
    return float(sum(m * math.log(m / q) for m, q in zip(m_L, q_L / q_L.sum(), strict=True) if m > 0))


def _exact_kls(language: Language, reward_PY: Float[Tensor, "P Y"], n: int) -> list[float]:
    p_PY = language.ref_logp_PY.exp().numpy().astype(np.float64)
    return [
        best_of_n_exact_kl(p_Y, reward_Y, n) for p_Y, reward_Y in zip(p_PY, reward_PY.numpy(), strict=True)
    ]


_best_of_n_claim = partial(Claim, BEST_OF_N_TOPIC)
BEST_OF_N = (
    _best_of_n_claim(
        "KL by levels of the reward: that of the distribution; error", _kl_formula_error, high=1e-9
    ),
    _best_of_n_claim("KL at most ln n − (n − 1)/n; largest excess", _kl_above_bound, high=1e-12),
    _best_of_n_claim(
        "good or bad alone: at most −ln of the chance of a good one; largest excess",
        _kl_above_binary_bound,
        high=1e-12,
    ),
    _best_of_n_claim(
        "never above π* of the same KL; least share of its gain lost",
        lambda setup: min(_lost_gain_share(setup.language, n).min().item() for n in BEST_OF_SIZES),
        low=-1e-9,
    ),
    _best_of_n_claim(
        "not far below π* of the same KL; largest share of its gain lost",
        lambda setup: max(_lost_gain_share(setup.language, n).max().item() for n in BEST_OF_SIZES),
        high=0.25,
    ),
)
