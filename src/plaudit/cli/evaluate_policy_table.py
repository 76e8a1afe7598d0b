"""An evaluation of policies on the console: what each says, and whose answers are preferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plaudit.cli.evaluate_table import mean, share, table
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.result import BestOfCurve, Estimate

if TYPE_CHECKING:
    from rich.console import Console


_TRUST: list[tuple[str, Callable[[PolicyFigures], str]]] = [
    ("right, of closed questions", lambda one: share(one.calibration and one.calibration.accuracy)),
    ("how sure it is of them", lambda one: share(one.calibration and one.calibration.confidence)),
    ("calibration error", lambda one: share(one.calibration and one.calibration.ece)),
]


def print_tables(found: PolicyEvaluation, console: Console) -> None:
    """The figures of each policy, then win rates, then what explains them."""
    each = "1 answer" if found.answers == 1 else f"{found.answers} answers"
    console.print(f"{found.prompts} prompts, {each} of each policy to each: {found.sampling}")
    if len(found.policies) > 2:
        _in_short(found, console)
    _figures(found, console)
    met = dict.fromkeys((one.judge, one.against) for one in found.contests)
    for judge, against in met:
        some = [one for one in found.contests if (one.judge, one.against) == (judge, against)]
        _contests(some, console)
    _ratings(found, console)
    _categories(found, console)
    if found.best_of is not None:
        _best_of(found, found.best_of, console)
    if found.over_optimisation is not None:
        console.print(f"Of more answers to choose from: {found.over_optimisation.sentence}")
    for note in found.all_notes:
        console.print(f"- {note}")


def _in_short(found: PolicyEvaluation, console: Console) -> None:
    """A row for each policy, where their columns do not stand side by side any more."""
    judge = found.contests[0].judge if found.contests else None
    won = {
        one.policy: share(one.raw)
        for one in found.contests
        if (one.judge, one.against) == (judge, found.reference)
    }
    heads = ["true worth", f"preferred to {found.reference}", "KL", "length"]
    rows = [
        (one.name, [mean(one.gold), won.get(one.name, "–"), _value(one.kl, 2), _value(one.length, 1)])
        for one in found.policies
    ]
    by = "" if judge is None else f", preferred by {judge}"
    table(f"In short{by}", rows, heads, console)


def _figures(found: PolicyEvaluation, console: Console) -> None:
    rows: list[tuple[str, Callable[[PolicyFigures], str]]] = [
        (f"true worth ({found.gold})" if found.gold else "true worth", lambda one: mean(one.gold)),
        (f"reward ({found.reward})", lambda one: mean(one.reward, 2)),
        (f"KL from {found.reference}, nats an answer", lambda one: mean(one.kl, 2)),
        ("KL, nats a token", lambda one: mean(one.kl_token)),
        ("entropy, nats a token", lambda one: mean(one.entropy)),
        ("length, tokens", lambda one: mean(one.length, 1)),
        ("finished", lambda one: share(one.finished)),
        ("unlike answers", lambda one: f"{100 * one.diversity.unique:.1f} %"),
        ("distinct pairs of words", lambda one: _number(one.diversity.distinct_2)),
        ("self-BLEU (100: all alike)", lambda one: _number(one.diversity.self_bleu, 1)),
        *(_TRUST if found.policies[0].calibration else ()),
    ]
    if found.reward is None:
        del rows[1]
    names = [one.name for one in found.policies]
    table("", [(name, [cell(one) for one in found.policies]) for name, cell in rows], names, console)


def _contests(some: Sequence[Contest], console: Console) -> None:
    rows: list[tuple[str, Callable[[Contest], str]]] = [
        ("won / tied / lost", lambda one: f"{one.won} / {one.tied} / {one.lost}"),
        ("preferred", lambda one: share(one.raw)),
        ("won of the decided", lambda one: share(one.decided)),
        ("at equal length", lambda one: share(one.length_controlled)),
        ("at equal style", lambda one: share(one.style_controlled)),
        ("p, neither is better", lambda one: _chance(one.p_value)),
    ]
    if any(one.consistency is not None for one in some):
        rows += [
            ("both orders agree", lambda one: share(one.consistency)),
            ("shown first preferred", lambda one: share(one.first)),
        ]
    if any(one.unjudged for one in some):
        rows.append(("no verdict", _reasons))
    heads = [one.policy for one in some]
    title = f"Against {some[0].against}, by {some[0].judge}"
    table(title, [(name, [cell(one) for one in some]) for name, cell in rows], heads, console)


def _ratings(found: PolicyEvaluation, console: Console) -> None:
    if found.ratings:
        rows = [
            (
                one.name,
                [f"{one.elo:.0f}" + (f" ({one.low:.0f}–{one.high:.0f})" if one.low and one.high else "")],
            )
            for one in sorted(found.ratings, key=lambda one: -one.elo)
        ]
        table("Ratings by Bradley and Terry, 1000 on average", rows, ["rating"], console)


def _categories(found: PolicyEvaluation, console: Console) -> None:
    parts = [{part.name: part.value for part in one.by_category} for one in found.policies]
    if parts[0]:
        rows = [(kind, [mean(own.get(kind)) for own in parts]) for kind in parts[0]]
        table("True worth by category", rows, [one.name for one in found.policies], console)


def _best_of(found: PolicyEvaluation, curve: BestOfCurve, console: Console) -> None:
    rows = [
        (f"n = {one.n}, KL ≤ {one.kl:.2f}", [mean(one.truth), f"{one.proxy:.2f}", f"{one.possible:.3f}"])
        for one in curve.points
    ]
    title = f"The answer of {found.reference} that {found.reward} likes best of n; KL in nats"
    table(title, rows, ["true worth", "reward", "possible"], console)


def _reasons(one: Contest) -> str:
    return ", ".join(f"{count} {why}" for why, count in one.reasons.items()) or "0"


def _chance(p: float | None) -> str:
    if p is None:
        return "–"
    return f"{p:.4f}"


def _value(found: Estimate | None, digits: int) -> str:
    return _number(None if found is None else found.value, digits)


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
