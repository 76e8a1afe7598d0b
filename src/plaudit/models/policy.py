"""A causal language model that scores completions: ``policy.score(batch).logp_NT``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.models.backbone import Backbone, Head, head_of
from plaudit.tensors.logprobs import Extra, score_tokens, score_tokens_equally_weighted
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.packing import Layout

StateReader = Callable[[Tensor, Head, TokenBatch], tuple[Tensor, ...]]
"""What is read off the states ``[M, H]`` that predict the M trained tokens of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a policy thinks of the tokens of a batch.

    Example: ``TokenScores(logp_NT=…, greedy_NT=…, entropy_NT=None)``; zero wherever the batch's mask is
        False.
    """

    logp_NT: Float[Tensor, "N T"]
    """Log-probability of each trained token."""
    greedy_NT: Bool[Tensor, "N T"]
    """Whether it was the likeliest token."""
    entropy_NT: Float[Tensor, "N T"] | None = None
    """Entropy of the distribution that it was chosen from."""
    repeat_NT: Float[Tensor, "N T"] | None = None
    """log Σ_v π_v² of that distribution, without gradient."""
    extra_NT: Float[Tensor, "N T"] | None = None
    """What the caller's state reader made of the same states: a critic's values, say."""


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
        self.backbone = Backbone(model, layout=layout, share_prompts=share_prompts, attention=attention)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        return self.backbone.base

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.device

    @property
    def layout(self) -> Layout:
        """How batches are laid out."""
        return self.backbone.layout

    @property
    def share_prompts(self) -> bool:
        """Whether a packed prompt is computed once for all its completions."""
        return self.backbone.share_prompts

    @share_prompts.setter
    def share_prompts(self, share: bool) -> None:
        self.backbone.share_prompts = share

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.backbone.use_layout(layout)

    def score(
        self,
        batch: TokenBatch,
        *,
        also: Sequence[Extra] = (),
        temperature: float = 1.0,
        state_reader: StateReader | None = None,
    ) -> TokenScores:
        """Log-probs (and more) of the trained tokens; the vocabulary is projected to only there.

        ``beside`` reads one number a token off the same states: a critic that shares them.
        """
        read = _ScoreReader(also=tuple(also), temperature=temperature, state_reader=state_reader)
        logp_NT, greedy_NT, *more = (scatter_to_mask(value_M, batch) for value_M in self(batch, read))
        extra_NT = None if state_reader is None else more.pop()
        return TokenScores(
            logp_NT=logp_NT,
            greedy_NT=greedy_NT,
            entropy_NT=more[0] if "entropy" in also else None,
            repeat_NT=more[-1] if "repeat" in also else None,
            extra_NT=extra_NT,
        )

    def score_equally_weighted(self, batch: TokenBatch) -> TokenScores:
        """`score`, faster, for a loss that counts every trained token the same (`score_alike` of tensors)."""
        logp_NT, greedy_NT = (
            scatter_to_mask(value_M, batch) for value_M in self(batch, _read_equally_weighted)
        )
        return TokenScores(logp_NT=logp_NT, greedy_NT=greedy_NT)

    def distributions(self, batch: TokenBatch, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """log π over the whole vocabulary at each of the M trained tokens: for small vocabularies."""

        def read(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
            del batch
            logits_MV = replace(head.rule, temperature=temperature).apply(head.layer(hidden_MH))
            return (logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32)).log_softmax(-1),)

        [logp_MV] = self(batch, read)
        return logp_MV

    def forward(self, batch: TokenBatch, read: StateReader) -> tuple[Tensor, ...]:
        """Whatever ``read`` makes of the states; inside this call sharded weights are whole."""
        hidden_MH = self.backbone.states(batch, lambda inputs: inputs.state_NT[batch.mask_NT])
        return read(hidden_MH, head_of(self.base), batch)

    def as_plain_model(self) -> AbstractContextManager[Any]:
        """The wrapped model with its ordinary attention, in evaluation mode: for ``generate``."""
        return self.backbone.attention_context(self.backbone.plain_attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreReader:
    also: tuple[Extra, ...]
    temperature: float
    state_reader: StateReader | None = None

    def __call__(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        scores = score_tokens(
            hidden_MH,
            head.layer.weight,
            batch.completion_NT[batch.mask_NT],
            bias_V=head.layer.bias,
            rule=replace(head.rule, temperature=self.temperature),
            extras=self.also,
        )
        more = (value_M for value_M in (scores.entropy_M, scores.repeat_M) if value_M is not None)
        extra = () if self.state_reader is None else self.state_reader(hidden_MH, head, batch)
        return scores.logp_M, scores.greedy_M, *more, *extra


def _read_equally_weighted(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
    target_M = batch.completion_NT[batch.mask_NT]
    scores = score_tokens_equally_weighted(
        hidden_MH, head.layer.weight, target_M, bias_V=head.layer.bias, rule=head.rule
    )
    return scores.logp_M, scores.greedy_M


def scatter_to_mask(value_M: Tensor, batch: TokenBatch) -> Tensor:
    """Values of the trained tokens at their places in ``[N, T]``, zero elsewhere."""
    empty_NT = torch.zeros(batch.mask_NT.shape, dtype=value_M.dtype, device=value_M.device)
    return empty_NT.masked_scatter(batch.mask_NT, value_M)
