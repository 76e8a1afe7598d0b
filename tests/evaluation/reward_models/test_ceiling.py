"""The ceiling from repeated judgements: by hand, and around the known one of simulated annotators."""

import numpy as np
import pytest

from plaudit.evaluation.reward_models.accuracy import accuracy_ceiling
from plaudit.evaluation.stats import Resampling
from tests.evaluation.judged import pair

DRAWS = Resampling(times=200)


def votes(prompt: str, *said: float) -> list:
    return [pair(0, 0, prompt=prompt, chance=chance, annotator=f"a{n}") for n, chance in enumerate(said)]


def test_two_against_one_by_hand():
    """Each of the two meets a draw of the others, which foretells half; the one meets two against it."""
    found = accuracy_ceiling(votes("q", 1, 1, 0) + votes("p", 1, 1, 1), DRAWS)
    assert found.source == "repeated judgements"
    assert found.accuracy.value == pytest.approx((0.5 + 0.5 + 0 + 3) / 6)
    assert found.at_most == pytest.approx((2 + 3) / 6)
    assert (found.accuracy.n, found.accuracy.prompts) == (2, 2)


def test_the_same_pair_shown_in_the_other_order_is_the_same_pair():
    one = pair(0, 0, chance=1.0, annotator="ada", answers=("x", "y"))
    other = pair(0, 0, chance=0.0, annotator="bob", answers=("y", "x"))
    assert accuracy_ceiling([one, other], DRAWS).accuracy.value == 1.0


def test_ties_and_second_thoughts_are_no_votes_and_the_unnamed_are_not_counted():
    again = [pair(0, 0, chance=c, annotator="ada") for c in (1.0, 0.0)]
    tied = [pair(0, 0, chance=0.5, annotator="bob")]
    found = accuracy_ceiling([*again, *tied, *[pair(0, 0, chance=0.0), pair(0, 0, chance=1.0)]], DRAWS)
    assert (found.source, found.accuracy, found.at_most) == ("none", None, None)
    assert "no pair was judged by two named annotators" in found.words


def test_the_two_figures_hold_the_known_ceiling_between_them():
    chance = np.random.default_rng(0)
    p_P = chance.beta(1, 1, size=400)
    pairs = [one for n, p in enumerate(p_P) for one in votes(f"q{n}", *(chance.random(5) < p).astype(float))]
    found = accuracy_ceiling(pairs, DRAWS)
    assert found.accuracy.value < np.maximum(p_P, 1 - p_P).mean() < found.at_most
    assert found.at_most - found.accuracy.value < 0.15
