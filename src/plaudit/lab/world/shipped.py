"""Where the world's base model lies; importing this does not import torch."""

from __future__ import annotations

from pathlib import Path

from plaudit.errors import UserError

SHIPPED_MODEL_FOLDER = Path(__file__).parent / "model"


def base_model_folder() -> Path:
    if not (SHIPPED_MODEL_FOLDER / "model.safetensors").exists():
        raise UserError(
            f"{SHIPPED_MODEL_FOLDER}: the base model did not come with this installation; "
            "plaudit world build --out DIR makes it"
        )
    return SHIPPED_MODEL_FOLDER
