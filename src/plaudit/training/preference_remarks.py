"""Familiar things that happen in preference optimisation, said in words when they happen.

Each sentence has a beginning by which it is known again, so that a run says it once, and names the page
that explains it. Figures of held-out rows are preferred: they are of the same rows each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from plaudit.training.metrics import StepReport
from plaudit.training.preference_row import PreferenceRow, SingleRow

PAGE = "docs/preference.md"
"""Where they are explained."""
SOME = 5
"""How many looks make a beginning or an end, at most."""
RISE = 0.03
"""The part of a loss by which the last two looks have to be above the best one."""
FALL = 0.5
"""Nats by which a preferred answer has to fall before it is said."""


def remarks(
    row: PreferenceRow | SingleRow, reports: Sequence[StepReport], *, learning_rate: float
) -> Mapping[str, str]:
    """From the reports so far to sentences: how each begins, and how it goes on."""
    return {
        **_falling(row, reports),
        **_by_heart(reports),
        **_rising(reports),
        **_far(reports),
        **_still(reports, learning_rate),
    }


def _falling(row: PreferenceRow | SingleRow, reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _ends(_best_of("logp_chosen", reports))
    if not before - after > max(FALL, 0.02 * abs(before)):
        return {}
    paired = isinstance(row, PreferenceRow)
    why = (
        "the loss asks for a distance between the two answers, which share most of their words, and is "
        "content when both fall"
        if paired
        else "bad answers are pushed down, and good ones share words with them"
    )
    add = "add --preference.nll 0.1, or try dpop or nca" if paired else "raise --preference.desirable"
    return {
        "the preferred answers are becoming less likely": f" (log π {before:.1f} → {after:.1f}). This is "
        f"expected: {why}. It does harm when what the model says itself gets worse; look at the samples. To "
        f"counter it, {add}, lower the learning rate or raise β. {PAGE}#falling"
    }


def _by_heart(reports: Sequence[StepReport]) -> Mapping[str, str]:
    held = _series("held_out/accuracy", reports)
    if not held:
        return {}
    trained = fmean(_series("accuracy", reports)[-10:] or [math.nan])
    if not trained > 0.95 or not trained - held[-1] > 0.15:
        return {}
    return {
        "the rows are being learnt by heart": f": accuracy is {trained:.0%} on what is trained and "
        f"{held[-1]:.0%} on what is held out. More passes will not help; take fewer epochs, a lower rate or "
        f"more rows. {PAGE}#by-heart"
    }


def _rising(reports: Sequence[StepReport]) -> Mapping[str, str]:
    held = _series("held_out/loss", reports)
    if len(held) < 3 or not min(held[-2:]) > min(held) + max(RISE, RISE * abs(min(held))):
        return {}
    return {
        "the held-out loss is rising": f": {held[-1]:.3f}, its best was {min(held):.3f}. The policy becomes "
        "surer than the labels warrant; with --keep.use-best the run ends with the best checkpoint. "
        f"{PAGE}#rising"
    }


def _far(reports: Sequence[StepReport]) -> Mapping[str, str]:
    apart = _series("held_out/kl", reports) or _series("kl", reports)
    length = _series("length_mean", reports)
    if not apart or not length or not apart[-1] > length[-1]:
        return {}
    return {
        "the policy has gone far from its reference": f": about {apart[-1]:.0f} nats on answers of "
        f"{length[-1]:.0f} tokens. What it says of answers it would no longer give is a guess; raise β, "
        f"lower the rate, or stop earlier. {PAGE}#far"
    }


def _still(reports: Sequence[StepReport], learning_rate: float) -> Mapping[str, str]:
    done = reports[-1].step / reports[-1].steps if reports else 0.0
    margins = _series("held_out/margin", reports) or _series("margin", reports)[-10:]
    if done < 0.5 or not margins or not abs(margins[-1]) < 0.005:
        return {}
    return {
        "hardly anything has been learnt": f": half of the run is over and the margin is {margins[-1]:.4f}. "
        f"The learning rate of {learning_rate:g} is too low, or the labels say nothing about the answers. "
        f"{PAGE}#still"
    }


def _best_of(name: str, reports: Sequence[StepReport]) -> list[float]:
    """Of the same rows at each look; of other rows at each step only where none is held out, and of many."""
    held, trained = _series(f"held_out/{name}", reports), _series(name, reports)
    return held if held else trained if len(trained) >= 4 * SOME else []


def _series(name: str, reports: Sequence[StepReport]) -> list[float]:
    values = [float(report.values[name]) for report in reports if name in report.values]
    return [value for value in values if math.isfinite(value)]


def _ends(series: Sequence[float]) -> tuple[float, float]:
    """The mean of the first and of the last few; the same number twice where there is only one."""
    if not series:
        return math.nan, math.nan
    some = max(1, min(SOME, len(series) // 4))
    return fmean(series[:some]), fmean(series[-some:])
