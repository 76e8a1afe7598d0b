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
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import MemorySettings
from plaudit.engine.step import Machine
from plaudit.engine.throughput import attention_flops, training_flops
from plaudit.methods.models import matrix_sizes
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, data_of
from plaudit.methods.preference.config import PreferenceConfig, ReferenceSettings
from plaudit.methods.preference.run import PreparedRun, prepare_run
from plaudit.methods.run import Run
from plaudit.models.load import precision
from plaudit.models.policy import Policy
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.preferences import JudgedRow


def begun_on(given: Any) -> tuple[PreparedRun, PreferenceConfig]:
    """The folder's policy and reference, its rows as tokens, and what a step minimises."""
    config = PreferenceConfig(
        model=given.work / "model",
        data=given.work / (THUMBS if _learns_thumbs(given) and not given.pairs else PAIRS),
        out=given.work / "out",
        held_out="0",
        dtype=given.dtype,
        device="cpu",
        max_length=LONGEST,
        memory=MemorySettings(layout=given.layout, tokens_at_once=given.tokens_at_once),
        reference=ReferenceSettings(
            kind=given.reference, model=given.work / REFERENCE, cache=given.work / "cache"
        ),
    )
    run = Run(
        encoder=make_encoder(config.model),
        precision=precision(config.dtype, torch.device("cpu")),
        ranks=single_process(),
    )
    return prepare_run(given.method, config, run), config


def _learns_thumbs(given: Any) -> bool:
    return data_of(PREFERENCE_ALGORITHMS[given.method]) == "thumbs"


def trial_of(begun: PreparedRun, config: PreferenceConfig) -> Trial[JudgedRow]:
    """The parts of a run."""
    machine = Machine(
        module=begun.policy,
        optimizer=make_optimizer(begun.policy, RATE, OPTIMIZER),
        objective=begun.objective,
        clip=OPTIMIZER.clip,
        ranks=single_process(),
    )
    flops = partial(flops_of, begun.policy, live=begun.reference.live)
    return Trial(machine=machine, pieces=begun.batches.microbatches, flops=flops, dtype=str(config.dtype))


def flops_of(policy: Policy, rows: Sequence[JudgedRow], *, live: bool) -> float:
    """The operations that a step on these rows needs, each prompt computed once for all its answers."""
    config = policy.base.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = partial(attention_flops, config.num_hidden_layers, config.num_attention_heads * size)
    examples = [row.example for row in rows]
    whole = [len(one.prompt) + len(answer.ids) for one in examples for answer in one.completions]
    again = [len(one.prompt) for one in examples for _ in one.completions[1:]]
    tokens = sum(one.tokens for one in examples)
    trained = sum(one.trained_tokens for one in examples)
    products = training_flops(*matrix_sizes(policy), tokens, trained)
    needed = products - spared_flops(policy.base, tokens - trained) + attention(whole) - attention(again)
    return needed * 4 / 3 if live else needed


def rewards_of(begun: PreparedRun) -> list[float]:
    """log π − log π_ref of each answer, row by row."""
    eyes, found = begun.batches.models, list[float]()
    with torch.no_grad():
        for row in begun.rows.train:
            batch = batch_of([row.example])
            apart_NT = eyes.policy.score(batch).logp_NT - eyes.reference.logp([row.example], batch)
            found += apart_NT.sum(-1).tolist()
    return found


def main() -> None:
    """From the command line: python -m benchmarks.our_preference FOLDER --method dpo --batch 8."""
    parser = arguments("time plaudit's preference step on a work folder")
    parser.add_argument("--method", choices=PREFERENCE_ALGORITHMS, default="dpo")
    parser.add_argument("--reference", choices=("live", "precomputed"), default="live")
    parser.add_argument("--pairs", action="store_true", help="thumbs come as comparisons, two a row")
    parser.add_argument("--rewards", action="store_true", help="print Δ of every answer instead")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    begun, config = begun_on(given)
    if given.rewards:
        print(json.dumps(rewards_of(begun)))
        return
    batches = batches_of(begun.rows.train, given)
    report = measured(trial_of(begun, config), batches)
    thumbs = sum(len(row.example.completions) for row in batches[0])
    print(replace(report, batch=thumbs if _learns_thumbs(given) else len(batches[0])).line())


if __name__ == "__main__":
    main()
