"""Whether answers of a mixture were drawn from it: its log-probs as trainer and reference make them now.

The sampler's log-probs of such answers are neither the policy's nor the reference's. What they should be
needs both distributions over the whole vocabulary, so it is computed of the first prompts only, as many as
fit: old weights in either half are old for all answers, and show there. With a share of 1 the policy has no
part in it. A rival's answer is only scored, so nobody asks for its log-probs; it comes from the same modules
as the policy's own answers, which are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.models.head import head_of
from plaudit.models.mixing import mixed_scores
from plaudit.models.policy import spread_out
from plaudit.models.reference import Beside, SaysAll

CELLS = 2**24
"""Numbers of a distribution over tokens and vocabulary that are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """The mixture that a round's answers should have been drawn from.

    Example: ``Blend(own=Beside(policy, nullcontext), other=reference, share=0.125)``
    """

    own: Beside
    """The policy that is trained."""
    other: SaysAll
    """Its reference."""
    share: int | float
    """How much the reference counts."""

    def logp(self, batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_m of the trained tokens, from both distributions over the whole vocabulary."""
        own_MV = self.own.distributions(batch)
        other_MV = self.other.distributions(batch).to(own_MV.dtype)
        mixed_MV = mixed_scores(own_MV, other_MV, share=self.share).log_softmax(-1)
        token_M1 = batch.completion_NT[batch.mask_NT][:, None]
        return spread_out(mixed_MV.gather(-1, token_M1)[:, 0], batch)

    def looked_at(
        self, examples: Sequence[Example], batch: TokenBatch, *, least: int
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """log π_m of the first examples of a batch, at least ``least``, and which tokens these are."""
        few = self._few(examples, least)
        found_NT = torch.zeros(batch.mask_NT.shape, dtype=torch.promote_types(self._dtype, torch.float32))
        known_NT, start = torch.zeros_like(batch.mask_NT), 0
        for example in few:
            logp_nt = self.logp(batch_of([example]).to(self.own.policy.device)).cpu()
            rows = slice(start, start + len(example.completions))
            found_NT[rows, : logp_nt.shape[1]] = logp_nt.to(found_NT.dtype)
            known_NT[rows] = batch.mask_NT[rows]
            start = rows.stop
        return found_NT, known_NT

    @property
    def _dtype(self) -> torch.dtype:
        return self.own.policy.base.dtype

    def _few(self, examples: Sequence[Example], least: int) -> Sequence[Example]:
        left = CELLS // head_of(self.own.policy.base).layer.weight.shape[0]
        for place, example in enumerate(examples):
            left -= example.trained_tokens
            if left < 0:
                return examples[: max(place, least)]
        return examples
