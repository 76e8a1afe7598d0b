"""A model behind an OpenAI-compatible server, asked many questions at once.

``POST …/chat/completions``. A refusal, a reply that was cut, a question that is too long and a server that
cannot be reached are told apart. Every reply is kept on disk at once by what was asked, so a server that goes
down half-way, a cap that is reached or a kill costs nothing but the rest, and no question is asked twice.
"""

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from plaudit.data.judging import LOGPROBS_REFUSED, REJECTED, UNREACHABLE
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply, ReplyCache
from plaudit.feedback.judges.ledger import ChatRequest, ReplyLedger, WithLedger
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import CapReachedError, Prices, Purse
from plaudit.feedback.judges.replies import parse_chat_completion
from plaudit.feedback.judges.words import parse_judge_word
from plaudit.files import posting
from plaudit.files.chat import parse_server

TOO_LONG = "too long for the server"
MAX_FAILURES = 3
"""Questions in a row that cannot be asked, each after all attempts, after which the server is down."""
TOP_LOGPROBS = 20
"""How many alternatives of a token are asked for: as many as the protocol gives."""


@dataclass(slots=True, kw_only=True)
class _ServerHealth:
    """Whether the server still works, shared by all request threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    consecutive_failures: int = 0
    last_failure: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    rejections: int = 0
    any_accepted: bool = False

    @contextmanager
    def stop_on_error(self) -> Iterator[None]:
        """While this lasts, an error or Ctrl-C stops the requests that wait."""
        try:
            yield
        # Ctrl-C too: the threads of the pool would otherwise go on asking, and paying, to the last question.
        except BaseException:
            self.stopped.set()
            raise

    def record_reply(self, failure: str | None) -> None:
        with self.lock:
            # A reply that was under way when it stopped must not start it again.
            if self.stopped.is_set():
                return
            self.any_accepted = self.any_accepted or failure is None
            self.consecutive_failures = 0 if failure is None else self.consecutive_failures + 1
            self.last_failure = failure or self.last_failure
            if self.consecutive_failures >= MAX_FAILURES:
                self.stopped.set()

    def record_rejection(self, error: posting.RejectedError) -> None:
        """A server that takes nothing at all is asked wrongly, which is an error."""
        with self.lock:
            self.rejections += 1
            # One long question may be refused by a sound server; nothing but refusals means a wrong request.
            if not self.any_accepted and self.rejections >= MAX_FAILURES:
                raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServer(WithLedger):
    """A model on a server, with the replies that it gave."""

    url: str
    model: str
    cache: ReplyCache
    retry_policy: posting.RetryPolicy = field(default_factory=posting.RetryPolicy)
    prices: Prices | None = None
    """What its tokens cost; None counts them only."""
    purse: Purse = field(default_factory=Purse, compare=False)

    def __post_init__(self) -> None:
        """Refuse what is no address of this kind, a token that is not there, a cap without prices."""
        posting.parse_url(self.url)
        posting.request_headers(self.retry_policy)
        if self.purse.cap is not None and self.prices is None:
            raise UserError(
                f"{self.model}: at most {self.purse.cap:g} may be spent, and its prices are not known: give "
                "those of a million tokens, price=0.15/0.6 behind a comma in the judge's word, or --price"
            )

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        keys = [self.ledger.key(request) for request in requests]
        by_key = dict(zip(keys, requests, strict=True))
        known: dict[str, Reply | str] = {**self.ledger.known(by_key)}
        missing = {key: request for key, request in by_key.items() if key not in known}
        # What is cached was once accepted, so a rejection now is about its question alone.
        health = _ServerHealth(any_accepted=bool(known))
        with ThreadPoolExecutor(self.retry_policy.requests_at_once) as pool, health.stop_on_error():
            found = dict(
                zip(missing, pool.map(lambda key: self._ask(key, missing[key], health), missing), strict=True)
            )
        caps = [reply for reply in found.values() if isinstance(reply, CapReachedError)]
        if caps:
            there = sum(self.cache.find(key) is not None for key in by_key)
            raise CapReachedError(f"{caps[-1]}. {self._progress(there, len(by_key))} with a higher cap")
        known |= {key: reply for key, reply in found.items() if not isinstance(reply, CapReachedError)}
        if health.stopped.is_set():
            there = sum(isinstance(reply, Reply) for reply in known.values())
            progress = self._progress(there, len(by_key))
            raise UserError(f"{self.model} is down: {health.last_failure}. {progress} where it stopped")
        return [known[key] for key in keys]

    @property
    def ledger(self) -> ReplyLedger:
        identity = {"url": self.url, "model": self.model}
        return ReplyLedger(identity=identity, cache=self.cache, prices=self.prices, purse=self.purse)

    def _progress(self, there: int, wanted: int) -> str:
        return f"{there} of {wanted} replies are there, kept in {self.cache.folder}; the same command goes on"

    def _ask(self, key: str, request: ChatRequest, health: _ServerHealth) -> Reply | str | CapReachedError:
        with health.stop_on_error():
            try:
                # Whoever waits for another attempt wakes up when the run ends.
                reply = posting.with_retries(
                    self.model,
                    self.retry_policy,
                    lambda: self._try(key, request, health),
                    health.stopped.wait,
                )
            except CapReachedError as cap:
                # A shorter question may still fit. Where none does, the same command asks nothing more.
                return cap
            except posting.UnreachableError as error:
                health.record_reply(str(error))
                return UNREACHABLE
            except posting.RejectedError as error:
                if request.words and "logprob" in str(error):
                    return LOGPROBS_REFUSED
                health.record_rejection(error)
                return TOO_LONG if error.is_too_long else REJECTED
            health.record_reply(None)
            return reply

    def _try(self, key: str, request: ChatRequest, health: _ServerHealth) -> Reply:
        # Each attempt is put aside for by itself: one that is lost has been paid for.
        with self.ledger.reserved(request):
            try:
                reply = self._post(request, health)
            except posting.LostReplyError:
                self.ledger.lose(key, request)
                raise
            self.ledger.store(key, request, reply)
            return reply

    def _post(self, request: ChatRequest, health: _ServerHealth) -> Reply:
        if health.stopped.is_set():
            raise posting.UnreachableError("no more is asked")
        # From the system's randomness: whoever foresees it could close the delimiters with a verdict.
        number = secrets.token_hex(8)
        # Sent only where it is wanted: not every server knows it.
        logprobs = {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if request.words else {}
        body = {
            "model": self.model,
            "messages": request.question.messages(number),
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            **(logprobs if request.seed is None else {**logprobs, "seed": request.seed}),
        }
        url = f"{self.url.rstrip('/')}/chat/completions"
        content = posting.post(url, self.retry_policy, json.dumps(body).encode())
        return parse_chat_completion(url, content, number, request.words)


def endpoint_judge(
    word: str,
    cache: ReplyCache,
    retry_policy: posting.RetryPolicy | None = None,
    *,
    ask: HowToAsk | None = None,
    purse: Purse | None = None,
) -> ModelJudge:
    """The judge of ``openai:http://host/v1#model,how=letter``; what its word leaves open is in ``ask``."""
    parsed = parse_judge_word(word)
    url, model = parse_server(parsed.place)
    chosen = parsed.how(ask)
    retry_policy = retry_policy or posting.RetryPolicy()
    if chosen.requests is not None:
        retry_policy = replace(retry_policy, requests_at_once=chosen.requests)
    if chosen.token_from is not None:
        retry_policy = replace(retry_policy, token_from=chosen.token_from)
    server = ChatServer(
        url=url,
        model=model,
        cache=cache,
        retry_policy=retry_policy,
        prices=chosen.price,
        purse=purse or Purse(),
    )
    return ModelJudge(asker=server, ask=chosen)
