"""Process rewards of a policy run: who scores steps, which rows can learn from them, what is said of it."""

from __future__ import annotations

from functools import partial

from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_facts import IN_TIME, PolicyFacts
from plaudit.recipes.policy_table import POLICIES
from plaudit.rewards.learned import LearnedReward
from plaudit.rewards.named import OwnReward, reward_named
from plaudit.rewards.reward import Reward
from plaudit.rewards.step_ends import step_ends
from plaudit.rewards.step_pay import GivesSteps, Tariff
from plaudit.training.judged_steps import OfSteps

BY_STEPS = IN_TIME | {"group-z"}
"""Advantages that tell the steps of an answer apart; the others have their sum."""


def reward_of(config: PolicyConfig, encoder: Encoder) -> Reward | OfSteps:
    """The reward; where steps are paid, with who scores them."""
    assert config.reward is not None
    how, reward = config.process, reward_named(config.reward)
    if how.pay == "no":
        return reward
    by = reward if how.by is None else reward_named(how.by)
    return OfSteps(
        by=_scoring(by, "reward" if how.by is None else "process.by", odds=how.pay == "odds"),
        tariff=Tariff(pay=how.pay, baseline=how.baseline, weight=how.weight),
        ends=partial(step_ends, encoder=encoder),
        outcome=None if how.by is None else reward,
    )


def refuse_process(facts: PolicyFacts, config: PolicyConfig) -> None:
    """Complain about steps that cannot be paid, or would teach something else than what is meant."""
    how = config.process
    if how.pay == "no":
        return
    if config.environment is not None:
        raise UserError(
            "process.pay: an episode of an environment is paid at its end; let the environment's outcome say "
            "what its turns are worth, or leave it out"
        )
    if how.by is not None and how.by == config.reward:
        raise UserError(
            "process.by and --reward are the same: leave out --process.by, and --reward scores steps"
        )
    if facts.advantage == "group-z" and not how.adds_up:
        raise UserError(
            f"process.pay {how.pay}: {facts.name} measures a step against the mean step of its group, and "
            "a change is large at first and small later, so an answer would be better the fewer steps it "
            "has. Use --process.pay score, or compare whole answers with --policy.advantage group-mean"
        )


def process_notes(facts: PolicyFacts, config: PolicyConfig) -> list[str]:
    """What the user should know beforehand."""
    how = config.process
    if how.pay == "no" or facts.name not in POLICIES:
        return []
    taken_off = f", less {how.baseline:g}" if how.baseline else ""
    notes = [f"process reward: every step is paid at its last token, by its {how.pay}{taken_off}"]
    if facts.advantage not in BY_STEPS:
        notes.append(
            f"{facts.advantage} compares whole answers: each has the sum of its payments at all of its tokens"
        )
    if how.adds_up and facts.advantage != "group-z":
        notes.append(
            f"payments by {how.pay} add up, so each further step that scores above "
            f"{how.baseline:g} is worth more: raise --process.baseline, or pay changes "
            "(--process.pay min), which no further step can raise. docs/policy.md#process-rewards"
        )
    return notes


def _scoring(reward: Reward, setting: str, *, odds: bool) -> GivesSteps:
    if isinstance(reward, LearnedReward):
        raise UserError(
            f"{setting} {reward.name}: this model scores whole answers. If it learned from steps, make it a "
            "process reward first: plaudit combine steps DIR --out FOLDER"
        )
    if not isinstance(reward, GivesSteps):
        raise UserError(
            f"{setting} {reward.name} gives no score of a step. A process reward model's folder does "
            "(plaudit combine steps), and a function that returns a list with a number for each step"
        )
    if odds and isinstance(reward, OwnReward):
        raise UserError(
            f"process.pay odds: of a function's numbers no log-odds are known; let {reward.name} give them, "
            "and use --process.pay score"
        )
    return reward
