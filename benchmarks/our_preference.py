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
from plaudit.batches.judged import JudgedRow
from plaudit.batches.template import make_encoder
from plaudit.batches.tokens import batch_of
from plaudit.models.files import precision
from plaudit.models.policy import Policy
from plaudit.recipes.learner import Start
from plaudit.recipes.policies import matrix_sizes
from plaudit.recipes.preference_config import PreferenceConfig, ReferenceSettings
from plaudit.recipes.preference_ready import Begun, begin
from plaudit.recipes.preference_table import PREFERENCES
from plaudit.training.flops import attention_flops, training_flops
from plaudit.training.optimizer import make_optimizer
from plaudit.training.parallel import alone
from plaudit.training.preference import rows_of
from plaudit.training.settings import MemorySettings
from plaudit.training.step import Machine


def begun_on(given: Any) -> tuple[Begun, PreferenceConfig]:
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
    start = Start(
        encoder=make_encoder(config.model),
        numbers=precision(config.dtype, torch.device("cpu")),
        ranks=alone(),
        aside=None,
    )
    return begin(given.method, config, start), config


def _learns_thumbs(given: Any) -> bool:
    return PREFERENCES[given.method].data == "thumbs"


def trial_of(begun: Begun, config: PreferenceConfig) -> Trial[JudgedRow]:
    """The parts of a run."""
    machine = Machine(
        module=begun.policy,
        optimizer=make_optimizer(begun.policy, RATE, OPTIMIZER),
        objective=begun.objective,
        alone=rows_of,
        clip=OPTIMIZER.clip,
        ranks=alone(),
    )
    flops = partial(flops_of, begun.policy, live=begun.reference.live)
    return Trial(machine=machine, pieces=begun.batches.pieces, flops=flops, dtype=str(config.dtype))


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


def rewards_of(begun: Begun) -> list[float]:
    """log π − log π_ref of each answer, row by row."""
    eyes, found = begun.batches.eyes, list[float]()
    with torch.no_grad():
        for row in begun.rows.train:
            batch = batch_of([row.example])
            apart_NT = eyes.policy.score(batch).logp_NT - eyes.reference.logp([row.example], batch)
            found += apart_NT.sum(-1).tolist()
    return found


def main() -> None:
    """From the command line: python -m benchmarks.our_preference FOLDER --method dpo --batch 8."""
    parser = arguments("time plaudit's preference step on a work folder")
    parser.add_argument("--method", choices=PREFERENCES, default="dpo")
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
