"""What an evaluation leaves behind: summary.json, scores.jsonl and report.html."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.evaluate import Evaluated
from plaudit.evaluation.page import write_page
from plaudit.evaluation.pairs import ScoredPair
from plaudit.records.dicts import text_as_plain
from plaudit.sources.atomic import AtomicFile


def make_folder(out: Path) -> None:
    """Complain, before any model is loaded, about a place that takes no results."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: no folder can be made there ({error.strerror})") from error


def write_results(evaluated: Sequence[Evaluated], out: Path) -> tuple[Path, ...]:
    """Several models on the same evidence, into one folder; each file appears whole or not at all."""
    make_folder(out)
    evaluations = [one.evaluation for one in evaluated]
    summary = {"evaluations": [one.as_json() for one in evaluations]}
    with AtomicFile(out / "summary.json") as file:
        file.stream.write(json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n")
    names = [one.model for one in evaluations]
    with AtomicFile(out / "scores.jsonl") as file:
        for same in zip(*(one.pairs for one in evaluated), strict=True):
            row = json.dumps(_row(names, same), ensure_ascii=False, allow_nan=False)
            file.stream.write(row.encode() + b"\n")
    page = write_page(evaluations, out / "report.html")
    return out / "summary.json", out / "scores.jsonl", page


def _row(names: Sequence[str], same: Sequence[ScoredPair]) -> dict[str, object]:
    """One pair as every model scores it."""
    pair = same[0]
    facts = {
        "category": pair.category,
        "annotator": pair.annotator,
        "group": pair.group,
        "strength": pair.strength,
        "places": pair.places,
        "truths": None if pair.truths == (None, None) else pair.truths,
        "origin": pair.origin or None,
    }
    return {
        "prompt": text_as_plain(pair.prompt),
        "answers": pair.answers,
        "chance": pair.chance,
        "rewards": {name: one.rewards for name, one in zip(names, same, strict=True)},
        **{name: fact for name, fact in facts.items() if fact is not None},
    }
