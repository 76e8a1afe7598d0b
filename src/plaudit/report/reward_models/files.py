"""What an evaluation leaves behind: summary.json, scores.jsonl and report.html."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from plaudit.data.records import text_to_json
from plaudit.evaluation.reward_models.evaluate import EvaluatedReward
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.files.atomic import AtomicFile, make_output_folder
from plaudit.report.reward_models.page import write_reward_page


def write_reward_evaluations(evaluated: Sequence[EvaluatedReward], out: Path) -> tuple[Path, ...]:
    """Several models on the same evidence, into one folder; each file appears whole or not at all."""
    make_output_folder(out)
    evaluations = [one.evaluation for one in evaluated]
    summary = {"evaluations": [one.as_json() for one in evaluations]}
    with AtomicFile(out / "summary.json") as file:
        file.stream.write(json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n")
    names = [one.model for one in evaluations]
    with AtomicFile(out / "scores.jsonl") as file:
        for pair_by_model in zip(*(one.pairs for one in evaluated), strict=True):
            row = json.dumps(_score_row(names, pair_by_model), ensure_ascii=False, allow_nan=False)
            file.stream.write(row.encode() + b"\n")
    page = write_reward_page(evaluations, out / "report.html")
    return out / "summary.json", out / "scores.jsonl", page


def _score_row(names: Sequence[str], pair_by_model: Sequence[ScoredPair]) -> dict[str, object]:
    """The line of scores.jsonl: one pair with the rewards of every model."""
    pair = pair_by_model[0]
    optional_fields = {
        "category": pair.category,
        "annotator": pair.annotator,
        "group": pair.group,
        "strength": pair.strength,
        "places": pair.places,
        "truths": None if pair.truths == (None, None) else pair.truths,
        "origin": pair.origin or None,
    }
    return {
        "prompt": text_to_json(pair.prompt),
        "answers": pair.answers,
        "chance": pair.p_first,
        "rewards": {name: one.rewards for name, one in zip(names, pair_by_model, strict=True)},
        **{name: value for name, value in optional_fields.items() if value is not None},
    }
