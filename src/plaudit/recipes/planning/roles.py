"""Every model of a run, with shapes and no numbers: what learns, what is only asked, how large each is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from plaudit.models.adapters import with_lora
from plaudit.models.files import Precision, empty_model, is_reward_folder, precision
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel
from plaudit.recipes.config import RunConfig
from plaudit.recipes.placing import recompute
from plaudit.recipes.planning.machine import Machine
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_rows import chosen
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_rows import row_of
from plaudit.recipes.references import short_run
from plaudit.recipes.reward_config import RewardConfig
from plaudit.rewards.folder import model_folder, models_of
from plaudit.rewards.named import is_function

LIVE, KEPT, BENEATH, NONE = "live", "kept", "beneath", "none"
"""A reference beside the policy, its log-probs alone, the model beneath the adapters, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many numbers a model has.

    Example: ``size_of(policy).trained``
    """

    trained: int
    """Those that learn."""
    frozen: int
    """Those that do not."""
    bytes: int
    """What all of them take."""

    @property
    def every(self) -> int:
        """All."""
        return self.trained + self.frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A model that is in memory and never learns.

    Example: ``Asked(name="reward", folder=Path("runs/rm/model"), size=size)``
    """

    name: str
    """What it is there for."""
    folder: Path
    """Where it is."""
    size: Size
    """How large it is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roles:
    """All models of a run.

    Example: ``roles_of("ppo", config, machine).policy``
    """

    learner: Policy | RewardModel
    """What is trained, with its adapters."""
    critic: RewardModel | None
    """What learns beside it."""
    reference: str
    """Where log-probs of a reference come from."""
    frozen: Policy | None
    """A reference that has weights of its own."""
    asked: tuple[Asked, ...]
    """Rewards and judges with models of their own."""
    numbers: Precision
    """What weights and products are kept in."""
    unknown: tuple[str, ...]
    """Rewards of which nobody knows what they take."""


def roles_of(method: str, config: RunConfig, machine: Machine, rows: int) -> Roles:
    """The models that a run of this config loads, which learns from so many rows."""
    numbers = precision(config.dtype, machine.device)
    reference = reference_kind(method, config, rows)
    learner = _scorer(config) if isinstance(config, RewardConfig) else _policy(config)
    learner.to(numbers.weights)
    frozen = None
    if reference == LIVE:
        assert isinstance(config, PreferenceConfig | PolicyConfig)
        frozen = Policy(empty_model(AutoModelForCausalLM, config.reference.model or config.model))
        frozen.use_layout(config.memory.layout)
        frozen.requires_grad_(False).eval().to(numbers.weights)
    asked, unknown = _asked(config, machine)
    critic = _critic(method, config)
    return Roles(
        learner=learner.train(),
        critic=None if critic is None else critic.to(numbers.weights).train(),
        reference=reference,
        frozen=frozen,
        asked=asked,
        numbers=numbers,
        unknown=unknown,
    )


def size_of(module: nn.Module) -> Size:
    """Its parameters, each tied one once."""
    parameters = list(module.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    return Size(
        trained=trained,
        frozen=sum(p.numel() for p in parameters) - trained,
        bytes=sum(p.numel() * p.element_size() for p in parameters),
    )


def reference_kind(method: str, config: RunConfig, rows: int) -> str:
    """Where a run has its reference's log-probs from; a short run of many ``rows`` asks it each time."""
    if isinstance(config, PreferenceConfig):
        if not row_of(method, config.preference).referenced:
            return NONE
        kind = short_run(config, rows).reference.kind
        if kind in ("auto", "precomputed"):
            return KEPT
    elif isinstance(config, PolicyConfig):
        kind = config.reference.kind
        if kind == "none":
            return NONE
    else:
        return NONE
    same = config.reference.model in (None, config.model)
    return BENEATH if same and config.lora.rank and kind != "average" else LIVE


def _policy(config: RunConfig) -> Policy:
    """As ``prepare_policy``, without the proof, which needs weights."""
    model = empty_model(AutoModelForCausalLM, config.model)
    if config.memory.checkpointing:
        recompute(model)
    if config.lora.rank:
        with torch.device("meta"):
            model = with_lora(model, config.lora)
    policy = Policy(model, attention=config.memory.attention)
    policy.use_layout(config.memory.layout)
    return policy


def _scorer(config: RewardConfig) -> RewardModel:
    """As ``prepare_scorer``."""
    model = _classifier(config.model, config)
    if config.memory.checkpointing:
        recompute(model.base)
    if config.lora.rank:
        with torch.device("meta"):
            model = model.adapted(config.lora)
    model.use_layout(config.memory.layout)
    return model


def _classifier(folder: Path, config: RunConfig) -> RewardModel:
    pooling = config.reward.pooling if isinstance(config, RewardConfig) else "last"
    base = empty_model(AutoModelForSequenceClassification, folder, num_labels=1)
    return RewardModel(
        base, pooling="last" if pooling == "auto" else pooling, attention=config.memory.attention
    )


def _critic(method: str, config: RunConfig) -> RewardModel | None:
    if not isinstance(config, PolicyConfig) or config.critic.shared or not chosen(method, config).row.critic:
        return None
    folder = config.critic.model or config.model
    reward = None if config.reward is None else Path(config.reward)
    if config.critic.model is None and reward is not None and reward.is_dir():
        folder = model_folder(reward) if is_reward_folder(model_folder(reward)) else folder
    model = _classifier(model_folder(folder), config)
    model.use_layout(config.memory.layout)
    return model


def _asked(config: RunConfig, machine: Machine) -> tuple[tuple[Asked, ...], tuple[str, ...]]:
    if not isinstance(config, PolicyConfig):
        return (), ()
    words = {
        "reward": config.reward,
        "reward of steps": config.process.by,
        "judge": config.judge.by,
        "environment": config.environment,
    }
    said = {name: word for name, word in words.items() if word is not None}
    found: list[Asked] = []
    own = precision("auto", machine.device).products
    for name, word in said.items():
        folders = models_of(Path(word)) if Path(word).is_dir() else ()
        found += [Asked(name=name, folder=folder, size=_size_in(folder, own)) for folder in folders]
    unknown = [f"{name} {word}" for name, word in said.items() if is_function(word)]
    return tuple(found), tuple(unknown)


def _size_in(folder: Path, dtype: torch.dtype) -> Size:
    if is_reward_folder(folder):
        model: Any = empty_model(AutoModelForSequenceClassification, folder, num_labels=1)
    else:
        model = empty_model(AutoModelForCausalLM, folder)
    return size_of(model.to(dtype))
