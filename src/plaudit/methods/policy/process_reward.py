"""Process rewards of a policy run: the score of each step of a completion, and the token at which it is paid.

The module decides who scores steps and which algorithms can learn from them, and has notes for the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.cells import cell_name
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.rewards.base import Reward, TaskScores
from plaudit.rewards.combine.cascade import HasScoreParts, ScoresWithParts
from plaudit.rewards.learned.batching import refusal_reasons
from plaudit.rewards.learned.process import step_ends
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.learned.step_payments import StepPayments, StepPayRule, StepScoringReward, step_lines
from plaudit.rewards.registry import UserFunctionReward, resolve_reward
from plaudit.rollouts.sampler import Rollout
from plaudit.tokens.encode import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScoredCompletions:
    """Scores of whole completions, and the payments of their steps.

    Example: ``ProcessReward(process_reward=process, tariff=StepPayRule(pay="min"),
        step_ends=…).score_steps(tasks, groups).whole.rows``
    """

    completion_scores: ScoresWithParts
    """The scores of whole answers: all payments, and the outcome's score where there is one."""
    steps: tuple[tuple[StepPayments | None, ...], ...]
    """For each answer its steps; None where it has no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReward:
    """A process reward, optionally with an outcome reward, which is paid at the last token.

    Example: ``ProcessReward(process_reward=process, tariff=StepPayRule(pay="min"),
        step_ends=partial(step_ends, encoder=encoder))``
    """

    process_reward: StepScoringReward
    """Scores steps."""
    tariff: StepPayRule
    """How scores become payments."""
    step_ends: Callable[[Rollout], tuple[int, ...]]
    """The last token of each step."""
    outcome_reward: Reward | None = None
    """Scores whole completions in addition."""

    @property
    def name(self) -> str:
        """The name in tables and reports."""
        return (
            self.process_reward.name
            if self.outcome_reward is None
            else f"{self.outcome_reward.name} and {self.process_reward.name}"
        )

    @property
    def refused(self) -> Mapping[str, int]:
        """The reasons for missing verdicts, with the number of completions of each."""
        return dict(
            Counter(refusal_reasons(self.process_reward)) + Counter(refusal_reasons(self.outcome_reward))
        )

    def score_steps(
        self, tasks: Sequence[Task], groups: Sequence[Sequence[Rollout]]
    ) -> StepScoredCompletions:
        """Score every completion by its steps; one that lacks a verdict of either reward has none."""
        outcome = self._outcome_scores(tasks)
        step_scores = self.process_reward.step_scores(tasks, odds=self.tariff.pay == "odds") if tasks else ()
        self._refuse_count_mismatch(len(step_scores), len(tasks), "prompts")
        steps = tuple(
            self._pay_group(task, group, row_scores)
            for task, group, row_scores in zip(tasks, groups, step_scores, strict=True)
        )
        row_scores = [
            tuple(None if one is None else self.tariff.total(one.scores) for one in row) for row in steps
        ]
        rows = (
            row_scores
            if outcome is None
            else [_sum_rows(*pair) for pair in zip(outcome.rows, row_scores, strict=True)]
        )
        parts = {} if outcome is None else {**outcome.parts, self.process_reward.name: tuple(row_scores)}
        return StepScoredCompletions(
            completion_scores=ScoresWithParts(rows=tuple(rows), parts=parts), steps=steps
        )

    def _outcome_scores(self, tasks: Sequence[Task]) -> ScoresWithParts | None:
        """What the second reward says, itself one of the parts."""
        if self.outcome_reward is None:
            return None
        if isinstance(self.outcome_reward, HasScoreParts):
            scored = self.outcome_reward.scores_with_parts(tasks)
        else:
            scored = ScoresWithParts(rows=self.outcome_reward.scores(tasks) if tasks else (), parts={})
        return ScoresWithParts(
            rows=scored.rows, parts={**scored.parts, self.outcome_reward.name: scored.rows}
        )

    def _pay_group(
        self, task: Task, group: Sequence[Rollout], row: Sequence[tuple[float, ...] | None]
    ) -> tuple[StepPayments | None, ...]:
        self._refuse_count_mismatch(len(row), len(group), "answers")
        payments: list[StepPayments | None] = []
        for rollout, answer, scores in zip(group, task.answers, row, strict=True):
            where = f"{self.process_reward.name}, answer {rollout.answer.text[:40]!r}"
            line_count = len(step_lines(answer))
            if scores is not None and len(scores) != line_count:
                raise UserError(
                    f"{where}: it scored {len(scores)} steps, and the answer has {line_count} (lines that "
                    "hold a "
                    "word)"
                )
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


def _sum_rows(one: TaskScores, other: TaskScores) -> TaskScores:
    """The sums of both rows; None where either has no verdict."""
    if len(one) != len(other):
        raise UserError(f"a reward gave {len(one)} scores for {len(other)} answers")
    return tuple(None if a is None or b is None else a + b for a, b in zip(one, other, strict=True))


def make_reward(config: PolicyConfig, encoder: Encoder) -> Reward | ProcessReward:
    """The run's reward; with process rewards, the reward of steps and of the outcome together."""
    assert config.reward is not None
    process, reward = config.process, resolve_reward(config.reward)
    if process.pay == "no":
        return reward
    step_reward = reward if process.by is None else resolve_reward(process.by)
    return ProcessReward(
        process_reward=_require_step_scores(
            step_reward, "reward" if process.by is None else "process.by", odds=process.pay == "odds"
        ),
        tariff=StepPayRule(pay=process.pay, baseline=process.baseline, weight=process.weight),
        step_ends=partial(step_ends, encoder=encoder),
        outcome_reward=None if process.by is None else reward,
    )


def refuse_process_conflicts(algorithm: PolicyAlgorithm, config: PolicyConfig) -> None:
    """Raise for process rewards that cannot be given, or would teach something else than what is meant."""
    process = config.process
    if process.pay == "no":
        return
    if config.environment is not None:
        raise UserError(
            "process.pay: an episode of an environment is paid at its end; let the environment's outcome say "
            "what its turns are worth, or leave it out"
        )
    if process.by is not None and process.by == config.reward:
        raise UserError(
            "process.by and --reward are the same: leave out --process.by, and --reward scores steps"
        )
    if cell_name("advantage", algorithm) == "group-z" and not process.adds_up:
        raise UserError(
            f"process.pay {process.pay}: {algorithm.name} measures a step against the mean step of its "
            "group, and a change is large at first and small later, so an answer would be better the fewer "
            "steps it has. Use --process.pay score, or compare whole answers with --advantage group-mean"
        )


def process_notes(algorithm: PolicyAlgorithm, config: PolicyConfig) -> list[str]:
    """Notes for the user on how steps are rewarded."""
    process = config.process
    if process.pay == "no" or algorithm.name not in POLICY_ALGORITHMS:
        return []
    less = f", less {process.baseline:g}" if process.baseline else ""
    notes = [f"process reward: every step is paid at its last token, by its {process.pay}{less}"]
    advantage = cell_name("advantage", algorithm)
    if "token_rewards" not in algorithm.needs:
        notes.append(
            f"{advantage} compares whole answers: each has the sum of its payments at all of its tokens"
        )
    if process.adds_up and advantage != "group-z":
        notes.append(
            f"payments by {process.pay} add up, so each further step that scores above "
            f"{process.baseline:g} is worth more: raise --process.baseline, or pay changes "
            "(--process.pay min), which no further step can raise. docs/policy.md#process-rewards"
        )
    return notes


def _require_step_scores(reward: Reward, setting: str, *, odds: bool) -> StepScoringReward:
    if isinstance(reward, LearnedReward):
        raise UserError(
            f"{setting} {reward.name}: this model scores whole answers. If it learned from steps, make it a "
            "process reward first: plaudit combine steps DIR --out FOLDER"
        )
    if not isinstance(reward, StepScoringReward):
        raise UserError(
            f"{setting} {reward.name} gives no score of a step. A process reward model's folder does "
            "(plaudit combine steps), and a function that returns a list with a number for each step"
        )
    if odds and isinstance(reward, UserFunctionReward):
        raise UserError(
            f"process.pay odds: of a function's numbers no log-odds are known; let {reward.name} give them, "
            "and use --process.pay score"
        )
    return reward
