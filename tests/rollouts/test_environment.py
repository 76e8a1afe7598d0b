"""An environment's own side: the calculator, and milestones that pay for what can be seen."""

from collections.abc import Sequence

import pytest

from plaudit.errors import UserError
from plaudit.rollouts.environment import (
    EpisodeDriver,
    EpisodePrompt,
    Milestone,
    Milestones,
    Outcome,
    PolicyTurn,
    Turn,
    calculator,
)


def told(talk: EpisodeDriver, *texts: str) -> Sequence[Turn | Outcome]:
    return [talk.send(PolicyTurn(text=text, ended=True, over=False)) for text in texts]


def test_the_calculator_reckons_and_pays_for_the_truth() -> None:
    question = EpisodePrompt(prompt="What is 12 * 12 - 4?", reference_answer="140")
    *tools, end = told(EpisodeDriver("calc", calculator, question), "calc: 12*12", "calc: 144 - 4", "So 140.")
    assert [turn.text for turn in tools if isinstance(turn, Turn)] == ["144", "140"]
    assert isinstance(end, Outcome)
    assert end.score == 1.0
    [wrong] = told(EpisodeDriver("calc", calculator, question), "Perhaps 141")
    assert isinstance(wrong, Outcome)
    assert wrong.score == 0.0
    over = EpisodeDriver("calc", calculator, question).send(
        PolicyTurn(text="calc: 1+1", ended=True, over=True)
    )
    assert isinstance(over, Outcome)


def marks(*weights: float) -> tuple[Milestone, ...]:
    return (
        Milestone(name="page", kind="ui", weight=weights[0]),
        Milestone(name="saved", kind="file", weight=weights[1]),
        Milestone(name="done", kind="goal", weight=weights[2]),
    )


def test_milestones_are_paid_once_and_add_up_to_one() -> None:
    all_of_it = Milestones(marks=marks(1.0, 2.0, 5.0))
    assert all_of_it.score([]) == 0.0
    assert all_of_it.score(["page", "page", "saved"]) == 3 / 8
    assert all_of_it.outcome(["done", "page", "saved"]).score == 1.0
    assert all_of_it.outcome(["saved"]).parts == {"page": 0.0, "saved": 1.0, "done": 0.0}
    with pytest.raises(UserError, match="no milestone is called shop"):
        all_of_it.score(["shop"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (marks(3.0, 2.0, 5.0), "kind ui weighs 3 and one of kind file 2"),
        (marks(1.0, 6.0, 5.0), "kind file weighs 6 and one of kind goal 5"),
        (marks(2.0, 2.0, 1.0)[::2], "kind ui weighs 2 and one of kind goal 1"),
        (marks(0.0, 1.0, 1.0), "page: weight 0"),
        (marks(1.0, 1.0, 1.0) * 2, "a name of its own"),
        ((), "one or more"),
    ],
)
def test_weights_that_pay_for_the_way_are_refused(wrong: tuple[Milestone, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Milestones(marks=wrong)
