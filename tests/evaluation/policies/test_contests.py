"""One policy against another: by hand, from the other side, and against enumeration."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from plaudit.evaluation.policies.win_rate import contest_result, paired_p_value
from plaudit.evaluation.shares import sign_flip_test
from tests.evaluation.policies.duels import DRAWS, drawn, duel

NAMES = ("ppo", "sft", "judge")


def test_every_figure_by_hand():
    duels = [
        duel(0.9, 0.8, prompt="a", category="fact"),
        duel(0.2, 0.1, prompt="b", category="fact"),
        duel(0.9, 0.1, prompt="c", category="sums"),
        duel(1.0, 0.5, prompt="d"),
        duel(0.5, 0.5, prompt="e"),
        duel(None, 1.0, prompt="f", reason="refused"),
        duel(1.0, None, prompt="f", reason="refused"),
        duel(None, None, prompt="g"),
    ]
    found = contest_result(NAMES, duels, DRAWS, sees_order=True)
    assert (found.policy, found.against, found.judge) == ("ppo", "sft", "judge")
    assert (found.won, found.tied, found.lost, found.unjudged) == (2, 2, 1, 3)
    assert found.reasons == {"refused": 2, "no verdict": 1}
    assert found.raw.value == pytest.approx((0.85 + 0.15 + 0.5 + 0.75 + 0.5) / 5)
    assert (found.raw.n, found.raw.prompts) == (5, 5)
    assert found.decided.value == pytest.approx(2 / 3)
    assert found.decided.n == 3
    # Both say the same on a, b and e; c contradicts itself and d has a side in one order alone.
    assert found.consistency.value == pytest.approx(3 / 5)
    # Shown first and preferred: a (mine), b backward (theirs), c twice, d forward; of 7 that prefer one.
    assert found.first.value == pytest.approx(5 / 7)
    assert found.first.n == 7
    assert [(part.name, part.value.value) for part in found.by_category] == [("fact", 0.5), ("sums", 0.5)]


def test_without_a_verdict_nothing_is_claimed():
    found = contest_result(NAMES, [duel(None, reason="not to be read")], DRAWS, sees_order=True)
    assert (found.won, found.tied, found.lost, found.unjudged) == (0, 0, 0, 1)
    assert found.raw is found.decided is found.consistency is found.first is found.p_value is None
    assert found.length_controlled is found.style_controlled is None
    assert found.by_category == ()
    assert len(found.notes) == 2
    assert contest_result(NAMES, [], DRAWS, sees_order=True).raw is None


def test_a_judge_that_sees_no_order_has_no_consistency_and_may_not_have_two_numbers():
    found = contest_result(NAMES, [duel(1.0, prompt="a"), duel(0.0, prompt="b")], DRAWS, sees_order=False)
    assert found.consistency is found.first is None
    with pytest.raises(ValueError, match="sees no order"):
        contest_result(NAMES, [duel(1.0, 0.5)], DRAWS, sees_order=False)


def test_seen_from_the_other_side_every_figure_is_turned_round():
    duels = drawn(0.3, 1.0, longer=30, prompts=120)
    here = contest_result(NAMES, duels, DRAWS, sees_order=False)
    there = contest_result(NAMES, [one.swapped for one in duels], DRAWS, sees_order=False)
    assert (there.won, there.lost, there.p_value) == (here.lost, here.won, here.p_value)
    for name in ("raw", "decided", "length_controlled", "style_controlled"):
        one, other = getattr(here, name), getattr(there, name)
        assert other.value == pytest.approx(1 - one.value, abs=1e-12)
        assert (other.low, other.high) == pytest.approx((1 - one.high, 1 - one.low), abs=1e-9)


def test_a_policy_against_itself_is_at_one_half():
    duels = [duel(0.5, prompt=f"q{n}", mine="x" * n, theirs="x" * n) for n in range(40)]
    found = contest_result(NAMES, duels, DRAWS, sees_order=False)
    assert found.raw.value == found.length_controlled.value == found.style_controlled.value == 0.5
    assert found.decided is None
    assert found.p_value == 1.0


def test_each_category_is_counted_on_its_own_whichever_came_before():
    """Filtering the pairs of the last category once more would leave the second category empty."""
    duels = [
        duel(float(n < won), prompt=f"{name}{n}", category=name)
        for name, won in (("c", 3), ("a", 9), ("b", 6))
        for n in range(10)
    ]
    found = contest_result(NAMES, duels, DRAWS, sees_order=False).by_category
    shares = [(part.name, part.value.value, part.value.n) for part in found]
    assert shares == [("a", 0.9, 10), ("b", 0.6, 10), ("c", 0.3, 10)]


def test_the_p_value_of_few_prompts_is_that_of_all_ways_to_flip_signs():
    gains = np.array([0.5, 0.3, -0.2, 0.5, 0.1, -0.4, 0.25])
    duels = [duel(0.5 + gain, prompt=f"q{n}") for n, gain in enumerate(gains)]
    ways = np.array([np.dot(signs, gains) for signs in product((-1, 1), repeat=len(gains))])
    assert paired_p_value(duels) == pytest.approx((np.abs(ways) >= abs(gains.sum()) - 1e-12).mean())


def test_of_verdicts_without_degrees_it_is_the_sign_test():
    duels = [duel(float(n < 9), prompt=f"q{n}") for n in range(12)]
    assert paired_p_value(duels) == pytest.approx(binomtest(9, 12).pvalue)
    many = [duel(float(n < 60), prompt=f"q{n}") for n in range(100)]
    assert paired_p_value(many) == pytest.approx(binomtest(60, 100).pvalue, abs=0.01)
    assert paired_p_value(many) == paired_p_value(many)


def test_asking_one_prompt_again_is_no_further_evidence():
    once = [duel(1.0, prompt=f"q{n}") for n in range(5)]
    assert paired_p_value(once * 10) == paired_p_value(once) == 2 / 2**5
    ten = contest_result(NAMES, once * 10, DRAWS, sees_order=False).raw
    one = contest_result(NAMES, once, DRAWS, sees_order=False).raw
    assert (ten.low, ten.high) == (one.low, one.high)


@pytest.mark.slow
def test_under_no_difference_small_p_values_are_as_rare_as_they_say():
    chance = np.random.default_rng(0)
    found = [sign_flip_test(chance.choice([-0.5, 0.5, 0.25], 9), np.arange(9) // 2) for _ in range(200)]
    assert np.mean(np.array(found) <= 0.1) <= 0.2
    level = [sign_flip_test(chance.normal(size=10), np.arange(10)) for _ in range(300)]
    assert np.mean(np.array(level) <= 0.05) == pytest.approx(0.05, abs=0.03)


def test_what_cannot_be_said_is_none_and_why_is_in_the_notes():
    found = contest_result(NAMES, [duel(1.0, prompt=f"q{n}") for n in range(30)], DRAWS, sees_order=False)
    assert found.raw.value == 1.0
    assert found.length_controlled is found.style_controlled is None
    assert found.notes == (
        "no length-controlled win rate: every pair is won, whatever the answers look like",
        "no style-controlled win rate: every pair is won, whatever the answers look like",
    )
