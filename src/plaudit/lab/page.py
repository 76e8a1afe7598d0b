"""What was run otherwise than an exercise has it.

The page of an exercise: its question, what was claimed and seen, pictures, and how to go on from there.

One page over all exercises that were run: their claims, the first picture of each, and links.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.lab.exercise import CaptionedChart, Claim, Exercise, ExerciseResult, Table
from plaudit.lab.registry import EXERCISES, analyse_exercise, claim_verdict, claims_summary, exercise_folder
from plaudit.pipeline.read import read_pipeline
from plaudit.pipeline.spec import Pipeline
from plaudit.pipeline.store import PipelineFolder
from plaudit.report.html import (
    Html,
    document,
    element,
    folded,
    join_html,
    read_stylesheet,
    section,
    shortened,
)
from plaudit.report.pipeline.data import PipelineData, read_pipeline_folder
from plaudit.report.pipeline.page import provenance_section, report_style, stages_section, write_report
from plaudit.report.pipeline.summary import write_summary
from plaudit.report.pipeline.text import figures_table, time_text
from plaudit.report.words import counted, duration


def setting_changes(exercise: Exercise, folder: PipelineFolder) -> tuple[str, ...]:
    """The settings in which a run differs from its exercise, as ``own.n: 6, not 1500``; what changes no
    result is passed over.
    """
    ran, planned = read_pipeline(folder.config), read_pipeline(exercise.config)
    names = {stage.name for stage in ran.stages}, {stage.name for stage in planned.stages}
    return (
        *(f"stage {name} was added" for name in sorted(names[0] - names[1])),
        *(f"stage {name} is missing" for name in sorted(names[1] - names[0])),
        *_setting_differences(
            _settings_by_name(ran, names[0] & names[1]), _settings_by_name(planned, names[0] & names[1])
        ),
    )


def _setting_differences(ran: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*planned, *ran)):
        if name not in planned:
            yield f"{name}: {ran[name]}"
        elif name not in ran:
            yield f"{name}: not said, and not {planned[name]}"
        elif ran[name] != planned[name]:
            yield f"{name}: {ran[name]}, not {planned[name]}"


def _settings_by_name(pipeline: Pipeline, stages: set[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"seed": pipeline.seed, "model": pipeline.model}
    for stage in pipeline.stages:
        if stage.name in stages:
            settings |= {
                f"{stage.name}.do": stage.kind.name,
                **{f"{stage.name}.{key}": value for key, value in stage.raw_settings.items()},
            }
    return settings


PAGE_FILE = "lab.html"
"""What the page is called, of an exercise and of all of them."""
_CLAIM_MARKS = {True: "✓", False: "✗", None: "?"}
_CLAIM_CLASSES = {True: "held", False: "failed", None: "undecided"}
_INTERVAL = re.compile(r"(\S[^()]*) \(([^()]+ to [^()]+)\)")
_MAX_CONFIG_LENGTH, _MAX_CHANGE_LENGTH = 50_000, 300


def write_exercise_page(exercise: Exercise, folder: PipelineFolder, result: ExerciseResult) -> Path:
    """Writes the page beside the pipeline's own report and summary; returns where it is."""
    pipeline = read_pipeline_folder(folder.path)
    write_summary(pipeline)
    write_report(folder.path)
    path = folder.path / PAGE_FILE
    page = exercise_page(exercise, pipeline, result, setting_changes(exercise, folder))
    atomic.write_text(path, page)
    return path


def exercise_page(
    exercise: Exercise, pipeline: PipelineData, result: ExerciseResult, changed: tuple[str, ...] = ()
) -> str:
    """The whole page; ``changed`` is what was run otherwise than the exercise has it."""
    parts = (
        _exercise_header(exercise, pipeline, result, changed),
        _results_section(result),
        *_charts_section(result),
        stages_section(pipeline),
    )
    main = element(
        "main",
        {},
        *parts,
        *_next_steps_section(exercise),
        provenance_section(pipeline),
        _reproduction_section(exercise, pipeline),
    )
    return document(exercise.title, main, style=lab_style())


def lab_style() -> str:
    """What a page of the lab has beside the common style sheet."""
    return report_style() + str(read_stylesheet("plaudit.lab", "lab.css"))


def claims_list(result: ExerciseResult) -> Html:
    """Every claim with its mark and what it was decided by."""
    return element("ul", {"class": "claims"}, *map(_claim_item, result.claims))


def with_unbroken_percents(text: str) -> str:
    """The text with no number parted from its per cent."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def chart_block(chart: CaptionedChart) -> Html:
    """A picture under its title and the sentence that says what to look at."""
    words = element("p", {}, with_unbroken_percents(chart.caption))
    return element("div", {"class": "picture"}, element("h3", {}, chart.title), words, chart.chart)


def claims_state(result: ExerciseResult) -> Html:
    """How many claims hold, coloured by whether all do."""
    all_hold = all(claim.holds for claim in result.claims)
    return element("b", {"class": "finished" if all_hold else "open"}, claims_summary(result))


def _exercise_header(
    exercise: Exercise, pipeline: PipelineData, result: ExerciseResult, changed: tuple[str, ...]
) -> Html:
    parts: list[str] = [claims_state(result), " · exercise ", exercise.name]
    parts.append(f" · {counted(len(pipeline.stages), 'stage')}, {duration(pipeline.seconds)} of work")
    ended = max((stage.ended for stage in pipeline.stages), default="")
    parts.append(f" · ended {time_text(ended)}" if ended else "")
    return element(
        "header",
        {},
        element("h1", {}, exercise.title),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, with_unbroken_percents(exercise.background)),
        *_changes_notice(changed),
    )


def _changes_notice(changed: tuple[str, ...]) -> Iterator[Html]:
    if changed:
        items = [element("li", {}, shortened(one, _MAX_CHANGE_LENGTH)) for one in changed]
        yield element("p", {}, element("b", {}, "This run is not the exercise as it comes with plaudit:"))
        yield element("ul", {"class": "notes"}, *items)


def _results_section(result: ExerciseResult) -> Html:
    explanation = "The claims are the same whatever is measured; whether each holds, this run has decided."
    tables = [] if result.table is None else [_result_table(result.table)]
    return section(
        "What was seen", "seen", element("p", {"class": "quiet"}, explanation), claims_list(result), *tables
    )


def _claim_item(claim: Claim) -> Html:
    mark = element("span", {"aria-hidden": "true"}, _CLAIM_MARKS[claim.holds], " ")
    outcome = element("b", {"class": _CLAIM_CLASSES[claim.holds]}, mark, claim_verdict(claim))
    statement = element("span", {"class": "says"}, with_unbroken_percents(claim.statement))
    evidence = element("span", {"class": "saw"}, with_unbroken_percents(claim.evidence))
    return element("li", {}, outcome, element("div", {}, statement, " ", evidence))


def _result_table(result: Table) -> Html:
    rows = [(row[0], [*map(_interval_cell, row[1:])]) for row in result.rows]
    return figures_table(
        with_unbroken_percents(result.note) or "The figures beside each other", result.head[1:], rows
    )


def _interval_cell(text: str) -> Html:
    """A figure with its interval below it, where it has one."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return join_html(with_unbroken_percents(text))
    return join_html(
        with_unbroken_percents(match[1]),
        " ",
        element("span", {"class": "interval"}, with_unbroken_percents(match[2])),
    )


def _charts_section(result: ExerciseResult) -> Iterator[Html]:
    if result.charts:
        blocks = element("div", {"class": "pictures"}, *map(chart_block, result.charts))
        yield section("Pictures", "pictures", blocks)


def _next_steps_section(exercise: Exercise) -> Iterator[Html]:
    parts = [one.partition(": ") for one in exercise.next_commands]
    if parts:
        commands = [_command_block(f"{why[:1].upper()}{why[1:]}:", command) for command, _, why in parts]
        yield section("What to try next", "next", *commands)


def _reproduction_section(exercise: Exercise, pipeline: PipelineData) -> Html:
    folder_path = _relative_path(pipeline.path)
    out, folder, new_folder = map(
        shlex.quote, (str(folder_path.parent), str(folder_path), f"{folder_path}-again")
    )
    report = element("a", {"href": "report.html"}, "report.html")
    summary = (
        "All that was made lies in ",
        element("code", {}, str(folder_path)),
        "; ",
        report,
        " tells of its stages.",
    )
    parts = [
        element("p", {}, *summary),
        _command_block(
            "The exercise again; what is finished is kept:", f"plaudit lab {exercise.name} --out {out}"
        ),
        _command_block(
            "Exactly what was run here, whatever was changed:",
            f"plaudit run {folder}/pipeline.yaml --out {new_folder}",
        ),
        _command_block("This page again:", f"plaudit lab {exercise.name} --look --out {out}"),
    ]
    text = element("pre", {}, element("code", {}, shortened(pipeline.config, _MAX_CONFIG_LENGTH)))
    return section(
        "How to make it again", "again", *parts, folded("pipeline.yaml, every setting as it was said", text)
    )


def _relative_path(path: Path) -> Path:
    """The path relative to the current folder, where it lies below it."""
    current_folder = Path.cwd()
    return path.relative_to(current_folder) if path.is_relative_to(current_folder) else path


def _command_block(caption: str, text: str) -> Html:
    return element("div", {}, element("p", {}, caption), element("pre", {}, element("code", {}, text)))


_OVERVIEW_LEDE = (
    "Each exercise is a small run of RLHF in which something goes wrong, or is kept from it. Its claims are "
    "the same whatever is measured; whether they hold, the run has decided."
)


def write_overview_page(out: Path, results: Mapping[str, ExerciseResult]) -> Path:
    """Writes the page over all exercises in a folder; ``known`` has been looked at just now."""
    path = out / PAGE_FILE
    atomic.write_text(path, overview_page([*_exercise_results(out, results)]))
    return path


def overview_page(results: list[tuple[Exercise, ExerciseResult | str]]) -> str:
    """The whole page; of an exercise that cannot be looked at, why."""
    finished = [(exercise, result) for exercise, result in results if isinstance(result, ExerciseResult)]
    holding = sum(claim.holds is True for _, result in finished for claim in result.claims)
    claim_count = sum(len(result.claims) for _, result in finished)
    state = f"{holding} of {counted(claim_count, 'claim')} hold"
    kind = "finished" if holding == claim_count else "open"
    head = element(
        "header",
        {},
        element("h1", {}, "The reward-hacking lab"),
        element(
            "p",
            {"class": "state"},
            element("b", {"class": kind}, state),
            f" · {len(finished)} of {counted(len(EXERCISES), 'exercise')} run",
        ),
        element("p", {"class": "lede"}, _OVERVIEW_LEDE),
    )
    parts = [
        _overview_table(results),
        *(_exercise_section(exercise, result) for exercise, result in results),
        *_not_run_section(results),
    ]
    return document("The reward-hacking lab", element("main", {}, head, *parts), style=lab_style())


def _exercise_results(
    out: Path, results: Mapping[str, ExerciseResult]
) -> Iterator[tuple[Exercise, ExerciseResult | str]]:
    for exercise in EXERCISES:
        folder = exercise_folder(exercise, out)
        if exercise.name in results:
            yield exercise, results[exercise.name]
        elif folder.config.exists():
            try:
                yield exercise, analyse_exercise(exercise, folder)
            except UserError as error:
                yield exercise, str(error)


def _overview_table(results: list[tuple[Exercise, ExerciseResult | str]]) -> Html:
    rows = [
        (
            exercise.name,
            [_exercise_link(exercise), "not finished" if isinstance(result, str) else claims_summary(result)],
        )
        for exercise, result in results
    ]
    return element("div", {"class": "shelf"}, figures_table("What was run", ("question", "claims"), rows))


def _exercise_link(exercise: Exercise) -> Html:
    return element("a", {"href": f"#{exercise.name}"}, exercise.title)


def _exercise_section(exercise: Exercise, result: ExerciseResult | str) -> Html:
    if isinstance(result, str):
        return section(exercise.title, exercise.name, element("p", {}, result))
    link = element("a", {"href": f"{exercise.name}/{PAGE_FILE}"}, f"All of {exercise.name}")
    words = element(
        "div",
        {},
        element("p", {}, with_unbroken_percents(exercise.background)),
        claims_list(result),
        element("p", {}, link),
    )
    charts = [chart_block(one) for one in result.charts[:1]]
    return section(exercise.title, exercise.name, element("div", {"class": "told"}, words, *charts))


def _not_run_section(results: list[tuple[Exercise, ExerciseResult | str]]) -> Iterator[Html]:
    names = {exercise.name for exercise, _ in results}
    not_run = [exercise for exercise in EXERCISES if exercise.name not in names]
    if not_run:
        items = [element("li", {}, element("b", {}, one.name), f": {one.title}") for one in not_run]
        command = element(
            "pre", {}, element("code", {}, f"plaudit lab {' '.join(one.name for one in not_run)}")
        )
        yield section("Not run yet", "left", element("ul", {"class": "notes"}, *items), command)
