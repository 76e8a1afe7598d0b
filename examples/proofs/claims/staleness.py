"""Claims about answers of an older policy: what importance weights, their truncation and GSPO aim at."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs import estimators
from examples.proofs.claim import Claim, ProofSetup
from examples.proofs.claims.estimators import EXACT, TOPIC, same_gradient_claim
from examples.proofs.exact import objective_gradient
from plaudit.advantages.temporal import bandit
from plaudit.losses.policy import clipped, policy_gradient, unclipped
from plaudit.losses.ratio import (
    completion_log_ratio,
    log_ratio,
    ratio,
    sequence_log_ratio,
    sequence_token_log_ratio,
    truncated_importance_weight,
)

DRIFT = 0.5
CAPS = (1.0, 1.5, 2.0, 4.0, 1e9)
"""Where importance weights are truncated; the last one is above all."""
GradientFigure = Callable[[Float[Tensor, "P Y"], Float[Tensor, "P Y"]], float]


def surrogate_gradient(
    logp_PY: Float[Tensor, "P Y"], old_PY: Float[Tensor, "P Y"], setup: ProofSetup
) -> Float[Tensor, "P Y"]:
    """∇ of TRPO's surrogate: prefixes come as π_old says them, A is π_old's, π chooses the next token.
    Σ_s d_old(s) Σ_v π(v | s) A_old(s, v), Schulman et al. 2015, arXiv:1502.05477."""
    language, old_prob_PY = setup.language, old_PY.exp()
    onward_SVY = estimators.prefix_continuations(language.responses, language.symbols)
    logit_PY = logp_PY.detach().requires_grad_()
    mass_PSV, old_PSV, worth_PSV = (
        torch.einsum("svy,py->psv", onward_SVY, weight_PY)
        for weight_PY in (logit_PY.log_softmax(-1).exp(), old_prob_PY, old_prob_PY * language.reward_PY)
    )
    # Values of the prefix are the same for all of its tokens, and drop out of ∇ Σ_v π(v | s) = 0.
    gained_PS = (mass_PSV / mass_PSV.sum(-1, keepdim=True) * worth_PSV / old_PSV).sum(-1)
    # How often π_old comes to s is held: that makes it a surrogate, and not J.
    return torch.autograd.grad((old_PSV.sum(-1) * gained_PS).sum() / len(logp_PY), logit_PY)[0]


def off_policy_figure(
    setup: ProofSetup, estimator: estimators.Estimator, *, figure: GradientFigure = estimators.relative_error
) -> float:
    """The figure beside ∇ E r of the policy, on answers of an old one."""
    _, logp_PY = _old_and_new_policy(setup)
    return figure(_off_policy_gradient(setup, estimator), objective_gradient(logp_PY, setup.language, 0.0))


def surrogate_error(setup: ProofSetup, estimator: estimators.Estimator) -> float:
    """The error beside ∇ of TRPO's surrogate on the same answers."""
    old_PY, logp_PY = _old_and_new_policy(setup)
    return estimators.relative_error(
        _off_policy_gradient(setup, estimator), surrogate_gradient(logp_PY, old_PY, setup)
    )


def _old_and_new_policy(setup: ProofSetup) -> tuple[Tensor, Tensor]:
    old_PY = estimators.perturbed_policy(setup.language)
    return old_PY, estimators.perturbed_policy(setup.language, old_PY, seed=1, width=DRIFT)


def _off_policy_gradient(setup: ProofSetup, estimator: estimators.Estimator) -> Tensor:
    old_PY, logp_PY = _old_and_new_policy(setup)
    return estimators.expected_gradient(
        estimator, estimators.exact_batch(setup.language, logp_PY, size=1, old_PY=old_PY)
    )


def _importance_weighted_loss(batch: estimators.ExactBatch) -> Tensor:
    log_ratio_NT = log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT)
    ratio_N = ratio(completion_log_ratio(log_ratio_NT, batch.mask_NT))
    return (batch.share_N[:, None] * unclipped(ratio_N[:, None], batch.reward_N[:, None])).sum()


def _old_advantage(batch: estimators.ExactBatch) -> Tensor:
    """A_old of each token in expectation: what comes of it, less what was expected before it."""
    return batch.reward_N[:, None] - estimators.true_values(batch)


def _token_ratio_loss(batch: estimators.ExactBatch) -> Tensor:
    return estimators.token_sum(unclipped(estimators.token_ratios(batch), _old_advantage(batch)), batch)


def _ppo_loss(batch: estimators.ExactBatch) -> Tensor:
    return estimators.token_sum(
        clipped(estimators.token_ratios(batch), _old_advantage(batch), low=0.2, high=0.2), batch
    )


def _truncated_weight_loss(batch: estimators.ExactBatch, *, cap: float) -> Tensor:
    weight_NT = truncated_importance_weight(batch.logp_NT, batch.old_logp_NT, batch.mask_NT, cap=cap)
    return estimators.token_sum(weight_NT * policy_gradient(batch.logp_NT, _old_advantage(batch)), batch)


def _sequence_estimator(cell: Callable[[Tensor, Tensor], Tensor]) -> estimators.Estimator:
    """Ratios of that cell, unclipped, r − V(x) and GRPO's reduction."""

    def estimator(batch: estimators.ExactBatch) -> Tensor:
        log_ratio_NT = log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT)
        advantage_NT = bandit(batch.reward_N, estimators.true_values(batch)[:, 0], batch.mask_NT)
        return estimators.sequence_mean_loss(
            unclipped(ratio(cell(log_ratio_NT, batch.mask_NT)), advantage_NT), batch
        )

    return estimator


def _errors_by_cap(setup: ProofSetup) -> list[float]:
    return [surrogate_error(setup, partial(_truncated_weight_loss, cap=cap)) for cap in CAPS]


_off_policy_claim = partial(Claim, TOPIC)


def _largest_rise(setup: ProofSetup) -> float:
    return max(later - sooner for sooner, later in pairwise(_errors_by_cap(setup)))


_gspo = _sequence_estimator(sequence_log_ratio)
# Of each token its own ratio.
_grpo = _sequence_estimator(lambda log_ratio_NT, _: log_ratio_NT)
OFF_POLICY_CLAIMS = (
    _off_policy_claim(
        "old answers, whole completion's ratio: ∇J; error",
        partial(off_policy_figure, estimator=_importance_weighted_loss),
        high=EXACT,
    ),
    _off_policy_claim(
        "old answers, token ratios: ∇ of TRPO's surrogate; error",
        partial(surrogate_error, estimator=_token_ratio_loss),
        high=EXACT,
    ),
    _off_policy_claim(
        "old answers, token ratios: not ∇J; error",
        partial(off_policy_figure, estimator=_token_ratio_loss),
        low=0.01,
    ),
    _off_policy_claim(
        "old answers, ppo's clip: not the surrogate's; error",
        partial(surrogate_error, estimator=_ppo_loss),
        low=0.01,
    ),
    _off_policy_claim(
        "old answers, weights with no cap: the surrogate's; error",
        lambda lab: _errors_by_cap(lab)[-1],
        high=EXACT,
    ),
    _off_policy_claim(
        "old answers, weights truncated at 1: not; error", lambda lab: _errors_by_cap(lab)[0], low=0.01
    ),
    _off_policy_claim("old answers, a higher cap, no more bias; largest rise", _largest_rise, high=EXACT),
    same_gradient_claim("gspo, first step: grpo's sequence mean; error", _grpo, _gspo),
    same_gradient_claim(
        "gspo by token, old answers: gspo; error",
        _gspo,
        _sequence_estimator(sequence_token_log_ratio),
        drift=DRIFT,
    ),
    _off_policy_claim(
        "gspo, old answers: not ∇J; cosine",
        partial(off_policy_figure, estimator=_gspo, figure=estimators.cosine),
        low=0.5,
        high=0.999,
    ),
)
