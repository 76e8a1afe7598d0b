"""Requests for revisions: whose answers, who revises, by which principles, at what cost; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from plaudit.errors import UserError
from plaudit.feedback.asking import AskingSettings, refuse_no_answers
from plaudit.feedback.judges.writing import check_writer
from plaudit.rollouts.sampler import SamplingSettings

MOST_ROUNDS = 4
Give = Literal["demonstrations", "pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviseSettings(AskingSettings):
    by: str
    """Who criticises and revises: openai:http://host/v1#model, model:DIR."""
    model: Path | None = None
    """The policy whose answers are revised."""
    data: Path | None = None
    """In place of both, rows that have answers: demonstrations, ratings, comparisons, rankings."""
    temperature: float = 1.0
    """Of the policy's answers: scores are divided by it."""
    give: Give = "demonstrations"
    """What the rows are: demonstrations of the last revisions, or pairs, each revision over its original."""
    constitution: str | None = None
    """Principles, one drawn for each round: a file, or ours; none: the wordings' own."""
    rounds: int = 1
    """How often an answer is criticised and written anew, 1 to 4."""
    minimal: bool = False
    """Whether as little as can be is to change, in one round: for pairs that differ in what matters alone."""
    marks: Path | None = None
    """Phrases that are counted before and after, by groups, as YAML; none: refusals and evasions."""

    def __post_init__(self) -> None:
        AskingSettings.__post_init__(self)
        refuse_no_answers(model=self.model, prompts=self.prompts, data=self.data, purpose="revised")
        _ = self.sampling
        if self.give not in get_args(Give):
            raise UserError(f"give {self.give}: one of {', '.join(get_args(Give))}")
        # For their complaints, before anything is loaded or asked.
        check_writer(self.by)
        check_rounds(self.rounds, minimal=self.minimal)

    @property
    def sampling(self) -> SamplingSettings:
        return self.sampling_at(self.temperature)


def check_rounds(rounds: int, *, minimal: bool) -> None:
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UserError(f"rounds {rounds}: expected 1 to {MOST_ROUNDS}")
    if minimal and rounds > 1:
        raise UserError(f"minimal is one round that changes little; leave out rounds {rounds}")
