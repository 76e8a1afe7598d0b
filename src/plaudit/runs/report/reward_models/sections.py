"""What the page of reward models shows: charts, tables and sentences, from what the evaluations found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from markupsafe import Markup

from plaudit.evaluation.reward_models.result import (
    BestOfNCurve,
    Calibration,
    Margins,
    Odds,
    Probe,
    Probes,
    RewardEvaluation,
    Slice,
)
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.bars import HistogramBin, histogram, reliability_diagram
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    forest_plot,
    share_chart,
)
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.runs.report.figures import (
    NO_VALUE,
    Cell,
    Table,
    estimate_cell,
    estimate_span,
    reliability_bin,
    value_cell,
)
from plaudit.runs.report.reward_models.summary import (
    MAX_NAME_LENGTH,
    ReportedModel,
    ceiling_range,
    chart_groups,
    models_table,
)
from plaudit.runs.report.words import counted, number_text, percent, shortened

_NEGLIGIBLE_DIFFERENCE = 0.02
"""A difference between claim and outcome that nobody acts on."""
_RELIABILITY_NOTE = "upright lines: 95 % intervals as if no two pairs shared a prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationBlock:
    """How sure one model may be."""

    sentences: tuple[str, ...]
    charts: tuple[Markup, ...]
    """A reliability diagram and a histogram of margins, as far as there are such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbesBlock:
    """What one model likes beyond what it should.

    Example: ``ProbesBlock(heading="", chart=None, sentence="Nothing was probed.", features=())``
    """

    heading: str
    """Whose it is, where there is no chart that says so and several models are on the page."""
    chart: Markup | None
    """The odds of being preferred."""
    sentence: str
    features: tuple[tuple[str, str, str], ...]
    """The name of each feature, its unit, and what was found."""


def calibration_blocks(models: Sequence[ReportedModel]) -> list[CalibrationBlock]:
    is_single = len(models) == 1
    return [
        CalibrationBlock(
            sentences=tuple(_calibration_sentences(model, is_single=is_single)),
            charts=tuple(_calibration_charts(model, is_single=is_single)),
        )
        for model in models
        if model.evaluation.calibration is not None or model.evaluation.margins is not None
    ]


def _calibration_charts(model: ReportedModel, *, is_single: bool) -> Iterator[Markup]:
    evaluation, model_prefix = model.evaluation, "" if is_single else f"{model.name}: "
    if evaluation.calibration is not None:
        bins = [reliability_bin(calibration_bin) for calibration_bin in evaluation.calibration.by_width]
        yield reliability_diagram(
            f"{model_prefix}Reliability",
            bins,
            unit="share right over how sure the model was",
            note=_RELIABILITY_NOTE,
        )
    if evaluation.margins is not None:
        yield histogram(
            f"{model_prefix}Margins",
            _histogram_bars(evaluation.margins),
            unit="pairs by reward of the preferred answer less the other's",
            zero="right from here",
            note="The outermost bars also hold all that lies beyond.",
        )


def _calibration_sentences(model: ReportedModel, *, is_single: bool) -> Iterator[str]:
    evaluation = model.evaluation
    name = "The model" if is_single else model.name
    if evaluation.calibration is not None:
        yield _confidence_sentence(name, evaluation.calibration)
    if evaluation.ties is not None:
        elsewhere = evaluation.ties.gap_elsewhere
        compared = "" if elsewhere is None else f", against {number_text(elsewhere)} on the other pairs"
        pairs = counted(evaluation.ties.pairs, "pair")
        who = "the model" if is_single else model.name
        gap = f"a gap of {number_text(evaluation.ties.gap)} on average{compared}"
        yield f"On the {pairs} that annotators call equal, {who} sees {gap}."


def _confidence_sentence(name: str, calibration: Calibration) -> str:
    # Bins only regroup the pairs: summed by their sizes they give the means over all pairs.
    overconfidence = (
        sum(part.pairs * (part.confidence - part.right) for part in calibration.by_mass) / calibration.pairs
    )
    mean_confidence = sum(part.pairs * part.confidence for part in calibration.by_mass) / calibration.pairs
    verdict = "about as sure as it may be"
    if abs(overconfidence) >= _NEGLIGIBLE_DIFFERENCE:
        verdict = "surer than it may be" if overconfidence > 0 else "less sure than it might be"
    claim = f"by its rewards it would be right in {percent(mean_confidence)} of the pairs"
    return f"{name} is {verdict}: {claim}, and it is right in {percent(mean_confidence - overconfidence)}."


def _histogram_bars(margins: Margins) -> list[HistogramBin]:
    return [
        HistogramBin(low=low, high=high, count=count)
        for low, high, count in zip(margins.edges, margins.edges[1:], margins.counts, strict=False)
    ]


def calibration_table(models: Sequence[ReportedModel]) -> Table:
    """The proper scores of every model, and its margins."""

    def score(write: Callable[[Calibration], str]) -> Callable[[RewardEvaluation], Cell]:
        return lambda found: Cell(text=NO_VALUE if found.calibration is None else write(found.calibration))

    def margin(part: Callable[[Margins], float]) -> Callable[[RewardEvaluation], Cell]:
        return lambda found: value_cell(None if found.margins is None else part(found.margins))

    rows = {
        "log-loss (0.69 knows nothing)": score(lambda found: number_text(found.log_loss)),
        "Brier score (0.25 knows nothing)": score(lambda found: number_text(found.brier)),
        "calibration error, bins of equal size": score(lambda found: percent(found.ece_mass)),
        "calibration error, bins of equal width": score(lambda found: percent(found.ece_width)),
        "mean margin": margin(lambda margins: margins.mean),
        "median margin": margin(lambda margins: margins.median),
    }
    return models_table("Scores of σ(r₁ − r₂) as the chance that the first answer is preferred", models, rows)


_MAX_ROWS = 24
_SlicesOf = Callable[[RewardEvaluation], tuple[Slice, ...]]
_DIVISIONS: tuple[tuple[str, bool, _SlicesOf], ...] = (
    ("By category", True, lambda found: found.categories),
    ("By strength of the preference", False, lambda found: found.strengths),
    ("By annotator", True, lambda found: found.annotators),
    ("By whose labels", False, lambda found: found.held_out.parts if found.held_out else ()),
    ("By group of annotators", True, lambda found: found.groups),
)
"""Ways to divide the pairs, and whether the worst part comes first."""


def accuracy_charts(models: Sequence[ReportedModel]) -> list[Markup]:
    """A chart for each way to divide the pairs; none where the pairs name nothing to divide them by."""
    return [
        chart
        for title, worst_first, slices_of in _DIVISIONS
        for group in chart_groups(models)
        for chart in _accuracy_chart(title, group, slices_of, worst_first=worst_first)
    ]


def accuracy_tables(models: Sequence[ReportedModel]) -> list[Table]:
    return [
        _accuracy_table(title, models, slices_of, worst_first=worst_first)
        for title, worst_first, slices_of in _DIVISIONS
        if any(slices_of(model.evaluation) for model in models)
    ]


def _slice_names(models: Sequence[ReportedModel], slices_of: _SlicesOf, *, worst_first: bool) -> list[str]:
    """Every part that one of the models has; the worst for any of them first, or as they come."""
    lowest_accuracy: dict[str, float] = {}
    for model in models:
        for part in slices_of(model.evaluation):
            lowest_accuracy[part.name] = min(part.accuracy.value, lowest_accuracy.get(part.name, 1.0))
    return (
        sorted(lowest_accuracy, key=lambda name: lowest_accuracy[name])
        if worst_first
        else list(lowest_accuracy)
    )


def _accuracy_chart(
    title: str, models: Sequence[ReportedModel], slices_of: _SlicesOf, *, worst_first: bool
) -> Iterator[Markup]:
    names = _slice_names(models, slices_of, worst_first=worst_first)
    if not names:
        return
    rows = [
        _accuracy_row(name, [_slice_named(model.evaluation, slices_of, name) for model in models])
        for name in names[:_MAX_ROWS]
    ]
    limit_note = f", {_MAX_ROWS} of {len(names)}" if len(names) > _MAX_ROWS else ""
    unit = f"worst first{limit_note}" if worst_first else f"faint first{limit_note}"
    rows_data = IntervalRows(rows=rows, series=[model.name for model in models], guide=_ceiling_guide(models))
    yield share_chart(title, unit, rows_data)


def _accuracy_row(name: str, slices: Sequence[Slice | None]) -> IntervalRow:
    pairs = max(part.accuracy.n for part in slices if part is not None)
    return IntervalRow(
        label=f"{shortened(name, MAX_NAME_LENGTH) if name else '(empty)'} · {counted(pairs, 'pair')}",
        spans=tuple(estimate_span(part and part.accuracy) for part in slices),
    )


def _slice_named(evaluation: RewardEvaluation, slices_of: _SlicesOf, name: str) -> Slice | None:
    return next((part for part in slices_of(evaluation) if part.name == name), None)


def _ceiling_guide(models: Sequence[ReportedModel]) -> GuideLine | None:
    ends = {ceiling_range(model.evaluation.ceiling) for model in models}
    (first, *others) = ends
    if first is None or others:
        return None
    return GuideLine(low=first[0], high=first[1], label="ceiling")


def _accuracy_table(
    title: str, models: Sequence[ReportedModel], slices_of: _SlicesOf, *, worst_first: bool
) -> Table:
    def accuracy(name: str) -> Callable[[RewardEvaluation], Cell]:
        def write(found: RewardEvaluation) -> Cell:
            part = _slice_named(found, slices_of, name)
            return estimate_cell(part and part.accuracy, percent)

        return write

    names = _slice_names(models, slices_of, worst_first=worst_first)
    return models_table(title, models, {shortened(name, MAX_NAME_LENGTH): accuracy(name) for name in names})


def probes_blocks(models: Sequence[ReportedModel]) -> list[ProbesBlock]:
    """For each model a forest plot of odds beside a sentence on each feature."""
    return [_probes_block(model, is_single=len(models) == 1) for model in models]


def _probes_block(model: ReportedModel, *, is_single: bool) -> ProbesBlock:
    probes = model.evaluation.probes
    rows = [_odds_row(probe) for probe in probes.features if probe.model or probe.annotators]
    title = "Odds of being preferred" if is_single else f"{model.name}: odds of being preferred"
    chart_data = IntervalRows(rows=rows, series=("the model", "annotators"))
    return ProbesBlock(
        heading="" if rows or is_single else model.name,
        chart=forest_plot(title, "with the feature, others held fixed", chart_data) if rows else None,
        sentence=_probes_sentence(probes),
        features=tuple(
            (f"{probe.name[:1].upper()}{probe.name[1:]}", probe.unit, _with_full_stop(probe.words))
            for probe in probes.features
        ),
    )


def _probes_sentence(probes: Probes) -> str:
    flat = "" if probes.flat_errors is None else f" The model {_with_full_stop(probes.flat_errors.words)}"
    return f"{_regression_sentence(probes)}{flat}"


def _regression_sentence(probes: Probes) -> str:
    if not probes.features:
        return _as_sentence(probes.words or "Nothing was probed")
    held_fixed = ", the true utility of both answers held fixed" if probes.at_equal_worth else ""
    basis = f"One regression on {counted(probes.pairs, 'pair')}{held_fixed}."
    what = "Right of 1 the feature helps an answer, left of 1 it harms it."
    return f"{basis} {what} {_as_sentence(probes.words)}" if probes.words else f"{basis} {what}"


def _as_sentence(words: str) -> str:
    return _with_full_stop(f"{words[:1].upper()}{words[1:]}")


def _with_full_stop(words: str) -> str:
    return words if words.endswith(".") else f"{words}."


def _odds_row(probe: Probe) -> IntervalRow:
    return IntervalRow(
        label=f"{probe.what} · {counted(probe.pairs, 'pair')}",
        spans=(_odds_span(probe.model), _odds_span(probe.annotators)),
    )


def _odds_span(odds: Odds | None) -> Span | None:
    return None if odds is None else Span(value=odds.ratio, low=odds.low, high=odds.high)


_KL_BOUND_NOTE = "√KL is an upper bound where answers share a reward."


def best_of_n_sentences(models: Sequence[ReportedModel]) -> list[str]:
    """What choosing by each model would give; nothing where no truth is known."""
    is_single = len(models) == 1
    return [
        _best_of_n_sentence(model, is_single=is_single)
        for model in models
        if model.evaluation.best_of is not None
    ]


def best_of_n_charts(models: Sequence[ReportedModel]) -> list[Markup]:
    """Truth and proxy over the distance from the sampled policy; none where no truth is known."""
    with_curve = [model for model in models if model.evaluation.best_of is not None]
    truths = [_truth_chart(group) for group in chart_groups(with_curve)]
    return truths + [_proxy_chart(model, is_single=len(models) == 1) for model in with_curve]


def benchmark_scores(models: Sequence[ReportedModel]) -> list[tuple[str, Table, list[str]]]:
    """The scores on each benchmark that a file was, by its own rules, and what must be known to read them."""
    found = [(model, model.evaluation.benchmark) for model in models]
    names = dict.fromkeys(benchmark.name for _, benchmark in found if benchmark)
    return [
        _benchmark_scores(name, [model for model, benchmark in found if benchmark and benchmark.name == name])
        for name in names
    ]


def _best_of_n_curve(model: ReportedModel) -> BestOfNCurve:
    curve = model.evaluation.best_of
    assert curve is not None
    return curve


def _truth_chart(models: Sequence[ReportedModel]) -> Markup:
    lines = [
        BandLine(
            label=model.name if len(models) > 1 else "chosen by the model",
            points=tuple((sqrt(at.kl), estimate_span(at.truth)) for at in _best_of_n_curve(model).points),
        )
        for model in models
    ]
    longest = max((_best_of_n_curve(model) for model in models), key=lambda curve: len(curve.points))
    possible = tuple((sqrt(at.kl), Span(value=at.possible)) for at in longest.points)
    chart_data = BandChart(
        lines=lines,
        comparison_line=BandLine(label="chosen by the truth", points=possible),
        named_positions=_n_labels(longest),
        names_title="n",
    )
    return band_chart(
        "True utility of the best of n", "over √KL, with its 95 % interval", chart_data, note=_KL_BOUND_NOTE
    )


def _proxy_chart(model: ReportedModel, *, is_single: bool) -> Markup:
    curve = _best_of_n_curve(model)
    points = tuple((sqrt(at.kl), Span(value=at.proxy)) for at in curve.points)
    title = "The model's own reward" if is_single else f"{model.name}: its own reward"
    chart_data = BandChart(
        lines=[BandLine(label="reward", points=points)], named_positions=_n_labels(curve), names_title="n"
    )
    return band_chart(title, "of the same answers, over √KL", chart_data)


def _n_labels(curve: BestOfNCurve) -> list[tuple[float, str]]:
    return [(sqrt(at.kl), str(at.n)) for at in curve.points]


def _best_of_n_sentence(model: ReportedModel, *, is_single: bool) -> str:
    curve = _best_of_n_curve(model)
    first, last = curve.points[0], curve.points[-1]
    best = max(curve.points, key=lambda at: at.truth.value)
    name = "the model" if is_single else model.name
    sentence = (
        f"Choosing the best of {last.n} by {name} takes the true utility from "
        f"{number_text(first.truth.value)} to "
        f"{number_text(last.truth.value)}; the truth itself would reach {number_text(last.possible)}"
    )
    # Only where the intervals are apart: of few prompts any curve has a peak.
    if best.n < last.n and _is_above(best.truth.low, last.truth.high):
        sentence += (
            f". It is highest at n = {best.n}, {number_text(best.truth.value)}: beyond, the model "
            "is overdriven"
        )
    return f"{sentence} ({counted(curve.prompts, 'prompt')} of {curve.answers:,} answers each)."


def _is_above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _benchmark_scores(name: str, models: Sequence[ReportedModel]) -> tuple[str, Table, list[str]]:
    def overall(found: RewardEvaluation) -> Cell:
        return value_cell(found.benchmark and found.benchmark.overall, percent)

    def score(part: str) -> Callable[[RewardEvaluation], Cell]:
        def write(found: RewardEvaluation) -> Cell:
            sections = found.benchmark.sections if found.benchmark else ()
            return estimate_cell(
                next((section.score for section in sections if section.name == part), None), percent
            )

        return write

    benchmarks = [model.evaluation.benchmark for model in models if model.evaluation.benchmark]
    parts = dict.fromkeys(section.name for benchmark in benchmarks for section in benchmark.sections)
    rows = {"overall": overall, **{part: score(part) for part in parts}}
    notes = dict.fromkeys(note for benchmark in benchmarks for note in benchmark.notes)
    return name, models_table(f"{name}, scored by its own rules", models, rows), [*notes]
