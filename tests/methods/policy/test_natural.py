"""TRPO's step: its curvature is that of the drawn tokens, its KL keeps the limit, nothing else moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plaudit.engine.metrics import values_of
from plaudit.methods.policy.objective import PolicyMicrobatch, ValueLoss, policy_objective
from plaudit.methods.policy.trpo import TrpoStep
from plaudit.tensors.masked import masked_mean
from tests.methods.policy.commands import make_place, well
from tests.methods.policy.pieces import ALONE, Scene, learnt, scene


def natural(one: Scene, limit: float) -> TrpoStep:
    watchers = replace(one.watchers, critic=None)
    surrogate = policy_objective(one.found, watchers, ValueLoss())
    return TrpoStep(watchers, surrogate, ALONE, kl_limit=limit)


def policy_pieces(one: Scene) -> list[PolicyMicrobatch]:
    return [piece for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch)]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def curvature(one: Scene, v_D: Tensor) -> Tensor:
    """F v by the derivative of each token's log-prob, written out."""
    weights = [p for p in one.policy.parameters() if p.requires_grad]
    total, tokens = torch.zeros_like(v_D), 0
    for piece in policy_pieces(one):
        batch = piece.round.batch(piece.groups)[0]
        logp = one.policy.score(batch, temperature=one.watchers.temperature).logp_NT[batch.mask_NT]
        for own in logp:
            grad_D = flat(torch.autograd.grad(own, weights, retain_graph=True))
            total, tokens = total + grad_D * grad_D.dot(v_D), tokens + 1
    return total / tokens


def test_the_curvature_is_that_of_the_tokens_that_were_drawn() -> None:
    one = scene("trpo")
    trained = [p for p in one.policy.parameters() if p.requires_grad]
    begin_D = flat([p.detach() for p in trained]).clone()
    v_D = torch.randn(len(begin_D), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = natural(one, 0.01)._fisher_vector_product(trained, begin_D, v_D, policy_pieces(one))
    wanted = curvature(one, v_D)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-6
    assert torch.equal(flat([p.detach() for p in trained]), begin_D)


@pytest.mark.parametrize("limit", [1e-4, 0.01, 1.0])
def test_the_kl_stays_within_the_limit_and_the_surrogate_improves(limit: float) -> None:
    one = scene("trpo")
    pieces = one.pieces(1)
    learnt(one, pieces)
    before = {name: p.detach().clone() for name, p in one.policy.named_parameters()}
    figures = values_of(natural(one, limit)(pieces))
    assert 0 < figures["step_kl"] <= limit
    assert figures["line_search_frac"] > 0
    assert any(not torch.equal(p, before[name]) for name, p in one.policy.named_parameters())
    after = [replace(piece, is_first_update=False) for piece in policy_pieces(one)]
    _, _, told = learnt(one, after)
    assert told["approx_kl"] == pytest.approx(figures["step_kl"], rel=1e-9)
    assert told["loss"] < 0


def test_its_direction_gains_more_than_the_gradient_at_the_same_kl() -> None:
    one, other = scene("trpo"), scene("trpo")
    learnt(one, one.pieces(1))
    kl = values_of(natural(one, 1e-3)(one.pieces(1)))["step_kl"]
    gained = -learnt(one, [replace(piece, is_first_update=False) for piece in policy_pieces(one)])[2]["loss"]
    learnt(other, other.pieces(1))
    trained = [p for p in other.policy.parameters() if p.grad is not None]
    begin = [p.detach().clone() for p in trained]
    grads = [p.grad.clone() for p in trained if p.grad is not None]
    size, best = 1.0, 0.0
    for _ in range(40):
        for p, start, grad in zip(trained, begin, grads, strict=True):
            p.data.copy_(start - size * grad)
        told = learnt(other, [replace(piece, is_first_update=False) for piece in policy_pieces(other)])[2]
        if told["approx_kl"] <= kl:
            best = -float(told["loss"])
            break
        size *= 0.8
    assert gained > best > 0


def test_the_critic_is_left_to_the_optimiser() -> None:
    one = scene("trpo")
    learnt(one, one.pieces(1))
    assert one.critic is not None
    grads = {name: p.grad.clone() for name, p in one.critic.named_parameters() if p.grad is not None}
    natural(one, 0.01)(one.pieces(1))
    assert all(p.grad is None for p in one.policy.parameters())
    assert grads
    for name, p in one.critic.named_parameters():
        if name in grads:
            assert p.grad is not None
            torch.testing.assert_close(p.grad, grads[name])


def test_nothing_moves_where_no_advantage_is_left() -> None:
    one = scene("trpo", policy={})
    pieces = [piece for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch)]
    flat_told = replace(
        pieces[0].round.experience, advantage_NT=torch.zeros_like(pieces[0].round.experience.advantage_NT)
    )
    pieces = [replace(piece, round=replace(piece.round, experience=flat_told)) for piece in pieces]
    learnt(one, pieces)
    before = flat([p.detach() for p in one.policy.parameters()]).clone()
    figures = values_of(natural(one, 0.01)(pieces))
    assert figures == {"line_search_frac": 0.0, "step_kl": 0.0}
    assert torch.equal(flat([p.detach() for p in one.policy.parameters()]), before)


def test_in_a_run_the_limit_holds_at_every_round(tmp_path) -> None:
    place = make_place(tmp_path)
    went = well(place, "trpo", "out", "--rounds", 6, "--max-kl", 0.005, "--batch-size", 16)
    kls, shares = went.figures("step_kl"), went.figures("line_search_frac")
    assert len(kls) == 6
    assert all(0 <= kl <= 0.005 for kl in kls)
    assert any(shares)
    assert float(masked_mean(torch.tensor(kls), torch.tensor(kls) > 0)) > 1e-4
