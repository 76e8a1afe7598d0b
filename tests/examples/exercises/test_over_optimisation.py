"""The exercise over-optimisation: what it says of folders whose truth is known."""

from pathlib import Path

from examples.exercises.over_optimisation import EXERCISE, POLICIES_BY_OPTIMISER
from tests.examples.exercises.made import Habit, holds, made

STEPS = [step for steps in POLICIES_BY_OPTIMISER.values() for step in steps]
BENT = {1: Habit(worth=0.76, reward=0.5, kl=0.3), 2: Habit(worth=0.73, reward=1.0, kl=1.5)}
HARD = Habit(worth=0.5, reward=2.0, kl=9.0)
HABITS = {
    "sft": Habit(worth=0.7, kl=0.0),
    **{step: BENT.get(int(step[-1]), HARD) for step in STEPS},
    "truth": Habit(worth=0.9, reward=0.4, kl=0.8),
}


def test_where_worth_turns_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(made(tmp_path, HABITS, {}))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert len(seen.table.rows) == 2 + len(STEPS)
    assert "PPO: by the curve d(α − β·ln d)" in seen.table.note
    assert "best of n" in seen.charts[0].chart
