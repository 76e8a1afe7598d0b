"""What a run leaves on the disk: its checkpoints, its model, and log-probs that are kept for another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plaudit.recipes.config import RunConfig
from plaudit.recipes.planning.ledger import moments_of
from plaudit.recipes.planning.roles import KEPT, Roles
from plaudit.recipes.planning.rows import PlannedRows
from plaudit.training.parallel import alone
from plaudit.training.state import gather_chance
from plaudit.training.tensor_file import header_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Something on the disk.

    Example: ``Stored(name="checkpoints", bytes=136_000_000, count=3, why="2 newest and the best")``
    """

    name: str
    """What it is."""
    bytes: int
    """Bytes of each."""
    count: int
    """How many there are at most."""
    why: str
    """How that comes."""

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.bytes * self.count


def stored(config: RunConfig, roles: Roles, rows: PlannedRows) -> tuple[Stored, ...]:
    """All that a run writes that is large."""
    looks = bool(rows.held_out)
    last = config.keep.last
    best = " and the best" if looks else ""
    found = [
        Stored(
            name="checkpoints",
            bytes=checkpoint_bytes(config, roles),
            count=last + looks + 1,
            why=f"the {last} newest{best}, and the one that is being written",
        )
    ]
    models = {"model": roles.learner, "critic": roles.critic}
    for name, model in models.items():
        if model is not None:
            # Adapters are added into the weights that they stand beside.
            whole = {name: p for name, p in _named(model, trained_only=False).items() if "lora_" not in name}
            size = _file_size(whole)
            found.append(Stored(name=name, bytes=size, count=1, why="weights of the result"))
    if config.lora.rank:
        found.append(
            Stored(
                name="adapter",
                bytes=_file_size(_named(roles.learner, trained_only=True)),
                count=1,
                why="LoRA alone",
            )
        )
    if roles.reference == KEPT:
        tokens = sum(one.trained_tokens for one in (*rows.train, *rows.held_out))
        found.append(
            Stored(name="log-probs", bytes=4 * tokens, count=1, why="of the reference, in the cache")
        )
    return tuple(found)


def checkpoint_bytes(config: RunConfig, roles: Roles) -> int:
    """One checkpoint: what learns, what its optimiser remembers, and chance."""
    weights: dict[str, Tensor] = {}
    for prefix, model in (("policy.", roles.learner), ("critic.", roles.critic)):
        if model is not None:
            weights |= {prefix + name: p for name, p in _named(model, trained_only=True).items()}
    moments = {
        f"{name}/{key}": torch.empty(p.shape if whole else (), dtype=dtype, device="meta")
        for name, p in weights.items()
        for key, (whole, dtype) in moments_of(config.optimizer).items()
    }
    return sum(map(_file_size, (weights, moments, gather_chance(alone()))))


def _named(model: nn.Module, *, trained_only: bool) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad or not trained_only}


def _file_size(tensors: Mapping[str, Tensor]) -> int:
    return len(header_of(tensors)) + sum(one.numel() * one.element_size() for one in tensors.values())
