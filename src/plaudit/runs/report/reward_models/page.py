"""What an evaluation of reward models leaves behind: summary.json, scores.jsonl, and report.html for eyes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.evaluate import EvaluatedReward
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.reward_models.result import Mistake, RewardEvaluation
from plaudit.files.atomic import AtomicFile, make_output_folder
from plaudit.runs.report.figures import Cell, Table
from plaudit.runs.report.page import render
from plaudit.runs.report.reward_models.sections import (
    accuracy_charts,
    accuracy_tables,
    benchmark_scores,
    best_of_n_charts,
    best_of_n_sentences,
    calibration_blocks,
    calibration_table,
    probes_blocks,
)
from plaudit.runs.report.reward_models.summary import (
    ReportedModel,
    ceiling_source,
    ceilings,
    comparison_table,
    finding,
    headline_cards,
    models_table,
    reported_models,
    subtitle,
)
from plaudit.runs.report.words import counted, number_text, shortened

_MAX_MISTAKES = 12
_MAX_TEXT_LENGTH = 1000
_MAX_NAME_LENGTH = 120


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
    text = reward_page(evaluations)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(
            f"{path}: the page cannot be written ({error.strerror}). Choose another place for it."
        ) from error
    return path


def reward_page(evaluations: Sequence[RewardEvaluation]) -> str:
    if not evaluations:
        raise UserError("a page needs at least one evaluation: name a reward model")
    models = reported_models(evaluations)
    is_single = len(models) == 1
    return render(
        "reward_models",
        models=models,
        is_single=is_single,
        subtitle=subtitle(models),
        finding=finding(models),
        ceiling_sources=[*map(ceiling_source, ceilings(models))],
        cards=[*headline_cards(models[0].evaluation)] if is_single else [],
        comparison=comparison_table(models),
        accuracy_charts=accuracy_charts(models),
        accuracy_tables=accuracy_tables(models),
        calibration=calibration_blocks(models),
        calibration_table=calibration_table(models),
        probes=probes_blocks(models),
        best_of_n=best_of_n_sentences(models),
        best_of_n_charts=best_of_n_charts(models),
        benchmarks=benchmark_scores(models),
        mistakes=[*_mistakes(models)],
        left_out=dict.fromkeys(
            line if is_single else f"{model.name}: {line}"
            for model in models
            for line in _left_out_lines(model.evaluation)
        ),
        provenance=_provenance_table(models),
        max_text_length=_MAX_TEXT_LENGTH,
    )


def _mistakes(models: Sequence[ReportedModel]) -> Iterator[tuple[str, str, Mistake]]:
    """The pairs that each model is surest about and wrong, each under its title and with its details."""
    max_per_model = max(3, _MAX_MISTAKES // len(models))
    for model in models:
        for number, mistake in enumerate(model.evaluation.mistakes[:max_per_model], start=1):
            title = f"Mistake {number}" if len(models) == 1 else f"{model.name}: mistake {number}"
            details = (mistake.category, f"margin {number_text(mistake.margin)}", mistake.origin)
            yield title, " · ".join(shortened(part, _MAX_NAME_LENGTH) for part in details if part), mistake


def _left_out_lines(evaluation: RewardEvaluation) -> Iterator[str]:
    if evaluation.ties is not None:
        pairs = counted(evaluation.ties.pairs, "pair")
        yield f"{pairs} of which annotators prefer neither: in no accuracy and no calibration"
    if evaluation.equal:
        yield f"{counted(evaluation.equal, 'pair')} with the same reward on both sides: counted as half right"
    if evaluation.best_of is not None and evaluation.best_of.left_out:
        prompts = counted(evaluation.best_of.left_out, "prompt")
        yield f"best-of-n: {prompts} with an answer on which there is no verdict"
    yield from evaluation.notes


def _provenance_table(models: Sequence[ReportedModel]) -> Table:
    """Files, models and seeds that the figures were made from."""
    rows = {
        "model": lambda found: Cell(text=shortened(found.model, _MAX_NAME_LENGTH), kind="long"),
        "preferences": lambda found: Cell(text=shortened(found.data, _MAX_NAME_LENGTH), kind="long"),
        "pairs": lambda found: Cell(text=f"{found.pairs:,}"),
        "prompts": lambda found: Cell(text=f"{found.prompts:,}"),
        "draws of the bootstrap, by prompt": lambda found: Cell(text=f"{found.bootstrap:,}"),
        "seed of the bootstrap": lambda found: Cell(text=str(found.seed)),
    }
    return models_table("Files, models and chance", models, rows)
