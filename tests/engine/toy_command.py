"""The ``plaudit`` command in a process of its own that begins warm: the libraries are there already.

A real process that can really be killed. A server imports what a run needs, once for all tests of a session,
and a fork of it calls the command's own ``main``; `cold` starts Python anew, as a user does.
"""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.engine.toy import Toy

PATIENCE = 120.0
"""Seconds after which a command counts as hanging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    code: int
    """Its exit status; −9 when it was killed by signal 9."""
    out: str
    err: str
    """What it said on the error stream."""


class Command:
    def __init__(self, arguments: Sequence[object], *, largest_file: int | None = None) -> None:
        """Start it; ``largest_file`` is a limit in bytes, as of ``ulimit -f``."""
        self._said = Path(mkdtemp(prefix="plaudit-said-"))
        for name in ("out", "err"):
            (self._said / name).touch()
        self._process: ForkServerProcess = warm_server().Process(
            target=_be_the_command, args=([str(a) for a in arguments], self._said, largest_file)
        )
        self._process.start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended by itself takes none."""
        if self._process.is_alive():
            os.kill(self._process.pid or 0, number)

    def wait(self) -> Done:
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, f"it hangs: {self.said()}"
        code = self._process.exitcode
        self._process.close()
        out, err = ((self._said / name).read_text("utf-8") for name in ("out", "err"))
        shutil.rmtree(self._said)
        return Done(code=code, out=out, err=err)

    def said(self) -> str:
        return "".join((self._said / name).read_text("utf-8") for name in ("out", "err"))

    def until_said(self, words: str) -> None:
        self.until(lambda: words in self.said())
        assert words in self.said(), f"it never said so: {self.said()}"

    def kill_when(self, moment: Callable[[], bool]) -> Done:
        """SIGKILL at the moment; it may end before."""
        self.until(moment)
        self.send(signal.SIGKILL)
        return self.wait()

    def until(self, moment: Callable[[], bool]) -> None:
        """Look, as often as can be, until the moment has come or the command has ended."""
        latest = time.monotonic() + PATIENCE
        while self._process.is_alive() and not moment():
            assert time.monotonic() < latest, f"it hangs: {self.said()}"
            time.sleep(0.0005)


def plaudit(*arguments: object, largest_file: int | None = None) -> Done:
    return Command(arguments, largest_file=largest_file).wait()


def finish(*arguments: object) -> Done:
    done = plaudit(*arguments)
    assert done.code == 0, done.err
    return done


def refused(*arguments: object) -> str:
    done = plaudit(*arguments)
    assert done.code == 2, done.err
    return " ".join(done.err.split())


def cold(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "plaudit", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sft(toy: Toy, out: Path, *more: object) -> list[object]:
    """A short run that evaluates, samples and saves at different steps; ``more`` beats what is here."""
    return [
        *("train", "sft", "--model", toy.model, "--data", toy.data, "--out", out),
        *("--steps", 10, "--batch-size", 4, "--learning-rate", 0.01, "--held-out", 0.1),
        *("--evaluate-every", 3, "--sample-every", 4, "--save-every", 2),
        *("--sample.rows", 2, "--sample.tokens", 4, *more),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What must be the same whether a run was killed or not."""

    metrics: tuple[dict[str, Any], ...]
    """The lines of metrics.jsonl without their timing."""
    samples: bytes
    weights: bytes
    """The file of the final weights."""


def outcome(run: Path) -> Outcome:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        del line["timing"]
    weights = (run / "model" / "model.safetensors").read_bytes()
    return Outcome(metrics=tuple(lines), samples=(run / "samples.jsonl").read_bytes(), weights=weights)


def warm_server() -> ForkServerContext:
    """Processes that begin with every library imported; the server is started by the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.toy_warm"])
    return context


def _be_the_command(arguments: list[str], said: Path, largest_file: int | None) -> None:
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_APPEND), descriptor)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    from plaudit.cli.main import main

    if {"cuda", "float64"} <= {*arguments}:
        from tests.models.digits import every_digit

        # Of this process alone, and to its end: tests compare with a CPU, to more digits than float32 has.
        with every_digit():
            sys.exit(main(arguments))
    sys.exit(main(arguments))
