"""Claims about answers of an older policy: what importance weights, their truncation and GSPO aim at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.advantages.temporal import bandit
from plaudit.losses.policy import clipped, log_prob, unclipped
from plaudit.losses.ratio import (
    log_ratio,
    of_completion,
    ratio,
    sequence,
    sequence_by_token,
    truncated_weight,
)
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.claims_unbiased import EXACT, TOPIC, alike
from plaudit.proof.estimator_cells import by_sequence, ratios, true_values
from plaudit.proof.estimators import (
    Estimator,
    Sampled,
    cosine,
    error,
    expected_gradient,
    next_answers,
    sampled,
    token_sum,
    wandered,
)
from plaudit.proof.exact import objective_gradient

DRIFT = 0.5
"""How much noise on the logits lies between the old policy and the present one."""
CAPS = (1.0, 1.5, 2.0, 4.0, 1e9)
"""Where importance weights are truncated; the last one is above all."""
Figure = Callable[[Float[Tensor, "P Y"], Float[Tensor, "P Y"]], float]
"""Of a found and an exact gradient."""


def surrogate_gradient(
    logp_PY: Float[Tensor, "P Y"], old_PY: Float[Tensor, "P Y"], lab: Lab
) -> Float[Tensor, "P Y"]:
    """∇ of TRPO's surrogate: prefixes come as π_old says them, A is π_old's, π chooses the next token.

    Σ_s d_old(s) Σ_v π(v | s) A_old(s, v), Schulman et al. 2015, arXiv:1502.05477.
    """
    spoken, old_prob_PY = lab.spoken, old_PY.exp()
    onward_SVY = next_answers(spoken.responses, spoken.symbols)
    logit_PY = logp_PY.detach().requires_grad_()
    mass_PSV, old_PSV, worth_PSV = (
        torch.einsum("svy,py->psv", onward_SVY, weight_PY)
        for weight_PY in (logit_PY.log_softmax(-1).exp(), old_prob_PY, old_prob_PY * spoken.reward_PY)
    )
    # Values of the prefix are the same for all of its tokens, and drop out of ∇ Σ_v π(v | s) = 0.
    gained_PS = (mass_PSV / mass_PSV.sum(-1, keepdim=True) * worth_PSV / old_PSV).sum(-1)
    total = (old_PSV.sum(-1) * gained_PS).sum() / len(logp_PY)
    return torch.autograd.grad(total, logit_PY)[0]


def off_policy(lab: Lab, estimator: Estimator, *, figure: Figure = error) -> float:
    """The figure beside ∇ E r of the policy, on answers of an old one."""
    _, logp_PY = _policies(lab)
    return figure(_found(lab, estimator), objective_gradient(logp_PY, lab.spoken, 0.0))


def on_surrogate(lab: Lab, estimator: Estimator) -> float:
    """The error beside ∇ of TRPO's surrogate on the same answers."""
    old_PY, logp_PY = _policies(lab)
    return error(_found(lab, estimator), surrogate_gradient(logp_PY, old_PY, lab))


def _policies(lab: Lab) -> tuple[Tensor, Tensor]:
    """The old one and the present one."""
    old_PY = wandered(lab.spoken)
    return old_PY, wandered(lab.spoken, old_PY, seed=1, width=DRIFT)


def _found(lab: Lab, estimator: Estimator) -> Tensor:
    old_PY, logp_PY = _policies(lab)
    return expected_gradient(estimator, sampled(lab.spoken, logp_PY, size=1, old_PY=old_PY))


def _importance(seen: Sampled) -> Tensor:
    """The whole completion's ratio times its reward, no clip."""
    log_ratio_NT = log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT)
    ratio_N = ratio(of_completion(log_ratio_NT, seen.mask_NT))
    return (seen.share_N[:, None] * unclipped(ratio_N[:, None], seen.reward_N[:, None])).sum()


def _held(seen: Sampled) -> Tensor:
    """A_old of each token in expectation: what comes of it, less what was expected before it."""
    return seen.reward_N[:, None] - true_values(seen)


def _tokens(seen: Sampled) -> Tensor:
    return token_sum(unclipped(ratios(seen), _held(seen)), seen)


def _ppo(seen: Sampled) -> Tensor:
    return token_sum(clipped(ratios(seen), _held(seen), low=0.2, high=0.2), seen)


def _truncated(seen: Sampled, *, cap: float) -> Tensor:
    weight_NT = truncated_weight(seen.logp_NT, seen.old_logp_NT, seen.mask_NT, cap=cap)
    return token_sum(weight_NT * log_prob(seen.logp_NT, _held(seen)), seen)


def _by_sequence(cell: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    """Ratios of that cell, unclipped, r − V(x) and GRPO's reduction."""

    def estimator(seen: Sampled) -> Tensor:
        log_ratio_NT = log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT)
        advantage_NT = bandit(seen.reward_N, true_values(seen)[:, 0], seen.mask_NT)
        return by_sequence(unclipped(ratio(cell(log_ratio_NT, seen.mask_NT)), advantage_NT), seen)

    return estimator


def _own(log_ratio_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """GRPO's ratios: each token's own."""
    return log_ratio_NT


def _caps(lab: Lab) -> list[float]:
    return [on_surrogate(lab, partial(_truncated, cap=cap)) for cap in CAPS]


def _claim(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name=TOPIC, sentence=sentence, measure=measure, **bounds)


def _largest_rise(lab: Lab) -> float:
    return max(later - sooner for sooner, later in pairwise(_caps(lab)))


_gspo = _by_sequence(sequence)
_grpo = _by_sequence(_own)
OF_OLD_ANSWERS = (
    _claim(
        "old answers, whole completion's ratio: ∇J; error",
        partial(off_policy, estimator=_importance),
        high=EXACT,
    ),
    _claim(
        "old answers, token ratios: ∇ of TRPO's surrogate; error",
        partial(on_surrogate, estimator=_tokens),
        high=EXACT,
    ),
    _claim("old answers, token ratios: not ∇J; error", partial(off_policy, estimator=_tokens), low=0.01),
    _claim(
        "old answers, ppo's clip: not the surrogate's; error", partial(on_surrogate, estimator=_ppo), low=0.01
    ),
    _claim(
        "old answers, weights with no cap: the surrogate's; error", lambda lab: _caps(lab)[-1], high=EXACT
    ),
    _claim("old answers, weights truncated at 1: not; error", lambda lab: _caps(lab)[0], low=0.01),
    _claim("old answers, a higher cap, no more bias; largest rise", _largest_rise, high=EXACT),
    alike("gspo, first step: grpo's sequence mean; error", _grpo, _gspo),
    alike("gspo by token, old answers: gspo; error", _gspo, _by_sequence(sequence_by_token), drift=DRIFT),
    _claim(
        "gspo, old answers: not ∇J; cosine",
        partial(off_policy, estimator=_gspo, figure=cosine),
        low=0.5,
        high=0.999,
    ),
)
"""Claims about answers that another policy said."""
