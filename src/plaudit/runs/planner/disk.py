"""What a run writes to the disk: checkpoints, models, and cached log-probs of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plaudit.engine.checkpoint.save import safetensors_header
from plaudit.engine.checkpoint.state import gather_rng_states
from plaudit.engine.distributed import single_process
from plaudit.methods.config import RunConfig
from plaudit.models.four_bits import four_bit_layers
from plaudit.runs.planner.models import CACHED, RunModels, optimizer_state
from plaudit.runs.planner.schedule import PlannedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """Something that a run writes to the disk."""

    name: str
    bytes: int
    count: int
    why: str

    @property
    def total(self) -> int:
        return self.bytes * self.count


def stored_items(config: RunConfig, roles: RunModels, rows: PlannedRows) -> tuple[StoredItem, ...]:
    evaluates = bool(rows.held_out)
    last = config.keep.last
    best = " and the best" if evaluates else ""
    items = [
        StoredItem(
            name="checkpoints",
            bytes=checkpoint_bytes(config, roles),
            count=last + evaluates + 1,
            why=f"the {last} newest{best}, and the one that is being written",
        )
    ]
    models = {"model": roles.trained_model, "critic": roles.critic}
    for name, model in models.items():
        if model is not None:
            size = _file_size(_saved_weights(model, roles.numbers.products))
            items.append(StoredItem(name=name, bytes=size, count=1, why="weights of the result"))
    if config.lora.rank:
        items.append(
            StoredItem(
                name="adapter",
                bytes=_file_size(_named_parameters(roles.trained_model, trained_only=True)),
                count=1,
                why="LoRA alone",
            )
        )
    if roles.reference_kind == CACHED:
        tokens = sum(row.trained_tokens for row in (*rows.train, *rows.held_out))
        items.append(
            StoredItem(name="log-probs", bytes=4 * tokens, count=1, why="of the reference, in the cache")
        )
    return tuple(items)


def checkpoint_bytes(config: RunConfig, roles: RunModels) -> int:
    """The size of one checkpoint: trained weights, optimiser state and random-number states."""
    weights: dict[str, Tensor] = {}
    for prefix, model in (("policy.", roles.trained_model), ("critic.", roles.critic)):
        if model is not None:
            weights |= {prefix + name: p for name, p in _named_parameters(model, trained_only=True).items()}
    moments = {
        f"{name}/{key}": torch.empty(p.shape if in_shape else (), dtype=dtype, device="meta")
        for name, p in weights.items()
        for key, (in_shape, dtype) in optimizer_state(config.optimizer).items()
    }
    return sum(map(_file_size, (weights, moments, gather_rng_states(single_process()))))


def _named_parameters(model: nn.Module, *, trained_only: bool) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad or not trained_only}


def _saved_weights(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of a result: adapters are added into those that they stand beside, none are in 4 bits."""
    layers = four_bit_layers(model)
    held = {id(p) for layer in layers for p in (layer.codes, layer.scale_bits)}
    saved = {
        name: p
        for name, p in _named_parameters(model, trained_only=False).items()
        if "lora_" not in name and id(p) not in held
    }
    wide = (torch.empty(layer.shape, dtype=dtype, device="meta") for layer in layers)
    return saved | {f"{number}.weight": weight for number, weight in enumerate(wide)}


def _file_size(tensors: Mapping[str, Tensor]) -> int:
    return len(safetensors_header(tensors)) + sum(
        tensor.numel() * tensor.element_size() for tensor in tensors.values()
    )
