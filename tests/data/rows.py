"""Rows in the shape of the real thing, written for the tests."""

import json
from pathlib import Path
from typing import Any

import yaml

USER = {"role": "user", "content": "What sinks?"}
STONE = [{"role": "assistant", "content": "A stone."}]
CORK = [{"role": "assistant", "content": "A cork."}]

_ROWS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text("utf-8"))
HH = _ROWS["HH"]
ULTRAFEEDBACK = _ROWS["ULTRAFEEDBACK"]
SHP = _ROWS["SHP"]
NECTAR = _ROWS["NECTAR"]
AXES = _ROWS["AXES"]
PRM800K = _ROWS["PRM800K"]
HELPSTEER2 = _ROWS["HELPSTEER2"]
HELPSTEER3 = _ROWS["HELPSTEER3"]
OASST = _ROWS["OASST"]
REWARDBENCH = _ROWS["REWARDBENCH"]
REWARDBENCH2 = _ROWS["REWARDBENCH2"]


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def write(path: Path, *rows: object) -> Path:
    """Rows as JSON lines; bytes and texts are written as they are."""
    lines = [
        row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode()
        for row in rows
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path
