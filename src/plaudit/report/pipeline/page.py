"""report.html of a pipeline: what was done, what came of it, what to doubt; the page stands alone.

From any number on it a way leads back to rows, weights and code; and it has the commands that make all of
it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.files import atomic
from plaudit.report.figures import NO_VALUE, Cell, Table, estimate_cell
from plaudit.report.page import render
from plaudit.report.pipeline.data import (
    CONFIG_FILE,
    CheckOutcome,
    PipelineData,
    is_evaluation,
    is_pipeline,
    read_pipeline_folder,
)
from plaudit.report.pipeline.sections import (
    MAX_TEXT_LENGTH,
    categories_table,
    confidence_table,
    contests_table,
    diversity_table,
    kl_charts,
    length_chart,
    reference_name,
    reported_rewards,
    sampled_answers,
    training_curves,
    win_rate_charts,
)
from plaudit.report.pipeline.stages import progress_text, reported_stages, stages_chart
from plaudit.report.pipeline.text import best_policy_summary, contest_against_reference
from plaudit.report.pipeline.warnings import MAX_NOTE_LENGTH, report_warnings
from plaudit.report.run.data import read_run_data
from plaudit.report.run.page import report_html as page_of_training
from plaudit.report.words import counted, percent, short_name, shortened

_MAX_NOTES = 40
_MAX_SENTENCE_LENGTH = 280
_CheckRow = tuple[str, CheckOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResults:
    """What the checks of all stages found.

    Example: ``CheckResults(summary="3 checks. Pass: 3. …", failed=(), passed=(("sft", CheckOutcome(…)), …))``
    """

    summary: str
    """How many came out how; empty where there was none."""
    failed: tuple[_CheckRow, ...]
    """Those that do not pass, each with its stage."""
    passed: tuple[_CheckRow, ...]
    """Those that pass."""


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes ``report.html`` from what lies in the folder, finished or not; returns where it is."""
    return _write(pipeline_page(read_pipeline_folder(folder)), out or folder / "report.html")


def write_folder_report(folder: Path, out: Path | None = None) -> Path:
    """The page of a pipeline, of an evaluation, or of a training run, which has a page of its own."""
    if is_pipeline(folder) or is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return write_report(folder, out)
    facts = read_run_data(folder)
    method = facts.lineage.method if facts.lineage else ""
    text = page_of_training(facts, f"plaudit train {method or 'sft'}")
    return _write(text, out or folder / "report.html")


def pipeline_page(pipeline: PipelineData) -> str:
    """The whole page."""
    evaluation, warnings = pipeline.evaluation, report_warnings(pipeline)
    return render(
        "pipeline",
        pipeline=pipeline,
        progress=progress_text(pipeline),
        finding=best_policy_summary(evaluation) if evaluation else _no_evaluation_sentence(pipeline),
        unfinished=_unfinished_stages(pipeline),
        flow=stages_chart(pipeline),
        stages=reported_stages(pipeline),
        training=[training_curves(stage, run) for stage, run in pipeline.training_stages],
        rewards=reported_rewards(pipeline),
        checks=_check_results(pipeline),
        warnings=warnings,
        notes=[*_stage_notes(pipeline, {warning.finding for warning in warnings})],
        max_notes=_MAX_NOTES,
        commands=[*_commands(pipeline)],
        max_note_length=MAX_NOTE_LENGTH,
        max_text_length=MAX_TEXT_LENGTH,
        **_evaluation_parts(evaluation),
    )


def _evaluation_parts(evaluation: PolicyEvaluation | None) -> dict[str, object]:
    """What the page shows of an evaluation of policies; each part is empty where there is nothing to show."""
    if evaluation is None:
        names = ("headline", "wins", "categories", "distance", "confidence", "samples")
        return dict.fromkeys(names, ())
    confidence, confidence_charts = confidence_table(evaluation)
    return {
        "headline": _headline_table(evaluation),
        "measured": " ".join(_measurement_note(evaluation)),
        "wins": win_rate_charts(evaluation),
        "contests": contests_table(evaluation),
        "categories": categories_table(evaluation),
        "distance": kl_charts(evaluation),
        "lengths": length_chart(evaluation),
        "diversity": diversity_table(evaluation),
        "confidence": confidence,
        "confidence_charts": confidence_charts,
        "samples": sampled_answers(evaluation),
        "reference": reference_name(evaluation),
    }


def _headline_table(evaluation: PolicyEvaluation) -> Table:
    """Every policy with the figures that matter most."""
    wins = f"preferred to {short_name(evaluation.reference)}" if evaluation.reference else "preferred"
    columns = [
        *(["true worth"] if any(policy.gold for policy in evaluation.policies) else []),
        *(wins, "of those that differ", "at equal length", "KL, nats", "tokens", "ended"),
    ]
    rows = [(short_name(policy.name), _headline_cells(evaluation, policy)) for policy in evaluation.policies]
    return Table(caption="Each figure with its 95 % interval over prompts", columns=columns, rows=rows)


def _headline_cells(evaluation: PolicyEvaluation, policy: PolicyFigures) -> list[Cell]:
    contest = contest_against_reference(evaluation, policy.name)
    gold = [estimate_cell(policy.gold)] if any(other.gold for other in evaluation.policies) else []
    if policy.name == evaluation.reference:
        wins = [Cell(text=text, kind="quiet") for text in ("the reference", NO_VALUE, NO_VALUE)]
    else:
        wins = [
            estimate_cell(contest and contest.raw, percent),
            estimate_cell(contest and contest.decided, percent),
            estimate_cell(contest and contest.length_controlled, percent),
        ]
    return [
        *gold,
        *wins,
        estimate_cell(policy.kl),
        estimate_cell(policy.length),
        estimate_cell(policy.finished, percent),
    ]


def _measurement_note(evaluation: PolicyEvaluation) -> Iterator[str]:
    judges = list(dict.fromkeys(short_name(contest.judge) for contest in evaluation.contests))
    yield f"{counted(evaluation.prompts, 'prompt')}, {counted(evaluation.answers, 'answer')} to each;"
    yield f"{shortened(evaluation.sampling, _MAX_SENTENCE_LENGTH)}."
    if evaluation.gold:
        yield f"True worth is that of {short_name(evaluation.gold)}."
    if judges:
        yield f"Wins are counted by {', '.join(judges)}; a tie is half a win."


def _no_evaluation_sentence(pipeline: PipelineData) -> str:
    ended = sum(stage.state == "done" for stage in pipeline.stages)
    stages = counted(len(pipeline.stages), "stage")
    return f"{ended} of {stages} have ended, and none of them compares policies."


def _unfinished_stages(pipeline: PipelineData) -> str:
    return ", ".join(
        f"{short_name(stage.name)} ({'begun' if stage.state == 'begun' else 'to do'})"
        for stage in pipeline.stages
        if stage.state != "done"
    )


def _check_results(pipeline: PipelineData) -> CheckResults:
    """Each check that had something to look at."""
    checked = [(short_name(stage.name), check) for stage in pipeline.stages for check in stage.checks]
    failed = tuple(row for row in checked if row[1].verdict in ("FAIL", "allowed"))
    passed = tuple(row for row in checked if row[1].verdict == "pass")
    not_applicable = len(checked) - len(failed) - len(passed)
    summary = (
        f"{counted(len(checked), 'check')}. Pass: {len(passed)}. Do not: {len(failed)}. "
        f"Nothing to see: {not_applicable}."
    )
    return CheckResults(summary=summary if checked else "", failed=failed, passed=passed)


def _stage_notes(pipeline: PipelineData, reported: Container[str]) -> Iterator[tuple[str, str]]:
    """What the evaluation and the stages noted by themselves: each sentence once, after those who said it."""
    stages_by_note: dict[str, list[str]] = {
        note: [] for note in (pipeline.evaluation.all_notes if pipeline.evaluation else ())
    }
    for stage in pipeline.stages:
        notes = [note.text for note in (stage.training_run.notes if stage.training_run else ())]
        sentences = stage.summary_lines if stage.reward_evaluations else stage.summary_lines[1:]
        for text in dict.fromkeys([*sentences, *notes]):
            stages_by_note.setdefault(text, []).append(short_name(stage.name))
    for text, stages in stages_by_note.items():
        if shortened(text, MAX_NOTE_LENGTH).rstrip(".") not in reported:
            yield ", ".join(stages), shortened(text, MAX_NOTE_LENGTH)


def _commands(pipeline: PipelineData) -> Iterator[tuple[str, str]]:
    """How to make all of it again."""
    if pipeline.config:
        config = shlex.quote(str(pipeline.path / CONFIG_FILE))
        other = shlex.quote(f"{pipeline.path}-again")
        yield "All of it, in another folder:", f"plaudit run {config} --out {other}"
    commands = "\n".join(shortened(stage.command, 2000) for stage in pipeline.stages if stage.command)
    if commands:
        yield "Stage by stage:", commands
    yield "This page again:", f"plaudit report {shlex.quote(str(pipeline.path))}"


def _write(text: str, path: Path) -> Path:
    atomic.make_folder(path.parent)
    atomic.write_text(path, text)
    return path
