"""Requests for judgements: which answers, who judges, by which principles, at what cost; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.judges.constitution import constitution_named
from plaudit.judges.money import Purse, parse_prices
from plaudit.judges.words import How, HowToAsk, read_preamble
from plaudit.rollouts.sampler import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRowsSettings:
    """Answers that a model judges, to be rows with soft labels.

    Example: ``JudgeRowsSettings(by="model:runs/sft", data=Path("pairs.jsonl"), constitution="ours")``
    """

    by: str
    """Who judges: openai:http://host/v1#model, model:DIR, jury:FILE, a reward, module:function."""
    model: Path | None = None
    """The policy whose answers are judged, two to each prompt."""
    prompts: Path | None = None
    """Rows with the prompts that it answers, each once."""
    data: Path | None = None
    """In place of both, rows that have answers: comparisons, rankings; of points demonstrations, ratings."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
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
    n: int | None = None
    """At most so many pairs or prompts, drawn by chance; none: all."""
    temperature: float = 1.0
    """Of the policy's answers: scores are divided by it."""
    max_tokens: int = 64
    """An answer of the policy that has not ended after so many tokens is cut."""
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
        """Refuse what cannot be judged."""
        if (self.data is None) == (self.model is None):
            raise UserError("say either a model, whose answers are judged, or data that has answers")
        if (self.model is None) != (self.prompts is None):
            raise UserError("a model answers prompts: give model and prompts together")
        if self.by in ("gold", "people"):
            raise UserError(f"by {self.by}: name a model; people answer in plaudit collect")
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")
        # For their complaints, before anything is loaded or asked.
        _ = self.sampling, self.ask
        Purse(self.most_money)

    @property
    def sampling(self) -> SamplingSettings:
        """How the policy's answers are drawn."""
        return SamplingSettings(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)

    @property
    def ask(self) -> HowToAsk:
        """How the judge is asked where its word does not say."""
        return HowToAsk(
            how=self.how or ("letter" if self.rubric is None else "points"),
            rubric=self.rubric,
            constitution=None if self.constitution is None else constitution_named(self.constitution),
            principles=self.principles,
            preamble=None if self.preamble is None else read_preamble(str(self.preamble)),
            price=None if self.price is None else parse_prices(self.price),
            requests=self.requests,
        )
