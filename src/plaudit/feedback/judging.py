"""Requests for judgements: which answers, who judges, by which principles, at what cost; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.feedback.asking import AskingSettings, refuse_no_answers
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.feedback.judges.modes import How, HowToAsk
from plaudit.feedback.judges.words import read_preamble
from plaudit.rollouts.sampler import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRowsSettings(AskingSettings):
    """Answers that a model judges, to be rows with soft labels."""

    by: str
    """Who judges: openai:http://host/v1#model, model:DIR, jury:FILE, a reward, module:function."""
    model: Path | None = None
    """The policy whose answers are judged, two to each prompt."""
    data: Path | None = None
    """In place of both, rows that have answers: comparisons, rankings; of points demonstrations, ratings."""
    temperature: float = 1.0
    """Of the policy's answers: scores are divided by it."""
    how: How | None = None
    """How it says it: letter, verdict, reasons, points, answer; none: letter, or points by a rubric."""
    rubric: Path | None = None
    """What points are given for: aspects with weights, as YAML."""
    constitution: str | None = None
    """The principles that say what is better: a file, or ours; none: the wording's own words."""
    principles: int | Literal["all"] = 1
    """How many of them are drawn for each task; the log-odds of several are averaged."""
    preamble: Path | None = None
    """A text that stands above every question: examples, say."""
    calibrate: Path | None = None
    """The judge's card; its temperature scales the chances."""

    def __post_init__(self) -> None:
        AskingSettings.__post_init__(self)
        refuse_no_answers(model=self.model, prompts=self.prompts, data=self.data, purpose="judged")
        _ = self.sampling
        if self.by in ("gold", "people"):
            raise UserError(f"by {self.by}: name a model; people answer in plaudit collect")

    @property
    def sampling(self) -> SamplingSettings:
        return self.sampling_at(self.temperature)

    @property
    def ask(self) -> HowToAsk:
        return self.asking(
            how=self.how or ("letter" if self.rubric is None else "points"),
            rubric=self.rubric,
            constitution=None if self.constitution is None else constitution_named(self.constitution),
            principles=self.principles,
            preamble=None if self.preamble is None else read_preamble(str(self.preamble)),
        )
