"""The models of a run: a policy made ready for training, its fast path verified, and saved to its folder.

Gradient checkpointing, sharding, autocast and gathering serve any model of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plaudit.engine.distributed import Ranks, full_tensor, is_sharded, shard_module
from plaudit.files import atomic
from plaudit.files.hub import ADAPTER_FOLDER
from plaudit.methods.config import RunConfig
from plaudit.models.backbone import head_of
from plaudit.models.load import (
    Precision,
    load_model,
    merge_adapters,
    save_adapter,
    save_model,
    with_adapter,
    with_lora,
)
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from plaudit.tokens.encode import Encoder


def enable_gradient_checkpointing(model: Any) -> None:
    """Gradient checkpointing: keep each layer's input, compute the rest again in the backward pass."""
    # Newer releases of transformers have a new name for it and warn about the old one.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.enable_input_require_grads()


def shard_or_broadcast(module: nn.Module, config: RunConfig, ranks: Ranks) -> list[str]:
    """Shard the weights over the ranks, or broadcast the first rank's; returns notes for the user."""
    notes: list[str] = []
    if config.shard and ranks.world_size > 1:
        shard_module(module, _repeated_layers(module), device=ranks.device.type, world=ranks.world_size)
    elif config.shard:
        notes.append("shard: one process alone has nobody to divide with; it holds all weights")
    else:
        ranks.broadcast(p.data for p in module.parameters())
    return notes


def autocast_context(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of the run's precision; does nothing where precision is not mixed."""
    return torch.autocast(device.type, dtype=precision.products) if precision.mixed else nullcontext()


def gather_weights(module: nn.Module, ranks: Ranks) -> dict[str, torch.Tensor] | None:
    """The sharded weights gathered on the first rank; None where they are not sharded.

    Every rank must come.
    """
    if not is_sharded(module):
        return None
    # One at a time, and dropped at once elsewhere: all whole weights together may fit no GPU.
    gathered = ((name, full_tensor(p.detach())) for name, p in module.named_parameters())
    return {name: p.cpu() if ranks.is_first else torch.empty(0) for name, p in gathered}


def write_tokenizer(encoder: Encoder, folder: Path) -> None:
    """Save the tokenizer with the chat template that the model was trained with."""
    tokenizer = encoder.info.tokenizer
    tokenizer.chat_template = encoder.template
    tokenizer.save_pretrained(folder)


def _repeated_layers(module: nn.Module) -> Sequence[nn.Module]:
    """The layers that repeat: the longest list of modules in the model."""
    lists = [inner for inner in module.modules() if isinstance(inner, nn.ModuleList)]
    return list(max(lists, key=len)) if lists else []


def prepare_policy(config: RunConfig, precision: Precision, ranks: Ranks) -> tuple[Policy, list[str]]:
    """The starting policy: loaded, with LoRA adapters, its layout verified; not sharded yet."""
    model = load_model(config.model, dtype=precision.weights, device=ranks.device, merge=not config.lora.keep)
    if config.memory.checkpointing:
        enable_gradient_checkpointing(model)
    if config.lora.keep:
        model = with_adapter(model, config.model / ADAPTER_FOLDER)
    elif config.lora.rank:
        model = with_lora(model, config.lora)
    policy = Policy(model, attention=config.memory.attention)
    layout, note = choose_layout(policy, config.memory.layout)
    policy.use_layout(layout)
    policy.train()
    return policy, [] if note is None else [note]


def load_frozen_policy(folder: Path, like: Policy) -> Policy:
    """Another policy, frozen, on the same device and in the same dtype (a reference or a teacher)."""
    # In the policy's dtype: rounded otherwise, equal weights would have log-ratios other than 0.
    frozen = Policy(load_model(folder, dtype=like.base.dtype, device=like.device))
    layout, _ = choose_layout(frozen, like.layout)
    frozen.use_layout(layout)
    return frozen.requires_grad_(False).eval()


def write_model(policy: Policy, config: RunConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    weights = gather_weights(policy, ranks)
    if not ranks.is_first:
        return
    if weights is not None:
        # A whole model from the folder again: what the policy holds here are shards.
        dtype = next(iter(weights.values())).dtype
        policy = Policy(load_model(config.model, dtype=dtype, device=torch.device("cpu")))
        for name, parameter in policy.named_parameters():
            parameter.data.copy_(weights[name])
    if config.lora.rank:
        with atomic.atomic_folder(config.out / "adapter") as partial:
            save_adapter(policy.model, partial)
    with policy.as_plain_model() as model, atomic.atomic_folder(config.out / "model") as partial:
        whole_model = merge_adapters(model) if config.lora.rank else model
        save_model(whole_model, partial, template_of=config.model, stop_ids=encoder.stop_ids)
        write_tokenizer(encoder, partial)


def matrix_sizes(policy: Policy) -> tuple[int, int]:
    """Numbers in the matrices of the body and of the head: what a token is multiplied with."""
    head = head_of(policy.base).layer.weight
    # A tied head is the embedding too; it multiplies once, as the head.
    excluded_ids = {id(head), *(id(p) for p in policy.base.get_input_embeddings().parameters())}
    body = sum(p.numel() for p in policy.parameters() if p.ndim >= 2 and id(p) not in excluded_ids)
    return body, head.numel()
