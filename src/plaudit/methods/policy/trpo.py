"""TRPO's step: along the natural gradient as far as the KL allows, then back until the surrogate improves.

The curvature of the KL is that of the tokens that were drawn, F = Σ_t ∇log π_t ∇log π_tᵀ / tokens. F v takes
one difference of log-probs along v, and one backward pass. Schulman et al. 2015, arXiv:1502.05477.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, mean_metric, values_of
from plaudit.engine.step import ObjectiveResult, merge_over_ranks
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from plaudit.tensors.conjugate import (
    StepEvaluation,
    backtracking_line_search,
    conjugate_gradients,
    largest_step_within_kl,
)
from plaudit.tensors.masked import masked_sum

CG_STEPS = 10
"""Iterations of conjugate gradients."""
CURVATURE_DAMPING = 0.1
"""Added to the curvature, so that directions that it knows nothing of stay short."""
DIFFERENCE_SCALE = {torch.float64: 1e-5, torch.float32: 1e-3}
"""How far along v the difference of log-probs is taken, as a share of the weights' own norm."""


class TrpoStep:
    """TRPO's update of the policy by its gradients; other parameters are left to the optimiser."""

    def __init__(
        self,
        models: ScoringModels,
        surrogate: Callable[[PolicyMicrobatch], ObjectiveResult],
        ranks: Ranks,
        *,
        kl_limit: int | float,
    ) -> None:
        """``limit`` is δ, the largest KL(π_old ‖ π) a token; the surrogate is the policy's loss alone."""
        self._models, self._surrogate, self._ranks = models, surrogate, ranks
        self._kl_limit = kl_limit

    def __call__(self, microbatches: Sequence[AnyMicrobatch]) -> Sequence[Metric]:
        """The step, with its share of the longest one and the KL that it came to."""
        policy_microbatches = [
            replace(microbatch, is_first_update=False)
            for microbatch in microbatches
            if isinstance(microbatch, PolicyMicrobatch)
        ]
        trained = [p for p in self._models.policy.parameters() if p.requires_grad]
        start_D = _flatten([p.detach() for p in trained])
        descent_D = -_flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])
        if not bool(descent_D.any()):
            return self._no_step(trained)

        def curved(v_D: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
            return self._fisher_vector_product(trained, start_D, v_D, policy_microbatches)

        direction_D = conjugate_gradients(curved, descent_D, steps=CG_STEPS, damping=CURVATURE_DAMPING)
        longest_D = largest_step_within_kl(
            direction_D, curved(direction_D) + CURVATURE_DAMPING * direction_D, limit=self._kl_limit
        )
        old_surrogate = self._evaluate_surrogate(policy_microbatches, 0.0).improvement

        def trial(size: float) -> StepEvaluation:
            _set_parameters(trained, start_D + size * longest_D)
            return self._evaluate_surrogate(policy_microbatches, old_surrogate)

        step_share = backtracking_line_search(trial, limit=self._kl_limit)
        if step_share is None:
            _set_parameters(trained, start_D)
            return self._no_step(trained)
        kl = self._evaluate_surrogate(policy_microbatches, old_surrogate).kl
        _clear_gradients(trained)
        return mean_metric("step_share", step_share, 1), mean_metric("step_kl", kl, 1)

    def _no_step(self, trained: Sequence[nn.Parameter]) -> Sequence[Metric]:
        _clear_gradients(trained)
        return mean_metric("step_share", 0.0, 1), mean_metric("step_kl", 0.0, 1)

    def _evaluate_surrogate(
        self, microbatches: Sequence[PolicyMicrobatch], old_surrogate: float
    ) -> StepEvaluation:
        """Surrogate improvement and KL at the current weights, over all ranks."""
        with torch.no_grad():
            metrics = [
                metric for microbatch in microbatches for metric in self._surrogate(microbatch).metrics
            ]
        values = values_of(merge_over_ranks(metrics, self._ranks))
        return StepEvaluation(improvement=-float(values["loss"]) - old_surrogate, kl=float(values["kl_old"]))

    def _fisher_vector_product(
        self,
        trained: Sequence[nn.Parameter],
        start_D: Float[Tensor, " D"],
        v_D: Float[Tensor, " D"],
        microbatches: Sequence[PolicyMicrobatch],
    ) -> Float[Tensor, " D"]:
        """The Fisher-vector product F v, by a finite difference of log-probs along v."""
        difference = DIFFERENCE_SCALE.get(v_D.dtype, 1e-2) * float(start_D.norm()) / float(v_D.norm())
        _set_parameters(trained, start_D + difference * v_D)
        forward_logps = [self._logp(microbatch) for microbatch in microbatches]
        _set_parameters(trained, start_D - difference * v_D)
        backward_logps = [self._logp(microbatch) for microbatch in microbatches]
        _set_parameters(trained, start_D)
        for parameter in trained:
            parameter.grad = None
        for microbatch, forward_NT, backward_NT in zip(
            microbatches, forward_logps, backward_logps, strict=True
        ):
            change_NT = (forward_NT - backward_NT) / (2 * difference)
            self._weighted_logp(microbatch, change_NT).backward()
        self._ranks.sum_gradients(trained)
        return _flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])

    def _logp(self, microbatch: PolicyMicrobatch) -> Float[Tensor, "N T"]:
        batch = microbatch.round.batch(microbatch.groups)[0].to(self._models.policy.device)
        with torch.no_grad(), self._models.autocast():
            return self._models.policy.score(batch, temperature=self._models.temperature).logp_NT

    def _weighted_logp(
        self, microbatch: PolicyMicrobatch, change_NT: Float[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        batch = microbatch.round.batch(microbatch.groups)[0].to(self._models.policy.device)
        with self._models.autocast():
            scores = self._models.policy.score(batch, temperature=self._models.temperature)
        return masked_sum(change_NT * scores.logp_NT, batch.mask_NT) / microbatch.counts.tokens


def _flatten(tensors: Sequence[Tensor]) -> Float[Tensor, " D"]:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _set_parameters(parameters: Sequence[nn.Parameter], values_D: Float[Tensor, " D"]) -> None:
    sizes = [p.numel() for p in parameters]
    for parameter, values in zip(parameters, values_D.split(sizes), strict=True):
        parameter.data.copy_(values.view_as(parameter))


def _clear_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Clear the gradients, so that the optimiser leaves these weights alone."""
    for parameter in parameters:
        parameter.grad = None
