"""Starts ``torchrun`` as a user does, and says how it ended."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 150.0
"""Seconds after which a command counts as hanging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    code: int
    """The exit status of torchrun, which is 1 when a rank failed."""
    out: str
    err: str
    """What was said on the error stream."""
    at: float

    def says(self, start: str) -> list[str]:
        """The lines of the error stream that begin so."""
        return [line for line in self.err.splitlines() if line.startswith(start)]


def torchrun(*arguments: object, ranks: int = 2, cwd: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
            *("--master-port", str(free_port()), *map(str, arguments)),
        ],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # So that everything can be killed at once, and only that.
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=PATIENCE)
    return Done(code=process.returncode, out=out, err=err, at=time.time())


def run(*arguments: object, ranks: int = 2, cwd: Path, **more: str) -> Done:
    return finish(torchrun(*arguments, ranks=ranks, cwd=cwd, **more))


def ranks_of(process: subprocess.Popen[str]) -> Sequence[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found: dict[int, int] = {}
    for child in map(int, children):
        words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks = [int(word.removeprefix(b"RANK=")) for word in words if word.startswith(b"RANK=")]
        found |= {rank: child for rank in ranks}
    return [found[rank] for rank in sorted(found)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
