"""What is done to scores before they teach: costs of not ending and of length, clipping, one running unit.

N completions. A score that is not a number is no verdict and stays one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.errors import UserError


def replace_unfinished(
    score_N: Float[Tensor, " N"], finished_N: Bool[Tensor, " N"], *, score: int | float = -1.0
) -> Float[Tensor, " N"]:
    """This score in place of its own for what did not end by itself.

    The end-of-text trick: a reward model was taught nothing about answers that break off, so what it says of
    them is not used. Ziegler et al. 2019 (lm-human-preferences), arXiv:1909.08593, with −1.

    >>> replace_unfinished(torch.tensor([2.0, 3.0]), torch.tensor([True, False]))
    tensor([ 2., -1.])
    """
    return torch.where(finished_N, score_N, torch.full_like(score_N, score))


def soft_overlong(length_N: Int[Tensor, " N"], *, longest: int, cache: int) -> Float[Tensor, " N"]:
    """0 up to L_max − L_cache, then ((L_max − L_cache) − L) / L_cache, and −1 beyond L_max; to be added.

    Yu et al. 2025 (DAPO), arXiv:2503.14476, equation 13.

    >>> soft_overlong(torch.tensor([10, 80, 90, 100, 120]), longest=100, cache=20)
    tensor([ 0.0000,  0.0000, -0.5000, -1.0000, -1.0000])
    """
    if not 0 < cache <= longest:
        raise UserError(f"soft overlong punishment: cache {cache} of longest {longest}; 0 < cache ≤ longest")
    return ((longest - cache - length_N) / cache).clamp(-1.0, 0.0)


def overlong_filter_mask(
    finished_N: Bool[Tensor, " N"], length_N: Int[Tensor, " N"], *, longest: int
) -> Bool[Tensor, " N"]:
    """Which completions stay in the loss: those that ended by themselves within the longest length.

    Overlong filtering: a good solution that was cut is no bad one, and a punishment for it is noise. Yu et
    al. 2025 (DAPO), arXiv:2503.14476, section 3.4.

    >>> overlong_filter_mask(torch.tensor([True, False, True]), torch.tensor([9, 9, 12]), longest=10)
    tensor([ True, False, False])
    """
    return finished_N & (length_N <= longest)


def clipped(score_N: Float[Tensor, " N"], *, low: int | float, high: int | float) -> Float[Tensor, " N"]:
    """min(max(r, low), high): one outlier does not decide a batch.

    Engstrom et al. 2020, arXiv:2005.12729, find it among the unwritten parts of PPO.

    >>> clipped(torch.tensor([-9.0, 0.5, float("nan")]), low=-1, high=1)
    tensor([-1.0000,  0.5000,     nan])
    """
    if not low < high:
        raise UserError(f"clipping from {low} to {high}; the first number is the smaller one")
    return score_N.clamp(low, high)


def length_penalty(
    length_N: Int[Tensor, " N"], *, per_token: int | float, free: int = 0
) -> Float[Tensor, " N"]:
    """−c · max(0, L − free); to be added.

    The plainest remedy for a reward that likes length (Singhal et al. 2023, arXiv:2310.03716).

    >>> length_penalty(torch.tensor([5, 30]), per_token=0.01, free=10)
    tensor([-0.0000, -0.2000])
    """
    if not per_token >= 0:
        raise UserError(f"a length penalty of {per_token} a token would reward length; 0 or more")
    return -per_token * (length_N - free).clamp(min=0).to(torch.get_default_dtype())


class RunningScale:
    """Brings scores to the mean 0 and the standard deviation 1 of all that were taken in so far.

    Welford's recurrence, in float64; batches are merged as in Chan, Golub and LeVeque 1983. Reward scaling as
    an unwritten part of PPO: Engstrom et al. 2020, arXiv:2005.12729.

    Example: ``scale.update(score_N)``, then ``scale.of(score_N)``; a checkpoint keeps ``scale.tensors()``
    """

    def __init__(self, *, shift: bool = True, floor: float = 1e-6) -> None:
        """Without ``shift`` only the scale changes, so that the sign of a score keeps its meaning."""
        self._shift, self._floor = shift, floor
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def mean(self) -> float:
        """Of all scores so far; 0 before the first."""
        return self._mean

    @property
    def deviation(self) -> float:
        """Of all scores so far, of those that there are (1/n); 1 before the second."""
        return (self._squares / self._count) ** 0.5 if self._count > 1 else 1.0

    def update(self, score_N: Float[Tensor, " N"]) -> None:
        """Count these scores; every rank gives those of the whole batch, so that all stay alike."""
        finite = score_N[score_N.isfinite()].double()
        count = finite.numel()
        if not count:
            return
        mean = float(finite.mean())
        difference, total = mean - self._mean, self._count + count
        self._squares += (
            float((finite - mean).square().sum()) + difference * difference * self._count * count / total
        )
        self._mean += difference * count / total
        self._count = total

    def normalise(self, score_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The scores in the running unit, (r − mean) / deviation."""
        return (score_N - (self._mean if self._shift else 0.0)) / max(self.deviation, self._floor)

    def tensors(self) -> Mapping[str, Tensor]:
        """The count, mean and sum of squares, for a checkpoint."""
        values = [float(self._count), self._mean, self._squares]
        return {"scale": torch.tensor(values, dtype=torch.float64)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint kept."""
        count, self._mean, self._squares = tensors["scale"].tolist()
        self._count = int(count)
