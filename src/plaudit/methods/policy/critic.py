"""The critic: loaded from a reward model or the policy with a new head, saved beside the policy."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from plaudit.engine.distributed import unsharded
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.methods.models import gathered_model, narrow_as_configured, settle_layers
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.run import Run
from plaudit.models.load import is_reward_folder
from plaudit.models.reward_model import (
    FreshHead,
    RewardModel,
    load_reward_model,
    new_reward_model,
    refuse_other_tokenizer,
    save_reward_model,
)
from plaudit.models.verify import choose_layout
from plaudit.rewards.load import model_folder
from plaudit.tokens.encode import Encoder


def prepare_critic(
    config: PolicyConfig, run: Run, *, by_parts: bool = False
) -> tuple[RewardModel, list[str]]:
    """The starting critic, and what it was loaded from; divided where it can be read ``by_parts``."""
    folder = _critic_folder(config, run.encoder)
    numbers, cpu = run.precision, torch.device("cpu")
    # A head of zeros expects nothing at first, whatever the states are.
    head, note = FreshHead(seed=config.seed, std=0.0), f"critic: begins as {folder} with a new head"
    load: Any = partial(new_reward_model, folder, head)
    if is_reward_folder(folder):
        load, note = partial(load_reward_model, folder), f"critic: begins as the reward model {folder}"
    critic = None
    if by_parts and config.shard:
        from plaudit.methods.parts import read_reward_by_parts

        compute = numbers.products if numbers.mixed else None
        settings: Any = {"encoder": run.encoder, "dtype": numbers.weights, "compute": compute}
        critic = read_reward_by_parts(folder, head, run.ranks, **settings)
    if critic is None:
        model = load(encoder=run.encoder, dtype=numbers.weights, device=cpu)
        # With the reward's normalisation values begin on the scale of the scores that they shall predict.
        critic = RewardModel(model.model.to(run.ranks.device), normalisation=model.normalisation)
    critic.pooling = "last"
    settle_layers(critic, config)
    with unsharded(critic):
        layout, _ = choose_layout(critic, config.memory.layout)
        critic.use_layout(layout)
        notes = narrow_as_configured(critic.train(), config, numbers)
    return critic, [note, *(f"critic, {note}" for note in notes)]


def write_critic(critic: RewardModel, config: PolicyConfig, run: Run) -> None:
    """``critic/`` in the run folder: a reward model's folder, with which another run can begin."""
    whole = gathered_model(critic, lambda: prepare_critic(config, run)[0], run.ranks)
    if whole is None:
        return
    with atomic.atomic_folder(config.out / "critic") as partial:
        save_reward_model(whole, partial, template_of=config.model, encoder=run.encoder)


def _critic_folder(config: PolicyConfig, encoder: Encoder) -> Path:
    """The folder that the critic starts from; a named one must have the policy's tokens."""
    if config.critic.model is not None:
        folder = model_folder(config.critic.model)
        refuse_other_tokenizer(folder, encoder.info)
        return folder
    reward = None if config.reward is None else Path(config.reward)
    if reward is not None and reward.is_dir():
        folder = model_folder(reward)
        if is_reward_folder(folder):
            # A reward reads texts, so its tokenizer may differ; a critic reads the policy's own token ids.
            try:
                refuse_other_tokenizer(folder, encoder.info)
            except UserError:
                return config.model
            return folder
    return config.model
