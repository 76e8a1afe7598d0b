"""Losses of whole rankings: enumerated draws and pairs, closed forms, slopes by differences; float64."""

import math
from itertools import combinations, permutations

import pytest
import torch

from plaudit.losses.preference import plackett_luce_dpo, ranking_hinge
from tests.losses.preference_batch import drawn

BETA = 0.3


def ranked(*rows: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Δ, ranks and which answers there are, of rankings of unlike lengths; NaN where there is none."""
    widest = max(map(len, rows))
    rank_PK = torch.tensor([[*row, *[0.0] * (widest - len(row))] for row in rows], dtype=torch.float64)
    mask_PK = torch.arange(widest) < torch.tensor([len(row) for row in rows])[:, None]
    return drawn(4, *rank_PK.shape).masked_fill(~mask_PK, math.nan).requires_grad_(), rank_PK, mask_PK


def chance_of(order: tuple[int, ...], deltas: list[float]) -> float:
    """Drawing without putting back, each answer in proportion to e^βΔ of those that are left."""
    left, chance = [*order], 1.0
    while left:
        chance *= math.exp(BETA * deltas[left[0]]) / sum(math.exp(BETA * deltas[one]) for one in left)
        left.pop(0)
    return chance


def test_the_loss_of_a_ranking_is_the_chance_of_drawing_it_and_all_orders_are_one_draw() -> None:
    delta_PK, rank_PK, mask_PK = ranked((3.0, 1.0, 4.0, 2.0), (2.0, 1.0, 3.0))
    found = plackett_luce_dpo(delta_PK, rank_PK, mask_PK, beta=BETA)
    for row, (loss, ranks) in enumerate(zip(found.tolist(), rank_PK.tolist(), strict=True)):
        order = tuple(sorted(range(int(mask_PK[row].sum())), key=lambda one: ranks[one]))
        assert loss == pytest.approx(-math.log(chance_of(order, delta_PK[row].tolist())), rel=1e-12)
    every = [[float(rank) for rank in order] for order in permutations((1, 2, 3, 4))]
    same_PK = delta_PK.detach()[:1].expand(len(every), 4)
    losses = plackett_luce_dpo(same_PK, torch.tensor(every), torch.ones(len(every), 4).bool(), beta=BETA)
    assert (-losses).exp().sum().item() == pytest.approx(1, rel=1e-12)


def test_equals_are_drawn_to_one_another_and_cost_any_order_of_theirs() -> None:
    """Of two equals at one Δ each order has chance ½; apart it costs more, by the same either way."""
    level_PK = torch.zeros(1, 2, dtype=torch.float64)
    rank_PK, mask_PK = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)
    assert plackett_luce_dpo(level_PK, rank_PK, mask_PK, beta=BETA).item() == pytest.approx(math.log(2))
    apart = [
        plackett_luce_dpo(torch.tensor([[gap, 0.0]]), rank_PK, mask_PK, beta=BETA).item()
        for gap in (-2.0, -1.0, 1.0, 2.0)
    ]
    assert apart[0] == pytest.approx(apart[3])
    assert apart[1] == pytest.approx(apart[2])
    assert apart[0] > apart[1] > math.log(2)


def test_rrhf_is_the_sum_of_hinges_over_the_pairs_that_are_told_apart() -> None:
    delta_PK, rank_PK, mask_PK = ranked((3.0, 1.0, 3.0, 2.0), (2.0, 1.0), (1.0, 1.0, 1.0))
    found = ranking_hinge(delta_PK, rank_PK, mask_PK)
    for row, loss in enumerate(found.tolist()):
        there = range(int(mask_PK[row].sum()))
        wanted = 0.0
        for one, other in combinations(there, 2):
            lead = (delta_PK[row, one] - delta_PK[row, other]).item()
            if rank_PK[row, one] != rank_PK[row, other]:
                wanted += max(0.0, -lead if rank_PK[row, one] < rank_PK[row, other] else lead)
        assert loss == pytest.approx(wanted, abs=1e-12)
    assert found[2] == 0 < found[0]


def test_rrhf_is_0_where_likelihoods_are_in_order_and_its_slope_counts_the_swaps() -> None:
    seen, rank = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1.0, 2.0, 3.0]])
    assert ranking_hinge(torch.tensor([[-1.0, -2.0, -3.0]]), rank, seen).item() == 0
    turned = torch.tensor([[-3.0, -2.0, -1.0]], requires_grad=True)
    ranking_hinge(turned, rank, seen).sum().backward()
    assert turned.grad is not None
    assert turned.grad.tolist() == [[-2.0, 0.0, 2.0]]


@pytest.mark.parametrize("loss", [lambda *one: plackett_luce_dpo(*one, beta=BETA), ranking_hinge])
def test_slopes_are_differences_and_what_is_not_there_has_none(loss) -> None:
    delta_PK, rank_PK, mask_PK = ranked((3.0, 1.0, 1.0, 2.0), (2.0, 1.0))
    [grad_PK] = torch.autograd.grad(loss(delta_PK, rank_PK, mask_PK).sum(), [delta_PK])
    assert bool((grad_PK[~mask_PK] == 0).all())
    for place in mask_PK.nonzero().tolist():
        values = []
        for sign in (1, -1):
            moved_PK = delta_PK.detach().clone()
            moved_PK[tuple(place)] += sign * 1e-6
            values.append(loss(moved_PK, rank_PK, mask_PK).sum().item())
        assert grad_PK[tuple(place)].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)
