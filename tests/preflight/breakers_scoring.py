"""Ways to break what a model computes, each through the real model of a run."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.models.attention import PackedRow
from plaudit.models.backbone import without_head
from plaudit.models.policy import ModelReference, Policy
from plaudit.preflight.check import PreflightSubject
from plaudit.tokens.microbatch import Segments

FAR = 256.0
"""A number beside which bfloat16 sees none of the usual size."""


class Offset(nn.Module):
    """A layer that adds a large number to what it says and takes it away again."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> Tensor:
        """In float32 nearly what the layer says by itself."""
        return (self.inner(hidden) + FAR) - FAR


def with_dropout(subject: PreflightSubject) -> PreflightSubject:
    """A layer with a rate of its own, of which config.json says nothing."""
    layer: Any = _backbone(subject).layers[0]
    layer.mlp = nn.Sequential(layer.mlp, nn.Dropout(0.2))
    return subject


def with_another_reference(subject: PreflightSubject) -> PreflightSubject:
    """A reference that is not what the run begins with, although it is said to be."""
    assert subject.policy is not None
    model = copy.deepcopy(subject.policy.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    other = Policy(model, layout="right").requires_grad_(False).eval()
    return replace(subject, reference=ModelReference(other, temperature=1.0))


def blind_to_padding(subject: PreflightSubject) -> PreflightSubject:
    """A model to which all tokens are real."""

    def forget(_: nn.Module, told: tuple[Any, ...], named: dict[str, Any]) -> Any:
        mask = named.get("attention_mask")
        return told, {**named, "attention_mask": None if mask is None else torch.ones_like(mask)}

    _backbone(subject).register_forward_pre_hook(forget, with_kwargs=True)
    return subject


def counting_the_padding(subject: PreflightSubject) -> PreflightSubject:
    """A model that counts positions from the beginning of a padded row."""

    def count(_: nn.Module, told: tuple[Any, ...], named: dict[str, Any]) -> Any:
        padded = named.get("attention_mask") is not None
        return told, {**named, "position_ids": None} if padded else named

    _backbone(subject).register_forward_pre_hook(count, with_kwargs=True)
    return subject


def rows_that_see_each_other(subject: PreflightSubject) -> PreflightSubject:
    """Attention that takes all rows of a pack for one."""
    return _segmented(
        subject, lambda segments: Segments(prompts=(sum(segments.piece_lengths),), completions=((),))
    )


def answers_that_see_each_other(subject: PreflightSubject) -> PreflightSubject:
    """Attention that takes the answers to one prompt for one answer."""
    return _segmented(
        subject,
        lambda segments: replace(segments, completions=tuple((sum(own),) for own in segments.completions)),
    )


def without_digits(subject: PreflightSubject) -> PreflightSubject:
    """Last states of which bfloat16 leaves next to nothing, and float32 all."""
    assert subject.policy is not None
    backbone = _backbone(subject)
    backbone.norm = Offset(backbone.norm)
    with torch.no_grad():
        # A model as sure as a trained one: the toy's answers hardly depend on its states.
        subject.policy.base.lm_head.weight.mul_(10)
    return subject


def _segmented(subject: PreflightSubject, change: Any) -> PreflightSubject:
    def divide(_: nn.Module, told: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if "packed_row" not in named:
            return None
        row = named["packed_row"]
        return told, {**named, "packed_row": PackedRow(change(row.segments), row.device, ran={})}

    _backbone(subject).register_forward_pre_hook(divide, with_kwargs=True)
    return subject


def _backbone(subject: PreflightSubject) -> Any:
    model = subject.policy or subject.scorer
    assert model is not None
    return without_head(model.base)
