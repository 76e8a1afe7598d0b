"""The penalty's coefficient follows the KL; TR-PPO's trigger is the KL of whole distributions."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from plaudit.methods.policy import batch as batches, objective
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.methods.policy.row import SurrogateInputs
from plaudit.tokens.batch import batch_of
from tests.methods.policy.pieces import Scene, learnt, scene


def distributions(one: Scene) -> torch.Tensor:
    """log π over the vocabulary at every token of the script's answers, each through the model alone."""
    found: list[torch.Tensor] = []
    with torch.no_grad():
        for example in one.rounds.current.examples if one.rounds.current else ():
            for place in range(len(example.completions)):
                batch = batch_of([example.select([place])])
                found.append(one.policy.distributions(batch, temperature=one.watchers.temperature))
    return torch.cat(found)


def two_moves(coef: float, target: float, rate: float = 0.02) -> tuple[Scene, float, float]:
    """Two moves along plain gradients: the scene, its KL written out, and the last move's own figure."""
    settings = {"update_epochs": 2, "penalty_coef": coef, "penalty_coef_target": target, "kl_coef": 0.0}
    one = scene("ppo-penalty", policy=settings)
    told: dict[str, object] = {}
    old = torch.zeros(0)
    for step in (1, 2):
        pieces = one.pieces(step)
        if step == 1:
            old = distributions(one)
        _, _, told = learnt(one, pieces)
        with torch.no_grad():
            for weight in one.policy.parameters():
                if weight.grad is not None:
                    weight.sub_(rate * weight.grad)
        if step == 2:
            new = distributions(one)
        one.rounds.after_step(step, told)
    return one, float((old.exp() * (old - new)).sum(-1).mean()), float(told["approx_kl"])


@pytest.mark.parametrize(
    ("name", "settings"), [("ppo", {"target_kl": 9.0}), ("ppo-penalty", {}), ("trpo", {})]
)
def test_what_ends_rounds_and_moves_is_the_kl_of_whole_distributions(name, settings):
    """Over the answers that were just learnt the estimate would be another."""
    one = scene(name, policy={"kl_coef": 0.0, **({} if name == "trpo" else {"update_epochs": 2}), **settings})
    pieces = [replace(piece, is_first_update=False) for piece in one.pieces(1)]
    old = distributions(one)
    learnt(one, pieces)
    with torch.no_grad():
        for weight in one.policy.parameters():
            if weight.grad is not None:
                weight.sub_(0.02 * weight.grad)
    new = distributions(one)
    told = float(learnt(one, pieces)[2]["approx_kl"])
    assert told == pytest.approx(float((old.exp() * (old - new)).sum(-1).mean()), rel=1e-6)
    assert told > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("factor", "wanted"), [(1.6, 0.5), (1.4, 1.0), (1 / 1.4, 1.0), (1 / 1.6, 2.0)])
def test_the_coefficient_follows_the_kl_after_the_last_move(factor: float, wanted: float) -> None:
    """The target is set by the KL that is found; the figure of the last move itself is far from it."""
    _, kl, before = two_moves(1.0, 1e-3)
    assert before < kl / 1.5
    one, again, _ = two_moves(1.0, kl * factor)
    assert again == kl
    assert one.rounds.memory.beta == wanted


def test_a_larger_coefficient_is_seen_in_what_steers_it() -> None:
    free, held = two_moves(1e-3, 1.0)[1], two_moves(3.0, 1.0)[1]
    assert held < 0.9 * free


@pytest.mark.parametrize("nats", [0.5, 9.9, 15.0, 25.0, 60.0])
def test_a_token_that_has_become_far_likelier_is_pulled_back(nats: float) -> None:
    """Where e^ρ is cut off only −ρ would be left, and make such a token likelier still."""
    one = scene("ppo-penalty", policy={"update_epochs": 2, "kl_coef": 0.0})

    def loss(rho: float) -> float:
        def moved(piece: PolicyMicrobatch) -> PolicyMicrobatch:
            told = piece.round.experience
            old_logp_NT, none_NT = told.old_logp_NT - rho, torch.zeros_like(told.advantage_NT)
            told = replace(told, old_logp_NT=old_logp_NT, advantage_NT=none_NT, return_NT=told.value_NT)
            return replace(piece, round=replace(piece.round, experience=told), is_first_update=False)

        pieces = [piece for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch)]
        return learnt(one, [moved(piece) for piece in pieces])[0]

    assert (loss(nats + 1e-3) - loss(nats)) / 1e-3 == pytest.approx(math.expm1(min(nats, 10.0)), rel=1e-2)


TWICE = {"update_epochs": 2}


def seen(one: Scene, step: int) -> list[SurrogateInputs]:
    """What the surrogate is given at a move, piece by piece."""
    found: list[SurrogateInputs] = []
    inner = one.found.surrogate

    def spying(inputs: SurrogateInputs, /) -> torch.Tensor:
        found.append(inputs)
        return inner(inputs)

    spying.needs = frozenset({"old_distribution"})
    improve = objective.policy_objective(replace(one.found, surrogate=spying), one.watchers)
    for piece in one.pieces(step):
        assert isinstance(piece, PolicyMicrobatch)
        improve(piece)
    return found


def flat(found: list[SurrogateInputs], name: str) -> torch.Tensor:
    return torch.cat([getattr(inputs, name).detach()[inputs.mask_NT] for inputs in found])


def test_two_tokens_of_the_same_ratio_are_not_treated_alike() -> None:
    """A function of the ratio would put tokens in the order of |ln r|; the KL does not."""
    one = scene("tr-ppo", policy=TWICE)
    one.pieces(1)
    one.move(0.05)
    found = seen(one, 2)
    ratio, kl = flat(found, "ratio_NT"), flat(found, "whole_old_kl_NT")
    own = flat(found, "old_kl_NT")
    assert (kl > 0).all()
    assert ((kl > 0.025) & (own < 0.025)).any(), "its token has hardly moved, the others have"
    assert ((kl < 0.025) & (own > 0.025)).any(), "a rare token has moved, the distribution has not"
    below, above = 1 - 0.2073, 1 + 0.2406
    assert ((ratio < below) | (ratio > above) != (kl >= 0.025)).float().mean() > 0.05


def test_at_a_rounds_beginning_it_is_0() -> None:
    assert flat(seen(scene("tr-ppo", policy=TWICE), 1), "whole_old_kl_NT").abs().max() < 1e-12


@pytest.mark.parametrize("top", [1, 4, 61])
def test_with_few_tokens_kept_it_is_a_lower_bound(top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "OLD_TOP_TOKENS", top)
    one = scene("tr-ppo", policy=TWICE)
    [piece] = one.pieces(1)
    assert isinstance(piece, PolicyMicrobatch)
    batch = piece.round.batch(piece.groups)[0]
    old_MV = one.policy.distributions(batch, temperature=one.watchers.temperature).detach()
    one.move(0.05)
    new_MV = one.policy.distributions(batch, temperature=one.watchers.temperature).detach()
    exact_M = kl_divergence(Categorical(logits=old_MV), Categorical(logits=new_MV))
    learnt(one, [replace(piece, is_first_update=False)])
    [inputs] = seen(replace(one, rounds=_Once(replace(piece, is_first_update=False))), 1)
    found_M = inputs.whole_old_kl_NT[inputs.mask_NT]
    assert (found_M <= exact_M + 1e-12).all()
    if top == 61:
        torch.testing.assert_close(found_M, exact_M)
    else:
        assert (found_M < exact_M - 1e-6).any()


class _Once:
    def __init__(self, piece: PolicyMicrobatch) -> None:
        self.piece, self.updates_per_round = piece, 1

    def rounds(self, first: int, batch_rows: object) -> Any:
        yield None

    def microbatches(self, step: int, policy_round: object) -> list[PolicyMicrobatch]:
        return [self.piece]


def test_a_round_of_one_move_keeps_no_distribution() -> None:
    [piece] = scene("tr-ppo", policy={"update_epochs": 1, "divergence": "none"}).pieces(1)
    assert isinstance(piece, PolicyMicrobatch)
    assert piece.round.experience.old_top_NTK is None
