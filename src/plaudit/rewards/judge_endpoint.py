"""A model behind an OpenAI-compatible server that says which of two answers is better, in both orders.

``POST …/chat/completions``. A refusal, a reply that holds no verdict and a server that cannot be reached are
told apart, and none of them is a tie. Every reply is kept on disk at once, so a judge that goes down half-way
costs nothing but the rest. Both orders and the mean of them: Wang et al. 2023, arXiv:2305.17926.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.judge_cache import Reply, ReplyCache, key_of
from plaudit.rewards.judge_prompt import VERSION, Shown, asked_of, read_from
from plaudit.rewards.posting import (
    Manners,
    RejectedError,
    UnreachedError,
    address,
    headers,
    patiently,
    posted,
)

SCHEME = "openai:"
"""What the word of such a judge begins with."""
REFUSED = "refused"
"""The judge would not judge."""
UNREAD = "not to be read"
"""The reply holds no verdict."""
UNREACHED = "not to be reached"
"""The server did not answer."""
REJECTED = "not taken by the server"
"""The question is too long for it, say."""
GIVE_UP = 3
"""Questions in a row that cannot be asked, each after all attempts, after which the judge is down."""
_CHANCE = {"A": 1.0, "B": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a judge says of two answers.

    Example: ``Orders(forward=1.0, backward=0.5)``, ``Orders(forward=None, backward=0.5, reason="refused")``
    """

    forward: float | None
    """The chance that the first is better, told with the first shown first; None for no verdict."""
    backward: float | None
    """The same, told with the first shown second."""
    reason: str | None = None
    """Why there is no verdict."""


@dataclass(slots=True, kw_only=True)
class _Watch:
    """How the asking goes; all threads look at it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    in_a_row: int = 0
    why: str = ""
    over: bool = False
    rejected: int = 0
    taken: bool = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """After an error, or Ctrl-C, what waits is not asked any more."""
        try:
            yield
        except BaseException:
            self.over = True
            raise

    def heard(self, failed: str | None) -> None:
        with self.lock:
            if self.over:
                return
            self.taken = self.taken or failed is None
            self.in_a_row = 0 if failed is None else self.in_a_row + 1
            self.why = failed or self.why
            self.over = self.in_a_row >= GIVE_UP

    def turned_away(self, error: RejectedError) -> None:
        """A server that takes nothing at all is asked wrongly, which is an error."""
        with self.lock:
            self.rejected += 1
            if not self.taken and self.rejected >= GIVE_UP:
                raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointJudge:
    """A judge on a server.

    Example: ``EndpointJudge(url="http://127.0.0.1:8000/v1", model="judge", cache=ReplyCache(folder=path))``
    """

    url: str
    """The server's address, without ``/chat/completions``."""
    model: str
    """What the server calls it."""
    cache: ReplyCache
    """Where replies are kept."""
    manners: Manners = field(default_factory=Manners)
    """How it is asked."""
    temperature: int | float = 0.0
    """Of its replies."""
    max_tokens: int = 512
    """The longest reply."""

    def __post_init__(self) -> None:
        """Refuse what is no address of this kind, and a token that is not there."""
        address(self.url)
        headers(self.manners)

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self.model

    @property
    def order_seen(self) -> bool:
        """Whether the place of an answer may sway it."""
        return True

    def orders(self, tasks: Sequence[Task]) -> list[Orders]:
        """What it says of each task of two answers; two that read the same are a tie without asking."""
        shown = [_both(task) for task in tasks]
        wanted = {one: key_of(self._facts(one)) for both in shown if both for one in both}
        replies = self._replies(wanted)
        return [_orders([replies[wanted[one]] for one in both] if both else None) for both in shown]

    def _facts(self, shown: Shown) -> dict[str, object]:
        """All that a reply depends on."""
        return {
            "url": self.url,
            "model": self.model,
            "wording": VERSION,
            "temperature": float(self.temperature),
            "max_tokens": self.max_tokens,
            "question": asked_of(shown, ""),
        }

    def _replies(self, wanted: dict[Shown, str]) -> dict[str, Reply | str]:
        """By key, from the cache or the server, or why there is none."""
        found: dict[str, Reply | str] = {
            key: reply for key in wanted.values() if (reply := self.cache.find(key)) is not None
        }
        left = {key: shown for shown, key in wanted.items() if key not in found}
        watch = _Watch(taken=bool(found))

        def ask(key: str) -> Reply | str:
            with watch.ending():
                try:
                    reply = patiently(self.model, self.manners, lambda: self._asked(left[key], watch))
                except UnreachedError as error:
                    watch.heard(str(error))
                    return UNREACHED
                except RejectedError as error:
                    watch.turned_away(error)
                    return REJECTED
                self.cache.keep(key, reply)
                watch.heard(None)
                return reply

        with ThreadPoolExecutor(self.manners.requests_at_once) as pool, watch.ending():
            said = dict(zip(left, pool.map(ask, left), strict=True))
        found.update(said)
        if watch.over:
            there = sum(isinstance(reply, Reply) for reply in found.values())
            raise UserError(
                f"the judge is down: {watch.why}. {there} of {len(wanted)} replies are there, kept in "
                f"{self.cache.folder}; the same command goes on where it stopped"
            )
        return found

    def _asked(self, shown: Shown, watch: _Watch) -> Reply:
        if watch.over:
            raise UnreachedError("no more is asked")
        number = secrets.token_hex(8)
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": asked_of(shown, number)}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        url = f"{self.url.rstrip('/')}/chat/completions"
        return _reply(url, posted(url, self.manners, json.dumps(body).encode()), number)


def endpoint_judge(word: str, cache: ReplyCache, manners: Manners | None = None) -> EndpointJudge:
    """The judge of ``openai:http://host:port/v1#model``.

    >>> import tempfile; from pathlib import Path
    >>> cache = ReplyCache(folder=Path(tempfile.mkdtemp()))
    >>> endpoint_judge("openai:http://127.0.0.1:8000/v1#small-judge", cache).name
    'small-judge'
    """
    url, model = server_of(word)
    return EndpointJudge(url=url, model=model, cache=cache, manners=manners or Manners())


def server_of(word: str) -> tuple[str, str]:
    """The address and the model of such a word, or a complaint.

    >>> server_of("openai:http://127.0.0.1:8000/v1#small-judge")
    ('http://127.0.0.1:8000/v1', 'small-judge')
    """
    url, _, model = word.removeprefix(SCHEME).partition("#")
    if not model:
        raise UserError(f"{word}: name the model behind a #, as in openai:http://127.0.0.1:8000/v1#model")
    address(url)
    return url, model


def _both(task: Task) -> tuple[Shown, Shown] | None:
    """The two answers in both orders; None where they read the same."""
    if len(task.answers) != 2:
        raise UserError(f"a judge compares two answers, and the task has {len(task.answers)}")
    one, other = (words(answer) for answer in task.answers)
    if one == other:
        return None
    return (
        Shown(prompt=task.prompt, first=one, second=other),
        Shown(prompt=task.prompt, first=other, second=one),
    )


def _orders(replies: Sequence[Reply | str] | None) -> Orders:
    if replies is None:
        return Orders(forward=0.5, backward=0.5)
    forward, backward = map(_read, replies)
    reason = next((said for said in (forward, backward) if isinstance(said, str)), None)
    return Orders(
        forward=None if isinstance(forward, str) else forward,
        backward=None if isinstance(backward, str) else 1 - backward,
        reason=reason,
    )


def _read(reply: Reply | str) -> float | str:
    """The chance that the answer shown first is better, or why nothing is said of it."""
    if isinstance(reply, str):
        return reply
    said = None if reply.cut else read_from(reply.text, reply.number)
    if reply.refused or said == "refuse":
        return REFUSED
    return UNREAD if said is None else _CHANCE[said]


def _reply(url: str, content: bytes, number: str) -> Reply:
    """What the server's JSON holds; a server that speaks another language is refused."""
    try:
        choice: Any = json.loads(content)["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{url} answers {content[:120]!r}; expected the JSON of a chat completion with choices[0].message"
        ) from error
    return Reply(
        text=text if isinstance(text, str) else "",
        number=number,
        refused=bool(refusal) or finish == "content_filter",
        cut=finish == "length",
    )
