"""A sampling server without vLLM: plaudit's own sampler behind the routes that a vLLM server has, and chats.

It answers one question at a time, so that an answer depends on nothing but the weights and the question: a
run that asks again after a crash gets the same tokens, to the bit.
"""

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from plaudit.errors import UserError
from plaudit.models.adapters import with_adapter
from plaudit.models.load import ONE_MODEL_AT_A_TIME
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Answer, GenerationRequest, Rollout, SamplingSettings, prompt_tokens
from plaudit.serving import completions
from plaudit.serving.proof import policy_logps
from plaudit.serving.weight_files import HeldWeights, WrongWeightsError

LARGEST_REQUEST = 64_000_000


class SamplingModel:
    """A model that answers questions in tokens, and takes new weights between them."""

    def __init__(self, folder: Path, *, device: str = "auto", dtype: str = "auto") -> None:
        """Of a Hugging Face folder."""
        self.folder, self.version = folder, "default"
        self._sampler = LocalSampler(folder, device=device, dtype=dtype)
        self._held = HeldWeights()
        self._adapter: str | None = None
        # One at a time: what is answered side by side is rounded otherwise than alone.
        self._turn = threading.Lock()
        self._running = threading.Event()
        self._running.set()
        self.routes: dict[str, Callable[[Mapping[str, Any]], Reply]] = {
            "GET /health": lambda body: {},
            "GET /v1/models": self._models,
            "GET /weight_info": lambda body: {"weight_version": self.version},
            "POST /inference/v1/generate": self._generate,
            "POST /v1/chat/completions": self._chat,
            "POST /init_weight_transfer_engine": self._begin,
            "POST /pause": self._pause,
            "POST /resume": self._resume,
            "POST /start_weight_update": lambda body: {},
            "POST /update_weights": self._update,
            "POST /finish_weight_update": lambda body: self._name(body["weight_version"]),
            "POST /update_weight_version": lambda body: self._name(body["new_version"]),
            "POST /v1/load_lora_adapter": self._adapt,
            "POST /v1/unload_lora_adapter": lambda body: {},
        }

    @property
    def policy(self) -> Policy:
        """What answers."""
        return self._sampler.policy

    def _models(self, _: Mapping[str, Any]) -> dict[str, Any]:
        model = {"id": self.folder.name, "root": str(self.folder)}
        return {"data": [{**model, "max_model_len": self._sampler.max_positions}]}

    def _begin(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._held = HeldWeights()
        return {}

    def _pause(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._running.clear()
        # Behind the answer that is under way.
        with self._turn:
            return {}

    def _resume(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._running.set()
        return {}

    def _update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        update = body["update_info"]
        with self._turn:
            load_served(self.policy.base, self._held.read(update["path"], update["root"]))
        return {}

    def _adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._turn:
            model: Any = self.policy.model
            base = model.unload() if hasattr(model, "unload") else model
            # PEFT leaves its mark, and warns at the next one of two adapters.
            vars(base).pop("peft_config", None)
            adapted = Policy(with_adapter(base, Path(body["lora_path"])), layout="right")
            self._sampler = LocalSampler.from_policy(adapted, self._sampler.encoder)
            self._adapter = body["lora_name"]
        return {}

    def _name(self, version: object) -> dict[str, Any]:
        self.version = str(version)
        return {}

    def _generate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        wanted, ids = body["sampling_params"], tuple(body["token_ids"])
        self._running.wait()
        with self._turn:
            if (adapter := body.get("model")) != self._adapter:
                raise UserError(f"no adapter {adapter} here, but {self._adapter}")
            if "prompt_logprobs" in wanted:
                return {"choices": [], "prompt_logprobs": self._logps_of(ids)}
            how = {name: wanted[name] for name in ("top_k", "top_p", "min_p") if name in wanted}
            how |= {"temperature": wanted["temperature"], "stop": tuple(wanted.get("stop", ()))}
            settings = SamplingSettings(**how, max_tokens=wanted["max_tokens"])
            requests = [
                GenerationRequest(prompt=ids, sample=seed, max_new_tokens=settings.max_tokens)
                for seed in range(wanted["seed"], wanted["seed"] + wanted["n"])
            ]
            rollouts, version = self._sampler.generate_requests(requests, settings), self.version
        # The next question need not wait for these to be written down.
        return {"choices": [_choice(index, rollout, version) for index, rollout in enumerate(rollouts)]}

    def _chat(self, body: Mapping[str, Any]) -> "Reply":
        question = completions.read_question(body, self.folder.name)
        self._running.wait()
        if question.streamed:
            return self._streamed(question)
        with self._turn, completions.with_files(question) as turns:
            prompt = self._sampler.encode(turns)
            [rollouts] = self._sampler.generate([prompt], question.settings, n=question.answers)
        answers = [rollout.answer for rollout in rollouts]
        return question.completion(answers, len(prompt_tokens(prompt)))

    def _streamed(self, question: completions.ChatQuestion) -> Generator[dict[str, Any]]:
        # Answers one behind the other, by the same draws as whole ones.
        with self._turn, completions.with_files(question) as turns:
            for index in range(question.answers):
                pieces = self._sampler.stream(turns, question.settings, index)
                yield question.chunk(index, {"role": "assistant", "content": ""})
                answer = yield from _chunks(question, index, pieces)
                yield question.chunk(index, {}, completions.finish_reason(answer))

    def _logps_of(self, ids: tuple[int, ...]) -> list[dict[str, Any] | None]:
        logps = policy_logps(self.policy, [ids]).tolist()
        return [None, *({str(token): {"logprob": x}} for token, x in zip(ids[1:], logps, strict=True))]


Reply = dict[str, Any] | Generator[dict[str, Any]]
"""What a route answers, whole or in pieces."""


def _chunks(
    question: completions.ChatQuestion, index: int, pieces: Generator[str, None, Answer]
) -> Generator[dict[str, Any], None, Answer]:
    while True:
        try:
            yield question.chunk(index, {"content": next(pieces)})
        except StopIteration as end:
            return end.value


def _choice(index: int, rollout: Rollout, version: str) -> dict[str, Any]:
    return {
        "index": index,
        "finish_reason": "stop" if rollout.answer.ended else "length",
        "token_ids": [*rollout.ids],
        "logprobs": {"content": [{"logprob": logp} for logp in rollout.whole_logp]},
        "weight_versions": [{"version": version, "start": 0, "end": len(rollout.ids)}],
    }


def load_served(model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give a model the weights of these, which have the names that a folder has."""
    # Through transformers' loader, which knows how a folder names what a model holds as one.
    with ONE_MODEL_AT_A_TIME:
        fresh: Any = type(model).from_pretrained(None, config=model.config, state_dict=dict(tensors))
    with torch.no_grad():
        for mine, sent in zip(model.parameters(), fresh.parameters(), strict=True):
            mine.copy_(sent)


class _Handler(BaseHTTPRequestHandler):
    model: SamplingModel
    token: str | None

    def do_GET(self) -> None:
        self._reply("GET")

    def do_POST(self) -> None:
        self._reply("POST")

    def _reply(self, method: str) -> None:
        route = self.model.routes.get(f"{method} {urlsplit(self.path).path}")
        length = int(self.headers.get("Content-Length") or 0)
        if self.token is not None and self.headers.get("Authorization") != f"Bearer {self.token}":
            self._send(401, {"error": "no token, or another one"})
        elif route is None:
            self._send(404, {"error": f"no {self.path} here"})
        elif length > LARGEST_REQUEST:
            self._send(413, {"error": f"{length:,} bytes are too many"})
        else:
            try:
                reply = route(json.loads(self.rfile.read(length) or b"{}"))
                first = None if isinstance(reply, dict) else next(reply)
            except (UserError, WrongWeightsError, ValueError, KeyError, TypeError) as error:
                self._send(400, {"error": f"{type(error).__name__}: {error}"})
                return
            if isinstance(reply, dict):
                self._send(200, reply)
            else:
                self._send_pieces(first, reply)

    def _send_pieces(self, first: object, rest: Generator[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        # Where nobody listens any more, nothing more is drawn, and the next one may ask.
        with closing(rest), suppress(ConnectionError):
            for piece in chain([first], rest):
                self.wfile.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, status: int, reply: Mapping[str, Any]) -> None:
        content = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a line for each question would be the whole terminal."""


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def http_server(model: SamplingModel, host: str, port: int, token: str | None) -> ThreadingHTTPServer:
    """The server, bound to its port; ``serve_forever`` begins. With a token nobody is heard without it."""
    handler = type("Handler", (_Handler,), {"model": model, "token": token})
    try:
        return _Listening((host, port), handler)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror or error}; take another one") from error
