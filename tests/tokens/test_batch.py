"""The token batch: shapes, masks, groups; what no model can score is refused when it is built."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from plaudit.errors import UserError
from plaudit.tokens.batch import Completion, Example, batch_of


def _answer(*ids: int, finished: bool = True) -> Completion:
    return Completion(ids=ids, mask=(True,) * len(ids), finished=finished)


def test_every_field_of_a_ragged_batch() -> None:
    masked = Completion(ids=(7, 8, 2), mask=(False, True, True), finished=False)
    batch = batch_of(
        [
            Example(prompt=(1, 5, 6), completions=(_answer(9), masked), origin="a:1"),
            Example(prompt=(1,), completions=(_answer(4, 2),), origin="a:2"),
        ]
    )
    assert batch.prompt_PL.tolist() == [[1, 5, 6], [1, 0, 0]]
    assert batch.prompt_length_P.tolist() == [3, 1]
    assert batch.completion_NT.tolist() == [[9, 0, 0], [7, 8, 2], [4, 2, 0]]
    assert batch.length_N.tolist() == [1, 3, 2]
    assert batch.mask_NT.tolist() == [[True, False, False], [False, True, True], [True, True, False]]
    assert batch.group_N.tolist() == [0, 0, 1]
    assert batch.finished_N.tolist() == [True, False, True]
    assert batch.origin_N == ("a:1", "a:1", "a:2")


def test_moving_keeps_every_field_and_counts_are_those_of_an_example() -> None:
    batch = batch_of([Example(prompt=(1,), completions=(_answer(4, 2),), origin="a:1")])
    moved = batch.to("cpu")
    assert moved.completion_NT.tolist() == batch.completion_NT.tolist()
    assert moved.origin_N == batch.origin_N
    half = Completion(ids=(7, 8, 2), mask=(False, True, True), finished=True)
    example = Example(prompt=(1, 5), completions=(half, _answer(4)))
    assert example.tokens == 6
    assert example.trained_tokens == 3


def test_a_moved_batch_keeps_the_one_it_was_moved_from_and_a_changed_one_does_not() -> None:
    masked = Completion(ids=(7, 8, 2), mask=(False, True, True), finished=False)
    batch = batch_of([Example(prompt=(1, 5), completions=(_answer(9), masked), origin="a:1")])
    there = batch.to("meta")
    assert batch.host is batch
    assert there.host is batch
    assert there.to("cpu") is batch
    assert batch.trained_M.tolist() == [0, 4, 5]
    assert there.trained_M.device.type == "meta"
    assert there.trained_M.shape == (3,)
    assert replace(batch, mask_NT=torch.zeros_like(batch.mask_NT)).trained_M.tolist() == []
    with pytest.raises(NotImplementedError):
        _ = replace(there, origin_N=("b:1", "b:2")).host


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Example(prompt=(), completions=(_answer(2),), origin="a.jsonl:3"),
            r"a\.jsonl:3: the prompt has no tokens.*write a prompt",
        ),
        (_answer, "at least one token"),
        (lambda: Completion(ids=(1, 2), mask=(True,) * 3, finished=True), "2 tokens has a mask of 3"),
        (lambda: batch_of([]), "at least one completion"),
        (lambda: batch_of([Example(prompt=(1,), completions=())]), "at least one completion"),
    ],
)
def test_what_no_model_can_score_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        make()
