"""One batch over ranks and pieces: nothing lost, nothing doubled, nothing too large, always the same."""

import time

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.microbatch import split_examples


def _rows(lengths: list[int]) -> list[Example]:
    return [
        Example(
            prompt=(1,) * (length - 1),
            completions=(Completion(ids=(2,), mask=(True,), finished=True),),
            origin=f"a:{n}",
        )
        for n, length in enumerate(lengths)
    ]


LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 5), tokens_at_once=st.integers(1, 60))
def test_what_always_holds(lengths: list[int], ranks: int, tokens_at_once: int) -> None:
    rows = _rows(lengths)
    shares = split_examples(rows, ranks=ranks, tokens_at_once=tokens_at_once)
    assert len(shares) == ranks
    assert len({len(share) for share in shares}) == 1
    pieces = [piece for share in shares for piece in share]
    assert all(pieces)
    trained = [row.origin for piece in pieces for row in piece if row.trained_tokens > 0]
    assert sorted(trained) == sorted(row.origin for row in rows)
    assert all(len(piece) == 1 or sum(row.tokens for row in piece) <= tokens_at_once for piece in pieces)
    assert shares == split_examples(rows, ranks=ranks, tokens_at_once=tokens_at_once)


def test_a_rank_without_rows_computes_one_that_trains_nothing() -> None:
    shares = split_examples(_rows([30, 4]), ranks=4, tokens_at_once=100)
    trained = [sum(row.trained_tokens for piece in share for row in piece) for share in shares]
    assert sorted(trained) == [0, 0, 1, 1]
    muted = [row for share in shares for piece in share for row in piece if row.trained_tokens == 0]
    assert [row.tokens for row in muted] == [4, 4], "the cheapest row computes along"


def test_pieces_are_about_as_heavy_as_each_other_and_a_longer_row_goes_alone() -> None:
    pieces = split_examples(_rows([9, 1 + 8, 5, 4, 3, 6]), ranks=2, tokens_at_once=20)
    weights = [sum(row.tokens for row in piece) for share in pieces for piece in share]
    assert max(weights) - min(weights) <= 3
    pieces = split_examples(_rows([100, 6, 6, 6]), ranks=1, tokens_at_once=10)[0]
    assert sorted(tuple(row.tokens for row in piece) for piece in pieces) == [(6,), (6,), (6,), (100,)]


@pytest.mark.slow
def test_a_long_evaluation_set_is_split_quickly() -> None:
    rows = _rows([2 + 37 * n % 300 for n in range(20_000)])
    start = time.perf_counter()
    split_examples(rows, ranks=1, tokens_at_once=512)
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(("rows", "ranks", "at_once"), [([], 1, 8), ([4], 0, 8), ([4], 1, 0)])
def test_what_cannot_be_split_is_refused(rows: list[int], ranks: int, at_once: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        split_examples(_rows(rows), ranks=ranks, tokens_at_once=at_once)
