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
    """A chart for each score of held-out prompts; none where there is no reference, or a single look."""
    far = history.columns.get("held_out/kl_root")
    for name, (title, label, note) in _SCORES.items():
        scores = history.columns.get(name)
        if far is not None and scores is not None and (points := _points(far, scores)):
            line = Band(label=label, points=points)
            yield bands(title, "mean of held-out answers", Bands(lines=(line,)), note=note)


def _points(far: Column, scores: Column) -> tuple[tuple[float, Span], ...]:
    """Looks from near to far; fewer than two are no line."""
    at = dict(zip(far.steps, far.values, strict=True))
    found = [
        (at[step], value)
        for step, value in zip(scores.steps, scores.values, strict=True)
        if math.isfinite(value) and math.isfinite(at.get(step, math.nan))
    ]
    if len(found) < 2:
        return ()
    return tuple((root, Span(value=value)) for root, value in sorted(found))
