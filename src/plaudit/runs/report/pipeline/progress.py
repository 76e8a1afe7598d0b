"""Sections of the page of a pipeline about its stages: what was done, checked and noted, and by what."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass

from plaudit.runs.report import parts as html
from plaudit.runs.report.charts.flow import FlowBox, flow_chart
from plaudit.runs.report.pipeline.data import CONFIG_FILE, CheckOutcome, PipelineData, StageData
from plaudit.runs.report.pipeline.findings import MAX_NOTE_LENGTH
from plaudit.runs.report.reward_models.summary import accuracy_sentence, reported_models
from plaudit.runs.report.run.page import version_text
from plaudit.runs.report.words import counted, duration, short_name, shortened, time_text

_MAX_SENTENCE_LENGTH, _MAX_PATH_LENGTH, _MAX_OUTPUTS, _MAX_COMMAND_LENGTH = 280, 160, 6, 2000
_RESULT_SUFFIXES = (".safetensors", "rows.jsonl", "policies.json", "scores.jsonl", "combined.json")
_STATE_WORDS = {"done": "", "begun": "begun", "people": "waits for people", "waiting": "to do"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStage:
    anchor: str
    number: int
    name: str
    caption: str
    """Its kind, where its name does not say it, and its time."""
    summary: str
    origins: html.Origins


@dataclass(frozen=True, slots=True)
class StageList:
    """The part of a page that tells of all stages in short."""

    stages: list[ReportedStage]


@dataclass(frozen=True, slots=True)
class StageOrigins:
    """The part of a page that leads from every stage to what went in, what came out, and its code."""

    stages: list[ReportedStage]


@dataclass(frozen=True, slots=True)
class Checks:
    """The part of a page that has the outcome of checks, each with its stage."""

    checks: list[tuple[str, CheckOutcome]]


def progress_text(pipeline: PipelineData) -> str:
    """How many stages there are, how long they took and when the last of them ended."""
    work = f", {duration(pipeline.seconds)} of work" if pipeline.seconds else ""
    ended = max((stage.ended for stage in pipeline.stages), default="")
    when = f" · ended {time_text(ended)}" if ended else ""
    return f"{counted(len(pipeline.stages), 'stage')}{work}{when}"


def unfinished_stages(pipeline: PipelineData) -> str:
    return ", ".join(
        f"{short_name(stage.name)} ({_STATE_WORDS[stage.state]})"
        for stage in pipeline.stages
        if stage.state != "done"
    )


def stages_section(pipeline: PipelineData, brief: str = "") -> html.Section:
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
    chart = flow_chart(f"The stages of {shortened(pipeline.name, 60)}", steps)
    texts = html.Box("", [StageList(_reported_stages(pipeline))])
    return html.Section("Stages", "done", [html.Box("pair", [chart, texts])], brief)


def origins_section(pipeline: PipelineData) -> html.Section:
    parts = [html.Text(html.say("pipeline.lineage")), StageOrigins(_reported_stages(pipeline))]
    return html.Section("Lineage", "origins", parts)


def _reported_stages(pipeline: PipelineData) -> list[ReportedStage]:
    links = {stage.name: f"#{stage.anchor}" for stage in pipeline.stages}
    return [
        ReportedStage(
            anchor=stage.anchor,
            number=stage.number,
            name=short_name(stage.name),
            caption=_stage_caption(stage),
            summary=shortened(_first_sentence(stage), _MAX_SENTENCE_LENGTH),
            origins=html.Origins([*_origins(stage, links)]),
        )
        for stage in pipeline.stages
    ]


def _stage_caption(stage: StageData) -> str:
    kind = "" if stage.kind == stage.name else short_name(stage.kind)
    return " · ".join(part for part in (kind, _stage_time(stage)) if part)


def _stage_time(stage: StageData) -> str:
    return duration(stage.seconds) if stage.seconds else _STATE_WORDS[stage.state]


def _first_sentence(stage: StageData) -> str:
    if stage.reward_evaluations:
        return accuracy_sentence(reported_models(stage.reward_evaluations))
    return " ".join(stage.summary_lines[:1])


def _origins(stage: StageData, links: dict[str, str]) -> Iterator[html.Origin]:
    if stage.kind:
        yield html.Origin("kind", short_name(stage.kind))
    for entry in stage.inputs:
        name, source = f"in: {short_name(entry.name)}", shortened(entry.source, _MAX_PATH_LENGTH)
        yield html.Origin(name, source, entry.hash, links.get(entry.source, ""))
    for labels in stage.snapshots:
        text = shortened(html.say("pipeline.labels_of", labels=labels), _MAX_PATH_LENGTH)
        yield html.Origin("labels", text, labels.link)
    results = [name for name in stage.outputs if name.endswith(_RESULT_SUFFIXES)]
    names = (results or [*stage.outputs])[:_MAX_OUTPUTS]
    for name in names:
        yield html.Origin("out", shortened(name, _MAX_PATH_LENGTH), stage.outputs[name])
    if len(stage.outputs) > len(names):
        yield html.Origin("out", html.say("pipeline.more_files", count=len(stage.outputs) - len(names)))
    yield from _key_code_and_end(stage)


def _key_code_and_end(stage: StageData) -> Iterator[html.Origin]:
    if stage.key:
        yield html.Origin("key", digest=stage.key)
    if stage.code:
        yield html.Origin("plaudit", shortened(version_text(stage.code), _MAX_PATH_LENGTH))
    if stage.ended:
        after = f" after {duration(stage.seconds)}" if stage.seconds else ""
        yield html.Origin("ended", f"{time_text(stage.ended)}{after}")
    if stage.state != "done":
        state = {"begun": "begun, and not ended", "people": f"waits for people: {stage.missing}"}
        yield html.Origin("state", state.get(stage.state, "not begun"))


def checks_section(pipeline: PipelineData) -> html.Section:
    """The checks that had something to look at, each with its stage, and how many came out how."""
    checked = [(short_name(stage.name), check) for stage in pipeline.stages for check in stage.checks]
    if not checked:
        return html.Section("Checks", "checks", [html.Text(html.say("pipeline.no_checks"))])
    failed = [row for row in checked if row[1].verdict in ("FAIL", "allowed", "warn")]
    passed = [row for row in checked if row[1].verdict == "pass"]
    counts = {"checks": len(checked), "failed": len(failed), "passed": len(passed)}
    brief = html.say("pipeline.checks", **counts, rest=len(checked) - len(failed) - len(passed))
    folded = html.Folded(html.say("pipeline.passed", count=len(passed)), [Checks(passed)])
    parts = [*([Checks(failed)] if failed else []), *([folded] if passed else [])]
    return html.Section("Checks", "checks", parts, brief)


def stage_notes(pipeline: PipelineData, reported: Container[str]) -> Iterator[html.Note]:
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
            note = shortened(text.removeprefix(f"{who}: "), MAX_NOTE_LENGTH)
            yield html.Note(f": {note}" if who else note, about=who)


def reproduce_section(pipeline: PipelineData) -> html.Section:
    parts: list[html.Part] = []
    if pipeline.config:
        config = shlex.quote(str(pipeline.path / CONFIG_FILE))
        other = shlex.quote(f"{pipeline.path}-again")
        parts.append(html.Command(html.say("again.pipeline"), f"plaudit run {config} --out {other}"))
    commands = [shortened(stage.command, _MAX_COMMAND_LENGTH) for stage in pipeline.stages if stage.command]
    if commands:
        parts.append(html.Command(html.say("again.stages"), "\n".join(commands)))
    parts.append(html.Command(html.say("again.page"), f"plaudit report {shlex.quote(str(pipeline.path))}"))
    parts.append(html.Text(html.say("again.paths"), "quiet"))
    if pipeline.config:
        parts.append(html.Folded(html.say("again.config", verb="resolved"), [html.Code(pipeline.config)]))
    return html.Section("Reproduce", "again", parts)
