"""The models of a run: a policy made ready for training, its fast path verified, and saved to its folder.

Gradient checkpointing, sharding, narrowing and gathering serve any model of a run.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from plaudit.engine.distributed import Ranks, full_tensor, is_sharded, shard_module, unsharded
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.hub import ADAPTER_FOLDER
from plaudit.methods.config import RunConfig
from plaudit.models import adapters, load
from plaudit.models.adapters import FourBitLinear, four_bit_note, numbers_in_four_bits
from plaudit.models.backbone import Backbone, head_of
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.models.verify import choose_kernels, choose_layout, compile_layers, share_tokens
from plaudit.tokens.encode import Encoder

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def narrow_as_configured(
    model: Policy | RewardModel, config: RunConfig, precision: load.Precision
) -> list[str]:
    """Let the model compute in the run's products, by code that is right there; notes for the user.
    By the kernels that serve it, and compiled where the run wants that."""
    narrows_all = config.zero is not None and config.divides_weights
    if narrows_all and precision.mixed and isinstance(model, RewardModel):
        raise UserError(
            "--deepspeed.stage 3 computes with all weights in bfloat16, and a reward model's head is to keep "
            "its digits: take --deepspeed.stage 2, --dtype float32, or --shard instead"
        )
    if precision.mixed and not is_sharded(model):
        model.compute_in(precision.products)
    kernels = choose_kernels(model)
    return [*([] if kernels is None else [kernels]), *([compile_layers(model)] if config.compile else [])]


def uncompiled_notes(module: nn.Module) -> list[str]:
    """A sentence once some part of a compiled model has learnt uncompiled; nothing before and after."""
    backbones = [getattr(part, "backbone", None) for part in module.modules()]
    compiled = [backbone.compiled for backbone in backbones if isinstance(backbone, Backbone)]
    # A list and not `any`, which would leave calls of a second model for another sentence.
    if not any([parts is not None and parts.has_new_uncompiled_calls() for parts in compiled]):
        return []
    return [
        "compiled: some micro-batches are of a kind that was not compiled at the start (a single token, "
        "inputs of another shape); for these the layers run as without --compile, right and slower"
    ]


def settle_layers(model: Policy | RewardModel, config: RunConfig) -> None:
    """Let parts stay as they are, and layers be computed again in the backward pass, as the run wants it."""
    if config.freeze:
        adapters.freeze_parts(model.base, config.freeze)
    if config.memory.checkpointing:
        model.backbone.recompute_layers(keep_products=config.memory.keep_products)


def shard_or_broadcast(model: Policy | RewardModel, config: RunConfig, ranks: Ranks) -> list[str]:
    """Shard the weights over the ranks, or broadcast the first rank's; returns notes for the user."""
    if is_sharded(model):
        return []
    if config.shard and ranks.world_size > 1:
        # Fresh adapters are drawn by each rank for itself; what stands in the folder is the same everywhere.
        ranks.broadcast(p.data for p in model.parameters() if config.lora.rank and p.requires_grad)
        exact = [cast("nn.Module", model.base.score)] if isinstance(model, RewardModel) else []
        compute = model.backbone.release_narrowed()
        shard_module(model, model.backbone.repeated_layers, ranks=ranks, compute=compute, exact=exact)
        return []
    ranks.broadcast(p.data for p in model.parameters())
    if not config.shard:
        return []
    return ["shard: one process alone has nobody to divide with; it holds all weights"]


def gathered_model(module: ModuleT, fresh: Callable[[], ModuleT], ranks: Ranks) -> ModuleT | None:
    """The model with all of its weights on the first rank, a ``fresh`` one where they are divided; else None.
    Every rank must come."""
    if not is_sharded(module):
        return module if ranks.is_first else None
    whole = fresh() if ranks.is_first else None
    places = {} if whole is None else dict(whole.named_parameters())
    # One tensor at a time, and only the first rank keeps it.
    for name, parameter in module.named_parameters():
        gathered = full_tensor(parameter.detach())
        if whole is not None:
            places.pop(name).data.copy_(gathered)
    assert not places, f"these would be as they were before the run: {', '.join(places)}"
    return whole


def gather_into(whole: nn.Module, divided: nn.Module) -> None:
    """Give a whole copy what has been learnt by one that is divided over ranks; every rank must come."""
    for copy, part in zip(whole.parameters(), divided.parameters(), strict=True):
        # What is frozen was the same when the copy was loaded; narrowed first, so that less travels.
        if part.requires_grad:
            copy.data.copy_(full_tensor(part.detach().to(copy.dtype)))


def write_tokenizer(encoder: Encoder, folder: Path) -> None:
    """Save the tokenizer with the chat template that the model was trained with."""
    tokenizer = encoder.info.tokenizer
    tokenizer.chat_template = encoder.template
    tokenizer.save_pretrained(folder)


def prepare_policy(
    config: RunConfig, precision: load.Precision, ranks: Ranks, *, by_parts: bool = False
) -> tuple[Policy, list[str]]:
    """The starting policy with LoRA adapters, its layout verified; sharded where it can be ``by_parts``."""
    whole = not by_parts or not config.shard or config.lora.keep
    compute = precision.products if precision.mixed else None
    attention = config.memory.attention
    policy = None
    if not whole:
        from plaudit.methods.parts import read_by_parts

        lora = config.lora
        adapted = partial(adapters.with_lora, settings=lora) if lora.rank else lambda model: model
        policy = read_by_parts(config.model, precision.weights, compute, ranks, attention, adapted)
    if policy is None:
        device = loading_device(config, ranks)
        policy = Policy(
            _load_with_adapters(config, precision.weights, device, ranks.device), attention=attention
        )
    settle_layers(policy, config)
    with unsharded(policy):
        layout, note = choose_layout(policy, config.memory.layout)
        policy.use_layout(layout)
        notes = [*four_bit_notes(policy), *([] if note is None else [note])]
        notes += narrow_as_configured(policy, config, precision)
        share_tokens(policy, ranks.sequence)
    return policy.train(), notes


def _load_with_adapters(
    config: RunConfig, dtype: torch.dtype, device: torch.device, adapter_device: torch.device
) -> Any:
    model = load.load_model(config.model, dtype=dtype, device=device, merge=not config.lora.keep)
    if config.lora.keep:
        return adapters.with_adapter(model, config.model / ADAPTER_FOLDER, config.lora.dropout)
    return adapters.with_lora(model, config.lora, adapter_device) if config.lora.rank else model


def loading_device(config: RunConfig, ranks: Ranks) -> torch.device:
    """Where a model that learns is loaded: what will be held in 4 bits may not fit the GPU before."""
    return torch.device("cpu") if config.lora.base == "4bit" else ranks.device


def four_bit_notes(model: Policy | RewardModel) -> list[str]:
    """What is held in 4 bits, for the user; nothing where nothing is."""
    return [four_bit_note(model)] if _has_four_bits(model) else []


def _has_four_bits(model: Policy | RewardModel) -> bool:
    return any(isinstance(layer, FourBitLinear) for layer in model.modules())


def base_is_rounded(model: Policy | RewardModel) -> bool:
    """Whether the frozen weights beneath adapters are others than those of the folder they came from."""
    return model.backbone.narrowed is not None or _has_four_bits(model)


def load_frozen_policy(
    folder: Path, like: Policy, *, moving: bool = False, over: Ranks | None = None
) -> Policy:
    """Another policy, frozen, on the same device and in the same numbers (a reference or a teacher).
    ``moving``: its weights are changed in small steps, for which they have the digits that learning has.
    ``over``: divided over these ranks already, where it can."""
    # In the numbers that the policy computes in: rounded otherwise, equal weights would have log-ratios.
    compute = like.backbone.compute_dtype
    dtype = like.logp_dtype if moving else compute
    narrower = None if dtype == compute else compute
    frozen = None
    if over is not None:
        from plaudit.methods.parts import read_by_parts

        frozen = read_by_parts(folder, dtype, narrower, over)
    if frozen is None:
        frozen = Policy(load.load_model(folder, dtype=dtype, device=like.device))
    frozen.requires_grad_(requires_grad=False)
    with unsharded(frozen):
        layout, _ = choose_layout(frozen, like.layout)
        frozen.use_layout(layout)
        frozen.backbone.refused_kernels = like.backbone.refused_kernels
        share_tokens(frozen, like.backbone.sequence)
    if narrower is not None and not is_sharded(frozen):
        frozen.compute_in(narrower, frozen=False)
    return frozen.eval()


def write_model(policy: Policy, config: RunConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    cpu, dtype = torch.device("cpu"), policy.logp_dtype
    whole = gathered_model(policy, lambda: Policy(_load_with_adapters(config, dtype, cpu, cpu)), ranks)
    if whole is None:
        return
    policy = whole
    if config.lora.rank:
        with atomic.atomic_folder(config.out / "adapter") as partial:
            adapters.save_adapter(policy.model, partial)
        if base_is_rounded(policy):
            policy = Policy(_on_its_own_base(config, policy.logp_dtype))
    with policy.as_plain_model() as model, atomic.atomic_folder(config.out / "model") as partial:
        whole_model = adapters.merge_adapters(model) if config.lora.rank else model
        load.save_model(whole_model, partial, template_of=config.model, stop_ids=encoder.stop_ids)
        write_tokenizer(encoder, partial)


def _on_its_own_base(config: RunConfig, dtype: torch.dtype) -> Any:
    """The adapter that was just saved, on the model of the folder, which nothing has rounded."""
    cpu = torch.device("cpu")
    base = load.load_model(config.model, dtype=dtype, device=cpu, merge=not config.lora.keep)
    return adapters.with_adapter(base, config.out / "adapter")


def matrix_sizes(policy: Policy) -> tuple[int, int]:
    """Numbers in the matrices of the body and of the head: what a token is multiplied with."""
    head = head_of(policy.base).layer.weight
    # A tied head is the embedding too; it multiplies once, as the head.
    excluded_ids = {id(head), *(id(p) for p in policy.base.get_input_embeddings().parameters())}
    body = sum(p.numel() for p in policy.parameters() if p.ndim >= 2 and id(p) not in excluded_ids)
    return body + (numbers_in_four_bits(policy) if _has_four_bits(policy) else 0), head.numel()
