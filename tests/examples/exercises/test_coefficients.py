"""The exercise coefficients: what it says of folders whose truth is known."""

from pathlib import Path

from examples.exercises.coefficients import EXERCISE
from tests.examples.exercises.made import Habit, Run, holds, made

RUNS = {"low": Run(beta=0.001), "middle": Run(beta=0.02), "high": Run(beta=0.5)}
HABITS = {
    "sft": Habit(reward=1.0),
    "low": Habit(reward=3.0, worth=0.3, kl=4.0),
    "middle": Habit(reward=2.5, worth=0.45, kl=2.0),
    "high": Habit(reward=1.3, worth=0.72, kl=0.2),
}


def test_where_all_is_as_expected_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(made(tmp_path, HABITS, RUNS))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert [row[0] for row in seen.table.rows] == ["at the start", "β 0.001", "β 0.02", "β 0.5"]
    titles = ["What the reward says", "How far each went", "What the answers are worth"]
    assert [picture.title for picture in seen.charts] == titles
