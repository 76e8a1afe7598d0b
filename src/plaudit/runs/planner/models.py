"""Every model of a run on the meta device: what is trained, the reference and the scorers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import OptimizerSettings
from plaudit.files.model_folder import read_json_object
from plaudit.methods.config import RunConfig
from plaudit.methods.models import matrix_sizes, settle_layers
from plaudit.methods.policy.config import POLICY, PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig, configured_algorithm
from plaudit.methods.reference import settled_reference
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.models import adapters, load
from plaudit.models.adapters import four_bit_layers, level_pairs, numbers_in_four_bits
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel, keep_first_layers
from plaudit.rewards.kinds import names_function
from plaudit.rewards.load import loaded_model_folders, model_folder
from plaudit.runs.planner.machine import Machine
from plaudit.tokens.microbatch import Layout

LIVE, CACHED, ADAPTER_OFF, NONE = "live", "kept", "beneath", "none"
"""A reference beside the policy, its log-probs alone, the model beneath the adapters, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    trained: int
    frozen: int
    bytes: int

    @property
    def total(self) -> int:
        return self.trained + self.frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerModel:
    """A reward or judge with a model of its own, which is never trained."""

    name: str
    folder: Path
    size: ModelSize


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunModels:
    trained_model: Policy | RewardModel
    critic: RewardModel | None
    reference_kind: str
    reference_model: Policy | None
    scorers: tuple[ScorerModel, ...]
    numbers: load.Precision
    unsized_rewards: tuple[str, ...]
    """Rewards whose memory cannot be known."""


def multiplied_numbers(model: Policy | RewardModel) -> int:
    """Numbers that each token is multiplied with: all matrices, an untied embedding left out."""
    if isinstance(model, Policy):
        return sum(matrix_sizes(model))
    embedding: Any = model.base.get_input_embeddings()
    numbers = sum(p.numel() for p in model.parameters() if p.ndim >= 2) + numbers_in_four_bits(model)
    return numbers - embedding.weight.numel()


def load_run_models(method: str, config: RunConfig, machine: Machine, rows: Sequence[object]) -> RunModels:
    run_precision = load.precision(config.dtype, machine.device)
    kind = reference_kind(method, config, rows)
    learner = _meta_reward_model(config) if isinstance(config, RewardConfig) else _meta_policy(config)
    divided = config.shard and machine.ranks > 1
    _in_run_numbers(learner, run_precision, divided=divided)
    reference_model = None
    if kind == LIVE:
        assert isinstance(config, PreferenceConfig | PolicyConfig)
        reference_model = Policy(load.empty_model(config.reference.model or config.model))
        reference_model.use_layout(_layout_of(reference_model, config))
        reference_model.requires_grad_(False).eval()
        if config.reference.kind == "average":
            reference_model.to(run_precision.weights)
        else:
            reference_model.to(run_precision.products)
    scorers, unsized_rewards = _scorer_models(config, machine)
    critic = _meta_critic(method, config)
    return RunModels(
        trained_model=learner.train(),
        critic=None if critic is None else _in_run_numbers(critic, run_precision, divided=divided).train(),
        reference_kind=kind,
        reference_model=reference_model,
        scorers=scorers,
        numbers=run_precision,
        unsized_rewards=unsized_rewards,
    )


_Learner = TypeVar("_Learner", bound=Policy | RewardModel)


def _in_run_numbers(learner: _Learner, numbers: load.Precision, *, divided: bool) -> _Learner:
    learner.to(numbers.weights)
    if numbers.mixed:
        learner.compute_in(numbers.products)
    if divided:
        learner.backbone.release_narrowed()
    if four_bit_layers(learner):
        # Made once in a process: a plan that came first would count it, and one after it would not.
        level_pairs(numbers.products, torch.device("meta"))
    return learner


def model_size(module: nn.Module) -> ModelSize:
    """The weights of a module, tied ones counted once."""
    parameters = list(module.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    layers = four_bit_layers(module)
    # Two of these weights are one number of the parameters that hold them.
    held = sum(layer.codes.numel() + layer.scale_bits.numel() for layer in layers)
    frozen = sum(p.numel() for p in parameters) - trained - held + numbers_in_four_bits(module)
    return ModelSize(
        trained=trained, frozen=frozen, bytes=sum(p.numel() * p.element_size() for p in parameters)
    )


def stored_number_bytes(folder: Path) -> int:
    """The bytes of a number in a folder's files: as config.json says where the files are not here."""
    if load.has_weights(folder):
        dtype = load.stored_dtype(folder)
    else:
        facts = read_json_object(folder / "config.json")
        dtype = getattr(torch, str(facts.get("dtype") or facts.get("torch_dtype")), None)
    return (dtype or torch.float32).itemsize


def reference_kind(method: str, config: RunConfig, rows: Sequence[object]) -> str:
    """Where a run's reference log-probs come from; live where it is short for these ``rows``."""
    if isinstance(config, PreferenceConfig):
        if "reference" not in configured_algorithm(method, config).needs:
            return NONE
        kind = settled_reference(config, rows).reference.kind
        if kind in ("auto", "precomputed"):
            return CACHED
    elif isinstance(config, PolicyConfig):
        kind = config.reference.kind
        if kind == "none":
            return NONE
    else:
        return NONE
    same = config.reference.model in (None, config.model)
    return ADAPTER_OFF if same and config.lora.rank and not config.lora.keep and kind != "average" else LIVE


def _meta_policy(config: RunConfig) -> Policy:
    # The policy as ``prepare_policy`` makes it, without verifying its layout, which needs weights.
    model = load.empty_model(config.model)
    if config.lora.rank:
        with torch.device("meta"):
            model = adapters.with_lora(model, config.lora)
    policy = Policy(model, attention=config.memory.attention)
    settle_layers(policy, config)
    policy.use_layout(_layout_of(policy, config))
    return policy


def _layout_of(model: Policy | RewardModel, config: RunConfig) -> Layout:
    return config.memory.layout if model.backbone.can_replace_attention else "right"


def _meta_reward_model(config: RewardConfig) -> RewardModel:
    model = _meta_classifier(config.model, config)
    if config.lora.rank:
        with torch.device("meta"):
            model = model.with_adapters(config.lora)
    settle_layers(model, config)
    model.use_layout(_layout_of(model, config))
    return model


def _meta_classifier(folder: Path, config: RunConfig) -> RewardModel:
    pooling = config.reward.pooling if isinstance(config, RewardConfig) else "last"
    base = load.empty_model(folder, AutoModelForSequenceClassification, num_labels=1)
    if isinstance(config, RewardConfig) and config.reward.layer is not None:
        keep_first_layers(base, config.reward.layer)
    return RewardModel(
        base, pooling="last" if pooling == "auto" else pooling, attention=config.memory.attention
    )


def _meta_critic(method: str, config: RunConfig) -> RewardModel | None:
    if (
        not isinstance(config, PolicyConfig)
        or config.critic.shared
        or "critic" not in POLICY.configured(method, config).needs
    ):
        return None
    folder = config.critic.model or config.model
    reward = None if config.reward is None else Path(config.reward)
    if config.critic.model is None and reward is not None and reward.is_dir():
        folder = model_folder(reward) if load.is_reward_folder(model_folder(reward)) else folder
    model = _meta_classifier(model_folder(folder), config)
    settle_layers(model, config)
    model.use_layout(_layout_of(model, config))
    return model


def _scorer_models(config: RunConfig, machine: Machine) -> tuple[tuple[ScorerModel, ...], tuple[str, ...]]:
    if not isinstance(config, PolicyConfig):
        return (), ()
    words = {
        "reward": config.reward,
        "reward of steps": config.process.by,
        "judge": config.judge.by,
        "environment": config.environment,
    }
    named = {name: word for name, word in words.items() if word is not None}
    scorers: list[ScorerModel] = []
    dtype = load.precision("auto", machine.device).products
    for name, word in named.items():
        folders = loaded_model_folders(Path(word)) if Path(word).is_dir() else ()
        scorers += [
            ScorerModel(name=name, folder=folder, size=_folder_size(folder, dtype)) for folder in folders
        ]
    unsized = [f"{name} {word}" for name, word in named.items() if names_function(word)]
    return tuple(scorers), tuple(unsized)


def _folder_size(folder: Path, dtype: torch.dtype) -> ModelSize:
    if load.is_reward_folder(folder):
        model: Any = load.empty_model(folder, AutoModelForSequenceClassification, num_labels=1)
    else:
        model = load.empty_model(folder)
    return model_size(model.to(dtype))


def optimizer_state(settings: OptimizerSettings) -> dict[str, tuple[bool, torch.dtype]]:
    """The optimiser's state: whether each tensor has the weight's shape, and its dtype; by trial."""
    module = nn.Linear(64, 64, bias=False)
    optimizer = make_optimizer(module, 1e-3, settings)
    module.weight.grad = torch.zeros_like(module.weight)
    optimizer.step()
    state = {
        key: item for key, item in optimizer.state[module.weight].items() if isinstance(item, torch.Tensor)
    }
    return {key: (item.shape == module.weight.shape, item.dtype) for key, item in state.items()}
