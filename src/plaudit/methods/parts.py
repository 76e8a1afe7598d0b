"""A model of which each rank reads its own part: built without numbers, divided, and then filled.

Whole weights are in nobody's memory. What a folder names otherwise than the model does (experts that lie one
by one, say) cannot be read so, and every rank loads it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from plaudit.engine.distributed import Ranks, shard_module
from plaudit.files.model_folder import check_weight_files
from plaudit.models.load import empty_model, keep_soft_caps, refuse_what_is_no_number
from plaudit.models.policy import Policy
from plaudit.models.precision import Narrowed

_BUFFERS = {"inv_freq", "original_inv_freq"}
"""What transformers computes for a model that has no numbers yet: the angles of positions."""
ReadRows = Callable[[int, int], Tensor]
"""The rows of a weight from one to before another, as they lie in the folder."""


def numberless_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel | None:
    """The causal model of a folder, without numbers; None where it cannot be filled by `fill`."""
    model = empty_model(AutoModelForCausalLM, folder)
    nn.Module.to(model, dtype)
    keep_soft_caps(model)
    places = check_weight_files(folder)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    is_there = all(name in places and places[name][1] == shape for name, shape in shapes.items())
    by_angles = all(
        {*module._buffers} <= _BUFFERS and not module._parameters
        for module in model.modules()
        if module._buffers
    )
    return model if is_there and by_angles else None


def fill(
    model: PreTrainedModel,
    folder: Path,
    device: torch.device,
    read_part: Callable[[nn.Parameter, ReadRows], nn.Parameter],
) -> None:
    """Give a model its numbers: ``read_part`` makes of each weight without any one of this rank's rows."""
    places = check_weight_files(folder)
    weights = dict(model.named_parameters())
    filled: dict[str, nn.Parameter] = {}
    for file in dict.fromkeys(places[name][0] for name in weights):
        # One after the other: what was read of a mapped file counts as memory until it is closed.
        with safe_open(file, framework="pt") as opened:
            for name in (name for name in weights if places[name][0] == file):
                rows = opened.get_slice(name)
                filled[name] = read_part(weights[name], lambda begin, end, rows=rows: rows[begin:end])
    model.load_state_dict(filled, assign=True, strict=False)
    model.tie_weights()
    base: Any = model
    for module in (module for module in model.modules() if module._buffers):
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(name, torch.empty_like(buffer, device=device), persistent=False)
        base._init_weights(module)
    local = ((name, getattr(weight, "_local_tensor", weight)) for name, weight in filled.items())
    refuse_what_is_no_number(folder, local)


def read_by_parts(
    folder: Path,
    dtype: torch.dtype,
    compute: torch.dtype | None,
    ranks: Ranks,
    attention: str | None = None,
) -> Policy | None:
    """A policy that is divided over the ranks, each of which has read its own part; None where none can."""
    model = None if ranks.world_size == 1 else numberless_model(folder, dtype)
    if model is None:
        return None
    policy = Policy(model, attention=attention)
    if compute is not None:
        policy.backbone.narrowed = Narrowed.by_shards(compute)
    shard_module(policy, policy.backbone.repeated_layers, ranks=ranks, compute=compute)
    fill(model, folder, ranks.device, partial(own_part, ranks.device))
    return policy


def own_part(device: torch.device, weight: nn.Parameter, read: ReadRows) -> nn.Parameter:
    """A weight that has no numbers yet, with those of this rank."""
    assert isinstance(weight, DTensor)
    mesh, rows = weight.device_mesh, weight.shape[0]
    most = -(-rows // mesh.size())
    begin, end = (min(rows, (mesh.get_local_rank() + more) * most) for more in (0, 1))
    part = read(begin, end).to(device, weight.dtype)
    whole = {"shape": weight.shape, "stride": weight.stride()}
    return nn.Parameter(DTensor.from_local(part, mesh, weight.placements, run_check=False, **whole))
