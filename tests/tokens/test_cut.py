"""Cutting: the prompt gives way, an answer keeps its end, or the row is refused."""

import pytest
from hypothesis import given, strategies as st

from plaudit.errors import UserError
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.encode import RefusedRow, truncate_prompt

BOS = 1


def example_of(prompt: tuple[int, ...], *lengths: int) -> Example:
    answers = tuple(
        Completion(ids=(*range(50, 49 + length), 2), mask=(True,) * length, finished=True)
        for length in lengths
    )
    return Example(prompt=prompt, completions=answers, origin="rows.jsonl:7")


def test_what_fits_is_left_as_it_is_and_what_cannot_fit_is_refused():
    example = example_of((1, 5, 6), 4, 2)
    assert truncate_prompt(example, 7, bos=BOS) is example
    with pytest.raises(UserError, match="at most 1 tokens has no room"):
        truncate_prompt(example_of((1, 5), 1), 1)
    refused = truncate_prompt(example_of((1, 5, 6), 3000, 2), 2048, bos=BOS)
    assert isinstance(refused, RefusedRow)
    assert refused.origin == "rows.jsonl:7"
    assert refused.reason.startswith("an answer of 3,000 tokens does not fit in 2,048")


def test_a_prompt_without_bos_loses_only_its_beginning():
    shorter = truncate_prompt(example_of((5, 6, 7, 8), 4), 6)
    assert isinstance(shorter, Example)
    assert shorter.prompt == (7, 8)


@pytest.mark.parametrize(("most", "prompt"), [(6, (1, 6)), (5, None), (4, None)])
def test_a_token_of_the_prompt_must_remain_behind_the_bos(most, prompt):
    got = truncate_prompt(example_of((1, 5, 6), 4), most, bos=BOS)
    assert (got.prompt if isinstance(got, Example) else None) == prompt


@given(
    prompt=st.lists(st.integers(3, 9), min_size=1, max_size=12),
    bos=st.booleans(),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    most=st.integers(2, 26),
)
def test_whatever_the_sizes_it_fits_whole_or_is_refused(prompt, bos, lengths, most):
    example = example_of((*([BOS] if bos else []), *prompt), *lengths)
    got = truncate_prompt(example, most, bos=BOS)
    if isinstance(got, RefusedRow):
        assert most < max(lengths) + bos + 1
        return
    assert len(got.prompt) + max(lengths) <= most
    assert got.completions == example.completions
    assert all(answer.mask[-1] for answer in got.completions)
    assert (got.prompt[0] == BOS) == bos
    tail = got.prompt[1:] if bos else got.prompt
    assert tail == example.prompt[-len(tail) :]
    assert len(got.prompt) == min(len(example.prompt), most - max(lengths))
