"""What an evaluation of reward models leaves behind: summary.json, scores.jsonl, and report.html for eyes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from pathlib import Path

from markupsafe import Markup

from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.reward_models import result
from plaudit.evaluation.reward_models.evaluate import EvaluatedReward
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.files.atomic import AtomicFile, make_output_folder
from plaudit.runs.report import parts as html
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
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.reward_models.summary import (
    MAX_NAME_LENGTH,
    ReportedModel,
    calibration_cell,
    ceiling_range,
    ceiling_source,
    ceilings,
    chart_groups,
    comparison_table,
    finding,
    headline_cards,
    models_table,
    reported_models,
    subtitle,
)
from plaudit.runs.report.words import counted, number_text, percent, shortened


def write_reward_evaluations(evaluated: Sequence[EvaluatedReward], out: Path) -> tuple[Path, ...]:
    """Several models on the same evidence, into one folder; each file appears whole or not at all."""
    make_output_folder(out)
    evaluations = [reward.evaluation for reward in evaluated]
    summary = {"evaluations": [reward.as_json() for reward in evaluations]}
    with AtomicFile(out / "summary.json") as file:
        file.stream.write(json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n")
    names = [reward.model for reward in evaluations]
    with AtomicFile(out / "scores.jsonl") as file:
        for pair_by_model in zip(*(reward.pairs for reward in evaluated), strict=True):
            row = json.dumps(_score_row(names, pair_by_model), ensure_ascii=False, allow_nan=False)
            file.stream.write(row.encode() + b"\n")
    return out / "summary.json", out / "scores.jsonl", write_reward_page(evaluations, out / "report.html")


def _score_row(names: Sequence[str], pair_by_model: Sequence[ScoredPair]) -> dict[str, object]:
    pair = pair_by_model[0]
    optional_fields = {
        "category": pair.category,
        "annotator": pair.annotator,
        "group": pair.group,
        "strength": pair.strength,
        "places": pair.places,
        "truths": None if pair.truths == (None, None) else pair.truths,
        "origin": pair.origin or None,
    }
    return {
        "prompt": text_to_json(pair.prompt),
        "answers": pair.answers,
        "chance": pair.p_first,
        "rewards": {name: scored.rewards for name, scored in zip(names, pair_by_model, strict=True)},
        **{name: value for name, value in optional_fields.items() if value is not None},
    }


def write_reward_page(evaluations: Sequence[result.RewardEvaluation], path: Path) -> Path:
    """Writes the page of these models to ``path`` and returns it; a reader sees the old page or the new."""
    return write_page(reward_page(evaluations), path)


def reward_page(evaluations: Sequence[result.RewardEvaluation]) -> str:
    if not evaluations:
        raise UserError("a page needs at least one evaluation: name a reward model")
    models = reported_models(evaluations)
    is_single = len(models) == 1
    several = html.say("reward.several", count=len(models))
    head = [
        html.Text(subtitle(models), "state"),
        html.Text(finding(models), "lede"),
        *(html.Text(ceiling_source(ceiling), "quiet") for ceiling in ceilings(models)),
        html.Cards([*headline_cards(models[0].evaluation)]) if is_single else comparison_table(models),
    ]
    title = models[0].name if is_single else several
    heading = html.say("reward.title", name=models[0].name) if is_single else several
    return render(
        html.Page(
            title=title, heading=heading, head=head, sections=reward_sections(models), styles=("charts",)
        )
    )


_NEGLIGIBLE_DIFFERENCE = 0.02
"""A difference between claim and outcome that nobody acts on."""
_MAX_ROWS = 24
_MAX_MISTAKES = 12
_MAX_TEXT_LENGTH = 1000
_MAX_FACT_LENGTH = 120
_SlicesOf = Callable[[result.RewardEvaluation], tuple[result.Slice, ...]]
_DIVISIONS: tuple[tuple[str, bool, _SlicesOf], ...] = (
    ("By category", True, lambda evaluation: evaluation.categories),
    ("By strength of the preference", False, lambda evaluation: evaluation.strengths),
    ("By annotator", True, lambda evaluation: evaluation.annotators),
    ("By whose labels", False, lambda evaluation: evaluation.held_out.parts if evaluation.held_out else ()),
    ("By group of annotators", True, lambda evaluation: evaluation.groups),
)
"""Ways to divide the pairs, and whether the worst part comes first."""


def reward_sections(models: Sequence[ReportedModel]) -> list[html.Section]:
    lines = dict.fromkeys(model.title(line) for model in models for line in _left_out_lines(model.evaluation))
    notes = html.Notes([html.Note(shortened(line, _MAX_TEXT_LENGTH)) for line in lines])
    rows = {
        "model": lambda judged: html.Cell(text=shortened(judged.model, _MAX_FACT_LENGTH), kind="long"),
        "preferences": lambda judged: html.Cell(text=shortened(judged.data, _MAX_FACT_LENGTH), kind="long"),
        "pairs": lambda judged: html.Cell(text=f"{judged.pairs:,}"),
        "prompts": lambda judged: html.Cell(text=f"{judged.prompts:,}"),
        "draws of the bootstrap, by prompt": lambda judged: html.Cell(text=f"{judged.bootstrap:,}"),
        "seed of the bootstrap": lambda judged: html.Cell(text=str(judged.seed)),
    }
    return [
        _accuracy_section(models),
        calibration_section(models),
        probes_section(models),
        _best_of_n_section(models),
        *_benchmark_sections(models),
        _mistakes_section(models),
        html.Section(
            "What was left out",
            "left-out",
            [notes if lines else html.Text(html.say("reward.nothing_left_out"))],
        ),
        html.Section("How it was made", "made", [models_table(html.say("reward.provenance"), models, rows)]),
    ]


def _accuracy_section(models: Sequence[ReportedModel]) -> html.Section:
    """A chart for each way to divide the pairs, as far as the pairs name something to divide them by."""
    charts: list[Markup] = []
    tables: list[html.Table] = []
    for title, worst_first, slices_of in _DIVISIONS:
        for group in chart_groups(models):
            names = _slice_names(group, slices_of, worst_first=worst_first)
            unit = "worst first" if worst_first else "faint first"
            charts += [_accuracy_chart(title, unit, group, slices_of, names)] if names else []
        names = _slice_names(models, slices_of, worst_first=worst_first)
        tables += [_accuracy_table(title, models, slices_of, names)] if names else []
    parts = [html.Charts(charts, html.say("reward.accuracy_guide")), html.Folded(html.say("tables"), tables)]
    return html.Section(
        "Where it is right", "parts", parts if charts else [html.Text(html.say("reward.undivided"))]
    )


def _slice_names(models: Sequence[ReportedModel], slices_of: _SlicesOf, *, worst_first: bool) -> list[str]:
    """Every part that one of the models has; the worst for any of them first, or as they come."""
    lowest: dict[str, float] = {}
    for model in models:
        for part in slices_of(model.evaluation):
            lowest[part.name] = min(part.accuracy.value, lowest.get(part.name, 1.0))
    return sorted(lowest, key=lambda name: lowest[name]) if worst_first else list(lowest)


def _accuracy_chart(
    title: str, unit: str, models: Sequence[ReportedModel], slices_of: _SlicesOf, names: Sequence[str]
) -> Markup:
    rows = [
        _accuracy_row(name, [_slice_named(model.evaluation, slices_of, name) for model in models])
        for name in names[:_MAX_ROWS]
    ]
    limit_note = f", {_MAX_ROWS} of {len(names)}" if len(names) > _MAX_ROWS else ""
    data = IntervalRows(rows=rows, series=[model.name for model in models], guide=_ceiling_guide(models))
    return share_chart(title, f"{unit}{limit_note}", data)


def _accuracy_row(name: str, slices: Sequence[result.Slice | None]) -> IntervalRow:
    pairs = max(part.accuracy.n for part in slices if part is not None)
    label = f"{shortened(name, MAX_NAME_LENGTH) if name else '(empty)'} · {counted(pairs, 'pair')}"
    return html.interval_row(label, *(part and part.accuracy for part in slices))


def _slice_named(evaluation: result.RewardEvaluation, slices_of: _SlicesOf, name: str) -> result.Slice | None:
    return next((part for part in slices_of(evaluation) if part.name == name), None)


def _ceiling_guide(models: Sequence[ReportedModel]) -> GuideLine | None:
    (first, *others) = {ceiling_range(model.evaluation.ceiling) for model in models}
    return None if first is None or others else GuideLine(low=first[0], high=first[1], label="ceiling")


def _accuracy_table(
    title: str, models: Sequence[ReportedModel], slices_of: _SlicesOf, names: Sequence[str]
) -> html.Table:
    def accuracy(name: str) -> Callable[[result.RewardEvaluation], html.Cell]:
        def write(evaluation: result.RewardEvaluation) -> html.Cell:
            part = _slice_named(evaluation, slices_of, name)
            return html.estimate_cell(part and part.accuracy, percent)

        return write

    return models_table(title, models, {shortened(name, MAX_NAME_LENGTH): accuracy(name) for name in names})


def calibration_section(models: Sequence[ReportedModel]) -> html.Section:
    """How sure each model may be: sentences, a reliability diagram and a histogram of margins."""
    parts: list[html.Part] = [
        html.Charts([*_calibration_charts(model)], texts=[*_calibration_sentences(model)])
        for model in models
        if model.evaluation.calibration is not None or model.evaluation.margins is not None
    ]
    parts = [*parts, _calibration_table(models)] if parts else [html.Text(html.say("reward.no_pair"))]
    return html.Section("Calibration of the reward", "calibration", parts)


def _calibration_charts(model: ReportedModel) -> Iterator[Markup]:
    calibration, margins = model.evaluation.calibration, model.evaluation.margins
    if calibration is not None:
        yield reliability_diagram(
            model.title("Reliability"),
            calibration.by_width,
            unit="share right over how sure the model was",
            note=html.say("reward.reliability_note"),
        )
    if margins is not None:
        ends = zip(margins.edges, margins.edges[1:], margins.counts, strict=False)
        yield histogram(
            model.title("Margins"),
            [HistogramBin(low=low, high=high, count=count) for low, high, count in ends],
            unit="pairs by reward of the preferred answer less the other's",
            zero="right from here",
            note=html.say("reward.margins_note"),
        )


def _calibration_sentences(model: ReportedModel) -> Iterator[str]:
    calibration, ties = model.evaluation.calibration, model.evaluation.ties
    if calibration is not None:
        # Bins only regroup the pairs: summed by their sizes they give the means over all pairs.
        claimed = sum(part.pairs * part.confidence for part in calibration.by_mass) / calibration.pairs
        right = sum(part.pairs * part.right for part in calibration.by_mass) / calibration.pairs
        off = abs(claimed - right) >= _NEGLIGIBLE_DIFFERENCE
        verdict = html.say(f"reward.verdicts.{('over' if claimed > right else 'under') if off else 'fair'}")
        name = "The model" if model.is_single else model.name
        yield html.say("reward.sure", name=name, verdict=verdict, claimed=claimed, right=right)
    if ties is not None:
        compared = "" if ties.gap_elsewhere is None else "_compared"
        yield html.say(f"reward.ties{compared}", name=model.subject, ties=ties)


def _calibration_table(models: Sequence[ReportedModel]) -> html.Table:

    def margin(part: Callable[[result.Margins], float]) -> Callable[[result.RewardEvaluation], html.Cell]:
        return lambda judged: html.value_cell(None if judged.margins is None else part(judged.margins))

    rows = {
        "log-loss (0.69 knows nothing)": calibration_cell(number_text, lambda judged: judged.log_loss),
        "Brier score (0.25 knows nothing)": calibration_cell(number_text, lambda judged: judged.brier),
        "calibration error, bins of equal size": calibration_cell(percent, lambda judged: judged.ece_mass),
        "calibration error, bins of equal width": calibration_cell(percent, lambda judged: judged.ece_width),
        "mean margin": margin(lambda margins: margins.mean),
        "median margin": margin(lambda margins: margins.median),
    }
    return models_table(html.say("reward.proper_scores"), models, rows)


def probes_section(models: Sequence[ReportedModel]) -> html.Section:
    """What each model likes beyond what annotators like: odds beside a sentence on each feature."""
    return html.Section("Biases of the reward", "probes", [_probes_part(model) for model in models])


def _probes_part(model: ReportedModel) -> html.Part:
    probes = model.evaluation.probes
    rows = [_odds_row(probe) for probe in probes.features if probe.model or probe.annotators]
    features = [
        html.Note(
            f": {_with_full_stop(probe.words)}", f"{probe.name[:1].upper()}{probe.name[1:]}", probe.unit
        )
        for probe in probes.features
    ]
    texts = html.Box("", [html.Text(" ".join(_probes_sentences(probes))), html.Notes(features)])
    if not rows:
        return html.Box("", [texts] if model.is_single else [html.Heading(model.name, kind=""), texts])
    title = model.title("Odds of being preferred", "odds of being preferred")
    data = IntervalRows(rows=rows, series=("the model", "annotators"))
    return html.Box("pair", [forest_plot(title, "with the feature, others held fixed", data), texts])


def _probes_sentences(probes: result.Probes) -> Iterator[str]:
    if not probes.features:
        yield _as_sentence(probes.words or html.say("reward.unprobed"))
    else:
        yield html.say(
            f"reward.regression{'_at_equal_worth' if probes.at_equal_worth else ''}", probes=probes
        )
        yield html.say("reward.odds")
        if probes.words:
            yield _as_sentence(probes.words)
    if probes.flat_errors is not None:
        yield html.say("reward.flat_errors", words=_with_full_stop(probes.flat_errors.words))


def _as_sentence(words: str) -> str:
    return _with_full_stop(f"{words[:1].upper()}{words[1:]}")


def _with_full_stop(words: str) -> str:
    return words if words.endswith(".") else f"{words}."


def _odds_row(probe: result.Probe) -> IntervalRow:
    label = f"{probe.what} · {counted(probe.pairs, 'pair')}"
    return IntervalRow(label=label, spans=(_odds_span(probe.model), _odds_span(probe.annotators)))


def _odds_span(odds: result.Odds | None) -> Span | None:
    return None if odds is None else Span(value=odds.ratio, low=odds.low, high=odds.high)


def _best_of_n_section(models: Sequence[ReportedModel]) -> html.Section:
    """What choosing by each model would give: truth and proxy over the distance from the sampled policy."""
    curves = [(model, curve) for model in models if (curve := model.evaluation.best_of) is not None]
    parts: list[html.Part] = [html.Text(_best_of_n_sentence(model, curve)) for model, curve in curves]
    if curves:
        groups = chart_groups([model for model, _ in curves])
        truths = [_truth_chart([pair for pair in curves if pair[0] in group]) for group in groups]
        parts.append(html.Charts([*truths, *(_proxy_chart(model, curve) for model, curve in curves)]))
    return html.Section(
        "What a policy would make of it", "best-of", parts or [html.Text(html.say("reward.no_best_of_n"))]
    )


def _truth_chart(curves: Sequence[tuple[ReportedModel, result.BestOfNCurve]]) -> Markup:
    lines = [
        BandLine(
            label=model.name if len(curves) > 1 else "chosen by the model",
            points=tuple((sqrt(at.kl), html.estimate_span(at.truth)) for at in curve.points),
        )
        for model, curve in curves
    ]
    longest = max((curve for _, curve in curves), key=lambda curve: len(curve.points))
    possible = tuple((sqrt(at.kl), Span(value=at.possible)) for at in longest.points)
    comparison_line = BandLine(label="chosen by the truth", points=possible)
    data = BandChart(
        lines=lines, comparison_line=comparison_line, named_positions=_n_labels(longest), names_title="n"
    )
    title, unit = "True utility of the best of n", "over √KL, with its 95 % interval"
    return band_chart(title, unit, data, note=html.say("reward.kl_bound"))


def _proxy_chart(model: ReportedModel, curve: result.BestOfNCurve) -> Markup:
    points = tuple((sqrt(at.kl), Span(value=at.proxy)) for at in curve.points)
    lines = [BandLine(label="reward", points=points)]
    data = BandChart(lines=lines, named_positions=_n_labels(curve), names_title="n")
    title = model.title("The model's own reward", "its own reward")
    return band_chart(title, "of the same answers, over √KL", data)


def _n_labels(curve: result.BestOfNCurve) -> list[tuple[float, str]]:
    return [(sqrt(at.kl), str(at.n)) for at in curve.points]


def _best_of_n_sentence(model: ReportedModel, curve: result.BestOfNCurve) -> str:
    first, last = curve.points[0], curve.points[-1]
    best = max(curve.points, key=lambda at: at.truth.value)
    low, high = best.truth.low, last.truth.high
    # Only where the intervals are apart: of few prompts any curve has a peak.
    overdriven = best.n < last.n and low is not None and high is not None and low > high
    name = f"reward.best_of_n{'_overdriven' if overdriven else ''}"
    return html.say(name, name=model.subject, curve=curve, first=first, last=last, best=best)


def _benchmark_sections(models: Sequence[ReportedModel]) -> Iterator[html.Section]:
    benchmarks = [(model, benchmark) for model in models if (benchmark := model.evaluation.benchmark)]
    for number, name in enumerate(dict.fromkeys(benchmark.name for _, benchmark in benchmarks), start=1):
        results = [benchmark for _, benchmark in benchmarks if benchmark.name == name]
        scored = [model for model, benchmark in benchmarks if benchmark.name == name]
        names = dict.fromkeys(section.name for benchmark in results for section in benchmark.sections)
        rows = {
            "overall": lambda found: html.value_cell(found.benchmark and found.benchmark.overall, percent),
            **{part: _score_cell(part) for part in names},
        }
        notes = dict.fromkeys(note for benchmark in results for note in benchmark.notes)
        table = models_table(html.say("reward.own_rules", name=name), scored, rows)
        yield html.Section(
            name, f"benchmark-{number}", [table, *([html.Notes([*map(html.Note, notes)])] if notes else [])]
        )


def _score_cell(part: str) -> Callable[[result.RewardEvaluation], html.Cell]:
    def write(evaluation: result.RewardEvaluation) -> html.Cell:
        sections = evaluation.benchmark.sections if evaluation.benchmark else ()
        return html.estimate_cell(
            next((section.score for section in sections if section.name == part), None), percent
        )

    return write


def _mistakes_section(models: Sequence[ReportedModel]) -> html.Section:
    max_per_model = max(3, _MAX_MISTAKES // len(models))
    exchanges: list[html.Exchange] = []
    for model in models:
        for number, mistake in enumerate(model.evaluation.mistakes[:max_per_model], start=1):
            facts = (mistake.category, f"margin {number_text(mistake.margin)}", mistake.origin)
            answers = [
                html.Answer(label="Annotators prefer", kind="now", text=mistake.preferred),
                html.Answer(label="The model prefers", kind="before", text=mistake.other),
            ]
            title = model.title(f"Mistake {number}", f"mistake {number}")
            detail = " · ".join(shortened(fact, _MAX_FACT_LENGTH) for fact in facts if fact)
            exchanges.append(
                html.Exchange(prompt=mistake.prompt, answers=answers, title=title, detail=detail)
            )
    parts = [html.Samples(exchanges) if exchanges else html.Text(html.say("reward.no_mistake"))]
    return html.Section("Where it is sure and wrong", "mistakes", parts)


def _left_out_lines(evaluation: result.RewardEvaluation) -> Iterator[str]:
    if evaluation.ties is not None:
        yield html.say("reward.ties_left_out", ties=evaluation.ties)
    if evaluation.equal:
        yield html.say("reward.equal_left_out", equal=evaluation.equal)
    if evaluation.best_of is not None and evaluation.best_of.left_out:
        yield html.say("reward.prompts_left_out", prompts=evaluation.best_of.left_out)
    yield from evaluation.notes
