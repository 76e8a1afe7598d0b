"""Which words of an answer another answer does not have: what a reader's eye should be led to.

What the policies say: length and variety before and after, and answers side by side.

Whether the policies know what they know: reliability of answers to closed questions, side by side.

How each stage learnt: a few curves that tell most, the others folded, reward and judge along √KL.

What the reward models are worth: how often right, how sure they may be, what they like too much.

Who wins against whom: shares of wins with intervals, won and lost, true worth by category, ratings.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from math import sqrt

from plaudit.evaluation.policies.calibration import PolicyCalibration
from plaudit.evaluation.policies.result import (
    Contest,
    PolicyAnswer,
    PolicyEvaluation,
    PolicyFigures,
    PromptAnswers,
    Rating,
)
from plaudit.evaluation.reward_models.result import Estimate
from plaudit.report.charts.axes import Span, truncated
from plaudit.report.charts.bars import StackedBar, reliability_diagram, stacked_bar_chart
from plaudit.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    ScatterChart,
    ScatterPoint,
    amount_chart,
    scatter_chart,
    share_chart,
)
from plaudit.report.charts.lines import CURVES, Curve, curve_figures
from plaudit.report.html import Html, element, folded, join_html, quoted_text, section, shortened
from plaudit.report.pipeline.data import PipelineData, StageData
from plaudit.report.pipeline.text import (
    MAX_NAME_LENGTH,
    NO_VALUE,
    estimate_cell,
    figures_table,
    interval_text,
    short_name,
    value_cell,
)
from plaudit.report.reward_models.sections import calibration_section, probes_section, reliability_bin
from plaudit.report.reward_models.summary import (
    accuracy_sentence,
    ceiling_sentence,
    paragraph,
    reported_models,
)
from plaudit.report.run.data import RunData
from plaudit.report.run.page import reward_against_kl, run_sentence
from plaudit.report.words import counted, number_text, percent

_WORDS = re.compile(r"\s+|[^\s\w]|\w+")


def diff_pieces(text: str, base: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it differs from the base; joined, they are the text.

    >>> diff_pieces("The owl eats mice.", "The owl eats hay.")
    [('The owl eats ', False), ('mice', True), ('.', False)]

    What stands between two words that differ differs with them, where it is only white space.
    """
    old, new = _WORDS.findall(base), _WORDS.findall(text)
    diff: list[tuple[str, bool]] = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start < end:
            diff.append(("".join(new[start:end]), kind != "equal"))
    return _join_pieces(diff)


def _join_pieces(diff: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    joined: list[tuple[str, bool]] = []
    for index, (piece, differs) in enumerate(diff):
        neighbours = diff[max(index - 1, 0) : index + 2]
        is_gap = len(neighbours) == 3 and neighbours[0][1] and neighbours[2][1] and not piece.strip()
        if (differs or is_gap) and joined and joined[-1][1]:
            joined[-1] = (joined[-1][0] + piece, True)
        else:
            joined.append((piece, differs))
    return joined


_MAX_CHARTS = 8
_CONFIDENCE_GUIDE = (
    "Of each question with a closed set of answers, how sure a policy is of the one that it finds likeliest, "
    "and how often that one is right. On the diagonal it is as often right as it is sure; below, it is surer "
    "than right. Nothing is drawn for it. The calibration error is the mean distance from the diagonal, over "
    "bins of as many questions, thirty or more (Guo et al. 2017); few questions alone make it more than 0, "
    "which its interval takes off."
)
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


def confidence_section(pipeline: PipelineData) -> Iterator[Html]:
    """A reliability diagram for each policy, and their figures; nothing where no such question was asked."""
    evaluation = pipeline.evaluation
    calibrations = (
        {}
        if evaluation is None
        else {one.name: one.calibration for one in evaluation.policies if one.calibration}
    )
    if not calibrations:
        return
    questions = next(iter(calibrations.values())).accuracy.n
    charts = [policy_reliability_chart(name, one) for name, one in list(calibrations.items())[:_MAX_CHARTS]]
    caption = f"{questions:,} questions with choices; 95 % intervals over prompts"
    rows = [(short_name(name), list(_confidence_cells(one))) for name, one in calibrations.items()]
    yield section(
        "Do they know what they know",
        "confidence",
        element("p", {}, _CONFIDENCE_GUIDE),
        element("div", {"class": "curves"}, *charts),
        figures_table(caption, _CONFIDENCE_COLUMNS, rows),
    )


def policy_reliability_chart(name: str, calibration: PolicyCalibration) -> Html:
    """The reliability diagram of one policy."""
    bins = [reliability_bin(calibration_bin) for calibration_bin in calibration.by_width]
    return reliability_diagram(short_name(name), bins, unit="share right over how sure", of="question")


def _confidence_cells(calibration: PolicyCalibration) -> Iterator[Html | str]:
    yield estimate_cell(calibration.accuracy, percent)
    yield estimate_cell(calibration.confidence, percent)
    yield estimate_cell(calibration.surplus)
    yield estimate_cell(calibration.ece)
    yield NO_VALUE if calibration.ece_change is None else estimate_cell(calibration.ece_change)
    yield estimate_cell(calibration.brier)
    yield estimate_cell(calibration.log_loss)
    yield percent(calibration.covered.value)


_MAIN_CURVES = {
    "policy": ("Reward", "Judge", "Distance from the reference", "Length", "Entropy"),
    "pairs": ("Loss", "Accuracy", "Margin", "Distance from the reference"),
    "other": ("Loss", "Token accuracy", "Accuracy"),
}
"""The curves that are not folded, by what the run reports."""
_MAX_POINTS = 14


def training_section(pipeline: PipelineData) -> Iterator[Html]:
    """The curves of every stage with a run folder; nothing where there is none."""
    parts = [part for stage, run in pipeline.training_stages for part in _stage_curves(stage, run)]
    if parts:
        yield section("How it learnt", "training", *parts)


def reward_against_kl_section(pipeline: PipelineData) -> Iterator[Html]:
    """True worth and learnt reward of each policy over √KL; nothing where no policy has both."""
    evaluation = pipeline.evaluation
    if evaluation is None:
        return
    charts = [*_kl_chart(evaluation, truth=True), *_kl_chart(evaluation, truth=False)]
    if charts:
        explanation = (
            "The further a policy is driven from its reference, the more the reward promises; the true worth "
            "follows, and may turn back (Gao et al. 2022). Where the upper marks fall while the lower ones "
            "rise, the reward is gamed."
        )
        intro = element("p", {}, explanation)
        yield section("How far it went", "distance", intro, element("div", {"class": "curves"}, *charts))


def _stage_curves(stage: StageData, run: RunData) -> Iterator[Html]:
    history = run.history
    title = element(
        "h3", {"class": "stage"}, element("a", {"href": f"#{stage.anchor}"}, short_name(stage.name))
    )
    yield title
    run_folder = run.path.relative_to(stage.folder) if run.path.is_relative_to(stage.folder) else run.path
    prefix = (
        "" if run_folder.as_posix() in ("run", ".") else f"{run_folder.as_posix().removeprefix('run/')}: "
    )
    yield element("p", {"class": "quiet"}, prefix, run_sentence(history, finished=run.finished))
    if not history.columns:
        return
    first, rest = split_curves(history.columns)
    yield element("div", {"class": "curves"}, curve_figures(history, first), *reward_against_kl(history))
    if any({curve.train_metric, curve.held_out_metric} & set(history.columns) for curve in rest):
        more = element("div", {"class": "curves"}, curve_figures(history, rest))
        yield element("div", {"class": "rarely"}, folded(f"More curves of {short_name(stage.name)}", more))


def split_curves(metric_names: Container[str]) -> tuple[Sequence[Curve], Sequence[Curve]]:
    """The curves that tell most of a run with these figures, and the others."""
    kind = "policy" if "reward" in metric_names else "pairs" if "margin" in metric_names else "other"
    first = [curve for curve in CURVES if curve.title in _MAIN_CURVES[kind]]
    return first, [curve for curve in CURVES if curve not in first]


def _kl_chart(evaluation: PolicyEvaluation, *, truth: bool) -> Iterator[Html]:
    points_of_policies = [
        ScatterPoint(label=short_name(one.name), x=sqrt(max(one.kl.value, 0.0)), y=_estimate_span(estimate))
        for one in evaluation.policies
        if one.kl is not None and (estimate := one.gold if truth else one.reward) is not None
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


def _estimate_span(estimate: Estimate) -> Span:
    return Span(value=estimate.value, low=estimate.low, high=estimate.high)


def reward_models_section(pipeline: PipelineData) -> Iterator[Html]:
    """Every reward model that a stage judged; nothing where none did."""
    judging_stages = [stage for stage in pipeline.stages if stage.reward_evaluations]
    if not judging_stages:
        return
    models = reported_models([one for stage in judging_stages for one in stage.reward_evaluations])
    ceilings = dict.fromkeys(model.evaluation.ceiling for model in models)
    words = " ".join([accuracy_sentence(models), *map(ceiling_sentence, ceilings)])
    links = [element("a", {"href": f"#{stage.anchor}"}, short_name(stage.name)) for stage in judging_stages]
    source_note = element(
        "p", {"class": "quiet"}, "Compared with annotators' choices in ", *_comma_separated(links), "."
    )
    yield section("What the reward is worth", "reward", paragraph(words), source_note)
    yield calibration_section(models)
    yield probes_section(models)


def _comma_separated(links: list[Html]) -> Iterator[str]:
    for index, link in enumerate(links):
        yield ", " if index else ""
        yield link


_MAX_CONTESTS = 24
_MAX_CATEGORIES = 40
_HEAT_LEVELS = 10
_WIN_RATE_GUIDE = (
    "Raw counts a tie as half a win. At equal length is what it would be, had both answers been as long "
    "(AlpacaEval 2, Dubois et al. 2024), at equal style also with as many headers, lists and bold words. An "
    "interval that crosses the broken line does not say who is better."
)


def win_rate_section(pipeline: PipelineData) -> Iterator[Html]:
    """Contests by each judge; nothing where none was held."""
    evaluation = pipeline.evaluation
    if evaluation is None or not evaluation.contests:
        return
    judges = list(dict.fromkeys(one.judge for one in evaluation.contests))
    charts = [
        chart for judge in judges for chart in _win_rate_charts(evaluation, judge, is_single=len(judges) == 1)
    ]
    charts += [_ratings_chart(evaluation.ratings)] if evaluation.ratings else []
    explanation = element("p", {"class": "how"}, _WIN_RATE_GUIDE)
    yield section(
        "Who wins",
        "wins",
        element("div", {"class": "curves"}, *charts, explanation),
        *_contest_table(evaluation),
    )


def categories_section(pipeline: PipelineData) -> Iterator[Html]:
    """True worth by category of the prompt, a column for each policy, shaded by its size."""
    evaluation = pipeline.evaluation
    parts = (
        {}
        if evaluation is None
        else {one.name: one.by_category for one in evaluation.policies if one.by_category}
    )
    names = list(dict.fromkeys(part.name for figures in parts.values() for part in figures))[:_MAX_CATEGORIES]
    if evaluation is None or not names:
        return
    values = {(policy, part.name): part.value for policy, figures in parts.items() for part in figures}
    numbers = [one.value for one in values.values()]
    low, high = min(numbers), max(numbers)
    rows = [
        (short_name(name), [_heat_cell(values.get((policy, name)), low, high) for policy in parts])
        for name in names
    ]
    caption = (
        f"True worth by category, shaded from {number_text(low)} to {number_text(high)}; 95 % "
        "intervals over prompts"
    )
    heat = figures_table(caption, [short_name(policy) for policy in parts], rows)
    yield section("What it is better at", "categories", element("div", {"class": "heat"}, heat))


def estimate_span(estimate: Estimate | None) -> Span | None:
    """An estimate as charts draw it."""
    return None if estimate is None else Span(value=estimate.value, low=estimate.low, high=estimate.high)


def _win_rate_charts(evaluation: PolicyEvaluation, judge: str, *, is_single: bool) -> Iterator[Html]:
    contests = [one for one in evaluation.contests if one.judge == judge][:_MAX_CONTESTS]
    judge_suffix = "" if is_single else f", by {short_name(judge)}"
    styled = any(one.style_controlled for one in contests)
    rows = [
        IntervalRow(label=_contest_label(one), spans=_contest_spans(one, styled=styled)) for one in contests
    ]
    half = GuideLine(low=0.5, high=0.5, label="as often as not")
    series = ["raw", "at equal length", *(["at equal style"] if styled else [])]
    yield share_chart(
        f"Share of wins{judge_suffix}", "of pairs", IntervalRows(rows=rows, series=series, guide=half)
    )
    counts = [StackedBar(label=_contest_label(one), counts=(one.won, one.tied, one.lost)) for one in contests]
    yield stacked_bar_chart(f"Won, tied and lost{judge_suffix}", "pairs", counts, ("won", "tied", "lost"))


def _contest_spans(contest: Contest, *, styled: bool) -> tuple[Span | None, ...]:
    controlled = (estimate_span(contest.style_controlled),) if styled else ()
    return (estimate_span(contest.raw), estimate_span(contest.length_controlled), *controlled)


def _contest_label(contest: Contest) -> str:
    return f"{short_name(contest.policy)} against {short_name(contest.against)}"


def _ratings_chart(ratings: Sequence[Rating]) -> Html:
    ranked = sorted(ratings, key=lambda one: -one.elo)
    rows = [
        IntervalRow(label=short_name(one.name), spans=(Span(value=one.elo, low=one.low, high=one.high),))
        for one in ranked
    ]
    chart_data = IntervalRows(
        rows=rows, series=("rating",), guide=GuideLine(low=1000, high=1000, label="the mean")
    )
    return amount_chart("Ratings", "Bradley and Terry 1952, as Elo points", chart_data)


def _contest_table(evaluation: PolicyEvaluation) -> Iterator[Html]:
    """What the charts do not show of each contest."""
    columns = ["won, of those decided", "both orders agree", "the first is preferred", "p", "no verdict"]
    rows = [
        (f"{_contest_label(one)}, by {short_name(one.judge)}", list(_contest_cells(one)))
        for one in evaluation.contests
    ]
    yield figures_table("Paired by prompt; p: that neither is better", columns, rows[: 2 * _MAX_CONTESTS])


def _contest_cells(contest: Contest) -> Iterator[Html]:
    yield estimate_cell(contest.decided, percent)
    yield estimate_cell(contest.consistency, percent)
    yield estimate_cell(contest.first, percent)
    yield join_html(
        NO_VALUE
        if contest.p_value is None
        else "< 0.001"
        if contest.p_value < 1e-3
        else number_text(contest.p_value)
    )
    yield join_html(f"{contest.unjudged:,}")


def _heat_cell(estimate: Estimate | None, low: float, high: float) -> Html:
    if estimate is None:
        return join_html(NO_VALUE)
    level = round(_HEAT_LEVELS * (estimate.value - low) / (high - low)) if high > low else 0
    ends = element("span", {"class": "interval"}, interval_text(estimate))
    return element("div", {"class": f"degree d{level}"}, number_text(estimate.value), " ", ends)


MAX_PROMPTS = 20
"""Prompts whose answers are shown."""
_MAX_TEXT_LENGTH = 1000
_MAX_POLICIES = 24
_MAX_LABEL_LENGTH = 18


def length_and_diversity_section(pipeline: PipelineData) -> Iterator[Html]:
    """The section on length and diversity of every policy; nothing where none was evaluated."""
    evaluation = pipeline.evaluation
    if evaluation is None:
        return
    reference = next((one for one in evaluation.policies if one.name == evaluation.reference), None)
    guide = reference and _reference_guide(reference.length.value, reference.name)
    rows = [
        IntervalRow(label=short_name(one.name), spans=(estimate_span(one.length),))
        for one in evaluation.policies[:_MAX_POLICIES]
    ]
    length = amount_chart(
        "Length", "tokens of an answer", IntervalRows(rows=rows, series=("length",), guide=guide)
    )
    words = {one.diversity.words for one in evaluation.policies}
    cut_note = (
        f"answers cut to {counted(min(words), 'word')}" if len(words) == 1 else "answers cut to equal length"
    )
    caption = f"How unlike each other answers are; {cut_note}, so that length decides nothing"
    columns = (
        "unlike answers",
        "unlike words",
        "unlike pairs",
        "self-BLEU",
        "to one prompt",
        "entropy, nats",
    )
    variety = figures_table(
        caption, columns, [(short_name(one.name), _diversity_cells(one)) for one in evaluation.policies]
    )
    bleu_note = element(
        "p",
        {"class": "quiet"},
        "Self-BLEU: how like an answer is to those to other prompts; 100 is always the same.",
    )
    columns_pair = element("div", {"class": "pair"}, length, element("div", {}, variety, bleu_note))
    yield section("How long and how varied", "habits", columns_pair)


def samples_section(pipeline: PipelineData) -> Iterator[Html]:
    """The section of sampled prompts with every policy's answers."""
    evaluation = pipeline.evaluation
    if evaluation is None or not evaluation.shown:
        return
    reference = evaluation.reference or evaluation.policies[0].name
    explanation = (
        f"{counted(min(len(evaluation.shown), MAX_PROMPTS), 'prompt')}, drawn by chance. Marked words are "
        "those "
        f"that {short_name(reference)} did not say."
    )
    articles = [
        _prompt_article(number, one, evaluation, reference)
        for number, one in enumerate(evaluation.shown[:MAX_PROMPTS], 1)
    ]
    yield section("What they say", "samples", element("p", {}, explanation), *articles)


def _reference_guide(value: float, name: str) -> GuideLine:
    return GuideLine(low=value, high=value, label=truncated(name, _MAX_LABEL_LENGTH))


def _diversity_cells(policy: PolicyFigures) -> list[Html]:
    diversity = policy.diversity
    return [
        value_cell(diversity.unique, percent),
        value_cell(diversity.distinct_1, percent),
        value_cell(diversity.distinct_2, percent),
        value_cell(diversity.self_bleu),
        value_cell(diversity.unique_within, percent),
        estimate_cell(policy.entropy),
    ]


def _prompt_article(number: int, row: PromptAnswers, evaluation: PolicyEvaluation, reference: str) -> Html:
    base = next((answer.text for answer in row.said if answer.policy == reference), None)
    quiet = (
        [] if row.category is None else [element("span", {"class": "quiet"}, f" {short_name(row.category)}")]
    )
    worth_by_policy = {answer.policy: answer.gold for answer in row.said}
    sides = [_answer_column(answer, base, worth_by_policy, reference) for answer in row.said]
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, f"Prompt {number}", *quiet),
        quoted_text(row.prompt, _MAX_TEXT_LENGTH),
        element("div", {"class": "sides answers"}, *sides),
    )


def _answer_column(
    answer: PolicyAnswer, base: str | None, worth_by_policy: Mapping[str, float | None], reference: str
) -> Html:
    is_reference = answer.policy == reference
    name = element(
        "h4",
        {},
        short_name(answer.policy),
        *_worth_change(answer.gold, worth_by_policy.get(reference), is_reference=is_reference),
    )
    about = [
        "" if answer.gold is None else f"worth {number_text(answer.gold)}",
        "" if answer.reward is None else f"reward {number_text(answer.reward)}",
        counted(answer.tokens, "token"),
        "" if answer.ended else "cut",
    ]
    scores = element("p", {"class": "scores"}, " · ".join(part for part in about if part))
    return element(
        "div",
        {"class": "before" if is_reference else "now"},
        name,
        _marked_answer(answer.text, base, is_reference=is_reference),
        scores,
    )


def _worth_change(worth: float | None, before: float | None, *, is_reference: bool) -> Iterator[Html]:
    if is_reference or worth is None or before is None or worth == before:
        return
    kind, sign, direction = ("up", "▲", "better") if worth > before else ("down", "▼", "worse")
    yield element("span", {"class": kind}, f" {sign} {direction}")


def _marked_answer(text: str, base: str | None, *, is_reference: bool) -> Html:
    if is_reference or base is None or not text.strip():
        return quoted_text(text, _MAX_TEXT_LENGTH)
    if text == base:
        return element("div", {"class": "said quiet"}, "(the same)")
    shortened_text = text[:_MAX_TEXT_LENGTH]
    marked = [
        element("mark", {}, piece) if differs and piece.strip() else piece
        for piece, differs in diff_pieces(shortened_text, base[:_MAX_TEXT_LENGTH])
    ]
    rest = shortened(text, _MAX_TEXT_LENGTH)[len(shortened_text) :]
    return element("div", {"class": "said", "dir": "auto"}, *marked, rest)
