"""What a task carries beside the answers."""

from __future__ import annotations

from dataclasses import replace

from plaudit.records.judging import Task


def test_a_task_carries_a_truth_and_facts_and_needs_neither() -> None:
    bare = Task(prompt="2 + 2?", answers=("4",), ended=(True,))
    assert (bare.truth, bare.facts) == (None, {})
    told = replace(bare, truth="4", facts={"tests": ["assert True"]})
    assert (told.truth, told.facts["tests"]) == ("4", ["assert True"])
    assert told != bare


def test_a_task_is_a_key_whatever_its_row_carried() -> None:
    one = Task(prompt="?", answers=("4",), ended=(True,), facts={"tests": [{}]})
    assert len({one, replace(one)}) == 1
