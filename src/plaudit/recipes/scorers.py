"""From a config to a reward model that is proven and ready to learn; and from there to a folder."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from plaudit.batches.judged import JudgedRow, Rated
from plaudit.batches.rows import encode_rows
from plaudit.batches.split import in_order
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example, batch_of
from plaudit.errors import UserError
from plaudit.models.adapters import save_adapter
from plaudit.models.files import Precision, is_reward_folder
from plaudit.models.proof import choose_layout
from plaudit.models.reward import Normalisation, RewardModel
from plaudit.models.reward_files import FreshHead, load_reward_model, reward_model, save_reward_model
from plaudit.recipes.placing import recompute, whole_weights
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.sft import demonstrations
from plaudit.sources.read import read_records
from plaudit.training import durable
from plaudit.training.parallel import Ranks
from plaudit.training.supervised import Arithmetic


def prepare_scorer(
    config: RewardConfig, encoder: Encoder, numbers: Precision, ranks: Ranks
) -> tuple[RewardModel, list[str]]:
    """The starting model: a new head or its own, adapters, its fast path proven; still whole."""
    model, notes = begin_scorer(config, encoder, numbers.weights, ranks.device)
    if config.memory.checkpointing:
        recompute(model.base)
    if config.lora.rank:
        model = model.adapted(config.lora)
    layout, note = choose_layout(model, config.memory.layout)
    model.use_layout(layout)
    model.train()
    return model, notes if note is None else [*notes, note]


def begin_scorer(
    config: RewardConfig, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> tuple[RewardModel, list[str]]:
    """A language model's layers with a new head, or a reward model that goes on."""
    wanted = config.reward.pooling
    if is_reward_folder(config.model):
        if config.reward.head_std is not None:
            raise UserError(
                f"{config.model}: this reward model has its head already: leave out --reward.head-std"
            )
        model = load_reward_model(config.model, encoder=encoder, dtype=dtype, device=device)
        notes = [f"{config.model} is a reward model already: it goes on with its own head"]
        pooling = model.pooling if wanted == "auto" else wanted
    else:
        pooling = "last" if wanted == "auto" else wanted
        seed = config.seed + 7919 * (config.ensemble.member or 0)
        head = FreshHead(seed=seed, std=config.reward.head_std, pooling=pooling)
        model = reward_model(config.model, head, encoder=encoder, dtype=dtype, device=device)
        notes = []
    attention = config.memory.attention
    own = model.normalisation
    return RewardModel(model.model, pooling=pooling, normalisation=own, attention=attention), notes


def on_the_scale_of(rows: Sequence[JudgedRow]) -> Normalisation:
    """Head outputs of mean 0 and deviation 1 as ratings: reward = raw · deviation + mean."""
    scores = [row.said.score for row in rows if isinstance(row.said, Rated)]
    middle, spread = statistics.fmean(scores), statistics.pstdev(scores)
    return Normalisation(offset=-middle / spread, scale=1 / spread)


def demonstrated(config: RewardConfig, encoder: Encoder) -> tuple[tuple[Example, ...], list[str]]:
    """The demonstrations that shall score 0 on average, none where no file was named; and what to say."""
    path = config.reward.normalise
    if path is None:
        return (), []
    reading = read_records(path, threshold=config.rows.threshold)
    encoding = encode_rows(demonstrations(reading.records, "reward.normalise"), encoder, config.max_length)
    left_out = [
        *(problem.sentence for problem in reading.problems),
        *(refused.reason for refused in encoding.refused),
    ]
    if not encoding.examples:
        raise UserError(f"{path}: no demonstration can be used ({'; '.join(left_out[:1]) or 'it has none'})")
    used = f"{path.name}: {len(encoding.examples)} demonstrations shall score 0 on average"
    return encoding.examples, [
        f"{used}; {len(left_out)} cannot be used ({left_out[0]} …)" if left_out else used
    ]


def mean_reward(
    model: RewardModel, examples: Sequence[Example], tokens_at_once: int, arithmetic: Arithmetic
) -> float:
    """The mean reward of all answers; with sharded weights every rank must come."""
    rewards: list[float] = []
    ordered = sorted(examples, key=lambda example: example.tokens)
    with torch.no_grad(), arithmetic():
        for piece in in_order(ordered, tokens_at_once):
            rewards += model.rewards(batch_of(piece).to(model.device)).tolist()
    return statistics.fmean(rewards)


def write_scorer(model: RewardModel, config: RewardConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    weights = whole_weights(model, ranks)
    if not ranks.first:
        return
    if weights is not None:
        normalisation, kept = model.normalisation, next(iter(weights.values())).dtype
        model, _ = begin_scorer(config, encoder, kept, torch.device("cpu"))
        model.normalisation = normalisation
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
    if config.lora.rank:
        with durable.folder(config.out / "adapter") as partial:
            save_adapter(model.model, partial)
        model = model.merged()
    with durable.folder(config.out / "model") as partial:
        save_reward_model(model, partial, template_of=config.model, encoder=encoder)


def body_size(model: RewardModel) -> int:
    """Numbers in the matrices that every token is multiplied with."""
    apart = {id(p) for p in model.base.get_input_embeddings().parameters()}
    return sum(p.numel() for p in model.parameters() if p.ndim >= 2 and id(p) not in apart)
