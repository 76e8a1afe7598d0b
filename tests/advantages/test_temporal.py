"""Rewards, returns and advantages along completions whose masks have holes."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.advantages import temporal
from plaudit.tensors.masked import moments
from tests.advantages.plain import draw, holes

FACTORS = st.sampled_from([0.0, 0.3, 0.95, 1.0])


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 40), seed=st.integers(0, 2**16), gamma=FACTORS)
def test_the_ends_of_lambda_are_monte_carlo_and_one_step(width, seed, gamma):
    reward_NT, value_NT, mask_NT = draw(seed, 3, width), draw(seed + 1, 3, width), holes(seed, 3, width)
    told = reward_NT, value_NT, mask_NT
    whole_NT = temporal.gae(*told, gamma=gamma, lam=1)
    torch.testing.assert_close(whole_NT, temporal.monte_carlo(*told, gamma=gamma), rtol=0, atol=1e-12)
    assert torch.equal(temporal.gae(*told, gamma=gamma, lam=0), temporal.one_step(*told, gamma=gamma))
    to_go_NT = temporal.reward_to_go(reward_NT, mask_NT, gamma=gamma)
    torch.testing.assert_close(temporal.returns(whole_NT, value_NT, mask_NT), to_go_NT, rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 24), seed=st.integers(0, 2**16), gamma=FACTORS, lam=FACTORS)
def test_holes_are_as_if_they_were_not_there(width, seed, gamma, lam):
    """The trained tokens moved together, nothing between them: the same numbers at the same tokens."""
    reward_NT, value_NT, mask_NT = draw(seed, 1, width), draw(seed + 1, 1, width), holes(seed, 1, width)
    if not mask_NT.any():
        return
    tight = [tensor[mask_NT][None] for tensor in (reward_NT, value_NT, mask_NT)]
    found_NT = temporal.gae(reward_NT, value_NT, mask_NT, gamma=gamma, lam=lam)
    torch.testing.assert_close(
        found_NT[mask_NT][None], temporal.gae(*tight, gamma=gamma, lam=lam), rtol=0, atol=1e-12
    )


def everything(reward_NT, value_NT, kl_NT, mask_NT):
    score_N, finished_N = draw(9, len(mask_NT)), torch.arange(len(mask_NT)) % 2 == 0
    end_N = value_NT.masked_fill(~mask_NT, 0.0).sum(-1).masked_fill(finished_N, 0.0)
    advantage_NT = temporal.gae(reward_NT, value_NT, mask_NT, gamma=0.9, lam=0.8, bootstrap_N=end_N)
    return {
        "end": end_N,
        "gae": advantage_NT,
        "returns": temporal.returns(advantage_NT, value_NT, mask_NT),
        "mc": temporal.monte_carlo(reward_NT, value_NT, mask_NT, gamma=0.9),
        "r++": temporal.reinforce_plus_plus(reward_NT, mask_NT, gamma=0.9),
        "rewards": temporal.token_rewards(score_N, kl_NT, mask_NT, beta=0.1),
        "bandit": temporal.bandit(score_N, end_N, mask_NT),
    }


@pytest.mark.parametrize("poison", [1e30, float("nan"), float("inf")])
def test_what_is_masked_never_enters_and_is_0(poison):
    mask_NT = holes(3, 6, 11)
    clean = [draw(seed, 6, 11) for seed in range(3)]
    dirty = [tensor.masked_fill(~mask_NT, poison) for tensor in clean]
    wanted, found = everything(*clean, mask_NT), everything(*dirty, mask_NT)
    for name, tensor in found.items():
        assert torch.equal(tensor, wanted[name]), name
        assert tensor.dim() == 1 or bool((tensor[~mask_NT] == 0).all()), name


def test_padding_on_either_side_changes_nothing():
    mask_NT = torch.cat([torch.ones(4, 1, dtype=torch.bool), holes(4, 4, 6)], 1)
    told = [draw(seed, 4, 7) for seed in range(3)]
    wanted = everything(*told, mask_NT)
    for left, right in ((5, 0), (0, 3), (2, 9)):
        padded = [torch.nn.functional.pad(tensor, (left, right), value=7.0) for tensor in told]
        found = everything(*padded, torch.nn.functional.pad(mask_NT, (left, right)))
        for name, tensor in found.items():
            own = tensor if tensor.dim() == 1 else tensor[:, left : left + 7]
            torch.testing.assert_close(own, wanted[name], rtol=0, atol=1e-13)


def test_an_answers_rewards_add_up_to_its_score_less_its_kl_and_of_no_token_to_nothing():
    mask_NT = holes(5, 6, 9)
    mask_NT[0] = False
    mask_NT[1:, 0] = True
    score_N, kl_NT = draw(1, 6), draw(2, 6, 9)
    found_NT = temporal.token_rewards(score_N, kl_NT, mask_NT, beta=0.3)
    assert not found_NT[0].any()
    torch.testing.assert_close(
        found_NT[1:].sum(-1), score_N[1:] - 0.3 * (kl_NT * mask_NT)[1:].sum(-1), rtol=0, atol=1e-13
    )


def test_steps_get_their_scores_where_they_end_and_tokens_what_is_still_to_come():
    score_NS = torch.tensor([[1.0, 2.0, 4.0], [5.0, float("nan"), float("nan")], [float("nan")] * 3])
    end_NT = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    found_NT = temporal.step_rewards(score_NS, end_NT)
    assert found_NT.tolist() == [[0, 1, 0, 2, 4], [0, 0, 5, 0, 0], [0] * 5]
    to_go_NT = temporal.reward_to_go(found_NT, torch.ones(3, 5).bool(), gamma=1)
    assert to_go_NT[0].tolist() == [7, 7, 6, 6, 4]
    with pytest.raises((RuntimeError, IndexError)):
        temporal.step_rewards(torch.ones(1, 1), torch.tensor([[True, True]]))


def test_reinforce_plus_plus_is_the_same_in_parts():
    reward_NT, mask_NT = draw(7, 6, 9), holes(7, 6, 9)
    whole_NT = temporal.reinforce_plus_plus(reward_NT, mask_NT, gamma=0.9)
    parts = (slice(0, 1), slice(1, 4), slice(4, 6))
    known = moments(temporal.reward_to_go(reward_NT, mask_NT, gamma=0.9), mask_NT)
    found = [
        temporal.reinforce_plus_plus(reward_NT[p], mask_NT[p], gamma=0.9, batch_moments=known) for p in parts
    ]
    torch.testing.assert_close(torch.cat(found), whole_NT, rtol=0, atol=1e-12)


def test_the_scan_is_exact_over_a_long_completion():
    """4,097 tokens, against the sum written out one after the other."""
    reward_NT = draw(0, 2, 4097)
    mask_NT = holes(0, 2, 4097, 0.8)
    x, wanted = torch.zeros(2, dtype=torch.float64), []
    for t in reversed(range(4097)):
        x = torch.where(mask_NT[:, t], reward_NT[:, t] + 0.999 * x, x)
        wanted.append(x)
    wanted_NT = torch.stack(wanted[::-1], 1) * mask_NT
    found_NT = temporal.reward_to_go(reward_NT, mask_NT, gamma=0.999)
    torch.testing.assert_close(found_NT, wanted_NT, rtol=1e-12, atol=1e-11)
