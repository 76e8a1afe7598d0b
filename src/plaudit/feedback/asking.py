"""What all requests to models that are asked in words share: what it may cost, and whose answers it is about.

Without torch, so that commands and pipelines check a request before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from plaudit.bounds import FromOne, check_bounds
from plaudit.errors import UserError
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import Purse, parse_prices
from plaudit.files.posting import RetryPolicy
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rollouts.sampler import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudgeSettings(JudgeSettings):
    """The same for models, with how they are asked and what that may cost."""

    ask: HowToAsk = field(default_factory=HowToAsk)
    """How models are asked, where their words do not say."""
    purse: Purse = field(default_factory=Purse, compare=False)
    """What all judges together may spend."""


def with_asking(settings: JudgeSettings) -> ModelJudgeSettings:
    """These settings; where they say nothing of models, these are asked as usual."""
    if isinstance(settings, ModelJudgeSettings):
        return settings
    values = {part.name: getattr(settings, part.name) for part in fields(settings)}
    return ModelJudgeSettings(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingSettings:
    """Which rows are read, how models are reached, and what that may cost."""

    prompts: Path | None = None
    """Rows with the prompts that are put to the policies, each once."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    n: FromOne | None = None
    """At most so many prompts, pairs or answers, drawn by chance; none: all."""
    max_tokens: int = 64
    """An answer of a policy that has not ended after so many tokens is cut."""
    most_money: float | None = None
    """Stop before more is spent; needs prices."""
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
        """Refuse prices, caps and numbers that are none, before anything is loaded or asked."""
        check_bounds(self)
        _ = self.ask
        Purse(self.most_money)

    @property
    def ask(self) -> HowToAsk:
        """How a model is asked where its word does not say."""
        return self.asking()

    def sampling_at(self, temperature: float) -> SamplingSettings:
        return SamplingSettings(temperature=temperature, max_tokens=self.max_tokens, seed=self.seed)

    def asking(self, **more: Any) -> HowToAsk:
        """The same with what else a request says of it."""
        price = None if self.price is None else parse_prices(self.price)
        return HowToAsk(price=price, requests=self.requests, **more)

    def judge_settings(self, purse: Purse | None = None) -> ModelJudgeSettings:
        """How models are loaded and asked, with a purse of their own unless one is given."""
        return ModelJudgeSettings(
            device=self.device,
            dtype=self.dtype,
            retry_policy=RetryPolicy(token_from=self.token_from),
            cache=self.cache,
            soft=True,
            ask=self.ask,
            purse=purse or Purse(self.most_money),
        )


def refuse_no_answers(*, model: Path | None, prompts: Path | None, data: Path | None, purpose: str) -> None:
    """Complain about answers of nobody, and of two sources; ``purpose`` is what becomes of them."""
    if (data is None) == (model is None):
        raise UserError(f"say either a model, whose answers are {purpose}, or data that has answers")
    if (model is None) != (prompts is None):
        raise UserError("a model answers prompts: give model and prompts together")
