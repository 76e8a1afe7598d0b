"""From a config to a policy that is proven and ready to learn; and from there to a folder."""

from __future__ import annotations

from pathlib import Path

import torch

from plaudit.batches.template import Encoder
from plaudit.models.adapters import merged, save_adapter, with_lora
from plaudit.models.files import Precision, load_model, save_model
from plaudit.models.head import head_of
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.recipes.config import RunConfig
from plaudit.recipes.placing import recompute, whole_weights, write_tokenizer
from plaudit.training import durable
from plaudit.training.parallel import Ranks


def prepare_policy(config: RunConfig, numbers: Precision, ranks: Ranks) -> tuple[Policy, list[str]]:
    """The starting model: loaded, given its adapters, its fast path proven; still whole."""
    model = load_model(config.model, dtype=numbers.weights, device=ranks.device)
    if config.memory.checkpointing:
        recompute(model)
    if config.lora.rank:
        model = with_lora(model, config.lora)
    policy = Policy(model, attention=config.memory.attention)
    layout, note = choose_layout(policy, config.memory.layout)
    policy.use_layout(layout)
    policy.train()
    return policy, [] if note is None else [note]


def load_frozen(folder: Path, like: Policy) -> Policy:
    """Another model beside the policy, on its device and in its numbers; it learns nothing."""
    other = Policy(load_model(folder, dtype=like.base.dtype, device=like.device))
    layout, _ = choose_layout(other, like.layout)
    other.use_layout(layout)
    return other.requires_grad_(False).eval()


def write_model(policy: Policy, config: RunConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    weights = whole_weights(policy, ranks)
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
        write_tokenizer(encoder, partial)


def matrix_sizes(policy: Policy) -> tuple[int, int]:
    """Numbers in the matrices of the body and of the head: what a token is multiplied with."""
    head = head_of(policy.base).layer.weight
    apart = {id(head), *(id(p) for p in policy.base.get_input_embeddings().parameters())}
    body = sum(p.numel() for p in policy.parameters() if p.ndim >= 2 and id(p) not in apart)
    return body, head.numel()
