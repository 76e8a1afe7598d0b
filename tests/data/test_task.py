"""What a task carries beside the answers."""

from dataclasses import replace

from plaudit.data.judging import Task


def test_a_task_carries_a_truth_and_facts_and_needs_neither() -> None:
    bare = Task(prompt="2 + 2?", answers=("4",), ended=(True,))
    assert (bare.reference_answer, bare.metadata) == (None, {})
    told = replace(bare, reference_answer="4", metadata={"tests": ["assert True"]})
    assert (told.reference_answer, told.metadata["tests"]) == ("4", ["assert True"])
    assert told != bare


def test_a_task_is_a_key_whatever_its_row_carried() -> None:
    one = Task(prompt="?", answers=("4",), ended=(True,), metadata={"tests": [{}]})
    assert len({one, replace(one)}) == 1
