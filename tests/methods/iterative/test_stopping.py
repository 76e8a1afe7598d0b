"""When a loop ends early: on a fall that is there, seldom on noise, and never on a gain."""

import numpy as np
import pytest

from plaudit.methods.iterative.measuring import (
    FALSE_STOP,
    HELD_OUT_JUDGE,
    PEOPLE_LABELS,
    Measure,
    best_place,
    find_fall,
    mean_with_interval,
)

ROWS, ROUNDS, LOOPS = 100, 3, 60


def measure(values: np.ndarray, name: str = HELD_OUT_JUDGE) -> Measure:
    return Measure(name=name, prompts=tuple(range(len(values))), values=tuple(map(float, values)))


def falls_in(history: list[Measure]) -> bool:
    """Whether a loop of these measures is stopped after any of its rounds."""
    return any(find_fall(history[: n + 1], rounds=ROUNDS, measures=1) for n in range(1, len(history)))


@pytest.mark.slow
def test_noise_seldom_stops_a_loop() -> None:
    """Models of the same worth, whose answers differ by chance: all that differs is noise."""
    chance = np.random.default_rng(0)
    stopped = 0
    for _ in range(LOOPS):
        # So few rows that the test of signs is exact, and quick.
        worth = chance.uniform(0.2, 0.8, 12)
        stopped += falls_in([measure(worth + chance.normal(0, 0.3, 12)) for _ in range(ROUNDS + 1)])
    # Three standard errors above the promise.
    assert stopped / LOOPS <= FALSE_STOP + 3 * (FALSE_STOP * (1 - FALSE_STOP) / LOOPS) ** 0.5


def test_a_fall_of_half_a_standard_deviation_is_found_in_the_round_in_which_it_happens() -> None:
    chance = np.random.default_rng(1)
    worth = chance.uniform(0.2, 0.8, ROWS)
    history = [measure(worth + drop + chance.normal(0, 0.1, ROWS)) for drop in (0.0, -0.1, 0.1)]
    assert find_fall(history[:2], rounds=ROUNDS, measures=2) is not None
    fall = find_fall([history[1], history[2], history[1]], rounds=ROUNDS, measures=2)
    assert fall is not None
    assert fall.best == 1
    assert fall.gap == pytest.approx(np.mean(np.array(history[1].values) - np.array(history[2].values)))
    assert fall.p < fall.level == pytest.approx(FALSE_STOP / 12)


def test_a_gain_is_no_fall_and_the_start_cannot_have_fallen() -> None:
    low, high = measure(np.zeros(ROWS)), measure(np.ones(ROWS))
    assert find_fall([low], rounds=ROUNDS, measures=1) is None
    assert find_fall([low, high], rounds=ROUNDS, measures=1) is None
    assert find_fall([low, low], rounds=ROUNDS, measures=1) is None


def test_answers_to_one_prompt_are_one_witness() -> None:
    """Forty rows of one prompt that all fell say no more than one row."""
    start, later = np.ones(40), np.zeros(40)
    one = [Measure(name=HELD_OUT_JUDGE, prompts=(0,) * 40, values=tuple(values)) for values in (start, later)]
    assert find_fall(one, rounds=ROUNDS, measures=1) is None
    assert find_fall([measure(start), measure(later)], rounds=ROUNDS, measures=1) is not None


def test_rows_without_a_value_are_left_out_of_the_difference() -> None:
    first = Measure(name=PEOPLE_LABELS, prompts=(0, 1, 2), values=(1.0, None, 1.0))
    later = Measure(name=PEOPLE_LABELS, prompts=(0, 1, 2), values=(None, 0.0, 1.0))
    assert find_fall([first, later], rounds=ROUNDS, measures=1) is None
    assert best_place([later, first]) == 1
    assert best_place([Measure(name=PEOPLE_LABELS, prompts=(0,), values=(None,)), later]) == 1


def test_a_share_has_wilsons_interval() -> None:
    found = mean_with_interval(measure(np.array([1.0] * 5 + [0.0] * 5), PEOPLE_LABELS))
    assert found.value == 0.5
    assert found.low == pytest.approx(0.2366, abs=1e-4)
    assert found.high == pytest.approx(0.7634, abs=1e-4)
