"""One run of plaudit's SFT step on a work folder, in a process of its own; prints one line of JSON."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

import plaudit
from benchmarks.measure import MIB, Report, Watch
from plaudit.batches.rows import encode_rows
from plaudit.batches.template import make_encoder
from plaudit.batches.tokens import Example
from plaudit.models.files import load_model
from plaudit.models.policy import Policy
from plaudit.records.feedback import Demonstration
from plaudit.sources import read_records
from plaudit.training.flops import attention_flops, matmul_rate, training_flops
from plaudit.training.metrics import values_of
from plaudit.training.optimizer import make_optimizer, rate_share
from plaudit.training.parallel import alone
from plaudit.training.settings import MemorySettings, OptimizerSettings
from plaudit.training.step import Machine, Outcome, take_step
from plaudit.training.supervised import SupervisedPiece, likelihood, pieces_of, rows_of

RATE = 2e-5
"""The peak learning rate: TRL's default, so that both sides move alike."""
OPTIMIZER = OptimizerSettings(schedule="linear", warmup=0.0, floor=0.0)
"""Likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A machine that can take steps, and how a batch is divided for it.

    Example: ``Trial(machine=…, policy=…, tokens_at_once=8192, dtype="float32")``
    """

    machine: Machine[SupervisedPiece]
    """What takes a step."""
    policy: Policy
    """What is trained."""
    tokens_at_once: int
    """A batch goes through in pieces of at most so many tokens."""
    dtype: str
    """What matrix products are made in."""

    def step(self, examples: Sequence[Example], number: int, steps: int) -> Outcome:
        """One step of training on these rows."""
        pieces = pieces_of(examples, self.machine.ranks, self.tokens_at_once)
        return take_step(self.machine, pieces, RATE * rate_share(number, steps, OPTIMIZER))

    def flops(self, examples: Sequence[Example]) -> float:
        """The operations that this step needs: attention's too, and the head's on trained tokens only."""
        config = self.policy.base.config
        head = config.vocab_size * config.hidden_size
        body = sum(p.numel() for p in self.policy.parameters() if p.ndim >= 2) - head
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return training_flops(
            body, head, sum(e.tokens for e in examples), sum(e.trained_tokens for e in examples)
        ) + attention_flops(
            config.num_hidden_layers, config.num_attention_heads * size, (e.tokens for e in examples)
        )


def trial_of(policy: Policy, *, dtype: str = "float32", tokens_at_once: int = 8192) -> Trial:
    """The parts of a supervised run around a policy."""

    @contextmanager
    def arithmetic() -> Iterator[None]:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            yield

    machine = Machine(
        module=policy,
        optimizer=make_optimizer(policy, RATE, OPTIMIZER),
        objective=likelihood(policy, arithmetic),
        alone=rows_of,
        clip=OPTIMIZER.clip,
        ranks=alone(),
    )
    return Trial(machine=machine, policy=policy, tokens_at_once=tokens_at_once, dtype=dtype)


def rows_in(work: Path) -> tuple[Example, ...]:
    """The rows of a work folder as tokens, by the way that every row takes."""
    reading = read_records(work / "rows.jsonl", kinds=("demonstration",))
    demonstrations = [record for record in reading.records if isinstance(record, Demonstration)]
    encoding = encode_rows(demonstrations, make_encoder(work / "model"))
    assert not encoding.refused, encoding.refused
    return encoding.examples


def measured(trial: Trial, batches: Sequence[Sequence[Example]]) -> Report:
    """Take a step on each batch and say what it cost."""
    watch = Watch()
    losses: list[float] = []
    watch.start()
    for number, batch in enumerate(batches, start=1):
        outcome = trial.step(batch, number, len(batches))
        assert outcome.fault is None, outcome.fault
        losses.append(values_of(outcome.metrics)["loss"])
        watch.step_done()
    state = sum(value.nbytes for slots in trial.machine.optimizer.state.values() for value in slots.values())
    return Report(
        who=f"plaudit {plaudit.__version__}",
        setting=trial.dtype,
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        batch=len(batches[0]),
        first_loss=losses[0],
        seconds=tuple(watch.seconds),
        cpu_seconds=tuple(watch.cpu_seconds),
        base_mib=watch.resident_mib + state / MIB,
        peak_mib=watch.peak_mib,
        flops=statistics.median(trial.flops(batch) for batch in batches[1:] or batches),
        matmul_flops=matmul_rate("cpu", getattr(torch, trial.dtype)),
        tokens=sum(example.tokens for batch in batches for example in batch),
    )


def main() -> None:
    """From the command line: python -m benchmarks.ours FOLDER --batch 8."""
    parser = argparse.ArgumentParser(description="time plaudit's SFT step on a work folder")
    parser.add_argument("work", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layout", choices=("packed", "left", "right"), default=MemorySettings().layout)
    parser.add_argument("--tokens-at-once", type=int, default=MemorySettings().tokens_at_once)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = rows_in(given.work)
    batches = [rows[s * given.batch : (s + 1) * given.batch] for s in range(given.steps)]
    assert all(len(batch) == given.batch for batch in batches), "the work folder has too few rows"
    model = load_model(given.work / "model", dtype=torch.float32, device=torch.device("cpu"))
    policy = Policy(model, layout=given.layout)
    trial = trial_of(policy, dtype=given.dtype, tokens_at_once=given.tokens_at_once)
    print(measured(trial, batches).line())


if __name__ == "__main__":
    main()
