"""Figures and whole runs in words, as a person would say them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

from plaudit.training.metrics import Number
from plaudit.training.page.history import Column, History


def figure(value: Number) -> str:
    """A measured number in about three digits.

    >>> [figure(value) for value in (3.2149, 0.0612, 2e-05, 12345.6, 2.0, float("nan"))]
    ['3.21', '0.0612', '2e-5', '12,346', '2.00', 'not finite']
    """
    size = abs(value)
    if math.isnan(value):
        return "not finite"
    if size >= 1e9 or 0 < size < 1e-3:
        return exponent(f"{value:.3g}")
    if size >= 100 or size == 0:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(size))}f}"


def percent(value: Number) -> str:
    """A share.

    >>> percent(0.6123)
    '61.2 %'
    """
    return f"{100 * value:.1f} %" if not math.isnan(value) else "not finite"


def duration(seconds: Number) -> str:
    """A length of time in its two largest units.

    >>> duration(0.42), duration(75), duration(93784)
    ('0.42 s', '1 min 15 s', '1 d 2 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    parts = [(int(seconds // 86400), "d"), (int(seconds // 3600 % 24), "h")]
    parts += [(int(seconds // 60 % 60), "min"), (int(seconds % 60), "s")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def moment(when: datetime) -> str:
    """A time of day.

    >>> moment(datetime(2026, 11, 20, 9, 5))
    '2026-11-20 at 09:05 UTC'
    """
    return f"{when:%Y-%m-%d at %H:%M} UTC"


def counted(count: Number, noun: str) -> str:
    """So many of something.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def exponent(text: str) -> str:
    """The exponent of a written number without its empty digits.

    >>> exponent("2.5e-05"), exponent("3e+09")
    ('2.5e-5', '3e9')
    """
    return re.sub(r"e([+-])0*(\d)", lambda found: f"e{found[1].replace('+', '')}{found[2]}", text)


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
    if not seen:
        return ""
    each = seen / history.epoch if history.epoch else 0.0
    # Steps that were left out, or taken up half-way, make the quotient something else than a count of rows.
    if each >= 1 and abs(each - round(each)) < 1e-6 * each:
        return f" of {counted(round(each), 'row')}"
    return f", {counted(seen, 'row')} in all"


def _outcome(history: History) -> str:
    column = history.columns.get("held_out/loss")
    if column is not None:
        return f"; held-out loss {_held_out(column)}"
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
