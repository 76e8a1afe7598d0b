"""What the stages of a pipeline that cost much will cost: machines that train, and people who label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plaudit.data.files import raw_rows
from plaudit.methods.registry import preflight_methods
from plaudit.runs.pipeline.collecting import CollectSettings
from plaudit.runs.pipeline.spec import Stage
from plaudit.runs.pipeline.status import PipelineContext, StageStatus, store_of

if TYPE_CHECKING:
    from plaudit.collect.timing import Timing


def cost_lines(context: PipelineContext, stage: Stage, status: StageStatus) -> Iterator[str]:
    """The arithmetic of plaudit plan for a stage that is to run; nothing is measured."""
    if stage.kind.settings is CollectSettings:
        yield from _labelling_lines(context, stage)
    elif stage.kind.trains:
        yield from _training_lines(context, stage, status)


def _training_lines(context: PipelineContext, stage: Stage, status: StageStatus) -> Iterator[str]:
    """The arithmetic and the memory of a run."""
    if status.stage_key is None:
        yield "its cost is known when what it needs is there"
    elif stage.kind.name not in preflight_methods():
        yield "it is made of other runs: plaudit plan tells the cost of each"
    else:
        from plaudit.runs.planner.render import cost_sentences

        # Rows of several sources are joined for the count alone; a dry run leaves nothing behind.
        with TemporaryDirectory() as joined:
            yield from cost_sentences(stage.kind.name, context.config(stage, Path(joined)))


def _labelling_lines(context: PipelineContext, stage: Stage) -> Iterator[str]:
    """The hours and the money of labels by people; simulated ones cost nothing."""
    from plaudit.runs.planner.labelling import LabellingRequest, labelling_cost, labelling_sentences

    settings: CollectSettings = context.config(stage)
    if settings.pool is not None:
        return
    tasks = settings.n or _row_count(settings.prompts if settings.data is None else settings.data)
    if not tasks:
        yield "what its labels cost is known when the rows are there"
        return
    project = settings.settings_of_project(stage.name)
    timing = _timing(store_of(context.folder, stage), project.name)
    measured = None if timing is None else timing.median_seconds
    request = LabellingRequest(
        ask=project.ask,
        tasks=tasks,
        overlap=project.overlap,
        most=project.limit,
        seconds=measured,
        measured=0 if timing is None or measured is None else timing.timed,
        checks=(project.gold_share if project.gold_rows else 0.0) + project.repeat,
        qualify=project.qualify_n,
    )
    yield from labelling_sentences(request, labelling_cost(request))
    yield "other seconds, pay or people: plaudit plan labels"


def _row_count(path: Path | None) -> int | None:
    """How many rows a file has; None of what is not there yet, or is more than one file."""
    return sum(1 for _ in raw_rows(path)) if path is not None and path.is_file() else None


def _timing(address: str, project: str) -> Timing | None:
    """What the project's people took so far; None where nobody has labelled in it."""
    # An address of a server is not asked by a dry run: it need not be up.
    if not Path(address).is_file():
        return None
    from plaudit.collect.store import open_store
    from plaudit.collect.timing import project_timing

    with closing(open_store(address)) as store:
        return project_timing(store, project) if project in store.projects() else None
