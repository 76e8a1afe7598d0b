"""TRPO's step: along the natural gradient as far as the KL allows, then back until the surrogate improves.

Conjugate gradients find the direction, the quadratic model of the KL the longest step, and a line search goes
back from there. Vectors are flat, all parameters one after the other, and the curvature is known only as a
product v → F v: that of the KL at the tokens that were drawn, F = Σ_t ∇log π_t ∇log π_tᵀ / tokens, by one
difference of log-probs along v and one backward pass. Schulman et al. 2015, arXiv:1502.05477.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.engine.distributed import Ranks, copy_into, full_tensor
from plaudit.engine.metrics import Metric, mean_metric, values_of
from plaudit.engine.step import ObjectiveResult, merge_over_ranks
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from plaudit.tensors.masked import masked_sum

MatrixVectorProduct = Callable[[Float[Tensor, " D"]], Float[Tensor, " D"]]
"""v → A v of a symmetric, positive A; for TRPO the Hessian of the mean KL times v."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvaluation:
    """What a trial step achieves: improvement of the surrogate and KL."""

    improvement: float
    kl: float


def conjugate_gradients(
    product: MatrixVectorProduct,
    b_D: Float[Tensor, " D"],
    *,
    steps: int,
    damping: int | float = 0.0,
    tolerance: int | float = 1e-10,
) -> Float[Tensor, " D"]:
    """x with (A + damping · I) x = b, from ``steps`` products or fewer.
    It stops where |b − A x|² ≤ tolerance · |b|²; to see that, each step waits for the device. Hestenes and
    Stiefel 1952; 10 steps and a damping of 0.1 for TRPO are usual."""
    # From x = 0 the first residual is b itself, which saves one of the costly products.
    x_D, residual_D, direction_D = torch.zeros_like(b_D), b_D, b_D
    square = residual_D.dot(residual_D)
    # Relative to |b|², since gradients shrink by orders of magnitude while a policy learns.
    target_square = tolerance * square
    for _ in range(steps):
        if bool(square <= target_square):
            break
        product_D = product(direction_D) + damping * direction_D
        # α of Hestenes and Stiefel; the quotient of squares two lines below is their β.
        length = square / direction_D.dot(product_D)
        x_D, residual_D = x_D + length * direction_D, residual_D - length * product_D
        before, square = square, residual_D.dot(residual_D)
        direction_D = residual_D + (square / before) * direction_D
    return x_D


def largest_step_within_kl(
    direction_D: Float[Tensor, " D"], product_D: Float[Tensor, " D"], *, limit: int | float
) -> Float[Tensor, " D"]:
    """√(2δ / sᵀA s) · s: as far along s as the KL, to second order, is δ; ``product_D`` is A s.
    Schulman et al. 2015, arXiv:1502.05477.

    >>> largest_step_within_kl(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), limit=0.01)
    tensor([0.1000, 0.0000])
    """
    # To second order the KL along t·s is ½ t² sᵀA s; set equal to δ it gives t.
    return (2 * limit / direction_D.dot(product_D)).sqrt() * direction_D


def backtracking_line_search(
    evaluate: Callable[[float], StepEvaluation],
    *,
    limit: int | float,
    tries: int = 10,
    shrink: int | float = 0.5,
) -> float | None:
    """The first of 1, shrink, shrink², … that improves the surrogate and keeps the KL within δ, or none.
    What is not a number is not accepted. Schulman et al. 2015, arXiv:1502.05477."""
    for power in range(tries):
        size = float(shrink) ** power
        evaluation = evaluate(size)
        if evaluation.improvement > 0 and evaluation.kl <= limit:
            return size
    return None


CG_STEPS = 10
CURVATURE_DAMPING = 0.1
"""Added to the curvature, so that directions that it knows nothing of stay short."""
LOGP_NUDGE = {torch.float64: 3e-4, torch.float32: 0.01}
"""How far log-probs move while their slope along v is measured, root mean square in nats.

Less drowns in rounding, and more bends: how far weights may go for it depends on the model, so what is fixed
is the change of the log-probs and not that of the weights.
"""
COARSE_LOGP_NUDGE = 0.2
"""The same for weights with fewer digits."""
NUDGE_FACTOR = 1.5
"""A change within this factor of the intended one is accepted."""
MAX_NUDGES = 8
"""How many lengths are tried before the last one is taken."""


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
        """``kl_limit`` is δ, the largest KL(π_old ‖ π) a token; the surrogate is the policy's loss alone."""
        self._models, self._surrogate, self._ranks = models, surrogate, ranks
        self._kl_limit = kl_limit
        # Of the last product of a step, per unit of v: the next direction needs about the same.
        self._difference_per_norm: float | None = None

    def __call__(self, microbatches: Sequence[AnyMicrobatch]) -> Sequence[Metric]:
        """The step, with its share of the longest one and the KL that it came to."""
        # Trial weights differ from π_old on purpose: the check of a first update would refuse them.
        policy_microbatches = [
            replace(microbatch, is_first_update=False)
            for microbatch in microbatches
            if isinstance(microbatch, PolicyMicrobatch)
        ]
        # Not handed on to the next step: a run that goes on begins there with nothing.
        self._difference_per_norm = None
        trained = [p for p in self._models.policy.parameters() if p.requires_grad]
        # cat copies: trials write into the parameters themselves, and the way back has to be exact.
        start_D = _flatten([p.detach() for p in trained])
        descent_D = -_flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])
        # Of a zero gradient the longest step would be √(2δ / 0) · 0, not a number.
        if not bool(descent_D.any()):
            return self._no_step(trained)

        def curved(v_D: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
            return self._fisher_vector_product(trained, start_D, v_D, policy_microbatches)

        direction_D = conjugate_gradients(curved, descent_D, steps=CG_STEPS, damping=CURVATURE_DAMPING)
        # The damped product, as in the solve: along a flat direction sᵀF s alone would allow any length.
        longest_D = largest_step_within_kl(
            direction_D, curved(direction_D) + CURVATURE_DAMPING * direction_D, limit=self._kl_limit
        )
        old_surrogate = self._evaluate_surrogate(policy_microbatches, 0.0).improvement

        def trial(size: float) -> StepEvaluation:
            _set_parameters(trained, start_D + size * longest_D)
            return self._evaluate_surrogate(policy_microbatches, old_surrogate)

        step_share = backtracking_line_search(trial, limit=self._kl_limit)
        if step_share is None:
            # The weights of the last, refused trial are still in place.
            _set_parameters(trained, start_D)
            return self._no_step(trained)
        # The search returns right after it set the accepted weights, so these are measured.
        kl = self._evaluate_surrogate(policy_microbatches, old_surrogate).kl
        _clear_gradients(trained)
        return mean_metric("line_search_frac", step_share, 1), mean_metric("step_kl", kl, 1)

    def _no_step(self, trained: Sequence[nn.Parameter]) -> Sequence[Metric]:
        _clear_gradients(trained)
        return mean_metric("line_search_frac", 0.0, 1), mean_metric("step_kl", 0.0, 1)

    def _evaluate_surrogate(
        self, microbatches: Sequence[PolicyMicrobatch], old_surrogate: float
    ) -> StepEvaluation:
        with torch.no_grad():
            metrics = [
                metric for microbatch in microbatches for metric in self._surrogate(microbatch).metrics
            ]
        # Merged over ranks: all of them accept the same trial, and so stay one model.
        values = values_of(merge_over_ranks(metrics, self._ranks))
        improvement = -float(values["loss"]) - old_surrogate
        return StepEvaluation(improvement=improvement, kl=float(values["approx_kl"]))

    def _fisher_vector_product(
        self,
        trained: Sequence[nn.Parameter],
        start_D: Float[Tensor, " D"],
        v_D: Float[Tensor, " D"],
        microbatches: Sequence[PolicyMicrobatch],
    ) -> Float[Tensor, " D"]:
        """The Fisher-vector product F v, by a finite difference of log-probs along v."""
        slopes = self._slopes_along(trained, start_D, v_D, microbatches)
        # The backward pass below needs ∇ log π at the old weights.
        _set_parameters(trained, start_D)
        # The policy's gradient is kept in descent_D; .grad now gathers the product.
        for parameter in trained:
            parameter.grad = None
        for microbatch, slope_NT in zip(microbatches, slopes, strict=True):
            # J v, the slope of each token's log-prob along v; the backward pass makes Jᵀ (J v) of it.
            batch = microbatch.round.batch(microbatch.groups)[0].to(self._models.policy.device)
            scores = self._models.policy.score(batch, temperature=self._models.temperature)
            # By the tokens of the whole minibatch: δ limits a mean over tokens, and F has to be in its unit.
            (masked_sum(slope_NT * scores.logp_NT, batch.mask_NT) / microbatch.counts.tokens).backward()
        # Each rank has other micro-batches: without the sum every rank would follow its own curvature.
        self._ranks.sum_gradients(trained)
        return _flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])

    def _slopes_along(
        self,
        trained: Sequence[nn.Parameter],
        start_D: Float[Tensor, " D"],
        v_D: Float[Tensor, " D"],
        microbatches: Sequence[PolicyMicrobatch],
    ) -> list[Float[Tensor, "N T"]]:
        """J v of each micro-batch: (log π(θ + h v) − log π(θ − h v)) / 2h."""
        # h is such that log-probs move a little. The weights are left at θ − h v.
        wanted = LOGP_NUDGE.get(v_D.dtype, COARSE_LOGP_NUDGE)
        norm = float(v_D.norm())
        # A first guess, and from then on what the product before needed.
        difference = self._difference_per_norm or 1e-4 * float(start_D.norm())
        difference /= norm
        slopes: list[Tensor] = []
        for _ in range(MAX_NUDGES):
            # A central difference: its error is quadratic in the step, for one more forward pass.
            _set_parameters(trained, start_D + difference * v_D)
            ahead = [self._logp(microbatch) for microbatch in microbatches]
            _set_parameters(trained, start_D - difference * v_D)
            behind = [self._logp(microbatch) for microbatch in microbatches]
            changes = [(two_NT - one_NT) / 2 for two_NT, one_NT in zip(ahead, behind, strict=True)]
            # Of all tokens of all ranks, so that every rank takes the same step.
            metrics: list[Metric] = []
            for change_NT, microbatch in zip(changes, microbatches, strict=True):
                mask_NT = microbatch.round.batch(microbatch.groups)[0].mask_NT
                square = change_NT.detach().double().square().sum()
                metrics.append(mean_metric("square", square, int(mask_NT.sum())))
            moved = math.sqrt(float(values_of(merge_over_ranks(metrics, self._ranks))["square"]))
            # By the length that was gone, which is not the next one's where none is accepted.
            slopes = [change_NT / difference for change_NT in changes]
            # Nothing moves along a flat direction, however far one goes.
            if moved == 0 or wanted / NUDGE_FACTOR <= moved <= wanted * NUDGE_FACTOR:
                break
            # Far off the change is no longer proportional to h, so the way there is taken in several strides.
            difference *= min(max(wanted / moved, 1e-3), 1e3) if math.isfinite(moved) else 1e-3
        self._difference_per_norm = difference * norm
        return slopes

    def _logp(self, microbatch: PolicyMicrobatch) -> Float[Tensor, "N T"]:
        batch = microbatch.round.batch(microbatch.groups)[0].to(self._models.policy.device)
        # In all digits: products of 16 bits would round a change of 0.01 nats away.
        with torch.no_grad(), self._models.policy.backbone.in_full():
            return self._models.policy.score(batch, temperature=self._models.temperature).logp_NT


def _flatten(tensors: Sequence[Tensor]) -> Float[Tensor, " D"]:
    # Of divided weights the whole: the search is for one step, and its sums are over all of them.
    return torch.cat([full_tensor(tensor).flatten() for tensor in tensors])


def _set_parameters(parameters: Sequence[nn.Parameter], values_D: Float[Tensor, " D"]) -> None:
    sizes = [p.numel() for p in parameters]
    for parameter, values in zip(parameters, values_D.split(sizes), strict=True):
        copy_into(parameter.data, values.view(parameter.shape))


def _clear_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Clear the gradients, so that the optimiser leaves these weights alone."""
    for parameter in parameters:
        parameter.grad = None
