"""Several rewards as one: manners at their limits, sources asked in order or weighed, their parts."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.models.reward_model import Normalisation
from plaudit.rewards.base import FunctionReward, Reward, TaskScores, refusal_counts
from plaudit.rewards.combine import aggregate
from plaudit.rewards.combine.cascade import Blend, Cascade, HasScoreParts, Tier
from plaudit.rewards.verifiable.exact import number
from tests.rewards.asked import asked

TABLE = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _close(found: torch.Tensor, wanted: Sequence[float]) -> None:
    assert found.tolist() == pytest.approx(list(wanted), abs=1e-12)


def test_the_manners_meet_at_their_limits() -> None:
    _close(aggregate.cautious(TABLE, 0), aggregate.mean(TABLE).tolist())
    _close(
        aggregate.weighted(TABLE, torch.full((4,), 0.25, dtype=torch.float64)), aggregate.mean(TABLE).tolist()
    )
    assert bool((aggregate.minimum(TABLE) <= aggregate.cautious(TABLE, 0)).all())
    _close(aggregate.gated(TABLE[0], TABLE[1], below=-math.inf), TABLE[1].tolist())
    _close(aggregate.gated(TABLE[0], TABLE[1], below=math.inf), TABLE[0].tolist())
    _close(aggregate.disagreement(TABLE[:1]), [0.0] * 9)
    _close(aggregate.cautious(TABLE[:1].expand(3, -1), 5), TABLE[0].tolist())


def test_doubt_is_of_the_pair_and_knows_no_level() -> None:
    first, second = TABLE[:, :4], TABLE[:, 4:8]
    doubt = aggregate.preference_disagreement(first, second).tolist()
    level = torch.tensor([[10.0], [-3.0], [0.0], [5.0]], dtype=torch.float64)
    _close(aggregate.preference_disagreement(first + level, second + level), doubt)
    assert float(aggregate.disagreement(first + level).min()) > float(aggregate.disagreement(first).max())


def _member(name: str, **said: float | None) -> FunctionReward:
    def score(prompt: Text, answer: Text) -> float | None:
        del prompt
        return said[str(answer)]

    return FunctionReward(name=name, function=score)


def _rows(combination: aggregate.Combination, *members: Reward) -> tuple[TaskScores, ...]:
    asked = [
        Task(prompt="?", answers=("a", "b"), ended=(True, True)),
        Task(prompt="?", answers=("c",), ended=(True,)),
    ]
    return aggregate.CombinedReward(name="all", members=members, combination=combination).scores(asked)


def test_a_member_that_is_needed_must_have_a_verdict_and_another_may_miss_its_own() -> None:
    one, other = _member("one", a=1.0, b=None, c=-3.0), _member("other", a=3.0, b=2.0, c=None)
    for how, first in (("mean", 2.0), ("min", 1.0)):
        assert _rows(aggregate.Combination(how=how), one, other) == ((first, None), (None,))
    assert _rows(aggregate.Combination(how="cautious", k=1), one, other) == ((1.0, None), (None,))
    assert _rows(aggregate.Combination(how="weighted", weights=(1, 2)), one, other) == ((7.0, None), (None,))
    one, other = _member("one", a=1.0, b=None, c=-3.0), _member("other", a=3.0, b=2.0, c=None)
    assert _rows(aggregate.Combination(how="weighted", weights=(0, 2)), one, other) == ((6.0, 4.0), (None,))
    # Below the threshold the gate alone counts; without its verdict nothing does.
    assert _rows(aggregate.Combination(how="gated", gate=0, below=0), one, other) == ((3.0, None), (-3.0,))
    assert _rows(aggregate.Combination(how="gated", gate=1, below=2.5), one, other) == ((1.0, 2.0), (None,))


def test_members_are_brought_to_one_unit_first() -> None:
    one, other = _member("one", a=100.0, b=300.0, c=200.0), _member("other", a=0.2, b=0.1, c=0.3)
    normal = (Normalisation(offset=200, scale=100), Normalisation(offset=0.2, scale=0.1))
    [row, _] = _rows(aggregate.Combination(how="mean", normal=normal), one, other)
    assert row == pytest.approx((-0.5, 0.0))
    [row, _] = _rows(aggregate.Combination(how="gated", gate=0, below=0, normal=normal), one, other)
    assert row == pytest.approx((-1.0, -1.0))


def test_the_unit_is_measured_on_answers_that_all_can_score() -> None:
    chance = random.Random(0)
    words = [f"w{n}" for n in range(40)]
    told = [{word: chance.gauss(m, s) for word in words} for m, s in ((5, 2), (-1, 0.1))]
    one, other = (_member(str(n), none=None if n else 1e9, **said) for n, said in enumerate(told))
    asked = [Task(prompt="?", answers=(word, "none"), ended=(True, True)) for word in words]
    for found, said in zip(aggregate.fit_normalisations([one, other], asked), told, strict=True):
        assert found.offset == pytest.approx(statistics.fmean(said.values()))
        assert found.scale == pytest.approx(statistics.pstdev(said.values()))
    flat = FunctionReward(name="flat", function=lambda prompt, answer: 1.0)
    with pytest.raises(UserError, match="flat scores all the answers alike"):
        aggregate.fit_normalisations([flat], asked)
    with pytest.raises(UserError, match="fewer than two answers"):
        aggregate.fit_normalisations([flat], asked[:0])


def test_the_members_disagreement_is_told_for_each_answer() -> None:
    one, other = _member("one", a=1.0, b=None), _member("other", a=3.0, b=2.0)
    both = aggregate.CombinedReward(
        name="both", members=(one, other), combination=aggregate.Combination(how="min")
    )
    assert isinstance(both, Reward)
    assert both.disagreement([Task(prompt="?", answers=("a", "b"), ended=(True, True))]) == ((1.0, None),)
    assert both.scores([]) == both.disagreement([]) == ()


def test_a_combination_tells_the_reasons_of_its_members_by_name() -> None:
    class Picky:
        name = "picky"

        @property
        def refused(self) -> dict[str, int]:
            return {"too long": 2}

        def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
            return tuple((None,) * len(task.answers) for task in tasks)

    both = aggregate.CombinedReward(
        name="both", members=(Picky(), _member("one", a=1.0)), combination=aggregate.Combination(how="mean")
    )
    assert refusal_counts(both) == {"picky: too long": 2}


@pytest.mark.parametrize(
    ("facts", "members", "words"),
    [
        ({"how": "cautious"}, 2, "cautious needs k"),
        ({"how": "cautious", "k": -1.0}, 2, "0 or more"),
        ({"how": "cautious", "k": math.inf}, 2, "not a finite number"),
        ({"how": "weighted", "weights": (0.0, 0.0)}, 2, "every weight is 0"),
        ({"how": "gated", "gate": 0}, 2, "gated needs below"),
        ({"how": "gated", "gate": 0, "below": 0.0}, 3, "gated takes two"),
        ({"how": "gated", "gate": 2, "below": 0.0}, 2, "the gate is 2"),
        ({"how": "mean", "normal": (Normalisation(),)}, 2, "1 normalisations for 2"),
        ({"how": "mean"}, 0, "needs members"),
    ],
)
def test_what_no_manner_means_is_refused_in_words(facts: dict[str, object], members: int, words: str) -> None:
    one = _member("one", a=1.0)
    with pytest.raises(UserError, match=words):
        aggregate.CombinedReward(
            name="all", members=(one,) * members, combination=aggregate.Combination(**facts)
        )


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
