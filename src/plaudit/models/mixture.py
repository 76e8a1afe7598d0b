"""A geometric mixture of a policy and its reference: what predicts its next tokens, and its log-probs.

`MixtureDecoder` takes the geometric mixture of a policy and its reference, token by token:

    π_m(· | s) ∝ π(· | s)^(1 − m) · π_ref(· | s)^m

Both models are fed the same tokens and their scores are added up. Scores are log-probs but for one number at
each place, which a softmax does not see; and a temperature divides those of both alike.

Where completions were sampled from a mixture of policy and reference, the sampler's log-probs are neither
model's own, and what they should be needs both distributions over the whole vocabulary. `MixtureScorer`
computes it for the first prompts only, as many as fit: stale weights in either model are stale for every
completion, and show there. With a share of 1 the policy has no part in the mixture. Completions that are only
compared against are not looked at: they come from the same modules as the policy's own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.backbone import head_of
from plaudit.models.decode import Decoder, Items, PromptIds, SharedDecoder, SlowDecoder, fastest_decoder
from plaudit.models.policy import (
    FullDistributionReference,
    GeneratingReference,
    ModelReference,
    Policy,
    scatter_to_mask,
)
from plaudit.tokens.batch import Example, TokenBatch, batch_of

MAX_DISTRIBUTION_CELLS = 2**24
"""Numbers of a distribution over tokens and vocabulary that are held at once."""


def mixture_logits(
    policy_XV: Float[Tensor, "X V"], reference_XV: Float[Tensor, "X V"], *, share: int | float
) -> Float[Tensor, "X V"]:
    """(1 − m) · own + m · other; with a share of 0 or 1 exactly the one, whatever stands in the other.
    Munos et al. 2023, arXiv:2312.00886.

    >>> likely, rare = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.2, 0.8]]).log()
    >>> mixture_logits(likely, rare, share=0.5).softmax(-1)
    tensor([[0.5000, 0.5000]])
    """
    # 0 · (−∞) is NaN: a token that the model with no weight forbids would spoil the other's logits.
    if share in (0, 1):
        return reference_XV if share else policy_XV
    wide = torch.promote_types(torch.promote_types(policy_XV.dtype, reference_XV.dtype), torch.float32)
    return (1 - share) * policy_XV.to(wide) + share * reference_XV.to(wide)


_MixtureMember = tuple[SharedDecoder | SlowDecoder, Callable[[], AbstractContextManager[object]]]
"""The decoder of one of the two models of a mixture, and the context in which it decodes."""


class MixtureDecoder:
    """The decoder of a mixture: both models decode the same completions."""

    def __init__(self, members: Sequence[_MixtureMember], share: int | float) -> None:
        """The policy's half, then the reference's; only the one that counts where the share is 0 or 1."""
        self._members, self._share = members, share

    @property
    def logits_NV(self) -> Float[Tensor, "N V"]:
        (policy_half, _), (reference_half, _) = self._members[0], self._members[-1]
        return mixture_logits(policy_half.logits_NV, reference_half.logits_NV, share=self._share)

    def step(self, token_N: Int[Tensor, " N"]) -> None:
        for decoder, activate in self._members:
            with activate():
                decoder.step(token_N)

    def select_rows(self, row_n: Int[Tensor, " n"]) -> None:
        for decoder, _ in self._members:
            decoder.select_rows(row_n)

    @property
    def can_join(self) -> bool:
        """Whether further answers can begin while others grow, in both models."""
        return all(decoder.can_join for decoder, _ in self._members)

    def join(self, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None) -> None:
        for decoder, activate in self._members:
            assert isinstance(decoder, SharedDecoder)
            with activate():
                decoder.join(prompts, answers, extras)

    def add_answers(self, count: int) -> None:
        for decoder, _ in self._members:
            assert isinstance(decoder, SharedDecoder)
            decoder.add_answers(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureDecoderFactory:
    """Makes decoders of a mixture, as a `Decoder` class makes those of one policy."""

    reference: GeneratingReference
    share: int | float
    """How much it counts: 0 is the policy, 1 the reference."""
    policy_decoder: Decoder
    reference_decoder: Decoder

    @contextmanager
    def attention_context(self, policy: Policy) -> Iterator[None]:
        with (
            self.policy_decoder.attention_context(policy),
            self.reference_decoder.attention_context(self.reference.policy),
        ):
            yield

    def __call__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> MixtureDecoder:
        members: list[_MixtureMember] = []
        # A model that does not count reads nothing: at m = 0 a mixture costs what the policy alone does.
        if self.share < 1:
            decoder = self.policy_decoder(policy, prompts, answers, extras)
            members.append((decoder, nullcontext))
        if self.share > 0:
            with self.reference.activate():
                decoder = self.reference_decoder(self.reference.policy, prompts, answers, extras)
            members.append((decoder, self.reference.activate))
        return MixtureDecoder(members, self.share)


def mixture_decoder(
    policy: Policy, decoder: Decoder, reference: GeneratingReference, share: int | float
) -> tuple[MixtureDecoderFactory, str | None]:
    """The mixture of a policy and its reference, and why when the reference's half is not the fast one."""
    reference_policy = reference.policy
    sizes = [head_of(model.base).layer.weight.shape[0] for model in (policy, reference_policy)]
    if sizes[0] != sizes[1]:
        raise UserError(
            f"mixture_coef: the policy scores {sizes[0]:,} tokens and its reference {sizes[1]:,}, so there "
            "is nothing between the two; take a reference of the policy's own family"
        )
    # Beneath its own adapters a policy has the layers that were tried already.
    other, reason = (decoder, None) if reference_policy is policy else fastest_decoder(reference_policy)
    factory = MixtureDecoderFactory(
        reference=reference, share=share, policy_decoder=decoder, reference_decoder=other
    )
    return factory, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureScorer:
    policy: ModelReference
    reference: FullDistributionReference
    reference_share: int | float

    def logp(self, batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_m of the trained tokens, from both distributions over the whole vocabulary."""
        policy_MV = self.policy.distributions(batch)
        reference_MV = self.reference.distributions(batch).to(policy_MV.dtype)
        # Over the whole vocabulary: the normaliser of a geometric mixture needs more than the drawn tokens.
        mixed_MV = mixture_logits(policy_MV, reference_MV, share=self.reference_share).log_softmax(-1)
        token_M1 = batch.completion_NT.flatten()[batch.trained_M][:, None]
        return scatter_to_mask(mixed_MV.gather(-1, token_M1)[:, 0], batch)

    def logp_of_first(
        self, examples: Sequence[Example], batch: TokenBatch, *, least: int
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """log π_m of the first examples of a batch, at least ``least``, and which tokens these are."""
        first_examples = self._affordable_examples(examples, least)
        dtype = torch.promote_types(self.policy.policy.logp_dtype, torch.float32)
        mixture_logp_NT = torch.zeros(batch.mask_NT.shape, dtype=dtype)
        computed_NT, start = torch.zeros_like(batch.mask_NT), 0
        for example in first_examples:
            # One prompt at a time: two tables of [M, V] are the largest tensors that a run ever holds.
            logp_nt = self.logp(batch_of([example]).to(self.policy.policy.device)).cpu()
            rows = slice(start, start + len(example.completions))
            mixture_logp_NT[rows, : logp_nt.shape[1]] = logp_nt.to(mixture_logp_NT.dtype)
            computed_NT[rows] = batch.mask_NT[rows]
            start = rows.stop
        return mixture_logp_NT, computed_NT

    def _affordable_examples(self, examples: Sequence[Example], least: int) -> Sequence[Example]:
        # [M, V] cells divided by V: from here on it counts tokens.
        cells_left = MAX_DISTRIBUTION_CELLS // head_of(self.policy.policy.base).layer.weight.shape[0]
        for index, example in enumerate(examples):
            cells_left -= example.trained_tokens
            if cells_left < 0:
                return examples[: max(index, least)]
        return examples
