"""Accuracy by hand, its slices, and whether its interval covers what it should."""

import numpy as np
import pytest

from plaudit.errors import UserError
from plaudit.evaluation.reward_models.accuracy import (
    accuracy,
    accuracy_by_strength,
    accuracy_slices,
    tie_statistics,
    worst_category,
)
from plaudit.evaluation.stats import Resampling, bootstrap_mean
from tests.evaluation.judged import pair

DRAWS = Resampling(times=200, seed=1)


def test_equal_rewards_count_one_half_and_ties_of_the_data_count_nothing():
    pairs = [
        pair(2, 1, prompt="a"),
        pair(1, 2, prompt="b"),
        pair(1, 1, prompt="c"),
        pair(1, 2, chance=0.2, prompt="d"),
        pair(5, 1, chance=0.5, prompt="e"),
    ]
    found = accuracy(pairs, DRAWS)
    assert (found.value, found.n, found.prompts) == (2.5 / 4, 4, 4)
    seen = tie_statistics(pairs)
    assert (seen.pairs, seen.gap, seen.gap_elsewhere) == (1, 4.0, 0.75)
    assert tie_statistics(pairs[:4]) is None
    assert accuracy(pairs[4:], DRAWS) is None


def test_swapping_the_answers_of_a_pair_changes_nothing():
    chance = np.random.default_rng(0)
    rows = [(*chance.normal(size=2), chance.choice([0.0, 0.5, 1.0, 0.7]), f"q{n % 40}") for n in range(120)]
    one = [pair(a, b, chance=c, prompt=q) for a, b, c, q in rows]
    other = [pair(b, a, chance=1 - c, prompt=q) for a, b, c, q in rows]
    assert accuracy(one, DRAWS) == accuracy(other, DRAWS)


def test_the_worst_category_comes_first_but_a_tiny_one_is_not_named():
    pairs = [pair(1, 0, category="good", prompt=f"g{n}") for n in range(20)]
    pairs += [pair(n % 2, 0.5, category="fair", prompt=f"f{n}") for n in range(20)]
    pairs += [pair(0, 1, category="tiny", prompt="t"), pair(0, 1, prompt="none")]
    found = accuracy_slices(pairs, lambda one: one.category, DRAWS)
    assert [(part.name, part.accuracy.value) for part in found] == [("tiny", 0), ("fair", 0.5), ("good", 1)]
    assert worst_category(found) == "fair"
    assert worst_category(found[2:]) is None


def test_strengths_come_faint_first_and_many_are_cut_into_quarters():
    few = [pair(s - 1.5, 0, strength=float(s), prompt=f"{s}") for s in (3, 1, 2)]
    shares = [(part.name, part.accuracy.value) for part in accuracy_by_strength(few, DRAWS)]
    assert shares == [("1", 0.0), ("2", 1.0), ("3", 1.0)]
    many = [pair(1, 0, strength=float(s), prompt=f"{s}") for s in range(1, 41)]
    parts = accuracy_by_strength(many, DRAWS)
    assert [part.accuracy.n for part in parts] == [10, 10, 10, 10]
    assert parts[0].name == "1 to 10.75"
    assert accuracy_by_strength([pair(1, 0)], DRAWS) == ()


def test_the_interval_is_the_same_for_the_same_seed_and_wider_for_clustered_pairs():
    part_B = np.repeat(np.random.default_rng(3).random(60) < 0.7, 5).astype(float)
    clustered = bootstrap_mean(part_B, np.repeat(np.arange(60), 5), DRAWS)
    assert clustered == bootstrap_mean(part_B, np.repeat(np.arange(60), 5), DRAWS)
    alone = bootstrap_mean(part_B, np.arange(300), DRAWS)
    assert clustered.value == alone.value
    assert clustered.high - clustered.low > 1.7 * (alone.high - alone.low)  # √5 = 2.2 in the limit


def test_all_right_is_not_called_certain_and_of_one_prompt_or_draw_there_is_no_interval():
    all_right = bootstrap_mean(np.ones(40), np.arange(40), DRAWS)
    # Wilson's lower bound of 40 of 40.
    assert (all_right.value, all_right.high) == (1.0, 1.0)
    assert all_right.low == pytest.approx(1 / (1 + 1.96**2 / 40), abs=1e-4)
    assert bootstrap_mean(np.zeros(40), np.arange(40), DRAWS).high == pytest.approx(1 - all_right.low)
    alone = bootstrap_mean(np.array([1.0, 0.0]), np.array([7, 7]), DRAWS)
    assert (alone.value, alone.low, alone.high, alone.prompts) == (0.5, None, None, 1)
    with pytest.raises(UserError, match="no interval"):
        Resampling(times=1)
