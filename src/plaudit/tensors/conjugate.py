"""A natural step under a hard limit on the KL: conjugate gradients, the longest step, a line search back.

Vectors are flat: all parameters one after the other. The curvature is only known as a product, v → A v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Product = Callable[[Float[Tensor, " D"]], Float[Tensor, " D"]]
"""v → A v of a symmetric, positive A; for TRPO the Hessian of the mean KL times v."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a step was worth.

    Example: ``Tried(improvement=0.02, kl=0.008)``
    """

    improvement: float
    """How much the surrogate's loss fell."""
    kl: float
    """The mean KL(π_old ‖ π) after the step."""


def conjugate_gradients(
    product: Product,
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
    x_D, residual_D, towards_D = torch.zeros_like(b_D), b_D, b_D
    square = residual_D.dot(residual_D)
    enough = tolerance * square
    for _ in range(steps):
        if bool(square <= enough):
            break
        curved_D = product(towards_D) + damping * towards_D
        length = square / towards_D.dot(curved_D)
        x_D, residual_D = x_D + length * towards_D, residual_D - length * curved_D
        before, square = square, residual_D.dot(residual_D)
        towards_D = residual_D + (square / before) * towards_D
    return x_D


def longest_step(
    towards_D: Float[Tensor, " D"], curved_D: Float[Tensor, " D"], *, limit: int | float
) -> Float[Tensor, " D"]:
    """√(2δ / sᵀA s) · s: as far along s as the KL, to second order, is δ; ``curved_D`` is A s.

    Schulman et al. 2015, arXiv:1502.05477.

    >>> longest_step(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), limit=0.01)
    tensor([0.1000, 0.0000])
    """
    return (2 * limit / towards_D.dot(curved_D)).sqrt() * towards_D


def backtrack(
    trial: Callable[[float], Tried], *, limit: int | float, tries: int = 10, shrink: int | float = 0.5
) -> float | None:
    """The first of 1, shrink, shrink², … that improves the surrogate and keeps the KL within δ, or none.

    What is not a number is not accepted. Schulman et al. 2015, arXiv:1502.05477.

    >>> backtrack(lambda size: Tried(improvement=size, kl=size**2), limit=0.1)
    0.25
    """
    for power in range(tries):
        size = float(shrink) ** power
        tried = trial(size)
        if tried.improvement > 0 and tried.kl <= limit:
            return size
    return None
