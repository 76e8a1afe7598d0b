"""A critic writes first and scores then: the points that are to be expected, averaged over its critiques."""

from collections import Counter
from math import log

import pytest

from plaudit.data.generative_judging import CritiqueSettings
from plaudit.rewards.base import Reward
from plaudit.rewards.llm.generative import CritiqueReward
from tests.rewards.llm.generative_zoo import Planted, Typist, task


def settings(critiques: int = 1) -> CritiqueSettings:
    return CritiqueSettings(critiques=critiques, tokens=8)


def torn(critique: str) -> tuple[float, ...]:
    """2 points with chance ¼ and 5 with ¾."""
    return (-40.0, -3.0, -40.0, -40.0, -3.0 + log(3))


def test_a_score_is_the_points_that_are_to_be_expected():
    critic = CritiqueReward(Planted(settings(), points=torn), Typist())
    assert isinstance(critic, Reward)
    assert critic.scores([task("p", "3")]) == ((pytest.approx(0.25 * 2 + 0.75 * 5, abs=1e-6),),)


def test_the_points_are_asked_for_below_the_critique_that_was_written():
    model = Planted(settings())
    CritiqueReward(model, Typist()).scores([task("What?", "4")])
    assert [question.splitlines() for question in model.asked] == [
        [
            *("User:", "> What?", "Answer:", "> 4", "Critique:", "> 4"),
            "How many points from 1 to 5 does the answer deserve?",
        ]
    ]


def test_critiques_are_averaged_and_each_is_told():
    [[one]] = CritiqueReward(Planted(settings(3)), Typist()).critique_scores([task("p", "3")])
    assert one.critiques == ("3", "2", "4")
    assert one.points == pytest.approx((3, 2, 4))
    assert one.score == pytest.approx(3)
    two = CritiqueReward(Planted(settings(2)), Typist()).scores([task("p", "3")])
    assert two[0][0] == pytest.approx(2.5)


def test_the_seed_draws_the_critiques():
    drawn = [
        CritiqueReward(Planted(settings()), Typist(), seed=seed).scores([task("p", "3")])
        for seed in (0, 1, 2)
    ]
    assert [row[0][0] for row in drawn] == pytest.approx([3, 2, 4])


def test_the_same_answer_is_criticised_once_however_often_it_is_asked_for():
    writer = Typist()
    critic = CritiqueReward(Planted(settings(2)), writer)
    rows = critic.scores([task("p", "3", "4", "3"), task("q", "3"), task("p", "3")])
    assert rows[0][0] == rows[0][2] == rows[2][0]
    assert len(rows[1]) == 1
    assert set(Counter(writer.prompts).values()) == {1}
    assert len(writer.prompts) == 3


def test_what_is_too_long_to_be_criticised_has_no_score():
    critic = CritiqueReward(Planted(settings()), Typist())
    [row, other] = critic.critique_scores([task("p", "2", "long"), task("q", "4")])
    assert [one.score for one in row] == [pytest.approx(2), None]
    assert row[1].critiques == ()
    assert other[0].score == pytest.approx(4)
    assert critic.refused == {"too long to be read": 1}


def test_a_critique_that_leaves_no_room_for_points_is_left_out_of_the_mean():
    def no_room(critique: str) -> tuple[float, ...] | None:
        return None if critique == "2" else tuple(-50.0 * (critique != str(point)) for point in range(1, 6))

    [[one]] = CritiqueReward(Planted(settings(3), points=no_room), Typist()).critique_scores([task("p", "3")])
    assert one.points == (pytest.approx(3), None, pytest.approx(4))
    assert one.score == pytest.approx(3.5)
