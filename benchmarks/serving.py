"""Answers by a server beside the same answers drawn here, and what sending it weights takes.

python -m benchmarks.serving overhead                 one question after the other, here and by a server
python -m benchmarks.serving sync --model FOLDER      bytes and seconds of deliveries, whole and as changes
python -m benchmarks.serving rounds                   rounds an hour: drawn and then learnt, streamed, ahead
python -m benchmarks.serving seeds                    the reward after as many rounds, with and without a lag
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.kills import Site, kill_all
from plaudit.engine.distributed import single_process
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import GenerationRequest, SamplingSettings, WeightsVersion
from plaudit.serving.fleet import Fleet, Keeper
from plaudit.serving.local_server import SamplingModel, http_server
from plaudit.serving.proof import policy_logps, probes
from plaudit.serving.sampler import RemoteSampler
from plaudit.serving.server import Question, Server
from plaudit.serving.weight_files import HeldWeights
from plaudit.serving.weights import Handover, served_tensors
from plaudit.tokens.encode import make_encoder
from tests.engine.distributed.launch import free_port

PROMPTS, ANSWERS, TOKENS = 32, 8, 64
STEPS = 3
"""Steps of training whose changes are sent."""


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def overhead(turns: int) -> None:
    """The same questions, in turn here and by a server in a process of its own with one thread."""
    torch.set_num_threads(1)
    port = free_port()
    words = ["serve", "--model", str(SHIPPED_MODEL_FOLDER), "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen(
        ["env", "OMP_NUM_THREADS=1", sys.executable, "-m", "plaudit", *words], start_new_session=True
    )
    try:
        server = Server(f"http://127.0.0.1:{port}")
        while not server.is_up():
            time.sleep(0.2)
        fleet = Fleet([server])
        fleet.version = "default"
        sampler = LocalSampler(SHIPPED_MODEL_FOLDER, device="cpu")
        prompts = [tuple(range(5 + p, 25 + p)) for p in range(PROMPTS)]

        def here() -> None:
            settings = SamplingSettings(max_tokens=TOKENS)
            for prompt in prompts:
                requests = [
                    GenerationRequest(prompt=prompt, sample=k, max_new_tokens=TOKENS) for k in range(ANSWERS)
                ]
                sampler.generate_requests(requests, settings)

        def there() -> None:
            stop_ids = tuple(sampler.encoder.stop_ids)
            facts = {"answers": ANSWERS, "seed": 0, "max_tokens": TOKENS, "temperature": 1.0}
            list(fleet.draw([Question(prompt=prompt, stop_ids=stop_ids, **facts) for prompt in prompts]))

        here()
        there()
        pairs = [(seconds(here), seconds(there)) for _ in range(turns)]
    finally:
        kill_all(process)
    for place, (mine, its) in enumerate(pairs):
        print(f"turn {place + 1}: {mine:.2f} s here, {its:.2f} s by the server")
    ratio = statistics.median(its / mine for mine, its in pairs)
    print(
        f"{PROMPTS} prompts, {ANSWERS} answers: the server takes {ratio:.3f} of the time (median of {turns})"
    )


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """What one delivery came to, in MiB and seconds."""

    mib: float
    gathered: float
    written: float
    read: float
    """And its checksums compared."""
    probed: float
    """Log-probs of the fixed sequences, by the policy."""


def deliveries(
    model: Path, dtype: torch.dtype, *, rate: float = 1e-6, device: torch.device | None = None
) -> Iterator[Delivered]:
    """Deliveries of a model after steps of Adam on random text."""
    device = device or torch.device("cpu")
    policy = Policy(load_model(model, dtype=torch.float32, device=device))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=0.0)
    vocabulary = policy.base.config.vocab_size
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        handover, held = Handover(Path(folder) / "weights"), HeldWeights()
        for number in range(STEPS + 1):
            begin = time.perf_counter()
            tensors = served_tensors(policy, dtype, keep=True)
            gathered = time.perf_counter()
            delivery = handover.write(tensors, f"v{number}")
            written = time.perf_counter()
            path, root = delivery.files[-1]
            held.read(str(path), root)
            read = time.perf_counter()
            policy_logps(policy, probes(vocabulary, None))
            yield Delivered(
                mib=delivery.bytes_written / 2**20,
                gathered=gathered - begin,
                written=written - gathered,
                read=read - written,
                probed=time.perf_counter() - read,
            )
            ids = torch.randint(vocabulary, (2, 128), generator=generator).to(device)
            with policy.as_plain_model() as plain:
                plain(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def handshake(model: Path, dtype: torch.dtype) -> None:
    """How long it takes until a server in this machine has proven every tensor."""
    port = free_port()
    words = ["serve", "--model", str(model), "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-m", "plaudit", *words], start_new_session=True)
    server = Server(f"http://127.0.0.1:{port}")
    try:
        while not server.is_up():
            time.sleep(0.2)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            fleet = Fleet([server])
            sampler = RemoteSampler(
                policy=Policy(load_model(model, dtype=torch.float32, device=torch.device("cpu"))),
                encoder=make_encoder(model),
                weights=WeightsVersion(),
                ranks=single_process(),
                fleet=fleet,
                keeper=Keeper(fleet, Handover(Path(folder) / "weights"), dtype),
                run="run",
                dtype=dtype,
                note=print,
            )
            print(f"the first delivery, with its proof: {seconds(sampler.refresh):.1f} s")
            sampler.weights.moved()
            print(f"one more: {seconds(sampler.refresh):.1f} s")
            assert sampler.keeper is not None
            print(sampler.keeper.syncs)
    finally:
        kill_all(process)


ROUNDS, WARM, QUESTIONS = 9, 2, 16
WAYS = {
    "drawn, then learnt": ["--no-rollout.stream"],
    "streamed": [],
    "one round ahead": ["--rollout.lag", "1"],
}


def slow_server(port: int, delay: float) -> None:
    """A server that takes so much longer for each question."""
    model = SamplingModel(SHIPPED_MODEL_FOLDER, device="cpu", dtype="float32")
    generate, turn = model.routes["POST /inference/v1/generate"], threading.Lock()

    def late(body: Mapping[str, Any]) -> dict[str, Any]:
        if "prompt_logprobs" in body["sampling_params"]:
            return generate(body)  # pyright: ignore
        # One after the other, as a server that is busy has them.
        with turn:
            time.sleep(delay)
            return generate(body)  # pyright: ignore

    model.routes["POST /inference/v1/generate"] = late
    with http_server(model, "127.0.0.1", port, None) as server:
        server.serve_forever()


def run_lines(folder: Path, delay: float, words: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of the metrics of a run whose answers one server draws."""
    port, out = free_port(), tempfile.mkdtemp(dir=folder)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    slow = [sys.executable, "-m", "benchmarks.serving", "slow", "--port", str(port), "--delay", str(delay)]
    server = subprocess.Popen(slow, env=environment, start_new_session=True)
    try:
        while not Server(f"http://127.0.0.1:{port}").is_up():
            time.sleep(0.2)
        train = [sys.executable, "-m", "plaudit", "train", "grpo", "--model", str(SHIPPED_MODEL_FOLDER)]
        train += ["--prompts", str(folder / "prompts.jsonl"), "--reward", f"{folder / 'short.py'}:short"]
        train += ["--device", "cpu", "--held-out", "0", "--no-check", "--out", out]
        train += ["--sample.rows", "0", "--sampler", f"http://127.0.0.1:{port}", *words]
        subprocess.run(train, env=environment, check=True, capture_output=True)
    finally:
        kill_all(server)
    return [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]


def timed_rounds(folder: Path, delay: float, answers: int, words: Sequence[str]) -> Mapping[str, float]:
    """Medians of the seconds of a round: in all, waiting for answers, and drawing them."""
    words = [*words, "--rounds", str(ROUNDS), "--batch-size", str(QUESTIONS), "--group-size", str(answers)]
    # Layers are computed again, so that this machine draws as quickly as it learns.
    words += ["--memory.checkpointing", "--save-every", "100"]
    lines = [line["timing"] for line in run_lines(folder, delay, words)]
    names = ("seconds", "wait_seconds", "draw_seconds")
    return {name: statistics.median(line[name] for line in lines[WARM:]) for name in names}


def rounds(shares: Sequence[float], answers: int) -> None:
    """Each way beside the others, with a server that takes so many times as long as learning does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Site(folder=folder, ports=[], prompts=10 * QUESTIONS).write()
        plain = timed_rounds(folder, 0.0, answers, WAYS["drawn, then learnt"])
        learning = plain["seconds"] - plain["wait_seconds"]
        print(
            f"learning takes {learning:.2f} s a round, drawing {plain['draw_seconds']:.2f} s without delays"
        )
        for share in shares:
            delay = max(0.0, share * learning - plain["draw_seconds"]) / QUESTIONS
            first = 0.0
            for way, words in WAYS.items():
                took = timed_rounds(folder, delay, answers, words)
                first = first or took["seconds"]
                whole, waited, drawn = (took[name] for name in ("seconds", "wait_seconds", "draw_seconds"))
                print(
                    f"drawing {drawn / learning:.2f} of learning, {way}: {3600 / whole:,.0f} rounds an hour, "
                    f"{first / whole:.2f} times; drawn {drawn:.2f} s, waited {waited:.2f} s of {whole:.2f} s",
                    flush=True,
                )


def seeds(count: int, lag: int) -> None:
    """The mean reward of the last rounds, of as many seeds with a lag as without."""
    words = ["--rounds", "40", "--batch-size", "8", "--draw.max-tokens", "32", "--learning-rate", "1e-4"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Site(folder=folder, ports=[], prompts=160).write()

        def reached(seed: int, lag: int) -> float:
            lines = run_lines(folder, 0.0, [*words, "--seed", str(seed), "--rollout.lag", str(lag)])
            return statistics.fmean(line["reward"] for line in lines[-10:])

        pairs: list[tuple[float, float]] = []
        for seed in range(1, count + 1):
            with ThreadPoolExecutor(2) as pool:
                now, late = pool.map(partial(reached, seed), (0, lag))
            pairs.append((now, late))
            print(f"seed {seed}: {now:.3f} without a lag, {late:.3f} with {lag}", flush=True)
    differences = [late - now for now, late in pairs]
    error = statistics.stdev(differences) / count**0.5
    means = [statistics.fmean(values) for values in zip(*pairs, strict=True)]
    print(f"{means[0]:.3f} and {means[1]:.3f}: {means[1] - means[0]:+.3f}, standard error {error:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=["overhead", "sync", "handshake", "rounds", "seeds", "slow"])
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL_FOLDER)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rate", type=float, default=1e-6, help="the learning rate of the steps")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 1.0, 2.0], help="drawing : learning")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answers", type=int, default=64, help="to each prompt of a round")
    parser.add_argument("--lag", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args()
    if given.part == "slow":
        slow_server(given.port, given.delay)
    elif given.part == "rounds":
        rounds(given.shares, given.answers)
    elif given.part == "seeds":
        seeds(given.turns, given.lag)
    elif given.part == "overhead":
        overhead(given.turns)
    elif given.part == "sync":
        for delivered in deliveries(given.model, getattr(torch, given.dtype), rate=given.rate):
            print(", ".join(f"{name} {value:.2f}" for name, value in vars(delivered).items()))
    else:
        handshake(given.model, torch.float32)


if __name__ == "__main__":
    main()
