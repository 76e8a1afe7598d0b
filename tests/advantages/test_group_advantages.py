"""Advantages within a group and against a baseline: their limits, and where they are 0."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.advantages.group import (
    centred,
    greedy_baseline,
    leave_one_out,
    nonzero_std_groups,
    pass_rate,
    running_mean_baseline,
    updated_running_mean,
    z_score,
)
from tests.advantages.plain import draw, grouped, same

EACH = {"z": z_score, "centred": centred, "rloo": leave_one_out}
each = pytest.mark.parametrize("name", EACH)


def numbers(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_teach_nothing_to_the_last_bit(name, dtype):
    """Σ 0.1 over three, divided by three, is not 0.1 in either precision."""
    reward_N = numbers(0.1, 0.1, 0.1, 0.7, 1.0, 0.3, dtype=dtype)
    group_N = torch.tensor([0, 0, 0, 1, 2, 2])
    advantage_N = EACH[name](reward_N, group_N, **{"epsilon": 0.0} if name == "z" else {})
    assert advantage_N[:4].tolist() == [0.0] * 4
    assert bool((advantage_N[4:] != 0).all())


@each
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 20), seed=st.integers(0, 2**16), shift=st.floats(-50, 50))
def test_a_group_sums_to_0_and_does_not_see_what_is_added_to_all(name, rows, seed, shift):
    reward_N, group_N = draw(seed, rows), grouped(seed, rows)
    advantage_N = EACH[name](reward_N, group_N)
    for number in group_N.unique():
        assert abs(advantage_N[group_N == number].sum().item()) < 1e-10
    torch.testing.assert_close(EACH[name](reward_N + shift, group_N), advantage_N, rtol=0, atol=1e-8)


@each
def test_a_group_does_not_see_its_neighbours_nor_how_groups_are_numbered(name):
    reward_N, group_N = draw(1, 12), torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4])
    whole_N = EACH[name](reward_N, group_N)
    parts = [EACH[name](reward_N[part], group_N[part]) for part in (slice(0, 5), slice(5, 12))]
    assert torch.equal(torch.cat(parts), whole_N)
    assert torch.equal(EACH[name](reward_N, group_N * 7 + 100), whole_N)
    assert torch.equal(EACH[name](reward_N, group_N.int()), whole_N)


def test_leaving_one_out_is_the_centred_reward_times_k_over_k_less_1_and_of_two_the_difference():
    reward_N = draw(2, 6)
    four_N = torch.tensor([0, 0, 0, 0, 1, 1])
    found_N, centred_N = leave_one_out(reward_N, four_N), centred(reward_N, four_N)
    torch.testing.assert_close(found_N[:4], centred_N[:4] * 4 / 3, rtol=0, atol=1e-14)
    same(found_N[4:], [reward_N[4] - reward_N[5], reward_N[5] - reward_N[4]])


def test_scaling_rewards_leaves_a_z_score_as_it_is():
    reward_N, group_N = draw(3, 8), torch.tensor([0] * 4 + [1] * 4)
    one_N, many_N = (z_score(reward_N * scale, group_N, epsilon=0) for scale in (1, 1000))
    torch.testing.assert_close(one_N, many_N, rtol=1e-13, atol=0)
    assert z_score(reward_N, group_N)[0].abs() < one_N[0].abs()


def test_which_prompts_pass_and_which_teach():
    reward_N = numbers(0, 1, 1, 0.1, 0.1, 0.1, 2, -1)
    group_N = torch.tensor([0, 0, 0, 1, 1, 1, 2, 4])
    same(pass_rate(reward_N, group_N, groups=5, threshold=1), [2 / 3, 0, 1, 0, 0])
    assert nonzero_std_groups(reward_N, group_N, groups=5).tolist() == [True, False, False, False, False]


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_a_prompt_that_does_not_teach_has_no_advantage_and_the_others_have(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    reward_N = torch.randint(0, 2, (rows,), generator=generator) * 0.1
    group_N = torch.randint(0, 4, (rows,), generator=generator).sort().values
    teaches_N = nonzero_std_groups(reward_N, group_N, groups=4)[group_N]
    for advantage in EACH.values():
        assert torch.equal(advantage(reward_N, group_N) != 0, teaches_N)


def test_baselines_by_hand_and_a_running_mean_with_its_share_of_all_is_the_mean_of_all():
    reward_N = numbers(1, 2, 5)
    assert greedy_baseline(reward_N, numbers(0.5, 9, 4), torch.tensor([0, 0, 2])).tolist() == [0.5, 1.5, 1]
    assert running_mean_baseline(reward_N, mean=2).tolist() == [-1, 0, 3]
    assert running_mean_baseline(reward_N, mean=torch.tensor(2.0, dtype=torch.float64)).tolist() == [-1, 0, 3]
    batches = [draw(seed, size) for seed, size in enumerate((3, 5, 2, 9))]
    mean, seen = 0.0, 0
    for batch in batches:
        seen += len(batch)
        mean = updated_running_mean(mean, batch, share=len(batch) / seen)
    torch.testing.assert_close(mean, torch.cat(batches).mean(), rtol=0, atol=1e-14)
