"""One run of plaudit's preference step on a work folder, in a process of its own; prints one line of JSON.

The way is that of ``plaudit train dpo``: rows, models and the first look are those of a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.trial import OPTIMIZER, RATE, Trial, arguments, batches_of, measured, spared_flops
from benchmarks.work import LONGEST, PAIRS, REFERENCE, THUMBS
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import attention_flops, training_flops
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import MemorySettings
from plaudit.engine.step import Stepper
from plaudit.methods.config import ReferenceSettings
from plaudit.methods.models import matrix_sizes
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.methods.preference.config import PreferenceConfig, configured_algorithm
from plaudit.methods.preference.objective import PreferenceBatcher, ScoringModels
from plaudit.methods.preference.run import load_models, load_preference_rows, make_objective
from plaudit.methods.reference import PreparedReference
from plaudit.methods.run import Run
from plaudit.models.load import device_of, precision
from plaudit.models.policy import Policy
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.preferences import JudgedRow


def loaded(given: Any) -> tuple[Sequence[JudgedRow], PreferenceBatcher, PreparedReference]:
    """The folder's rows as tokens, its policy and reference."""
    config = PreferenceConfig(
        model=given.work / "model",
        data=given.work / (THUMBS if _learns_thumbs(given) and not given.pairs else PAIRS),
        out=given.work / "out",
        held_out="0",
        dtype=given.dtype,
        device=given.device,
        max_length=LONGEST,
        memory=MemorySettings(layout=given.layout, tokens_at_once=given.tokens_at_once),
        reference=ReferenceSettings(
            kind=given.reference, model=given.work / REFERENCE, cache=given.work / "cache"
        ),
    )
    ranks = single_process(device_of(config.device))
    run = Run(
        config=config,
        method=given.method,
        encoder=make_encoder(config.model),
        precision=precision(config.dtype, ranks.device),
        ranks=ranks,
    )
    rows = load_preference_rows(given.method, config, run.encoder, None)
    row = configured_algorithm(given.method, config)
    return rows.train, *load_models(row, rows, config, run)


def _learns_thumbs(given: Any) -> bool:
    return PREFERENCE_ALGORITHMS[given.method].data == "thumbs"


def trial_of(batcher: PreferenceBatcher, reference: PreparedReference, dtype: str) -> Trial[JudgedRow]:
    """The parts of a run."""
    policy = batcher.models.policy
    stepper = Stepper(
        module=policy,
        optimizer=make_optimizer(policy, RATE, OPTIMIZER),
        objective=make_objective(batcher),
        clip=OPTIMIZER.clip,
        ranks=single_process(policy.device),
    )
    flops = partial(flops_of, policy, live=reference.live)
    return Trial(stepper=stepper, pieces=batcher.microbatches, flops=flops, dtype=dtype)


def flops_of(policy: Policy, rows: Sequence[JudgedRow], *, live: bool) -> float:
    """The operations that a step on these rows needs, each prompt computed once for all its answers.

    Those of a tower for pictures are not counted: 0 for a model that has one.
    """
    config = policy.base.config
    if hasattr(config, "vision_config"):
        return 0.0
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = partial(attention_flops, config.num_hidden_layers, config.num_attention_heads * size)
    examples = [row.example for row in rows]
    whole = [len(example.prompt) + len(answer.ids) for example in examples for answer in example.completions]
    again = [len(example.prompt) for example in examples for _ in example.completions[1:]]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    products = training_flops(*matrix_sizes(policy), tokens, trained)
    needed = products - spared_flops(policy.base, tokens - trained) + attention(whole) - attention(again)
    return needed * 4 / 3 if live else needed


def rewards_of(rows: Sequence[JudgedRow], models: ScoringModels) -> list[float]:
    """log π − log π_ref of each answer, row by row."""
    rewards = list[float]()
    with torch.no_grad():
        for row in rows:
            batch = batch_of([row.example]).to(models.policy.device)
            log_ratio_NT = models.policy.score(batch).logp_NT - models.reference.logp([row.example], batch)
            rewards += log_ratio_NT.sum(-1).tolist()
    return rewards


def main() -> None:
    """From the command line: python -m benchmarks.our_preference FOLDER --method dpo --batch 8."""
    parser = arguments("time plaudit's preference step on a work folder")
    parser.add_argument("--method", choices=PREFERENCE_ALGORITHMS, default="dpo")
    parser.add_argument("--reference", choices=("live", "precomputed"), default="live")
    parser.add_argument("--pairs", action="store_true", help="thumbs come as comparisons, two a row")
    parser.add_argument("--rewards", action="store_true", help="print Δ of every answer instead")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows, batcher, reference = loaded(given)
    if given.rewards:
        print(json.dumps(rewards_of(rows, batcher.models)))
        return
    batches = batches_of(rows, given)
    report = measured(trial_of(batcher, reference, given.dtype), batches)
    thumbs = sum(len(row.example.completions) for row in batches[0])
    print(replace(report, batch=thumbs if _learns_thumbs(given) else len(batches[0])).line())


if __name__ == "__main__":
    main()
