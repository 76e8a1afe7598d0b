"""What can be asked, and how it is dealt to train, validation and test."""

import subprocess
import sys
from functools import partial

import pytest

from plaudit.errors import UserError
from plaudit.lab.world.prompts import SHARES, SPLITS, question_of_prompt, questions, questions_of, split_of
from plaudit.lab.world.questions import CATEGORIES, Fact


def test_every_category_has_prompts_in_every_split() -> None:
    for category in CATEGORIES:
        found = {split: len(questions(split, category)) for split in SPLITS}
        assert found["train"] > found["test"] > found["validation"] > 0, (category, found)
        assert sum(found.values()) == len(questions(category=category))


@pytest.mark.parametrize(
    "kind", ["person", "thing", "plus", "minus", "times", "kind", "topic", "deed", "advice"]
)
def test_each_kind_of_entity_is_dealt_in_the_right_shares(kind: str) -> None:
    entities = {q.entity: split_of(q) for q in questions_of(CATEGORIES) if q.entity.startswith(f"{kind}:")}
    assert len(entities) >= 16
    for split, share in SHARES.items():
        dealt = sum(one == split for one in entities.values())
        assert dealt == pytest.approx(share * len(entities), abs=1)


def test_turned_round_a_sum_is_in_the_same_split() -> None:
    assert split_of(question_of_prompt("What is 3 plus 9?")) == split_of(
        question_of_prompt("How much is 9 plus 3?")
    )


def test_a_question_is_found_by_its_words_alone_or_as_a_conversation() -> None:
    for question in questions(category="follow_up")[:20]:
        assert question_of_prompt(question.messages) is question
        assert [message.role for message in question.messages] == ["user", "assistant", "user"]
    assert question_of_prompt("What does the owl eat?").best == "The owl eats mice."
    with pytest.raises(UserError, match=r"no such prompt: 'Who are you\?'"):
        question_of_prompt("Who are you?")


def test_every_fact_hears_each_of_its_frames() -> None:
    facts = [q.aim for q in questions() if isinstance(q.aim, Fact)]
    for fact in facts[::7]:
        for value in (fact.truth, fact.values[0], fact.values[-1]):
            for frame in range(len(fact.frames)):
                assert fact.parse_value(fact.phrase_value(value, frame).lower()) == value
        assert fact.parse_value("something else altogether") is None


def test_a_belief_is_true_once_in_three() -> None:
    beliefs = [q.aim for q in questions(category="opinion") if isinstance(q.aim, Fact)]
    assert sum(fact.belief == fact.truth for fact in beliefs) * 3 == len(beliefs)


@pytest.mark.slow
def test_the_deal_is_the_same_in_every_process() -> None:
    code = (
        "from plaudit.lab.world.prompts import questions_of, split_of\n"
        "from plaudit.lab.world.questions import CATEGORIES\n"
        "import hashlib\n"
        "every = questions_of(CATEGORIES)\n"
        "said = ''.join(f'{q.messages[-1].content}{q.best}{split_of(q)}' for q in every)\n"
        "print(hashlib.sha256(said.encode()).hexdigest())"
    )
    run = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (run(env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2"))
    assert first == second
