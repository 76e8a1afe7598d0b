"""A causal language model that scores completions: ``policy.score(batch).logp_NT``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.batches.pack import Arrangement, Layout, arrange
from plaudit.batches.tokens import TokenBatch
from plaudit.models.attention import PACKED, PackingError
from plaudit.models.head import Head, backbone_of, head_of
from plaudit.tensors.logprobs import score_alike, score_tokens

Reader = Callable[[Tensor, Head, TokenBatch], tuple[Tensor, ...]]
"""What is read off the states ``[M, H]`` that predict the M trained tokens of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a policy thinks of the tokens of a batch.

    Example: ``Scores(logp_NT=…, greedy_NT=…, entropy_NT=None)``; zero wherever the batch's mask is False.
    """

    logp_NT: Float[Tensor, "N T"]
    """Log-probability of each trained token."""
    greedy_NT: Bool[Tensor, "N T"]
    """Whether it was the likeliest token."""
    entropy_NT: Float[Tensor, "N T"] | None = None
    """Entropy of the distribution that it was chosen from."""


class Policy(nn.Module):
    """A Hugging Face causal language model, and how batches are laid out for it."""

    def __init__(
        self,
        model: nn.Module,
        *,
        layout: Layout = "packed",
        share_prompts: bool = True,
        attention: str | None = None,
    ):
        """Wrap a PreTrainedModel, or one in PEFT's wrapper, that is already on its device.

        ``attention`` is transformers' name of the one that serves padded batches and sampling.
        """
        super().__init__()
        self.model = model
        self.share_prompts = share_prompts
        self._plain_attention = attention or ("sdpa" if self.base._supports_sdpa else "eager")
        self.use_layout(layout)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        wrapped = getattr(self.model, "get_base_model", None)
        return cast("PreTrainedModel", self.model if wrapped is None else wrapped())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.base.parameters()).device

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.layout: Layout = layout
        self._attend()

    def score(self, batch: TokenBatch, *, entropy: bool = False, temperature: float = 1.0) -> Scores:
        """Log-probs (and entropies) of the trained tokens; the vocabulary is projected to only there."""
        read = _ReadScores(entropy=entropy, temperature=temperature)
        logp_NT, greedy_NT, *entropies = (_spread(value_M, batch) for value_M in self(batch, read))
        return Scores(logp_NT=logp_NT, greedy_NT=greedy_NT, entropy_NT=entropies[0] if entropy else None)

    def score_alike(self, batch: TokenBatch) -> Scores:
        """`score`, faster, for a loss that counts every trained token the same (`score_alike` of tensors)."""
        logp_NT, greedy_NT = (_spread(value_M, batch) for value_M in self(batch, _read_alike))
        return Scores(logp_NT=logp_NT, greedy_NT=greedy_NT)

    def forward(self, batch: TokenBatch, read: Reader) -> tuple[Tensor, ...]:
        """Whatever ``read`` makes of the states; inside this call sharded weights are whole."""
        if self.layout == "packed" and not self._takes_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        inputs = arrange(batch, self.layout, share_prompts=self.share_prompts)
        return read(self._states(inputs, batch), head_of(self.base), batch)

    @contextmanager
    def as_plain_model(self) -> Iterator[Any]:
        """The wrapped model with its ordinary attention, in evaluation mode: for ``generate``."""
        was_training = self.model.training
        self.model.eval()
        self._attend_by(self._plain_attention)
        try:
            yield self.model
        finally:
            self._attend()
            self.model.train(was_training)

    def _states(self, inputs: Arrangement, batch: TokenBatch) -> Tensor:
        packing = {} if inputs.segments is None else {"segments": inputs.segments}
        output = backbone_of(self.base)(
            input_ids=inputs.ids_RS,
            position_ids=inputs.position_RS,
            attention_mask=None if inputs.real_RS is None else inputs.real_RS.long(),
            use_cache=False,
            **packing,
        )
        hidden_RSH: Tensor = output.last_hidden_state
        return hidden_RSH.flatten(0, 1)[inputs.state_NT[batch.mask_NT]]

    def _attend(self) -> None:
        self._attend_by(PACKED if self.layout == "packed" else self._plain_attention)

    def _attend_by(self, name: str) -> None:
        if self._takes_attention:
            self.base.set_attn_implementation(name)

    @property
    def _takes_attention(self) -> bool:
        """Whether the model's attention goes through transformers' common interface."""
        return self.base._can_set_attn_implementation()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadScores:
    entropy: bool
    temperature: float

    def __call__(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        scores = score_tokens(
            hidden_MH,
            head.layer.weight,
            batch.completion_NT[batch.mask_NT],
            bias_V=head.layer.bias,
            rule=replace(head.rule, temperature=self.temperature),
            entropy=self.entropy,
        )
        entropies = () if scores.entropy_M is None else (scores.entropy_M,)
        return scores.logp_M, scores.greedy_M, *entropies


def _read_alike(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
    target_M = batch.completion_NT[batch.mask_NT]
    scores = score_alike(hidden_MH, head.layer.weight, target_M, bias_V=head.layer.bias, rule=head.rule)
    return scores.logp_M, scores.greedy_M


def _spread(value_M: Tensor, batch: TokenBatch) -> Tensor:
    """Values of the trained tokens at their places in ``[N, T]``, zero elsewhere."""
    empty_NT = torch.zeros(batch.mask_NT.shape, dtype=value_M.dtype, device=value_M.device)
    return empty_NT.masked_scatter(batch.mask_NT, value_M)
