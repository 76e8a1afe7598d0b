"""Who judged, and how: what rows and events of judgements are by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plaudit.data.judging import Judge
from plaudit.feedback.judges.model_judge import ModelJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Who judged, and how.

    Example: ``Judging(judge="small", version="letter-1", sampling={"how": "letter", "temperature": 0.0})``
    """

    judge: str
    version: str
    """How it was asked: the way and the wording."""
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How replies were drawn."""

    @property
    def actor(self) -> str:
        """What the log and the rows call it.

        >>> Judging(judge="small", version="letter-1").actor
        'small@letter-1'
        """
        return f"{self.judge}@{self.version}" if self.version else self.judge


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
