"""From a config to a reward model ready for training, its fast path verified; from there to its folder."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from plaudit.data.read import read_records
from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.methods.models import enable_gradient_checkpointing, gather_weights
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.supervised.objective import AutocastContext
from plaudit.methods.supervised.run import require_demonstrations
from plaudit.models.load import Precision, is_reward_folder
from plaudit.models.lora import save_adapter
from plaudit.models.reward_files import FreshHead, load_reward_model, new_reward_model, save_reward_model
from plaudit.models.reward_model import Normalisation, RewardModel
from plaudit.models.verify import choose_layout
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder, encode_rows
from plaudit.tokens.microbatch import micro_batches_in_order
from plaudit.tokens.preferences import JudgedRow, RatingLabel


def prepare_reward_model(
    config: RewardConfig, encoder: Encoder, precision: Precision, ranks: Ranks
) -> tuple[RewardModel, list[str]]:
    """The starting reward model with its head, adapters and verified layout; not sharded yet."""
    model, notes = starting_reward_model(config, encoder, precision.weights, ranks.device)
    if config.memory.checkpointing:
        enable_gradient_checkpointing(model.base)
    if config.lora.rank:
        model = model.with_adapters(config.lora)
    layout, note = choose_layout(model, config.memory.layout)
    model.use_layout(layout)
    model.train()
    return model, notes if note is None else [*notes, note]


def starting_reward_model(
    config: RewardConfig, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> tuple[RewardModel, list[str]]:
    """A language model's layers with a new head, or a reward model's own head where the folder has one."""
    setting = config.reward.pooling
    if is_reward_folder(config.model):
        if config.reward.head_std is not None:
            raise UserError(
                f"{config.model}: this reward model has its head already: leave out --reward.head-std"
            )
        model = load_reward_model(config.model, encoder=encoder, dtype=dtype, device=device)
        notes = [f"{config.model} is a reward model already: it goes on with its own head"]
        pooling = model.pooling if setting == "auto" else setting
    else:
        pooling = "last" if setting == "auto" else setting
        seed = config.seed + 7919 * (config.ensemble.member or 0)
        head = FreshHead(seed=seed, std=config.reward.head_std, pooling=pooling)
        model = new_reward_model(config.model, head, encoder=encoder, dtype=dtype, device=device)
        notes = []
    attention = config.memory.attention
    normalisation = model.normalisation
    return RewardModel(model.model, pooling=pooling, normalisation=normalisation, attention=attention), notes


def normalisation_for_ratings(rows: Sequence[JudgedRow]) -> Normalisation:
    """Makes head outputs of mean 0 and deviation 1 ratings: reward = raw · deviation + mean."""
    scores = [row.judgement.score for row in rows if isinstance(row.judgement, RatingLabel)]
    mean, deviation = statistics.fmean(scores), statistics.pstdev(scores)
    return Normalisation(offset=-mean / deviation, scale=1 / deviation)


def normalisation_examples(config: RewardConfig, encoder: Encoder) -> tuple[tuple[Example, ...], list[str]]:
    """The demonstrations whose mean reward shall be 0, if any, and notes for the user."""
    path = config.reward.normalise
    if path is None:
        return (), []
    reading = read_records(path, threshold=config.rows.threshold)
    encoding = encode_rows(
        require_demonstrations(reading.records, "reward.normalise"), encoder, config.max_length
    )
    left_out = [
        *(problem.message for problem in reading.problems),
        *(refused.reason for refused in encoding.refused),
    ]
    if not encoding.examples:
        raise UserError(f"{path}: no demonstration can be used ({'; '.join(left_out[:1]) or 'it has none'})")
    note = f"{path.name}: {len(encoding.examples)} demonstrations shall score 0 on average"
    return encoding.examples, [
        f"{note}; {len(left_out)} cannot be used ({left_out[0]} …)" if left_out else note
    ]


def mean_reward(
    model: RewardModel, examples: Sequence[Example], tokens_at_once: int, arithmetic: AutocastContext
) -> float:
    """The mean reward of all completions; with sharded weights every rank must call it."""
    rewards: list[float] = []
    ordered = sorted(examples, key=lambda example: example.tokens)
    with torch.no_grad(), arithmetic():
        for microbatch in micro_batches_in_order(ordered, tokens_at_once):
            rewards += model.rewards(batch_of(microbatch).to(model.device)).tolist()
    return statistics.fmean(rewards)


def write_reward_model(model: RewardModel, config: RewardConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    weights = gather_weights(model, ranks)
    if not ranks.is_first:
        return
    if weights is not None:
        normalisation, dtype = model.normalisation, next(iter(weights.values())).dtype
        model, _ = starting_reward_model(config, encoder, dtype, torch.device("cpu"))
        model.normalisation = normalisation
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
    if config.lora.rank:
        with atomic.atomic_folder(config.out / "adapter") as partial:
            save_adapter(model.model, partial)
        model = model.merged()
    with atomic.atomic_folder(config.out / "model") as partial:
        save_reward_model(model, partial, template_of=config.model, encoder=encoder)


def body_size(model: RewardModel) -> int:
    """Numbers in the matrices that every token is multiplied with."""
    embedding_ids = {id(p) for p in model.base.get_input_embeddings().parameters()}
    return sum(p.numel() for p in model.parameters() if p.ndim >= 2 and id(p) not in embedding_ids)
