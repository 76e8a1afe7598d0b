"""TR-PPO's trigger is the KL of whole distributions, and no clip of the ratio by another name."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from plaudit.methods.policy import batch as batches, objective
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.methods.policy.row import SurrogateInputs
from tests.methods.policy.pieces import Scene, learnt, scene

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
