"""One sampling server, spoken to as vLLM's are: tokens in, tokens and log-probs out, and new weights.

What is asked of a server either comes, or is an error that says what to do with it: `GoneError` (ask another
one), `UselessReplyError` (ask again, and never learn from it), or a `UserError` (nothing mends it by itself).
"""

import http.client
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from plaudit.errors import UserError
from plaudit.files.posting import RejectedError, RetryPolicy, TransientError, excerpt_of, parse_url, post

BYTES_OF_A_REPLY = 512_000_000
"""A group of 64 answers of 32,768 tokens is about half of it."""
UNPROVEN = "-unproven"
"""What follows the name of weights until a server has proven that it computes with them."""
CONTROL_SECONDS = 600.0
"""How long a server may take for a whole model of new weights."""


class GoneError(Exception):
    """The server is not there, hangs, or has said that it is broken."""


class UselessReplyError(Exception):
    """A reply that no policy may learn from; its text is what it is counted under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Some answers to one prompt: equal questions have equal answers.
    Example: ``Question(prompt=(1, 5), answers=8, seed=7, max_tokens=64, temperature=1.0, stop_ids=(2,))``."""

    prompt: tuple[int, ...]
    answers: int
    seed: int
    """Of the first answer; each further one has the next."""
    max_tokens: int
    temperature: float
    stop_ids: tuple[int, ...]
    stop: tuple[str, ...] = ()
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def body(self) -> dict[str, Any]:
        """As vLLM's token route takes it, with nothing left to the server's own defaults."""
        sampling = {
            "n": self.answers,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "stop": [*self.stop],
            "stop_token_ids": [*self.stop_ids],
            # Only what the run ends answers at: a folder's generation settings may name other tokens.
            "ignore_eos": True,
            "logprobs": 0,
        }
        return {"token_ids": [*self.prompt], "sampling_params": sampling}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTokens:
    """An answer as a server draws it."""

    ids: tuple[int, ...]
    logp: tuple[float, ...]
    ended: bool


class Server:
    """A server by its address: ``Server("http://127.0.0.1:8000")``."""

    def __init__(
        self, url: str, *, seconds: float = 600.0, token_from: str | None = None, adapters: bool = False
    ) -> None:
        """``seconds`` is how long an answer may take; with ``adapters`` those are what it is sent."""
        parse_url(url)
        self.url = url.rstrip("/")
        self.adapters = adapters
        self._adapter = ""
        """The adapter that it was sent last."""
        self._asking = RetryPolicy(seconds=seconds, token_from=token_from, max_bytes=BYTES_OF_A_REPLY)
        self._looking = RetryPolicy(seconds=min(5.0, seconds), token_from=token_from)
        self._control = RetryPolicy(seconds=CONTROL_SECONDS, token_from=token_from)

    def is_up(self) -> bool:
        """Whether it says that it is well, within seconds."""
        try:
            self._call("/health", None, self._looking)
        except (GoneError, UserError, UselessReplyError):
            return False
        return True

    def model(self) -> dict[str, Any]:
        """What it says of the model that it serves: its folder (``root``) and its ``max_model_len``."""
        models = self._call("/v1/models", None, self._looking)
        if not (isinstance(models, dict) and models.get("data")):
            raise UserError(f"{self.url} names no model at /v1/models: is it a sampling server?")
        return dict(models["data"][0])

    def version(self) -> str:
        """The name of the weights that it answers with."""
        return str(self._call("/weight_info", None, self._looking).get("weight_version"))

    def draw(self, question: Question, version: str) -> list[DrawnTokens]:
        """The answers to a question by the weights of this name, none of them cut or of other weights."""
        reply = self._generate(question.body(), version)
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or len(choices) != question.answers:
            raise UselessReplyError("not as many answers as were wanted")
        by_index = {choice.get("index"): choice for choice in choices if isinstance(choice, dict)}
        if {*by_index} != {*range(question.answers)}:
            raise UselessReplyError("not as many answers as were wanted")
        return [self._tokens_of(by_index[index], question, version) for index in range(question.answers)]

    def _tokens_of(self, choice: Mapping[str, Any], question: Question, version: str) -> DrawnTokens:
        ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        finish = choice.get("finish_reason")
        # What was aborted before its first token has no log-probs, and is no reason to end a run.
        if finish not in ("stop", "length"):
            raise UselessReplyError("aborted")
        if not ids or not content or len(ids) != len(content):
            raise UserError(
                f"{self.url} gives no token ids with their log-probs: a policy cannot learn from text that "
                "is tokenised again; it may judge, but not be sampled from"
            )
        logp = tuple(float(token["logprob"]) for token in content)
        if not all(math.isfinite(value) and value <= 1e-5 for value in logp):
            raise UselessReplyError("log-probs that are none")
        if [entry.get("token_id", token) for token, entry in zip(ids, content, strict=True)] != ids:
            raise UselessReplyError("log-probs of other tokens")
        _refuse_other_weights(choice.get("weight_versions"), len(ids), version)
        by_token = ids[-1] in question.stop_ids
        whole = by_token or bool(question.stop) if finish == "stop" else len(ids) == question.max_tokens
        if not whole or len(ids) > question.max_tokens:
            raise UselessReplyError("cut short of its room")
        return DrawnTokens(ids=tuple(ids), logp=logp, ended=finish == "stop")

    def prompt_logps(self, ids: Sequence[int]) -> list[float]:
        """The log-prob of each token but the first, given those before it."""
        sampling = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        body = {"token_ids": [*ids], "sampling_params": sampling}
        rows = self._generate(body, self._adapter).get("prompt_logprobs") or []
        if len(rows) != len(ids):
            raise UserError(f"{self.url} gives no log-probs of a prompt, by which its weights are proven")
        return [
            float(row[str(token)]["logprob"]) for row, token in zip(rows[1:], ids[1:], strict=True) if row
        ]

    def _generate(self, body: dict[str, Any], adapter: str) -> Any:
        # A reply of the token route; of an adapter by its name, where adapters are sent.
        if not self.adapters:
            return self._call("/inference/v1/generate", body, self._asking)
        try:
            return self._call("/inference/v1/generate", {**body, "model": adapter}, self._asking)
        except RejectedError as error:
            # As one does that was started again meanwhile.
            if self.version().removesuffix(UNPROVEN) == adapter:
                raise
            raise GoneError(f"{self.url} does not have the adapter of these weights: {error}") from error

    def begin_transfer(self) -> None:
        """Begin anew with a server that may have just started."""
        self._adapter = ""
        if not self.adapters:
            self._change("/init_weight_transfer_engine", {"init_info": {}})

    def take(self, updates: Sequence[Mapping[str, Any]], version: str) -> None:
        """Let it load these weights, and answer with them under this name from now on."""
        # Answers under way are waited for, and the keys and values of the old weights are forgotten; without
        # a mode vLLM would abort them.
        self._change("/pause", {}, mode="wait")
        for update in updates:
            if self.adapters:
                self._load_adapter(update, version)
                continue
            self._change("/start_weight_update", {})
            self._change("/update_weights", {"update_info": dict(update)})
            self._change("/finish_weight_update", {"weight_version": version})
        self._change("/resume", {})

    def _load_adapter(self, update: Mapping[str, Any], version: str) -> None:
        # Under a name of its own: one that is loaded in place answers with what it kept of the old one.
        adapter = version.removesuffix(UNPROVEN)
        folder = str(Path(update["path"]).parent)
        try:
            self._change("/v1/load_lora_adapter", {"lora_name": adapter, "lora_path": folder})
        except GoneError as error:
            raise GoneError(f"{error} (has it --enable-lora, and --max-lora-rank for this one?)") from error
        if self._adapter:
            self._change("/v1/unload_lora_adapter", {"lora_name": self._adapter})
        self._adapter = adapter
        self.name_weights(version)

    def name_weights(self, version: str) -> None:
        """Let it answer under this name with the weights that it has."""
        self._change("/update_weight_version", {"new_version": version})

    def _change(self, path: str, body: Mapping[str, Any], **query: str) -> None:
        try:
            # Some of vLLM's routes say that all went well in words.
            with suppress(UselessReplyError):
                self._call(f"{path}?{urlencode(query)}" if query else path, body, self._control)
        except UserError as error:
            # vLLM knows these routes only as a development server.
            options = "VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config"
            if self.adapters:
                options = "VLLM_SERVER_DEV_MODE=1, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
            hint = f"start it with {options} (docs/scale.md)"
            raise UserError(f"{self.url} takes no weights at {path} ({error}); {hint}") from error

    def _call(self, path: str, body: Mapping[str, Any] | None, policy: RetryPolicy) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            reply = post(f"{self.url}{path}", policy, data)
        except (TransientError, OSError, http.client.HTTPException) as error:
            raise GoneError(f"{self.url}{path.partition('?')[0]}: {error or type(error).__name__}") from error
        except RejectedError:
            raise
        if not reply.strip():
            return {}
        try:
            return json.loads(reply)
        except ValueError:
            raise UselessReplyError(f"no JSON ({excerpt_of(reply[:40])})") from None


def _refuse_other_weights(spans: Any, tokens: int, version: str) -> None:
    # Refuse an answer any token of which was drawn with other weights, or that does not say with which.
    if not isinstance(spans, list) or not spans:
        raise UselessReplyError("no word of the weights that drew it")
    if {str(span.get("version")) for span in spans} != {version}:
        raise UselessReplyError("drawn with other weights")
    covered = sum(int(span["end"]) - int(span["start"]) for span in spans)
    if covered != tokens:
        raise UselessReplyError("no word of the weights that drew it")
