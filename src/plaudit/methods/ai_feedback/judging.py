"""Requests for judgements: which answers, who judges, by which principles, and the rows that come of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Judge, NoVerdict, Task, Verdict, outcomes
from plaudit.data.read import read_records
from plaudit.data.records import Record
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge, family_note, judge_notes
from plaudit.evaluation.policies.judge_card import calibrated, read_card
from plaudit.judges.constitution import constitution_named
from plaudit.judges.identity import Judging, judging_of
from plaudit.judges.jury import Jury, Spread
from plaudit.judges.model_judge import ModelJudge
from plaudit.judges.money import Purse, parse_prices, total_estimate
from plaudit.judges.posting import RetryPolicy
from plaudit.judges.words import How, HowToAsk, read_preamble
from plaudit.methods.ai_feedback.judged_rows import (
    JudgedRows,
    answer_tasks_of,
    drawn_tasks,
    judged_rows,
    pair_tasks,
    rated_rows,
    refuse_other_rows,
)
from plaudit.rewards.comparing import GOLD, PEOPLE, JudgeSettings, in_both_orders, judge_named
from plaudit.rewards.load import model_folder
from plaudit.rollouts.sampler import SamplingSettings

Item = TypeVar("Item")
"""What some are drawn of."""


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
        if self.by in (GOLD, PEOPLE):
            raise UserError(f"by {self.by}: name a model; people answer in plaudit collect")
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")
        # For their complaints, before anything is loaded or asked.
        _ = self.sampling, self.judge_settings

    @property
    def sampling(self) -> SamplingSettings:
        """How the policy's answers are drawn."""
        return SamplingSettings(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)

    @property
    def judge_settings(self) -> JudgeSettings:
        """How the judge is loaded and asked, with a purse of its own."""
        return JudgeSettings(
            device=self.device,
            dtype=self.dtype,
            retry_policy=RetryPolicy(token_from=self.token_from),
            cache=self.cache,
            soft=True,
            ask=self._ask,
            purse=Purse(self.most_money),
        )

    @property
    def _ask(self) -> HowToAsk:
        return HowToAsk(
            how=self.how or ("letter" if self.rubric is None else "points"),
            rubric=self.rubric,
            constitution=None if self.constitution is None else constitution_named(self.constitution),
            principles=self.principles,
            preamble=None if self.preamble is None else read_preamble(str(self.preamble)),
            price=None if self.price is None else parse_prices(self.price),
            requests=self.requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJudging:
    """A request that is ready: answers are there, the judge is loaded, and nothing has been asked.

    Example: ``prepare_judging(settings).run().rows``
    """

    judge: Judge
    """Who judges."""
    tasks: tuple[Task, ...]
    """What is judged."""
    singly: bool
    """Whether answers get points by themselves, and are not compared."""
    judging: Judging
    """Who the rows are by."""
    temperature: float | None
    """What log-odds are divided by; None: they stay."""
    purse: Purse
    """What the judge may spend, and has spent."""
    seed: int
    """Of what a judge draws by itself."""
    notes: tuple[str, ...]
    """What has to be said of judge and answers."""

    def estimate(self) -> str:
        """What is still to be asked, and what it costs at most, in a sentence."""
        return estimate_sentence(self.judge, self.tasks, self.seed)

    def outcomes(self) -> list[Verdict | NoVerdict]:
        """What the judge says of each pair."""
        found = outcomes(self.judge, self.tasks, self.seed)
        if self.temperature is None:
            return found
        return [calibrated(outcome, self.temperature) for outcome in found]

    def rows(self, found: Sequence[Verdict | NoVerdict]) -> JudgedRows:
        """The rows of what it said of each pair."""
        return judged_rows(self.tasks, found, self.judging.actor)

    def run(self) -> JudgedRows:
        """Ask, and make rows."""
        if not self.singly:
            return self.rows(self.outcomes())
        assert isinstance(self.judge, ModelJudge)
        return rated_rows(self.judge, self.tasks, self.judging.actor)

    @property
    def end_notes(self) -> tuple[str, ...]:
        """What there is to say behind the rows: of log-probs, of the price."""
        return end_notes(self.judge, self.purse)


def prepare_judging(
    settings: JudgeRowsSettings, *, layout: str | None = None, say: Callable[[str], object] = print
) -> RowJudging:
    """Read the rows, of this layout or whichever they have, load the judge and draw the answers."""
    check_judge(settings.by, has_gold=False)
    asking = settings.judge_settings
    judge = in_both_orders(judge_named(settings.by, asking))
    source = settings.data or settings.prompts
    assert source is not None, "one of both is given"
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    found = read_records(source, format=layout, options=options)
    say(found.format_sentence)
    tasks, singly, notes = _tasks(settings, judge, found.records)
    judging, temperature = judging_of(judge), None
    if settings.calibrate is not None:
        if singly:
            raise UserError(
                f"{settings.calibrate}: a card scales chances of pairs, and these are single answers"
            )
        temperature = _temperature(settings.calibrate, judge)
        sampling = {**judging.sampling, "calibrated": temperature}
        judging = replace(judging, sampling=sampling, version=f"{judging.version}+T{temperature:.3g}")
    return RowJudging(
        judge=judge,
        tasks=tuple(tasks),
        singly=singly,
        judging=judging,
        temperature=temperature,
        purse=asking.purse,
        seed=settings.seed,
        notes=notes,
    )


def write_judged_rows(judged: JudgedRows, path: Path) -> None:
    """Write the rows; where nothing was said of any pair there is nothing to write."""
    if not judged.rows:
        reasons = ", ".join(f"{count} {why}" for why, count in judged.failures.items())
        raise UserError(f"nothing was said of any pair, so there are no rows ({reasons or 'no pairs'})")
    write_records(judged.rows, path)


def some_of(items: Sequence[Item], n: int | None, seed: int) -> list[Item]:
    """At most so many of these, by chance, in their order.

    >>> some_of("abc", 2, seed=0), some_of("abc", None, seed=0)
    (['a', 'b'], ['a', 'b', 'c'])
    """
    if n is None or n >= len(items):
        return list(items)
    chosen = sorted(random.Random(f"pairs {seed}").sample(range(len(items)), n))
    return [items[place] for place in chosen]


def models_in(judge: Judge, tasks: Sequence[Task], seed: int) -> list[tuple[ModelJudge, Sequence[Task]]]:
    """The models that are asked in words, each with the tasks that it is asked about."""
    members: list[tuple[Judge, Sequence[Task]]] = [(judge, tasks)]
    if isinstance(judge, Jury):
        members = [(member, tasks) for member in judge.judges]
    elif isinstance(judge, Spread):
        members = [
            (member, [task for task in tasks if judge.turn(task, seed) == place])
            for place, member in enumerate(judge.judges)
        ]
    return [(member, own) for member, own in members if isinstance(member, ModelJudge)]


def estimate_sentence(judge: Judge, tasks: Sequence[Task], seed: int) -> str:
    """What is still to be asked about these tasks, and what it costs at most."""
    estimates = [model.estimate(own) for model, own in models_in(judge, tasks, seed)]
    if not estimates:
        return f"{judge.name}: {len(tasks):,} pairs, by no model that is asked in words"
    return f"{judge.name}: {total_estimate(estimates).sentence()}"


def end_notes(judge: Judge, purse: Purse) -> tuple[str, ...]:
    """What a judge says of its judgements, and what they cost."""
    money = f", {purse.spent:.4g} spent in all" if purse.spent else ""
    tokens = (f"{purse.tokens:,} tokens{money}",) if purse.tokens else ()
    return (*judge_notes(judge), *tokens)


def _tasks(
    settings: JudgeRowsSettings, judge: Judge, records: Sequence[Record]
) -> tuple[list[Task], bool, tuple[str, ...]]:
    """What is judged, whether singly, and what there is to say of it."""
    if settings.model is not None:
        return _drawn(settings, judge, settings.model, records)
    # Single answers can be rated by whoever gives points; pairs are compared by anybody.
    pairs = pair_tasks(records)
    singly = isinstance(judge, ModelJudge) and judge.how in ("points", "answer") and not pairs
    refuse_other_rows(records, singly=singly)
    tasks = answer_tasks_of(records) if singly else pairs
    return some_of(tasks, settings.n, settings.seed), singly, ()


def _drawn(
    settings: JudgeRowsSettings, judge: Judge, model: Path, records: Sequence[Record]
) -> tuple[list[Task], bool, tuple[str, ...]]:
    # Models are slow to import, and rows with answers need none.
    from plaudit.rollouts.build import sampler_of_folder

    sampler = sampler_of_folder(model_folder(model), device=settings.device)
    tasks, same = drawn_tasks(sampler, records, settings.sampling, n=settings.n)
    if not tasks:
        raise UserError("no prompt has two different answers; raise --temperature")
    family = family_note(settings.by, judge.name, {str(model): model})
    left_out = f"{same} prompts are left out, since both answers read the same" if same else None
    return tasks, False, tuple(note for note in (family, left_out) if note is not None)


def _temperature(card: Path, judge: Judge) -> float:
    """The temperature of a judge's card."""
    found = read_card(card, judge).temperature
    if found is None:
        raise UserError(f"{card}: this card has no temperature: too few pairs, or sides alone")
    return found
