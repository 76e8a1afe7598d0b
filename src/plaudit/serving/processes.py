"""vLLM servers that a run starts on its own machine, watches, starts again, and ends."""

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch

import plaudit
from plaudit.errors import UserError
from plaudit.methods.policy.config import VLLM_WORDS, ServerSettings
from plaudit.serving.server import GoneError, Question, Server, UselessReplyError

START_SECONDS = 900.0
"""How long a server may take until it has answered its first question."""
MOST_STARTS = 5
"""So often a server is started again; one that ends each time will not be mended by another start."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_ENDS_WITH_PARENT = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 15)
except (OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("the run has ended")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""A program that becomes a server which is told to end when the run does, however that ends (Linux)."""


class VllmServers:
    """Servers of one model, each with a log of its own beside the run."""

    def __init__(
        self, model: Path, folder: Path, settings: ServerSettings, dtype: torch.dtype, *, rank: int = 0
    ) -> None:
        """Start them, with their logs in this folder; they are there once `wait` has come back.
        ``rank`` is that of the adapters which they will be sent; 0: they are sent whole weights."""
        assert settings.python is not None
        if not settings.python.exists():
            raise UserError(f"--server.python {settings.python} is not there")
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._environment = {**os.environ, **plugin_environment(self._folder)}
        self._gpus = _shares(settings)
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(settings.count)]
        ports = [listener.getsockname()[1] for listener in listeners]
        for listener in listeners:
            listener.close()
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._commands = [_command(model, settings, dtype, rank, port) for port in ports]
        self._logs: list[IO[bytes]] = []
        self._starts = [0] * settings.count
        self._deadlines = [0.0] * settings.count
        self._closed = False
        self._processes = [self._start(index) for index in range(settings.count)]

    def wait(self, servers: Sequence[Server]) -> None:
        """Until every server has answered a question: the first one may take minutes."""
        deadline = time.monotonic() + START_SECONDS
        for index, server in enumerate(servers):
            while not server.is_up():
                if self._processes[index].poll() is not None:
                    raise UserError(f"a vLLM server has ended: {self._last_line(index)}")
                if time.monotonic() > deadline:
                    raise UserError(f"a vLLM server is not up after {START_SECONDS:g} s: {self._log(index)}")
                time.sleep(0.5)
            warm_up(Server(server.url))

    def restart(self, server: Server) -> None:
        """Start this one again where its process has ended."""
        index = self.urls.index(server.url)
        process = self._processes[index]
        if self._closed:
            return
        # It hangs, or its engine is dead behind a server that still listens.
        if process.poll() is None and not server.is_up() and time.monotonic() > self._deadlines[index]:
            _kill(process)
        if process.poll() is not None:
            if self._starts[index] > MOST_STARTS:
                raise UserError(f"a vLLM server has ended {MOST_STARTS} times: {self._last_line(index)}")
            self._processes[index] = self._start(index)

    def close(self) -> None:
        self._closed = True
        for process in self._processes:
            _kill(process)
        for log in self._logs:
            log.close()

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        log = self._log(index).open("ab")
        self._logs.append(log)
        gpus = {"CUDA_VISIBLE_DEVICES": self._gpus[index]} if self._gpus else {}
        self._starts[index] += 1
        self._deadlines[index] = time.monotonic() + START_SECONDS
        try:
            return subprocess.Popen(
                self._commands[index],
                env={**self._environment, **gpus},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # A group of its own, so that its workers end with it.
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"--server.python {self._commands[index][0]}: {error.strerror}") from error

    def _log(self, index: int) -> Path:
        return self._folder / f"server-{index}.log"

    def _last_line(self, index: int) -> str:
        lines = self._log(index).read_text("utf-8", errors="replace").strip().splitlines()
        faults = [line for line in lines if "Error" in line]
        last = (faults or lines or ["it said nothing"])[-1]
        return f"{last[-300:]} (all of it in {self._log(index)})"


def warm_up(server: Server) -> None:
    """Have a server answer once; what it answers with is not looked at."""
    question = Question(prompt=(0, 1), answers=1, seed=0, max_tokens=2, temperature=1.0, stop_ids=())
    with suppress(UselessReplyError, GoneError):
        server.draw(question, server.version())


def _command(model: Path, settings: ServerSettings, dtype: torch.dtype, rank: int, port: int) -> list[str]:
    # The command of a server; what the user adds comes last, and wins.
    words = [str(settings.python), "-c", _ENDS_WITH_PARENT, str(os.getpid())]
    words += [*VLLM_WORDS, "--model", str(model.resolve()), "--dtype", str(dtype).removeprefix("torch.")]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    if rank:
        # vLLM has room for ranks of some sizes.
        room = next((size for size in LORA_RANKS if size >= rank), rank)
        words += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(room)]
    return [*words, *shlex.split(settings.arguments)]


def plugin_environment(folder: Path) -> dict[str, str]:
    """What lets a vLLM server find plaudit's carrier of weights, and nothing else of this environment."""
    home = folder / "plugin"
    facts = home / "plaudit_carrier-0.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: plaudit-carrier\nVersion: 0\n", "utf-8")
    entry = "[vllm.general_plugins]\nplaudit = plaudit.serving.vllm_plugin:register\n"
    (facts / "entry_points.txt").write_text(entry, "utf-8")
    link = home / "plaudit"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(plaudit.__file__).resolve().parent, target_is_directory=True)
    switches = ("VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_NO_USAGE_STATS")
    return {"PYTHONPATH": str(home), **dict.fromkeys(switches, "1")}


def _shares(settings: ServerSettings) -> list[str]:
    # The GPUs of each server; empty where none were named.
    gpus = [word.strip() for word in settings.gpus.split(",") if word.strip()]
    if not gpus:
        return []
    each, rest = divmod(len(gpus), settings.count)
    if rest or not each:
        raise UserError(f"server.gpus: {len(gpus)} GPUs cannot be shared out among {settings.count} servers")
    return [",".join(gpus[start : start + each]) for start in range(0, len(gpus), each)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
