"""What would run, why, and what it costs: a dry run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from plaudit.runs.pipeline.run import StageSelection, validate_pipeline
from plaudit.runs.pipeline.spec import Pipeline
from plaudit.runs.pipeline.status import (
    PipelineContext,
    expected_seconds,
    format_clock,
    seconds_left,
    stage_status,
)
from plaudit.runs.pipeline.store import PipelineFolder

_UNKNOWN_COST = "its cost is known when what it needs is there"


def dry_run(pipeline: Pipeline, out: Path, selection: StageSelection) -> Iterator[str]:
    """A line for each stage with its state and why; below those that cost much, what they will cost."""
    validate_pipeline(pipeline)
    context = PipelineContext.of(PipelineFolder(path=out.absolute()), pipeline)
    forced, results, to_run = selection.forced_reasons(pipeline), dict[str, str](), set[str]()
    width = max(len(stage.name) for stage in pipeline.stages)
    for number, stage in enumerate(pipeline.stages, 1):
        status, is_requested = stage_status(context, stage, results, forced), True
        if selection.only and stage.name not in selection.only:
            status, is_requested = replace(status, state="waits", reason="not asked for"), False
        if status.result_hash is not None:
            results[stage.name] = status.result_hash
        elif is_requested:
            to_run.add(stage.name)
        state = f"{status.state}: {status.reason}" if status.reason else status.state
        yield f"{number:>2}  {stage.name:{width}}  {stage.kind.name:14}  {state}"
        if stage.name in to_run:
            is_known = status.stage_key is not None or not stage.kind.trains
            lines = stage.kind.cost(context, stage) if is_known else (_UNKNOWN_COST,)
            yield from (f"      {line}" for line in lines)
    seconds = context.earlier_seconds()
    finished = {stage.name for stage in pipeline.stages} - to_run
    times = expected_seconds(pipeline.stages, seconds, {})
    clock = format_clock(seconds_left(pipeline.stages, finished, {}, times, pipeline.jobs))
    basis = "as long as they took before" if to_run <= set(seconds) else "by the weights of the stages"
    count = f"{len(to_run)} of {len(pipeline.stages)} stages to run"
    yield f"{context.folder.path}: {count}, about {clock} ({basis})"
