"""Small pipelines of the world that collect labels on answers of the shipped model."""

from pathlib import Path
from typing import Any

import yaml

PAIRS = {"do": "collect", "model": "$model", "prompts": "$prompts", "n": 8, "max-tokens": 32}


def write_collecting(
    folder: Path, name: str = "collects", *, prompts: int = 40, **stages: dict[str, Any]
) -> Path:
    """A config with so many prompts, and these stages."""
    asked = {"do": "world-rows", "make": "prompts", "n": prompts}
    listed = [{"prompts": asked}, *({stage: settings} for stage, settings in stages.items())]
    path = folder / f"{name}.yaml"
    whole = {"name": name, "model": "world", "threads": 1, "stages": listed}
    path.write_text(yaml.safe_dump(whole, sort_keys=False), "utf-8")
    return path


def rows_of(out: Path, stage: str) -> bytes:
    return (out / "stages" / stage / "rows.jsonl").read_bytes()
