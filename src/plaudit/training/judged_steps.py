"""Answers that are paid step by step: what each step is worth, and at which token it is paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.rewards.asking import reasons_of
from plaudit.rewards.cascade import KeepsParts, Parted
from plaudit.rewards.reward import Reward, Row
from plaudit.rewards.step_pay import GivesSteps, Paid, Tariff, lines_of
from plaudit.rollouts.sampling import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidAnswers:
    """What answers are worth, and what of it was earned on the way.

    Example: ``OfSteps(by=process, tariff=Tariff(pay="min"), ends=…).paid(tasks, groups).whole.rows``
    """

    whole: Parted
    """The scores of whole answers: all payments, and the outcome's score where there is one."""
    steps: tuple[tuple[Paid | None, ...], ...]
    """For each answer its steps; None where it has no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSteps:
    """A process reward, and beside it, if wanted, a reward of the outcome, which is paid at the last token.

    Example: ``OfSteps(by=process, tariff=Tariff(pay="min"), ends=partial(step_ends, encoder=encoder))``
    """

    by: GivesSteps
    """Who scores steps."""
    tariff: Tariff
    """How scores become payments."""
    ends: Callable[[Rollout], tuple[int, ...]]
    """The last token of each step."""
    outcome: Reward | None = None
    """Who scores whole answers beside."""

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self.by.name if self.outcome is None else f"{self.outcome.name} and {self.by.name}"

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for."""
        return dict(Counter(reasons_of(self.by)) + Counter(reasons_of(self.outcome)))

    def paid(self, tasks: Sequence[Task], groups: Sequence[Sequence[Rollout]]) -> PaidAnswers:
        """Of every answer; one that lacks a verdict of either has none."""
        outcome = self._outcome(tasks)
        said = self.by.step_scores(tasks, odds=self.tariff.pay == "odds") if tasks else ()
        self._refuse_another_number(len(said), len(tasks), "prompts")
        steps = tuple(
            self._group(task, group, own) for task, group, own in zip(tasks, groups, said, strict=True)
        )
        own = [tuple(None if one is None else self.tariff.total(one.scores) for one in row) for row in steps]
        rows = own if outcome is None else [_sums(*both) for both in zip(outcome.rows, own, strict=True)]
        parts = {} if outcome is None else {**outcome.parts, self.by.name: tuple(own)}
        return PaidAnswers(whole=Parted(rows=tuple(rows), parts=parts), steps=steps)

    def _outcome(self, tasks: Sequence[Task]) -> Parted | None:
        """What the second reward says, itself one of the parts."""
        if self.outcome is None:
            return None
        if isinstance(self.outcome, KeepsParts):
            found = self.outcome.parted(tasks)
        else:
            found = Parted(rows=self.outcome.scores(tasks) if tasks else (), parts={})
        return Parted(rows=found.rows, parts={**found.parts, self.outcome.name: found.rows})

    def _group(
        self, task: Task, group: Sequence[Rollout], row: Sequence[tuple[float, ...] | None]
    ) -> tuple[Paid | None, ...]:
        self._refuse_another_number(len(row), len(group), "answers")
        found: list[Paid | None] = []
        for rollout, answer, scores in zip(group, task.answers, row, strict=True):
            where = f"{self.by.name}, answer {rollout.answer.text[:40]!r}"
            wanted = len(lines_of(answer))
            if scores is not None and len(scores) != wanted:
                raise UserError(
                    f"{where}: it scored {len(scores)} steps, and the answer has {wanted} (lines that hold a "
                    "word)"
                )
            if not scores:
                found.append(None)
                continue
            self.tariff.refuse(scores, where)
            ends = self.ends(rollout)
            found.append(Paid(ends=ends, scores=scores, paid=self.tariff.payments(scores)))
        return tuple(found)

    def _refuse_another_number(self, found: int, asked: int, what: str) -> None:
        if found != asked:
            raise UserError(f"{self.by.name} was asked about the steps of {asked} {what} and scored {found}")


def _sums(one: Row, other: Row) -> Row:
    """Both together, where there are both."""
    if len(one) != len(other):
        raise UserError(f"a reward gave {len(one)} scores for {len(other)} answers")
    return tuple(None if a is None or b is None else a + b for a, b in zip(one, other, strict=True))
