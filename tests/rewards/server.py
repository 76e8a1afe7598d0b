"""A small HTTP server that does what a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any], int], tuple[int, bytes] | tuple[int, bytes, dict[str, str]]]
"""From what was asked, and how often before, to a status, a body and headers."""


@dataclass(slots=True)
class Server:
    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(reply: Reply) -> Iterator[Server]:
    lock = threading.Lock()
    seen = Server(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                before = len(seen.asked)
                seen.asked.append(body)
                seen.headers.append(dict(self.headers))
            status, said, *more = reply(body, before)
            if not status:
                return
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                for name, value in more[0].items() if more else ():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)
            except OSError:
                pass

    with running(Handler) as url:
        seen.url = f"{url}/score"
        yield seen


def scores(*said: object) -> bytes:
    return json.dumps({"scores": said}).encode()


def lengths(body: dict[str, Any], _: int) -> tuple[int, bytes]:
    return 200, scores(*(len(answer) for answer in body["answers"]))
