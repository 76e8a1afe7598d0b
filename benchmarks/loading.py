"""What loading a model takes each rank, whole and by its own part: seconds, and memory beside its share.

python -m benchmarks.loading --width 1536 --layers 16      a model of random numbers, made for this
python -m benchmarks.loading --model FOLDER --ranks 2 4    any folder
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from plaudit.engine.distributed import process_group, shard_module
from plaudit.methods.parts import read_by_parts
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from tests.engine.distributed.launch import free_port

WAYS = ("whole", "parts")


def resident(kind: str) -> int:
    """This process's memory in bytes: VmRSS now, or VmHWM, the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(kind))


def rank(folder: Path, way: str) -> None:
    """One rank: load, divide, and report as a line of JSON."""
    torch.set_num_threads(1)
    with process_group("cpu") as ranks:
        before, begin = resident("VmRSS"), time.perf_counter()
        if way == "whole":
            policy = Policy(load_model(folder, dtype=torch.float32, device=ranks.device))
            if ranks.world_size > 1:
                shard_module(policy, policy.backbone.repeated_layers, ranks=ranks)
        else:
            divided = read_by_parts(folder, torch.float32, None, ranks)
            assert divided is not None, "this folder can only be loaded whole"
            policy = divided
        seconds = time.perf_counter() - begin
        total = sum(4 * weight.numel() for weight in policy.parameters())
        found = {"rank": ranks.rank, "seconds": seconds, "share": total / ranks.world_size}
        found["most"] = resident("VmHWM") - before
        print(json.dumps(found), flush=True)


def measured(folder: Path, way: str, ranks: int) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-port", str(free_port()), "-m", "benchmarks.loading", "--rank", way]
    done = subprocess.run(
        [*command, "--model", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def made(folder: Path, width: int, layers: int) -> Path:
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=32_000,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    nn.Module.to(model, torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="500MB")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rank", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.model, given.rank)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.model or made(Path(name) / "model", given.width, given.layers)
        print("| ranks | way | seconds | own share, MiB | most at once, MiB | most / share |")
        print("|---|---|---|---|---|---|")
        for ranks in given.ranks:
            for way in WAYS if ranks > 1 else WAYS[:1]:
                rows = measured(folder, way, ranks)
                seconds, share, most = (max(row[key] for row in rows) for key in ("seconds", "share", "most"))
                mib = f"{share / 2**20:,.0f} | {most / 2**20:,.0f}"
                print(f"| {ranks} | {way} | {seconds:.1f} | {mib} | {most / share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
