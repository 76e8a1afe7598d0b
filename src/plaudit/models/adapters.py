"""Which weights of a model learn: LoRA adapters beside frozen ones, or all but some parts.

LoRA is PEFT's: small matrices learn beside frozen weights, and can be merged into them.
"""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from plaudit.errors import UserError
from plaudit.files.hub import name_on_hub
from plaudit.models.backbone import language_of
from plaudit.models.four_bits import quantise_linears
from plaudit.models.settings import LoraSettings

LOADING_FAULTS = (
    *(OSError, ValueError, TypeError, RuntimeError, ImportError, LookupError, ArithmeticError),
    *(AttributeError, AssertionError, MemoryError, SafetensorError, StrictDataclassError),
)
"""What the libraries raise at a folder that is damaged, or that needs a library which is not there."""


def first_lines(error: BaseException) -> str:
    # A KeyError is nothing but the key.
    text = f"{error} is not known" if isinstance(error, KeyError) else str(error).strip()
    lines = text.splitlines()[:2] or [type(error).__name__]
    return " ".join(line.strip() for line in lines)


ADAPTABLE = (nn.Linear, nn.Embedding, Conv1D)


def with_lora(model: PreTrainedModel, settings: LoraSettings, device: torch.device | None = None) -> Any:
    """The model with fresh adapters (they change nothing yet); all else is frozen but a classifier's head.
    ``device`` is where it goes; a base in 4 bits must not have been there before."""
    peft = _require_peft()
    names = [name.strip() for name in settings.targets.split(",") if name.strip()]
    _refuse_unknown(names, model)
    width = getattr(model.config.get_text_config(), "hidden_size", settings.rank)
    if settings.rank > width:
        raise UserError(f"lora.rank {settings.rank}: no change of it has a rank above its width, {width}")
    # GPT-2's Conv1D keeps its matrix transposed.
    transposed = any(isinstance(module, Conv1D) for module in model.modules())
    if settings.base == "4bit":
        quantise_linears(model, device)
    config = peft.LoraConfig(
        r=settings.rank,
        # α = 2r keeps the update's scale the same when the rank is changed alone.
        lora_alpha=settings.alpha or 2 * settings.rank,
        lora_dropout=settings.dropout,
        target_modules="all-linear" if names == ["all-linear"] else names,
        exclude_modules=_read_past_adapters(model) or None,
        task_type="SEQ_CLS" if model.get_output_embeddings() is None else "CAUSAL_LM",
        fan_in_fan_out=transposed and settings.base != "4bit",
    )
    with warnings.catch_warnings():
        # PEFT asks transformers for a property that has another name by now.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        # And names experts of the family, which are no linear layers and are not adapted.
        warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys did not match")
        try:
            # Without autocast_adapter_dtype=False adapters of a bfloat16 model would come in float32.
            adapted: Any = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
        except ValueError as error:
            raise UserError(f"lora: {error}") from error
    # Of the base in its folder, which the adapter is merged into.
    config.fan_in_fan_out = transposed
    # As a loaded model: new dropout layers come in training mode.
    adapted.eval()
    return adapted if device is None else adapted.to(device)


def _read_past_adapters(model: PreTrainedModel) -> list[str]:
    # Layers of Mamba whose weights are handed to a kernel as they are.
    mixers = [name for name, module in model.named_modules() if {"A_log", "D"} <= {*module._parameters}]
    places = {mixer.rpartition(".")[2] for mixer in mixers}
    return sorted(f"{place}.{part}" for place in places for part in ("dt_proj", "out_proj", "x_proj"))


def _require_peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise UserError('adapters (LoRA) need peft: pip install "plaudit[lora]"') from error
    return peft


def _refuse_unknown(names: list[str], model: PreTrainedModel) -> None:
    # PEFT itself is content when one of several names is found.
    if names == ["all-linear"]:
        return
    paths = [path for path, layer in model.named_modules() if isinstance(layer, ADAPTABLE)]
    # Matched at a dot as PEFT does it: "proj" must not be found inside "q_proj".
    unknown = [name for name in names if not any(f".{path}".endswith(f".{name}") for path in paths)]
    if unknown or not names:
        layer_names = ", ".join(sorted({path.rsplit(".", 1)[-1] for path in paths}))
        raise UserError(
            f"lora.targets: no layer of this model is called {', '.join(unknown) or 'nothing'}; "
            f"write all-linear, or some of {layer_names}"
        )


def with_adapter(model: PreTrainedModel, folder: Path, dropout: float = 0.0) -> Any:
    """The model with the adapter of a folder, which learns, and every weight of which has its place."""
    peft = _require_peft()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        # PEFT only warns of an adapter that lacks weights, and goes on with those that change nothing.
        warnings.filterwarnings("error", message=".*missing adapter keys")
        try:
            settings = peft.LoraConfig.from_pretrained(str(folder))
            settings.lora_dropout = dropout
            return peft.PeftModel.from_pretrained(
                model, str(folder), config=settings, is_trainable=True, autocast_adapter_dtype=False
            ).eval()
        except KeyError as error:
            raise UserError(f"{folder}: the adapter does not fit this model: {error} is missing") from error
        except (*LOADING_FAULTS, UserWarning, AttributeError) as error:
            raise UserError(f"{folder}: the adapter does not fit this model: {first_lines(error)}") from error


def save_adapter(model: Any, folder: Path) -> None:
    """The adapter alone, as a PEFT folder; a base from the hub is named as it is called there."""
    # Not left to PEFT, which asks the hub whether the base has the same vocabulary: it lies here as it is.
    model.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    name, _, commit = (name_on_hub(str(settings.get("base_model_name_or_path"))) or "").partition("@")
    if commit:
        # Afterwards: PEFT would ask the hub about a base of that name while it saves.
        settings |= {"base_model_name_or_path": name, "revision": commit}
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def merge_adapters(model: Any) -> PreTrainedModel:
    """A plain model with the adapters added into its weights; the given one is used up."""
    return model.merge_and_unload()


PARTS = {"tower": ("vision", "visual"), "projector": ("projector", "connector", "merger")}
"""By what a part of a model that sees is known, and what the names of its weights hold."""


def freeze_parts(model: nn.Module, names: Sequence[str]) -> None:
    """Let weights, and adapters on them, stay as they are: those of a part, or whose names hold a word."""
    others = {id(weight) for weight in language_of(model).parameters()}
    for name in names:
        held = PARTS.get(name, (name,))
        weights = {
            path: weight for path, weight in model.named_parameters() if any(word in path for word in held)
        }
        if name in PARTS:
            weights = {path: weight for path, weight in weights.items() if id(weight) not in others}
        if name == "tower":
            weights = {
                path: w for path, w in weights.items() if not any(word in path for word in PARTS["projector"])
            }
        if not weights:
            raise UserError(
                f"freeze {name}: no weight of {type(model).__name__} is of it, or has it in its name"
            )
        for weight in weights.values():
            weight.requires_grad_(False)
