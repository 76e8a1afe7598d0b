"""report.html of a pipeline: what was done, what came of it, what to doubt; the page stands alone.

What the checks found, and what a reader should doubt.

The top of the page: the finding in a sentence, what was done, the headline table.

From any number back to rows, weights and code; and the commands that make all of it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from pathlib import Path

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.files import atomic
from plaudit.report.charts.flow import FlowBox, flow_chart
from plaudit.report.html import Html, document, element, folded, read_stylesheet, section, shortened
from plaudit.report.pipeline.data import (
    CONFIG_FILE,
    CheckOutcome,
    PipelineData,
    StageData,
    StageInput,
    is_evaluation,
    is_pipeline,
    read_pipeline_folder,
)
from plaudit.report.pipeline.sections import (
    categories_section,
    confidence_section,
    length_and_diversity_section,
    reward_against_kl_section,
    reward_models_section,
    samples_section,
    training_section,
    win_rate_section,
)
from plaudit.report.pipeline.text import (
    NO_VALUE,
    best_policy_summary,
    contest_against_reference,
    estimate_cell,
    figures_table,
    short_name,
    time_text,
)
from plaudit.report.pipeline.warnings import MAX_NOTE_LENGTH, ReportWarning, report_warnings
from plaudit.report.reward_models.summary import accuracy_sentence, reported_models
from plaudit.report.run.data import read_run_data
from plaudit.report.run.page import report_html as page_of_training
from plaudit.report.run.page import version_text
from plaudit.report.words import counted, duration, percent

_MAX_NOTES = 40


def short_hash(digest: str) -> Html:
    """The beginning of a hash; the whole of it for those who point at it."""
    return element("code", {"title": digest}, f"{digest[:12]}…")


_CheckRow = tuple[str, CheckOutcome]


def checks_section(pipeline: PipelineData) -> Html:
    """Each check that had something to look at; those that pass are folded."""
    checked = [(short_name(stage.name), check) for stage in pipeline.stages for check in stage.checks]
    if not checked:
        return section(
            "What the checks found", "checks", element("p", {}, "No stage wrote down what its checks found.")
        )
    failed = [one for one in checked if one[1].verdict in ("FAIL", "allowed")]
    passed = [one for one in checked if one[1].verdict == "pass"]
    not_applicable = len(checked) - len(failed) - len(passed)
    summary = (
        f"{counted(len(checked), 'check')}. Pass: {len(passed)}. Do not: {len(failed)}. Nothing to "
        f"see: {not_applicable}."
    )
    parts = [_checks_table(failed)] if failed else []
    parts += [folded(f"Those that pass: {len(passed)}", _checks_table(passed))] if passed else []
    return section("What the checks found", "checks", element("p", {}, summary), *parts)


def warnings_section(pipeline: PipelineData, report_warnings: tuple[ReportWarning, ...]) -> Html:
    """Warnings in words, then what the evaluation and the runs noted by themselves."""
    items = [_warning_item(one) for one in report_warnings]
    warning_list = (
        [element("ul", {"class": "notes"}, *items)]
        if items
        else [
            element(
                "p",
                {},
                "Nothing crosses a threshold. That is not the same as: all is well. Read the samples.",
            )
        ]
    )
    notes = list(_note_items(pipeline, {one.finding for one in report_warnings}))
    omitted = [element("li", {}, f"{len(notes) - _MAX_NOTES:,} more, in the stages' notes.jsonl")]
    listed = [*notes[:_MAX_NOTES], *(omitted if len(notes) > _MAX_NOTES else [])]
    stage_notes = folded(
        f"What the stages said of themselves: {len(notes)}", element("ul", {"class": "notes"}, *listed)
    )
    return section("What to doubt", "warnings", *warning_list, *([stage_notes] if notes else []))


def _warning_item(warning: ReportWarning) -> Html:
    why = element("span", {"class": "quiet"}, f" {warning.reason}".replace(" %", "\N{NO-BREAK SPACE}%"))
    what = f": {warning.finding}. ".replace(" %", "\N{NO-BREAK SPACE}%")
    return element("li", {}, element("b", {}, warning.about), what, why)


def _note_items(pipeline: PipelineData, reported: Container[str]) -> Iterator[Html]:
    """Each sentence once, with the stages that said it."""
    stages_by_note: dict[str, list[str]] = {
        note: [] for note in (pipeline.evaluation.all_notes if pipeline.evaluation else ())
    }
    for stage in pipeline.stages:
        notes = [note.text for note in (stage.training_run.notes if stage.training_run else ())]
        for text in dict.fromkeys(
            [*(stage.summary_lines if stage.reward_evaluations else stage.summary_lines[1:]), *notes]
        ):
            stages_by_note.setdefault(text, []).append(short_name(stage.name))
    for text, stages in stages_by_note.items():
        if shortened(text, MAX_NOTE_LENGTH).rstrip(".") not in reported:
            about = [element("b", {}, ", ".join(stages)), ": "] if stages else []
            yield element("li", {}, *about, shortened(text, MAX_NOTE_LENGTH))


def _checks_table(checked: list[_CheckRow]) -> Html:
    head = element(
        "tr", {}, *(element("th", {"scope": "col"}, one) for one in ("stage", "check", "what it saw"))
    )
    body = [
        element(
            "tr",
            {},
            element("td", {}, stage),
            element(
                "td",
                {},
                short_name(check.name),
                " ",
                element("span", {"class": "quiet"}, short_name(check.verdict)),
            ),
            element("td", {}, shortened(check.finding, MAX_NOTE_LENGTH), *_remedy(check)),
        )
        for stage, check in checked
    ]
    parts = (element("thead", {}, head), element("tbody", {}, *body))
    box = {"class": "wide", "tabindex": 0, "role": "region", "aria-label": "checks"}
    return element("div", box, element("table", {}, *parts))


def _remedy(check: CheckOutcome) -> Iterator[Html]:
    if check.remedy and check.verdict != "pass":
        yield element("div", {"class": "quiet"}, f"To mend it: {shortened(check.remedy, MAX_NOTE_LENGTH)}")


_MAX_SENTENCE_LENGTH = 280


def report_header(pipeline: PipelineData, report_warnings: tuple[ReportWarning, ...]) -> Html:
    """Name, state, and the finding."""
    kind, state = ("finished", "Finished") if pipeline.finished else ("open", "Not finished")
    parts: list[str] = [element("b", {"class": kind}, state)]
    parts.append(f" · {counted(len(pipeline.stages), 'stage')}")
    if pipeline.seconds:
        parts.append(f", {duration(pipeline.seconds)} of work")
    ended = max((stage.ended for stage in pipeline.stages), default="")
    if ended:
        parts.append(f" · ended {time_text(ended)}")
    if report_warnings:
        parts += [" · ", element("a", {"href": "#warnings"}, counted(len(report_warnings), "warning"))]
    finding = (
        best_policy_summary(pipeline.evaluation) if pipeline.evaluation else _no_evaluation_sentence(pipeline)
    )
    return element(
        "header",
        {},
        element("h1", {}, shortened(pipeline.name, 120)),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, finding.replace(" %", "\N{NO-BREAK SPACE}%")),
        *(element("p", {}, line) for line in _unfinished_sentence(pipeline)),
    )


def stages_section(pipeline: PipelineData) -> Html:
    """The section with the pipeline drawn, beside each stage with its time and a sentence."""
    number_of = {stage.name: stage.number for stage in pipeline.stages}
    steps = [
        FlowBox(
            name=stage.name,
            caption=_stage_time(stage),
            needs=tuple(need for need in stage.needs if number_of.get(need, stage.number) < stage.number),
            anchor=stage.anchor,
            kind="done" if stage.state == "done" else "open",
        )
        for stage in pipeline.stages
    ]
    items = [_stage_item(stage) for stage in pipeline.stages]
    chart = flow_chart(f"The stages of {shortened(pipeline.name, 60)}", steps)
    words = element("div", {}, element("ol", {"class": "stages"}, *items))
    return section("What was done", "done", element("div", {"class": "pair"}, chart, words))


def headline_section(pipeline: PipelineData) -> Html:
    """Every policy with the figures that matter most."""
    title, name = "What came of it", "headline"
    evaluation, evaluation_stage = pipeline.evaluation, pipeline.evaluation_stage
    if evaluation is None or evaluation_stage is None:
        return section(title, name, element("p", {}, "No stage has compared policies yet."))
    wins = f"preferred to {short_name(evaluation.reference)}" if evaluation.reference else "preferred"
    columns = [
        *(["true worth"] if any(one.gold for one in evaluation.policies) else []),
        wins,
        "of those that differ",
        "at equal length",
        "KL, nats",
        "tokens",
        "ended",
    ]
    rows = [(short_name(one.name), _headline_cells(evaluation, one)) for one in evaluation.policies]
    about = element("p", {"class": "quiet"}, *_measurement_note(evaluation, evaluation_stage))
    return section(
        title, name, figures_table("Each figure with its 95 % interval over prompts", columns, rows), about
    )


def _headline_cells(evaluation: PolicyEvaluation, policy: PolicyFigures) -> list[Html]:
    contest = contest_against_reference(evaluation, policy.name)
    gold = [estimate_cell(policy.gold)] if any(other.gold for other in evaluation.policies) else []
    if policy.name == evaluation.reference:
        wins = [element("span", {"class": "quiet"}, text) for text in ("the reference", NO_VALUE, NO_VALUE)]
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


def _measurement_note(evaluation: PolicyEvaluation, evaluation_stage: StageData) -> Iterator[str]:
    judges = list(dict.fromkeys(short_name(one.judge) for one in evaluation.contests))
    yield f"{counted(evaluation.prompts, 'prompt')}, {counted(evaluation.answers, 'answer')} to each; "
    yield f"{shortened(evaluation.sampling, _MAX_SENTENCE_LENGTH)}. "
    if evaluation.gold:
        yield f"True worth is that of {short_name(evaluation.gold)}. "
    if judges:
        yield f"Wins are counted by {', '.join(judges)}; a tie is half a win. "
    yield element("a", {"href": f"#{evaluation_stage.anchor}"}, "Where these figures come from")
    yield "."


def _stage_caption(stage: StageData) -> str:
    kind = "" if stage.kind == stage.name else short_name(stage.kind)
    return " · ".join(part for part in (kind, _stage_time(stage)) if part)


def _stage_time(stage: StageData) -> str:
    if stage.seconds:
        return duration(stage.seconds)
    return {"done": "", "begun": "begun", "waiting": "to do"}[stage.state]


def _stage_item(stage: StageData) -> Html:
    link = element("a", {"href": f"#{stage.anchor}"}, element("b", {}, short_name(stage.name)))
    about = element("span", {"class": "quiet"}, f" {_stage_caption(stage)}" if _stage_caption(stage) else "")
    first_sentence = (
        accuracy_sentence(reported_models(stage.reward_evaluations))
        if stage.reward_evaluations
        else " ".join(stage.summary_lines[:1])
    )
    summary = shortened(first_sentence, _MAX_SENTENCE_LENGTH)
    return element("li", {}, link, about, element("div", {}, summary))


def _no_evaluation_sentence(pipeline: PipelineData) -> str:
    ended = sum(stage.state == "done" for stage in pipeline.stages)
    return (
        f"{ended} of {counted(len(pipeline.stages), 'stage')} have ended, and none of them compares policies."
    )


def _unfinished_sentence(pipeline: PipelineData) -> Iterator[str]:
    unfinished = [stage for stage in pipeline.stages if stage.state != "done"]
    if unfinished:
        names = ", ".join(
            f"{short_name(s.name)} ({'begun' if s.state == 'begun' else 'to do'})" for s in unfinished
        )
        yield f"Not ended yet: {names}. The page shows what is there; the same command goes on from here."


_MAX_CONFIG_LENGTH = 50_000
_MAX_PATH_LENGTH = 160
_MAX_OUTPUTS = 6
_RESULT_SUFFIXES = (".safetensors", "rows.jsonl", "policies.json", "scores.jsonl", "combined.json")
"""Endings of the files that a stage is there for."""


def provenance_section(pipeline: PipelineData) -> Html:
    """The section that leads from every stage to what went in, what came out, and the code that did it."""
    links = {stage.name: stage.anchor for stage in pipeline.stages}
    explanation = element(
        "p",
        {},
        "Each stage names what it was made from, so any number leads back to rows, weights and code. "
        "Contents are known by the first characters of their sha256; stage.json has all of it.",
    )
    stages = [_stage_provenance(one, links) for one in pipeline.stages]
    return section(
        "Where it comes from", "origins", explanation, element("div", {"class": "origins"}, *stages)
    )


def reproduction_section(pipeline: PipelineData) -> Html:
    """The section with the commands that reproduce the pipeline."""
    parts: list[Html] = []
    if pipeline.config:
        config = shlex.quote(str(pipeline.path / CONFIG_FILE))
        other = shlex.quote(f"{pipeline.path}-again")
        parts.append(_command_block("All of it, in another folder:", f"plaudit run {config} --out {other}"))
    commands = "\n".join(shortened(stage.command, 2000) for stage in pipeline.stages if stage.command)
    if commands:
        parts.append(_command_block("Stage by stage:", commands))
    parts.append(_command_block("This page again:", f"plaudit report {shlex.quote(str(pipeline.path))}"))
    path_note = "Paths are as they were when this page was written: run commands from the same place."
    parts.append(element("p", {"class": "quiet"}, path_note))
    if pipeline.config:
        text = element("pre", {}, element("code", {}, shortened(pipeline.config, _MAX_CONFIG_LENGTH)))
        parts.append(folded(f"{CONFIG_FILE}, every setting as it was resolved", text))
    return section("How to make it again", "again", *parts)


def _stage_provenance(stage: StageData, links: dict[str, str]) -> Html:
    title = element("h3", {"id": stage.anchor}, f"{stage.number} {short_name(stage.name)} ")
    rows = [
        element("tr", {}, element("th", {"scope": "row"}, name), element("td", {}, *content))
        for name, content in _provenance_rows(stage, links)
    ]
    return element("div", {"class": "origin"}, title, element("table", {}, element("tbody", {}, *rows)))


def _provenance_rows(stage: StageData, links: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    if stage.kind:
        yield "kind", [short_name(stage.kind)]
    for one in stage.inputs:
        yield f"in: {short_name(one.name)}", [*_input_parts(one, links)]
    yield from _output_rows(stage)
    yield from _key_and_code_rows(stage)


def _output_rows(stage: StageData) -> Iterator[tuple[str, list[str]]]:
    results = [name for name in stage.outputs if name.endswith(_RESULT_SUFFIXES)]
    names = (results or [*stage.outputs])[:_MAX_OUTPUTS]
    for name, digest in ((name, stage.outputs[name]) for name in names):
        yield "out", [f"{shortened(name, _MAX_PATH_LENGTH)} ", short_hash(digest)]
    if len(stage.outputs) > len(names):
        yield "out", [f"{counted(len(stage.outputs) - len(names), 'more file')}, in stage.json"]


def _key_and_code_rows(stage: StageData) -> Iterator[tuple[str, list[str]]]:
    if stage.key:
        yield "key", [short_hash(stage.key)]
    if stage.code:
        yield "plaudit", [shortened(version_text(stage.code), _MAX_PATH_LENGTH)]
    if stage.ended:
        duration_note = f" after {duration(stage.seconds)}" if stage.seconds else ""
        yield "ended", [time_text(stage.ended), duration_note]
    if stage.state != "done":
        yield "state", ["begun, and not ended" if stage.state == "begun" else "not begun"]


def _input_parts(stage_input: StageInput, links: dict[str, str]) -> Iterator[str]:
    source = shortened(stage_input.source, _MAX_PATH_LENGTH)
    yield (
        element("a", {"href": f"#{links[stage_input.source]}"}, source)
        if stage_input.source in links
        else source
    )
    yield " "
    yield short_hash(stage_input.hash)


def _command_block(caption: str, text: str) -> Html:
    return element("div", {}, element("p", {}, caption), element("pre", {}, element("code", {}, text)))


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
    found_warnings = report_warnings(pipeline)
    main = element(
        "main",
        {},
        report_header(pipeline, found_warnings),
        stages_section(pipeline),
        headline_section(pipeline),
        *win_rate_section(pipeline),
        *categories_section(pipeline),
        *training_section(pipeline),
        *reward_against_kl_section(pipeline),
        *reward_models_section(pipeline),
        *length_and_diversity_section(pipeline),
        *confidence_section(pipeline),
        *samples_section(pipeline),
        checks_section(pipeline),
        warnings_section(pipeline, found_warnings),
        provenance_section(pipeline),
        reproduction_section(pipeline),
    )
    return document(pipeline.name, main, style=report_style())


def _write(text: str, path: Path) -> Path:
    atomic.make_folder(path.parent)
    atomic.write_text(path, text)
    return path


def report_style() -> str:
    """The style sheets that a report needs beside the common one."""
    sheets = (
        ("plaudit.report.charts", "charts.css"),
        ("plaudit.report.run", "run.css"),
        ("plaudit.report", "reports.css"),
    )
    return "".join(read_stylesheet(package, name) for package, name in sheets)
