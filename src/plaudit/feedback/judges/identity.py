"""Who judged, and how: what rows and events of judgements are by."""

from __future__ import annotations

from typing import Any

from plaudit.data.judging import Judge, Judging
from plaudit.feedback.judges.model_judge import ModelJudge


def judging_of(judge: Judge) -> Judging:
    """The name and version of a judge, with how it draws its replies and by which principles it judges."""
    sampling: dict[str, Any] = {}
    if isinstance(judge, ModelJudge):
        names = ("draws", "temperature", "max_tokens", "clamp", "points")
        sampling = {"how": judge.how, **{name: getattr(judge.ask, name) for name in names}}
        file = judge.ask.constitution
        if file is not None:
            sampling |= {"constitution": file.version, "principles": judge.ask.drawn_principles}
    return Judging(judge=judge.name, version=str(getattr(judge, "version", "")), sampling=sampling)
