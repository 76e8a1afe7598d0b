"""Requests for revisions: whose answers, who revises, by which principles, at what cost; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from plaudit.errors import UserError
from plaudit.judges.money import Purse, parse_prices
from plaudit.judges.words import HowToAsk
from plaudit.judges.writing import check_writer
from plaudit.rollouts.sampler import SamplingSettings

MOST_ROUNDS = 4
"""The most rounds of critique and revision."""
Give = Literal["demonstrations", "pairs"]
"""What rows are made of revisions: answers to imitate, or each preferred to its original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviseSettings:
    """Answers that a model criticises and writes anew.

    Example: ``ReviseSettings(by="model:runs/sft", model=Path("sft"), prompts=Path("p.jsonl"))``
    """

    by: str
    """Who criticises and revises: openai:http://host/v1#model, model:DIR."""
    model: Path | None = None
    """The policy whose answers are revised."""
    prompts: Path | None = None
    """Rows with the prompts that it answers, each once."""
    data: Path | None = None
    """In place of both, rows that have answers: demonstrations, ratings, comparisons, rankings."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    give: Give = "demonstrations"
    """What the rows are: demonstrations of the last revisions, or pairs, each revision over its original."""
    constitution: str | None = None
    """Principles, one drawn for each round: a file, or ours; none: the wordings' own."""
    rounds: int = 1
    """How often an answer is criticised and written anew, 1 to 4."""
    minimal: bool = False
    """Whether as little as can be is to change, in one round: for pairs that differ in what matters alone."""
    n: int | None = None
    """At most so many answers, drawn by chance; none: all."""
    temperature: float = 1.0
    """Of the policy's answers: scores are divided by it."""
    max_tokens: int = 64
    """An answer of the policy that has not ended after so many tokens is cut, and not revised."""
    marks: Path | None = None
    """Phrases that are counted before and after, by groups, as YAML; none: refusals and evasions."""
    most_money: float | None = None
    """What may be spent; needs prices."""
    price: str | None = None
    """Of a million tokens, questions/replies: 0.15/0.6."""
    requests: int | None = None
    """Requests at the same time; none: 8."""
    token_from: str | None = None
    """Environment variable with the token of a server."""
    cache: Path | None = None
    """Where replies are kept; none: the user's cache folder."""
    device: str = "auto"
    """Where models of this machine run: cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers of the matrix products."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        """Refuse what cannot be revised."""
        if (self.data is None) == (self.model is None):
            raise UserError("say either a model, whose answers are revised, or data that has answers")
        if (self.model is None) != (self.prompts is None):
            raise UserError("a model answers prompts: give model and prompts together")
        if self.give not in get_args(Give):
            raise UserError(f"give {self.give}: one of {', '.join(get_args(Give))}")
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")
        # For their complaints, before anything is loaded or asked.
        check_writer(self.by)
        check_rounds(self.rounds, minimal=self.minimal)
        SamplingSettings(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)
        HowToAsk(price=None if self.price is None else parse_prices(self.price), requests=self.requests)
        Purse(self.most_money)

    @property
    def sampling(self) -> SamplingSettings:
        """How the policy's answers are drawn."""
        return SamplingSettings(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)


def check_rounds(rounds: int, *, minimal: bool) -> None:
    """Refuse rounds that cannot be."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UserError(f"rounds {rounds}: expected 1 to {MOST_ROUNDS}")
    if minimal and rounds > 1:
        raise UserError(f"minimal is one round that changes little; leave out rounds {rounds}")
