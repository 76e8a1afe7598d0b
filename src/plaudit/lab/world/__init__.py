"""The embedded world: a small valley whose facts, questions and true preferences are known.

Its base model lies here; importing this does not import torch.
"""

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
