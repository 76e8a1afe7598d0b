"""The script of the policy trainer's tests, its answers paid step by step; and what papers make of that."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, stdev
from typing import Any

from plaudit.data.judging import Task
from plaudit.data.records import Text, plain_text
from plaudit.methods.policy.config import ProcessSettings
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.process import ProcessReward, StepPayRule, TaskStepScores
from plaudit.rollouts.sampler import Rollout
from tests.methods.policy.papers import Known, Paper
from tests.methods.policy.pieces import Scene, scene
from tests.methods.policy.script import Script, Teller


def plan(ids: Sequence[int], *, whole: bool = False) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Where the steps of an answer end, and what each is worth: known from the tokens alone."""
    ends = () if whole else tuple(t for t, token in enumerate(ids[:-1]) if token % 3 == 0)
    ends = (*ends, len(ids) - 1)
    return ends, tuple(0.5 + 0.5 * math.sin(7 * sum(ids[: end + 1])) for end in ends)


@dataclass(frozen=True)
class LinedTeller(Teller):
    """A sampler whose answers have a line for each step."""

    whole: bool = False

    def _said(self, group: int, k: int) -> Rollout:
        rollout = super()._said(group, k)
        count = len(plan(rollout.ids, whole=self.whole)[0])
        text = "\n\n".join([rollout.answer.text, *("and so on" for _ in range(count - 1))])
        return replace(rollout, answer=replace(rollout.answer, text=text))


@dataclass(frozen=True)
class StepReader:
    """A process reward that knows the plan; of an answer without a score it has no verdict."""

    lines: Script
    whole: bool = False
    name: str = "plan"

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[TaskStepScores, ...]:
        return tuple(tuple(self._steps(answer) for answer in task.answers) for task in tasks)

    def _steps(self, answer: Text) -> tuple[float, ...] | None:
        line = line_of(self.lines, answer)
        return None if line.score is None else plan(line.ids, whole=self.whole)[1]


@dataclass(frozen=True)
class OutcomeReader:
    """The score of the script, beside the steps."""

    lines: Script
    name: str = "script"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(tuple(line_of(self.lines, answer).score for answer in task.answers) for task in tasks)


def line_of(lines: Script, answer: Text) -> Any:
    group, k = map(int, plain_text(answer).split("\n")[0].split("."))
    return lines[group][1][k]


def paid_scene(name: str, pay: ProcessSettings, *, whole: bool = False, **more: Any) -> Scene:
    """A scene whose answers are paid step by step; ``whole`` makes each answer a single step."""
    one = scene(name, process=pay, **more)
    teller = one.rounds.collector.sampler
    assert isinstance(teller, Teller)
    assert pay.pay != "no"
    reward = ProcessReward(
        process_reward=StepReader(one.lines, whole),
        tariff=StepPayRule(pay=pay.pay, baseline=pay.baseline, weight=pay.weight),
        step_ends=lambda rollout: plan(rollout.ids, whole=whole)[0],
        outcome_reward=None if pay.by is None else OutcomeReader(one.lines),
    )
    collector = replace(one.rounds.collector, sampler=lined(teller, whole), reward=reward)
    if collector.rival is not None:
        assert isinstance(collector.rival.sampler, Teller)
        rival = replace(collector.rival, sampler=lined(collector.rival.sampler, whole))
        collector = replace(collector, rival=rival)
    one.rounds.collector = collector
    return one


def lined(teller: Teller, whole: bool) -> LinedTeller:
    return LinedTeller(**{own.name: getattr(teller, own.name) for own in fields(Teller)}, whole=whole)


def payments(one: Known, pay: ProcessSettings) -> list[float]:
    """What each token is paid: steps at their ends, and the outcome, if there is one, at the last token."""
    ends, scores = plan(one.line.ids)
    found = [0.0] * len(one.old)
    for place, end in enumerate(ends):
        if pay.pay == "score":
            amount = scores[place] - pay.baseline
        elif pay.pay == "min":
            amount = min(scores[: place + 1]) - (min(scores[:place]) if place else 0.0)
        elif pay.pay == "product":
            amount = math.prod(scores[: place + 1]) - (math.prod(scores[:place]) if place else 0.0)
        else:
            amount = scores[place] - (scores[place - 1] if place else 0.0)
        found[end] += pay.weight * amount
    if pay.by is not None:
        found[-1] += one.score
    return found


def rewards(one: Known, paper: Paper, pay: ProcessSettings) -> list[float]:
    """The same with the KL of each token, where it counts in the reward."""
    costs = [paper.beta * paper.reward_kl(rho) if paper.kl == "reward" else 0.0 for rho in one.apart]
    return [r - cost for r, cost in zip(payments(one, pay), costs, strict=True)]


@dataclass(frozen=True)
class Stepwise:
    """The advantages of papers whose rewards come on the way."""

    pay: ProcessSettings

    def gae(self, one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
        reward, value = rewards(one, paper, self.pay), [*one.value, 0.0]
        delta = [r + paper.gamma * value[t + 1] - value[t] for t, r in enumerate(reward)]
        fade = paper.gamma * paper.lam
        return [sum(fade ** (u - t) * delta[u] for u in range(t, len(delta))) for t in range(len(delta))]

    def to_go(self, one: Known, paper: Paper) -> list[float]:
        reward = rewards(one, paper, self.pay)
        return [
            sum(paper.gamma ** (u - t) * reward[u] for u in range(t, len(reward))) for t in range(len(reward))
        ]

    def whitened(self, one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
        whole = [value for other in every for value in self.to_go(other, paper)]
        width = math.sqrt(fmean((value - fmean(whole)) ** 2 for value in whole) + 1e-8)
        return [(value - fmean(whole)) / width for value in self.to_go(one, paper)]

    def process_supervision(self, one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
        """Shao et al. 2024, section 4.1.3: all rewards of the group's steps, normalised, and added up."""
        group = [step for other in every if other.group == one.group for step in self._of_steps(other, paper)]
        centre, width = fmean(group), stdev(group) + 1e-4
        ends, _ = plan(one.line.ids)
        normal = [(reward - centre) / width for reward in self._of_steps(one, paper)]
        return [
            sum(worth for end, worth in zip(ends, normal, strict=True) if end >= t)
            for t in range(len(one.old))
        ]

    def others_mean(self, one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
        rest = [
            sum(rewards(other, paper, self.pay))
            for other in every
            if other.group == one.group and other is not one
        ]
        return [sum(rewards(one, paper, self.pay)) - fmean(rest)] * len(one.old)

    def _of_steps(self, one: Known, paper: Paper) -> list[float]:
        """What the tokens of each step were paid together."""
        reward, ends = rewards(one, paper, self.pay), plan(one.line.ids)[0]
        starts = [0, *(end + 1 for end in ends[:-1])]
        return [sum(reward[start : end + 1]) for start, end in zip(starts, ends, strict=True)]
