"""Roles on a shared backbone as they are after some steps, and what they say."""

from __future__ import annotations

import torch
from torch import Tensor

from examples.shared_backbone import SharedBackbone
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.tokens.batch import TokenBatch, batch_of
from tests.models.zoo import examples

LORA = LoraSettings(rank=4, alpha=8)
ROLES = ("policy", "reward", "value")


def learnt(trunk: SharedBackbone, names: tuple[str, ...] = ROLES) -> SharedBackbone:
    """As after some steps: no adapter is zero any more, and no two are alike."""
    for seed, name in enumerate(names):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in learning(trunk, name).values():
                weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.2)
    return trunk


def learning(trunk: SharedBackbone, name: str) -> dict[str, Tensor]:
    """The numbers of a role that learn."""
    return {key: p for key, p in trunk[name].named_parameters() if p.requires_grad}


def said(trunk: SharedBackbone, name: str, batch: TokenBatch | None = None) -> Tensor:
    """What a role says, with its graph: log-probs, rewards, or values before each token."""
    batch = batch_of(examples()) if batch is None else batch
    role = trunk.reference if name == "reference" else trunk[name]
    if isinstance(role, Policy):
        return role.score(batch).logp_NT
    return role.rewards(batch) if name == "reward" else role.values(batch, at="before")


def all_said(trunk: SharedBackbone) -> dict[str, Tensor]:
    """What the reference and every role say, without graphs."""
    with torch.no_grad():
        return {name: said(trunk, name) for name in ("reference", *trunk.roles)}
