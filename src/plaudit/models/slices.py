"""A model of which each rank reads its own part: built without numbers, divided, and then filled.

Whole weights are in nobody's memory. What a folder names otherwise than the model does (experts that lie one
by one, say) cannot be read so, and every rank loads it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from plaudit.files.model_folder import check_weight_files
from plaudit.models.load import empty_model, keep_soft_caps, refuse_what_is_no_number

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
