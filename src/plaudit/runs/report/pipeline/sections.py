"""Sections of the page of a pipeline about learning, rewards and policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

from markupsafe import Markup

from plaudit.evaluation.policies.calibration import PolicyCalibration
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures, Rating
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts import intervals
from plaudit.runs.report.charts.axes import Span, truncated
from plaudit.runs.report.charts.bars import reliability_diagram, stacked_bar_chart
from plaudit.runs.report.charts.lines import Curve, all_curves, curve_figures, overlaid_charts
from plaudit.runs.report.parts import (
    NO_VALUE,
    Box,
    Cell,
    Charts,
    Folded,
    Heading,
    Part,
    Section,
    Table,
    Text,
    estimate_cell,
    estimate_span,
    interval_row,
    interval_text,
    say,
    value_cell,
)
from plaudit.runs.report.pipeline.data import PipelineData, StageData, read_json
from plaudit.runs.report.pipeline.findings import contest_against_reference, reference_policy
from plaudit.runs.report.reward_models.page import calibration_section, probes_section
from plaudit.runs.report.reward_models.summary import finding, reported_models
from plaudit.runs.report.run.data import RunData, complete_lines
from plaudit.runs.report.run.page import reward_against_kl, run_sentence
from plaudit.runs.report.words import judge_name, number_text, percent, short_name, shortened

_MAIN_CURVES = {
    "policy": ("Judge", "Reward", "KL to the reference", "Length", "Entropy"),
    "pairs": ("Loss", "Accuracy", "Margin", "KL to the reference"),
    "other": ("Loss", "Token accuracy", "Accuracy"),
}
"""The curves that are not folded, by what the run reports."""
_MAX_POINTS, _MAX_CHARTS, _MAX_CONTESTS, _MAX_CATEGORIES, _MAX_POLICIES = 14, 8, 24, 40, 24
_MAX_LABEL_LENGTH, _MAX_SENTENCE_LENGTH = 18, 280
_HEAT_LEVELS = 10
_HALF = intervals.GuideLine(low=0.5, high=0.5, label="as often as not")


def results_section(pipeline: PipelineData, *, with_chart: bool) -> Section:
    """Every policy with its figures; with a chart of all of them where the page has not shown them yet."""
    evaluation, stage = pipeline.evaluation, pipeline.evaluation_stage
    if evaluation is None or stage is None:
        return Section("Results", "headline", [Text(say("pipeline.not_compared"))], is_open=True)
    chart = _lead_chart(evaluation) if with_chart else None
    origin = Text("", "quiet", links=[(f"#{stage.anchor}", say("pipeline.origin"))], after=".")
    parts = [*([Charts([chart])] if chart else []), _headline_table(evaluation), origin]
    return Section("Results", "headline", parts, _measurement_note(evaluation), is_open=True)


def _lead_chart(evaluation: PolicyEvaluation) -> Markup | None:
    reference, policies = reference_policy(evaluation), evaluation.policies[:_MAX_POINTS]
    if evaluation.gold is not None and reference is not None and reference.gold is not None:
        rows = [interval_row(short_name(policy.name), policy.gold) for policy in policies]
        guide = _reference_guide(reference.gold.value, reference.name)
        data = intervals.IntervalRows(rows=rows, series=("worth",), guide=guide)
        return intervals.amount_chart("True worth of an answer", f"by {judge_name(evaluation.gold)}", data)
    contests = {policy.name: contest_against_reference(evaluation, policy.name) for policy in policies}
    rows = [interval_row(_contest_label(contest), contest.raw) for contest in contests.values() if contest]
    data = intervals.IntervalRows(rows=rows, series=("raw",), guide=_HALF)
    return intervals.share_chart("Win rate", "of prompts, a tie counting half", data) if rows else None


def _reference_guide(value: float, name: str) -> intervals.GuideLine:
    return intervals.GuideLine(low=value, high=value, label=truncated(name, _MAX_LABEL_LENGTH))


def _headline_table(evaluation: PolicyEvaluation) -> Table:
    cells = {policy.name: _headline_cells(evaluation, policy) for policy in evaluation.policies}

    def is_known(head: str) -> bool:
        return any(row[head].text != NO_VALUE for row in cells.values())

    columns = [*filter(is_known, next(iter(cells.values())))]
    rows = [(short_name(name), [row[head] for head in columns]) for name, row in cells.items()]
    # Not stacked: policies are compared down a column, also on a phone, where the table scrolls sideways.
    return Table(caption=say("pipeline.intervals"), columns=columns, rows=rows, stacked=False)


def _headline_cells(evaluation: PolicyEvaluation, policy: PolicyFigures) -> dict[str, Cell]:
    contest = contest_against_reference(evaluation, policy.name)
    found = contest and (contest.raw, contest.decided, contest.length_controlled)
    raw, decided, length_controlled = [estimate_cell(estimate, percent) for estimate in found or (None,) * 3]
    if evaluation.contests and policy.name == evaluation.reference:
        raw = Cell(text="the reference", kind="quiet")
    to = short_name(evaluation.reference or "the reference")
    return {
        "true worth": estimate_cell(policy.gold),
        f"right by {evaluation.right}": estimate_cell(policy.right, percent),
        f"win rate against {to}": raw,
        "without ties": decided,
        "at equal length": length_controlled,
        f"KL to {to}, nats": estimate_cell(policy.kl),
        "length, tokens": estimate_cell(policy.length),
        "finished": estimate_cell(policy.finished, percent),
    }


def _measurement_note(evaluation: PolicyEvaluation) -> str:
    judges = ", ".join(dict.fromkeys(judge_name(contest.judge) for contest in evaluation.contests))
    sampling = shortened(evaluation.sampling, _MAX_SENTENCE_LENGTH)
    name = f"pipeline.measured{'_by' if judges else ''}"
    return say(name, found=evaluation, sampling=sampling, judges=judges)


def wins_section(pipeline: PipelineData) -> Iterator[Section]:
    """Who wins against whom by each judge, ratings, and how far judges agree with people."""
    evaluation, judges = pipeline.evaluation, _judges_table(pipeline)
    parts: list[Part] = []
    if evaluation is not None and evaluation.contests:
        parts += [Charts(_win_rate_charts(evaluation), say("pipeline.win_rates_guide"))]
        columns = ["win rate without ties", "both orders agree", "the first is preferred", "p", "no verdict"]
        rows = [
            (f"{_contest_label(contest)}, by {judge_name(contest.judge)}", _contest_cells(contest))
            for contest in evaluation.contests[: 2 * _MAX_CONTESTS]
        ]
        parts += [Table(caption=say("pipeline.contests"), columns=columns, rows=rows)]
    if parts or judges:
        yield Section("Win rates" if parts else "Judges", "wins", [*parts, *([judges] if judges else [])])


def _win_rate_charts(evaluation: PolicyEvaluation) -> list[Markup]:
    judges = list(dict.fromkeys(contest.judge for contest in evaluation.contests))
    charts: list[Markup] = []
    for judge in judges:
        charts += _charts_by_judge(evaluation, judge, "" if len(judges) == 1 else f", by {judge_name(judge)}")
    return [*charts, _ratings_chart(evaluation.ratings)] if evaluation.ratings else charts


def _charts_by_judge(evaluation: PolicyEvaluation, judge: str, suffix: str) -> Iterator[Markup]:
    contests = [contest for contest in evaluation.contests if contest.judge == judge][:_MAX_CONTESTS]
    styled = any(contest.style_controlled for contest in contests)
    rows = [
        interval_row(_contest_label(contest), contest.raw, contest.length_controlled, *styles)
        for contest in contests
        for styles in [(contest.style_controlled,) if styled else ()]
    ]
    series = ["raw", "at equal length", *(["at equal style"] if styled else [])]
    yield intervals.share_chart(
        f"Win rate{suffix}", "of pairs", intervals.IntervalRows(rows=rows, series=series, guide=_HALF)
    )
    counts = [(_contest_label(contest), (contest.won, contest.tied, contest.lost)) for contest in contests]
    yield stacked_bar_chart(f"Won, tied and lost{suffix}", "pairs", counts, ("won", "tied", "lost"))


def _contest_label(contest: Contest) -> str:
    return f"{short_name(contest.policy)} against {short_name(contest.against)}"


def _ratings_chart(ratings: Sequence[Rating]) -> Markup:
    rows = [
        intervals.IntervalRow(
            label=short_name(rating.name), spans=(Span(value=rating.elo, low=rating.low, high=rating.high),)
        )
        for rating in sorted(ratings, key=lambda rating: -rating.elo)
    ]
    mean = intervals.GuideLine(low=1000, high=1000, label="the mean")
    data = intervals.IntervalRows(rows=rows, series=("rating",), guide=mean)
    return intervals.amount_chart("Ratings", "Bradley and Terry 1952, as Elo points", data)


def _contest_cells(contest: Contest) -> list[Cell]:
    tiny = contest.p_value is not None and contest.p_value < 1e-3
    return [
        *(estimate_cell(share, percent) for share in (contest.decided, contest.consistency, contest.first)),
        Cell(text="< 0.001") if tiny else value_cell(contest.p_value),
        Cell(text=f"{contest.unjudged:,}"),
    ]


def _judges_table(pipeline: PipelineData) -> Table | None:
    """How far judges agree with people, of every stage that has asked; None where none has."""
    rows = [
        (judge_name(contest.judge), _agreement_cells(contest))
        for stage in pipeline.stages
        for contest in stage.agreements
    ]
    columns = ["agrees", "both orders agree", "the first is preferred", "pairs", "no verdict"]
    return Table(caption=say("pipeline.judges"), columns=columns, rows=rows) if rows else None


def _agreement_cells(contest: Contest) -> list[Cell]:
    counts = (contest.won + contest.tied + contest.lost, contest.unjudged)
    return [
        *(estimate_cell(share, percent) for share in (contest.raw, contest.consistency, contest.first)),
        *(Cell(text=f"{count:,}") for count in counts),
    ]


def categories_section(evaluation: PolicyEvaluation) -> Iterator[Section]:
    """True worth by category of the prompt, a column for each policy, shaded by its size."""
    parts = {policy.name: policy.by_category for policy in evaluation.policies if policy.by_category}
    names = list(dict.fromkeys(part.name for figures in parts.values() for part in figures))[:_MAX_CATEGORIES]
    if not names:
        return
    values = {(policy, part.name): part.value for policy, figures in parts.items() for part in figures}
    numbers = [estimate.value for estimate in values.values()]
    low, high = min(numbers), max(numbers)
    rows = [
        (short_name(name), [_heat_cell(values.get((policy, name)), low, high) for policy in parts])
        for name in names
    ]
    caption = say("pipeline.categories", low=low, high=high)
    table = Table(caption=caption, columns=[*map(short_name, parts)], rows=rows)
    yield Section("By category", "categories", [Box("heat", [table])])


def _heat_cell(estimate: Estimate | None, low: float, high: float) -> Cell:
    if estimate is None:
        return Cell(text=NO_VALUE)
    level = round(_HEAT_LEVELS * (estimate.value - low) / (high - low)) if high > low else 0
    return Cell(text=number_text(estimate.value), interval=interval_text(estimate), kind=f"degree d{level}")


def training_section(pipeline: PipelineData) -> Iterator[Section]:
    """How each stage learnt: a few curves that tell most, the others folded, and scores along √KL."""
    parts = [part for stage, run in pipeline.training_stages for part in _training_parts(stage, run)]
    if together := policy_charts(pipeline):
        parts[:0] = [Heading("All policies"), Charts(together)]
    if parts:
        yield Section("Training curves", "training", parts)


def policy_charts(pipeline: PipelineData) -> list[Markup]:
    """What all policies that drew answers became, over each other; none of a single one."""
    columns = {stage.name: run.history.columns for stage, run in pipeline.training_stages}
    drawn = {name: of_run for name, of_run in columns.items() if "held_out/reward" in of_run}
    titles = _MAIN_CURVES["policy"] if len(drawn) > 1 else ()
    curves = [curve for title in titles for curve in all_curves() if curve.title == title]
    return [chart for curve in curves for chart in overlaid_charts(curve, drawn)]


def _training_parts(stage: StageData, run: RunData) -> Iterator[Part]:
    history = run.history
    folder = run.path.relative_to(stage.folder) if run.path.is_relative_to(stage.folder) else run.path
    place = folder.as_posix()
    prefix = "" if place in ("run", ".") else f"{place.removeprefix('run/')}: "
    yield Heading(short_name(stage.name), f"#{stage.anchor}")
    yield Text(f"{prefix}{run_sentence(history, finished=run.finished)}", "quiet")
    first, rest = split_curves(history.columns)
    if history.columns:
        yield Charts([curve_figures(history, first), *reward_against_kl(history)])
    if more := curve_figures(history, rest):
        yield Box("rarely", [Folded(say("more_curves", stage=stage.name), [Charts([more])])])


def split_curves(metric_names: Container[str]) -> tuple[Sequence[Curve], Sequence[Curve]]:
    """The curves that tell most of a run with these figures, and the others."""
    kind = "policy" if "reward" in metric_names else "pairs" if "margin" in metric_names else "other"
    first = [curve for curve in all_curves() if curve.title in _MAIN_CURVES[kind]]
    return first, [curve for curve in all_curves() if curve not in first]


def distance_section(evaluation: PolicyEvaluation) -> Iterator[Section]:
    """True worth and learnt reward of each policy over √KL, as far as at least two policies have them."""
    charts = [*_kl_chart(evaluation, truth=True), *_kl_chart(evaluation, truth=False)]
    if charts:
        yield Section("KL to the reference", "distance", [Text(say("pipeline.distance")), Charts(charts)])


def _kl_chart(evaluation: PolicyEvaluation, *, truth: bool) -> Iterator[Markup]:
    # max: the estimate of a KL near 0 may lie below it, where there is no root.
    policies = [
        intervals.ScatterPoint(
            label=short_name(policy.name), x=sqrt(max(policy.kl.value, 0.0)), y=estimate_span(estimate)
        )
        for policy in evaluation.policies
        if policy.kl is not None and (estimate := policy.gold if truth else policy.reward) is not None
    ][:_MAX_POINTS]
    if len(policies) < 2:
        return
    points = [] if evaluation.best_of is None else evaluation.best_of.points
    path = [(sqrt(at.kl), at.truth.value if truth else at.proxy) for at in points]
    reference = evaluation.reference or "the reference"
    label = say("pipeline.best_of_n", reference=reference, most=points[-1].n) if points else ""
    title = "True worth over √KL" if truth else "Learnt reward over √KL"
    scorer = evaluation.gold if truth else evaluation.reward
    unit = f"by {judge_name(scorer)}" if scorer else ""
    note = say("pipeline.kl_note", prompts=evaluation.prompts)
    if truth and evaluation.over_optimisation is not None:
        note = say("pipeline.over_optimisation", note=note, sentence=evaluation.over_optimisation.sentence)
    yield intervals.scatter_chart(title, unit, policies, path=path, path_label=label, note=note)


def reward_sections(pipeline: PipelineData) -> Iterator[Section]:
    """What the reward models of a pipeline are worth; nothing where no stage judged any."""
    stages = [stage for stage in pipeline.stages if stage.reward_evaluations]
    models = reported_models([found for stage in stages for found in stage.reward_evaluations])
    if models:
        links = [(f"#{stage.anchor}", short_name(stage.name)) for stage in stages]
        compared = Text(say("pipeline.compared_in"), "quiet", links, ".")
        yield Section("Reward-model accuracy", "reward", [compared], finding(models))
        yield calibration_section(models)
        yield probes_section(models)


def habits_section(evaluation: PolicyEvaluation) -> Section:
    reference = reference_policy(evaluation)
    guide = reference and _reference_guide(reference.length.value, reference.name)
    rows = [
        interval_row(short_name(policy.name), policy.length) for policy in evaluation.policies[:_MAX_POLICIES]
    ]
    data = intervals.IntervalRows(rows=rows, series=("length",), guide=guide)
    lengths = intervals.amount_chart("Length", "tokens of an answer", data)
    texts = Box("", [_diversity_table(evaluation), Text(say("pipeline.self_bleu"), "quiet")])
    return Section("Length and diversity", "habits", [Box("pair", [lengths, texts])])


_DIVERSITY_COLUMNS = (
    *("different answers", "different words", "different pairs of words"),
    *("self-BLEU", "to one prompt", "entropy, nats"),
)


def _diversity_table(evaluation: PolicyEvaluation) -> Table:
    words = {policy.diversity.words for policy in evaluation.policies}
    cut = say("pipeline.cut_to", words=min(words)) if len(words) == 1 else say("pipeline.cut")
    rows = [(short_name(policy.name), _diversity_cells(policy)) for policy in evaluation.policies]
    return Table(caption=say("pipeline.diversity", cut=cut), columns=_DIVERSITY_COLUMNS, rows=rows)


def _diversity_cells(policy: PolicyFigures) -> list[Cell]:
    found = policy.diversity
    return [
        *(value_cell(share, percent) for share in (found.unique, found.distinct_1, found.distinct_2)),
        value_cell(found.self_bleu),
        value_cell(found.unique_within, percent),
        estimate_cell(policy.entropy),
    ]


_CONFIDENCE_COLUMNS = (
    *("right", "how sure", "surer than right by", "calibration error"),
    *("error, less the reference's", "Brier score", "log-loss", "of all it may say"),
)


def confidence_section(evaluation: PolicyEvaluation) -> Iterator[Section]:
    """Whether the policies know what they know, where questions with a closed set of answers were asked."""
    found = {policy.name: policy.calibration for policy in evaluation.policies if policy.calibration}
    if not found:
        return
    questions = next(iter(found.values())).accuracy.n
    rows = [(short_name(name), _confidence_cells(calibration)) for name, calibration in found.items()]
    caption = say("pipeline.questions", questions=questions)
    charts = [policy_reliability_chart(*entry) for entry in [*found.items()][:_MAX_CHARTS]]
    table = Table(caption=caption, columns=_CONFIDENCE_COLUMNS, rows=rows)
    parts = [Text(say("pipeline.confidence")), Charts(charts), table]
    yield Section("Calibration of the policies", "confidence", parts)


def policy_reliability_chart(name: str, calibration: PolicyCalibration) -> Markup:
    unit = "share right over how sure"
    return reliability_diagram(short_name(name), calibration.by_width, unit=unit, of="question")


def _confidence_cells(found: PolicyCalibration) -> list[Cell]:
    estimates = (found.surplus, found.ece, found.ece_change, found.brier, found.log_loss)
    return [
        *(estimate_cell(share, percent) for share in (found.accuracy, found.confidence)),
        *map(estimate_cell, estimates),
        Cell(text=percent(found.covered.value)),
    ]


FIGURES_FILE = "figures.json"
_AI = "ai"
_ROWS_FILE = "rows.jsonl"
_BY_MODELS, _BY_OTHERS, _UNNAMED = "by models", "by people, or simulated", "without a name"
_GIVERS = (_BY_MODELS, _BY_OTHERS, _UNNAMED)
_MAX_NAMES = 3


def labels_section(pipeline: PipelineData) -> Iterator[Section]:
    """Who gave the labels of each stage's rows, and what revisions changed of them."""
    found = [(stage, _givers(stage)) for stage in pipeline.stages if _has_rows(stage)]
    rows = [(short_name(stage.name), _giver_cells(givers)) for stage, givers in found if any(givers.values())]
    if not rows:
        return
    table = Table(caption="Rows by who labelled them", columns=(*_GIVERS, "who"), rows=rows)
    totals = Counter[str]()
    for _, givers in found:
        totals.update({name: sum(who.values()) for name, who in givers.items()})
    whole = sum(totals.values())
    shares = ", ".join(f"{percent(totals[name] / whole)} {name}" for name in _GIVERS if totals[name])
    revisions = [
        _revisions_table(stage, read_json(stage.folder / FIGURES_FILE))
        for stage in pipeline.stages
        if stage.kind == "revise" and (stage.folder / FIGURES_FILE).exists()
    ]
    texts = [Text(say("pipeline.revisions"))] if revisions else []
    brief = say("pipeline.labels", labels=whole, shares=shares)
    yield Section("Labels", "labels", [table, *texts, *revisions], brief)


def _giver_cells(givers: Mapping[str, Counter[str]]) -> list[Cell]:
    counts = (Cell(text=f"{sum(givers[name].values()):,}") for name in _GIVERS)
    return [*counts, Cell(text=_names(givers), kind="long")]


def _has_rows(stage: StageData) -> bool:
    return _ROWS_FILE in stage.outputs and (stage.folder / _ROWS_FILE).is_file()


def _givers(stage: StageData) -> Mapping[str, Counter[str]]:
    """How many rows each giver labelled; prompts alone are no labels."""
    found = {name: Counter[str]() for name in _GIVERS}
    for row in _labelled_rows(stage):
        who = row.get("annotator")
        giver = _BY_MODELS if row.get("group") == _AI else _BY_OTHERS if who else _UNNAMED
        found[giver][str(who or "")] += 1
    return found


def label_kinds(stages: Iterable[StageData]) -> Counter[str]:
    """How many rows of each kind these stages made: demonstrations, comparisons …; prompts alone are none."""
    return Counter(
        str(row.get("kind", "row")) for stage in stages if _has_rows(stage) for row in _labelled_rows(stage)
    )


def _labelled_rows(stage: StageData) -> Iterator[Mapping[str, Any]]:
    rows = (row for _, row in complete_lines(stage.folder / _ROWS_FILE))
    yield from (row for row in rows if row.get("kind") != "prompt")


def _names(givers: Mapping[str, Counter[str]]) -> str:
    names = [name for who in givers.values() for name, _ in who.most_common() if name]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(map(short_name, names[:_MAX_NAMES]))}{more}" if names else NO_VALUE


def _revisions_table(stage: StageData, figures: Mapping[str, Any]) -> Table:
    before, after = figures["before"], figures["after"]
    rows = [("words, mean", [_number(before["words"]), _number(after["words"])])]
    rows += [
        (str(name), [Cell(text=percent(share)), Cell(text=percent(after["marks"][name]))])
        for name, share in before["marks"].items()
    ]
    rows.append(("begin alike", [Cell(text=percent(side["opening_share"])) for side in (before, after)]))
    rows.append(("distinct-2", [_number(figures["distinct_2"], 2) for figures in (before, after)]))
    outcomes = ", ".join(f"{count} {name}" for name, count in figures["outcomes"].items())
    caption = say("pipeline.revised", stage=stage.name, outcomes=outcomes, by=figures["by"])
    return Table(caption=caption, columns=("before", "after"), rows=rows)


def _number(value: float | None, places: int = 1) -> Cell:
    return Cell(text=NO_VALUE if value is None else f"{value:.{places}f}")
