"""The page of PPO: it makes the policy and the critic that its trainer makes."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from examples.by_hand.ppo import PpoSettings, ppo_by_hand
from plaudit.data.judging import Task
from plaudit.data.records import Prompt
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.reward_model import FreshHead, RewardModel, load_reward_model, new_reward_model
from plaudit.rewards.base import TaskScores
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import Encoder, make_encoder
from tests.methods.by_hand import WIDER, assert_same_weights
from tests.methods.policy.commands import make_place, well
from tests.methods.policy.test_grpo_by_hand import PROMPTS, SHORT, W33
from tests.rollouts.talkers import write_talker

CPU = torch.device("cpu")


class Silent:
    """No verdict on every other prompt, or on any."""

    name = "silent"

    def __init__(self, *, wholly: bool) -> None:
        self.wholly = wholly

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple((None if self.wholly or n % 2 else 7.0,) for n, _ in enumerate(tasks))


def parts(folder: Path, dtype: torch.dtype) -> tuple[Policy, Policy, RewardModel, Encoder]:
    """A policy, its reference, and a critic that expects nothing yet."""
    model, encoder = load_model(folder, dtype=dtype, device=CPU), make_encoder(folder)
    critic = new_reward_model(folder, FreshHead(std=0.0), encoder=encoder, dtype=dtype, device=CPU)
    return Policy(model), Policy(copy.deepcopy(model)), critic, encoder


@pytest.mark.one_in(2)
def test_the_page_and_the_trainer_make_the_same_policy_and_critic(device, tmp_path):
    """The page is worked through on the CPU, wherever the trainer is: the answers too are the same ones."""
    close = 1e-6 * WIDER[device.type]
    place = make_place(tmp_path)
    policy, reference, critic, encoder = parts(place.model, torch.float64)
    begun = copy.deepcopy((policy, critic))
    rows = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text("utf-8").splitlines()]
    prompts = [Prompt(prompt=row["prompt"]) for row in rows]
    # Round n of a run with seed 0 draws with seed n; the page's step n with its own seed + n, from 0.
    sampling = SamplingSettings(max_tokens=6, seed=1)
    settings = PpoSettings(
        steps=3, prompts=len(prompts), epochs=2, learning_rate=0.005, beta=0.1, vf_coef=0.3, sampling=sampling
    )
    scores = list(ppo_by_hand(policy, reference, critic, encoder, prompts, W33, settings))
    went = well(
        *(place, "ppo", "out", "--batch-size", len(prompts), "--held-out", 0, "--rounds", 3),
        *("--update-epochs", 2, "--kl-coef", 0.1, "--vf-coef", 0.3),
        *("--optimizer.schedule", "constant", "--dtype", "float64", "--sample.rows", 0),
        *("--device", device.type),
    )
    assert went.figures("reward")[::2] == pytest.approx(scores)
    trained = Policy(load_model(went.run / "model", dtype=torch.float64, device=CPU))
    assert_same_weights(trained, policy, begun[0], close)
    judge = load_reward_model(went.run / "critic", encoder=encoder, dtype=torch.float64, device=CPU)
    assert_same_weights(judge, critic, begun[1], close)


def test_answers_without_a_verdict_are_left_out_and_not_called_bad(tmp_path: Path) -> None:
    models = parts(write_talker(tmp_path), torch.float32)
    settings = PpoSettings(steps=1, epochs=1, sampling=SHORT)
    assert list(ppo_by_hand(*models, PROMPTS, Silent(wholly=False), settings)) == [7.0]
    with pytest.raises(UserError, match="silent has a verdict on none"):
        list(ppo_by_hand(*models, PROMPTS, Silent(wholly=True), settings))


def test_settings_that_would_teach_something_else_are_refused() -> None:
    with pytest.raises(UserError, match="tokens left out"):
        PpoSettings(sampling=SamplingSettings(top_p=0.9))
