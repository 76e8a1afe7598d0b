"""The first move of a round needs no pass of its own: log-probs and values of before came of the same one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from plaudit.engine.step_report import Number
from plaudit.methods.policy.batch import FirstPass, GroupRef
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.models.reward_model import RewardModel
from tests.methods.policy.commands import make_place, well
from tests.methods.policy.pieces import Scene, learnt, scene
from tests.methods.policy.test_shared_critic import shared

METHODS = ("ppo", "grpo", "dapo", "reinforce-pp", "ppo-penalty", "tr-ppo", "online-dpo")
"""Rows with a critic and without, with entropies, distributions and pairs; all of several moves here."""


def first_pieces(one: Scene, number: int) -> list[PolicyMicrobatch]:
    found = one.pieces(1 + (number - 1) * one.rounds.updates_per_round)
    return [piece for piece in found if isinstance(piece, PolicyMicrobatch)]


def same(one: Scene, pieces: Sequence[PolicyMicrobatch]) -> None:
    loss, gradients, figures = learnt(one, pieces)
    assert learnt(one, pieces)[2] == figures, "taken twice"
    wanted_loss, wanted_gradients, wanted = learnt(
        one, [replace(piece, round=replace(piece.round, first_pass=None)) for piece in pieces]
    )
    assert (loss, figures) == (wanted_loss, wanted)
    assert gradients.keys() == wanted_gradients.keys()
    assert all(torch.equal(gradients[name], wanted_gradients[name]) for name in gradients)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", ["packed", "right"])
@pytest.mark.parametrize("name", METHODS)
def test_what_is_learnt_is_the_same_to_the_last_bit(name: str, layout: str) -> None:
    one = scene(name, layout=layout, tokens_at_once=20)
    pieces = first_pieces(one, 2)
    first = pieces[0].round.first_pass
    assert first is not None
    assert first.groups == pieces[0].groups
    assert len(pieces) > 1 or name == "online-dpo"
    has_distributions = "old_distribution" in one.found.needs
    assert (first.scores is None) == (has_distributions or not one.rounds.experience.needs_old_logps)
    assert (first.value_NT is None) == (one.critic is None)
    same(one, pieces)
    assert first.scores is None
    assert first.value_NT is None


def test_a_critic_on_the_policys_layers_is_read_off_the_same_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    one = shared()
    pieces = first_pieces(one, 2)
    calls = list[int]()
    read = one.policy.backbone.read

    def counted(*given: object) -> tuple[torch.Tensor, ...]:
        calls.append(1)
        return read(*given)  # pyright: ignore

    monkeypatch.setattr(one.policy.backbone, "read", counted)
    one.rounds.current = None
    # One pass a micro-batch of the first epoch for log-probs and values, and none more for the first move.
    pieces = first_pieces(one, 3)
    epoch = sum(len(minibatch) > 0 for minibatch in pieces[0].round.minibatches(1, 2, 0)[0])
    assert len(calls) == epoch
    learnt(one, pieces)
    assert len(calls) == epoch
    one.rounds.current = None
    monkeypatch.undo()
    same(one, first_pieces(one, 2))


def test_only_the_first_micro_batch_of_the_first_move_waits() -> None:
    one = scene("ppo", tokens_at_once=20)
    first = first_pieces(one, 2)[0].round.first_pass
    assert first is not None
    assert first.scores is not None
    assert first.take((GroupRef(group=99, tokens=3),)) == (None, None)
    assert first.scores is not None
    later = one.pieces(2 + one.rounds.updates_per_round)
    assert not any(piece.is_first_update for piece in later if isinstance(piece, PolicyMicrobatch))
    # In the first round of a run the first move is computed for itself: dropout shows there.
    assert first_pieces(scene("ppo"), 1)[0].round.first_pass is None


@pytest.mark.slow
def test_a_whole_run_makes_the_same_model(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_place(tmp_path)
    usual = ("--rounds", 3, "--group-size", 2, "--update-epochs", 2, "--minibatches", 2)
    values = list[int]()
    critic_values = RewardModel.values

    def counted(model: RewardModel, *given: object, **named: object) -> torch.Tensor:
        values.append(1)
        return critic_values(model, *given, **named)  # pyright: ignore

    monkeypatch.setattr(RewardModel, "values", counted)
    whole = well(place, "ppo", "waited", *usual)
    fewer = len(values)
    values.clear()
    monkeypatch.setattr(FirstPass, "take", lambda first, groups: (None, None))
    other = well(place, "ppo", "anew", *usual)
    # Rounds 2 and 3 have spared a pass each.
    assert len(values) == fewer + 2
    weights = [load_file(run / "model" / "model.safetensors") for run in (whole.run, other.run)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert [learnt_from(line) for line in whole.lines] == [learnt_from(line) for line in other.lines]


def learnt_from(line: dict[str, Number]) -> dict[str, Number]:
    names = ("loss", "reward", "kl", "approx_kl", "value_loss", "grad_norm", "ratio")
    return {name: line[name] for name in names}
