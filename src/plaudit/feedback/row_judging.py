"""Rows by a judge, as they were requested: what is judged, who is asked, and the files that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Judge, Judging, NoVerdict, Verdict
from plaudit.data.read import read_records
from plaudit.data.records import Record, Task
from plaudit.data.transforms import some_of
from plaudit.data.write import write_records
from plaudit.engine.ranks import of_all_ranks
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.evaluation.policies.judge import check_judge, divided_outcomes, family_note, judge_notes
from plaudit.evaluation.policies.judge_card import calibrated, read_card
from plaudit.feedback.asking import AskingSettings, JudgeRowsSettings
from plaudit.feedback.judged_rows import (
    JudgedRows,
    answer_tasks_of,
    drawn_tasks,
    judged_rows,
    pair_tasks,
    rated_rows,
    refuse_other_rows,
)
from plaudit.feedback.judges.jury import Jury, Spread
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.money import Purse, total_estimate
from plaudit.rewards.comparing import in_both_orders, judge_named
from plaudit.rewards.load import model_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJudging:
    """A request that is ready: answers are there, the judge is loaded, and nothing has been asked."""

    judge: Judge
    tasks: tuple[Task, ...]
    singly: bool
    """Whether answers get points by themselves, and are not compared."""
    judging: Judging
    temperature: float | None
    """What log-odds are divided by; None: they stay."""
    purse: Purse
    seed: int
    notes: tuple[str, ...]

    def estimate(self) -> str:
        """What is still to be asked, and what it costs at most, in a sentence."""
        return estimate_sentence(self.judge, self.tasks, self.seed)

    def outcomes(self) -> list[Verdict | NoVerdict]:
        found = divided_outcomes(self.judge, self.tasks, self.seed)
        if self.temperature is None:
            return found
        return [calibrated(outcome, self.temperature) for outcome in found]

    def rows(self, found: Sequence[Verdict | NoVerdict]) -> JudgedRows:
        return judged_rows(self.tasks, found, self.judging.actor)

    def run(self) -> JudgedRows:
        if not self.singly:
            return self.rows(self.outcomes())
        assert isinstance(self.judge, ModelJudge)
        return rated_rows(self.judge, self.tasks, self.judging.actor)

    @property
    def end_notes(self) -> tuple[str, ...]:
        """What there is to say behind the rows: of log-probs, of the price."""
        return (*judge_notes(self.judge), *of_all_ranks(self.purse.sentences, str))


def prepare_judging(settings: JudgeRowsSettings, *, layout: str | None = None) -> RowJudging:
    """Read the rows, of this layout or whichever they have, load the judge and draw the answers."""
    check_judge(settings.by, has_gold=False)
    asking = settings.judge_settings()
    judge = in_both_orders(judge_named(settings.by, asking))
    source = settings.data or settings.prompts
    assert source is not None, "one of both is given"
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    found = read_records(source, format=layout, options=options)
    print(found.format_sentence)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedJudge:
    """A judge of pairs that says how sure it is, with what it costs."""

    judge: Judge
    judging: Judging
    purse: Purse

    def estimate(self, tasks: Sequence[Task]) -> str:
        return estimate_sentence(self.judge, tasks, 0)

    def cost(self, task: Task) -> dict[str, float]:
        return cost_of(self.judge, task, 0)


def queried_judges(
    words: Sequence[str], *, device: str = "auto", most_money: float | None = None
) -> list[QueriedJudge]:
    """Judges by their words, asked by letters where these say nothing else, out of one purse."""
    for word in words:
        check_judge(word, has_gold=False)
    asking = AskingSettings(device=device, most_money=most_money)
    settings = replace(asking.judge_settings(), ask=asking.asking(how="letter"))
    judges = [in_both_orders(judge_named(word, settings)) for word in words]
    return [QueriedJudge(judge=each, judging=judging_of(each), purse=settings.purse) for each in judges]


def cost_of(judge: Judge, task: Task, seed: int) -> dict[str, float]:
    """The tokens and the price of what was replied to the questions about a task."""
    costs = [model.spent(task) for model, own in models_in(judge, [task], seed) if own]
    return {"tokens": sum(tokens for tokens, _ in costs), "price": sum(price for _, price in costs)}


def write_judged_rows(judged: JudgedRows, path: Path) -> None:
    """Write the rows; where nothing was said of any pair there is nothing to write."""
    if not judged.rows:
        reasons = ", ".join(f"{count} {why}" for why, count in judged.failures.items())
        raise UserError(f"nothing was said of any pair, so there are no rows ({reasons or 'no pairs'})")
    write_records(judged.rows, path)


def models_in(judge: Judge, tasks: Sequence[Task], seed: int) -> list[tuple[ModelJudge, Sequence[Task]]]:
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


def _tasks(
    settings: JudgeRowsSettings, judge: Judge, records: Sequence[Record]
) -> tuple[list[Task], bool, tuple[str, ...]]:
    if settings.model is not None:
        return _drawn(settings, judge, settings.model, records)
    # Single answers can be rated by whoever gives points; pairs are compared by anybody.
    pairs = pair_tasks(records)
    singly = isinstance(judge, ModelJudge) and judge.mode.scoring is not None and not pairs
    refuse_other_rows(records, singly=singly)
    tasks = answer_tasks_of(records) if singly else pairs
    return some_of(tasks, settings.n, f"pairs {settings.seed}"), singly, ()


def _drawn(
    settings: JudgeRowsSettings, judge: Judge, model: Path, records: Sequence[Record]
) -> tuple[list[Task], bool, tuple[str, ...]]:
    # Models are slow to import, and rows with answers need none.
    from plaudit.evaluation.policies.generate import DividedSampler

    sampler = DividedSampler(model_folder(model), device=settings.device, dtype=settings.dtype)
    others = [
        sampler
        if word == POLICY
        else None
        if word == WRITTEN
        else DividedSampler(model_folder(Path(word)), device=settings.device, dtype=settings.dtype)
        for word in settings.against
    ]
    tasks, left_out = drawn_tasks(sampler, records, settings.sampling, n=settings.n, others=others)
    if not tasks:
        counted = ", ".join(f"{count} are left out, {why}" for why, count in left_out.items())
        raise UserError(f"no prompt has two different answers ({counted or 'no prompts'}); raise temperature")
    family = family_note(settings.by, judge.name, {str(model): model})
    notes = [f"{count} prompts are left out, {why}" for why, count in left_out.items()]
    return tasks, False, (*(() if family is None else (family,)), *notes)


def _temperature(card: Path, judge: Judge) -> float:
    found = read_card(card, judge)
    if found.temperature is None:
        why = "; ".join(note for note in found.notes if note.startswith("no temp")) or "it gives sides alone"
        raise UserError(f"{card}: this card has no temperature to calibrate by ({why})")
    agreement = found.agreement
    if agreement is not None and agreement.low is not None and agreement.low <= 0.5:
        raise UserError(
            f"{card}: {found.judge} agrees with people in {agreement.value:.1%} of pairs, and perhaps in "
            f"{agreement.low:.1%}, no better than a coin, so it is no labeller: take another judge, or make "
            "a card on more pairs"
        )
    return found.temperature
