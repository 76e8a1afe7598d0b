"""Shaping of scores: values by hand, limits, and a running scale that forgets nothing over a restart."""

import pytest
import torch

from plaudit.errors import UserError
from plaudit.methods.policy.shaping import (
    clipped,
    length_penalty,
    overlong_filter_mask,
    replace_unfinished,
    soft_overlong,
)
from plaudit.rewards.combine.aggregate import RunningScale

NAN = float("nan")


def test_what_does_not_end_gets_the_penalty_whatever_its_score() -> None:
    score_N = torch.tensor([5.0, 5.0, NAN, NAN])
    shaped = replace_unfinished(score_N, torch.tensor([True, False, True, False]), score=-2)
    assert shaped[[0, 1, 3]].tolist() == [5.0, -2.0, -2.0]
    assert shaped[2].isnan()


def test_soft_overlong_is_the_papers_three_pieces() -> None:
    length_N = torch.arange(0, 20001, 500)
    shaped = soft_overlong(length_N, longest=20000, cache=4000)
    for length, value in zip(length_N.tolist(), shaped.tolist(), strict=True):
        assert value == pytest.approx(0.0 if length <= 16000 else (16000 - length) / 4000)
    assert soft_overlong(torch.tensor([20001, 10**6]), longest=20000, cache=4000).tolist() == [-1.0, -1.0]
    assert (shaped[1:] <= shaped[:-1]).all()


@pytest.mark.parametrize(("longest", "cache"), [(10, 0), (10, 11), (10, -1)])
def test_the_cache_is_a_part_of_the_length(longest: int, cache: int) -> None:
    with pytest.raises(UserError, match="cache"):
        soft_overlong(torch.tensor([1]), longest=longest, cache=cache)


def test_overlong_filtering_keeps_what_ended_in_time() -> None:
    finished_N = torch.tensor([True, True, False, False])
    length_N = torch.tensor([10, 11, 5, 11])
    assert overlong_filter_mask(finished_N, length_N, longest=10).tolist() == [True, False, False, False]


def test_clipping_leaves_what_is_no_score() -> None:
    shaped = clipped(torch.tensor([-7.0, 0.0, 7.0, NAN]), low=-5, high=5)
    assert shaped[:3].tolist() == [-5.0, 0.0, 5.0]
    assert shaped[3].isnan()
    with pytest.raises(UserError, match="smaller"):
        clipped(torch.tensor([0.0]), low=1, high=1)


def test_the_length_penalty_is_linear_beyond_what_is_free() -> None:
    assert length_penalty(torch.tensor([0, 10, 20]), per_token=0.5).tolist() == [0.0, -5.0, -10.0]
    assert length_penalty(torch.tensor([9, 12]), per_token=1, free=10).tolist() == [0.0, -2.0]
    with pytest.raises(UserError, match="would reward length"):
        length_penalty(torch.tensor([1]), per_token=-0.1)


def test_the_running_scale_is_that_of_all_scores_together() -> None:
    torch.manual_seed(0)
    batches = [3 + 5 * torch.randn(size) for size in (1, 7, 32, 2)]
    scale = RunningScale()
    for batch in batches:
        scale.update(torch.cat([batch, torch.tensor([NAN])]))
    together = torch.cat(batches).double()
    assert scale.mean == pytest.approx(together.mean().item())
    assert scale.deviation == pytest.approx(together.std(correction=0).item())
    shaped = scale.normalise(torch.cat(batches))
    assert shaped.mean().item() == pytest.approx(0, abs=1e-5)
    assert shaped.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_the_running_scale_far_from_0_before_anything_was_seen_without_a_shift_and_of_equal_scores() -> None:
    scale = RunningScale()
    for value in (1e9 + 1, 1e9 + 2, 1e9 + 3):
        scale.update(torch.tensor([value], dtype=torch.float64))
    assert scale.deviation == pytest.approx((2 / 3) ** 0.5)
    scale = RunningScale()
    assert scale.normalise(torch.tensor([2.0])).tolist() == [2.0]
    scale.update(torch.tensor([NAN]))
    assert (scale.mean, scale.deviation) == (0.0, 1.0)
    scale = RunningScale(shift=False)
    scale.update(torch.tensor([4.0, 8.0]))
    assert scale.normalise(torch.tensor([-2.0, 4.0])).tolist() == [-1.0, 2.0]
    scale = RunningScale()
    scale.update(torch.tensor([1.0, 1.0]))
    assert scale.normalise(torch.tensor([1.0])).tolist() == [0.0]


def test_a_restart_goes_on_bit_by_bit() -> None:
    torch.manual_seed(0)
    one = RunningScale()
    one.update(torch.randn(9))
    other = RunningScale()
    other.load_tensors(one.tensors())
    more = torch.randn(5)
    for scale in (one, other):
        scale.update(more)
    assert torch.equal(one.tensors()["scale"], other.tensors()["scale"])
