"""An evaluation on the console: what matters first, several models side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from plaudit.evaluation.policies.judge_card import JudgeCard, card_lines
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.reward_models.result import BestOfNCurve, Ceiling, RewardEvaluation, Slice
from plaudit.evaluation.stats import Estimate

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.evaluation.reward_models.pairs import ScoredPair

_Item = TypeVar("_Item")

PEOPLE = "whose labels"
"""The title of those whose labels were learnt from, and those whose labels were not."""
MAX_SLICE_ROWS = 12
"""Rows of a table of slices; the files hold all."""


def print_reward_tables(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    """The headline, then categories worst first, then what explains them."""
    first = evaluations[0]
    ties = f", {first.ties.pairs} of them ties" if first.ties else ""
    console.print(f"{first.data}: {first.pairs} pairs of answers to {first.prompts} prompts{ties}")
    number = _format_number
    rows: list[tuple[str, Callable[[RewardEvaluation], str]]] = [
        ("accuracy", lambda item: format_share(item.accuracy)),
        ("ceiling", lambda item: _format_ceiling(item.ceiling)),
        ("worst category", lambda item: item.worst or "–"),
        ("log-loss (coin: 0.693)", lambda item: number(item.calibration and item.calibration.log_loss)),
        ("Brier (coin: 0.250)", lambda item: number(item.calibration and item.calibration.brier)),
        ("ECE, equal mass", lambda item: number(item.calibration and item.calibration.ece_mass)),
        ("ECE, equal width", lambda item: number(item.calibration and item.calibration.ece_width)),
        ("|r₁ − r₂|, ties", lambda item: number(item.ties and item.ties.gap)),
        ("|r₁ − r₂|, others", lambda item: number(item.ties and item.ties.gap_elsewhere)),
        ("equal rewards", lambda item: str(item.equal)),
        ("no verdict", lambda item: str(item.missing)),
    ]
    print_table("", _cells(rows, evaluations), _model_names(evaluations), console)
    for title, parts in (
        ("category", lambda evaluation: evaluation.categories),
        ("group", lambda evaluation: evaluation.groups),
        ("strength", lambda evaluation: evaluation.strengths),
        ("annotator", lambda evaluation: evaluation.annotators),
        (PEOPLE, lambda evaluation: evaluation.held_out.parts if evaluation.held_out else ()),
    ):
        _print_slices(title, [parts(evaluation) for evaluation in evaluations], evaluations, console)
    _print_benchmarks(evaluations, console)
    _print_reward_best_of(evaluations, console)
    _print_probes(evaluations, console)


def print_agreement(
    pairs: Sequence[ScoredPair], contests: Sequence[Contest], ceiling: Ceiling, console: Console
) -> None:
    """How far judges that compare agree with people, with what the order of the answers does to them."""
    decided = [pair for pair in pairs if pair.p_first != 0.5]
    prompts, ties = len({pair.prompt for pair in decided}), len(pairs) - len(decided)
    left_out = f", without {ties} that people called a tie" if ties else ""
    console.print(f"Judges on {len(decided)} pairs of answers to {prompts} prompts{left_out}")
    rows: list[tuple[str, Callable[[Contest], str]]] = [
        ("agrees / ties / disagrees", lambda contest: f"{contest.won} / {contest.tied} / {contest.lost}"),
        ("accuracy (a tie counts one half)", lambda contest: format_share(contest.raw)),
        ("accuracy where it decides", lambda contest: format_share(contest.decided)),
        ("ceiling", lambda contest: _format_ceiling(ceiling)),
        ("both orders agree", lambda contest: format_share(contest.consistency)),
        ("shown first preferred", lambda contest: format_share(contest.first)),
        ("no verdict", _format_reasons),
    ]
    if any(contest.corrected for contest in contests):
        rows.insert(2, ("corrected", lambda it: format_share(it.corrected and it.corrected.corrected)))
    print_table("", _cells(rows, contests), [contest.judge for contest in contests], console)
    console.print(f"Ceiling: {ceiling.words}.")


def print_card(card: JudgeCard, console: Console) -> None:
    ties = f", without {card.ties} that people called a tie" if card.ties else ""
    console.print(f"{card.judge} {card.version} on {card.pairs} pairs{ties}")
    rows = [(name, [_format_figure(name, value)]) for name, value in card_lines(card)]
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(card.failures.items()))
    rows.append(("no verdict", [reasons or "0"]))
    rows += [
        (f"errors of {members}", ["–" if value is None else f"φ {value:.2f}"])
        for members, value in card.error_correlation.items()
    ]
    print_table("", rows, [card.judge], console)
    console.print(f"Ceiling: {card.ceiling_words}.")


def _format_figure(name: str, value: Estimate | float | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, Estimate):
        return f"{value:.1%}".replace("%", " %") if name.startswith("people") else f"{value:.2f}"
    return (format_mean if name.startswith(("κ", "log-loss", "calibration")) else format_share)(value)


def format_share(estimate: Estimate | None) -> str:
    """A share with its interval.

    >>> format_share(Estimate(value=0.712, low=0.66, high=0.75, n=400, prompts=180))
    '71.2 % (66.0–75.0)'
    """
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}".replace("%", " %")
    return f"{100 * estimate.value:.1f} % ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _print_slices(
    title: str, parts: Sequence[Sequence[Slice]], evaluations: Sequence[RewardEvaluation], console: Console
) -> None:
    if len(parts[0]) < 2:
        return
    accuracies = [{item.name: item.accuracy for item in part} for part in parts]
    names = list(accuracies[0])[:MAX_SLICE_ROWS]
    rows = [
        (f"{name} ({accuracies[0][name].n})", [format_share(accuracy.get(name)) for accuracy in accuracies])
        for name in names
    ]
    order = {"strength": ", faint first", PEOPLE: ""}.get(title, ", worst first")
    print_table(f"Accuracy by {title} (pairs){order}", rows, _model_names(evaluations), console)
    if len(names) < len(accuracies[0]):
        console.print(f"… and {len(accuracies[0]) - len(names)} more")


def _print_benchmarks(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    benchmarks = [evaluation.benchmark for evaluation in evaluations if evaluation.benchmark is not None]
    if len(benchmarks) < len(evaluations):
        return
    scores = [{section.name: section.score for section in benchmark.sections} for benchmark in benchmarks]
    rows = [(name, [format_share(score.get(name)) for score in scores]) for name in scores[0]]
    overall = ["–" if item.overall is None else f"{100 * item.overall:.1f} %" for item in benchmarks]
    rows.append(("overall", overall))
    print_table(f"{benchmarks[0].name}, by its rules", rows, _model_names(evaluations), console)
    for note in benchmarks[0].notes:
        console.print(note)


def _print_reward_best_of(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    curves = [evaluation.best_of for evaluation in evaluations if evaluation.best_of is not None]
    if len(curves) < len(evaluations):
        return
    rows = []
    for index, point in enumerate(curves[0].points):
        cells = [format_mean(curve.points[index].truth) for curve in curves]
        rows.append((f"n = {point.n}, KL ≤ {point.kl:.2f}", [*cells, f"{point.possible:.3f}"]))
    title = f"True utility of the answer liked best of n, {curves[0].prompts} prompts; KL in nats"
    print_table(title, rows, (*_model_names(evaluations), "possible"), console)


def _print_probes(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    for evaluation in evaluations:
        console.print(f"{evaluation.model}:")
        for probe in evaluation.probes.features:
            console.print(f"  {probe.name} ({probe.unit}, {probe.pairs} pairs): {probe.words}")
        if evaluation.probes.flat_errors is not None:
            console.print(f"  flat errors: {evaluation.probes.flat_errors.words}")
        if evaluation.held_out is not None:
            console.print(f"  held-out people: {evaluation.held_out.words}")
        for sentence in (evaluation.probes.words, *evaluation.notes):
            if sentence:
                console.print(f"  {sentence}")
    console.print(f"Ceiling: {evaluations[0].ceiling.words}.")


def _model_names(evaluations: Sequence[RewardEvaluation]) -> tuple[str, ...]:
    return tuple(evaluation.model for evaluation in evaluations)


def _cells(
    rows: Iterable[tuple[str, Callable[[_Item], str]]], items: Sequence[_Item]
) -> list[tuple[str, list[str]]]:
    return [(name, [cell(item) for item in items]) for name, cell in rows]


def print_table(
    title: str, rows: Sequence[tuple[str, Sequence[str]]], heads: Sequence[str], console: Console
) -> None:
    """Print a table of rows and one column for each head, as many side by side as fit, below the title."""
    from rich.table import Table

    if title:
        console.print(title)
    available = console.width - max((len(name) for name, _ in rows), default=0) - 4
    widths = [max((len(cells[index]) for _, cells in rows), default=0) for index in range(len(heads))]
    for column_group in _column_groups(widths, available):
        rich_table = Table()
        rich_table.add_column("", no_wrap=True)
        for index in column_group:
            rich_table.add_column(heads[index], justify="right", overflow="fold", min_width=widths[index])
        for name, cells in rows:
            rich_table.add_row(name, *(cells[index] for index in column_group))
        console.print(rich_table)


def _column_groups(widths: Sequence[int], available: int) -> list[list[int]]:
    """As many columns together as have room with their frames; heads give way, cells do not.

    >>> _column_groups([10, 10, 40], 26)
    [[0, 1], [2]]
    """
    groups: list[list[int]] = [[]]
    remaining = available
    for index, width in enumerate(widths):
        if groups[-1] and width + 3 > remaining:
            groups.append([])
            remaining = available
        groups[-1].append(index)
        remaining -= width + 3
    return groups


def format_mean(estimate: Estimate | None, digits: int = 3) -> str:
    """A mean with its interval.

    >>> format_mean(Estimate(value=0.712, low=0.66, high=0.75, n=400, prompts=180))
    '0.712 (0.660–0.750)'
    """
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    # A dash before a minus could not be read.
    to = " to " if estimate.low < 0 else "–"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f}{to}{estimate.high:.{digits}f})"


def _format_ceiling(ceiling: Ceiling) -> str:
    if ceiling.accuracy is None:
        return "not known"
    if ceiling.at_most is None or ceiling.at_most == ceiling.accuracy.value:
        return format_share(ceiling.accuracy)
    return f"{100 * ceiling.accuracy.value:.1f} to {100 * ceiling.at_most:.1f} %"


_CALIBRATION_ROWS: list[tuple[str, Callable[[PolicyFigures], str]]] = [
    ("right, of closed questions", lambda item: format_share(item.calibration and item.calibration.accuracy)),
    ("how sure it is of them", lambda item: format_share(item.calibration and item.calibration.confidence)),
    ("calibration error", lambda item: format_share(item.calibration and item.calibration.ece)),
]


def print_policy_tables(evaluation: PolicyEvaluation, console: Console) -> None:
    """The figures of each policy, then win rates, then what explains them."""
    each = "1 answer" if evaluation.answers == 1 else f"{evaluation.answers} answers"
    console.print(f"{evaluation.prompts} prompts, {each} of each policy to each: {evaluation.sampling}")
    if len(evaluation.policies) > 2:
        _print_overview(evaluation, console)
    _print_figures(evaluation, console)
    matchups = dict.fromkeys((contest.judge, contest.against) for contest in evaluation.contests)
    for judge, against in matchups:
        contests = [
            contest for contest in evaluation.contests if (contest.judge, contest.against) == (judge, against)
        ]
        _print_contests(contests, console)
    if evaluation.ratings:
        rows: list[tuple[str, list[str]]] = []
        for rating in sorted(evaluation.ratings, key=lambda rating: -rating.elo):
            ends = f" ({rating.low:.0f}–{rating.high:.0f})" if rating.low and rating.high else ""
            rows.append((rating.name, [f"{rating.elo:.0f}{ends}"]))
        print_table("Ratings by Bradley and Terry, 1000 on average", rows, ["rating"], console)
    _print_categories(evaluation, console)
    if evaluation.best_of is not None:
        _print_policy_best_of(evaluation, evaluation.best_of, console)
    if evaluation.over_optimisation is not None:
        console.print(f"Of more answers to choose from: {evaluation.over_optimisation.sentence}")
    for note in evaluation.all_notes:
        console.print(f"- {note}")


def _print_overview(evaluation: PolicyEvaluation, console: Console) -> None:
    """A row for each policy, where their columns do not stand side by side any more."""
    judge = evaluation.contests[0].judge if evaluation.contests else None
    win_rates = {
        item.policy: format_share(item.raw)
        for item in evaluation.contests
        if (item.judge, item.against) == (judge, evaluation.reference)
    }
    columns: Mapping[str, Callable[[PolicyFigures], str]] = {
        "true worth": lambda item: format_mean(item.gold),
        f"right by {evaluation.right}": lambda item: format_share(item.right),
        f"win rate vs {evaluation.reference}": lambda item: win_rates.get(item.name, "–"),
        "KL": lambda item: _format_number(item.kl and item.kl.value, 2),
        "length": lambda item: _format_number(item.length.value, 1),
    }
    cells = _cells(columns.items(), evaluation.policies)
    filled = {head: column for head, column in cells if {*column} != {"–"}}
    names = [item.name for item in evaluation.policies]
    rows = [(name, row) for name, *row in zip(names, *filled.values(), strict=True)]
    judge_note = "" if judge is None else f", win rate by {judge}"
    print_table(f"In short{judge_note}", rows, [*filled], console)


def _print_figures(evaluation: PolicyEvaluation, console: Console) -> None:
    rows: list[tuple[str, Callable[[PolicyFigures], str]]] = [
        (f"true worth ({evaluation.gold})", lambda policy: format_mean(policy.gold)),
        (f"reward ({evaluation.reward})", lambda policy: format_mean(policy.reward, 2)),
        (f"KL from {evaluation.reference}, nats an answer", lambda policy: format_mean(policy.kl, 2)),
        ("KL, nats a token", lambda policy: format_mean(policy.kl_token)),
        ("entropy, nats a token", lambda policy: format_mean(policy.entropy)),
        ("length, tokens", lambda policy: format_mean(policy.length, 1)),
        ("finished", lambda policy: format_share(policy.finished)),
        ("unlike answers", lambda policy: f"{100 * policy.diversity.unique:.1f} %"),
        ("distinct pairs of words", lambda policy: _format_number(policy.diversity.distinct_2)),
        ("self-BLEU (100: all alike)", lambda policy: _format_number(policy.diversity.self_bleu, 1)),
        *(_CALIBRATION_ROWS if any(policy.calibration for policy in evaluation.policies) else ()),
        *_pass_rows(evaluation),
    ]
    # What nobody knows of any of them is no row: the worth of answers that only a judge compares, say.
    given = [(name, cells) for name, cells in _cells(rows, evaluation.policies) if {*cells} != {"–"}]
    print_table("", given, [policy.name for policy in evaluation.policies], console)


def _pass_rows(evaluation: PolicyEvaluation) -> list[tuple[str, Callable[[PolicyFigures], str]]]:
    by_policy = {
        policy.name: {figure.k: figure.value for figure in policy.passes} for policy in evaluation.policies
    }
    ks = sorted({k for passes in by_policy.values() for k in passes})
    # The share of right answers is both: what one answer does, and the mean of all that were drawn.
    names = {k: f"pass@{k}" for k in ks} | {1: f"pass@1, avg@{evaluation.answers} ({evaluation.right})"}

    def cell(k: int) -> Callable[[PolicyFigures], str]:
        return lambda policy: format_share(by_policy[policy.name].get(k))

    return [(names[k], cell(k)) for k in ks]


def _print_contests(contests: Sequence[Contest], console: Console) -> None:
    rows: list[tuple[str, Callable[[Contest], str]]] = [
        ("won / tied / lost", lambda contest: f"{contest.won} / {contest.tied} / {contest.lost}"),
        ("win rate", lambda contest: format_share(contest.raw)),
        ("win rate without ties", lambda contest: format_share(contest.decided)),
        ("at equal length", lambda contest: format_share(contest.length_controlled)),
        ("at equal style", lambda contest: format_share(contest.style_controlled)),
        ("p, neither is better", lambda contest: _format_number(contest.p_value, 4)),
    ]
    if any(contest.consistency is not None for contest in contests):
        rows += [
            ("both orders agree", lambda contest: format_share(contest.consistency)),
            ("shown first preferred", lambda contest: format_share(contest.first)),
        ]
    if any(contest.unjudged for contest in contests):
        rows.append(("no verdict", _format_reasons))
    title = f"Against {contests[0].against}, by {contests[0].judge}"
    print_table(title, _cells(rows, contests), [contest.policy for contest in contests], console)


def _print_categories(evaluation: PolicyEvaluation, console: Console) -> None:
    rule = f"Instructions that hold ({evaluation.right})"
    for title, field, form in (
        ("True worth by category", "by_category", format_mean),
        (rule, "instructions", format_share),
        (f"{rule}, strictly, by kind", "instruction_kinds", format_share),
    ):
        parts = [{part.name: part.value for part in getattr(item, field)} for item in evaluation.policies]
        names = dict.fromkeys(name for part in parts for name in part)
        if names:
            rows = [(name, [form(part.get(name)) for part in parts]) for name in names]
            print_table(title, rows, [policy.name for policy in evaluation.policies], console)


def _print_policy_best_of(evaluation: PolicyEvaluation, curve: BestOfNCurve, console: Console) -> None:
    rows: list[tuple[str, list[str]]] = []
    for point in curve.points:
        cells = [format_mean(point.truth), f"{point.proxy:.2f}", f"{point.possible:.3f}"]
        rows.append((f"n = {point.n}, KL ≤ {point.kl:.2f}", cells))
    title = f"The answer of {evaluation.reference} that {evaluation.reward} likes best of n; KL in nats"
    print_table(title, rows, ["true worth", "reward", "possible"], console)


def _format_reasons(contest: Contest) -> str:
    return ", ".join(f"{count} {why}" for why, count in contest.reasons.items()) or "0"


def _format_number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
