"""From a config to a policy on its device, proven and ready to learn; and from there to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn

from plaudit.batches.template import Encoder
from plaudit.models.adapters import merged, save_adapter, with_lora
from plaudit.models.files import Precision, load_model, save_model
from plaudit.models.head import head_of
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.recipes.config import SupervisedConfig
from plaudit.training import durable
from plaudit.training.parallel import Ranks
from plaudit.training.shards import is_sharded, shard, whole


def prepare_policy(config: SupervisedConfig, numbers: Precision, ranks: Ranks) -> tuple[Policy, list[str]]:
    """The starting model: loaded, given its adapters, its fast path proven; still whole."""
    model = load_model(config.model, dtype=numbers.weights, device=ranks.device)
    if config.memory.checkpointing:
        # Newer releases of transformers have a new name for it and warn about the old one.
        enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
        model.enable_input_require_grads()
    if config.lora.rank:
        model = with_lora(model, config.lora)
    policy = Policy(model, attention=config.memory.attention)
    layout, note = choose_layout(policy, config.memory.layout)
    policy.use_layout(layout)
    policy.train()
    return policy, [] if note is None else [note]


def place_policy(policy: Policy, config: SupervisedConfig, ranks: Ranks) -> list[str]:
    """Divide the weights over the ranks, or give every rank the same ones."""
    notes: list[str] = []
    if config.shard and ranks.world > 1:
        shard(policy, _blocks(policy), device=ranks.device.type, world=ranks.world)
    elif config.shard:
        notes.append("shard: one process alone has nobody to divide with; it holds all weights")
    else:
        ranks.broadcast(p.data for p in policy.parameters())
    return notes


def load_frozen(folder: Path, like: Policy) -> Policy:
    """Another model beside the policy, on its device and in its numbers; it learns nothing."""
    other = Policy(load_model(folder, dtype=like.base.dtype, device=like.device))
    layout, _ = choose_layout(other, like.layout)
    other.use_layout(layout)
    return other.requires_grad_(False).eval()


def arithmetic(numbers: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which products are made in the wanted numbers."""
    return torch.autocast(device.type, dtype=numbers.products) if numbers.mixed else nullcontext()


def write_model(policy: Policy, config: SupervisedConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    weights = _whole_weights(policy, ranks) if is_sharded(policy) else None
    if not ranks.first:
        return
    if weights is not None:
        kept = next(iter(weights.values())).dtype
        policy = Policy(load_model(config.model, dtype=kept, device=torch.device("cpu")))
        for name, parameter in policy.named_parameters():
            parameter.data.copy_(weights[name])
    if config.lora.rank:
        with durable.folder(config.out / "adapter") as partial:
            save_adapter(policy.model, partial)
    with policy.as_plain_model() as model, durable.folder(config.out / "model") as partial:
        plain = merged(model) if config.lora.rank else model
        save_model(plain, partial, template_of=config.model, stop_ids=encoder.stop_ids)
        _write_tokenizer(encoder, partial)


def matrix_sizes(policy: Policy) -> tuple[int, int]:
    """Numbers in the matrices of the body and of the head: what a token is multiplied with."""
    head = head_of(policy.base).layer.weight
    apart = {id(head), *(id(p) for p in policy.base.get_input_embeddings().parameters())}
    body = sum(p.numel() for p in policy.parameters() if p.ndim >= 2 and id(p) not in apart)
    return body, head.numel()


def _write_tokenizer(encoder: Encoder, folder: Path) -> None:
    tokenizer = encoder.info.tokenizer
    tokenizer.chat_template = encoder.template
    tokenizer.save_pretrained(folder)


def _blocks(policy: Policy) -> Sequence[nn.Module]:
    """The layers that repeat: the longest list of modules in the model."""
    lists = [module for module in policy.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len)) if lists else []


def _whole_weights(policy: Policy, ranks: Ranks) -> dict[str, torch.Tensor]:
    gathered = ((name, whole(p.detach())) for name, p in policy.named_parameters())
    return {name: p.cpu() if ranks.first else torch.empty(0) for name, p in gathered}
