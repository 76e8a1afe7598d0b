"""Process rewards: where each step of an answer ends among its tokens, and one number made of all scores.

Process reward models are taught and asked at the last token of each step (Lightman et al. 2023,
arXiv:2305.20050). The answer is the steps, a line each. Text is never turned into tokens again where tokens
were drawn. How scores become payments stands in ``step_payments.py``.
"""

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, runtime_checkable

from plaudit.data.records import Steps, Task, Text, plain_text
from plaudit.errors import UserError
from plaudit.rewards.base import ADDITIVE_PAYS, Reward, RewardTraits, StepPayKind, TaskScores, refusal_counts
from plaudit.rollouts.sampler import Rollout
from plaudit.tokens.batch import Example
from plaudit.tokens.chat_template import without_whitespace
from plaudit.tokens.encode import Encoder
from plaudit.tokens.preferences import StepLabels, encode_judged

TaskStepScores = tuple[tuple[float, ...] | None, ...]


_RUNNING_VALUE: Mapping[StepPayKind, Callable[[float, float], float]] = {
    "min": min,
    "product": operator.mul,
    "last": lambda before, now: now,
}
"""The number of all steps so far, from that of those before and the newest score."""


@runtime_checkable
class StepScoringReward(Protocol):
    """A reward that can be asked for a score of each step."""

    @property
    def name(self) -> str: ...

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[TaskStepScores, ...]:
        """A row for each task; ``odds`` asks for log-odds in place of chances."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPayments:
    """What the steps of an answer were paid, and where."""

    ends: tuple[int, ...]
    """The last token of each step, counted from the answer's first; steps may end at the same one."""
    scores: tuple[float, ...]
    paid: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPayRule:
    pay: StepPayKind
    baseline: int | float = 0.0
    """What is taken off the score of each step; only where scores are paid themselves."""
    weight: int | float = 1.0

    def payments(self, scores: Sequence[float]) -> tuple[float, ...]:
        """One for each step.

        >>> StepPayRule(pay="score", baseline=0.5).payments([1.0, 0.25])
        (0.5, -0.25)
        >>> StepPayRule(pay="min").payments([0.75, 1.0, 0.5])
        (0.75, 0.0, -0.25)
        """
        if self.pay in ADDITIVE_PAYS:
            return tuple(self.weight * (score - self.baseline) for score in scores)
        # Differences telescope: together they pay the last value, however many steps there are.
        so_far = self._running_values(scores)
        return tuple(self.weight * (now - before) for before, now in pairwise([0.0, *so_far]))

    def total(self, scores: Sequence[float]) -> float:
        """The sum of the step rewards.

        >>> StepPayRule(pay="product").total([0.5, 0.5])
        0.25
        """
        if self.pay in ADDITIVE_PAYS:
            return math.fsum(self.payments(scores))
        return self.weight * self._running_values(scores)[-1]

    def check_scores(self, scores: Sequence[float], where: str) -> None:
        """Complain about scores that this scheme cannot reward: not finite, or no probabilities."""
        for score in scores:
            if not math.isfinite(score):
                raise UserError(f"{where}: a step has the score {score}; a score is a finite number")
            if self.pay == "product" and not 0 <= score <= 1:
                raise UserError(
                    f"{where}: a step has the score {score}, and a product is that of chances from 0 to 1; "
                    "use --process.pay min, last or score"
                )

    def _running_values(self, scores: Sequence[float]) -> tuple[float, ...]:
        return tuple(accumulate(scores, _RUNNING_VALUE[self.pay]))


def step_lines(answer: Text) -> tuple[str, ...]:
    return tuple(line.strip() for line in plain_text(answer).splitlines() if line.strip())


def step_ends(rollout: Rollout, encoder: Encoder) -> tuple[int, ...]:
    """For each line of the answer that holds a word the place of its last token.
    It is the first token with which all that was drawn so far spells the line to its end, blanks aside; so a
    token that holds a line's end and more belongs to the line that it ends, and a character of several tokens
    is there with the last of them. The last line ends with the answer, its end of turn included."""
    lines, last = step_lines(rollout.answer.text), len(rollout.ids) - 1
    ends: list[int] = []
    before = ""
    for line in lines[:-1]:
        before += without_whitespace(line)
        ends.append(_first_place_spelling(rollout.ids, before, encoder, ends[-1] if ends else 0))
    return (*ends, last) if lines else ()


def _first_place_spelling(ids: Sequence[int], prefix: str, encoder: Encoder, start: int) -> int:
    """The first position from ``start`` on whose decoded tokens begin with the prefix, blanks aside."""

    def spells(place: int) -> bool:
        # All tokens from the first, since a byte-level token alone may be part of a character.
        text = encoder.info.tokenizer.decode(
            list(ids[: place + 1]), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return without_whitespace(str(text)).startswith(prefix)

    # What is spelled only grows with tokens, so bisection finds the place with a handful of decodings.
    index = bisect_left(range(len(ids)), True, lo=start, key=spells)
    if index == len(ids):
        raise UserError(
            f"the step that ends with {prefix[-30:]!r} is not found among the tokens that were drawn: this "
            "tokenizer spells tokens otherwise when more of them follow; leave out --process.pay"
        )
    return index


StepAggregation = Literal["product", "min", "last"]
"""The chance that every step is right, the weakest step's, or the last one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    prompt: Text
    steps: tuple[str, ...]


@runtime_checkable
class StepLogitModel(Protocol):
    """Whatever gives each step of a solution its log-odds of being right."""

    @property
    def name(self) -> str: ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many solutions it held for."""
        ...

    def step_logits(self, solutions: Sequence[Solution]) -> tuple[tuple[float, ...] | None, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReward:
    """A process reward model as a reward of whole answers, each line of which is a step."""

    model: StepLogitModel
    reading: StepAggregation = "product"
    """How one number is made of them; Lightman et al. take the product."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def traits(self) -> RewardTraits:
        """That it is made of a model, where that scores whole answers too."""
        return RewardTraits(members=(self.model,) if isinstance(self.model, Reward) else ())

    @property
    def refused(self) -> Mapping[str, int]:
        return self.model.refused

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task, of chances from 0 to 1."""
        aggregate = STEP_AGGREGATIONS[self.reading]
        # Log-odds, as each way to make one number takes σ itself.
        rows = self.step_scores(tasks, odds=True)
        return tuple(tuple(None if logits is None else aggregate(logits) for logits in row) for row in rows)

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[TaskStepScores, ...]:
        """A row for each task: of every step of every answer the chance that it is right, or its log-odds."""
        solutions = [
            Solution(prompt=task.prompt, steps=step_lines(answer))
            for task in tasks
            for answer in task.answers
        ]
        step_rows = iter(self.model.step_logits(solutions))
        if not odds:
            step_rows = (None if logits is None else tuple(map(_sigmoid, logits)) for logits in step_rows)
        return tuple(tuple(next(step_rows) for _ in task.answers) for task in tasks)


def step_product(logit_C: Sequence[float]) -> float:
    """Π σ(l): the chance that every step is right (Lightman et al. 2023)."""
    return math.prod(map(_sigmoid, logit_C))


def step_minimum(logit_C: Sequence[float]) -> float:
    """min σ(l): a solution is as good as its weakest step."""
    return _sigmoid(min(logit_C))


def last_step(logit_C: Sequence[float]) -> float:
    """σ(l) of the last step alone, as a model of outcomes would say it."""
    return _sigmoid(logit_C[-1])


STEP_AGGREGATIONS: dict[StepAggregation, Callable[[Sequence[float]], float]] = {
    "product": step_product,
    "min": step_minimum,
    "last": last_step,
}


def encode_steps(solution: Solution, encoder: Encoder) -> tuple[Example, tuple[int, ...]]:
    """The solution as tokens, exactly as in training, and for each step the place of its last token."""
    if not solution.steps:
        raise UserError("a solution needs a step; leave out this row")
    record = Steps(prompt=solution.prompt, steps=solution.steps, labels=(0.0,) * len(solution.steps))
    encoding = encode_judged([record], encoder)
    for refused in encoding.refused:
        raise UserError(refused.reason)
    [row] = encoding.examples
    assert isinstance(row.judgement, StepLabels)
    return row.example, row.judgement.ends


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReward:
    """A process reward, optionally with an outcome reward, which is paid at the last token."""

    process_reward: StepScoringReward
    tariff: StepPayRule
    step_ends: Callable[[Rollout], tuple[int, ...]]
    outcome_reward: Reward | None = None

    @property
    def name(self) -> str:
        if self.outcome_reward is None:
            return self.process_reward.name
        return f"{self.outcome_reward.name} and {self.process_reward.name}"

    @property
    def refused(self) -> Mapping[str, int]:
        return dict(
            Counter(refusal_counts(self.process_reward)) + Counter(refusal_counts(self.outcome_reward))
        )

    def score_steps(
        self, tasks: Sequence[Task], groups: Sequence[Sequence[Rollout]]
    ) -> tuple[Any, tuple[tuple[StepPayments | None, ...], ...]]:
        """The scores of whole answers and the payments of their steps; None without a verdict of either."""
        from plaudit.rewards.combine.cascade import ScoresWithParts

        outcome = self._outcome_scores(tasks)
        # The reward itself gives log-odds: a chance that was rounded to 1 has lost them.
        step_scores = self.process_reward.step_scores(tasks, odds=self.tariff.pay == "odds") if tasks else ()
        self._refuse_count_mismatch(len(step_scores), len(tasks), "prompts")
        steps = tuple(
            self._pay_group(task, group, row_scores)
            for task, group, row_scores in zip(tasks, groups, step_scores, strict=True)
        )
        row_scores = [
            tuple(None if item is None else self.tariff.total(item.scores) for item in row) for row in steps
        ]
        rows = row_scores
        if outcome is not None:
            rows = [_sum_rows(*pair) for pair in zip(outcome.rows, row_scores, strict=True)]
        parts = {} if outcome is None else {**outcome.parts, self.process_reward.name: tuple(row_scores)}
        return ScoresWithParts(rows=tuple(rows), parts=parts), steps

    def _outcome_scores(self, tasks: Sequence[Task]) -> Any:
        from plaudit.rewards.combine.cascade import ScoresWithParts

        if self.outcome_reward is None:
            return None
        with_parts: Any = getattr(self.outcome_reward, "scores_with_parts", None)
        if tasks and with_parts is not None:
            scored = with_parts(tasks)
        else:
            scored = ScoresWithParts(rows=self.outcome_reward.scores(tasks) if tasks else (), parts={})
        parts = {**scored.parts, self.outcome_reward.name: scored.rows}
        return ScoresWithParts(rows=scored.rows, parts=parts)

    def _pay_group(
        self, task: Task, group: Sequence[Rollout], row: Sequence[tuple[float, ...] | None]
    ) -> tuple[StepPayments | None, ...]:
        self._refuse_count_mismatch(len(row), len(group), "answers")
        payments: list[StepPayments | None] = []
        for rollout, answer, scores in zip(group, task.answers, row, strict=True):
            where = f"{self.process_reward.name}, answer {rollout.answer.text[:40]!r}"
            # A reward that counts steps otherwise would have its scores paid at the wrong tokens.
            line_count = len(step_lines(answer))
            if scores is not None and len(scores) != line_count:
                raise UserError(
                    f"{where}: it scored {len(scores)} steps, and the answer has {line_count} (lines that "
                    "hold a word)"
                )
            # None is no verdict; an empty row is an answer without any line that holds a word.
            if not scores:
                payments.append(None)
                continue
            self.tariff.check_scores(scores, where)
            ends = self.step_ends(rollout)
            payments.append(StepPayments(ends=ends, scores=scores, paid=self.tariff.payments(scores)))
        return tuple(payments)

    def _refuse_count_mismatch(self, returned: int, expected: int, unit: str) -> None:
        if returned != expected:
            raise UserError(
                f"{self.process_reward.name} was asked about the steps of {expected} {unit} and scored "
                f"{returned}"
            )


def _sum_rows(task_scores: TaskScores, other: TaskScores) -> TaskScores:
    """The sums of both rows; None where either has no verdict."""
    if len(task_scores) != len(other):
        raise UserError(f"a reward gave {len(task_scores)} scores for {len(other)} answers")
    return tuple(None if a is None or b is None else a + b for a, b in zip(task_scores, other, strict=True))
