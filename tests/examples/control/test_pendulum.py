"""The pendulum obeys mechanics, and nothing about it needs luck to be repeated."""

import math
from dataclasses import replace

import pytest
import torch

from examples.control.pendulum import Actor, Pendulum, collect_episodes, observe, step_features, true_reward
from plaudit.errors import UserError


def swing(pendulum, angle, pushes):
    state_N2 = torch.tensor([[angle, 0.0]])
    for push in pushes:
        state_N2 = pendulum.step(state_N2, torch.tensor([push]))
        yield state_N2


def test_a_small_swing_takes_two_pi():
    free = Pendulum(tick=0.01, friction=0.0)
    angles = [state[0, 0].item() - math.pi for state in swing(free, math.pi + 0.05, [1] * 1000)]
    back = max(range(500, 800), key=angles.__getitem__)
    assert 0.01 * (back + 1) == pytest.approx(2 * math.pi, abs=0.03)


def test_without_a_push_it_never_rises_above_where_it_was_let_go():
    assert max([state[0, 0].cos().item() for state in swing(Pendulum(), math.pi / 2, [1] * 300)]) < 0.05


def test_the_motor_is_too_weak_to_lift_it_without_a_swing():
    assert max([state[0, 0].cos().item() for state in swing(Pendulum(), math.pi, [2] * 300)]) < 0.5


def test_left_and_right_are_the_same():
    left, right = (
        list(swing(Pendulum(), math.pi, pushes))[-1] for pushes in ([0, 0, 2, 1, 0], [2, 2, 0, 1, 2])
    )
    assert left[0, 0].sin().item() == pytest.approx(-right[0, 0].sin().item(), abs=1e-5)
    assert left[0, 1].item() == pytest.approx(-right[0, 1].item(), abs=1e-5)


def test_the_true_reward_is_best_where_it_stands_still_and_left_alone():
    stands = step_features(observe(torch.zeros(3, 2)), torch.tensor([0, 1, 2]))
    assert true_reward(stands).tolist() == pytest.approx([0.99, 1.0, 0.99])
    hangs = step_features(observe(torch.tensor([[math.pi, 2.0]])), torch.tensor([1]))
    assert true_reward(hangs).item() == pytest.approx(-1.4)


def test_the_same_seed_is_the_same_episode_and_what_was_written_down_is_true():
    actor = Actor(torch.Generator().manual_seed(0))
    one, again, other = (
        collect_episodes(actor, Pendulum(steps=9), copies=5, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one.feature_NTF, again.feature_NTF)
    assert not torch.equal(one.feature_NTF, other.feature_NTF)
    logp_NTA, value_NT = actor(one.observation_NTO)
    torch.testing.assert_close(one.logp_NT, logp_NTA.gather(-1, one.action_NT[..., None]).squeeze(-1))
    torch.testing.assert_close(one.value_NT, value_NT)
    assert one.feature_NTF.shape == (5, 9, 4)


@pytest.mark.parametrize("fault", [{"steps": 0}, {"tick": 0.0}])
def test_an_episode_of_nothing_is_refused(fault):
    with pytest.raises(UserError):
        replace(Pendulum(), **fault)
