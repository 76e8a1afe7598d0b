"""An OpenAI-compatible server whose models are minds of the world, for judging without a model or a network.

``POST /v1/chat/completions``, ``GET /v1/models``, and ``GET /counts``: what it was asked so far. It is the
standard library's server and no framework's: it needs nothing beyond the base installation, has two routes,
and half of what it is for is to break off, to hang up and to send what no framework would.

Whatever goes wrong is drawn from the question and how often this very question came before, never from the
order of other requests, so that a run can be repeated with any number of requests at once.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plaudit.errors import UserError
from plaudit.lab.world.minds import Mind, MindReply, read_question, reply_to, shortened, tokens_of

COMPLETIONS = "/v1/chat/completions"
FAULT_KINDS = ("429", "500", "503", "cut short", "hung up", "error in a 200")
"""How requests fail on the way; each of them passes when it is tried again."""
MOST_BYTES = 4_000_000
TOP_LOGPROBS = 20
_MARKS = {"plain": "{}", "spaced": " {}", "piece": "▁{}", "bold": "{}"}


@dataclass(slots=True, kw_only=True)
class Counts:
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: int = 0
    attempts: Counter[str] = field(default_factory=Counter[str])
    replies: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    price: float = 0.0

    def to_json(self) -> dict[str, Any]:
        with self.lock:
            return {
                "requests": self.requests,
                "questions": len(self.attempts),
                "replies": sum(self.replies.values()),
                "replied_twice": sum(count - 1 for count in self.replies.values()),
                "faults": dict(self.faults),
                "tokens": dict(self.tokens),
                "price": round(self.price, 9),
            }


class MindServer:
    """Minds on a port of this machine, while the block runs."""

    def __init__(self, minds: Sequence[Mind], *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take the port; of two minds of one name neither could be asked for."""
        names = [mind.name for mind in minds]
        if not names or len({*names}) < len(names):
            raise UserError(f"minds need names of their own, and there is {', '.join(names) or 'none'}")
        self.minds: Mapping[str, Mind] = {mind.name: mind for mind in minds}
        self.counts = Counts()
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise UserError(f"{host}:{port}: cannot listen there ({error.strerror or error})") from error
        self._server.owner = self
        self._thread: threading.Thread | None = None
        self.url = f"http://{host}:{self._server.server_address[1]}/v1"

    def __enter__(self) -> MindServer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self.close()

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    owner: MindServer
    daemon_threads = True
    # More may connect at one moment than the library's five.
    request_queue_size = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    mind: Mind
    text: str
    body: Mapping[str, Any]
    key: str
    attempt: int

    @property
    def temperature(self) -> float:
        value = self.body.get("temperature", 1.0)
        return float(value) if isinstance(value, int | float) else 1.0

    @property
    def wants_logprobs(self) -> bool:
        return self.mind.logprobs and self.body.get("logprobs") is True


class _BadRequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "plaudit-world"

    def do_GET(self) -> None:
        owner = self.server.owner
        if self.path == "/counts":
            self._send(200, owner.counts.to_json())
        elif self.path == "/v1/models":
            models = [{"id": name, "object": "model", "owned_by": "world"} for name in owner.minds]
            self._send(200, {"object": "list", "data": models})
        else:
            self._send(404, _error(f"{self.path}: there is {COMPLETIONS}, /v1/models and /counts"))

    def do_POST(self) -> None:
        try:
            request = self._read()
        except _BadRequestError as bad:
            self._send(bad.status, _error(bad.message))
            return
        time.sleep(request.mind.delay * (0.5 + request.mind.draw("delay", request.key, request.attempt)))
        if request.mind.draw("fault", request.key, request.attempt) < request.mind.faults:
            self._fail(request)
            return
        self._send(200, _completion(self.server.owner.counts, request))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what was asked is counted."""

    def _read(self) -> _Request:
        if self.path != COMPLETIONS:
            # Its body is not read, and must not be taken for the next request.
            self.close_connection = True
            raise _BadRequestError(404, f"{self.path}: post to {COMPLETIONS}")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            raise _BadRequestError(413, f"a request has a length of at most {MOST_BYTES:,} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise _BadRequestError(400, "the body is not JSON") from None
        return _request(self.server.owner, body)

    def _send(self, status: int, body: object, *, missing: int = 0) -> None:
        content = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content) + missing))
            if self.close_connection:
                # Whoever keeps connections would send the next request into a closed one.
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            # Whoever asked is gone.
            self.close_connection = True

    def _fail(self, request: _Request) -> None:
        kind = FAULT_KINDS[int(request.mind.draw("kind", request.key, request.attempt) * len(FAULT_KINDS))]
        with self.server.owner.counts.lock:
            self.server.owner.counts.faults[kind] += 1
        if kind == "error in a 200":
            self._send(200, {"error": {"message": "upstream is overloaded", "code": 503}})
        elif kind == "cut short":
            self._send(200, {"object": "chat.completion"}, missing=100)
            self.close_connection = True
        elif kind == "hung up":
            self.close_connection = True
        else:
            self._send(int(kind), _error("try again later"))


def _request(owner: MindServer, body: object) -> _Request:
    """The request of a body, counted; what a real server would refuse is refused."""
    if not isinstance(body, dict):
        raise _BadRequestError(400, "the body is no object")
    mind = owner.minds.get(str(body.get("model")))
    if mind is None:
        raise _BadRequestError(
            404, f"there is no model {body.get('model')!r}; there is {', '.join(owner.minds)}"
        )
    if body.get("stream"):
        raise _BadRequestError(400, "stream: this server sends whole replies")
    if body.get("n", 1) != 1:
        raise _BadRequestError(400, "n: this server sends one reply to a request")
    text = _text(body.get("messages"))
    # The number of the delimiters is another one at each call, and no part of what is asked.
    words = json.dumps(
        [mind.name, *read_question(text).key, str(body.get("seed")), str(body.get("temperature"))]
    )
    with owner.counts.lock:
        owner.counts.requests += 1
        attempt = owner.counts.attempts[words]
        owner.counts.attempts[words] += 1
    return _Request(mind=mind, text=text, body=body, key=words, attempt=attempt)


def _text(messages: object) -> str:
    if not isinstance(messages, list) or not messages:
        raise _BadRequestError(400, "messages: a list of at least one is needed")
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) < len(messages):
        raise _BadRequestError(400, "messages: each has a content that is text")
    return "\n".join(texts)


def _completion(counts: Counts, request: _Request) -> dict[str, Any]:
    seed = request.body.get("seed")
    # Without a seed each repetition draws anew, as with any server.
    draw = request.attempt if seed is None else seed
    reply = reply_to(request.mind, request.text, temperature=request.temperature, draw=draw)
    most = request.body.get("max_tokens") or request.body.get("max_completion_tokens")
    written = replace(reply, text=_written(reply, request.mind))
    reply = shortened(written, most if isinstance(most, int) else None)
    tokens = tokens_of(reply.text)
    message = {"role": "assistant", "content": reply.text}
    if reply.refused:
        message |= {"content": "", "refusal": "I would rather not judge this."}
    usage = _count(counts, request, len(tokens_of(request.text)), len(tokens))
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "length" if reply.cut else "stop",
        "logprobs": {"content": _logprobs(tokens, reply, request)} if request.wants_logprobs else None,
    }
    return {
        "id": "chatcmpl-world",
        "object": "chat.completion",
        # A fixed time, so that the same question has the same bytes.
        "created": 0,
        "model": request.mind.name,
        "choices": [choice],
        "usage": usage,
    }


def _written(reply: MindReply, mind: Mind) -> str:
    """The reply as this mind's tokenizer and manners have it: a letter alone may be bold or spaced."""
    if reply.text not in reply.odds:
        return reply.text
    return {"bold": f"**{reply.text}**", "spaced": f" {reply.text}"}.get(mind.tokens, reply.text)


def _count(counts: Counts, request: _Request, prompt: int, replied: int) -> dict[str, int]:
    first, other = request.mind.prices
    with counts.lock:
        counts.replies[request.key] += 1
        counts.tokens.update(questions=prompt, replies=replied)
        counts.price += (prompt * first + replied * other) / 1_000_000
    return {"prompt_tokens": prompt, "completion_tokens": replied, "total_tokens": prompt + replied}


def _logprobs(tokens: Sequence[str], reply: MindReply, request: _Request) -> list[dict[str, Any]]:
    """Of every token the log-prob, and of the one that decides those of the words in its place."""
    place = next(
        (place for place in reversed(range(len(tokens))) if tokens[place].strip() in reply.odds), None
    )
    return [_token(token, reply if place == n else None, request) for n, token in enumerate(tokens)]


def _token(token: str, reply: MindReply | None, request: _Request) -> dict[str, Any]:
    mark = _MARKS[request.mind.tokens]
    if reply is None:
        return {"token": token, "logprob": 0.0, "bytes": None, "top_logprobs": []}
    most = request.body.get("top_logprobs") or 0
    odds = sorted(reply.odds.items(), key=lambda item: -item[1])
    # Models leave something for other words as well.
    top = [(mark.format(word), math.log(max(share, 1e-9) * 0.98)) for word, share in odds]
    top = [*top, ("The", math.log(0.02))][: min(int(most), TOP_LOGPROBS)]
    word = token.strip()
    return {
        "token": mark.format(word),
        "logprob": math.log(max(reply.odds[word], 1e-9) * 0.98),
        "bytes": None,
        "top_logprobs": [{"token": name, "logprob": logp, "bytes": None} for name, logp in top],
    }


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def serve_minds(server: MindServer, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; ``ready`` is given the address first."""
    try:
        ready(server.url)
        server.serve()
    finally:
        server.close()
