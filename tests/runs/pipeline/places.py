"""A small pipeline on a tiny model that every stage really runs: rows, SFT, a reward, REINFORCE."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plaudit.cli.main import main
from tests.engine.toy import write_rows
from tests.rollouts.talkers import write_talker

QUICK = {"max_length": 64, "batch_size": 4, "save_every": 100, "evaluate_every": 100, "device": "cpu"}
SILENT = {"sample.rows": 0, "check": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        return " ".join((self.out + self.err).split())


def make_place(folder: Path) -> Path:
    """A model, demonstrations, pairs and prompts; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_talker(folder / "model", stops=(2, *range(8, 14)))
    asked = {n: _says("user", f"w{n} w{n + 1}") for n in range(20, 36)}
    told = {n: _says("assistant", f"w{n + 2} w{n % 5 + 15}") for n in asked}
    write_rows(folder / "demos.jsonl", [{"prompt": asked[n], "completion": told[n]} for n in asked])
    pairs = [
        {"prompt": asked[n], "chosen": told[n], "rejected": _says("assistant", f"w{n + 3}")} for n in asked
    ]
    write_rows(folder / "pairs.jsonl", pairs)
    write_rows(
        folder / "more.jsonl", [{**row, "prompt": _says("user", f"w3{n}")} for n, row in enumerate(pairs[:4])]
    )
    write_rows(folder / "prompts.jsonl", [{"prompt": row["prompt"]} for row in pairs])
    return folder


def _says(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def stages(place: Path) -> dict[str, dict[str, Any]]:
    """All stages by name; a test may change them."""
    trained = {"learning_rate": 0.003, **QUICK, **SILENT}
    return {
        "demos": {"do": "rows", "data": str(place / "demos.jsonl")},
        "sft": {"do": "sft", "model": "$model", "data": "$demos", "steps": 3, **trained, "check": True},
        "pairs": {"do": "rows", "data": str(place / "pairs.jsonl")},
        "reward": {"do": "reward", "model": "$sft", "data": "$pairs", "steps": 2, **trained},
        "policy": {
            "do": "reinforce",
            "model": "$sft",
            "prompts": str(place / "prompts.jsonl"),
            "reward": "$reward",
            "rounds": 2,
            "group-size": 2,
            "draw": {"max-tokens": 8},
            **trained,
        },
    }


def write_config(
    place: Path, told: Mapping[str, Mapping[str, Any]], name: str = "toy", **head: object
) -> Path:
    whole = {
        "name": name,
        "model": str(place / "model"),
        "threads": 1,
        **head,
        "stages": [{one: dict(settings)} for one, settings in told.items()],
    }
    path = place / f"{name}.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    return path


def go(config: Path, out: Path, *more: object) -> Went:
    said, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        code = main(["run", str(config), "--out", str(out), *map(str, more)])
    return Went(code=code, out=said.getvalue(), err=complained.getvalue())


def well(config: Path, out: Path, *more: object) -> Went:
    went = go(config, out, *more)
    assert went.code == 0, went.out + went.err
    return went


def states(went: Went) -> dict[str, str]:
    """Of each stage what was done, as the lines say."""
    told = [line.split() for line in went.err.splitlines() if "/" in line.split(" ")[0] or line[:1] == " "]
    words = {line[1]: " ".join(line[2:]) for line in told if len(line) > 2}
    return {
        name: next((state for state in ("kept", "taken back") if text.startswith(state)), "ran")
        for name, text in words.items()
    }


def seal(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / "stages" / name / "stage.json").read_text("utf-8"))


def results(out: Path) -> dict[str, bytes]:
    """What must be the same whatever happened on the way: rows, weights, samples, figures without times.

    Notes say in which step they were first said, and a run that was stopped says some again.
    """
    found: dict[str, bytes] = {}
    for path in sorted((out / "stages").rglob("*")):
        left_out = "checkpoints" in path.parts or path.name == "notes.jsonl"
        if path.suffix in (".safetensors", ".jsonl") and not left_out:
            found[str(path.relative_to(out))] = _without_times(path)
    return found


def _without_times(path: Path) -> bytes:
    if path.name != "metrics.jsonl":
        return path.read_bytes()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return json.dumps([{name: line[name] for name in line if name != "timing"} for line in lines]).encode()
