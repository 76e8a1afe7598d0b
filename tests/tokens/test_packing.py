"""How a batch is laid out: every token once, at its own position, and the states found again."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import ForwardInputs, Layout, Segments, layout_batch

LAYOUTS: list[tuple[Layout, bool]] = [("packed", True), ("packed", False), ("left", True), ("right", True)]
GROUPS = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=4)), min_size=1, max_size=5
)


def _batch(groups: list[tuple[int, list[int]]]) -> TokenBatch:
    """No token occurs twice, so that each can be told by its id."""
    ids = iter(range(1, 1000))

    def take(count: int) -> tuple[int, ...]:
        return tuple(next(ids) for _ in range(count))

    return batch_of(
        [
            Example(
                prompt=take(prompt),
                completions=tuple(
                    Completion(ids=take(length), mask=(True,) * length, finished=True) for length in answers
                ),
            )
            for prompt, answers in groups
        ]
    )


def _conversation(batch: TokenBatch, n: int) -> list[int]:
    p = int(batch.group_N[n])
    prompt = batch.prompt_PL[p, : int(batch.prompt_length_P[p])].tolist()
    return prompt + batch.completion_NT[n, : int(batch.length_N[n])].tolist()


def _positions_by_id(laid: ForwardInputs) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for token, position in zip(
        laid.ids_RS.flatten().tolist(), laid.position_RS.flatten().tolist(), strict=True
    ):
        if token > 0:
            found.setdefault(token, set()).add(position)
    return found


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS, how=st.sampled_from(LAYOUTS))
def test_every_state_is_the_one_before_its_token_at_its_own_position(groups, how):
    batch = _batch(groups)
    laid = layout_batch(batch, how[0], share_prompts=how[1])
    ids, positions = laid.ids_RS.flatten().tolist(), laid.position_RS.flatten().tolist()
    for n, length in enumerate(batch.length_N.tolist()):
        talk = _conversation(batch, n)
        before = len(talk) - length - 1
        for t in range(length):
            state = int(laid.state_NT[n, t])
            assert ids[state] == talk[before + t]
            assert positions[state] == before + t
        assert not laid.state_NT[n, length:].any()


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS, how=st.sampled_from(LAYOUTS))
def test_every_token_has_a_state_of_its_own(groups, how):
    batch = _batch(groups)
    laid = layout_batch(batch, how[0], share_prompts=how[1])
    real_NT = torch.arange(batch.completion_NT.shape[1]) < batch.length_N[:, None]
    assert torch.equal(laid.ids_RS.flatten()[laid.own_NT[real_NT]], batch.completion_NT[real_NT])
    assert not laid.own_NT[~real_NT].any()
    assert torch.equal(laid.own_NT[:, :-1][real_NT[:, 1:]], laid.state_NT[:, 1:][real_NT[:, 1:]])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups=GROUPS, how=st.sampled_from(LAYOUTS))
def test_positions_restart_with_each_conversation(groups, how):
    batch = _batch(groups)
    found = _positions_by_id(layout_batch(batch, how[0], share_prompts=how[1]))
    for n in range(len(batch.origin_N)):
        assert [found[token] for token in _conversation(batch, n)] == [
            {position} for position in range(len(_conversation(batch, n)))
        ]


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS)
def test_a_packed_row_holds_each_prompt_once_and_no_padding(groups):
    batch = _batch(groups)
    shared, alone = layout_batch(batch, "packed"), layout_batch(batch, "packed", share_prompts=False)
    assert shared.ids_RS.shape == (1, sum(prompt + sum(answers) for prompt, answers in groups))
    assert sorted(shared.ids_RS[0].tolist()) == list(range(1, shared.ids_RS.shape[1] + 1))
    assert alone.ids_RS.shape == (1, sum(prompt + one for prompt, answers in groups for one in answers))
    for laid in (shared, alone):
        assert laid.real_RS is None
        assert laid.segments is not None
        assert sum(laid.segments.piece_lengths) == laid.ids_RS.shape[1]
        assert len(laid.segments.piece_lengths) == sum(1 + count for count in laid.segments.following_pieces)


def test_segments_by_hand():
    segments = Segments(prompts=(3, 2), completions=((4, 5), (6,)))
    assert segments.piece_lengths == [3, 4, 5, 8]
    assert segments.following_pieces == (2, 0)


def test_padding_by_hand():
    batch = _batch([(2, [1]), (1, [3])])
    left, right = layout_batch(batch, "left"), layout_batch(batch, "right")
    assert left.ids_RS.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert left.position_RS.tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]
    assert left.real_RS is not None
    assert left.real_RS.tolist() == [[False, True, True, True], [True] * 4]
    assert right.ids_RS.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert right.real_RS is None, "no token sees what lies to its right"
    assert left.segments is right.segments is None


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_the_smallest_batch(layout):
    laid = layout_batch(_batch([(1, [1])]), layout)
    assert laid.ids_RS.tolist() == [[1, 2]]
    assert (laid.state_NT.tolist(), laid.own_NT.tolist()) == ([[0]], [[1]])
    assert torch.equal(laid.position_RS, torch.tensor([[0, 1]]))
