"""What a verdict may say, and which row it becomes."""

from dataclasses import replace

import pytest

from plaudit.data.judging import Mark, Task, Verdict, to_comparison, to_ranking, to_ratings
from plaudit.errors import UserError

PAIR = Task(prompt="Name a fruit.", answers=("Pear.", "Fig."), ended=(True, True))


def verdict(*ranks: int, **said: object) -> Verdict:
    return Verdict(marks=tuple(Mark(rank=rank) for rank in ranks), annotator="ada", group="bakers", **said)


def test_verdicts_on_two_answers_become_comparisons():
    row = to_comparison(PAIR, verdict(2, 1, strength=2))
    assert (row.chosen, row.rejected, row.strength, row.probability) == ("Fig.", "Pear.", 2.0, None)
    assert (row.annotator, row.group) == ("ada", "bakers")
    soft = to_comparison(PAIR, verdict(2, 1, probability=0.25))
    assert (soft.chosen, soft.strength, soft.probability) == ("Fig.", None, 0.75)
    assert to_comparison(PAIR, verdict(1, 2, probability=0.75)).probability == 0.75
    tie = to_comparison(PAIR, verdict(1, 1))
    assert (tie.chosen, tie.rejected, tie.strength, tie.probability) == ("Pear.", "Fig.", 0.0, 0.5)


def test_the_group_of_a_row_is_the_judges_and_its_category_the_tasks():
    task = replace(PAIR, category="fruit")
    marks = (Mark(rank=2, rating=3), Mark(rank=1, rating=4))
    said = Verdict(marks=marks, annotator="ada", group="bakers")
    rows = [to_comparison(task, said), to_ranking(task, said), *to_ratings(task, said)]
    assert [(row.group, row.category) for row in rows] == [("bakers", "fruit")] * 4
    assert to_comparison(PAIR, said).category is None


def test_only_answers_with_points_become_ratings():
    marks = (Mark(rank=2), Mark(rank=1, rating=4, flags=("false",)))
    rows = to_ratings(PAIR, Verdict(marks=marks, annotator="ada"))
    assert [(row.completion, row.score, row.thumb) for row in rows] == [("Fig.", 4.0, False)]


@pytest.mark.parametrize(
    ("ranks", "said", "says"),
    [
        ((), {}, "no answer was judged"),
        ((1, 3), {}, r"ranks \[1, 3\]: a rank is one more than there are better answers"),
        ((0, 1), {}, r"ranks \[0, 1\]"),
        ((1, 1, 2), {}, r"ranks \[1, 1, 2\]"),
        ((1, 2), {"strength": 4}, "strength 4 at ranks"),
        ((1, 2), {"strength": 0}, "expected 0 where the best are tied, else 1, 2 or 3"),
        ((1, 1), {"strength": 2}, "strength 2 at ranks"),
        ((1, 2), {"probability": 0.4}, "they contradict each other"),
        ((1, 2), {"probability": 0.5}, "they contradict each other"),
        ((1, 1), {"probability": 0.6}, "they contradict each other"),
        ((1, 2), {"probability": 1.2}, "expected one from 0 to 1, of two answers"),
        ((1, 2, 3), {"probability": 0.9}, "probability 0.9 of 3 answers"),
        ((1,), {"seconds": -1.0}, "-1.0 seconds: expected 0 or more"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_refused(ranks, said, says):
    with pytest.raises(UserError, match=says):
        verdict(*ranks, **said)


def test_points_are_from_one_to_five():
    with pytest.raises(UserError, match=r"ratings \[6\]: expected points from 1 to 5"):
        Verdict(marks=(Mark(rank=1, rating=6),), annotator="ada")


def test_a_verdict_fits_its_task():
    with pytest.raises(UserError, match="is on 3 answers, the task has 2, and 2 are expected"):
        to_ranking(PAIR, verdict(1, 2, 3))
    three = Task(prompt="Name a fruit.", answers=("Pear.", "Fig.", "Plum."), ended=(True,) * 3)
    with pytest.raises(UserError, match="is on 3 answers, the task has 3, and 2 are expected"):
        to_comparison(three, verdict(1, 2, 3))
    alone = Task(prompt="Name a fruit.", answers=("Pear.",), ended=(True,))
    with pytest.raises(UserError, match="one answer alone cannot be ranked"):
        to_ranking(alone, verdict(1))
    with pytest.raises(UserError, match="a task without answers"):
        Task(prompt="Name a fruit.", answers=(), ended=())
    with pytest.raises(UserError, match="a task of 1 answers says of 2 whether they ended"):
        Task(prompt="Name a fruit.", answers=("Pear.",), ended=(True, True))
