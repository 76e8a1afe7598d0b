"""Rankings: every pair and every order counted one by one, ties, rows of unequal length."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from plaudit.losses.reward import bradley_terry, k_wise, plackett_luce

both = pytest.mark.parametrize("loss_of", [k_wise, plackett_luce])
rows = st.lists(st.tuples(st.floats(-4, 4), st.integers(1, 4)), min_size=2, max_size=6)


def row(rewards, ranks):
    reward_PK, rank_PK = (torch.tensor([values], dtype=torch.float64) for values in (rewards, ranks))
    return reward_PK, rank_PK, torch.ones_like(rank_PK, dtype=torch.bool)


def batch(seed, prompts=5, width=6):
    """Prompts of 2 … width answers at random places of their rows, with ties, and NaN where there is none."""
    generator = np.random.default_rng(seed)
    reward_PK, rank_PK = (np.full((prompts, width), np.nan) for _ in range(2))
    for prompt in range(prompts):
        places = generator.permutation(width)[: generator.integers(2, width + 1)]
        reward_PK[prompt, places] = 2 * generator.standard_normal(len(places))
        rank_PK[prompt, places] = generator.integers(1, 5, len(places))
    return torch.tensor(reward_PK), torch.tensor(rank_PK), torch.tensor(~np.isnan(reward_PK))


def ranked(batch_of, prompt):
    reward_PK, rank_PK, mask_PK = batch_of
    return [values_PK[prompt][mask_PK[prompt]].numpy() for values_PK in (reward_PK, rank_PK)]


def pair_by_pair(rewards, ranks, tie_weight=1.0, smoothing=0.0, noise=0.0):
    """K-wise with a loop over pairs, and the logistic written with exp."""
    total = weights = 0.0
    for i, j in itertools.combinations(range(len(ranks)), 2):
        better, worse = (i, j) if ranks[i] <= ranks[j] else (j, i)
        chance = (1 - noise) / (1 + np.exp(rewards[worse] - rewards[better])) + noise / 2
        tied = ranks[i] == ranks[j]
        right = 0.5 if tied else 1 - smoothing
        weight = tie_weight if tied else 1.0
        total -= weight * (right * np.log(chance) + (1 - right) * np.log(1 - chance))
        weights += weight
    return total / weights if weights else 0.0


def draw_by_draw(rewards, ranks):
    """Plackett–Luce as an urn: tied balls weigh less as they leave, l of d at a time."""
    urn, chance = {i: np.exp(np.longdouble(reward)) for i, reward in enumerate(rewards)}, np.longdouble(1)
    for rank in sorted(set(ranks)):
        tied = [i for i in urn if ranks[i] == rank]
        others = sum(weight for i, weight in urn.items() if i not in tied)
        together = sum(urn[i] for i in tied)
        for gone, i in enumerate(tied):
            chance *= urn[i] / (others + together * (len(tied) - gone) / len(tied))
        urn = {i: weight for i, weight in urn.items() if i not in tied}
    return float(-np.log(chance))


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("ranks", [[1, 2], [2, 1], [1, 1]])
def test_two_answers_are_a_comparison_exactly(ranks, noise):
    for one, other in torch.randn(20, 2, generator=torch.Generator().manual_seed(0)).double():
        label = {-1: 1.0, 1: 0.0, 0: 0.5}[int(np.sign(ranks[0] - ranks[1]))]
        wanted = bradley_terry(one[None], other[None], label=label, noise=noise)
        assert torch.equal(k_wise(*row([one, other], ranks), noise=noise), wanted)


@pytest.mark.parametrize("answers", [2, 3, 5])
def test_all_orders_together_have_chance_one_and_the_first_place_is_a_softmax(answers):
    rewards = np.random.default_rng(answers).standard_normal(answers)
    orders = list(itertools.permutations(range(1, answers + 1)))
    reward_PK = torch.tensor(rewards).expand(len(orders), answers)
    rank_PK = torch.tensor(orders, dtype=torch.float64)
    chance_P = (-plackett_luce(reward_PK, rank_PK, torch.ones_like(rank_PK, dtype=torch.bool))).exp()
    assert chance_P.sum().item() == pytest.approx(1, abs=1e-12)
    first_K = torch.stack([chance_P[rank_PK[:, place] == 1].sum() for place in range(answers)])
    torch.testing.assert_close(first_K, torch.tensor(rewards).softmax(-1), rtol=0, atol=1e-12)


def test_choix_gives_the_same_likelihood():
    """choix 0.4.1, ``log_likelihood_rankings([(2, 0, 4, 1, 3)], parameters)``."""
    rewards, order = [0.3, -1.2, 2.0, 0.7, -0.4], [2, 0, 4, 1, 3]
    ranks = [order.index(place) + 1 for place in range(5)]
    assert plackett_luce(*row(rewards, ranks)).item() == pytest.approx(5.161480095485402, abs=1e-12)


@both
def test_a_tie_draws_together(loss_of):
    reward_PK, rank_PK, mask_PK = row([2.0, 0.0], [1, 1])
    loss_P = loss_of(reward_PK.requires_grad_(), rank_PK, mask_PK)
    (grad_PK,) = torch.autograd.grad(loss_P.sum(), reward_PK)
    assert grad_PK.sign().tolist() == [[1, -1]]
    level = loss_of(*row([1.0, 1.0], [1, 1])).item()
    assert level == pytest.approx(math.log(2))
    assert level < loss_P.item()


def test_ties_can_be_left_out_of_the_sum_and_of_the_count():
    untied = pair_by_pair([0.5, -1.0], [1, 2]) + pair_by_pair([2.0, -1.0], [1, 2])
    assert k_wise(*row([0.5, 2.0, -1.0], [1, 1, 2]), tie_weight=0).item() == pytest.approx(untied / 2)


def test_a_prompt_counts_once_however_light_its_pairs_and_not_where_it_has_none():
    assert k_wise(*row([2.0, 0.0], [1, 1]), tie_weight=0.3).item() == pytest.approx(
        pair_by_pair([2.0, 0.0], [1, 1])
    )
    reward_PK, rank_PK, mask_PK = torch.zeros(2, 1), torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bool)
    assert k_wise(reward_PK, rank_PK, mask_PK).tolist() == [0.0, 0.0]
    assert plackett_luce(reward_PK, rank_PK, mask_PK).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("options", [{}, {"tie_weight": 0}])
def test_a_prompt_without_pairs_adds_nothing(options):
    reward_PK, rank_PK, _ = batch(0, prompts=3, width=4)
    reward_PK = reward_PK.nan_to_num().requires_grad_()
    mask_PK = torch.tensor([[False] * 4, [True, False, False, False], [False, True, True, False]])
    rank_PK = torch.ones_like(rank_PK)
    loss_P = k_wise(reward_PK, rank_PK, mask_PK, **options)
    (grad_PK,) = torch.autograd.grad(loss_P.sum(), reward_PK)
    none = slice(0, 3) if options else slice(0, 2)
    assert not loss_P[none].any()
    assert not grad_PK[none].any()
    assert options or loss_P[2] > 0
    assert plackett_luce(reward_PK, rank_PK, mask_PK)[:2].tolist() == [0.0, 0.0]


@both
def test_rows_of_unequal_length_are_their_answers_and_no_more(loss_of):
    brute = pair_by_pair if loss_of is k_wise else draw_by_draw
    for seed in range(10):
        many = batch(seed)
        reward_PK = many[0].requires_grad_()
        loss_P = loss_of(*many)
        wanted = [brute(*ranked([values.detach() for values in many], prompt)) for prompt in range(5)]
        assert loss_P.tolist() == pytest.approx(wanted, abs=1e-10)
        (grad_PK,) = torch.autograd.grad(loss_P.sum(), reward_PK)
        assert bool(grad_PK.isfinite().all())
        assert not grad_PK[~many[2]].any()


@both
def test_the_best_is_pushed_up_and_the_worst_down_and_all_pushes_add_up_to_nothing(loss_of):
    reward_PK, rank_PK, mask_PK = row([0.0, 0.3, -0.2, 0.1], [3, 1, 4, 2])
    loss_P = loss_of(reward_PK.requires_grad_(), rank_PK, mask_PK)
    (grad_PK,) = torch.autograd.grad(loss_P.sum(), reward_PK)
    assert grad_PK[0, 1] < 0 < grad_PK[0, 2]
    assert grad_PK.sum().abs().item() < 1e-12


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_gaps_stay_numbers(loss_of, dtype):
    reward_PK, rank_PK, mask_PK = row([1e4, -1e4, 0.0, 0.0], [2, 1, 2, 3])
    reward_PK = reward_PK.to(dtype).requires_grad_()
    loss_P = loss_of(reward_PK, rank_PK.to(dtype), mask_PK)
    (grad_PK,) = torch.autograd.grad(loss_P.sum(), reward_PK)
    assert loss_P.isfinite().item()
    assert loss_P.item() > 1e3
    assert bool(grad_PK.isfinite().all())


def test_finite_differences_agree_with_every_option():
    reward_PK, rank_PK, mask_PK = batch(5)
    reward_PK = reward_PK.nan_to_num().requires_grad_()
    options = {"tie_weight": 0.4, "smoothing": 0.1, "noise": 0.2}
    assert torch.autograd.gradcheck(lambda given_PK: k_wise(given_PK, rank_PK, mask_PK, **options), reward_PK)
