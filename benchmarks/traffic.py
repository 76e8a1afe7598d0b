"""What ranks send each other in a step: bytes gathered, reduced and exchanged, beside torch's own DDP.

python -m benchmarks.traffic --ranks 2 4
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.loading import made
from plaudit.engine.distributed import process_group, shard_module
from plaudit.engine.optimizer import trained_parameters
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.verify import share_tokens
from plaudit.tokens.batch import Completion, Example, batch_of
from tests.engine.distributed.launch import free_port

WAYS = (
    *("torch's DDP", "whole", "--shard", "--shard --memory.checkpointing", "--shard --shard-ranks 2"),
    *("--sequence-ranks 2", "--shard --sequence-ranks 2"),
)
# Under the names of torch 2.13, and those of before.
GATHERED = ("all_gather_single", "all_gather_into_tensor")
SUMMED = ("all_reduce", "reduce_scatter_single", "reduce_scatter_tensor")
EXCHANGED = ("all_to_all_single",)


def counting(name: str, sent: Counter[str]) -> Callable[..., Any]:
    """The collective, whose bytes are added up as a ring sends them: by each rank, to the next one."""
    real = getattr(dist, name)

    def call(*given: Any, **named: Any) -> Any:
        size = dist.get_world_size(named.get("group"))
        # The larger side is the whole; what is reduced everywhere goes round twice.
        tensors = [tensor for tensor in (*given, *named.values()) if isinstance(tensor, torch.Tensor)]
        rounds = 2 if name == "all_reduce" else 1
        sent[name] += round(rounds * (size - 1) / size * max(tensor.nbytes for tensor in tensors))
        return real(*given, **named)

    return call


def rank(folder: Path, way: str, tokens: int) -> None:
    """One rank: a forward and a backward pass of a row, and the sum of gradients; bytes as a line of JSON."""
    torch.set_num_threads(1)
    shared = 2 if "sequence" in way else 1
    with process_group("cpu", sequence_ranks=shared) as ranks:
        policy = Policy(load_model(folder, dtype=torch.float32, device=ranks.device)).train()
        if "checkpointing" in way:
            policy.backbone.recompute_layers()
        share_tokens(policy, ranks.sequence)
        if "shard" in way:
            over = ranks.sharding_over(2 if "shard-ranks" in way else 0)
            shard_module(policy, policy.backbone.repeated_layers, ranks=over)
        answer = Completion(ids=tuple(range(5, 5 + tokens // 2)), mask=(True,) * (tokens // 2), finished=True)
        batch = batch_of([Example(prompt=tuple(range(5, 5 + tokens // 2)), completions=(answer,))])
        sent: Counter[str] = Counter()
        if "DDP" in way:
            # What DDP itself does with a bucket, counted; it refuses annotations that are text.
            def reduce(bucket: Any) -> Any:
                buffer, size = bucket.buffer(), ranks.world_size
                sent["all_reduce"] += round(2 * (size - 1) / size * buffer.nbytes)
                work: Any = dist.all_reduce(buffer, async_op=True)
                return work.get_future().then(lambda done: done.value()[0])

            ids = torch.cat((batch.prompt_PL, batch.completion_NT), dim=1)
            with policy.as_plain_model() as plain:
                module = DistributedDataParallel(plain)
                module.register_comm_hook(None, lambda _, bucket: reduce(bucket))
                module(input_ids=ids, labels=ids).loss.backward()
        else:
            names = [name for name in (*GATHERED, *SUMMED, *EXCHANGED) if hasattr(dist, name)]
            counted: dict[str, Any] = {name: counting(name, sent) for name in names}
            with patch.multiple(dist, **counted):
                policy.score(batch).logp_NT.sum().neg().backward()
                ranks.sum_gradients(trained_parameters(policy).values())
        weights = sum(weight.numel() for weight in policy.parameters())
        if ranks.is_first:
            print(json.dumps({**sent, "weights": 4 * weights}), flush=True)
        ranks.barrier()


def measured(folder: Path, way: str, ranks: int, tokens: int) -> dict[str, int]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-port", str(free_port()), "-m", "benchmarks.traffic", f"--rank={way}"]
    done = subprocess.run(
        [*command, "--model", str(folder), "--tokens", str(tokens)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rank", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.model, given.rank, given.tokens)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.model or made(Path(name) / "model", 512, 4)
        print("| ranks | way | gathered, MB | summed, MB | exchanged, MB | together, of the weights |")
        print("|---|---|---|---|---|---|")
        for ranks in given.ranks:
            for way in WAYS:
                found = measured(folder, way, ranks, given.tokens)
                kinds = [sum(found.get(name, 0) for name in kind) for kind in (GATHERED, SUMMED, EXCHANGED)]
                cells = " | ".join(f"{size / 1e6:,.1f}" for size in kinds)
                print(f"| {ranks} | {way} | {cells} | {sum(kinds) / found['weights']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
