"""A model of which each rank reads its own part: built without numbers, divided, and then filled."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForSequenceClassification, GenerationConfig, PreTrainedModel

from plaudit.engine.distributed import Ranks, local_rows, shard_module
from plaudit.files.hub import ADAPTER_FOLDER
from plaudit.files.model_folder import check_weight_files
from plaudit.models import load, reward_model
from plaudit.models.padding import padding_for, set_padding
from plaudit.models.policy import Policy
from plaudit.models.precision import Narrowed
from plaudit.tokens.encode import Encoder

_BUFFERS = {"inv_freq", "original_inv_freq"}


def numberless_model(folder: Path, dtype: torch.dtype, kind: Any = None) -> PreTrainedModel | None:
    """The model of a folder, without numbers; None where it cannot be filled by `fill`."""
    if (folder / ADAPTER_FOLDER).is_dir():
        # It is merged into weights that are whole.
        return None
    model, places = load.empty_model(folder, kind), check_weight_files(folder)
    load.refuse_other_weights(folder, model, places)
    load.keep_soft_caps(model)
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    # The weights alone: angles are float32 in a model of any numbers.
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    is_there = all(name in places and places[name][1] == shape for name, shape in shapes.items())
    by_angles = all(
        {*module._buffers} <= _BUFFERS and not module._parameters
        for module in model.modules()
        if module._buffers
    )
    # Some weights of some families stay in float32, whatever the others are in.
    alike = dtype.itemsize >= 4 or not model._keep_in_fp32_modules_strict
    return model if is_there and by_angles and alike else None


def fill(model: PreTrainedModel, folder: Path, device: torch.device) -> None:
    """Give each weight without numbers, which is divided already, those of this rank's rows."""
    # Adapters beside a weight have numbers already, and the file names the weight without them.
    empty = {name: weight for name, weight in model.named_parameters() if weight.device.type == "meta"}
    weights = {name.replace(".base_layer.", "."): (name, weight) for name, weight in empty.items()}
    places = check_weight_files(folder)
    filled: dict[str, nn.Parameter] = {}
    for file in dict.fromkeys(places[name][0] for name in weights):
        # One after the other: what was read of a mapped file counts as memory until it is closed.
        with load.loading(folder, "the model cannot be loaded"), safe_open(file, framework="pt") as opened:
            for name in (name for name in weights if places[name][0] == file):
                own_name, weight = weights[name]
                filled[own_name] = _own_part(weight, opened.get_slice(name), device)
    model.load_state_dict(filled, assign=True, strict=False)
    model.tie_weights()
    for module in (module for module in model.modules() if module._buffers):
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(name, torch.empty_like(buffer, device=device), persistent=False)
        model._init_weights(module)
    local = ((name, getattr(weight, "_local_tensor", weight)) for name, weight in filled.items())
    load.refuse_what_is_no_number(folder, local)


def read_by_parts(
    folder: Path,
    dtype: torch.dtype,
    compute: torch.dtype | None,
    ranks: Ranks,
    attention: str | None = None,
    adapted: Callable[[PreTrainedModel], nn.Module] = lambda model: model,
) -> Policy | None:
    """A policy that is divided over the ranks, each of which has read its own part; None where none can.
    ``adapted`` puts fresh adapters beside weights that have no numbers yet."""
    model = None if ranks.world_size == 1 else numberless_model(folder, dtype)
    if model is None:
        return None
    policy = Policy(_adapted(model, adapted), attention=attention)
    _divide(policy, ranks, compute)
    fill(model, folder, ranks.device)
    return policy


def read_reward_by_parts(
    folder: Path,
    head: reward_model.FreshHead,
    ranks: Ranks,
    *,
    encoder: Encoder,
    dtype: torch.dtype,
    compute: torch.dtype | None,
    adapted: Callable[[PreTrainedModel], nn.Module] | None = None,
) -> reward_model.RewardModel | None:
    """A reward model as `read_by_parts` makes a policy, with the head of its folder or a fresh one."""
    existing = load.is_reward_folder(folder)
    kind = AutoModelForSequenceClassification if existing else None
    # PEFT copies the head of a classifier, which has to have numbers by then.
    cannot = ranks.world_size == 1 or (existing and adapted is not None)
    model = None if cannot else numberless_model(folder, dtype, kind)
    padding = padding_for(encoder)
    if model is None or padding.id >= len(model.get_input_embeddings().weight):  # pyright: ignore
        return None
    reward_model.refuse_other_tokenizer(folder, encoder.info)
    facts: dict[str, Any] = {"pooling": head.pooling}
    if existing:
        facts = dict(zip(("pooling", "normalisation"), reward_model.read_reward_file(folder), strict=True))
    else:
        if head.layer is not None:
            reward_model.keep_first_layers(model, head.layer)
        model = reward_model.classifier_around(model)
        reward_model.init_head(model.score, head)
    set_padding(model, padding)
    reward = reward_model.RewardModel(model if adapted is None else _adapted(model, adapted), **facts)
    _divide(reward, ranks, compute, [reward.base.score])
    fill(model, folder, ranks.device)
    return reward.eval()


def _divide(
    model: Policy | reward_model.RewardModel,
    ranks: Ranks,
    compute: torch.dtype | None,
    exact: Sequence[Any] = (),
) -> None:
    fresh = [weight for weight in model.parameters() if weight.device.type != "meta"]
    for weight in fresh:
        weight.data = weight.data.to(ranks.device)
    # Each rank has drawn them for itself.
    ranks.broadcast(weight.data for weight in fresh)
    if compute is not None:
        model.backbone.narrowed = Narrowed.by_shards(compute)
    shard_module(model, model.backbone.repeated_layers, ranks=ranks, compute=compute, exact=exact)


def _adapted(model: PreTrainedModel, adapted: Callable[[PreTrainedModel], nn.Module]) -> nn.Module:
    # PEFT sends adapters to where their weight is; nowhere, they would lose what they begin with. So each
    # weight is for that while a single number, seen as often as its shape says.
    empty = dict[int, nn.Parameter]()
    stand_ins = dict[int, nn.Parameter]()
    for weight in (weight for weight in model.parameters() if weight.device.type == "meta"):
        number = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
        stand_ins[id(weight)] = stand_in = nn.Parameter(number)
        empty[id(stand_in)] = weight
    _exchange(model, stand_ins)
    result = adapted(model)
    _exchange(model, empty)
    return result


def _exchange(model: nn.Module, by_id: Mapping[int, nn.Parameter]) -> None:
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and (other := by_id.get(id(weight))) is not None:
                other.requires_grad = weight.requires_grad
                module._parameters[name] = other


def _own_part(weight: nn.Parameter, stored: Any, device: torch.device) -> nn.Parameter:
    assert isinstance(weight, DTensor)
    begin, end = local_rows(weight)
    part = stored[begin:end].to(device, weight.dtype)
    whole = {"shape": weight.shape, "stride": weight.stride()}
    rows_here = DTensor.from_local(part, weight.device_mesh, weight.placements, run_check=False, **whole)
    return nn.Parameter(rows_here, requires_grad=weight.requires_grad)
