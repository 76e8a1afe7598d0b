"""One run of plaudit's reward step on a work folder, in a process of its own; prints one line of JSON.

The way is that of ``plaudit train reward``: the model is prepared and proven, the loss follows the rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from benchmarks.trial import OPTIMIZER, RATE, Trial, arguments, batches_of, measured, spared_flops
from benchmarks.work import LONGEST, PAIRS, RANKINGS
from plaudit.data.read import read_records
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import attention_flops, training_flops
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import MemorySettings
from plaudit.engine.step import Stepper
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.data import encode_judged_rows
from plaudit.methods.reward_model.losses import select_loss
from plaudit.methods.reward_model.model import body_size, prepare_reward_model
from plaudit.methods.reward_model.objective import microbatches_of
from plaudit.models.load import device_of, precision
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.preferences import JudgedRow


def config_of(
    work: Path,
    *,
    rows: str = PAIRS,
    dtype: Literal["float32", "bfloat16"] = "float32",
    memory: MemorySettings | None = None,
    device: str = "cpu",
) -> RewardConfig:
    """The settings of a run on this folder; nothing is written to ``out``."""
    return RewardConfig(
        model=work / "model",
        data=work / rows,
        out=work / "out",
        dtype=dtype,
        device=device,
        max_length=LONGEST,
        memory=memory or MemorySettings(),
    )


def judged_in(config: RewardConfig) -> tuple[JudgedRow, ...]:
    """The rows of a work folder as tokens, by the way that every row takes."""
    records = read_records(config.data).records
    encoding = encode_judged_rows(
        config.reward, records, make_encoder(config.model), config.max_length
    ).encoding
    assert not encoding.refused, encoding.refused
    return tuple(encoding.examples)


def scorer_of(config: RewardConfig) -> RewardModel:
    """The folder's reward model, proven and ready to learn."""
    ranks = single_process(device_of(config.device))
    numbers = precision(config.dtype, ranks.device)
    model, notes = prepare_reward_model(config, make_encoder(config.model), numbers, ranks)
    assert model.layout == config.memory.layout, notes
    return model


def trial_of_scorer(model: RewardModel, rows: Sequence[JudgedRow], config: RewardConfig) -> Trial[JudgedRow]:
    """The parts of a reward run; the loss is the one that these rows ask for."""
    chosen = select_loss(config.reward, rows, RowSettings())
    stepper = Stepper(
        module=model,
        optimizer=make_optimizer(model, RATE, OPTIMIZER),
        objective=chosen.objective(model, None),
        clip=OPTIMIZER.clip,
        ranks=single_process(model.device),
    )
    return Trial(
        stepper=stepper,
        pieces=lambda batch: microbatches_of(batch, stepper.ranks, config.memory.tokens_at_once),
        flops=partial(flops_of_scorer, model),
        dtype=str(config.dtype),
    )


def flops_of_scorer(model: RewardModel, rows: Sequence[JudgedRow]) -> float:
    """The operations that a step on these rows needs, each prompt computed once for all its answers."""
    config = model.base.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = partial(attention_flops, config.num_hidden_layers, config.num_attention_heads * size)
    whole = [len(row.prompt) + len(answer.ids) for row in rows for answer in row.example.completions]
    again = [len(row.prompt) for row in rows for _ in row.example.completions[1:]]
    tokens = sum(row.tokens for row in rows)
    products = training_flops(body_size(model), 0, tokens, 0) - spared_flops(model.base, tokens - len(whole))
    return products + attention(whole) - attention(again)


def rewards_of(model: RewardModel, rows: Sequence[JudgedRow]) -> list[float]:
    """The reward of each answer, row by row."""
    with torch.no_grad():
        batches = (batch_of([row.example]).to(model.device) for row in rows)
        return [reward for batch in batches for reward in model.rewards(batch).tolist()]


def main() -> None:
    """From the command line: python -m benchmarks.our_reward FOLDER --batch 8."""
    parser = arguments("time plaudit's reward step on a work folder")
    parser.add_argument("--rankings", action="store_true", help="whole rankings in place of their pairs")
    parser.add_argument("--rewards", action="store_true", help="print the reward of every answer instead")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    config = config_of(
        given.work,
        rows=RANKINGS if given.rankings else PAIRS,
        dtype=given.dtype,
        memory=MemorySettings(layout=given.layout, tokens_at_once=given.tokens_at_once),
        device=given.device,
    )
    rows, model = judged_in(config), scorer_of(config)
    if given.rewards:
        print(json.dumps(rewards_of(model, rows)))
        return
    batches = batches_of(rows, given)
    answers = [len(row.example.completions) for row in batches[0]]
    report = measured(trial_of_scorer(model, rows, config), batches)
    print(replace(report, batch=sum(k * (k - 1) // 2 for k in answers)).line())


if __name__ == "__main__":
    main()
