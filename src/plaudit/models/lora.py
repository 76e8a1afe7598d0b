"""LoRA through PEFT: small matrices learn beside frozen weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from plaudit.errors import UserError
from plaudit.models.settings import LoraSettings

ADAPTABLE = (nn.Linear, nn.Embedding, Conv1D)
"""Layers that hold one matrix."""


def with_lora(model: PreTrainedModel, settings: LoraSettings) -> Any:
    """The model with fresh adapters (they change nothing yet); all else is frozen but a classifier's head."""
    from peft import LoraConfig, get_peft_model

    names = [name.strip() for name in settings.targets.split(",") if name.strip()]
    _refuse_unknown(names, model)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha or 2 * settings.rank,
        lora_dropout=0.0,
        target_modules="all-linear" if names == ["all-linear"] else names,
        task_type="SEQ_CLS" if model.get_output_embeddings() is None else "CAUSAL_LM",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    with warnings.catch_warnings():
        # PEFT asks transformers for a property that has another name by now.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        try:
            return get_peft_model(model, config, autocast_adapter_dtype=False)
        except ValueError as error:
            raise UserError(f"lora: {error}") from error


def _refuse_unknown(names: list[str], model: PreTrainedModel) -> None:
    """PEFT itself is content when one of several names is found."""
    if names == ["all-linear"]:
        return
    paths = [path for path, layer in model.named_modules() if isinstance(layer, ADAPTABLE)]
    unknown = [name for name in names if not any(f".{path}".endswith(f".{name}") for path in paths)]
    if unknown or not names:
        layer_names = ", ".join(sorted({path.rsplit(".", 1)[-1] for path in paths}))
        raise UserError(
            f"lora.targets: no layer of this model is called {', '.join(unknown) or 'nothing'}; "
            f"write all-linear, or some of {layer_names}"
        )


def save_adapter(model: Any, folder: Path) -> None:
    """The adapter alone, as a PEFT folder."""
    model.save_pretrained(folder, safe_serialization=True)


def merge_adapters(model: Any) -> PreTrainedModel:
    """A plain model with the adapters added into its weights; the given one is used up."""
    return model.merge_and_unload()
