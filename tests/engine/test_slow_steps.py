"""A step that takes far longer than those before it for as much work is spoken of, once."""

from pathlib import Path

import pytest

from plaudit.engine.sinks.files import read_notes
from plaudit.engine.step_report import SLOW_STEP, StepPace
from tests.methods.policy.commands import Place, make_place, well

ROUND = 8
SLEEPER = """
import time

times = []

def w33(answer):
    times.append(time.monotonic())
    if len(times) in MOMENTS:
        a_round = (times[-1] - times[-1 - 4 * ROUND]) / 4
        time.sleep(1.5 + 10 * a_round)
    return float(str(answer).split().count("w33"))
"""


def slow_steps(place: Place, out: str, *, moments: tuple[int, ...]) -> list[str]:
    """Notes on slow steps of a run whose reward lets it wait at some of its calls."""
    source = SLEEPER.replace("MOMENTS", repr(moments)).replace("ROUND", str(ROUND))
    (place.folder / f"{out}.py").write_text(source, encoding="utf-8")
    words = ("--rounds", 18, "--batch-size", 2, "--group-size", ROUND // 2, "--no-check")
    done = well(place, "grpo", out, *words, "--reward", f"{place.folder / out}.py:w33")
    notes = [note for note in read_notes(done.run) if note.startswith(SLOW_STEP)]
    assert all(note in done.said.replace("\n", " ") for note in notes)
    return notes


@pytest.mark.slow
def test_a_reward_that_lets_a_step_wait_is_noticed_once(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    [note] = slow_steps(place, "waits", moments=(12 * ROUND + 3, 15 * ROUND + 3))
    assert note.startswith("slow step: step 13 took ")
    assert "a reward or a disk lets the run wait" in note
    assert slow_steps(place, "at once", moments=()) == []


def test_a_step_of_more_work_is_not_slow() -> None:
    pace = StepPace()
    assert all(pace.slow_step_note(step, 1.0, 1e6) is None for step in range(1, 20))
    assert pace.slow_step_note(20, 20.0, 20e6) is None
    assert pace.slow_step_note(21, 4.9, 1e6) is None
    assert pace.slow_step_note(22, 5.1, 1e6) is not None


def test_steps_that_draw_answers_are_compared_with_such_alone() -> None:
    pace = StepPace(phases=2)
    assert all(pace.slow_step_note(step, 60.0 if step % 2 else 1.0, 1e6) is None for step in range(1, 30))
    # A second step of a round that takes as long as a first one.
    assert pace.slow_step_note(30, 60.0, 1e6) is not None


@pytest.mark.parametrize(("steps", "seconds"), [(3, 100.0), (30, 0.9)])
def test_nothing_is_said_of_first_steps_nor_of_less_than_a_second(steps: int, seconds: float) -> None:
    pace = StepPace()
    for step in range(1, steps):
        assert pace.slow_step_note(step, 1e-3, 0.0) is None
    assert pace.slow_step_note(steps, seconds, 0.0) is None
