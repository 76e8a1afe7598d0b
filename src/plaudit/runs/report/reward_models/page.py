"""What an evaluation of reward models leaves behind: summary.json, scores.jsonl, and report.html for eyes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.evaluate import EvaluatedReward
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.files.atomic import AtomicFile, make_output_folder
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.parts import Cards, Page, Text
from plaudit.runs.report.reward_models.sections import reward_sections
from plaudit.runs.report.reward_models.summary import (
    ceiling_source,
    ceilings,
    comparison_table,
    finding,
    headline_cards,
    reported_models,
    subtitle,
)
from plaudit.runs.report.sentences import say


def write_reward_evaluations(evaluated: Sequence[EvaluatedReward], out: Path) -> tuple[Path, ...]:
    """Several models on the same evidence, into one folder; each file appears whole or not at all."""
    make_output_folder(out)
    evaluations = [found.evaluation for found in evaluated]
    summary = {"evaluations": [found.as_json() for found in evaluations]}
    with AtomicFile(out / "summary.json") as file:
        file.stream.write(json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n")
    names = [found.model for found in evaluations]
    with AtomicFile(out / "scores.jsonl") as file:
        for pair_by_model in zip(*(found.pairs for found in evaluated), strict=True):
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
        "rewards": {name: scored.rewards for name, scored in zip(names, pair_by_model, strict=True)},
        **{name: value for name, value in optional_fields.items() if value is not None},
    }


def write_reward_page(evaluations: Sequence[RewardEvaluation], path: Path) -> Path:
    """Writes the page of these models to ``path`` and returns it; a reader sees the old page or the new."""
    return write_page(reward_page(evaluations), path)


def reward_page(evaluations: Sequence[RewardEvaluation]) -> str:
    if not evaluations:
        raise UserError("a page needs at least one evaluation: name a reward model")
    models = reported_models(evaluations)
    is_single = len(models) == 1
    several = say("reward.several", count=len(models))
    head = [
        Text(subtitle(models), "state"),
        Text(finding(models), "lede"),
        *(Text(ceiling_source(ceiling), "quiet") for ceiling in ceilings(models)),
        Cards([*headline_cards(models[0].evaluation)]) if is_single else comparison_table(models),
    ]
    return render(
        Page(
            title=models[0].name if is_single else several,
            heading=say("reward.title", name=models[0].name) if is_single else several,
            head=head,
            sections=reward_sections(models),
            styles=("charts",),
        )
    )
