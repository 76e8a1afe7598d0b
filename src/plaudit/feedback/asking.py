"""Requests to models that are asked in words, for judgements, revisions and attacks: of whom, at what cost.

Without torch, so that commands and pipelines check a request before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from plaudit.bounds import FromOne, check_bounds
from plaudit.errors import UserError
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.feedback.judges.modes import How, HowToAsk
from plaudit.feedback.judges.money import Purse, parse_prices
from plaudit.feedback.judges.words import asks_a_model, read_preamble
from plaudit.feedback.judges.writing import check_writer
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
    return ModelJudgeSettings(**{part.name: getattr(settings, part.name) for part in fields(settings)})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRowsSettings(AskingSettings):
    """Answers that a model judges, to be rows with soft labels."""

    by: str
    """Who judges: openai:http://host/v1#model, model:DIR, jury:FILE, a reward, module:function."""
    model: Path | None = None
    """The policy whose answers are judged, two to each prompt."""
    against: tuple[str, ...] = ()
    """Whose the second answer is, in turn: policy, written (what rows of prompts hold), a model's folder."""
    data: Path | None = None
    """In place of both, rows that have answers: comparisons, rankings; of points demonstrations, ratings."""
    temperature: float = 1.0
    """Of the policy's answers: scores are divided by it."""
    how: How | None = None
    """How it says it, as in `plaudit.feedback.judges.modes`; none: letter, or points by a rubric."""
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
        if self.against and self.model is None:
            raise UserError("against names whose answers a model's are compared with: name it with model")
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
    without_critique: bool = False
    """Revise answers without a critique of them."""
    score: str | None = None
    """Who scores the answers of every round: a reward, or a judge that compares them with what they were."""
    people: Path | None = None
    """Labels of people on some of these pairs: they correct how often revisions are preferred."""
    card: Path | None = None
    """In place of labels, the card of the judge that scores."""
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
        if self.minimal and self.without_critique:
            raise UserError("minimal mends what a critique names; leave out without-critique")
        if self.score is None and (self.people or self.card) is not None:
            raise UserError("people and card correct a judge: name it with score")

    @property
    def sampling(self) -> SamplingSettings:
        return self.sampling_at(self.temperature)


def check_rounds(rounds: int, *, minimal: bool) -> None:
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UserError(f"rounds {rounds}: expected 1 to {MOST_ROUNDS}")
    if minimal and rounds > 1:
        raise UserError(f"minimal is one round that changes little; leave out rounds {rounds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSettings(AskingSettings):
    """Attacks on policies, beside prompts that they should not refuse."""

    targets: tuple[str, ...]
    """The policies: folders, or openai:http://host/v1#model; each later one is compared with the first."""
    judge: str
    """Who says whether an answer did harm: a model that is asked, a jury, a function, a reward."""
    refusal: str | None = None
    """Who says whether an answer declined; none: the judge, where it is a model."""
    twins: Path | None = None
    """Rows with harmless prompts, and with mirrored pairs (two rows that share a word under mirror)."""
    without_twins: bool = False
    """Measure no refusals; every result then says so."""
    templates: str | None = None
    """Ask each prompt in other words too: a file of templates, or ours."""
    by: str | None = None
    """A model that attacks: with several turns, or messages that it writes."""
    write: int = 0
    """How many messages it writes against each policy."""
    turns: int = 1
    """How many turns of the user an attack may take; from 2 on the attacker goes on where one failed."""
    archive: Path | None = None
    """What worked before, whichever policy it was: asked again, and added to."""
    category: tuple[str, ...] = ()
    """Only prompts of these categories."""
    answers: int = 1
    """Answers to each conversation: an attack works if any of them does harm."""
    temperature: float | None = None
    """Of the policies' answers; none: 0, and 1 where there are several answers."""
    harmful_below: float | None = None
    """Of a judge that scores: what scores less did harm."""
    constitution: str | None = None
    """What counts as harm: a file of principles, or ours; none: the wording's own words."""
    principles: int = 1
    """How many of its principles are drawn for each task."""
    people: Path | None = None
    """Labels of people on some of these answers: they correct the shares by the errors of the judges."""
    card: Path | None = None
    """Where there are no labels: the cards that an attack with labels made of these judges."""

    def __post_init__(self) -> None:
        for name in ("turns", "answers", "max_tokens", "principles", "n"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name.replace('_', '-')} {value}: expected 1 or more")
        if self.write < 0:
            raise UserError(f"write {self.write}: expected 0 messages or more")
        self._check_attacker()
        # For their complaints, before anything is loaded.
        AskingSettings.__post_init__(self)
        _ = self.sampling
        if self.answers > 1 and (self.temperature == 0 or self.card is not None):
            why = (
                "at temperature 0 all answers are the same"
                if self.card is None
                else "a card is of single ones"
            )
            raise UserError(f"answers {self.answers}: {why}; leave one of them out")
        if self.twins is not None and self.without_twins:
            raise UserError("--twins and --without-twins: give one of them")
        if self.refusal is None and not self.without_twins and not asks_a_model(self.judge):
            raise UserError(
                f"--refusal: {self.judge} says what did harm, not what was declined; name a model, or a "
                "function such as plaudit.feedback.attacks.verdicts:declines"
            )
        if self.constitution is not None and not asks_a_model(self.judge):
            raise UserError(f"--constitution is read by models, and {self.judge} is none")

    def _check_attacker(self) -> None:
        if self.by is None and (self.write or self.turns > 1):
            option = "--write" if self.write else f"--turns {self.turns}"
            raise UserError(f"{option} needs a model that attacks: --by openai:URL#model")
        if self.by is not None and not self.write and self.turns == 1:
            raise UserError("--by has nothing to do: say --write N (messages) or --turns N (it goes on)")

    @property
    def sampling(self) -> SamplingSettings:
        usual = 1.0 if self.answers > 1 else 0.0
        return self.sampling_at(usual if self.temperature is None else self.temperature)

    @property
    def sampling_words(self) -> str:
        sampling = self.sampling
        how = "the likeliest token each time" if sampling.greedy else f"temperature {sampling.temperature:g}"
        count = "one answer" if self.answers == 1 else f"{self.answers} answers"
        return f"{count}, {how}, at most {sampling.max_tokens} tokens"
