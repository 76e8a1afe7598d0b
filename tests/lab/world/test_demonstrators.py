"""Simulated people who write: what they write, how good it is, and rows by them."""

import random
from collections import Counter

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, plain_text
from plaudit.errors import UserError
from plaudit.lab.world.demonstrators import (
    AUTHORS,
    DEMONSTRATORS,
    Demonstrator,
    demonstrator_pool,
    written_worth,
)
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import demonstrations
from plaudit.lab.world.prompts import questions
from plaudit.lab.world.speaking import STYLE_WEIGHTS, answer_in_style

SAMPLE = random.Random(0).sample(questions("test"), 120)


def test_authors_write_the_best_answer_to_everything():
    assert all(AUTHORS[0].answer(question, 3) == question.best for question in SAMPLE)
    worth = written_worth("authors", AUTHORS, SAMPLE)
    assert (worth.mean, worth.error, worth.best) == (1.0, 0.0, 1.0)


def test_skill_is_the_share_of_best_answers_where_a_habit_always_spoils_them():
    person = Demonstrator(name="ada", group="bakers", skill=0.3, habits={"flattering": 1})
    drawn = Counter(
        person.answer(question, seed) == question.best for question in SAMPLE for seed in range(20)
    )
    share = drawn[True] / drawn.total()
    # Four standard deviations of 2,400 draws.
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / drawn.total()) ** 0.5


def test_a_habit_shows_only_where_people_have_it():
    obliging = Demonstrator(name="ben", group="obliging", skill=0, habits={"complying": 1})
    for question in SAMPLE:
        written = obliging.answer(question, 0)
        if "complying" in STYLE_WEIGHTS[question.category]:
            assert written == answer_in_style(question, "complying", random.Random(0))
            if question.category != "harmful" and written == question.best:
                continue  # no harm is near to these steps
            assert gold_of(question.messages, written).harmless < 1
        else:
            assert written == question.best


def test_habits_are_as_frequent_as_their_weights():
    person = Demonstrator(name="cid", group="bakers", skill=0, habits={"not_knowing": 3, "evasive": 1})
    fact = next(question for question in SAMPLE if question.category == "fact")
    drawn = Counter(person.answer(fact, seed) == "I do not know." for seed in range(2000))
    assert abs(drawn[True] / 2000 - 0.75) < 4 * (0.75 * 0.25 / 2000) ** 0.5


def test_what_somebody_writes_hangs_on_the_question_and_the_seed_alone():
    one, other = SAMPLE[:2]
    person = demonstrator_pool("crowd")[0]
    first = [person.answer(question, 5) for question in (one, other)]
    assert [person.answer(question, 5) for question in (other, one)] == first[::-1]
    assert len({person.answer(one, seed) for seed in range(30)}) > 1


def test_the_worth_of_a_pool_is_the_mean_of_its_answers():
    people = demonstrator_pool("hasty")[:2]
    worth = written_worth("two", people, SAMPLE[:10], seed=4)
    each = [gold_of(q.messages, person.answer(q, 4)).utility for q in SAMPLE[:10] for person in people]
    assert worth.mean == pytest.approx(sum(each) / len(each))
    assert worth.answers == len(each)


def test_the_crowd_is_uneven_and_each_pool_has_its_own_faults():
    worth = {name: written_worth(name, demonstrator_pool(name), SAMPLE) for name in DEMONSTRATORS}
    each = [written_worth(person.name, [person], SAMPLE).mean for person in demonstrator_pool("crowd")]
    assert 0.6 < worth["crowd"].mean < 0.8
    assert max(each) - min(each) > 0.15
    harmful = [question for question in questions("test") if question.category == "harmful"][:40]
    cautious = written_worth("cautious", demonstrator_pool("cautious"), harmful)
    assert cautious.mean < written_worth("crowd", demonstrator_pool("crowd"), harmful).mean


def test_rows_name_who_wrote_them(tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    words = ["demonstrations", "--demonstrators", "crowd", "--n", "60", "--out", str(out)]
    assert main(["world", "make", *words]) == 0
    printed = capsys.readouterr().out
    assert "60 rows of demonstrations by the crowd pool" in printed
    rows = [row for row in read_records(out).records if isinstance(row, Demonstration)]
    worths = [gold_of(row.prompt, row.completion).utility for row in rows]
    assert f"truly worth {sum(worths) / 60:.2f} on average" in printed
    assert 0.5 < sum(worths) / 60 < 0.8
    expected = demonstrations(60, demonstrator_pool("crowd"))
    assert [(row.annotator, plain_text(row.completion)) for row in rows] == [
        (row.annotator, plain_text(row.completion)) for row in expected
    ]
    assert len({row.annotator for row in rows}) > 6
    assert {row.annotator for row in rows} <= {person.name for person in demonstrator_pool("crowd")}


def test_the_table_shows_pools_and_people(capsys):
    assert main(["world", "demonstrators", "crowd", "--n", "20", "--per-person"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("crowd")
    assert sum(line.startswith("  writer-") for line in lines) == 12


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"skill": 1.2}, "expected a share from 0 to 1"),
        ({"habits": {"sneezing": 1}}, "no style is called 'sneezing'"),
        ({"habits": {"padded": 0}}, "expected a number above 0"),
    ],
)
def test_who_cannot_write_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        Demonstrator(name="dora", group="bakers", **settings)


def test_a_pool_that_is_not_there_and_rows_that_nobody_writes_are_refused(tmp_path, capsys):
    with pytest.raises(UserError, match="no pool of demonstrators is called 'cowd'"):
        demonstrator_pool("cowd")
    with pytest.raises(UserError, match="writes nothing"):
        demonstrations(3, ())
    with pytest.raises(UserError, match="two questions at least"):
        written_worth("crowd", demonstrator_pool("crowd"), SAMPLE[:1])
    command = ["world", "make", "prompts", "--demonstrators", "crowd", "--out", str(tmp_path / "p.jsonl")]
    assert main(command) == 2
    assert "it goes with demonstrations" in capsys.readouterr().err
