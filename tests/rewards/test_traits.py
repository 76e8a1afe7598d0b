"""What a reward says of itself is what checks go by, also for a combination of a user's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from plaudit.data.judging import Task
from plaudit.preflight.samples import ScoredTasks
from plaudit.rewards.base import Reward, RewardTraits, TaskScores, leaf_rewards, traits_of
from plaudit.rewards.combine.cascade import Blend, Cascade, Tier
from plaudit.rewards.learned.process import StepReward
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.registry import resolve_reward
from tests.rewards.asked import asked
from tests.rewards.scorers import scorer_folder


@dataclass(frozen=True)
class Unknown:
    name: str = "unknown"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple((1.0,) * len(task.answers) for task in tasks)


@dataclass(frozen=True)
class Median:
    """A combination that plaudit has never heard of."""

    parts: tuple[Reward, ...]
    name: str = "median"

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=self.parts)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        rows = zip(*[part.scores(tasks) for part in self.parts], strict=True)
        return tuple(tuple(sorted(scores)[1] for scores in zip(*row, strict=True)) for row in rows)


def slack(reward: Reward) -> float:
    task = asked("ab", "b", truth="b")
    return ScoredTasks(reward=reward, tasks=(task,), origins=("a:1",), rows=((-8.0, 1.0),)).tolerance


@pytest.mark.slow
def test_a_combination_is_seen_through_whoever_wrote_it(tmp_path: Path) -> None:
    number, form, remote = map(resolve_reward, ("number", "format:a", "http://x:80/y"))
    learned = resolve_reward(str(scorer_folder(tmp_path)))
    cascade = Cascade(name="c", tiers=(Tier(reward=number), Tier(reward=learned)))
    blend = Blend(name="b", rewards=(cascade, remote), weights=(0.5, 0.5))
    assert [leaf.name for leaf in leaf_rewards(Median((blend, form, Unknown())))] == [
        "number", learned.name, "x:80/y", "format:a", "unknown",
    ]  # fmt: skip
    assert [traits_of(leaf).remote for leaf in leaf_rewards(blend)] == [False, False, True]


def test_steps_are_the_models_that_reads_them(tmp_path: Path) -> None:
    learned = resolve_reward(str(scorer_folder(tmp_path)))
    assert isinstance(learned, LearnedReward)
    assert list(leaf_rewards(StepReward(model=learned))) == [learned]


def test_exact_rewards_have_no_slack_and_unknown_ones_that_of_a_model() -> None:
    rules = Median((resolve_reward("number"), resolve_reward("pattern:b"), resolve_reward("length:1-5")))
    assert slack(rules) == 0
    assert slack(Unknown()) > 0
    assert slack(Median((*rules.parts[:2], Unknown()))) == slack(Unknown())
