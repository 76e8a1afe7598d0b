"""A natural step under a hard limit on the KL: conjugate gradients, the longest step, a line search back.

Vectors are flat: all parameters one after the other. The curvature is only known as a product, v → A v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

MatrixVectorProduct = Callable[[Float[Tensor, " D"]], Float[Tensor, " D"]]
"""v → A v of a symmetric, positive A; for TRPO the Hessian of the mean KL times v."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvaluation:
    """What a trial step achieves: improvement of the surrogate and KL.

    Example: ``StepEvaluation(improvement=0.02, kl=0.008)``
    """

    improvement: float
    """How much the surrogate's loss fell."""
    kl: float
    """The mean KL(π_old ‖ π) after the step."""


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
    Stiefel 1952; 10 steps and a damping of 0.1 for TRPO are usual.

    >>> conjugate_gradients(lambda v: torch.tensor([2.0, 4.0]) * v, torch.tensor([2.0, 2.0]), steps=2)
    tensor([1.0000, 0.5000])
    """
    x_D, residual_D, direction_D = torch.zeros_like(b_D), b_D, b_D
    square = residual_D.dot(residual_D)
    target_square = tolerance * square
    for _ in range(steps):
        if bool(square <= target_square):
            break
        product_D = product(direction_D) + damping * direction_D
        length = square / direction_D.dot(product_D)
        x_D, residual_D = x_D + length * direction_D, residual_D - length * product_D
        before, square = square, residual_D.dot(residual_D)
        direction_D = residual_D + (square / before) * direction_D
    return x_D


def largest_step_within_kl(
    direction_D: Float[Tensor, " D"], product_D: Float[Tensor, " D"], *, limit: int | float
) -> Float[Tensor, " D"]:
    """√(2δ / sᵀA s) · s: as far along s as the KL, to second order, is δ; ``curved_D`` is A s.

    Schulman et al. 2015, arXiv:1502.05477.

    >>> largest_step_within_kl(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), limit=0.01)
    tensor([0.1000, 0.0000])
    """
    return (2 * limit / direction_D.dot(product_D)).sqrt() * direction_D


def backtracking_line_search(
    evaluate: Callable[[float], StepEvaluation],
    *,
    limit: int | float,
    tries: int = 10,
    shrink: int | float = 0.5,
) -> float | None:
    """The first of 1, shrink, shrink², … that improves the surrogate and keeps the KL within δ, or none.

    What is not a number is not accepted. Schulman et al. 2015, arXiv:1502.05477.

    >>> backtracking_line_search(lambda size: StepEvaluation(improvement=size, kl=size**2), limit=0.1)
    0.25
    """
    for power in range(tries):
        size = float(shrink) ** power
        evaluation = evaluate(size)
        if evaluation.improvement > 0 and evaluation.kl <= limit:
            return size
    return None
