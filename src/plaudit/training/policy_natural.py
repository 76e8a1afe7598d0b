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

from plaudit.tensors.conjugate import Tried, backtrack, conjugate_gradients, longest_step
from plaudit.tensors.masked import masked_sum
from plaudit.training.metrics import Metric, mean, values_of
from plaudit.training.parallel import Ranks
from plaudit.training.policy import Piece, PolicyPiece
from plaudit.training.policy_experience import Watchers
from plaudit.training.step import Terms, add_over_ranks

STEPS = 10
"""Conjugate gradients."""
DAMPING = 0.1
"""Added to the curvature, so that directions that it knows nothing of stay short."""
NUDGE = {torch.float64: 1e-5, torch.float32: 1e-3}
"""How far along v the difference of log-probs is taken, as a share of the weights' own norm."""


class NaturalStep:
    """Moves a policy by its gradients; what else has gradients is left to the optimiser."""

    def __init__(
        self,
        watchers: Watchers,
        surrogate: Callable[[PolicyPiece], Terms],
        ranks: Ranks,
        *,
        limit: int | float,
    ) -> None:
        """``limit`` is δ, the largest KL(π_old ‖ π) a token; the surrogate is the policy's loss alone."""
        self._watchers, self._surrogate, self._ranks = watchers, surrogate, ranks
        self._limit = limit

    def __call__(self, pieces: Sequence[Piece]) -> Sequence[Metric]:
        """The step, with its share of the longest one and the KL that it came to."""
        own = [replace(piece, first=False) for piece in pieces if isinstance(piece, PolicyPiece)]
        trained = [p for p in self._watchers.policy.parameters() if p.requires_grad]
        begin_D = _flat([p.detach() for p in trained])
        downhill_D = -_flat([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])
        if not bool(downhill_D.any()):
            return self._nothing(trained)

        def curved(v_D: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
            return self._curved(trained, begin_D, v_D, own)

        towards_D = conjugate_gradients(curved, downhill_D, steps=STEPS, damping=DAMPING)
        longest_D = longest_step(towards_D, curved(towards_D) + DAMPING * towards_D, limit=self._limit)
        before = self._tried(own, 0.0).improvement

        def trial(size: float) -> Tried:
            _put(trained, begin_D + size * longest_D)
            return self._tried(own, before)

        taken = backtrack(trial, limit=self._limit)
        if taken is None:
            _put(trained, begin_D)
            return self._nothing(trained)
        kl = self._tried(own, before).kl
        _let_go(trained)
        return mean("step_share", taken, 1), mean("step_kl", kl, 1)

    def _nothing(self, trained: Sequence[nn.Parameter]) -> Sequence[Metric]:
        _let_go(trained)
        return mean("step_share", 0.0, 1), mean("step_kl", 0.0, 1)

    def _tried(self, pieces: Sequence[PolicyPiece], before: float) -> Tried:
        """What the surrogate and the KL are now, over all ranks."""
        with torch.no_grad():
            found = [metric for piece in pieces for metric in self._surrogate(piece).metrics]
        values = values_of(add_over_ranks(found, self._ranks))
        return Tried(improvement=-float(values["loss"]) - before, kl=float(values["kl_old"]))

    def _curved(
        self,
        trained: Sequence[nn.Parameter],
        begin_D: Float[Tensor, " D"],
        v_D: Float[Tensor, " D"],
        pieces: Sequence[PolicyPiece],
    ) -> Float[Tensor, " D"]:
        """F v: how log-probs change along v, and what that change weighs at each weight."""
        nudge = NUDGE.get(v_D.dtype, 1e-2) * float(begin_D.norm()) / float(v_D.norm())
        _put(trained, begin_D + nudge * v_D)
        ahead = [self._logp(piece) for piece in pieces]
        _put(trained, begin_D - nudge * v_D)
        behind = [self._logp(piece) for piece in pieces]
        _put(trained, begin_D)
        for parameter in trained:
            parameter.grad = None
        for piece, ahead_NT, behind_NT in zip(pieces, ahead, behind, strict=True):
            along_NT = (ahead_NT - behind_NT) / (2 * nudge)
            self._weighed(piece, along_NT).backward()
        self._ranks.sum_gradients(trained)
        return _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in trained])

    def _logp(self, piece: PolicyPiece) -> Float[Tensor, "N T"]:
        batch = piece.round.batch(piece.places)[0].to(self._watchers.policy.device)
        with torch.no_grad(), self._watchers.products():
            return self._watchers.policy.score(batch, temperature=self._watchers.temperature).logp_NT

    def _weighed(self, piece: PolicyPiece, along_NT: Float[Tensor, "N T"]) -> Float[Tensor, ""]:
        batch = piece.round.batch(piece.places)[0].to(self._watchers.policy.device)
        with self._watchers.products():
            scores = self._watchers.policy.score(batch, temperature=self._watchers.temperature)
        return masked_sum(along_NT * scores.logp_NT, batch.mask_NT) / piece.counts.tokens


def _flat(tensors: Sequence[Tensor]) -> Float[Tensor, " D"]:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _put(parameters: Sequence[nn.Parameter], values_D: Float[Tensor, " D"]) -> None:
    sizes = [p.numel() for p in parameters]
    for parameter, values in zip(parameters, values_D.split(sizes), strict=True):
        parameter.data.copy_(values.view_as(parameter))


def _let_go(parameters: Sequence[nn.Parameter]) -> None:
    """The optimiser leaves weights without a gradient alone."""
    for parameter in parameters:
        parameter.grad = None
