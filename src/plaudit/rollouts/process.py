"""A sampler in a process of its own: tokens, settings and weights go through a pipe, rollouts come back.

A message is two lengths of eight bytes, a JSON object and a payload (weights as safetensors, or nothing).
Nothing is pickled, so neither side can make the other run code.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import (
    GenerationPrompt,
    GenerationRequest,
    Rollout,
    SamplingSettings,
    WeightsVersion,
    generation_requests,
    rollout_from_json,
    rollout_to_json,
)
from plaudit.tokens.encode import make_encoder

LENGTH_BYTES = 8
"""Bytes of each of the two lengths in front of a message."""
PIECE_BYTES = 2**20
"""The most bytes that are read or written at once."""
LAST_WORDS = 2000
"""Characters of the other process's error stream that an error shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    body: Mapping[str, Any]
    payload: bytes = b""
    """The bytes that follow the header: weights."""

    def to_bytes(self) -> bytes:
        body = json.dumps(self.body).encode()
        lengths = (len(part).to_bytes(LENGTH_BYTES, "big") for part in (body, self.payload))
        return b"".join((*lengths, body, self.payload))


class Pipe:
    """Two ends of pipes that messages are read from and written to, each within so many seconds."""

    def __init__(self, read: int, write: int, seconds: float | None = None) -> None:
        """File descriptors; without a limit both ends wait for ever."""
        self._read, self._write, self._seconds = read, write, seconds
        # A blocking write of a megabyte into a full pipe would wait past any deadline.
        for end in (read, write):
            os.set_blocking(end, False)

    def send(self, message: Message) -> None:
        """Write a message; `TimeoutError` where nobody reads it, `BrokenPipeError` where nobody could."""
        # One deadline for the whole message, or a peer that takes it byte by byte would never be late;
        # a memoryview, since slices of gigabytes of weights are otherwise copied.
        deadline, rest = self._deadline(), memoryview(message.to_bytes())
        while rest:
            self._wait(deadline, writing=True)
            rest = rest[os.write(self._write, rest[:PIECE_BYTES]) :]

    def receive(self) -> Message:
        """The next message; `EOFError` where the other side has closed."""
        deadline = self._deadline()
        lengths = self._read_bytes(2 * LENGTH_BYTES, deadline)
        body, payload = (int.from_bytes(lengths[at : at + LENGTH_BYTES], "big") for at in (0, LENGTH_BYTES))
        return Message(
            body=json.loads(self._read_bytes(body, deadline)), payload=self._read_bytes(payload, deadline)
        )

    def _read_bytes(self, count: int, deadline: float | None) -> bytes:
        pieces, missing = [], count
        while missing:
            self._wait(deadline, writing=False)
            piece = os.read(self._read, min(missing, PIECE_BYTES))
            if not piece:
                raise EOFError
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _deadline(self) -> float | None:
        # Monotonic, for the wall clock may be set while a run waits.
        return None if self._seconds is None else time.monotonic() + self._seconds

    def _wait(self, deadline: float | None, *, writing: bool) -> None:
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        end, event = (self._write, selectors.EVENT_WRITE) if writing else (self._read, selectors.EVENT_READ)
        # Not select(), which takes no descriptor above 1,023.
        with selectors.DefaultSelector() as selector:
            selector.register(end, event)
            if not selector.select(seconds):
                raise TimeoutError


class ProcessSampler:
    """A model's folder that answers in another process, with the weights that it was last sent.

    Given a policy, it is sent that policy's weights whenever ``weights`` says that they have moved.

    Example: ``with ProcessSampler(Path("runs/sft/model")) as sampler: sampler.generate([(1, 5)], settings)``
    """

    def __init__(
        self,
        model: Path,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        policy: Policy | None = None,
        weights: WeightsVersion | None = None,
        seconds: float = 600.0,
    ) -> None:
        """Start the process; after ``seconds`` without an answer it counts as hanging.

        Weights that it is sent are rounded to ``dtype``, which is what the policy computes in.
        """
        self._policy, self._weights = policy, weights or WeightsVersion()
        # A check may give a module one more for a moment, of which the other process knows nothing.
        self._names = () if policy is None else tuple(name for name, _ in policy.named_parameters())
        self._sent: int | None = None
        self._seconds = seconds
        self._errors = _open_errors()
        self._process = _start(self._errors)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipe = Pipe(self._process.stdout.fileno(), self._process.stdin.fileno(), seconds)
        self._close = weakref.finalize(self, _end, self._process, self._errors)
        try:
            opened = self._ask(
                {
                    "do": "open",
                    "model": str(model),
                    "device": device,
                    "dtype": str(dtype).removeprefix("torch."),
                    # Another number of threads adds up in another order.
                    "threads": torch.get_num_threads(),
                }
            )
        except UserError:
            self.close()
            raise
        self._max_positions: int | None = opened["max_positions"]
        self.fallback_reason: str | None = opened["fallback_reason"]
        """Why the model's own cache is used in place of ours; None when ours is."""

    @property
    def version(self) -> int:
        return self._weights.number

    def load_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Sample from these weights from now on; a version older than the one that is there is refused."""
        # safetensors wants contiguous memory; tied weights have a single name here and are sent once.
        tensors = {name: weight.detach().to("cpu").contiguous() for name, weight in weights.items()}
        self._ask({"do": "load", "version": version}, save(tensors))
        self._weights.number = self._sent = version

    def generate(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        rollouts = self.generate_requests(self.requests_for(prompts, settings, n), settings)
        return [rollouts[p * n : (p + 1) * n] for p in range(len(prompts))]

    def requests_for(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        return generation_requests(prompts, settings, n, self._max_positions)

    def generate_requests(
        self, requests: Sequence[GenerationRequest], settings: SamplingSettings
    ) -> list[Rollout]:
        """A rollout for each request, in their order; extras are refused, since only tokens are sent."""
        if shown := sorted({name for request in requests for name in request.extras}):
            raise UserError(
                f"a prompt shows {' and '.join(shown)} beside tokens, and the sampler's process is sent "
                "tokens alone; sample in this process (--sampler local)"
            )
        # When answers are wanted, and not at every step: a round of many updates sends weights once.
        if self._policy is not None and self._sent != self.version:
            parameters = dict(self._policy.named_parameters())
            self.load_weights(self.version, {name: parameters[name] for name in self._names})
        # The version goes along, so that stale weights are an error and never answers.
        answer = self._ask(
            {
                "do": "generate",
                "version": self.version,
                "requests": [asdict(request) for request in requests],
                "settings": asdict(settings),
            }
        )
        return [rollout_from_json(record) for record in answer["rollouts"]]

    def close(self) -> None:
        """End the process; to be called when no more answers are wanted."""
        self._close()

    def __enter__(self) -> ProcessSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, body: Mapping[str, Any], payload: bytes = b"") -> Mapping[str, Any]:
        if not self._close.alive:
            raise UserError("the sampler's process is closed; make another one")
        try:
            self._pipe.send(Message(body=body, payload=payload))
            answer = self._pipe.receive().body
        except TimeoutError as error:
            # A late answer would be taken for the answer to the next question.
            self._process.kill()
            raise UserError(
                f"the sampler's process did not answer within {self._seconds:g} seconds and was ended"
                f"{self._last_words()}"
            ) from error
        except (EOFError, BrokenPipeError) as error:
            code = self._process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            raise UserError(f"the sampler's process has ended {how}{self._last_words()}") from error
        if "error" in answer:
            raise UserError(answer["error"])
        return answer

    def _last_words(self) -> str:
        """What the process wrote last on its error stream; all is closed then."""
        # Its stream is whole only once it has ended.
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()[-LAST_WORDS:]
        self.close()
        return f"; it wrote last:\n{text}" if text else ""


def _open_errors() -> IO[bytes]:
    """A file for the error stream, which vanishes when it is closed."""
    # No pipe: nobody would empty it meanwhile, and a full one would block the other process.
    return TemporaryFile()


def _start(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """The other process, which finds the same modules as this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "plaudit.rollouts.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # Ctrl-C is for the run, which saves and then closes its sampler.
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """End a process whether or not it listens, and leave nothing open."""
    # Not asked first: it holds nothing to save, and may be deep in a matrix product.
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            stream.close()


class _Server:
    """The other side: a local sampler that does what messages ask for."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        torch.set_num_threads(body["threads"])
        dtype, device = getattr(torch, body["dtype"]), torch.device(body["device"])
        model = Path(body["model"])
        self._policy = Policy(load_model(model, dtype=dtype, device=device), layout="right")
        self._weights = WeightsVersion()
        self._sampler = LocalSampler.from_policy(self._policy, make_encoder(model), weights=self._weights)

    def opened(self) -> Mapping[str, Any]:
        return {
            "max_positions": self._sampler.max_positions,
            "fallback_reason": self._sampler.fallback_reason,
        }

    def answer(self, message: Message) -> Mapping[str, Any]:
        body = message.body
        if body["do"] == "load":
            return self._load(body["version"], load(message.payload))
        if body["version"] != self._weights.number:
            raise UserError(
                f"answers of version {body['version']} of the weights are wanted, and the sampler's process "
                f"has version {self._weights.number}; load_weights brings it up to date"
            )
        # JSON has made lists of the tuples, and a request with a list in it cannot be hashed.
        requests = [
            GenerationRequest(**{**request, "prompt": tuple(request["prompt"])})
            for request in body["requests"]
        ]
        settings = SamplingSettings(**{**body["settings"], "stop": tuple(body["settings"]["stop"])})
        rollouts = self._sampler.generate_requests(requests, settings)
        return {"rollouts": [rollout_to_json(rollout) for rollout in rollouts]}

    def _load(self, version: int, weights: Mapping[str, Tensor]) -> Mapping[str, Any]:
        if version < self._weights.number:
            raise UserError(
                f"version {version} of the weights is older than version {self._weights.number}, which the "
                "sampler's process has"
            )
        parameters = dict(self._policy.named_parameters())
        # Before any is copied: a half-loaded model would answer as no policy ever was.
        strange = sorted(parameters.keys() ^ weights.keys())
        if strange:
            raise UserError(f"the weights are not those of the sampler's model, as {strange[0]} shows")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
        self._weights.number = version
        return {}


def serve(pipe: Pipe) -> None:
    """Answer messages until the other side closes; what is wrong with one is its answer."""
    server: _Server | None = None
    while True:
        try:
            message = pipe.receive()
        except EOFError:
            return
        try:
            if server is None:
                server = _Server(message.body)
                answer = server.opened()
            else:
                answer = server.answer(message)
        # Refusals alone are answers; any other error ends this process and shows its traceback.
        except UserError as error:
            answer = {"error": str(error)}
        pipe.send(Message(body=answer))


def main() -> None:
    """The other process: what libraries print goes to the error stream, and not between messages."""
    write = os.dup(1)
    os.dup2(2, 1)
    serve(Pipe(0, write))


if __name__ == "__main__":
    main()
