"""Models of every kind between a folder and a run: placed on their device, divided, put together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plaudit.batches.template import Encoder
from plaudit.models.files import Precision
from plaudit.recipes.config import RunConfig
from plaudit.training.parallel import Ranks
from plaudit.training.shards import is_sharded, shard, whole


def recompute(model: Any) -> None:
    """Keep only each layer's input, and compute the rest again in the backward pass."""
    # Newer releases of transformers have a new name for it and warn about the old one.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.enable_input_require_grads()


def place(module: nn.Module, config: RunConfig, ranks: Ranks) -> list[str]:
    """Divide the weights over the ranks, or give every rank the same ones."""
    notes: list[str] = []
    if config.shard and ranks.world > 1:
        shard(module, _blocks(module), device=ranks.device.type, world=ranks.world)
    elif config.shard:
        notes.append("shard: one process alone has nobody to divide with; it holds all weights")
    else:
        ranks.broadcast(p.data for p in module.parameters())
    return notes


def arithmetic(numbers: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which products are made in the wanted numbers."""
    return torch.autocast(device.type, dtype=numbers.products) if numbers.mixed else nullcontext()


def whole_weights(module: nn.Module, ranks: Ranks) -> dict[str, torch.Tensor] | None:
    """The weights put together again, on the first rank; None where they are whole already.

    Every rank must come.
    """
    if not is_sharded(module):
        return None
    gathered = ((name, whole(p.detach())) for name, p in module.named_parameters())
    return {name: p.cpu() if ranks.first else torch.empty(0) for name, p in gathered}


def write_tokenizer(encoder: Encoder, folder: Path) -> None:
    """The tokenizer with the template that the model was trained with."""
    tokenizer = encoder.info.tokenizer
    tokenizer.chat_template = encoder.template
    tokenizer.save_pretrained(folder)


def _blocks(module: nn.Module) -> Sequence[nn.Module]:
    """The layers that repeat: the longest list of modules in the model."""
    lists = [inner for inner in module.modules() if isinstance(inner, nn.ModuleList)]
    return list(max(lists, key=len)) if lists else []
