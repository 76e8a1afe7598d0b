"""What a policy gained on the way from its reference: reward and judge along √KL.

A reward that is gamed goes on rising where the judge falls (Gao et al. 2022, arXiv:2210.10760).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from plaudit.page.bands import Band, Bands, bands
from plaudit.page.html import Html
from plaudit.page.marks import Span
from plaudit.training.page.history import Column, History

_SCORES = {
    "held_out/reward": ("Reward along √KL", "reward", "what teaches"),
    "held_out/judge": ("Judge along √KL", "judge", "who never teaches"),
}


def along_kl(history: History) -> Iterator[Html]:
    """A chart for each score of held-out prompts; none where there is no reference, or a single look.

    Where a judge looked on, a line stands at the look that it liked best: from there on the reward is gamed.
    """
    far = history.columns.get("held_out/kl_root")
    best = None if far is None else _best(far, history.columns.get("held_out/judge"))
    for name, (title, label, note) in _SCORES.items():
        scores = history.columns.get(name)
        if far is not None and scores is not None and (points := _points(far, scores)):
            shown = Bands(lines=(Band(label=label, points=points),), upright=best)
            yield bands(title, "mean of held-out answers", shown, note=note)


def _best(far: Column, judge: Column | None) -> tuple[float, str] | None:
    if judge is None or judge.best is None:
        return None
    at = dict(zip(far.steps, far.values, strict=True)).get(judge.best[0], math.nan)
    return (at, "best by the judge") if math.isfinite(at) else None


def _points(far: Column, scores: Column) -> tuple[tuple[float, Span], ...]:
    """The way that was gone, look by look, also where it turned back; fewer than two are no line."""
    at = dict(zip(far.steps, far.values, strict=True))
    found = [
        (at[step], value)
        for step, value in zip(scores.steps, scores.values, strict=True)
        if math.isfinite(value) and math.isfinite(at.get(step, math.nan))
    ]
    if len(found) < 2:
        return ()
    return tuple((root, Span(value=value)) for root, value in found)
