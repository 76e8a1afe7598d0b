"""The base model that comes with plaudit: where it lies."""

from __future__ import annotations

from pathlib import Path

from plaudit.errors import UserError

SHIPPED = Path(__file__).parent / "model"
"""Its folder inside the package."""


def base_folder() -> Path:
    """The shipped base model: an ordinary Hugging Face folder."""
    if not (SHIPPED / "model.safetensors").exists():
        raise UserError(
            f"{SHIPPED}: the base model did not come with this installation; "
            "plaudit world build --out DIR makes it"
        )
    return SHIPPED
