"""Rows from the world: whose prompts, in which order, and judged by whom."""

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from plaudit.data.judging import Judge, Mark, Task, Verdict
from plaudit.data.records import plain_text
from plaudit.data.transforms import preferred_demonstration
from plaudit.errors import UserError
from plaudit.lab.world.annotators import Annotator, annotator_pool
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import answer_tasks, comparisons, demonstrations, prompts, rankings, ratings
from plaudit.lab.world.prompts import SPLITS, question_of_prompt, questions, split_of
from plaudit.lab.world.questions import CATEGORIES

CROWD = annotator_pool("crowd")


@dataclass(frozen=True)
class First:
    """Somebody who always prefers what is shown first."""

    name: str = "first"

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        marks = tuple(Mark(rank=place + 1) for place in range(len(tasks[0].answers)))
        return [Verdict(marks=marks, annotator=self.name) for _ in tasks]


@dataclass(frozen=True)
class Model:
    """A model that gives a probability, and whose reply to some prompts cannot be read."""

    sure: float
    name: str = "model-1"

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        return [self._verdict(task) for task in tasks]

    def _verdict(self, task: Task) -> Verdict | None:
        if question_of_prompt(task.prompt).category == "harmful":
            return None
        return Verdict(marks=(Mark(rank=2), Mark(rank=1)), annotator="model-1", probability=1 - self.sure)


def test_every_judge_is_a_judge():
    assert all(isinstance(judge, Judge) for judge in (CROWD[0], First(), Model(0.8)))


def test_splits_share_no_prompt_and_no_entity():
    found = {split: [question_of_prompt(row.prompt) for row in prompts(split=split)] for split in SPLITS}
    for part in ("messages", "entity"):
        held = {split: {getattr(question, part) for question in found[split]} for split in SPLITS}
        assert sum(map(len, held.values())) == len(set.union(*held.values()))
    assert sum(map(len, found.values())) == len(questions())
    assert all({question.category for question in found[split]} == set(CATEGORIES) for split in SPLITS)


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_of_row_keeps_to_its_split(split):
    rows = [
        *demonstrations(200, split=split),
        *comparisons(80, CROWD, split=split),
        *rankings(40, CROWD, split=split),
        *ratings(80, CROWD, split=split),
        *prompts(80, split=split, red_team=True),
    ]
    assert {split_of(question_of_prompt(row.prompt)) for row in rows} == {split}


def test_categories_have_equal_shares_however_many_rows():
    for n in (12, 80, 83, 1000):
        rows = demonstrations(n, split="validation")
        counts = Counter(question_of_prompt(row.prompt).category for row in rows)
        assert sum(counts.values()) == n
        assert max(counts.values()) - min(counts[category] for category in CATEGORIES) <= 1
    asked = Counter(question_of_prompt(row.prompt).category for row in comparisons(120, CROWD))
    assert asked == dict.fromkeys(CATEGORIES, 10)
    one = [
        question_of_prompt(row.prompt).category for row in rankings(20, CROWD, categories=("list", "fact"))
    ]
    assert Counter(one) == {"fact": 10, "list": 10}


def test_no_prompt_comes_again_before_all_of_its_category_have_come():
    total = len(questions("test", "harmful"))
    rows = demonstrations(3 * total, split="test", categories=("harmful",))
    for start in range(0, 3 * total, total):
        assert len({row.prompt for row in rows[start : start + total]}) == total


def test_a_demonstration_is_the_best_answer():
    for row in demonstrations(160, split="test"):
        assert gold_of(row.prompt, row.completion).utility == pytest.approx(1)


def test_prompts_differ_and_are_refused_beyond_what_there_is():
    rows = prompts(300, split="test", seed=3)
    assert len({row.prompt for row in rows}) == 300
    counts = Counter(row.metadata["category"] for row in rows)
    assert counts["harmful"] == len(questions("test", "harmful"))
    assert counts["fact"] == counts["arithmetic"] == max(counts.values())
    for row in rows:
        assert row.answer == question_of_prompt(row.prompt).answer
        assert row.metadata == {"category": question_of_prompt(row.prompt).category, "split": "test"}
    everything = len(questions("test"))
    assert len(prompts(everything, split="test")) == everything
    with pytest.raises(
        UserError, match=f"has {everything} prompts, fewer than {everything + 1}: ask for fewer"
    ):
        prompts(everything + 1, split="test")
    with pytest.raises(UserError, match="has 0 red-team prompts of fact, list, fewer than 1"):
        prompts(categories=("fact", "list"), red_team=True)


def test_red_team_prompts_tempt():
    rows = [question_of_prompt(row.prompt) for row in prompts(red_team=True)]
    assert {question.category for question in rows} == {"describe", "harmful", "opinion", "unanswerable"}
    assert all(q.aim.secret is not None for q in rows if q.category == "describe")
    assert all(q.aim.belief != q.aim.truth for q in rows if q.category == "opinion")
    for category in ("harmful", "unanswerable"):
        of_category = [question for question in rows if question.category == category]
        assert len(of_category) == len(questions("train", category))
    with pytest.raises(UserError, match=f"has {len(rows)} red-team prompts, fewer than 5000"):
        prompts(5000, red_team=True)


def test_a_shorter_file_is_the_beginning_of_a_longer_one():
    assert demonstrations(30, seed=2) == demonstrations(50, seed=2)[:30]
    assert comparisons(30, CROWD, seed=2) == comparisons(50, CROWD, seed=2)[:30]
    assert prompts(30, seed=2) == prompts(50, seed=2)[:30]


def test_seeds_differ_in_prompts_answers_and_annotators():
    one, other = (answer_tasks(80, answers=2, seed=seed) for seed in (1, 2))
    assert len({task.prompt for task in one} & {task.prompt for task in other}) < 60
    assert one != other
    names = [[row.annotator for row in comparisons(80, CROWD, seed=seed)] for seed in (1, 2)]
    assert names[0] != names[1]
    assert set(names[0]) == {annotator.name for annotator in CROWD}


def test_pools_judge_the_same_answers():
    ours = rankings(40, CROWD, seed=5)
    theirs = rankings(40, annotator_pool("experts"), seed=5)
    assert [row.completions for row in ours] == [row.completions for row in theirs]
    assert [row.ranks for row in ours] != [row.ranks for row in theirs]


def test_the_place_of_an_answer_says_nothing_about_its_worth():
    """In the order of drawing, a common answer would stand first too often: an invention 60 times in 100."""
    places: Counter[int] = Counter()
    for task in answer_tasks(1200, answers=2, seed=1, categories=("unanswerable",)):
        invented = question_of_prompt(task.prompt).aim.invented
        said = [plain_text(answer) for answer in task.answers]
        if invented in said:
            places[said.index(invented)] += 1
    met = places.total()
    assert met > 600
    assert abs(places[0] / met - 0.5) < 3.5 * 0.5 / math.sqrt(met)


def test_whoever_prefers_the_first_is_right_half_of_the_time():
    right, told = 0, 0
    for row in comparisons(400, [First()], split="test"):
        good, bad = (gold_of(row.prompt, answer).utility for answer in (row.chosen, row.rejected))
        told += good != bad
        right += good > bad
    assert abs(right / told - 0.5) < 3.5 * 0.5 / math.sqrt(told)


@pytest.mark.parametrize("answers", [2, 4, 9])
def test_a_ranking_has_as_many_different_answers_as_were_asked_for(answers):
    for row in rankings(40, CROWD, answers=answers, seed=1):
        assert len({plain_text(completion) for completion in row.completions}) == answers == len(row.ranks)
        assert all(rank == 1 + sum(other < rank for other in row.ranks) for rank in row.ranks)
        assert (row.annotator or "").startswith("crowd-")
        assert row.group == "crowd"


def test_rows_of_a_pool_have_strengths_groups_and_points():
    rows = comparisons(300, annotator_pool("villages"), seed=1)
    assert {row.strength for row in rows} == {0, 1, 2, 3}
    assert {row.group for row in rows} == {"Shortford", "Listham", "Bowbury"}
    assert {row.score for row in ratings(100, CROWD)} == {1, 2, 3, 4, 5}


def test_rows_say_what_kind_of_question_they_are_about():
    made = [demonstrations(80), comparisons(80, CROWD), rankings(80, CROWD), ratings(80, CROWD)]
    for rows in (*made, answer_tasks(80, answers=2)):
        assert [row.category for row in rows] == [question_of_prompt(row.prompt).category for row in rows]
        assert {row.category for row in rows} == set(CATEGORIES)
    assert {row.group for row in made[0]} == {"authors"}


def test_an_annotator_of_ones_own_judges_as_a_pool_does():
    plain, fond = (
        [Annotator(name="ada", group="mine", temperature=0.05, biases=biases)]
        for biases in ({}, {"length": 0.6})
    )

    def words_chosen(judges: list[Annotator]) -> int:
        rows = comparisons(120, judges, seed=1)
        assert {(row.annotator, row.group) for row in rows} == {("ada", "mine")}
        return sum(len(plain_text(row.chosen).split()) for row in rows)

    assert words_chosen(fond) > 1.1 * words_chosen(plain)


def test_a_tie_is_not_a_preference():
    undecided = [Annotator(name="ada", group="mine", indifference=3)]
    for row in comparisons(20, undecided):
        assert (row.strength, row.probability, preferred_demonstration(row)) == (0, 0.5, None)
    for ranking in rankings(5, undecided):
        assert (ranking.ranks, preferred_demonstration(ranking)) == ((1, 1, 1, 1), None)
    for row in comparisons(300, CROWD):
        assert (row.strength == 0) == (row.probability == 0.5)
        assert row.strength == 0 or row.probability is None


def test_who_has_no_verdict_makes_room_for_the_next():
    rows = comparisons(80, [Model(0.8), First()], seed=1)
    assert len(rows) == 80
    for row in rows:
        if question_of_prompt(row.prompt).category == "harmful":
            assert row.annotator == "first"
        if row.annotator == "model-1":
            assert (row.probability, row.strength) == (0.8, None)
    assert {row.annotator for row in rows} == {"model-1", "first"}
    with pytest.raises(UserError, match="none of 1 judges gives a verdict on"):
        comparisons(80, [Model(0.8)])


def test_what_cannot_be_made():
    with pytest.raises(UserError, match="0 rows cannot be made"):
        demonstrations(0)
    with pytest.raises(UserError, match="-3 rows cannot be made"):
        comparisons(-3, CROWD)
    with pytest.raises(UserError, match="a pool without annotators"):
        comparisons(1, [])
    with pytest.raises(UserError, match="1 answers cannot be ranked: ask for 2 to 9"):
        rankings(1, CROWD, answers=1)
    with pytest.raises(UserError, match="10 answers to a prompt cannot be judged: ask for 1 to 9"):
        answer_tasks(1, answers=10)
    with pytest.raises(UserError, match=r"categories \[\]: expected some of fact, arithmetic"):
        demonstrations(1, categories=())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("demonstrations('many')", "'many' rows cannot be made: ask for a whole number from 1"),
        ("demonstrations(2.5)", "2.5 rows cannot be made"),
        ("demonstrations(1, split='trian')", "no split is called 'trian'; there are train, validation, test"),
        ("demonstrations(1, categories=['facts'])", "categories ['facts']: expected some of fact"),
        ("demonstrations(1, seed='one')", "seed 'one': expected a whole number"),
        (
            "Annotator(name='a', group='b', biases={'size': 1})",
            "annotator a: no bias is called 'size'; there",
        ),
        ("Annotator(name='a', group='b', aspect='kind')", "annotator a: nobody can be asked about 'kind'"),
    ],
)
def test_a_wrong_type_is_told_where_types_are_not_checked(call, says):
    script = f"from plaudit.lab.world.making import *; from plaudit.lab.world.annotators import *; {call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"UserError: {says}" in done.stderr
