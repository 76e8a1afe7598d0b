"""Several rewards as one: where manners meet; without a verdict that is needed there is none."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.data.records import Text
from plaudit.errors import UserError
from plaudit.models.reward_model import Normalisation
from plaudit.rewards.base import FunctionReward, Reward, TaskScores, refusal_counts
from plaudit.rewards.combine import aggregate

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
