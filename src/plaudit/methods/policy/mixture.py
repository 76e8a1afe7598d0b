"""The log-probs of the policy–reference mixture that completions were sampled from, to check the sampler.

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

from plaudit.models.backbone import head_of
from plaudit.models.decode import mixture_logits
from plaudit.models.policy import scatter_to_mask
from plaudit.models.reference import FullDistributionReference, ModelReference
from plaudit.tokens.batch import Example, TokenBatch, batch_of

MAX_DISTRIBUTION_CELLS = 2**24
"""Numbers of a distribution over tokens and vocabulary that are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureScorer:
    """Scores tokens under the mixture of policy and reference.

    Example: ``MixtureScorer(policy=ModelReference(policy, nullcontext),
        reference=reference, reference_share=0.125)``
    """

    policy: ModelReference
    """The trained policy."""
    reference: FullDistributionReference
    """The reference."""
    reference_share: int | float
    """The reference's share of the mixture."""

    def logp(self, batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_m of the trained tokens, from both distributions over the whole vocabulary."""
        policy_MV = self.policy.distributions(batch)
        reference_MV = self.reference.distributions(batch).to(policy_MV.dtype)
        mixed_MV = mixture_logits(policy_MV, reference_MV, share=self.reference_share).log_softmax(-1)
        token_M1 = batch.completion_NT[batch.mask_NT][:, None]
        return scatter_to_mask(mixed_MV.gather(-1, token_M1)[:, 0], batch)

    def logp_of_first(
        self, examples: Sequence[Example], batch: TokenBatch, *, least: int
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """log π_m of the first examples of a batch, at least ``least``, and which tokens these are."""
        first_examples = self._affordable_examples(examples, least)
        mixture_logp_NT = torch.zeros(
            batch.mask_NT.shape, dtype=torch.promote_types(self._dtype, torch.float32)
        )
        computed_NT, start = torch.zeros_like(batch.mask_NT), 0
        for example in first_examples:
            logp_nt = self.logp(batch_of([example]).to(self.policy.policy.device)).cpu()
            rows = slice(start, start + len(example.completions))
            mixture_logp_NT[rows, : logp_nt.shape[1]] = logp_nt.to(mixture_logp_NT.dtype)
            computed_NT[rows] = batch.mask_NT[rows]
            start = rows.stop
        return mixture_logp_NT, computed_NT

    @property
    def _dtype(self) -> torch.dtype:
        return self.policy.policy.base.dtype

    def _affordable_examples(self, examples: Sequence[Example], least: int) -> Sequence[Example]:
        cells_left = MAX_DISTRIBUTION_CELLS // head_of(self.policy.policy.base).layer.weight.shape[0]
        for index, example in enumerate(examples):
            cells_left -= example.trained_tokens
            if cells_left < 0:
                return examples[: max(index, least)]
        return examples
