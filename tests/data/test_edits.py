"""Edit distance against the whole table, its limits, and the words that two texts share."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.data.edits import edit_distance, edit_share, token_jaccard


def whole_table(first: str, other: str) -> int:
    above = list(range(len(other) + 1))
    for row, mine in enumerate(first, 1):
        current = [row]
        for column, theirs in enumerate(other, 1):
            current.append(
                min(above[column] + 1, current[column - 1] + 1, above[column - 1] + (mine != theirs))
            )
        above = current
    return above[-1]


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
@settings(max_examples=300, deadline=None)
def test_the_distance_is_that_of_the_whole_table(first, other):
    assert edit_distance(first, other) == whole_table(first, other) == edit_distance(other, first)


def test_long_texts_of_any_script_have_the_distance_of_the_whole_table():
    rng = random.Random(0)
    for _ in range(12):
        first = "".join(rng.choices("Der Wärter 猫🙂 eats.", k=rng.randint(70, 200)))
        other = list(first)
        for _ in range(rng.randint(0, 60)):
            other[rng.randrange(len(other))] = rng.choice(["", "x", "猫猫", " "])
        assert edit_distance(first, "".join(other)) == whole_table(first, "".join(other))


@pytest.mark.parametrize(
    ("first", "other", "distance"),
    [("", "", 0), ("", "ab", 2), ("ab", "", 2), ("same", "same", 0), ("abc", "xyz", 3), ("ab", "ba", 2)],
)
def test_limits_of_the_distance(first, other, distance):
    assert edit_distance(first, other) == distance


def test_words_are_shared_whatever_their_case_and_their_number():
    assert token_jaccard("Owls eat mice.", "owls EAT mice mice.") == 1
    assert token_jaccard("Owls eat mice", "Sums are hard!") == 0
    assert token_jaccard("a b c", "b c d") == pytest.approx(2 / 4)
    assert token_jaccard("", "a") == 0


def test_a_share_is_of_the_longer_text():
    assert edit_share("ab", "abcd") == 0.5
    assert edit_share("abcd", "wxyz") == 1
