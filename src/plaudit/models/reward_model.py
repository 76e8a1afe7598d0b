"""A causal backbone with one number for a head: rewards of completions, values of tokens, scores of steps.

reward(x, y) = w · h at the end-of-turn token's own state (Stiennon et al. 2020, arXiv:2009.01325). A critic
that shares the policy's layers reads its number from the state in which each token is chosen.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.errors import UserError
from plaudit.models.backbone import Backbone, Head, StateSelector
from plaudit.models.lora import merge_adapters, with_lora
from plaudit.models.policy import Policy, scatter_to_mask
from plaudit.models.settings import LoraSettings
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.packing import Layout

Pooling = Literal["last", "mean"]
"""Read at the last masked token, or on average over the completion's masked tokens."""

ValuePosition = Literal["own", "before"]
"""The state of the token itself, or the one in which it was chosen (the V(s_t) of PPO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """What is done to the head's output: reward = (raw − offset) / scale.

    Example: ``Normalisation(offset=1.5)`` makes demonstrations whose raw mean is 1.5 score 0 on average.
    """

    offset: int | float = 0.0
    """Taken away first; with a negative sign it is the head's bias."""
    scale: int | float = 1.0
    """Divided by then."""

    def __post_init__(self) -> None:
        """Refuse what would turn rewards round or into nothing."""
        if not math.isfinite(self.offset):
            raise UserError(f"the offset of a reward must be a number, not {self.offset}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise UserError(f"the scale of a reward must be a number above 0, not {self.scale}")

    def apply(self, raw: Tensor) -> Tensor:
        """The rewards of raw outputs.

        >>> Normalisation(offset=1, scale=2).apply(torch.tensor([1.0, 5.0]))
        tensor([0., 2.])
        """
        return (raw - self.offset) / self.scale


class RewardModel(nn.Module):
    """A Hugging Face sequence classifier with one label, and how batches are laid out for it."""

    def __init__(
        self,
        model: nn.Module,
        *,
        pooling: Pooling = "last",
        normalisation: Normalisation | None = None,
        layout: Layout = "packed",
        share_prompts: bool = True,
        attention: str | None = None,
    ):
        """Wrap a classifier whose head is ``score``, or one in PEFT's wrapper, already on its device."""
        super().__init__()
        self.model = model
        self.pooling: Pooling = pooling
        self.normalisation = normalisation or Normalisation()
        self.backbone = Backbone(model, layout=layout, share_prompts=share_prompts, attention=attention)
        _refuse_other_head(self.base)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face classifier itself, out of its PEFT wrapper."""
        return self.backbone.base

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.device

    @property
    def layout(self) -> Layout:
        """How batches are laid out."""
        return self.backbone.layout

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.backbone.use_layout(layout)

    def as_plain_model(self) -> AbstractContextManager[Any]:
        """The wrapped classifier with its ordinary attention, in evaluation mode."""
        return self.backbone.attention_context(self.backbone.plain_attention)

    def rewards(self, batch: TokenBatch) -> Float[Tensor, " N"]:
        """One reward a completion, each prompt computed once."""
        _refuse_unmasked(batch)
        if self.pooling == "mean":
            return masked_sum_rows(self.values(batch), batch.mask_NT) / batch.mask_NT.sum(-1)
        token_T = torch.arange(batch.mask_NT.shape[1], device=batch.mask_NT.device)
        last_N = torch.where(batch.mask_NT, token_T, -1).amax(-1)
        return self(batch, lambda inputs: inputs.own_NT.gather(1, last_N[:, None])[:, 0])

    def values(self, batch: TokenBatch, *, at: ValuePosition = "own") -> Float[Tensor, "N T"]:
        """The head at every masked token, zero elsewhere.

        ``own`` reads the token's own state, so that the last value is the reward; ``before`` reads the
        state in which the token was chosen, which is what a critic has to judge.
        """
        mask_NT = batch.mask_NT
        value_M = self(batch, lambda inputs: (inputs.own_NT if at == "own" else inputs.state_NT)[mask_NT])
        empty_NT = torch.zeros(mask_NT.shape, dtype=value_M.dtype, device=value_M.device)
        return empty_NT.masked_scatter(mask_NT, value_M)

    def step_rewards(self, batch: TokenBatch, end_NC: Int[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """The head at the last token of each step; ``end_NC`` counts from the completion's first token.

        −1 stands for no step, and gives 0. (Process rewards: Lightman et al. 2023, arXiv:2305.20050.)
        """
        _refuse_steps_outside(batch, end_NC)
        value_NC = self(batch, lambda inputs: inputs.own_NT.gather(1, end_NC.clamp(min=0)))
        return value_NC.masked_fill(end_NC < 0, 0.0)

    def forward(self, batch: TokenBatch, where: StateSelector) -> Tensor:
        """The head at the wanted states; inside this call sharded weights are whole.

        In float32 at least, whatever the products of the layers below are made in.
        """
        hidden = self.backbone.states(batch, where)
        score: Any = self.base.score
        wide_dtype = torch.promote_types(torch.promote_types(hidden.dtype, score.weight.dtype), torch.float32)
        bias = None if score.bias is None else score.bias.to(wide_dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            raw = nn.functional.linear(hidden.to(wide_dtype), score.weight.to(wide_dtype), bias)
        return self.normalisation.apply(raw[..., 0])

    def with_adapters(self, settings: LoraSettings) -> RewardModel:
        """The same with fresh adapters, which learn with the head while all else is frozen."""
        return self._rewrap(with_lora(self.base, settings))

    def merged(self) -> RewardModel:
        """A plain one with the adapters added into its weights; this one is used up."""
        return self._rewrap(merge_adapters(self.model))

    def _rewrap(self, model: nn.Module) -> RewardModel:
        return RewardModel(
            model,
            pooling=self.pooling,
            normalisation=self.normalisation,
            layout=self.layout,
            share_prompts=self.backbone.share_prompts,
            attention=self.backbone.plain_attention,
        )


def _refuse_other_head(base: PreTrainedModel) -> None:
    weight = getattr(getattr(base, "score", None), "weight", None)
    if not isinstance(weight, Tensor):
        raise UserError(f"{type(base).__name__} has no head named score, so it is not a reward model")
    if weight.shape[0] != 1:
        raise UserError(
            f"{type(base).__name__} scores {weight.shape[0]} labels; a reward model has one (num_labels 1)"
        )


def _refuse_unmasked(batch: TokenBatch) -> None:
    empty = [
        origin
        for origin, any_ in zip(batch.origin_N, batch.mask_NT.any(-1).tolist(), strict=True)
        if not any_
    ]
    if empty:
        raise UserError(
            f"{empty[0] or 'a completion'}: no token of the answer is the model's own, so there is no place "
            "to read a reward at; leave out this row"
        )


def _refuse_steps_outside(batch: TokenBatch, end_NC: Tensor) -> None:
    outside_NC = (end_NC >= batch.length_N[:, None]) | (end_NC < -1)
    if bool(outside_NC.any()):
        n, c = outside_NC.nonzero()[0].tolist()
        raise UserError(
            f"{batch.origin_N[n] or f'completion {n}'}: step {c + 1} ends at token {int(end_NC[n, c])}, but "
            f"the answer has tokens 0 to {int(batch.length_N[n]) - 1}"
        )


class ValueHead(nn.Module):
    """A linear head beside the vocabulary's; it begins with zeros, and so expects nothing."""

    def __init__(self, policy: Policy) -> None:
        """On the policy's device, in its numbers; the policy's weights stay its own."""
        super().__init__()
        size = policy.base.config.get_text_config().hidden_size
        self.score = nn.Linear(size, 1, bias=False, device=policy.device, dtype=policy.base.dtype)
        nn.init.zeros_(self.score.weight)
        # In a list, so that the policy is no part of this module.
        self._policy_holder = [policy]

    def values(self, batch: TokenBatch, *, at: Literal["before"] = "before") -> Float[Tensor, "N T"]:
        """V before each trained token, 0 elsewhere: a pass of the policy's own layers."""
        del at
        [value_M] = self._policy_holder[0](batch, self.read)
        return scatter_to_mask(value_M, batch)

    def read(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        """The values of the states ``[M, H]``, in float32 at least; a state reader for `Policy.score`."""
        del head, batch
        wide_dtype = torch.promote_types(hidden_MH.dtype, torch.float32)
        with torch.autocast(hidden_MH.device.type, enabled=False):
            return (nn.functional.linear(hidden_MH.to(wide_dtype), self.score.weight.to(wide_dtype))[:, 0],)
