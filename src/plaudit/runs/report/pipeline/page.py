"""report.html of a pipeline: what was done, what came of it, what to doubt; the page stands alone.

From any number on it a way leads back to stages, files, hashes, rows, weights and code, and it has the
commands that make all of it again. The short form is summary.json and the table of the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from plaudit.errors import UserError
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.stats import Estimate
from plaudit.files import atomic
from plaudit.runs.pipeline.kinds import ReportWarning, StageFindings, page_sections
from plaudit.runs.report import parts as html
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.pipeline import answers, data, findings, glance, progress, sections
from plaudit.runs.report.run.data import read_run_data
from plaudit.runs.report.run.page import report_html as page_of_training
from plaudit.runs.report.words import counted, short_name, shortened

if TYPE_CHECKING:
    from rich.table import Table as ConsoleTable


_MAX_NOTES = 40
_FIRST_WARNINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """The part of the page that is read first: the outcome, its picture, and what may overturn it."""

    finding: Sequence[str]
    """The outcome in a sentence, then who leads, then what may overturn it."""
    picture: Markup | None
    note: str
    warnings: Sequence[ReportWarning]
    warnings_in_all: int


def write_report(folder: Path, out: Path | None = None, *, pipeline: data.PipelineData | None = None) -> Path:
    return write_page(
        pipeline_page(pipeline or data.read_pipeline_folder(folder)), out or folder / "report.html"
    )


def write_folder_report(folder: Path, out: Path | None = None) -> Path:
    """The page of a pipeline, of an evaluation, or of a training run, which has a page of its own."""
    if data.is_pipeline(folder) or data.is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return write_report(folder, out)
    facts = read_run_data(folder)
    method = facts.lineage.method if facts.lineage else ""
    text = page_of_training(facts, f"plaudit train {method or 'sft'}")
    return write_page(text, out or folder / "report.html")


def pipeline_page(pipeline: data.PipelineData) -> str:
    evaluation, warnings = pipeline.evaluation, findings.report_warnings(pipeline)
    picture = glance.opening_picture(evaluation) if evaluation else None
    return render(
        html.Page(
            title=pipeline.name,
            heading=shortened(pipeline.name, 120),
            head=[*_head(pipeline, picture, warnings)],
            first=[*_questions_section(evaluation)] if evaluation else [],
            sections=[*_sections(pipeline, picture, warnings)],
            contents=True,
        )
    )


def _head(
    pipeline: data.PipelineData, picture: Markup | None, warnings: Sequence[ReportWarning]
) -> Iterator[html.Part]:
    links = [("#warnings", counted(len(warnings), "warning"))] if warnings else []
    word = "Finished" if pipeline.finished else "Not finished"
    yield html.State(word, pipeline.finished, f" · {progress.progress_text(pipeline)}", links=links)
    yield FirstLook(
        finding=_finding(pipeline, warnings),
        # A column of its own: what all policies became stands beside the words too.
        picture=picture and Markup().join([picture, *sections.policy_charts(pipeline)[:1]]),
        note=glance.opening_note(pipeline),
        warnings=sorted(warnings, key=lambda warning: not warning.grave)[:_FIRST_WARNINGS],
        warnings_in_all=len(warnings),
    )
    if not pipeline.finished:
        yield html.Text(html.say("pipeline.unfinished", stages=progress.unfinished_stages(pipeline)))


def _finding(pipeline: data.PipelineData, warnings: Sequence[ReportWarning]) -> Sequence[str]:
    if pipeline.evaluation is not None:
        first = glance.opening_sentence(pipeline) or html.say("finding.no_ranking")
        return (
            first,
            *findings.ranking_sentences(pipeline.evaluation),
            *findings.caution_sentences(warnings),
        )
    from_wings = [found for stage in pipeline.stages for found in stage.findings.values()]
    if from_wings:
        return from_wings[-1].sentences
    ended = sum(stage.state == "done" for stage in pipeline.stages)
    return (html.say("pipeline.no_evaluation", ended=ended, stages=len(pipeline.stages)),)


def _questions_section(evaluation: PolicyEvaluation) -> Iterator[html.Section]:
    outcome = glance.evaluation_outcome(evaluation)
    if outcome.before:
        yield from answers.questions_section(evaluation, before=outcome.before.name, after=outcome.after.name)


def _sections(
    pipeline: data.PipelineData, picture: Markup | None, warnings: Sequence[ReportWarning]
) -> Iterator[html.Section]:
    evaluation, from_wings = pipeline.evaluation, [*_wing_sections(pipeline)]
    if evaluation or not from_wings:
        # Of two policies the first picture has everything already.
        others = evaluation is not None and (len(evaluation.policies) > 2 or picture is None)
        yield sections.results_section(pipeline, with_chart=others)
    yield _warnings_section(pipeline, warnings)
    yield from sections.wins_section(pipeline)
    yield from from_wings
    yield from sections.labels_section(pipeline)
    if evaluation:
        yield from sections.categories_section(evaluation)
        yield from answers.samples_section(evaluation)
    yield from sections.training_section(pipeline)
    if evaluation:
        yield from sections.distance_section(evaluation)
    yield from sections.reward_sections(pipeline)
    if evaluation:
        yield sections.habits_section(evaluation)
        yield from sections.confidence_section(evaluation)
    yield progress.checks_section(pipeline)
    yield progress.stages_section(pipeline, progress.progress_text(pipeline))
    yield progress.origins_section(pipeline)
    yield progress.reproduce_section(pipeline)


def _warnings_section(pipeline: data.PipelineData, warnings: Sequence[ReportWarning]) -> html.Section:
    doubts = [
        html.Note(f": {warning.finding}. ", about=warning.about, quiet=warning.reason) for warning in warnings
    ]
    parts: list[html.Part] = [html.Notes(doubts) if doubts else html.Text(html.say("pipeline.no_doubt"))]
    notes = [*progress.stage_notes(pipeline, {warning.finding for warning in warnings})]
    if notes:
        rest = len(notes) - _MAX_NOTES
        more = [html.Note(html.say("pipeline.more_notes", count=rest))] if rest > 0 else []
        summary = html.say("pipeline.notes", count=len(notes))
        parts.append(html.Folded(summary, [html.Notes([*notes[:_MAX_NOTES], *more])]))
    return html.Section("What to doubt", "warnings", parts, counted(len(warnings), "warning"))


def _wing_sections(pipeline: data.PipelineData) -> Iterator[html.Section]:
    for name, section in page_sections().items():
        concerned = [stage for stage in pipeline.stages if name in stage.findings]
        if concerned:
            parts = [part for stage in concerned for part in _findings_parts(stage, stage.findings[name])]
            note = html.Text(section.note, "quiet")
            yield html.Section(section.title, name, [note, *parts], is_open=pipeline.evaluation is None)


def _findings_parts(stage: data.StageData, found: StageFindings) -> Iterator[html.Part]:
    yield html.Heading(short_name(stage.name), f"#{stage.anchor}")
    yield from map(html.Text, (*found.sentences, *found.details))
    yield from (
        html.Text(html.say("pipeline.missing", sentence=missing), about="Missing:")
        for missing in found.missing
    )
    yield html.Charts(found.charts)
    yield from found.tables
    if found.samples:
        yield html.Samples(found.samples)


def write_summary(pipeline: data.PipelineData) -> None:
    """Seconds and first sentences of all stages that have ended, and the figures of the last evaluation."""
    evaluated, evaluation = pipeline.evaluation_stage, pipeline.evaluation
    config = yaml.safe_load(pipeline.config)
    rows = [
        {
            "name": stage.name,
            "do": stage.kind,
            "finished": stage.state == "done",
            "seconds": stage.seconds,
            "summary": [*stage.summary_lines] if stage.state == "done" else None,
        }
        for stage in pipeline.stages
    ]
    summary = {
        "name": config["name"],
        "seed": config["seed"],
        "seconds": round(pipeline.seconds, 3),
        "stages": rows,
        "evaluation": None if evaluated is None else evaluated.name,
        "sentence": glance.opening_sentence(pipeline),
        "reference": None if evaluation is None else evaluation.reference,
        "table": [] if evaluation is None else [*policy_rows(evaluation)],
    }
    atomic.write_json(pipeline.path / "summary.json", summary)


def policy_rows(evaluation: PolicyEvaluation) -> Iterator[dict[str, Any]]:
    contests = {(contest.policy, contest.against): contest for contest in reversed(evaluation.contests)}
    for policy in evaluation.policies:
        contest = contests.get((policy.name, evaluation.reference or ""))
        figures = {
            "gold": policy.gold,
            "right": policy.right,
            "win_rate": contest and contest.raw,
            "win_rate_decided": contest and contest.decided,
            "length_controlled": contest and contest.length_controlled,
            "judge": contest and contest.judge,
            "kl": policy.kl,
            "length": policy.length,
            "finished": policy.finished,
        }
        row = {
            name: asdict(found) if isinstance(found, Estimate) else found for name, found in figures.items()
        }
        yield {"policy": policy.name, **row}


def summary_table(evaluation: PolicyEvaluation) -> ConsoleTable:
    """The headline figures as a table for the console; true worth where somebody knows it."""
    from rich import box
    from rich.table import Table as ConsoleTable

    columns = (
        ("gold", "true worth", ".3f", ".2f", 1),
        ("right", "right, %", ".1f", ".0f", 100),
        ("win_rate", f"win rate\nvs {evaluation.reference}, %", ".1f", ".0f", 100),
        ("win_rate_decided", "without\nties, %", ".1f", ".0f", 100),
        ("kl", "KL", ".2f", "", 1),
        ("length", "tokens", ".1f", "", 1),
    )
    rows = [*policy_rows(evaluation)]
    # What nobody knows of any policy has no column.
    filled = [column for column in columns if any(row[column[0]] is not None for row in rows)]
    legend = [html.say(f"pipeline.legend.{name}") for name, *_ in filled if name in ("win_rate", "kl")]
    caption = " ".join([*legend, html.say("pipeline.legend.ends")])
    table = ConsoleTable(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("policy", no_wrap=True)
    for _, head, *_ in filled:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        figures = (_format_estimate(row[name], form, ends, scale) for name, _, form, ends, scale in filled)
        table.add_row(row["policy"], *figures)
    return table


def _format_estimate(estimate: Mapping[str, Any] | None, form: str, ends_form: str, scale: int) -> str:
    """A figure, and its interval where a form for its ends is given."""
    if estimate is None or estimate["value"] is None:
        return "–"
    text = format(scale * estimate["value"], form)
    if not ends_form or estimate["low"] is None:
        return text
    low, high = (format(scale * estimate[end], ends_form) for end in ("low", "high"))
    return f"{text} ({low}–{high})"


MAX_LISTED_OUTPUTS = 6


def trace_lines(pipeline: data.PipelineData, name: str) -> Iterator[str]:
    """The lines that trace a result back through the stages above it, each stage once."""
    return _trace_stage({stage.name: stage for stage in pipeline.stages}, name, 0, set())


def _trace_stage(
    by_name: Mapping[str, data.StageData], name: str, depth: int, visited: set[str]
) -> Iterator[str]:
    stage, indent = by_name.get(name), "  " * depth
    if stage is None or stage.state != "done":
        raise UserError(f"{name}: this stage has not ended, so there is nothing to trace")
    if name in visited:
        yield f"{indent}{name}: see above"
        return
    visited.add(name)
    commit = "" if stage.code.get("commit") is None else f" at {str(stage.code['commit'])[:12]}"
    changed = ", with changes" if stage.code.get("changed") else ""
    code = f"by plaudit {stage.code.get('plaudit')}{commit}{changed}"
    yield f"{indent}{name} ({stage.kind}), result {stage.result[:12]}, {code}, {stage.ended}"
    yield f"{indent}  {stage.command}"
    yield from (f"{indent}  {line}" for line in _traced_files(stage))
    for other in stage.needs:
        yield from _trace_stage(by_name, other, depth + 1, visited)


def _traced_files(stage: data.StageData) -> Iterator[str]:
    for entry in stage.inputs:
        if not entry.from_stage:
            yield f"{entry.name}: {entry.source}, {entry.hash[:12]}"
    for source in stage.snapshots:
        where = f"event {source.position} ({source.link[:12]}) of {source.store}, project {source.project}"
        yield f"labels of {source.rows}: {where}"
        rows = shlex.quote(str(stage.folder / source.rows))
        yield f"plaudit collect trace {rows} 1 --store {shlex.quote(source.store)}"
    for path, digest in list(stage.outputs.items())[:MAX_LISTED_OUTPUTS]:
        yield f"→ {path}, {digest[:12]}"
    if len(stage.outputs) > MAX_LISTED_OUTPUTS:
        more = len(stage.outputs) - MAX_LISTED_OUTPUTS
        yield f"→ and {more} more, in {stage.folder / 'stage.json'}"
