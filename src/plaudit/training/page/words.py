"""A whole run in words, as a person would say it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plaudit.page.words import counted, figure
from plaudit.training.metrics import Number
from plaudit.training.page.history import Column, History

_JUDGED_BY = {
    "held_out/judge": "the judge's score of held-out answers",
    "held_out/reward": "held-out reward",
    "held_out/loss": "held-out loss",
}
"""What a run is judged by: the first of these that it has."""


def what_happened(history: History, *, finished: bool) -> str:
    """The run in one sentence."""
    if not history.step:
        return "No step has been taken."
    taken = counted(history.step, "step")
    if not finished and history.step < history.steps:
        taken = f"{history.step:,} of {counted(history.steps, 'step')} so far,"
    return f"{taken} over {_epochs(history)}{_rows(history)}{_outcome(history)}."


def _epochs(history: History) -> str:
    said = f"{history.epoch:.1f}" if history.epoch >= 0.1 else f"{history.epoch:.2g}"
    return f"{said} {'epoch' if said == '1.0' else 'epochs'}"


def _rows(history: History) -> str:
    seen = history.total("rows")
    # A prompt whose answers are gone through several times is a row of each of these steps.
    if not seen or "reward" in history.columns:
        return ""
    each = seen / history.epoch if history.epoch else 0.0
    # Steps that were left out, or taken up half-way, make the quotient something else than a count of rows.
    if each >= 1 and abs(each - round(each)) < 1e-6 * each:
        return f" of {counted(round(each), 'row')}"
    return f", {counted(seen, 'row')} in all"


def _outcome(history: History) -> str:
    for name, said in _JUDGED_BY.items():
        column = history.columns.get(name)
        if column is not None:
            return f"; {said} {_held_out(column)}"
    column = history.columns.get("loss")
    if column is None:
        return ""
    if len(column.values) == 1:
        return f"; its loss was {figure(column.last)}"
    some = max(1, min(50, len(column.values) // 10))
    change = _change(_mean(column.values[:some]), _mean(column.values[-some:]))
    ends = "first and last step" if some == 1 else f"means of the first and the last {some} steps"
    return f"; training loss {change} ({ends})"


def _held_out(column: Column) -> str:
    if len(column.values) == 1:
        return f"was {figure(column.last)} at step {column.steps[0]:,}"
    said = _change(column.values[0], column.last)
    best = column.best
    if best is None or figure(best[1]) == figure(column.last):
        return said
    return f"{said}, with its best, {figure(best[1])}, at step {best[0]:,}"


def _change(before: Number, after: Number) -> str:
    if math.isnan(before) or math.isnan(after):
        return f"went from {figure(before)} to {figure(after)}"
    if figure(before) == figure(after):
        return f"stayed at {figure(after)}"
    return f"{'fell' if after < before else 'rose'} from {figure(before)} to {figure(after)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
