"""What the page of a pipeline shows of learning, rewards and policies: charts, tables and samples."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from markupsafe import Markup

from plaudit.evaluation.policies.calibration import PolicyCalibration
from plaudit.evaluation.policies.result import (
    Contest,
    PolicyEvaluation,
    PolicyFigures,
    Rating,
)
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts.axes import Span, truncated
from plaudit.runs.report.charts.bars import StackedBar, reliability_diagram, stacked_bar_chart
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    ScatterChart,
    ScatterPoint,
    amount_chart,
    scatter_chart,
    share_chart,
)
from plaudit.runs.report.charts.lines import CURVES, Curve, curve_figures
from plaudit.runs.report.figures import (
    NO_VALUE,
    Cell,
    Table,
    estimate_cell,
    estimate_span,
    interval_text,
    reliability_bin,
    value_cell,
)
from plaudit.runs.report.pipeline.data import PipelineData, StageData
from plaudit.runs.report.pipeline.findings import contest_against_reference
from plaudit.runs.report.reward_models.sections import calibration_blocks, calibration_table, probes_blocks
from plaudit.runs.report.reward_models.summary import finding, reported_models
from plaudit.runs.report.run.data import RunData
from plaudit.runs.report.run.page import reward_against_kl, run_sentence
from plaudit.runs.report.words import MAX_NAME_LENGTH, counted, number_text, percent, short_name

_MAIN_CURVES = {
    "policy": ("Reward", "Judge", "KL to the reference", "Length", "Entropy"),
    "pairs": ("Loss", "Accuracy", "Margin", "KL to the reference"),
    "other": ("Loss", "Token accuracy", "Accuracy"),
}
"""The curves that are not folded, by what the run reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurves:
    """How a stage learnt."""

    anchor: str
    """What leads to where the stage comes from."""
    name: str
    sentence: str
    charts: tuple[Markup, ...]
    more: Markup
    """The other ones; empty where there are none."""


def training_curves(stage: StageData, run: RunData) -> TrainingCurves:
    """A few curves of a stage that tell most, the others, and reward and judge along √KL."""
    history = run.history
    folder = run.path.relative_to(stage.folder) if run.path.is_relative_to(stage.folder) else run.path
    place = folder.as_posix()
    prefix = "" if place in ("run", ".") else f"{place.removeprefix('run/')}: "
    first, rest = split_curves(history.columns)
    charts = (curve_figures(history, first), *reward_against_kl(history)) if history.columns else ()
    return TrainingCurves(
        anchor=stage.anchor,
        name=short_name(stage.name),
        sentence=f"{prefix}{run_sentence(history, finished=run.finished)}",
        charts=charts,
        more=curve_figures(history, rest),
    )


def split_curves(metric_names: Container[str]) -> tuple[Sequence[Curve], Sequence[Curve]]:
    """The curves that tell most of a run with these figures, and the others."""
    kind = "policy" if "reward" in metric_names else "pairs" if "margin" in metric_names else "other"
    first = [curve for curve in CURVES if curve.title in _MAIN_CURVES[kind]]
    return first, [curve for curve in CURVES if curve not in first]


def lead_chart(evaluation: PolicyEvaluation) -> Markup | None:
    """Every policy with its interval beside the reference: by true worth, or else by its win rate."""
    reference = next((policy for policy in evaluation.policies if policy.name == evaluation.reference), None)
    policies = evaluation.policies[:_MAX_POINTS]
    if evaluation.gold is not None and reference is not None and reference.gold is not None:
        rows = [
            IntervalRow(label=short_name(policy.name), spans=(estimate_span(policy.gold),))
            for policy in policies
        ]
        guide = _reference_guide(reference.gold.value, reference.name)
        data = IntervalRows(rows=rows, series=("worth",), guide=guide)
        return amount_chart("True worth of an answer", f"by {short_name(evaluation.gold)}", data)
    contests = {policy.name: contest_against_reference(evaluation, policy.name) for policy in policies}
    rows = [
        IntervalRow(label=_contest_label(contest), spans=(estimate_span(contest.raw),))
        for contest in contests.values()
        if contest is not None
    ]
    half = GuideLine(low=0.5, high=0.5, label="as often as not")
    return (
        share_chart(
            "Win rate",
            "of prompts, a tie counting half",
            IntervalRows(rows=rows, series=("raw",), guide=half),
        )
        if rows
        else None
    )


def reward_models_parts(pipeline: PipelineData) -> dict[str, object]:
    """What the reward models of a pipeline are worth; nothing where no stage judged any."""
    stages = [stage for stage in pipeline.stages if stage.reward_evaluations]
    models = reported_models([found for stage in stages for found in stage.reward_evaluations])
    if not models:
        return {"reward_stages": ()}
    return {
        "reward_stages": stages,
        "reward_finding": finding(models),
        "calibration": calibration_blocks(models),
        "calibration_table": calibration_table(models),
        "probes": probes_blocks(models),
    }


_MAX_POINTS = 14


def kl_charts(evaluation: PolicyEvaluation) -> list[Markup]:
    """True worth and learnt reward of each policy over √KL, as far as at least two policies have them."""
    return [*_kl_chart(evaluation, truth=True), *_kl_chart(evaluation, truth=False)]


def _kl_chart(evaluation: PolicyEvaluation, *, truth: bool) -> Iterator[Markup]:
    # max: the estimate of a KL near 0 may lie below it, where there is no root.
    points_of_policies = [
        ScatterPoint(
            label=short_name(policy.name), x=sqrt(max(policy.kl.value, 0.0)), y=estimate_span(estimate)
        )
        for policy in evaluation.policies
        if policy.kl is not None and (estimate := policy.gold if truth else policy.reward) is not None
    ][:_MAX_POINTS]
    if len(points_of_policies) < 2:
        return
    best_of_n = evaluation.best_of
    points = [] if best_of_n is None else best_of_n.points
    path = [(sqrt(at.kl), at.truth.value if truth else at.proxy) for at in points]
    reference = short_name(evaluation.reference or "the reference")
    label = f"the best of n answers of {reference}, n to {points[-1].n}" if points else ""
    title, scorer = (
        ("True worth over √KL", evaluation.gold) if truth else ("Learnt reward over √KL", evaluation.reward)
    )
    unit = f"by {short_name(scorer)[:MAX_NAME_LENGTH]}" if scorer else ""
    note = f"{counted(evaluation.prompts, 'prompt')}; upright lines: 95 % intervals"
    if truth and evaluation.over_optimisation is not None:
        note += f"; of more answers to choose from: {evaluation.over_optimisation.sentence}"
    yield scatter_chart(
        title, unit, ScatterChart(points=points_of_policies, path=path, path_label=label), note=note
    )


_MAX_CHARTS = 8
_CONFIDENCE_COLUMNS = (
    "right",
    "how sure",
    "surer than right by",
    "calibration error",
    "error, less the reference's",
    "Brier score",
    "log-loss",
    "of all it may say",
)


def confidence_table(evaluation: PolicyEvaluation) -> tuple[Table | None, list[Markup]]:
    """Whether the policies know what they know: their figures, and a reliability diagram for each.

    None where no question with a closed set of answers was asked.
    """
    calibrations = {policy.name: policy.calibration for policy in evaluation.policies if policy.calibration}
    if not calibrations:
        return None, []
    questions = next(iter(calibrations.values())).accuracy.n
    caption = f"{questions:,} questions with choices; 95 % intervals over prompts"
    rows = [(short_name(name), _confidence_cells(found)) for name, found in calibrations.items()]
    charts = [policy_reliability_chart(*entry) for entry in list(calibrations.items())[:_MAX_CHARTS]]
    return Table(caption=caption, columns=_CONFIDENCE_COLUMNS, rows=rows), charts


def policy_reliability_chart(name: str, calibration: PolicyCalibration) -> Markup:
    bins = [reliability_bin(calibration_bin) for calibration_bin in calibration.by_width]
    return reliability_diagram(short_name(name), bins, unit="share right over how sure", of="question")


def _confidence_cells(calibration: PolicyCalibration) -> list[Cell]:
    return [
        estimate_cell(calibration.accuracy, percent),
        estimate_cell(calibration.confidence, percent),
        estimate_cell(calibration.surplus),
        estimate_cell(calibration.ece),
        estimate_cell(calibration.ece_change),
        estimate_cell(calibration.brier),
        estimate_cell(calibration.log_loss),
        Cell(text=percent(calibration.covered.value)),
    ]


_MAX_CONTESTS = 24
_MAX_CATEGORIES = 40
_HEAT_LEVELS = 10


def win_rate_charts(evaluation: PolicyEvaluation) -> list[Markup]:
    """Who wins against whom by each judge, and ratings; nothing where no contest was held."""
    judges = list(dict.fromkeys(contest.judge for contest in evaluation.contests))
    charts = [
        chart for judge in judges for chart in _win_rate_charts(evaluation, judge, is_single=len(judges) == 1)
    ]
    return [*charts, _ratings_chart(evaluation.ratings)] if charts and evaluation.ratings else charts


def categories_table(evaluation: PolicyEvaluation) -> Table | None:
    """True worth by category of the prompt, a column for each policy, shaded by its size."""
    parts = {policy.name: policy.by_category for policy in evaluation.policies if policy.by_category}
    names = list(dict.fromkeys(part.name for figures in parts.values() for part in figures))[:_MAX_CATEGORIES]
    if not names:
        return None
    values = {(policy, part.name): part.value for policy, figures in parts.items() for part in figures}
    numbers = [estimate.value for estimate in values.values()]
    low, high = min(numbers), max(numbers)
    return Table(
        caption=f"True worth by category, shaded from {number_text(low)} to {number_text(high)}; 95 % "
        "intervals over prompts",
        columns=[short_name(policy) for policy in parts],
        rows=[
            (short_name(name), [_heat_cell(values.get((policy, name)), low, high) for policy in parts])
            for name in names
        ],
    )


def _win_rate_charts(evaluation: PolicyEvaluation, judge: str, *, is_single: bool) -> Iterator[Markup]:
    contests = [contest for contest in evaluation.contests if contest.judge == judge][:_MAX_CONTESTS]
    judge_suffix = "" if is_single else f", by {short_name(judge)}"
    styled = any(contest.style_controlled for contest in contests)
    rows = [
        IntervalRow(label=_contest_label(contest), spans=_contest_spans(contest, styled=styled))
        for contest in contests
    ]
    half = GuideLine(low=0.5, high=0.5, label="as often as not")
    series = ["raw", "at equal length", *(["at equal style"] if styled else [])]
    yield share_chart(
        f"Win rate{judge_suffix}", "of pairs", IntervalRows(rows=rows, series=series, guide=half)
    )
    counts = [
        StackedBar(label=_contest_label(contest), counts=(contest.won, contest.tied, contest.lost))
        for contest in contests
    ]
    yield stacked_bar_chart(f"Won, tied and lost{judge_suffix}", "pairs", counts, ("won", "tied", "lost"))


def _contest_spans(contest: Contest, *, styled: bool) -> tuple[Span | None, ...]:
    controlled = (estimate_span(contest.style_controlled),) if styled else ()
    return (estimate_span(contest.raw), estimate_span(contest.length_controlled), *controlled)


def _contest_label(contest: Contest) -> str:
    return f"{short_name(contest.policy)} against {short_name(contest.against)}"


def _ratings_chart(ratings: Sequence[Rating]) -> Markup:
    ranked = sorted(ratings, key=lambda rating: -rating.elo)
    rows = [
        IntervalRow(
            label=short_name(rating.name), spans=(Span(value=rating.elo, low=rating.low, high=rating.high),)
        )
        for rating in ranked
    ]
    chart_data = IntervalRows(
        rows=rows, series=("rating",), guide=GuideLine(low=1000, high=1000, label="the mean")
    )
    return amount_chart("Ratings", "Bradley and Terry 1952, as Elo points", chart_data)


def contests_table(evaluation: PolicyEvaluation) -> Table:
    columns = ["win rate without ties", "both orders agree", "the first is preferred", "p", "no verdict"]
    rows = [
        (f"{_contest_label(contest)}, by {short_name(contest.judge)}", _contest_cells(contest))
        for contest in evaluation.contests[: 2 * _MAX_CONTESTS]
    ]
    return Table(caption="Paired by prompt; p: that neither is better", columns=columns, rows=rows)


def judges_table(pipeline: PipelineData) -> Table | None:
    """How far judges agree with people, of every stage that has asked; None where none has."""
    rows = [
        (short_name(contest.judge), _agreement_cells(contest))
        for stage in pipeline.stages
        for contest in stage.agreements
    ]
    columns = ["agrees", "both orders agree", "the first is preferred", "pairs", "no verdict"]
    caption = "Judges beside people, on pairs that people have compared; a judge's tie is half an agreement"
    return Table(caption=caption, columns=columns, rows=rows) if rows else None


def _agreement_cells(contest: Contest) -> list[Cell]:
    estimates = (contest.raw, contest.consistency, contest.first)
    counts = (contest.won + contest.tied + contest.lost, contest.unjudged)
    return [
        *(estimate_cell(estimate, percent) for estimate in estimates),
        *(Cell(text=f"{count:,}") for count in counts),
    ]


def _contest_cells(contest: Contest) -> list[Cell]:
    tiny = contest.p_value is not None and contest.p_value < 1e-3
    return [
        estimate_cell(contest.decided, percent),
        estimate_cell(contest.consistency, percent),
        estimate_cell(contest.first, percent),
        Cell(text="< 0.001") if tiny else value_cell(contest.p_value),
        Cell(text=f"{contest.unjudged:,}"),
    ]


def _heat_cell(estimate: Estimate | None, low: float, high: float) -> Cell:
    if estimate is None:
        return Cell(text=NO_VALUE)
    level = round(_HEAT_LEVELS * (estimate.value - low) / (high - low)) if high > low else 0
    return Cell(text=number_text(estimate.value), interval=interval_text(estimate), kind=f"degree d{level}")


_MAX_POLICIES = 24
_MAX_LABEL_LENGTH = 18


def length_chart(evaluation: PolicyEvaluation) -> Markup:
    reference = next((policy for policy in evaluation.policies if policy.name == evaluation.reference), None)
    guide = reference and _reference_guide(reference.length.value, reference.name)
    rows = [
        IntervalRow(label=short_name(policy.name), spans=(estimate_span(policy.length),))
        for policy in evaluation.policies[:_MAX_POLICIES]
    ]
    chart_data = IntervalRows(rows=rows, series=("length",), guide=guide)
    return amount_chart("Length", "tokens of an answer", chart_data)


def diversity_table(evaluation: PolicyEvaluation) -> Table:
    words = {policy.diversity.words for policy in evaluation.policies}
    cut = (
        f"answers cut to {counted(min(words), 'word')}" if len(words) == 1 else "answers cut to equal length"
    )
    return Table(
        caption=f"How unlike each other answers are; {cut}, so that length decides nothing",
        columns=(
            "unlike answers",
            "unlike words",
            "unlike pairs",
            "self-BLEU",
            "to one prompt",
            "entropy, nats",
        ),
        rows=[(short_name(policy.name), _diversity_cells(policy)) for policy in evaluation.policies],
    )


def _reference_guide(value: float, name: str) -> GuideLine:
    return GuideLine(low=value, high=value, label=truncated(name, _MAX_LABEL_LENGTH))


def _diversity_cells(policy: PolicyFigures) -> list[Cell]:
    diversity = policy.diversity
    return [
        value_cell(diversity.unique, percent),
        value_cell(diversity.distinct_1, percent),
        value_cell(diversity.distinct_2, percent),
        value_cell(diversity.self_bleu),
        value_cell(diversity.unique_within, percent),
        estimate_cell(policy.entropy),
    ]
