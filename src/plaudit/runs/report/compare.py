"""Several runs beside each other on one page: settings that differ, figures, curves over each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from plaudit.errors import UserError
from plaudit.evaluation.policies.result import PolicyFigures
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report import parts as html
from plaudit.runs.report.charts.axes import SERIES_CLASSES
from plaudit.runs.report.charts.intervals import IntervalRows, amount_chart, share_chart
from plaudit.runs.report.charts.lines import ColumnsByName, overlaid_charts
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.pipeline import data
from plaudit.runs.report.pipeline.findings import best_policy_summary, contest_against_reference
from plaudit.runs.report.pipeline.sections import split_curves
from plaudit.runs.report.run.data import read_run_data
from plaudit.runs.report.run.page import run_sentence
from plaudit.runs.report.words import number_text, percent, short_name, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with the unique name that the page gives it."""

    name: str
    pipeline: data.PipelineData

    @property
    def outcome(self) -> str:
        if self.pipeline.evaluation is not None:
            return best_policy_summary(self.pipeline.evaluation)
        trained = [run for _, run in self.pipeline.training_stages]
        if len(self.pipeline.stages) == len(trained) == 1:
            return run_sentence(trained[0].history, finished=trained[0].finished)
        ended = sum(stage.state == "done" for stage in self.pipeline.stages)
        return html.say("compare.ended", ended=ended, stages=len(self.pipeline.stages))


def read_runs(folders: Sequence[Path]) -> tuple[ComparedRun, ...]:
    real = [folder.resolve() for folder in folders]
    for index, folder in enumerate(real):
        if folder in real[:index]:
            raise UserError(f"{folders[index]}: named twice; a run is not compared with itself")
    common = Path(os.path.commonpath(real))
    # A run in the folder of another is named below that one's place, so that each has a name.
    place = common.parent if common in real else common
    return tuple(
        ComparedRun(name=path.relative_to(place).as_posix(), pipeline=_read_run(folder))
        for path, folder in zip(real, folders, strict=True)
    )


def differing_settings(runs: Sequence[ComparedRun]) -> dict[str, tuple[str, ...]]:
    """Each setting that is not the same in all runs, with what it is in each."""
    settings_by_run = [dict(_flatten(_read_settings(run.pipeline), "")) for run in runs]
    names = dict.fromkeys(name for settings in settings_by_run for name in settings)
    values = {
        name: tuple(settings.get(name, html.NO_VALUE) for settings in settings_by_run) for name in names
    }
    return {name: values_by_run for name, values_by_run in values.items() if len(set(values_by_run)) > 1}


def _read_run(folder: Path) -> data.PipelineData:
    if data.is_pipeline(folder) or data.is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return data.read_pipeline_folder(folder)
    run = read_run_data(folder)
    state = "done" if run.finished else "begun"
    stage = data.StageData(name="training", number=1, kind="", state=state, folder=folder, training_run=run)
    return data.PipelineData(path=folder, name=run.name, config=run.config, stages=(stage,))


def _read_settings(pipeline: data.PipelineData) -> Any:
    try:
        return yaml.safe_load(pipeline.config) or {}
    except yaml.YAMLError as error:
        raise UserError(
            f"{pipeline.path}: its config is not YAML ({type(error).__name__}). Restore it."
        ) from error


def _flatten(setting: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every setting under its full name; a list of single entries, as of stages, is read as those entries."""
    if isinstance(setting, list) and all(isinstance(entry, Mapping) and len(entry) == 1 for entry in setting):
        setting = {key: nested for entry in setting for key, nested in entry.items()}
    if isinstance(setting, Mapping) and setting:
        for key, nested in setting.items():
            yield from _flatten(nested, f"{name}.{key}" if name else str(key))
    else:
        yield name, str(setting)


_MAX_SETTINGS = 80
_MAX_VALUE_LENGTH = 80
_WIN_RATE_TITLE = "Win rate"
FigureOf = Callable[[data.PipelineData, PolicyFigures], Estimate | None]


def win_rate(pipeline: data.PipelineData, policy: PolicyFigures) -> Estimate | None:
    contest = contest_against_reference(pipeline.evaluation, policy.name) if pipeline.evaluation else None
    return contest and contest.raw


_COMPARED_FIGURES: tuple[tuple[str, str, FigureOf], ...] = (
    ("True worth", "mean of answers", lambda _, policy: policy.gold),
    (_WIN_RATE_TITLE, "raw, against the reference", win_rate),
    ("KL", "nats an answer from the reference", lambda _, policy: policy.kl),
    ("Length", "tokens of an answer", lambda _, policy: policy.length),
)


def write_comparison(folders: Sequence[Path], path: Path) -> Path:
    return write_page(comparison_page(read_runs(folders)), path)


def comparison_page(runs: Sequence[ComparedRun]) -> str:
    outcomes = html.Notes([html.Note(f": {run.outcome}", about=short_name(run.name)) for run in runs])
    names = dict.fromkeys(stage.name for run in runs for stage, _ in run.pipeline.training_stages)
    by_run = {
        run.name: {stage.name: facts.history.columns for stage, facts in run.pipeline.training_stages}
        for run in runs
    }
    columns = {name: {run: stages.get(name, {}) for run, stages in by_run.items()} for name in names}
    sections = [
        html.Section("What differs in their settings", "settings", [_settings_part(runs)]),
        *_figures_section([run for run in runs if run.pipeline.evaluation is not None]),
        *_learning_section(columns),
        _places_section(runs, columns),
    ]
    heading = html.say("compare.heading", runs=len(runs))
    return render(html.Page(title=f"{len(runs)} runs", heading=heading, head=[outcomes], sections=sections))


def _settings_part(runs: Sequence[ComparedRun]) -> html.Part:
    settings = differing_settings(runs)
    if not settings:
        return html.Text(html.say("compare.same"))
    rows = [
        (
            shortened(name, _MAX_VALUE_LENGTH),
            [html.Cell(text=shortened(value, _MAX_VALUE_LENGTH)) for value in values],
        )
        for name, values in [*settings.items()][:_MAX_SETTINGS]
    ]
    rest = len(settings) - len(rows)
    caption = html.say(f"compare.settings{'_left_out' if rest else ''}", settings=len(settings), rest=rest)
    return html.Box("runs", [html.Table(caption=caption, columns=_run_names(runs), rows=rows)])


def _run_names(runs: Sequence[ComparedRun]) -> list[str]:
    return [short_name(run.name) for run in runs]


def _figures_section(runs: Sequence[ComparedRun]) -> Iterator[html.Section]:
    policies = list(dict.fromkeys(policy.name for run in runs for policy in _run_policies(run)))
    if policies:
        # As few runs in a chart as can be told apart.
        groups = [runs[at : at + len(SERIES_CLASSES)] for at in range(0, len(runs), len(SERIES_CLASSES))]
        charts = [
            chart
            for figure in _COMPARED_FIGURES
            for group in groups
            for chart in _figure_chart(group, policies, *figure)
        ]
        tables = [
            _figure_table(runs, policies, title, figure_of) for title, _, figure_of in _COMPARED_FIGURES
        ]
        parts = [html.Charts(charts, html.say("compare.figures")), html.Folded(html.say("tables"), tables)]
        yield html.Section("What came of them", "figures", parts)


def _figure_chart(
    runs: Sequence[ComparedRun], policies: Sequence[str], title: str, unit: str, figure_of: FigureOf
) -> Iterator[Markup]:
    rows = [
        html.interval_row(short_name(policy), *(_policy_figure(run, policy, figure_of) for run in runs))
        for policy in policies
    ]
    rows = [row for row in rows if any(row.spans)]
    if rows:
        draw = share_chart if title == _WIN_RATE_TITLE else amount_chart
        yield draw(title, unit, IntervalRows(rows=rows, series=_run_names(runs)))


def _figure_table(
    runs: Sequence[ComparedRun], policies: Sequence[str], title: str, figure_of: FigureOf
) -> html.Table:
    write = percent if title == _WIN_RATE_TITLE else number_text
    rows = [
        (
            short_name(policy),
            [html.estimate_cell(_policy_figure(run, policy, figure_of), write) for run in runs],
        )
        for policy in policies
    ]
    return html.Table(caption=title, columns=_run_names(runs), rows=rows)


def _learning_section(stages: Mapping[str, ColumnsByName]) -> Iterator[html.Section]:
    parts: list[html.Part] = []
    for name, columns in stages.items():
        curves = split_curves({metric for of_run in columns.values() for metric in of_run})
        first, rest = (
            [chart for curve in some for chart in overlaid_charts(curve, columns)] for some in curves
        )
        more = html.Folded(html.say("more_curves", stage=name), [html.Charts(rest)])
        parts += [html.Heading(short_name(name)), html.Charts(first), html.Box("rarely", [more])]
    if parts:
        yield html.Section("How they learnt", "learning", parts)


def _places_section(runs: Sequence[ComparedRun], stages: Mapping[str, ColumnsByName]) -> html.Section:
    places = html.Notes([html.Note(f" {run.pipeline.path}", about=short_name(run.name)) for run in runs])
    tables = [_last_values(runs, name, columns) for name, columns in stages.items()]
    return html.Section(
        "Where they lie", "places", [places, *([html.Folded("Last figures", tables)] if tables else [])]
    )


def _last_values(runs: Sequence[ComparedRun], name: str, columns: ColumnsByName) -> html.Table:
    metrics = sorted({metric for of_run in columns.values() for metric in of_run})
    rows = [
        (
            metric,
            [
                html.value_cell(of_run[metric].last if metric in of_run else None)
                for of_run in columns.values()
            ],
        )
        for metric in metrics
        if not metric.startswith("timing/")
    ]
    return html.Table(
        caption=html.say("compare.last_values", stage=name), columns=_run_names(runs), rows=rows
    )


def _run_policies(run: ComparedRun) -> tuple[PolicyFigures, ...]:
    return run.pipeline.evaluation.policies if run.pipeline.evaluation else ()


def _policy_figure(run: ComparedRun, policy: str, figure_of: FigureOf) -> Estimate | None:
    return next(
        (figure_of(run.pipeline, candidate) for candidate in _run_policies(run) if candidate.name == policy),
        None,
    )
