"""One run of plaudit's SFT step on a work folder, in a process of its own; prints one line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.trial import OPTIMIZER, RATE, Trial, arguments, batches_of, measured, spared_flops
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import attention_flops, training_flops
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.step import Stepper
from plaudit.methods.supervised.objective import likelihood_objective, microbatches_of
from plaudit.models.load import device_of, load_model
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import encode_rows, make_encoder


def trial_of(policy: Policy, *, dtype: str = "float32", tokens_at_once: int = 8192) -> Trial[Example]:
    """The parts of a supervised run around a policy."""

    if dtype == "bfloat16":
        policy.compute_in(torch.bfloat16)
    stepper = Stepper(
        module=policy,
        optimizer=make_optimizer(policy, RATE, OPTIMIZER),
        objective=likelihood_objective(policy),
        clip=OPTIMIZER.clip,
        ranks=single_process(policy.device),
    )
    return Trial(
        stepper=stepper,
        pieces=lambda rows: microbatches_of(rows, stepper.ranks, tokens_at_once),
        flops=partial(needed_flops, policy),
        dtype=dtype,
    )


def needed_flops(policy: Policy, examples: Sequence[Example]) -> float:
    """The operations that a step on these rows needs: the head works on trained tokens only."""
    config = policy.base.config
    head = config.vocab_size * config.hidden_size
    body = sum(p.numel() for p in policy.parameters() if p.ndim >= 2) - head
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tokens, trained = (sum(e.tokens for e in examples), sum(e.trained_tokens for e in examples))
    attention = attention_flops(
        config.num_hidden_layers, config.num_attention_heads * size, (e.tokens for e in examples)
    )
    products = training_flops(body, head, tokens, trained) - spared_flops(policy.base, tokens - trained)
    return products + attention


def rows_in(work: Path) -> tuple[Example, ...]:
    """The rows of a work folder as tokens, by the way that every row takes."""
    reading = read_records(work / "rows.jsonl", kinds=("demonstration",))
    demonstrations = [record for record in reading.records if isinstance(record, Demonstration)]
    encoding = encode_rows(demonstrations, make_encoder(work / "model"))
    assert not encoding.refused, encoding.refused
    return tuple(encoding.examples)


def main() -> None:
    """From the command line: python -m benchmarks.ours FOLDER --batch 8."""
    given = arguments("time plaudit's SFT step on a work folder").parse_args()
    torch.set_num_threads(given.threads)
    batches = batches_of(rows_in(given.work), given)
    model = load_model(given.work / "model", dtype=torch.float32, device=device_of(given.device))
    policy = Policy(model, layout=given.layout)
    trial = trial_of(policy, dtype=given.dtype, tokens_at_once=given.tokens_at_once)
    print(measured(trial, batches).line())


if __name__ == "__main__":
    main()
