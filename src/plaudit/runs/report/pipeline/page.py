"""report.html of a pipeline: what was done, what came of it, what to doubt; the page stands alone.

From any number on it a way leads back to stages, files, hashes, rows, weights and code, and it has the
commands that make all of it again. The short form is summary.json and the table of the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from plaudit.errors import UserError
from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.files import atomic
from plaudit.runs.pipeline.kinds import ReportWarning, page_sections
from plaudit.runs.report.charts.flow import FlowBox, flow_chart
from plaudit.runs.report.figures import NO_VALUE, Cell, Table, estimate_cell
from plaudit.runs.report.page import render
from plaudit.runs.report.pipeline.answers import (
    FOLDED_LENGTH,
    MAX_TEXT_LENGTH,
    drawn_questions,
    reference_name,
    sampled_answers,
)
from plaudit.runs.report.pipeline.data import (
    CONFIG_FILE,
    PipelineData,
    StageData,
    is_evaluation,
    is_pipeline,
    read_pipeline_folder,
)
from plaudit.runs.report.pipeline.findings import (
    MAX_NOTE_LENGTH,
    NO_RANKING,
    caution_sentences,
    contest_against_reference,
    ranking_sentences,
    report_warnings,
)
from plaudit.runs.report.pipeline.glance import (
    evaluation_outcome,
    opening_note,
    opening_picture,
    opening_sentence,
)
from plaudit.runs.report.pipeline.labels import labels_sentence, labels_table, revisions_tables
from plaudit.runs.report.pipeline.sections import (
    categories_table,
    confidence_table,
    contests_table,
    diversity_table,
    judges_table,
    kl_charts,
    lead_chart,
    length_chart,
    reward_models_parts,
    training_curves,
    win_rate_charts,
)
from plaudit.runs.report.reward_models.summary import accuracy_sentence, reported_models
from plaudit.runs.report.run.data import read_run_data
from plaudit.runs.report.run.page import report_html as page_of_training, version_text
from plaudit.runs.report.words import counted, duration, percent, short_name, shortened, time_text

if TYPE_CHECKING:
    from rich.table import Table as ConsoleTable

    from plaudit.evaluation.policies.result import Contest, PolicyEvaluation
    from plaudit.evaluation.stats import Estimate


_MAX_NOTES = 40
_FIRST_WARNINGS = 3
_MAX_SENTENCE_LENGTH = 280
_MAX_PATH_LENGTH = 160
_MAX_OUTPUTS = 6
_RESULT_SUFFIXES = (".safetensors", "rows.jsonl", "policies.json", "scores.jsonl", "combined.json")
"""Endings of the files that a stage is there for."""
_STATE_WORDS = {"done": "", "begun": "begun", "people": "waits for people", "waiting": "to do"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrigin:
    """One thing that a stage was made from or by, or that it made."""

    name: str
    text: str = ""
    """What it is called; empty where only its hash is known."""
    link: str = ""
    """The part of the page that says where it comes from itself."""
    digest: str = ""
    """The sha256 of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStage:
    """A stage in short."""

    anchor: str
    number: int
    """Its place, from 1."""
    name: str
    caption: str
    """Its kind, where its name does not say it, and its time."""
    summary: str
    origins: tuple[StageOrigin, ...]


def write_report(folder: Path, out: Path | None = None, *, pipeline: PipelineData | None = None) -> Path:
    """Writes ``report.html`` of what lies in the folder, or ``pipeline`` read of it; returns where it is."""
    return _write(pipeline_page(pipeline or read_pipeline_folder(folder)), out or folder / "report.html")


def write_folder_report(folder: Path, out: Path | None = None) -> Path:
    """The page of a pipeline, of an evaluation, or of a training run, which has a page of its own."""
    if is_pipeline(folder) or is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return write_report(folder, out)
    facts = read_run_data(folder)
    method = facts.lineage.method if facts.lineage else ""
    text = page_of_training(facts, f"plaudit train {method or 'sft'}")
    return _write(text, out or folder / "report.html")


def pipeline_page(pipeline: PipelineData) -> str:
    evaluation, warnings = pipeline.evaluation, report_warnings(pipeline)
    return render(
        "pipeline",
        pipeline=pipeline,
        progress=progress_text(pipeline),
        finding=_finding(pipeline, warnings),
        note=opening_note(pipeline),
        first_warnings=sorted(warnings, key=lambda warning: not warning.grave)[:_FIRST_WARNINGS],
        unfinished=_unfinished_stages(pipeline),
        flow=stages_chart(pipeline),
        stages=reported_stages(pipeline),
        training=[training_curves(stage, run) for stage, run in pipeline.training_stages],
        warnings=warnings,
        notes=[*_stage_notes(pipeline, {warning.finding for warning in warnings})],
        max_notes=_MAX_NOTES,
        commands=[*_commands(pipeline)],
        max_note_length=MAX_NOTE_LENGTH,
        max_text_length=MAX_TEXT_LENGTH,
        folded_length=FOLDED_LENGTH,
        judges=judges_table(pipeline),
        sections=[*_wing_sections(pipeline)],
        labels=labels_table(pipeline),
        labels_sentence=labels_sentence(pipeline),
        revisions=revisions_tables(pipeline),
        **_evaluation_parts(evaluation),
        **reward_models_parts(pipeline),
        **_check_parts(pipeline),
    )


def _wing_sections(pipeline: PipelineData) -> Iterator[dict[str, object]]:
    """The sections that wings bring, where some stage has something to show in them."""
    for name, section in page_sections().items():
        stages = [stage for stage in pipeline.stages if name in stage.findings]
        if stages:
            yield {"name": name, "title": section.title, "note": section.note, "stages": stages}


def _evaluation_parts(evaluation: PolicyEvaluation | None) -> dict[str, object]:
    """What the page shows of an evaluation of policies; each part is empty where there is nothing to show."""
    if evaluation is None:
        names = ("lead", "questions", "everybody", "headline", "wins", "categories", "distance")
        return dict.fromkeys((*names, "confidence", "samples"), ())
    confidence, confidence_charts = confidence_table(evaluation)
    outcome, picture = evaluation_outcome(evaluation), opening_picture(evaluation)
    before = outcome.before
    questions = before and drawn_questions(evaluation, before=before.name, after=outcome.after.name)
    # Of two policies the first picture has everything already.
    others = len(evaluation.policies) > 2 or picture is None
    return {
        "lead": picture or "",
        "questions": questions,
        "everybody": (others and lead_chart(evaluation)) or "",
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
    to = short_name(evaluation.reference or "the reference")
    columns = [
        *(["true worth"] if any(policy.gold for policy in evaluation.policies) else []),
        *(f"win rate against {to}", "without ties", "at equal length"),
        *(f"KL to {to}, nats", "length, tokens", "finished"),
    ]
    rows = [(short_name(policy.name), _headline_cells(evaluation, policy)) for policy in evaluation.policies]
    caption = "Each figure with its 95 % interval over prompts"
    # Not stacked: policies are compared down a column, also on a phone, where the table scrolls sideways.
    return Table(caption=caption, columns=columns, rows=rows, stacked=False)


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
    if judges:
        yield f"Win rates are by {', '.join(judges)}; a tie counts half."


def _finding(pipeline: PipelineData, warnings: Sequence[ReportWarning]) -> tuple[str, ...]:
    """What stands first: the outcome in a sentence, then who leads, then what may overturn it."""
    if pipeline.evaluation is None:
        return _other_finding(pipeline)
    first = opening_sentence(pipeline) or NO_RANKING
    return (first, *ranking_sentences(pipeline.evaluation), *caution_sentences(warnings))


def _other_finding(pipeline: PipelineData) -> tuple[str, ...]:
    """What there is to say first where no stage compared policies."""
    findings = [found for stage in pipeline.stages for found in stage.findings.values()]
    return findings[-1].sentences if findings else (_no_evaluation_sentence(pipeline),)


def _no_evaluation_sentence(pipeline: PipelineData) -> str:
    ended = sum(stage.state == "done" for stage in pipeline.stages)
    stages = counted(len(pipeline.stages), "stage")
    return f"{ended} of {stages} have ended, and none of them compares policies."


def _unfinished_stages(pipeline: PipelineData) -> str:
    return ", ".join(
        f"{short_name(stage.name)} ({_STATE_WORDS[stage.state]})"
        for stage in pipeline.stages
        if stage.state != "done"
    )


def _check_parts(pipeline: PipelineData) -> dict[str, object]:
    """The checks that had something to look at, each with its stage, and how many came out how."""
    checked = [(short_name(stage.name), check) for stage in pipeline.stages for check in stage.checks]
    failed = [row for row in checked if row[1].verdict in ("FAIL", "allowed", "warn")]
    passed = [row for row in checked if row[1].verdict == "pass"]
    not_applicable = len(checked) - len(failed) - len(passed)
    summary = (
        f"{counted(len(checked), 'check')}. Pass: {len(passed)}. Do not: {len(failed)}. "
        f"Nothing to see: {not_applicable}."
    )
    return {
        "checks_summary": summary if checked else "",
        "failed_checks": failed,
        "passed_checks": passed,
    }


def _stage_notes(pipeline: PipelineData, reported: Container[str]) -> Iterator[tuple[str, str]]:
    """What the evaluation and the stages noted by themselves: each sentence once, after those who said it."""
    stages_by_note: dict[str, list[str]] = {
        note: [] for note in (pipeline.evaluation.all_notes if pipeline.evaluation else ())
    }
    for stage in pipeline.stages:
        notes = [note.text for note in (stage.training_run.notes if stage.training_run else ())]
        # The first line already stands in the stage's summary, unless a sentence on accuracy took its place.
        sentences = stage.summary_lines if stage.reward_evaluations else stage.summary_lines[1:]
        for text in dict.fromkeys([*sentences, *notes]):
            stages_by_note.setdefault(text, []).append(short_name(stage.name))
    for text, stages in stages_by_note.items():
        if shortened(text, MAX_NOTE_LENGTH).rstrip(".") not in reported:
            who = ", ".join(stages)
            # A stage is often called after its algorithm, which the sentence names too.
            yield who, shortened(text.removeprefix(f"{who}: "), MAX_NOTE_LENGTH)


def progress_text(pipeline: PipelineData) -> str:
    """How many stages there are, how long they took and when the last of them ended."""
    work = f", {duration(pipeline.seconds)} of work" if pipeline.seconds else ""
    ended = max((stage.ended for stage in pipeline.stages), default="")
    when = f" · ended {time_text(ended)}" if ended else ""
    return f"{counted(len(pipeline.stages), 'stage')}{work}{when}"


def stages_chart(pipeline: PipelineData) -> Markup:
    number_of = {stage.name: stage.number for stage in pipeline.stages}
    steps = [
        FlowBox(
            name=stage.name,
            caption=_stage_time(stage),
            # A config written by hand may run in a circle; downward arrows alone can always be drawn.
            needs=tuple(need for need in stage.needs if number_of.get(need, stage.number) < stage.number),
            anchor=stage.anchor,
            kind="done" if stage.state == "done" else "open",
        )
        for stage in pipeline.stages
    ]
    return flow_chart(f"The stages of {shortened(pipeline.name, 60)}", steps)


def reported_stages(pipeline: PipelineData) -> list[ReportedStage]:
    links = {stage.name: f"#{stage.anchor}" for stage in pipeline.stages}
    return [
        ReportedStage(
            anchor=stage.anchor,
            number=stage.number,
            name=short_name(stage.name),
            caption=_stage_caption(stage),
            summary=shortened(_first_sentence(stage), _MAX_SENTENCE_LENGTH),
            origins=tuple(_origins(stage, links)),
        )
        for stage in pipeline.stages
    ]


def _stage_caption(stage: StageData) -> str:
    kind = "" if stage.kind == stage.name else short_name(stage.kind)
    return " · ".join(part for part in (kind, _stage_time(stage)) if part)


def _stage_time(stage: StageData) -> str:
    if stage.seconds:
        return duration(stage.seconds)
    return _STATE_WORDS[stage.state]


def _first_sentence(stage: StageData) -> str:
    if stage.reward_evaluations:
        return accuracy_sentence(reported_models(stage.reward_evaluations))
    return " ".join(stage.summary_lines[:1])


def _origins(stage: StageData, links: dict[str, str]) -> Iterator[StageOrigin]:
    if stage.kind:
        yield StageOrigin(name="kind", text=short_name(stage.kind))
    for entry in stage.inputs:
        yield StageOrigin(
            name=f"in: {short_name(entry.name)}",
            text=shortened(entry.source, _MAX_PATH_LENGTH),
            link=links.get(entry.source, ""),
            digest=entry.hash,
        )
    for labels in stage.snapshots:
        text = f"project {labels.project} of {labels.store}, event {labels.position}"
        yield StageOrigin(name="labels", text=shortened(text, _MAX_PATH_LENGTH), digest=labels.link)
    results = [name for name in stage.outputs if name.endswith(_RESULT_SUFFIXES)]
    names = (results or [*stage.outputs])[:_MAX_OUTPUTS]
    for name in names:
        yield StageOrigin(name="out", text=shortened(name, _MAX_PATH_LENGTH), digest=stage.outputs[name])
    if len(stage.outputs) > len(names):
        more = counted(len(stage.outputs) - len(names), "more file")
        yield StageOrigin(name="out", text=f"{more}, in stage.json")
    yield from _key_code_and_end(stage)


def _key_code_and_end(stage: StageData) -> Iterator[StageOrigin]:
    if stage.key:
        yield StageOrigin(name="key", digest=stage.key)
    if stage.code:
        yield StageOrigin(name="plaudit", text=shortened(version_text(stage.code), _MAX_PATH_LENGTH))
    if stage.ended:
        after = f" after {duration(stage.seconds)}" if stage.seconds else ""
        yield StageOrigin(name="ended", text=f"{time_text(stage.ended)}{after}")
    if stage.state != "done":
        state = {"begun": "begun, and not ended", "people": f"waits for people: {stage.missing}"}
        yield StageOrigin(name="state", text=state.get(stage.state, "not begun"))


def _commands(pipeline: PipelineData) -> Iterator[tuple[str, str]]:
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


TABLE_LEGEND = (
    "win rate: how often its answer is the better one, a tie counting one half; without ties: where the two "
    "differ. KL: how far it went from the reference, in nats an answer. "
    "In brackets 95 % intervals over prompts."
)
"""The legend under the table of policies."""


def write_summary(pipeline: PipelineData) -> None:
    """Seconds and first sentences of all stages that have ended, and the figures of the last evaluation."""
    evaluated, evaluation = pipeline.evaluation_stage, pipeline.evaluation
    config = yaml.safe_load(pipeline.config)
    stages = [
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
        "stages": stages,
        "evaluation": None if evaluated is None else evaluated.name,
        "sentence": opening_sentence(pipeline),
        "reference": None if evaluation is None else evaluation.reference,
        "table": [] if evaluation is None else [*policy_rows(evaluation)],
    }
    atomic.write_json(pipeline.path / "summary.json", summary)


def policy_rows(evaluation: PolicyEvaluation) -> Iterator[dict[str, Any]]:
    for policy in evaluation.policies:
        contest = _find_contest(evaluation.contests, policy.name, evaluation.reference)
        yield {
            "policy": policy.name,
            "gold": _estimate_dict(policy.gold),
            "win_rate": None if contest is None else _estimate_dict(contest.raw),
            "win_rate_decided": None if contest is None else _estimate_dict(contest.decided),
            "length_controlled": None if contest is None else _estimate_dict(contest.length_controlled),
            "judge": None if contest is None else contest.judge,
            "kl": _estimate_dict(policy.kl),
            "length": _estimate_dict(policy.length),
            "finished": _estimate_dict(policy.finished),
        }


def summary_table(evaluation: PolicyEvaluation) -> ConsoleTable:
    """The headline figures as a table for the console; true worth where somebody knows it."""
    from rich import box
    from rich.table import Table as ConsoleTable

    table = ConsoleTable(box=box.SIMPLE_HEAD, pad_edge=False, caption=TABLE_LEGEND, caption_justify="left")
    table.add_column("policy", no_wrap=True)
    heads = (
        "true worth",
        f"win rate\nvs {evaluation.reference}, %",
        "without\nties, %",
        "KL",
        "tokens",
    )
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in policy_rows(evaluation):
        table.add_row(
            row["policy"],
            _format_estimate(row["gold"], ".3f", ".2f"),
            _format_share(row["win_rate"]),
            _format_share(row["win_rate_decided"]),
            _format_estimate(row["kl"], ".2f"),
            _format_estimate(row["length"], ".1f"),
        )
    return table


def _find_contest(contests: Sequence[Contest], policy: str, against: str | None) -> Contest | None:
    return next(
        (contest for contest in contests if (contest.policy, contest.against) == (policy, against)), None
    )


def _estimate_dict(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _format_estimate(value: Mapping[str, Any] | None, form: str, interval_form: str | None = None) -> str:
    """A figure, and its interval where a form for its ends is given."""
    if value is None or value["value"] is None:
        return "–"
    text = format(value["value"], form)
    if interval_form is None or value["low"] is None:
        return text
    return f"{text} ({format(value['low'], interval_form)}–{format(value['high'], interval_form)})"


def _format_share(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return _format_estimate(None, "")
    percent = {name: None if value[name] is None else 100 * value[name] for name in ("value", "low", "high")}
    return _format_estimate(percent, ".1f", ".0f")


MAX_LISTED_OUTPUTS = 6
"""Files of a stage that are listed."""


def trace_lines(pipeline: PipelineData, name: str) -> Iterator[str]:
    """The lines that trace a result back through the stages above it, each stage once."""
    return _trace_stage({stage.name: stage for stage in pipeline.stages}, name, 0, set())


def _trace_stage(stages: Mapping[str, StageData], name: str, depth: int, visited: set[str]) -> Iterator[str]:
    stage, indent = stages.get(name), "  " * depth
    if stage is None or stage.state != "done":
        raise UserError(f"{name}: this stage has not ended, so there is nothing to trace")
    if name in visited:
        yield f"{indent}{name}: see above"
        return
    visited.add(name)
    code = _code_text(stage.code)
    yield f"{indent}{name} ({stage.kind}), result {stage.result[:12]}, {code}, {stage.ended}"
    yield f"{indent}  {stage.command}"
    yield from (f"{indent}  {line}" for line in _traced_files(stage))
    for other in stage.needs:
        yield from _trace_stage(stages, other, depth + 1, visited)


def _traced_files(stage: StageData) -> Iterator[str]:
    """What went into a stage from outside, what leads from its rows to people's labels, and what it made."""
    for entry in stage.inputs:
        if not entry.from_stage:
            yield f"{entry.name}: {entry.source}, {entry.hash[:12]}"
    for labels in stage.snapshots:
        where = f"event {labels.position} ({labels.link[:12]}) of {labels.store}, project {labels.project}"
        yield f"labels of {labels.rows}: {where}"
        rows = shlex.quote(str(stage.folder / labels.rows))
        yield f"plaudit collect trace {rows} 1 --store {shlex.quote(labels.store)}"
    for path, digest in list(stage.outputs.items())[:MAX_LISTED_OUTPUTS]:
        yield f"→ {path}, {digest[:12]}"
    if len(stage.outputs) > MAX_LISTED_OUTPUTS:
        more = len(stage.outputs) - MAX_LISTED_OUTPUTS
        yield f"→ and {more} more, in {stage.folder / 'stage.json'}"


def _code_text(code: Mapping[str, Any]) -> str:
    commit = "" if code.get("commit") is None else f" at {str(code['commit'])[:12]}"
    changed = ", with changes" if code.get("changed") else ""
    return f"by plaudit {code.get('plaudit')}{commit}{changed}"
