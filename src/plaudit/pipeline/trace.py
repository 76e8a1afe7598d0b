"""From a result back to where it comes from: stages, files, hashes, commands and code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plaudit.errors import UserError
from plaudit.pipeline.folder import Folder, read_seal
from plaudit.pipeline.stage import Pipeline


def traced(folder: Folder, pipeline: Pipeline, name: str) -> Iterator[str]:
    """Every stage that the result of one rests on, the nearest first; what was told already is told once."""
    seen: set[str] = set()
    yield from _told(folder, pipeline, name, 0, seen)


def _told(folder: Folder, pipeline: Pipeline, name: str, depth: int, seen: set[str]) -> Iterator[str]:
    seal, indent = read_seal(folder.stage(name)), "  " * depth
    if seal is None:
        raise UserError(f"{folder.stage(name)}: this stage has not ended, so there is nothing to trace")
    if name in seen:
        yield f"{indent}{name}: see above"
        return
    seen.add(name)
    yield f"{indent}{name} ({seal['do']}), result {seal['result'][:12]}, {_made_by(seal)}, {seal['ended']}"
    yield f"{indent}  {seal['command']}"
    for setting, found in seal["inputs"].items():
        if "path" in found:
            yield f"{indent}  {setting}: {found['path']}, {found['hash'][:12]}"
    for path, digest in list(seal["outputs"].items())[:SHOWN]:
        yield f"{indent}  → {path}, {digest[:12]}"
    if len(seal["outputs"]) > SHOWN:
        yield f"{indent}  → and {len(seal['outputs']) - SHOWN} more, in {folder.stage(name) / 'stage.json'}"
    for other in pipeline.stage(name).needs:
        yield from _told(folder, pipeline, other, depth + 1, seen)


SHOWN = 6
"""Files of a stage that are listed."""


def _made_by(seal: Mapping[str, Any]) -> str:
    code = seal["code"]
    commit = "" if code.get("commit") is None else f" at {code['commit'][:12]}"
    changed = ", with changes" if code.get("changed") else ""
    return f"by plaudit {code.get('plaudit')}{commit}{changed}"
