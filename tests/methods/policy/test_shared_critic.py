"""A critic on the policy's own layers: the gradient of both losses, from one pass."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch, policy_objective
from plaudit.models.policy import Policy
from plaudit.models.reward_model import ValueHead
from plaudit.tensors.masked import masked_sum
from tests.methods.policy.commands import make_place, refused, well
from tests.methods.policy.pieces import Scene, learnt, move, scene


def shared(seed: int = 1) -> Scene:
    """PPO whose critic is a head on the policy, after both have moved a little."""
    one = scene("ppo")
    head = ValueHead(one.policy)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        head.score.weight.copy_(torch.randn(head.score.weight.shape, generator=generator))
    watchers = replace(one.watchers, critic=head)
    one.rounds.experience = replace(one.rounds.experience, models=watchers)
    improve = policy_objective(one.found, watchers, value_clip=0.2)
    return replace(one, critic=None, watchers=watchers, objective=improve)  # pyright: ignore[reportArgumentType]


def second_move(one: Scene) -> list[PolicyMicrobatch]:
    one.pieces(1)
    move(one.policy)
    found: Sequence[AnyMicrobatch] = one.pieces(2)
    return [replace(piece, is_first_update=False) for piece in found if isinstance(piece, PolicyMicrobatch)]


def plain_value_loss(one: Scene, pieces: Sequence[PolicyMicrobatch]) -> torch.Tensor:
    """½ max((V − R)², (clip(V) − R)²) a token, from a pass of its own."""
    head = one.watchers.critic
    assert isinstance(head, ValueHead)
    total = torch.zeros((), dtype=torch.float64)
    for piece in pieces:
        batch, row_n = piece.round.batch(piece.groups)
        told = piece.round.experience.rows(row_n, batch.mask_NT.shape[1], torch.device("cpu"))
        value_NT = head.values(batch)
        held_NT = told.value_NT + (value_NT - told.value_NT).clamp(-0.2, 0.2)
        squares_NT = torch.maximum((value_NT - told.return_NT) ** 2, (held_NT - told.return_NT) ** 2)
        total = total + 0.5 * masked_sum(squares_NT, batch.mask_NT) / piece.counts.tokens
    return total


def test_both_losses_reach_the_layers_that_they_share() -> None:
    one = shared()
    pieces = second_move(one)
    loss, found, _ = learnt(one, pieces)
    alone = policy_objective(one.found, replace(one.watchers, critic=None))
    one.policy.zero_grad(set_to_none=True)
    head = one.watchers.critic
    assert isinstance(head, ValueHead)
    head.zero_grad(set_to_none=True)
    wanted = torch.zeros((), dtype=torch.float64)
    for piece in pieces:
        wanted = wanted + alone(piece).loss
    wanted = wanted + 0.1 * plain_value_loss(one, pieces)
    wanted.backward()
    assert abs(loss - wanted.item()) < 1e-9
    for name, parameter in one.policy.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[f"policy.{name}"], parameter.grad, rtol=0, atol=1e-9, msg=name)


def test_it_begins_with_nothing_to_expect_and_is_no_part_of_the_policy() -> None:
    one = scene("ppo")
    head = ValueHead(one.policy)
    batch = next(p for p in one.pieces(1) if isinstance(p, PolicyMicrobatch)).round.batch
    place = next(p for p in one.pieces(1) if isinstance(p, PolicyMicrobatch)).groups
    assert not head.values(batch(place)[0]).any()
    assert [name for name, _ in head.named_parameters()] == ["score.weight"]
    assert not any(isinstance(module, Policy) for module in head.modules())


@pytest.mark.slow
def test_a_run_learns_with_it_goes_on_exactly_and_writes_the_policy_alone(tmp_path) -> None:
    place = make_place(tmp_path)
    usual = ("--critic.shared", "--value-lr-scale", 10, "--update-epochs", 2, "--save-every", 1)
    whole = well(place, "ppo", "whole", *usual, "--rounds", 4)
    assert not (whole.run / "critic").exists()
    assert whole.figures("value_mean")[-1] != 0
    assert "a head on the policy's own layers" in whole.said
    assert "finished" in well(place, "ppo", "whole", *usual, "--rounds", 4).said
    other = well(place, "ppo", "other", *usual, "--rounds", 4)
    weights = [load_file(run / "model" / "model.safetensors") for run in (whole.run, other.run)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_it_is_refused_where_it_would_move_the_policy_by_another_gradient(tmp_path) -> None:
    place = make_place(tmp_path)
    went = refused(place, "trpo", "out", "--critic.shared")
    assert "moves the policy by its own gradient alone" in went.said
    went = refused(place, "trpo", "out", "--ptx.data", place.folder / "prompts.jsonl")
    assert "ptx.data: trpo moves the policy by its own gradient alone" in went.said
    went = refused(place, "ppo", "out", "--critic.shared", "--critic.model", place.model)
    assert "leave out --critic.model" in went.said
