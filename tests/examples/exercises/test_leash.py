"""The exercise leash: what it says of folders whose truth is known."""

from dataclasses import replace
from pathlib import Path

from examples.exercises.leash import EXERCISE
from tests.examples.exercises.made import Habit, Run, holds, made

RUNS = {"free": Run(beta=0.0), "loose": Run(beta=0.1), "tight": Run(beta=0.5)}
AGAIN = "It is so. It is so. It is so."
HABITS = {
    "sft": Habit(),
    "free": Habit(worth=0.1, tokens=48, kl=40.0, says=lambda prompt, draw: AGAIN),
    "loose": Habit(worth=0.6, tokens=13, kl=1.0),
    "tight": Habit(worth=0.7, tokens=10),
}


def test_where_all_is_as_expected_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(made(tmp_path, HABITS, RUNS))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert [row[0] for row in seen.table.rows] == ["at the start", "no leash", "β 0.1", "β 0.5"]
    assert "48.5 against 10.5 tokens: apart by 38.0" in seen.claims[0].evidence
    assert len(seen.charts) == 3
    assert AGAIN in seen.charts[2].chart


def test_what_is_not_so_is_said_not_to_hold(tmp_path: Path) -> None:
    good = HABITS | {"free": replace(HABITS["sft"], worth=0.9), "tight": replace(HABITS["tight"], tokens=30)}
    found = holds(EXERCISE.analyse(made(tmp_path, good, RUNS)))
    assert found["Without a leash answers grow."] is False
    assert found["They are worth less for it."] is False
    assert found["They say the same again and again."] is False
    assert found["With β 0.5 answers stay below 1.25 times their length at the start."] is False
    assert found["With β 0.1 answers stay below 1.5 times their length at the start."] is True
