"""Sources asked in order, or weighed; what every part said is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.rewards.base import FunctionReward, Reward, TaskScores
from plaudit.rewards.combine.cascade import Blend, Cascade, HasScoreParts, Tier
from plaudit.rewards.verifiable.exact import number
from tests.rewards.asked import asked


@dataclass(frozen=True, slots=True)
class Told:
    """Says what it was told to, and remembers what it was asked about."""

    name: str
    known: dict[str, float | None]
    seen: list[str] = field(default_factory=list)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        self.seen.extend(plain_text(answer) for task in tasks for answer in task.answers)
        return tuple(tuple(self.known.get(plain_text(a)) for a in task.answers) for task in tasks)


TASKS = [asked("a", "b"), asked("c"), asked("d", "e", "f", truth="1")]


def test_a_lower_tier_is_asked_only_where_the_one_above_knows_nothing() -> None:
    first = Told("first", {"a": 1.0, "e": 0.0})
    second = Told("second", {"b": 0.5, "d": 0.25, "a": 9.0})
    cascade = Cascade(name="checked", tiers=(Tier(reward=first), Tier(reward=second)))
    assert isinstance(cascade, Reward)
    assert isinstance(cascade, HasScoreParts)
    found = cascade.scores_with_parts(TASKS)
    assert found.rows == ((1.0, 0.5), (None,), (0.25, 0.0, None))
    assert found.parts == {
        "first": ((1.0, None), (None,), (None, 0.0, None)),
        "second": ((None, 0.5), (None,), (0.25, None, None)),
        "first decides": ((1.0, 0.0), (0.0,), (0.0, 1.0, 0.0)),
        "second decides": ((0.0, 1.0), (0.0,), (1.0, 0.0, 0.0)),
    }
    assert second.seen == ["b", "c", "d", "f"]
    assert cascade.scores(TASKS) == found.rows


def test_a_score_near_0_is_not_confident() -> None:
    model = Told("model", {"a": 2.0, "b": -0.5, "c": -3.0, "d": 0.9})
    judge = Told("judge", {"b": 0.7, "f": 0.1})
    cascade = Cascade(name="routed", tiers=(Tier(reward=model, confidence_threshold=1.0), Tier(reward=judge)))
    # Of d nobody was confident: the model's word stands, since the judge said nothing.
    assert cascade.scores(TASKS) == ((2.0, 0.7), (-3.0,), (0.9, None, 0.1))
    assert judge.seen == ["b", "d", "e", "f"]


def test_what_needs_no_second_opinion_costs_none() -> None:
    sure = FunctionReward(name="sure", function=lambda prompt, answer: 1.0)
    never = Told("never", {})
    assert Cascade(name="x", tiers=(Tier(reward=sure), Tier(reward=never))).scores(TASKS)[1] == (1.0,)
    assert never.seen == []


def test_truth_and_facts_come_to_every_tier_and_cascades_nest() -> None:
    cascade = Cascade(name="x", tiers=(Tier(reward=Told("first", {})), Tier(reward=number())))
    assert cascade.scores([asked("1", "2", truth="1")]) == ((1.0, 0.0),)
    inner = Blend(name="inner", rewards=(Told("a", {"a": 2.0}),), weights=(1.0,))
    outer = Cascade(name="outer", tiers=(Tier(reward=inner), Tier(reward=Told("b", {"b": 1.0}))))
    assert outer.scores(TASKS[:1]) == ((2.0, 1.0),)


def test_a_blend_is_the_weighted_sum_and_keeps_its_parts() -> None:
    one, other = Told("one", {"a": 1.0, "b": 0.0, "c": 1.0}), Told("other", {"a": 3.0, "b": 2.0})
    blend = Blend(name="both", rewards=(one, other), weights=(0.75, 0.25))
    assert isinstance(blend, Reward)
    found = blend.scores_with_parts(TASKS[:2])
    assert found.rows == ((1.5, 0.5), (None,))
    assert found.parts["one"] == ((1.0, 0.0), (1.0,))
    assert found.parts["other"] == ((3.0, 2.0), (None,))


def test_the_reasons_of_the_parts_are_told_with_their_names() -> None:
    blend = Blend(name="both", rewards=(number(), Told("other", {})), weights=(0.5, 0.5))
    blend.scores(TASKS[:1])
    assert list(blend.refused) == [
        "number: the row has no reference answer to compare with (its field `answer`)"
    ]
    assert list(blend.refused.values()) == [2]


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (1.0,), (float("nan"), 1.0)])
def test_weights_are_shares_of_1(weights: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="weights"):
        Blend(name="x", rewards=(Told("a", {}), Told("b", {})), weights=weights)


def test_parts_have_names_of_their_own() -> None:
    with pytest.raises(UserError, match="same name"):
        Cascade(name="x", tiers=(Tier(reward=Told("a", {})), Tier(reward=Told("a", {}))))
    with pytest.raises(UserError, match="nobody to ask"):
        Cascade(name="x", tiers=())
    with pytest.raises(UserError, match="sure of -1"):
        Tier(reward=Told("a", {}), confidence_threshold=-1)
