"""LoRA through PEFT: small matrices learn beside frozen weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from plaudit.errors import UserError
from plaudit.models.settings import LoraSettings


def with_lora(model: PreTrainedModel, settings: LoraSettings) -> Any:
    """The model with fresh adapters (they change nothing yet) and everything else frozen."""
    from peft import LoraConfig, get_peft_model

    names = [name.strip() for name in settings.targets.split(",") if name.strip()]
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha or 2 * settings.rank,
        lora_dropout=0.0,
        target_modules="all-linear" if names == ["all-linear"] else names,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise UserError(f"lora.targets: {error}") from error


def save_adapter(model: Any, folder: Path) -> None:
    """The adapter alone, as a PEFT folder."""
    model.save_pretrained(folder, safe_serialization=True)


def merged(model: Any) -> PreTrainedModel:
    """A plain model with the adapters added into its weights; the given one is used up."""
    return model.merge_and_unload()
