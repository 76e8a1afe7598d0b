"""What a pipeline would do: the stages, which are kept and which run and why, and what training will cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.pipeline.course import Wish, clock, forced_by
from plaudit.pipeline.fingerprints import Fingerprints
from plaudit.pipeline.folder import Folder, read_seal
from plaudit.pipeline.looking import look_over
from plaudit.pipeline.stage import Pipeline
from plaudit.pipeline.standing import Place, Standing, refuse_unknown, standing
from plaudit.pipeline.time_left import expected, seconds_left
from plaudit.pipeline.work import Work
from plaudit.recipes.methods import looked_at


def look_ahead(pipeline: Pipeline, out: Path, wish: Wish) -> Iterator[str]:
    """A line for each stage, and under those that train what they will cost, where their inputs are there."""
    look_over(pipeline)
    folder = Folder(path=out.absolute())
    refuse_unknown(pipeline, [name for name in (wish.begin, *wish.only) if name], "stages")
    place = Place(folder=folder, pipeline=pipeline, prints=Fingerprints(folder.path / "fingerprints.json"))
    forced, results = forced_by(pipeline, wish), dict[str, str]()
    width, to_run = max(len(stage.name) for stage in pipeline.stages), set[str]()
    for number, stage in enumerate(pipeline.stages, 1):
        found = standing(place, stage, results, forced)
        if wish.only and stage.name not in wish.only:
            found = replace(found, state="waits", why="not asked for")
        if found.result is not None:
            results[stage.name] = found.result
        elif found.why != "not asked for":
            to_run.add(stage.name)
        yield f"{number:>2}  {stage.name:{width}}  {stage.kind.name:14}  {_words(found)}"
        if stage.kind.trains and stage.name in to_run:
            yield from (f"      {line}" for line in _price(place, found))
    yield f"{folder.path}: {len(to_run)} of {len(pipeline.stages)} stages to run, {_time(place, to_run)}"


def _words(found: Standing) -> str:
    return f"{found.state}: {found.why}" if found.why else found.state


def _time(place: Place, to_run: set[str]) -> str:
    """By earlier runs, or by what is usual."""
    stages = place.pipeline.stages
    seals = {stage.name: read_seal(place.folder.stage(stage.name)) for stage in stages}
    before = {name: float(seal["seconds"]) for name, seal in seals.items() if seal is not None}
    done = {stage.name for stage in stages} - to_run
    left = seconds_left(stages, done, {}, expected(stages, before, {}), place.pipeline.jobs)
    how = "as long as they took before" if to_run <= set(before) else "by the weights of the stages"
    return f"about {clock(left)} ({how})"


def _price(place: Place, found: Standing) -> Iterator[str]:
    """The arithmetic and the memory of plaudit plan; nothing is measured."""
    stage = found.stage
    if found.decided is None:
        yield "its cost is known when what it needs is there"
        return
    if stage.kind.name not in looked_at():
        yield "it is made of other runs: plaudit plan tells the cost of each"
        return
    from plaudit.recipes.planning.machine import this_machine
    from plaudit.recipes.planning.price import Planned, as_run, price
    from plaudit.recipes.planning.rows import planned_rows
    from plaudit.recipes.planning.words import sentences, verdict

    told: Mapping[str, Any] = {"stage": stage, "pipeline": place.pipeline, "folder": place.folder}
    config = as_run(stage.kind.name, Work(**told).config())
    planned = Planned(
        method=stage.kind.name,
        config=config,
        rows=planned_rows(stage.kind.name, config, None),
        machine=this_machine(config.device, where=None, memory=None, ranks=1),
        process=0,
    )
    cost = price(planned)
    yield from sentences(cost)
    yield verdict(cost)
