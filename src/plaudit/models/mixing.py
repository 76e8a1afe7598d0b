"""Answers from between two models: the geometric mixture of a policy and its reference, token by token.

    π_m(· | s) ∝ π(· | s)^(1 − m) · π_ref(· | s)^m

Both models are fed the same tokens and their scores are added up. Scores are log-probs but for one number at
each place, which a softmax does not see; and a temperature divides those of both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.decoding import CachedDecoder, Decoder, Prompts, SharedDecoder, fastest_decoder
from plaudit.models.head import head_of
from plaudit.models.policy import Policy
from plaudit.models.reference import Speaks


def mixed_scores(
    own_XV: Float[Tensor, "X V"], other_XV: Float[Tensor, "X V"], *, share: int | float
) -> Float[Tensor, "X V"]:
    """(1 − m) · own + m · other; with a share of 0 or 1 exactly the one, whatever stands in the other.

    Munos et al. 2023, arXiv:2312.00886.

    >>> likely, rare = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.2, 0.8]]).log()
    >>> mixed_scores(likely, rare, share=0.5).softmax(-1)
    tensor([[0.5000, 0.5000]])
    """
    if share in (0, 1):
        return other_XV if share else own_XV
    wide = torch.promote_types(torch.promote_types(own_XV.dtype, other_XV.dtype), torch.float32)
    return (1 - share) * own_XV.to(wide) + share * other_XV.to(wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """One of the two models, reading along."""

    grown: SharedDecoder | CachedDecoder
    alone: Callable[[], AbstractContextManager[object]]


class Mixed:
    """Answers that grow side by side in the eyes of both models; a decoder like those of one model."""

    def __init__(self, halves: Sequence[_Half], share: int | float) -> None:
        """The policy's half, then the reference's; only the one that counts where the share is 0 or 1."""
        self._halves, self._share = halves, share

    @property
    def logits_NV(self) -> Float[Tensor, "N V"]:
        """What predicts every answer's next token."""
        own, other = self._halves[0].grown, self._halves[-1].grown
        return mixed_scores(own.logits_NV, other.logits_NV, share=self._share)

    def step(self, token_N: Int[Tensor, " N"]) -> None:
        """Every answer gets a token."""
        for half in self._halves:
            with half.alone():
                half.grown.step(token_N)

    def keep(self, row_n: Int[Tensor, " n"]) -> None:
        """Only these answers go on."""
        for half in self._halves:
            half.grown.keep(row_n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What begins answers of a mixture, as a `Decoder` begins those of a policy.

    Example: ``Mixture(reference=Beside(frozen, nullcontext), share=0.125, own=…, other=…)``
    """

    reference: Speaks
    """The other model, with its weights of this moment."""
    share: int | float
    """How much it counts: 0 is the policy, 1 the reference."""
    own: Decoder
    """How the policy's next tokens are predicted."""
    other: Decoder
    """How the reference's are."""

    @contextmanager
    def attending(self, policy: Policy) -> Iterator[None]:
        """Both in evaluation mode, each with its decoder's attention."""
        with self.own.attending(policy), self.other.attending(self.reference.policy):
            yield

    def __call__(self, policy: Policy, prompts: Prompts, answers: Sequence[int]) -> Mixed:
        """Read the prompts, by both models."""
        halves: list[_Half] = []
        if self.share < 1:
            halves.append(_Half(grown=self.own(policy, prompts, answers), alone=nullcontext))
        if self.share > 0:
            with self.reference.alone():
                grown = self.other(self.reference.policy, prompts, answers)
            halves.append(_Half(grown=grown, alone=self.reference.alone))
        return Mixed(halves, self.share)


def mixture(
    policy: Policy, decoder: Decoder, reference: Speaks, share: int | float
) -> tuple[Mixture, str | None]:
    """The mixture of a policy and its reference, and why when the reference's half is not the fast one."""
    other = reference.policy
    sizes = [head_of(one.base).layer.weight.shape[0] for one in (policy, other)]
    if sizes[0] != sizes[1]:
        raise UserError(
            f"draw.mixture: the policy scores {sizes[0]:,} tokens and its reference {sizes[1]:,}, so there "
            "is nothing between the two; take a reference of the policy's own family"
        )
    # Beneath its own adapters a policy has the layers that were tried already.
    kind, slow = (decoder, None) if other is policy else fastest_decoder(other)
    return Mixture(reference=reference, share=share, own=decoder, other=kind), slow
