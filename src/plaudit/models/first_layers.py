"""A model without its upper layers: what the last one left gives goes through the final norm and is read.

The middle of a model may know more of what an answer is worth than its end, which is bent on the next word.
With the final norm, states have the size that a head expects at any depth, and the folder stays an ordinary
one of fewer layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from plaudit.errors import UserError
from plaudit.models.backbone import without_head


def keep_first_layers(model: PreTrainedModel, layer: int | float) -> tuple[int, int]:
    """Cut off, in place, all layers above this one, counted from 1 or as a share; those left, and all."""
    headless: Any = without_head(model)
    stacks = [(name, part) for name, part in headless.named_children() if isinstance(part, nn.ModuleList)]
    config: Any = model.config.get_text_config()
    if len(stacks) != 1 or len(stacks[0][1]) != config.num_hidden_layers:
        raise UserError(
            f"reward.layer: {type(headless).__name__} is not one stack of layers, so none can be cut off: "
            "leave the setting out"
        )
    [(name, stack)] = stacks
    total = len(stack)
    first = first_layers(layer, total)
    setattr(headless, name, nn.ModuleList(list(stack)[:first]))
    # What configurations say of each layer by itself, such as its kind of attention.
    for key, value in config.to_dict().items():
        if "layer" in key and isinstance(value, list) and len(value) == total:
            setattr(config, key, value[:first])
    config.num_hidden_layers = first
    # Raise where the configuration would not make this model again, so that its folder could not be read.
    with torch.device("meta"):
        again = type(headless)(headless.config)
    shapes, expected = ({name: p.shape for name, p in part.named_parameters()} for part in (headless, again))
    if shapes != expected:
        raise UserError(
            f"reward.layer: a {type(headless).__name__} of fewer layers is not made as this one was: leave "
            "the setting out"
        )
    return first, total


def first_layers(layer: int | float, total: int) -> int:
    """How many layers are left of all; a number below 1 is a share of them.

    >>> first_layers(3, 4), first_layers(0.5, 4), first_layers(0.01, 4)
    (3, 2, 1)
    """
    first = max(1, round(layer * total)) if layer < 1 else int(layer)
    if first > total:
        raise UserError(f"reward.layer: there is no layer {first}; the model has {total}")
    return first
