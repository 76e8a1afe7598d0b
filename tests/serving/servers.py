"""Sampling servers in this process, honest ones and others."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from torch import Tensor

from plaudit.serving.local_server import SamplingModel, http_server
from plaudit.serving.weight_files import HeldWeights, checksum

Tensors = dict[str, Tensor]
Fault = Callable[[int, Tensors, Tensors], Tensors]
"""What a server holds, of the number of a delivery, what it held before and what has come."""


class FaultyModel(SamplingModel):
    """Takes every delivery, says that all went well, and computes with something else."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        super().__init__(folder, device="cpu", dtype="float32")
        self._honest, self._fault = HeldWeights(), fault
        self._number, self._loaded = 0, Tensors()
        self.routes["POST /init_weight_transfer_engine"] = lambda body: {}
        self._held = self

    def read(self, path: str, root: str) -> Tensors:
        come = {name: tensor.clone() for name, tensor in self._honest.read(path, root).items()}
        self._loaded = self._fault(self._number, self._loaded, come)
        self._number += 1
        return self._loaded


@contextmanager
def serving(model: SamplingModel | Path) -> Iterator[str]:
    if isinstance(model, Path):
        model = SamplingModel(model, device="cpu", dtype="float32")
    with http_server(model, "127.0.0.1", 0, None) as server, running(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def saying(reply: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply(self)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with server, running(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


FAULTY = """
from pathlib import Path

calls = []

def short(answer):
    calls.append(answer)
    if Path(__file__).with_name("faulty").exists() and len(calls) == 30:
        raise ValueError("no more")
    return -float(len(answer.split()))
"""
"""A reward that breaks at its thirtieth answer, while a file lies beside it."""


def counting(folder: Path) -> tuple[SamplingModel, list[tuple[str, int]]]:
    """A model to serve, and what it was asked so far, with the checksum of its weights then."""
    asked: list[tuple[str, int]] = []
    model = SamplingModel(folder, device="cpu", dtype="float32")
    generate = model.routes["POST /inference/v1/generate"]

    def counted(body: Mapping[str, Any]) -> Any:
        # What proves its log-probs has none, or 0.
        if body["sampling_params"].get("seed"):
            asked.append((json.dumps(body), checksum(next(model.policy.parameters()))))
        return generate(body)

    model.routes["POST /inference/v1/generate"] = counted
    return model, asked
