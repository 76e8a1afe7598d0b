"""What is watched before and after: marks as data, openings, sameness."""

import pytest

from plaudit.errors import UserError
from plaudit.feedback.revised_rows import read_marks, watched, watched_lines


def test_length_refusals_evasions_and_sameness_are_counted_before_and_after():
    olds = ["Put it in the well, and stir it for a while.", "The owl eats mice.", "Six times two is twelve."]
    news = [
        "I WON\N{RIGHT SINGLE QUOTATION MARK}T help you with  that.",
        "As an AI, I cannot help.",
        "It depends.",
    ]
    before, after = watched(olds, news, read_marks(None))
    assert before.marks == {"refusals": 0.0, "evasions": 0.0}
    assert after.marks == {"refusals": pytest.approx(2 / 3), "evasions": pytest.approx(2 / 3)}
    assert before.words > after.words == pytest.approx(14 / 3)
    same = watched(olds, ["I will not help."] * 3, read_marks(None))[1]
    assert (same.opening, same.opening_share) == ("I will not", 1.0)
    assert same.distinct_1 is not None
    assert before.distinct_1 is not None
    assert same.distinct_1 < before.distinct_1
    assert "refusals                      0.0%     66.7%" in watched_lines(before, after)
    before, after = watched([], [], read_marks(None))
    assert (before.answers, after.opening, after.distinct_1) == (0, "", None)


def test_marks_of_ones_own_take_the_place_of_those_that_come_with_plaudit(tmp_path):
    file = tmp_path / "marks.yaml"
    file.write_text("greetings: [Dear user, Hello there]\n")
    before, after = watched(["Mice."], ["Hello  there! Mice."], read_marks(file))
    assert (before.marks, after.marks) == ({"greetings": 0.0}, {"greetings": 1.0})


@pytest.mark.parametrize("text", ["[]", "refusals: I will not", "refusals: []", "refusals: [1]", "a: [b"])
def test_marks_that_are_no_groups_of_phrases_are_refused_by_file(tmp_path, text):
    file = tmp_path / "marks.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=r"marks\.yaml"):
        read_marks(file)
