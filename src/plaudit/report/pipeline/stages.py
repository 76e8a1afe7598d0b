"""The stages of a pipeline as a page shows them: drawn, told, and traced to rows, weights and code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from plaudit.report.charts.flow import FlowBox, flow_chart
from plaudit.report.pipeline.data import PipelineData, StageData
from plaudit.report.reward_models.summary import accuracy_sentence, reported_models
from plaudit.report.run.page import version_text
from plaudit.report.words import counted, duration, short_name, shortened, time_text

_MAX_SENTENCE_LENGTH = 280
_MAX_PATH_LENGTH = 160
_MAX_OUTPUTS = 6
_RESULT_SUFFIXES = (".safetensors", "rows.jsonl", "policies.json", "scores.jsonl", "combined.json")
"""Endings of the files that a stage is there for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrigin:
    """One thing that a stage was made from or by, or that it made.

    Example: ``StageOrigin(name="in: model", text="sft", link="#stage-2", digest="2c26…")``
    """

    name: str
    """What it is."""
    text: str = ""
    """What it is called; empty where only its hash is known."""
    link: str = ""
    """The part of the page that says where it comes from itself."""
    digest: str = ""
    """The sha256 of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStage:
    """A stage in short.

    Example: ``ReportedStage(anchor="stage-2", number=2, name="sft", caption="7 s", summary="…", origins=())``
    """

    anchor: str
    """What leads to its origins."""
    number: int
    """Its place, from 1."""
    name: str
    """Its name, as it has room."""
    caption: str
    """Its kind, where its name does not say it, and its time."""
    summary: str
    """What came of it, in a sentence."""
    origins: tuple[StageOrigin, ...]
    """Where it comes from."""


def progress_text(pipeline: PipelineData) -> str:
    """How many stages there are, how long they took and when the last of them ended."""
    work = f", {duration(pipeline.seconds)} of work" if pipeline.seconds else ""
    ended = max((stage.ended for stage in pipeline.stages), default="")
    when = f" · ended {time_text(ended)}" if ended else ""
    return f"{counted(len(pipeline.stages), 'stage')}{work}{when}"


def stages_chart(pipeline: PipelineData) -> Markup:
    """The pipeline drawn."""
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
    return flow_chart(f"The stages of {shortened(pipeline.name, 60)}", steps)


def reported_stages(pipeline: PipelineData) -> list[ReportedStage]:
    """Every stage in short."""
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
    return {"done": "", "begun": "begun", "waiting": "to do"}[stage.state]


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
        state = "begun, and not ended" if stage.state == "begun" else "not begun"
        yield StageOrigin(name="state", text=state)
