"""A reward that answers over HTTP: a judge, a verifier or a model that runs elsewhere.

One POST for the answers of one prompt: ``{"prompt": …, "answers": […], "truth": …}`` (``truth`` where there
is one), to which ``{"scores": [number or null, …]}`` is the answer. A prompt is a string or a list of
``{"role", "content"}``. What the network or the server fails at is no verdict, with a reason, after a few
attempts; what no repetition mends (a wrong answer, a refusal) ends the run with what to do.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import Text, words
from plaudit.rewards.reward import Row

MOST_BYTES = 4_000_000
"""Of a response."""
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])
"""What a server says that may do better in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How an endpoint is asked.

    Example: ``Manners(seconds=30, attempts=4, pause=0.5, token_from="JUDGE_TOKEN")``
    """

    seconds: int | float = 60
    """For one attempt, from the connection to the last byte."""
    attempts: int = 4
    """How often at most."""
    pause: int | float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""
    answers_at_once: int = 64
    """Answers in one request."""
    requests_at_once: int = 8
    """Requests under way."""
    token_from: str | None = None
    """The environment variable that holds a bearer token; None sends none."""

    def __post_init__(self) -> None:
        """Refuse what asks nothing."""
        counts = (self.attempts, self.answers_at_once, self.requests_at_once)
        if min(counts) < 1 or not self.seconds > 0 or not self.pause >= 0:
            raise UserError(f"an endpoint cannot be asked like this: {self}; give positive numbers")


class _FailedError(Exception):
    """This attempt failed, and another may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Some answers of one task.

    Example: ``_Question(task=task, answers=("Mice.",))``
    """

    task: Task
    answers: tuple[Text, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReward:
    """An HTTP endpoint as a reward.

    Example: ``EndpointReward(url="http://127.0.0.1:8000/score", manners=Manners(seconds=10))``
    """

    url: str
    """Where to POST: http or https."""
    manners: Manners = field(default_factory=Manners)
    """How."""
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)
    """Filled as answers come."""

    def __post_init__(self) -> None:
        """Refuse what is no address of this kind, and a token that is not there."""
        _address(self.url)
        _headers(self.manners)

    @property
    def name(self) -> str:
        """What tables and pages call it: where it is, without what may be secret in a query."""
        parts = _address(self.url)
        return f"{parts.netloc}{parts.path}"

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self.reasons)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where the endpoint says null, or could not be had."""
        size = self.manners.answers_at_once
        questions = [
            [_Question(task=task, answers=task.answers[at : at + size])]
            for task in tasks
            for at in range(0, len(task.answers), size)
        ]
        with ThreadPoolExecutor(self.manners.requests_at_once) as pool:
            said = list(pool.map(lambda one: self._row(one[0]), questions))
        for row in said:
            if isinstance(row, tuple) and isinstance(row[0], str):
                self.reasons[row[0]] += len(row)
        scores = iter([None if isinstance(one, str) else one for row in said for one in row])
        return tuple(tuple(next(scores) for _ in task.answers) for task in tasks)

    def _row(self, question: _Question) -> tuple[float | None, ...] | tuple[str, ...]:
        """The scores, or for each answer the reason for having none."""
        why = ""
        for attempt in range(self.manners.attempts):
            if attempt:
                time.sleep(self.manners.pause * 2 ** (attempt - 1))
            try:
                return _read(self.name, question, _posted(self.url, self.manners, _body(question)))
            except (_FailedError, OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
        return (f"{self.name} failed {self.manners.attempts} times, the last time: {why}",) * len(
            question.answers
        )


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or parts.username is not None or any(letter <= " " for letter in url):
        raise UserError(
            f"{url!r} is no endpoint: give http://host:port/path or https://…, without a user in it"
        )
    return parts


def _headers(manners: Manners) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
    if manners.token_from is not None:
        token = os.environ.get(manners.token_from, "")
        if not token.strip().isprintable() or not token.strip():
            raise UserError(f"the environment variable {manners.token_from} holds no token for the endpoint")
        headers["Authorization"] = f"Bearer {token.strip()}"
    return headers


def _body(question: _Question) -> bytes:
    prompt = question.task.prompt
    if not isinstance(prompt, str):
        shown: object = [{"role": message.role, "content": words((message,))} for message in prompt]
    else:
        shown = prompt
    truth = {} if question.task.truth is None else {"truth": question.task.truth}
    answers = [words(answer) for answer in question.answers]
    return json.dumps({"prompt": shown, "answers": answers, **truth}).encode()


def _posted(url: str, manners: Manners, body: bytes) -> bytes:
    """What the endpoint answers; raises `_FailedError` or OSError for what may pass."""
    parts = _address(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname is not None
    connection = kind(parts.hostname, parts.port, timeout=manners.seconds)
    until = time.monotonic() + manners.seconds
    try:
        path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
        connection.request("POST", path, body, _headers(manners))
        response = connection.getresponse()
        content = _bounded(response, until)
    finally:
        connection.close()
    if response.status in _AGAIN:
        raise _FailedError(f"status {response.status} {response.reason}")
    if response.status != 200:
        said = content[:200].decode(errors="replace")
        hint = "; name the variable of its token" if response.status in (401, 403) else ""
        raise UserError(f"{url} answers {response.status} {response.reason}: {said!r}{hint}")
    return content


def _bounded(response: http.client.HTTPResponse, until: float) -> bytes:
    """A server that sends a byte now and then, or without end, is not waited for."""
    content = b""
    while piece := response.read1(65536):
        content += piece
        if len(content) > MOST_BYTES:
            raise UserError(f"the endpoint's answer has more than {MOST_BYTES:,} bytes; it sends scores only")
        if time.monotonic() > until:
            raise TimeoutError("timed out while it answered")
    if response.length:
        raise _FailedError("the answer was cut off")
    return content


def _read(name: str, question: _Question, content: bytes) -> tuple[float | None, ...]:
    asked = len(question.answers)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} answers what is not JSON: {content[:80]!r} ({error})") from error
    scores = said.get("scores") if isinstance(said, dict) else None
    if not isinstance(scores, list) or len(scores) != asked:
        found = f"{len(scores)} scores" if isinstance(scores, list) else f"{content[:80]!r}"
        raise UserError(
            f'{name} was asked about {asked} answers and says {found}; expected {{"scores": […]}}'
        )
    return tuple(_score(name, one) for one in scores)


def _score(name: str, said: object) -> float | None:
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(float(said)):
        raise UserError(f"{name} gives the score {said!r}; a score is a finite number, or null")
    return float(said)
