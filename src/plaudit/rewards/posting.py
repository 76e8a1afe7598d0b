"""POST to a server that may be slow, busy or gone: attempts with growing waits, limits of time and bytes.

What may pass is tried again, and after the last attempt it is told; what no repetition mends (a refusal, a
wrong address) is an error with what to do.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from plaudit.errors import UserError

MOST_BYTES = 4_000_000
"""Of a response."""
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])
"""What a server says that may do better in a moment."""
_NOT_THIS = frozenset([400, 413, 422])
"""What it says of a request that it cannot take."""
_Said = TypeVar("_Said")


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


class PassingError(Exception):
    """This attempt failed, and another may not."""


class RejectedError(UserError):
    """The server does not take this very request (it is too long, say); another one it may."""


class UnreachedError(Exception):
    """All attempts failed; says how often and what happened last."""


def patiently(name: str, manners: Manners, ask: Callable[[], _Said]) -> _Said:
    """What ``ask`` gives at the first attempt that does not fail; `UnreachedError` after the last."""
    why = ""
    for attempt in range(manners.attempts):
        if attempt:
            time.sleep(manners.pause * 2 ** (attempt - 1))
        try:
            return ask()
        except (PassingError, OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
    raise UnreachedError(f"{name} failed {manners.attempts} times, the last time: {why}")


def address(url: str) -> SplitResult:
    """The parts of an address of the web; anything else is refused."""
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


def headers(manners: Manners) -> dict[str, str]:
    """What every request says of itself; a token that is wanted and not there is refused."""
    said = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
    if manners.token_from is not None:
        token = os.environ.get(manners.token_from, "")
        if not token.strip().isprintable() or not token.strip():
            raise UserError(f"the environment variable {manners.token_from} holds no token for the endpoint")
        said["Authorization"] = f"Bearer {token.strip()}"
    return said


def posted(url: str, manners: Manners, body: bytes) -> bytes:
    """What the endpoint answers, in one attempt; raises `PassingError` or OSError for what may pass."""
    parts = address(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname is not None
    connection = kind(parts.hostname, parts.port, timeout=manners.seconds)
    until = time.monotonic() + manners.seconds
    try:
        path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
        connection.request("POST", path, body, headers(manners))
        with closing(connection.getresponse()) as response:
            content = _bounded(response, until)
    finally:
        connection.close()
    if response.status in _AGAIN:
        raise PassingError(f"status {response.status} {response.reason}")
    if response.status != 200:
        said = content[:200].decode(errors="replace")
        hint = "; name the variable of its token" if response.status in (401, 403) else ""
        error = RejectedError if response.status in _NOT_THIS else UserError
        raise error(f"{url} answers {response.status} {response.reason}: {said!r}{hint}")
    return content


def _bounded(response: http.client.HTTPResponse, until: float) -> bytes:
    """A server that sends a byte now and then, or without end, is not waited for."""
    content = b""
    while piece := response.read1(65536):
        content += piece
        if len(content) > MOST_BYTES:
            raise UserError(
                f"the endpoint's answer has more than {MOST_BYTES:,} bytes, and none needs so many"
            )
        if time.monotonic() > until:
            raise TimeoutError("timed out while it answered")
    if response.length:
        raise PassingError("the answer was cut off")
    return content
