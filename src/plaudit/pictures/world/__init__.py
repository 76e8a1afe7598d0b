"""The picture world: drawn scenes whose every fact is known, questions about them, people and a small model.

Importing this imports neither torch nor Pillow.
"""

from pathlib import Path

SHIPPED_MODEL_FOLDER = Path(__file__).parent / "model"
