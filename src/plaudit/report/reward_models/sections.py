"""Whether the models know how sure they may be, and how far they hold the answers apart.

Where the models are right and where they are not: accuracy by category, strength, annotator and group.

What the models like in an answer beyond what the annotators like in it.

What the truth and public benchmarks say: best-of-n where there is a truth, sections of RewardBench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

from plaudit.evaluation.reward_models.result import (
    BestOfNCurve,
    Bin,
    Calibration,
    Margins,
    Odds,
    Probe,
    Probes,
    RewardEvaluation,
    Slice,
)
from plaudit.evaluation.stats.bootstrap import wilson_interval
from plaudit.report.charts.axes import Span
from plaudit.report.charts.bars import HistogramBin, ReliabilityBin, histogram, reliability_diagram
from plaudit.report.charts.intervals import GuideLine, IntervalRow, IntervalRows, forest_plot, share_chart
from plaudit.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.report.html import Html, element, folded, section, shortened
from plaudit.report.reward_models.summary import (
    MAX_NAME_LENGTH,
    NO_VALUE,
    ReportedModel,
    ceiling_range,
    chart_groups,
    estimate_span,
    models_table,
    paragraph,
    share_cell,
    text_cell,
)
from plaudit.report.words import counted, number_text, percent

_NEGLIGIBLE_DIFFERENCE = 0.02
"""A difference between claim and outcome that nobody acts on."""
_RELIABILITY_NOTE = "upright lines: 95 % intervals as if no two pairs shared a prompt"


def calibration_section(models: Sequence[ReportedModel]) -> Html:
    """The section on calibration: of each model a reliability diagram, a histogram of margins and its
    scores.
    """
    calibrated = [
        model
        for model in models
        if model.evaluation.calibration is not None or model.evaluation.margins is not None
    ]
    if not calibrated:
        nothing = element("p", {}, "There is no pair with a preference to hold the rewards against.")
        return section("How sure it may be", "calibration", nothing)
    rows = [_model_row(model, is_single=len(models) == 1) for model in calibrated]
    return section("How sure it may be", "calibration", *rows, _calibration_table(models))


def _model_row(model: ReportedModel, *, is_single: bool) -> Html:
    words = element("div", {}, *_calibration_sentences(model, is_single=is_single))
    return element("div", {"class": "curves"}, words, *_calibration_charts(model, is_single=is_single))


def _calibration_charts(model: ReportedModel, *, is_single: bool) -> Iterator[Html]:
    evaluation, model_prefix = model.evaluation, "" if is_single else f"{model.name}: "
    if evaluation.calibration is not None:
        bins = [reliability_bin(one) for one in evaluation.calibration.by_width]
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


def _calibration_sentences(model: ReportedModel, *, is_single: bool) -> Iterator[Html]:
    evaluation = model.evaluation
    name = "The model" if is_single else model.name
    if evaluation.calibration is not None:
        yield paragraph(_confidence_sentence(name, evaluation.calibration))
    if evaluation.ties is not None:
        elsewhere = evaluation.ties.gap_elsewhere
        compared = "" if elsewhere is None else f", against {number_text(elsewhere)} on the other pairs"
        pairs = counted(evaluation.ties.pairs, "pair")
        who = "the model" if is_single else model.name
        gap = f"a gap of {number_text(evaluation.ties.gap)} on average{compared}"
        yield paragraph(f"On the {pairs} that annotators call equal, {who} sees {gap}.")


def _confidence_sentence(name: str, calibration: Calibration) -> str:
    overconfidence = (
        sum(one.pairs * (one.confidence - one.right) for one in calibration.by_mass) / calibration.pairs
    )
    mean_confidence = sum(one.pairs * one.confidence for one in calibration.by_mass) / calibration.pairs
    verdict = "about as sure as it may be"
    if abs(overconfidence) >= _NEGLIGIBLE_DIFFERENCE:
        verdict = "surer than it may be" if overconfidence > 0 else "less sure than it might be"
    claim = f"by its rewards it would be right in {percent(mean_confidence)} of the pairs"
    return f"{name} is {verdict}: {claim}, and it is right in {percent(mean_confidence - overconfidence)}."


def reliability_bin(calibration_bin: Bin) -> ReliabilityBin:
    """A bin of a calibration as a reliability diagram draws it."""
    low, high = wilson_interval(calibration_bin.right, calibration_bin.pairs)
    return ReliabilityBin(
        bin=HistogramBin(low=calibration_bin.low, high=calibration_bin.high, count=calibration_bin.pairs),
        predicted=calibration_bin.confidence,
        observed=Span(value=calibration_bin.right, low=low, high=high),
    )


def _histogram_bars(margins: Margins) -> list[HistogramBin]:
    return [
        HistogramBin(low=low, high=high, count=count)
        for low, high, count in zip(margins.edges, margins.edges[1:], margins.counts, strict=False)
    ]


def _calibration_table(models: Sequence[ReportedModel]) -> Html:
    def of(part: Callable[[Calibration], float], write: Callable[[float], str]) -> Callable[..., Html]:
        def written(found: RewardEvaluation) -> Html:
            return text_cell(NO_VALUE if found.calibration is None else write(part(found.calibration)))

        return written

    def margin(part: Callable[[Margins], float]) -> Callable[..., Html]:
        def written(found: RewardEvaluation) -> Html:
            return text_cell(NO_VALUE if found.margins is None else number_text(part(found.margins)))

        return written

    rows = {
        "log-loss (0.69 knows nothing)": of(lambda one: one.log_loss, number_text),
        "Brier score (0.25 knows nothing)": of(lambda one: one.brier, number_text),
        "calibration error, bins of equal size": of(lambda one: one.ece_mass, percent),
        "calibration error, bins of equal width": of(lambda one: one.ece_width, percent),
        "mean margin": margin(lambda one: one.mean),
        "median margin": margin(lambda one: one.median),
    }
    return models_table("Scores of σ(r₁ − r₂) as the chance that the first answer is preferred", models, rows)


_MAX_ROWS = 24
_ACCURACY_GUIDE = (
    "Each mark is an accuracy, each line its 95 % interval by resampling prompts. The broken line, or the "
    "grey stripe, is the ceiling of all pairs that annotators leave; a part of them may have another."
)

_SlicesOf = Callable[[RewardEvaluation], tuple[Slice, ...]]


def accuracy_section(models: Sequence[ReportedModel]) -> Html:
    """A chart for each way to divide the pairs, and the same as tables."""
    divisions: tuple[tuple[str, bool, _SlicesOf], ...] = (
        ("By category", True, lambda found: found.categories),
        ("By strength of the preference", False, lambda found: found.strengths),
        ("By annotator", True, lambda found: found.annotators),
        ("By group of annotators", True, lambda found: found.groups),
    )
    present_divisions = [
        (title, worst_first, slices_of)
        for title, worst_first, slices_of in divisions
        if any(slices_of(m.evaluation) for m in models)
    ]
    if not present_divisions:
        nothing = "The pairs name no category, no strength and no annotator to divide them by."
        return section("Where it is right", "parts", element("p", {}, nothing))
    charts = [
        chart
        for title, worst_first, slices_of in present_divisions
        for group in chart_groups(models)
        for chart in _accuracy_chart(title, group, slices_of, worst_first=worst_first)
    ]
    tables = [
        _accuracy_table(title, models, slices_of, worst_first=worst_first)
        for title, worst_first, slices_of in present_divisions
    ]
    return section(
        "Where it is right",
        "parts",
        element("div", {"class": "curves"}, *charts, element("p", {"class": "how"}, _ACCURACY_GUIDE)),
        folded("The same as tables", *tables),
    )


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
) -> Iterator[Html]:
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
        spans=tuple(None if part is None else estimate_span(part.accuracy) for part in slices),
    )


def _slice_named(evaluation: RewardEvaluation, slices_of: _SlicesOf, name: str) -> Slice | None:
    return next((part for part in slices_of(evaluation) if part.name == name), None)


def _ceiling_guide(models: Sequence[ReportedModel]) -> GuideLine | None:
    """The ceiling, where the models of a chart have the same one."""
    ends = {ceiling_range(model.evaluation.ceiling) for model in models}
    (first, *others) = ends
    if first is None or others:
        return None
    return GuideLine(low=first[0], high=first[1], label="ceiling")


def _accuracy_table(
    title: str, models: Sequence[ReportedModel], slices_of: _SlicesOf, *, worst_first: bool
) -> Html:
    def of(name: str) -> Callable[[RewardEvaluation], Html]:
        def write(found: RewardEvaluation) -> Html:
            part = _slice_named(found, slices_of, name)
            return share_cell(part and part.accuracy)

        return write

    names = _slice_names(models, slices_of, worst_first=worst_first)
    return models_table(title, models, {shortened(name, MAX_NAME_LENGTH): of(name) for name in names})


def probes_section(models: Sequence[ReportedModel]) -> Html:
    """For each model a forest plot of odds beside a sentence on each feature."""
    blocks = [_model_block(model, is_single=len(models) == 1) for model in models]
    return section("What it likes beyond what it should", "probes", *blocks)


def _model_block(model: ReportedModel, *, is_single: bool) -> Html:
    probes = model.evaluation.probes
    title = "Odds of being preferred" if is_single else f"{model.name}: odds of being preferred"
    with_odds = [probe for probe in probes.features if probe.model or probe.annotators]
    lines = [
        _probes_sentence(probes),
        element("ul", {"class": "notes"}, *(_probe_item(probe) for probe in probes.features)),
    ]
    words = element("div", {}, *lines)
    if not with_odds:
        heading = [] if is_single else [element("h3", {}, model.name)]
        return element("div", {}, *heading, words)
    rows = [_odds_row(probe) for probe in with_odds]
    chart = forest_plot(
        title,
        "with the feature, others held fixed",
        IntervalRows(rows=rows, series=("the model", "annotators")),
    )
    return element("div", {"class": "pair"}, chart, words)


def _probes_sentence(probes: Probes) -> Html:
    if not probes.features:
        return element("p", {}, _as_sentence(probes.words or "Nothing was probed"))
    held_fixed = ", the true utility of both answers held fixed" if probes.at_equal_worth else ""
    basis = f"One regression on {counted(probes.pairs, 'pair')}{held_fixed}. "
    what = "Right of 1 the feature helps an answer, left of 1 it harms it."
    return element("p", {}, basis, what, f" {_as_sentence(probes.words)}" if probes.words else "")


def _as_sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _probe_item(probe: Probe) -> Html:
    name = element("b", {}, f"{probe.name[:1].upper()}{probe.name[1:]}")
    unit = element("span", {"class": "quiet"}, f" ({probe.unit})")
    return element("li", {}, name, unit, f": {probe.words}{'' if probe.words.endswith('.') else '.'}")


def _odds_row(probe: Probe) -> IntervalRow:
    return IntervalRow(
        label=f"{probe.what} · {counted(probe.pairs, 'pair')}",
        spans=(_odds_span(probe.model), _odds_span(probe.annotators)),
    )


def _odds_span(odds: Odds | None) -> Span | None:
    return None if odds is None else Span(value=odds.ratio, low=odds.low, high=odds.high)


_KL_BOUND_NOTE = "√KL is an upper bound where answers share a reward."


def best_of_n_section(models: Sequence[ReportedModel]) -> Html:
    """Truth and proxy over the distance from the sampled policy; nothing where no truth is known."""
    models_with_curve = [model for model in models if model.evaluation.best_of is not None]
    if not models_with_curve:
        nothing = "No truth was given to hold the chosen answers against, so there is no best-of-n curve."
        return section("What a policy would make of it", "best-of", element("p", {}, nothing))
    sentences = [
        element("p", {}, _best_of_n_sentence(model, is_single=len(models) == 1))
        for model in models_with_curve
    ]
    charts = [_truth_chart(group) for group in chart_groups(models_with_curve)]
    charts += [_proxy_chart(model, is_single=len(models) == 1) for model in models_with_curve]
    return section(
        "What a policy would make of it", "best-of", *sentences, element("div", {"class": "curves"}, *charts)
    )


def benchmark_sections(models: Sequence[ReportedModel]) -> Iterator[Html]:
    """A section for each benchmark that a file was."""
    names = dict.fromkeys(model.evaluation.benchmark.name for model in models if model.evaluation.benchmark)
    for number, name in enumerate(names, start=1):
        yield _benchmark_section(
            name, f"benchmark-{number}", [m for m in models if _has_benchmark(m.evaluation, name)]
        )


def _best_of_n_curve(model: ReportedModel) -> BestOfNCurve:
    curve = model.evaluation.best_of
    assert curve is not None
    return curve


def _truth_chart(models: Sequence[ReportedModel]) -> Html:
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


def _proxy_chart(model: ReportedModel, *, is_single: bool) -> Html:
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
    if best.n < last.n and _is_above(best.truth.low, last.truth.high):
        sentence += (
            f". It is highest at n = {best.n}, {number_text(best.truth.value)}: beyond, the model "
            "is overdriven"
        )
    return f"{sentence} ({counted(curve.prompts, 'prompt')} of {curve.answers:,} answers each)."


def _is_above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _has_benchmark(evaluation: RewardEvaluation, name: str) -> bool:
    return evaluation.benchmark is not None and evaluation.benchmark.name == name


def _benchmark_section(name: str, link: str, models: Sequence[ReportedModel]) -> Html:
    def overall(found: RewardEvaluation) -> Html:
        value = found.benchmark and found.benchmark.overall
        return text_cell(NO_VALUE if value is None else percent(value))

    def of(part: str) -> Callable[[RewardEvaluation], Html]:
        def write(found: RewardEvaluation) -> Html:
            sections = found.benchmark.sections if found.benchmark else ()
            return share_cell(next((one.score for one in sections if one.name == part), None))

        return write

    parts = dict.fromkeys(
        one.name for m in models if m.evaluation.benchmark for one in m.evaluation.benchmark.sections
    )
    notes = dict.fromkeys(
        note for m in models if m.evaluation.benchmark for note in m.evaluation.benchmark.notes
    )
    items = [element("li", {}, note) for note in notes]
    scores_table = models_table(
        f"{name}, scored by its own rules", models, {"overall": overall, **{p: of(p) for p in parts}}
    )
    return section(name, link, scores_table, *([element("ul", {"class": "notes"}, *items)] if items else []))
