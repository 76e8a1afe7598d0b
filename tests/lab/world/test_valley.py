"""The tables of the valley and what can be claimed of them."""

import os
import subprocess
import sys
from functools import partial

import pytest

from plaudit.errors import UserError
from plaudit.lab import world
from plaudit.lab.world import facts, valley


@pytest.mark.parametrize(
    ("name", "columns", "least"),
    [("PEOPLE", 7, 30), ("ANIMALS", 5, 20), ("THINGS", 5, 20), ("REASONS", 3, 24), ("HARMS", 4, 20)],
)
def test_every_line_of_a_table_is_whole(name: str, columns: int, least: int) -> None:
    rows = getattr(valley, name)
    assert {len(row) for row in rows} == {columns}
    assert len(rows) >= least
    assert len({row[0] for row in rows}) == len(rows)


def test_who_made_things_lives_in_the_valley() -> None:
    names = {row[0] for row in valley.PEOPLE}
    assert {row[4] for row in valley.THINGS} <= names


def test_every_topic_has_one_true_claim_and_several_false_ones() -> None:
    for subject in facts.SUBJECTS:
        for relation in subject.relations:
            topic = facts.topic_of(subject, relation)
            said = [claim for claim in facts.fact_claims().values() if claim.topic == topic]
            assert sum(claim.true for claim in said) == 1, topic
            assert len(said) == len(facts.values_of(subject.relations, relation)) >= 3, topic


def test_no_two_claims_share_a_sentence() -> None:
    told = sum(
        len(facts.values_of(subject.relations, relation))
        for subject in facts.SUBJECTS
        for relation in subject.relations
    )
    assert len(facts.fact_claims()) == told + len(valley.REASONS) ** 2


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("food of the owl", "mice"),
        ("age of Ada", "34"),
        ("maker of the kite", "Irma"),
        ("7 plus 8", "15"),
        ("20 minus 3", "17"),
        ("9 times 9", "81"),
        ("why does ice melt", "the sun warms it"),
    ],
)
def test_the_truth_is_what_the_tables_say(topic: str, value: str) -> None:
    assert facts.true_value(topic) == value
    assert facts.FactClaim(topic=topic, value=value).true
    assert not facts.FactClaim(topic=topic, value="something else").true


def test_a_topic_that_does_not_exist_has_no_truth() -> None:
    assert facts.true_value("food of the dragon") is None
    assert not facts.FactClaim(topic="food of the dragon", value="sheep").true


def test_every_true_claim_reads_as_a_sentence() -> None:
    told = [facts.as_sentence(words) for words, claim in facts.fact_claims().items() if claim.true]
    assert len(told) > 300
    assert all(text[0].isupper() and text.endswith(".") and "  " not in text for text in told)


ELSEWHERE = """
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.prompts import questions
print(min(judge_answer(question, question.best).utility for question in questions()))
print(*sorted(question.messages[0].content for question in questions("test", "fact")), sep="|")
print(sorted(question.best for question in questions(category="fact")), annotator_pool("crowd")[0].biases)
"""


def test_the_base_model_is_refused_where_its_valley_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "ANOTHER", "fresh")
    with pytest.raises(UserError, match="the base model has read about another valley"):
        world.base_model_folder()


@pytest.mark.slow
def test_another_valley_has_other_facts_prompts_and_people_and_its_best_answers_are_best() -> None:
    command = [sys.executable, "-c", ELSEWHERE]
    run = partial(subprocess.run, command, capture_output=True, text=True, check=True)
    here, elsewhere = (
        run(env={**os.environ, "PLAUDIT_VALLEY": word}).stdout.splitlines() for word in ("", "fresh")
    )
    assert here[0] == elsewhere[0] == "1.0"
    assert all(line != other for line, other in zip(here[1:], elsewhere[1:], strict=True))
