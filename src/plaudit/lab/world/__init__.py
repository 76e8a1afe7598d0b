"""The embedded world: a small valley whose facts, questions and true preferences are known.

Its base model lies here; importing this does not import torch.
"""

import os
from pathlib import Path

from plaudit.errors import UserError

ANOTHER = os.environ.get("PLAUDIT_VALLEY", "")
"""The word of another valley; empty for the one that the base model has read about."""
SHIPPED_MODEL_FOLDER = Path(__file__).parent / "model"


def base_model_folder() -> Path:
    if ANOTHER:
        raise UserError(
            f"PLAUDIT_VALLEY is {ANOTHER!r}: the base model has read about another valley; "
            "python -m examples.base_model --out DIR makes one for this one, to be named as the model"
        )
    if not (SHIPPED_MODEL_FOLDER / "model.safetensors").exists():
        raise UserError(
            f"{SHIPPED_MODEL_FOLDER}: the base model did not come with this installation; "
            "python -m examples.base_model --out DIR makes it"
        )
    return SHIPPED_MODEL_FOLDER
