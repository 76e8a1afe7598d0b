"""What decides the result of a stage, and the one hash of it all: the same key, the same result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plaudit.configs.config_file import plain
from plaudit.pipeline.fingerprints import Fingerprints
from plaudit.pipeline.stage import START, Pipeline, Stage
from plaudit.pipeline.words import WORLD, file_of, path_of
from plaudit.training import exact_json

FREE = (
    "allow",
    "check",
    "keep.last",
    "memory",
    "out",
    "reference.cache",
    "sample",
    "sample_every",
    "save_every",
    "sinks",
)
"""Settings of training that leave the result as it is; all of them may change when a run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """All that decides a stage's result.

    Example: ``decided(stage, pipeline, {"sft": "9f86…"}, Fingerprints(file)).key``
    """

    settings: Mapping[str, Any]
    """All settings, resolved; what names another stage is its reference."""
    inputs: Mapping[str, Mapping[str, str]]
    """For each input where it is from and the hash of its content."""
    key: str
    """The sha256 of both and of what is done."""


def decided(
    stage: Stage, pipeline: Pipeline, results: Mapping[str, str], prints: Fingerprints
) -> Decided | None:
    """What decides the result of a stage; None while a stage above it has no result."""
    if not set(stage.needs) <= set(results):
        return None
    inputs: dict[str, Mapping[str, str]] = {}
    named: dict[str, list[str]] = {}
    for setting, words in stage.inputs.items():
        for place, word in enumerate(words, 1):
            found = _input(word, pipeline, results, prints)
            if "hash" in found:
                inputs[setting if len(words) == 1 else f"{setting} {place}"] = found
            named.setdefault(setting, []).append(found.get("hash") or found["word"])
    settings = plain(stage.config({}))
    what = {"do": stage.kind.name, "settings": _deciding(stage, settings), "inputs": named}
    key = hashlib.sha256(exact_json.dumps(what).encode()).hexdigest()
    settings.pop("out", None)
    return Decided(settings=settings, inputs=inputs, key=key)


def _input(word: str, pipeline: Pipeline, results: Mapping[str, str], prints: Fingerprints) -> dict[str, str]:
    if word[:1] == "$" and word != f"${START}":
        return {"from": word[1:], "hash": results[word[1:]]}
    meant = (pipeline.model or WORLD) if word[:1] == "$" else word
    file = path_of(meant) if meant == WORLD else file_of(meant)
    if file is None:
        return {"word": word}
    return {"path": str(file), "hash": prints.of(file)}


def _deciding(stage: Stage, settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The settings without inputs, which count by their content, and without those that change nothing."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{above}{name}"
        if key in stage.inputs or (stage.kind.trains and key in FREE):
            continue
        found[name] = _deciding(stage, value, f"{key}.") if isinstance(value, dict) else value
    return found
