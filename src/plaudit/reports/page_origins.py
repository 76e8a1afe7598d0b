"""From any number back to rows, weights and code; and the commands that make all of it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from plaudit.page.html import Html, element, folded, section, shortened
from plaudit.page.words import counted, duration
from plaudit.reports.reading import CONFIG
from plaudit.reports.story import Input, Stage, Story
from plaudit.reports.wording import named, when
from plaudit.training.page.origins import short_hash, version

_MOST_CONFIG = 50_000
_MOST_PATH = 160
_MOST_OUTPUTS = 6
_RESULTS = (".safetensors", "rows.jsonl", "policies.json", "scores.jsonl", "combined.json")
"""Endings of the files that a stage is there for."""


def origins(story: Story) -> Html:
    """Every stage with what went in, what came out, and the code that did it."""
    links = {stage.name: stage.link for stage in story.stages}
    how = element(
        "p",
        {},
        "Each stage names what it was made from, so any number leads back to rows, weights and code. "
        "Contents are known by the first characters of their sha256; stage.json has all of it.",
    )
    stages = [_stage(one, links) for one in story.stages]
    return section("Where it comes from", "origins", how, element("div", {"class": "origins"}, *stages))


def again(story: Story) -> Html:
    """How to have the same once more."""
    parts: list[Html] = []
    if story.config:
        config = shlex.quote(str(story.path / CONFIG))
        other = shlex.quote(f"{story.path}-again")
        parts.append(_command("All of it, in another folder:", f"plaudit run {config} --out {other}"))
    single = "\n".join(shortened(stage.command, 2000) for stage in story.stages if stage.command)
    if single:
        parts.append(_command("Stage by stage:", single))
    parts.append(_command("This page again:", f"plaudit report {shlex.quote(str(story.path))}"))
    where = "Paths are as they were when this page was written: run commands from the same place."
    parts.append(element("p", {"class": "quiet"}, where))
    if story.config:
        text = element("pre", {}, element("code", {}, shortened(story.config, _MOST_CONFIG)))
        parts.append(folded(f"{CONFIG}, every setting as it was resolved", text))
    return section("How to make it again", "again", *parts)


def _stage(stage: Stage, links: dict[str, str]) -> Html:
    title = element("h3", {"id": stage.link}, f"{stage.number} {named(stage.name)} ")
    rows = [
        element("tr", {}, element("th", {"scope": "row"}, name), element("td", {}, *inside))
        for name, inside in _rows(stage, links)
    ]
    return element("div", {"class": "origin"}, title, element("table", {}, element("tbody", {}, *rows)))


def _rows(stage: Stage, links: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    if stage.do:
        yield "kind", [named(stage.do)]
    for one in stage.inputs:
        yield f"in: {named(one.name)}", [*_source(one, links)]
    yield from _outputs(stage)
    yield from _made(stage)


def _outputs(stage: Stage) -> Iterator[tuple[str, list[str]]]:
    results = [name for name in stage.outputs if name.endswith(_RESULTS)]
    shown = (results or [*stage.outputs])[:_MOST_OUTPUTS]
    for name, digest in ((name, stage.outputs[name]) for name in shown):
        yield "out", [f"{shortened(name, _MOST_PATH)} ", short_hash(digest)]
    if len(stage.outputs) > len(shown):
        yield "out", [f"{counted(len(stage.outputs) - len(shown), 'more file')}, in stage.json"]


def _made(stage: Stage) -> Iterator[tuple[str, list[str]]]:
    if stage.key:
        yield "key", [short_hash(stage.key)]
    if stage.code:
        yield "plaudit", [shortened(version(stage.code), _MOST_PATH)]
    if stage.ended:
        took = f" after {duration(stage.seconds)}" if stage.seconds else ""
        yield "ended", [when(stage.ended), took]
    if stage.state != "done":
        yield "state", ["begun, and not ended" if stage.state == "begun" else "not begun"]


def _source(one: Input, links: dict[str, str]) -> Iterator[str]:
    source = shortened(one.source, _MOST_PATH)
    yield element("a", {"href": f"#{links[one.source]}"}, source) if one.source in links else source
    yield " "
    yield short_hash(one.hash)


def _command(what: str, text: str) -> Html:
    return element("div", {}, element("p", {}, what), element("pre", {}, element("code", {}, text)))
