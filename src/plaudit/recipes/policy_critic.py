"""The critic of a run: begun as a reward model or as the policy with a new head, and written beside it."""

from __future__ import annotations

from pathlib import Path

import torch

from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.models.files import is_reward_folder
from plaudit.models.proof import choose_layout
from plaudit.models.reward import RewardModel
from plaudit.models.reward_files import (
    FreshHead,
    load_reward_model,
    refuse_other_tokenizer,
    reward_model,
    save_reward_model,
)
from plaudit.recipes.learner import Start
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.rewards.folder import model_folder
from plaudit.training import durable


def prepare_critic(config: PolicyConfig, start: Start) -> tuple[RewardModel, str]:
    """The critic, and what it begins as."""
    folder = _folder(config, start.encoder)
    dtype, device = start.numbers.weights, start.ranks.device
    if is_reward_folder(folder):
        model = load_reward_model(folder, encoder=start.encoder, dtype=dtype, device=torch.device("cpu"))
        note = f"critic: begins as the reward model {folder}"
    else:
        # A head of zeros expects nothing at first, whatever the states are.
        head = FreshHead(seed=config.seed, std=0.0)
        model = reward_model(folder, head, encoder=start.encoder, dtype=dtype, device=torch.device("cpu"))
        note = f"critic: begins as {folder} with a new head"
    own = RewardModel(model.model.to(device), normalisation=model.normalisation)
    layout, _ = choose_layout(own, config.memory.layout)
    own.use_layout(layout)
    return own.train(), note


def write_critic(critic: RewardModel, config: PolicyConfig, encoder: Encoder) -> None:
    """``critic/`` in the run folder: a reward model's folder, with which another run can begin."""
    with durable.folder(config.out / "critic") as partial:
        save_reward_model(critic, partial, template_of=config.model, encoder=encoder)


def _folder(config: PolicyConfig, encoder: Encoder) -> Path:
    """The folder that it begins as; a named one must have the policy's tokens."""
    if config.critic.model is not None:
        folder = model_folder(config.critic.model)
        refuse_other_tokenizer(folder, encoder.info)
        return folder
    reward = None if config.reward is None else Path(config.reward)
    if reward is not None and reward.is_dir():
        folder = model_folder(reward)
        if is_reward_folder(folder):
            try:
                refuse_other_tokenizer(folder, encoder.info)
            except UserError:
                return config.model
            return folder
    return config.model
