"""The pipeline that comes with plaudit: the embedded world, from demonstrations to a report."""

from __future__ import annotations

from pathlib import Path

DEFAULT = Path(__file__).with_name("default.yaml")
"""Its file."""
