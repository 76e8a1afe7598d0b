"""A step of training without numbers: what the models of a run, its piece and its losses hold at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plaudit.batches.pack import Arrangement, arrange
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.models.files import Precision
from plaudit.models.head import head_of
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel
from plaudit.models.trunk import Trunk
from plaudit.recipes.planning.live import AsComputed, Live, backward
from plaudit.tensors.blocks import KEPT_AT_ONCE, LOGITS_AT_ONCE, TOKENS_AT_ONCE

BLOCKS = 3
"""Blocks of logits that are alive at once: as they come, as powers, and as a gradient."""
PROBE = 4
"""Tokens of prompt and answer with which it is found out what a sampler remembers of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the arithmetic is done on, and how a loss goes over its tokens.

    Example: ``Setting(device=torch.device("cpu"), numbers=precision("auto", device), alike=True)``
    """

    device: torch.device
    """Where."""
    numbers: Precision
    """In which numbers."""
    alike: bool
    """Whether every token counts the same, so that the gradient of the head is made forwards."""


def step_peak(
    learners: Sequence[Policy | RewardModel],
    asked: Policy | None,
    piece: Sequence[Example],
    setting: Setting,
    *,
    several: bool,
) -> int:
    """Bytes that a step holds at most beside its weights: gradients, and all that one piece leaves behind.

    ``asked`` is a reference that looks at each piece; ``several`` pieces begin with the gradients of others.
    """
    with Live() as live, AsComputed(setting.device, setting.numbers.products):
        for _ in range(2 if several else 1):
            _piece(learners, asked, piece, setting)
    for learner in learners:
        learner.zero_grad(set_to_none=True)
    return live.peak


def look_peak(policy: Policy, piece: Sequence[Example], setting: Setting) -> int:
    """Bytes that a pass without gradients holds at most, up to the states."""
    with Live() as live, AsComputed(setting.device, setting.numbers.products), torch.no_grad():
        _states(policy.trunk, piece, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    return live.peak


def kept_a_token(policy: Policy, setting: Setting) -> int:
    """Keys and values, in numbers, that a sampler remembers of a token in all layers."""
    answer = Completion(ids=(0,) * PROBE, mask=(True,) * PROBE, finished=True)
    one = [Example(prompt=(0,) * PROBE, completions=(answer,))]
    with AsComputed(setting.device, setting.numbers.products) as seen, torch.no_grad():
        _states(policy.trunk, one, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    return seen.kept // (2 * PROBE)


def _piece(
    learners: Sequence[Policy | RewardModel],
    asked: Policy | None,
    piece: Sequence[Example],
    setting: Setting,
) -> None:
    losses = [_loss(learner, piece, setting) for learner in learners]
    if asked is not None:
        with torch.no_grad():
            _loss(asked, piece, setting)
    backward(torch.stack(losses).sum())


def _loss(model: Policy | RewardModel, piece: Sequence[Example], setting: Setting) -> Tensor:
    if isinstance(model, RewardModel):
        states = _states(model.trunk, piece, _last_token if model.pooling == "last" else _own_tokens)
        score: Any = model.base.score
        return torch.nn.functional.linear(states.float(), score.weight.float()).sum()
    states = _states(model.trunk, piece, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    weight: Tensor = head_of(model.base).layer.weight
    capped = head_of(model.base).rule.cap is not None
    return _logps(states, weight, setting, setting.alike and not capped).sum()


def _states(
    trunk: Trunk, piece: Sequence[Example], where: Callable[[Arrangement, TokenBatch], Tensor]
) -> Tensor:
    batch = batch_of(piece)
    inputs = arrange(batch, trunk.layout, share_prompts=trunk.share_prompts)
    wanted = where(inputs, batch)
    bare = replace(
        inputs,
        ids_RS=inputs.ids_RS.to("meta"),
        position_RS=inputs.position_RS.to("meta"),
        real_RS=None if inputs.real_RS is None else inputs.real_RS.to("meta"),
    )
    return trunk.through(bare, wanted.unique().to("meta"))[wanted.to("meta")]


def _last_token(inputs: Arrangement, batch: TokenBatch) -> Tensor:
    return inputs.own_NT.gather(1, batch.length_N[:, None] - 1)[:, 0]


def _own_tokens(inputs: Arrangement, batch: TokenBatch) -> Tensor:
    return inputs.own_NT[batch.mask_NT]


class _LogProbs(torch.autograd.Function):
    """Makes what ``score_tokens`` and ``score_alike`` make, of the same sizes, and computes nothing."""

    @staticmethod
    def forward(ctx: Any, hidden_MH: Tensor, weight_VH: Tensor, setting: Setting, alike: bool) -> Tensor:
        early = alike and any(ctx.needs_input_grad[:2])
        ctx.early = _gradients(ctx, hidden_MH, weight_VH) if early else None
        ctx.device = setting.device.type
        _blocks(hidden_MH, weight_VH, ctx.device, kept=early)
        logp_M = hidden_MH.new_empty(hidden_MH.shape[0], dtype=torch.float32)
        ctx.save_for_backward(hidden_MH, weight_VH, torch.empty_like(logp_M))
        return logp_M

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, _ = ctx.saved_tensors
        made = ctx.early
        ctx.early = None
        if made is None:
            made = _gradients(ctx, hidden_MH, weight_VH)
            _blocks(hidden_MH, weight_VH, ctx.device, kept=False)
        return made[0].to(hidden_MH.dtype), made[1], None, None


def _gradients(ctx: Any, hidden_MH: Tensor, weight_VH: Tensor) -> tuple[Tensor, Tensor | None]:
    exact = torch.zeros_like(hidden_MH, dtype=torch.promote_types(hidden_MH.dtype, torch.float32))
    return exact, torch.zeros_like(weight_VH) if ctx.needs_input_grad[1] else None


def _blocks(hidden_MH: Tensor, weight_VH: Tensor, device: str, *, kept: bool) -> None:
    """Logits of the tokens that go over the vocabulary together: of all words where they are kept."""
    (tokens, width), words = hidden_MH.shape, weight_VH.shape[0]
    rows = min(tokens, KEPT_AT_ONCE, width) if kept else min(tokens, TOKENS_AT_ONCE)
    block = rows * min(words, max(16, LOGITS_AT_ONCE.get(device, LOGITS_AT_ONCE["cuda"]) // max(1, rows)))
    alive = (rows * words if kept else 0) + BLOCKS * block
    weight_VH.new_empty(alive, dtype=torch.float32)


_logps: Callable[..., Tensor] = _LogProbs.apply
