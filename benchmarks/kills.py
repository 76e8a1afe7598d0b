"""GRPO by servers, killed at random moments: its weights beside those of a run that nobody disturbed.

python -m benchmarks.kills                     ten kills: of a rank, of the trainer, of a server, of both
python -m benchmarks.kills --kills 40 --seed 3
python -m benchmarks.kills --lag 1             with rounds that are drawn ahead
python -m benchmarks.kills --vllm .peers/vllm/bin/python --rounds 30      by vLLM's servers
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.methods.policy.config import VLLM_WORDS
from plaudit.serving.processes import plugin_environment, warm_up
from plaudit.serving.server import Server
from tests.engine.distributed.launch import free_port

REWARD = """
def short(prompt, answer):
    return -len(answer) / 40.0
"""
VLLM_FACTS = (
    *("--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
    # As many answers at once as one question wants: what else is under way counts little.
    *("--max-num-seqs", "4", "--no-enable-prefix-caching"),
)
"""How a vLLM server is started whose answers hang on little else than their question."""
KINDS = ("rank", "trainer", "server", "both")
"""What is killed: one rank of the trainer, all of it, a server, or trainer and server."""


@dataclass(kw_only=True)
class Site:
    """A folder with prompts and a reward, and the servers of a run.

    Example: ``Site(folder=Path("work"), ports=[8101, 8102])``
    """

    folder: Path
    ports: list[int]
    rounds: int = 12
    ranks: int = 2
    lag: int = 0
    prompts: int = 16
    vllm: Path | None = None
    """The Python that has vLLM, whose servers draw; None: plaudit's own draw."""
    servers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    cold: set[int] = field(default_factory=set)
    """The ports of servers that nobody has asked yet."""

    def write(self) -> None:
        rows = [{"prompt": f"Where does Mira live? Say it in {n} words."} for n in range(1, self.prompts + 1)]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.folder / "short.py").write_text(REWARD)

    def serve(self, port: int) -> None:
        words = ["--model", str(SHIPPED_MODEL_FOLDER), "--port", str(port)]
        command = [sys.executable, "-m", "plaudit", "serve", *words, "--device", "cpu"]
        if self.vllm is not None:
            command = [str(self.vllm.absolute()), *VLLM_WORDS, *words, *VLLM_FACTS]
        self.servers[port] = self._start(command, f"server-{port}")
        self.cold.add(port)

    def wait(self) -> None:
        """Until every server answers: vLLM's take half a minute, and their first question another one."""
        for port in self.ports:
            server = Server(f"http://127.0.0.1:{port}")
            while not server.is_up():
                if self.servers[port].poll() is not None:
                    raise SystemExit((self.folder / f"server-{port}.log").read_text("utf-8")[-2000:])
                time.sleep(0.2)
            # No other one: it may be paused, by a trainer that was killed while it sent weights.
            if port in self.cold:
                warm_up(server)
        self.cold.clear()

    def train(self, out: str) -> subprocess.Popen[bytes]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)]
        launcher += ["--master-port", str(free_port()), "-m", "plaudit"]
        words = ["train", "grpo", "--model", str(SHIPPED_MODEL_FOLDER), "--prompts", "prompts.jsonl"]
        words += ["--reward", "short.py:short", "--rounds", str(self.rounds), "--batch-size", "4"]
        words += ["--group-size", "4", "--draw.max-tokens", "16", "--save-every", "1", "--out", out]
        words += ["--learning-rate", "1e-4", "--shard", "--device", "cpu", "--sampler"]
        words += [",".join(f"http://127.0.0.1:{port}" for port in self.ports), "--rollout.lag", str(self.lag)]
        return self._start([*launcher, *words], out)

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        settings = {**os.environ, "OMP_NUM_THREADS": "1"}
        if self.vllm is not None and name.startswith("server"):
            settings |= {**plugin_environment(self.folder), "VLLM_CPU_KVCACHE_SPACE": "1"}
        # A group of its own, that all of it can be killed.
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=settings, stdout=log, stderr=log, start_new_session=True
            )

    def weights(self, out: str) -> str:
        path = self.folder / out / "model" / "model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    def step(self, out: str) -> int:
        """How many steps the run has reported."""
        path = self.folder / out / "metrics.jsonl"
        return len(path.read_bytes().splitlines()) if path.exists() else 0


def children_of(process: int) -> list[int]:
    """All that it has started, and these in turn: torchrun's workers are no group with it."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *children_of(child))]


def kill_all(process: subprocess.Popen[bytes]) -> None:
    for number in (process.pid, *children_of(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()


def kill_a_rank(process: subprocess.Popen[bytes], generator: random.Random) -> None:
    """One worker of torchrun, which then ends the others itself."""
    if children := children_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(generator.choice(children), signal.SIGKILL)
    process.wait()


@contextmanager
def serving(site: Site) -> Iterator[None]:
    try:
        for port in site.ports:
            site.serve(port)
        site.wait()
        yield
    finally:
        for process in site.servers.values():
            kill_all(process)


def finish(site: Site, out: str) -> None:
    code = site.train(out).wait()
    if code:
        raise SystemExit((site.folder / f"{out}.log").read_text("utf-8")[-2000:])


def killed_run(site: Site, out: str, *, kills: int, generator: random.Random) -> list[str]:
    """A run that is killed so often, at random moments; what was killed."""
    killed: list[str] = []
    while len(killed) < kills:
        kind = KINDS[len(killed) % len(KINDS)]
        site.wait()
        trainer = site.train(out)
        reached = site.step(out)
        # Up to six steps later, and then at any moment of a step, or of the start.
        wanted = reached + generator.randrange(6)
        while site.step(out) < wanted and trainer.poll() is None:
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 12) if wanted == reached else generator.uniform(0, 1))
        if trainer.poll() is not None:
            break
        _kill(site, kind, trainer, generator)
        killed.append(f"{kind}, steps {reached} to {site.step(out)}")
        print(f"  killed: {killed[-1]}", flush=True)
    finish(site, out)
    return killed


def _kill(site: Site, kind: str, trainer: subprocess.Popen[bytes], generator: random.Random) -> None:
    if kind in ("server", "both"):
        port = generator.choice(site.ports)
        kill_all(site.servers[port])
        if kind == "server":
            # The run goes on with the other one, and takes this one back.
            time.sleep(generator.uniform(0, 2))
            site.serve(port)
            time.sleep(generator.uniform(4, 10))
        else:
            site.serve(port)
    if kind == "rank":
        kill_a_rank(trainer, generator)
    elif trainer.poll() is None:
        kill_all(trainer)


def same_bits(site: Site, *, kills: int, seed: int) -> tuple[int, bool]:
    """How often a run was killed, and whether its weights are those of one that nobody disturbed."""
    site.write()
    with serving(site):
        finish(site, "through")
        killed = killed_run(site, "killed", kills=kills, generator=random.Random(seed))
    return len(killed), site.weights("through") == site.weights("killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--lag", type=int, default=0)
    parser.add_argument("--vllm", type=Path, help="the Python of an environment with vLLM")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        how = {"rounds": given.rounds, "lag": given.lag, "vllm": given.vllm}
        site = Site(folder=Path(folder), ports=[free_port(), free_port()], **how)
        killed, same = same_bits(site, kills=given.kills, seed=given.seed)
    print(f"{killed} kills, {given.rounds} rounds: the weights are {'the same' if same else 'OTHERS'}")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
