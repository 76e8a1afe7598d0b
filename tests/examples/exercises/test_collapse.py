"""The exercise collapse: what it says of folders whose truth is known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from examples.exercises.collapse import EXERCISE
from examples.exercises.measure import same_answer_rate
from plaudit.evaluation.policies.result import PolicyAnswer
from tests.examples.exercises.made import Habit, Run, holds, made

RUNS = {"free": Run(beta=0.0, do="grpo"), "leashed": Run(beta=2.0, do="grpo")}


def of_kinds(kinds: int) -> Callable[[int, int], str]:
    """So many different answers to a prompt, in turn; to odd prompts one more."""
    return lambda prompt, draw: f"It is number {draw % (kinds + prompt % 2)}."


HABITS = {
    "base": Habit(worth=0.5, says=of_kinds(7), wide=0.4),
    "sft": Habit(worth=0.7, says=of_kinds(4), wide=0.3),
    "leashed": Habit(worth=0.75, says=of_kinds(3), wide=0.2),
    "free": Habit(worth=0.8, says=of_kinds(1), wide=0.1),
}


def said(*texts: str) -> list[PolicyAnswer]:
    one = PolicyAnswer(policy="free", text="", ended=True, tokens=3, gold=1.0, reward=None)
    return [replace(one, text=text) for text in texts]


def test_the_chance_that_two_answers_are_the_same_is_counted_over_pairs() -> None:
    assert same_answer_rate(said("a", "a", "a", "b")) == 0.5
    assert same_answer_rate(said("a ", "a")) == 1.0
    assert same_answer_rate(said("a", "b")) == 0.0
    assert same_answer_rate(said("a")) is None


def test_where_all_is_as_expected_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(made(tmp_path, HABITS, RUNS, answers=8))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert [row[0] for row in seen.table.rows] == ["the base model", "fine-tuned", "β 2", "no leash"]
    assert "8 × It is number 0." in seen.charts[2].chart


def test_what_a_model_said_is_text_and_no_markup(tmp_path: Path) -> None:
    rude = HABITS | {"free": replace(HABITS["free"], says=lambda prompt, draw: "<img src=x>")}
    drawn = EXERCISE.analyse(made(tmp_path, rude, RUNS, answers=8)).charts[2].chart
    assert "8 × &lt;img src=x&gt;" in drawn
    assert "<img" not in drawn
