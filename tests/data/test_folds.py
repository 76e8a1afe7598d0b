"""Rows divided by people: each is held out once, and no prompt that is tried was learnt from."""

from collections import Counter

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration, Rating
from plaudit.data.transforms import annotator_folds
from plaudit.data.write import write_records
from plaudit.errors import UserError


def rows(people: dict[str, int]) -> list[Comparison]:
    """So many rows of each person, every prompt judged by several."""
    return [
        Comparison(prompt=f"question {number}", chosen="a", rejected="b", annotator=name)
        for name, count in people.items()
        for number in range(count)
    ]


PEOPLE = {"a1": 40, "a2": 30, "a3": 20, "a4": 20, "a5": 10, "a6": 10}


def test_every_person_is_held_out_once_and_every_prompt_is_on_one_side():
    folds = annotator_folds(rows(PEOPLE), 3)
    assert sorted(name for fold in folds for name in fold.held_out) == [*PEOPLE]
    for fold in folds:
        assert not {row.annotator for row in fold.train} & {*fold.held_out}  # type: ignore[union-attr]
        tried = {row.annotator for row in fold.test}  # type: ignore[union-attr]
        assert tried & {*fold.held_out}
        assert tried - {*fold.held_out}
        assert not {row.prompt for row in fold.train} & {row.prompt for row in fold.test}
        assert len(fold.train) > 0
    assert folds[0].test == folds[1].test


def test_groups_have_about_as_many_rows():
    sizes = [sum(PEOPLE[name] for name in fold.held_out) for fold in annotator_folds(rows(PEOPLE), 3)]
    assert max(sizes) - min(sizes) <= 10


def test_the_same_seed_keeps_the_same_prompts_apart_and_another_other_ones():
    first, again = (annotator_folds(rows(PEOPLE), 2, seed=1) for _ in range(2))
    other = annotator_folds(rows(PEOPLE), 2, seed=2)
    assert first == again
    assert {row.prompt for row in first[0].test} != {row.prompt for row in other[0].test}


def test_rows_of_nobody_and_rows_that_judge_nothing_are_in_no_fold():
    extra = [
        Comparison(prompt="question 1", chosen="a", rejected="b"),
        Demonstration(prompt="question 2", completion="x", annotator="a1"),
        Rating(prompt="question 3", completion="x", score=1.0, annotator="a2"),
    ]
    folds = annotator_folds([*rows(PEOPLE), *extra], 2)
    kinds = Counter(type(row).__name__ for fold in folds for row in (*fold.train, *fold.test))
    assert "Demonstration" not in kinds
    assert kinds["Rating"] >= 1
    assert all(row.annotator for fold in folds for row in (*fold.train, *fold.test))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("people", "groups", "share", "says"),
    [
        ({"a1": 5}, 2, 0.2, "the rows name 1 annotators, and at least two are needed"),
        ({}, 2, 0.2, "the rows name 0 annotators"),
        (PEOPLE, 7, 0.2, "6 people can be divided into 2 to 6 groups, not 7"),
        (PEOPLE, 1, 0.2, "into 2 to 6 groups, not 1"),
        (PEOPLE, 2, 0.0, "between 0 and 1, not 0"),
        (PEOPLE, 2, float("nan"), "between 0 and 1, not nan"),
        ({"a1": 1, "a2": 1}, 2, 0.001, "too few for 2 groups"),
    ],
)
def test_what_cannot_be_divided_is_refused(people, groups, share, says):
    with pytest.raises(UserError) as refused:
        annotator_folds(rows(people), groups, test_share=share)
    assert says in str(refused.value)


def test_the_command_writes_a_folder_for_each_fold(tmp_path, capsys):
    write_records(rows(PEOPLE), tmp_path / "rows.jsonl")
    words = ["data", "folds", str(tmp_path / "rows.jsonl"), str(tmp_path / "folds"), "--groups", "2"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    folds = annotator_folds(rows(PEOPLE), 2)
    for number, fold in enumerate(folds, start=1):
        assert f"fold-{number}: {len(fold.train)} rows to train on, {len(fold.test)} to try on" in printed
        for name, own in (("train", fold.train), ("test", fold.test)):
            path = tmp_path / "folds" / f"fold-{number}" / f"{name}.jsonl"
            assert len(read_records(path).records) == len(own)
    assert main([*words[:-1], "9"]) == 2
    assert "into 2 to 6 groups, not 9" in capsys.readouterr().err
