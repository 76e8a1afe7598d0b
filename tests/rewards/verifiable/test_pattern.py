"""Regular expressions as rewards, those that never end among them."""

import time

import pytest

from plaudit.errors import UserError
from plaudit.rewards.base import Reward, refusal_counts
from plaudit.rewards.verifiable.exact import TOO_SLOW, PatternReward
from tests.rewards.asked import asked, said


def test_what_matches_somewhere_is_right() -> None:
    reward = PatternReward(pattern=r"\byes\b")
    assert isinstance(reward, Reward)
    assert said(reward, "oh yes!", "yesterday", "", "ja\nyes \ud83d\ude00 ü") == (1.0, 0.0, 0.0, 1.0)
    assert reward.scores([]) == ()
    assert reward.name == r"pattern:\byes\b"
    assert refusal_counts(reward) == {}


def test_what_would_match_for_ever_costs_a_moment_each_and_the_others_have_their_verdict() -> None:
    reward = PatternReward(pattern=r"^(a+)+$", seconds=0.1)
    begun = time.perf_counter()
    tasks = [asked("aaa", "a" * 60 + "!"), asked("b", "aa"), asked("a" * 70 + "?", "a")]
    assert reward.scores(tasks) == ((1.0, None), (0.0, 1.0), (None, 1.0))
    assert time.perf_counter() - begun < 10
    assert refusal_counts(reward) == {TOO_SLOW: 2}


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]"])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(UserError, match="no regular expression"):
        PatternReward(pattern=pattern)
    with pytest.raises(UserError, match="more than 0"):
        PatternReward(pattern="a", seconds=0)
