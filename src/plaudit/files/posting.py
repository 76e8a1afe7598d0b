"""One POST with limits: of time from the connection to the last byte, of bytes, and of attempts.

A server may be slow, busy or gone: attempts are repeated with growing waits. What still fails is an
`UnreachableError`; what no repetition mends (a wrong answer, a refusal, a wrong address) is an error that
says what to do.
"""

import http.client
import io
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from plaudit.errors import UserError

MAX_RESPONSE_BYTES = 4_000_000
"""The largest response body in bytes; a longer one is an error."""
MAX_WAIT = 60.0
"""The most seconds that a server is left alone because it wants to be; then it is tried all the same."""
_RETRY_STATUSES = frozenset([408, 425, 429, 500, 502, 503, 504])
_REJECTED_STATUSES = frozenset([400, 413, 422])
"""HTTP status codes by which a server rejects this one request (too long, say)."""
_TOO_LONG_SIGNS = ("too long", "context length", "context_length", "maximum context", "max_model_len")
"""How servers say that a request is longer than their model can read."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    seconds: int | float = 60
    """Timeout of one attempt, from the connection to the last byte."""
    attempts: int = 4
    pause: int | float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""
    answers_at_once: int = 64
    requests_at_once: int = 8
    token_from: str | None = None
    """The environment variable that holds a bearer token; None sends none."""
    max_bytes: int = MAX_RESPONSE_BYTES
    """The largest answer; a longer one is an error."""

    def __post_init__(self) -> None:
        counts = (self.attempts, self.answers_at_once, self.requests_at_once)
        if min(counts) < 1 or not self.seconds > 0 or not self.pause >= 0:
            raise UserError(f"an endpoint cannot be asked like this: {self}; give positive numbers")


class TransientError(Exception):
    """This attempt failed, and another may not."""

    def __init__(self, message: str, *, wait: float = 0.0) -> None:
        """``wait`` is how many seconds the server wants to be left alone."""
        super().__init__(message)
        self.wait = wait


class LostReplyError(TransientError):
    """The server had the whole request and its reply did not come: it may be charged all the same."""


class RejectedError(UserError):
    def __init__(self, message: str, *, is_too_long: bool = False) -> None:
        """``is_too_long`` says whether it is longer than the server's model can read."""
        super().__init__(message)
        self.is_too_long = is_too_long


class UnreachableError(Exception):
    """All attempts failed; says how often and what happened last."""


def with_retries(
    name: str,
    retry_policy: RetryPolicy,
    call: Callable[[], _Result],
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """The result of the first call that succeeds, with growing pauses between; `UnreachableError` after the
    last. A server that says how long it wants to be left alone is left alone so long."""
    reason, wait = "", 0.0
    for attempt in range(retry_policy.attempts):
        if attempt:
            pause(max(wait, retry_policy.pause * 2 ** (attempt - 1)))
        try:
            return call()
        except (TransientError, OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            wait = error.wait if isinstance(error, TransientError) else 0.0
    raise UnreachableError(f"{name} failed {retry_policy.attempts} times, the last time: {reason}")


def parse_url(url: str) -> SplitResult:
    """The parts of an address of the web; anything else is refused."""
    try:
        parts = urlsplit(url)
        # `port` raises where it is no number, or too large a one.
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, is_valid = urlsplit(""), False
    # A password in the address would stand in every message and table.
    if not is_valid or parts.username is not None or not all("!" <= letter <= "~" for letter in url):
        raise UserError(
            f"{url!r} is no endpoint: give http://host:port/path or https://…, in plain letters (others as "
            "%-signs), without a user in it"
        )
    return parts


def request_headers(retry_policy: RetryPolicy) -> dict[str, str]:
    """The HTTP headers of every request; a bearer token that is wanted and not set is an error."""
    # A kept connection that the server has dropped meanwhile would cost an attempt.
    result = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
    if retry_policy.token_from is not None:
        token = os.environ.get(retry_policy.token_from, "")
        # A line break within it would begin a header of its own.
        if not token.strip().isprintable() or not token.strip() or not token.isascii():
            raise UserError(
                f"the environment variable {retry_policy.token_from} holds no token for the endpoint"
            )
        result["Authorization"] = f"Bearer {token.strip()}"
    return result


def post(url: str, retry_policy: RetryPolicy, body: bytes | None) -> bytes:
    """What the endpoint answers, in one attempt; raises `TransientError` or OSError for what may pass.
    Without a body it is a GET."""
    attempt = _Attempt(url, retry_policy, body)
    # A socket's timeout begins anew with every byte, and looking up a name has none. So one clock runs over
    # all of it, and what is not there in time is given up: a daemon holds up no end of the program.
    thread = threading.Thread(target=attempt.run, daemon=True)
    thread.start()
    thread.join(retry_policy.seconds)
    if thread.is_alive():
        attempt.give_up()
        fault = TimeoutError(f"timed out: no whole answer within {retry_policy.seconds:g} seconds")
    else:
        fault = attempt.fault
    if fault is not None and attempt.is_waiting and isinstance(fault, OSError | http.client.HTTPException):
        raise LostReplyError(str(fault) or type(fault).__name__) from fault
    if fault is not None:
        raise fault
    assert attempt.content is not None
    return attempt.content


def post_in_pieces(url: str, retry_policy: RetryPolicy, body: bytes) -> Iterator[bytes]:
    """What the endpoint answers, piece by piece as it arrives, in one attempt that begins at once.
    It raises what `post` raises, before the first piece or behind the last that came."""
    pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    attempt = _Attempt(url, retry_policy, body, on_piece=pieces.put)

    def run() -> None:
        attempt.run()
        pieces.put(None)

    threading.Thread(target=run, daemon=True).start()
    return _pieces(attempt, pieces, time.monotonic() + retry_policy.seconds)


def _pieces(attempt: "_Attempt", pieces: queue.SimpleQueue[bytes | None], deadline: float) -> Iterator[bytes]:
    try:
        while (piece := pieces.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            yield piece
    except queue.Empty:
        raise TimeoutError("timed out: no whole answer in time") from None
    finally:
        # Also where nobody reads on: an answer that is not wanted any more is not waited for.
        attempt.give_up()
    if attempt.fault is not None:
        raise attempt.fault


class _TimedReader(io.RawIOBase):
    """What arrives on a connection, until time is up.
    A flood of headers, trailers or `100 Continue` keeps http.client in a loop of its own, and a connection
    that was shut down still delivers what the other side goes on sending."""

    def __init__(self, raw: io.RawIOBase, check_time: Callable[[], None]) -> None:
        self._raw, self._check_time = raw, check_time

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._check_time()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Attempt:
    """One request, made in a thread of its own: what came of it, and how to end it."""

    def __init__(
        self,
        url: str,
        retry_policy: RetryPolicy,
        body: bytes | None,
        on_piece: Callable[[bytes], None] | None = None,
    ) -> None:
        self._url, self._body, self._retry_policy = url, body, retry_policy
        self._on_piece = on_piece
        self._headers = request_headers(retry_policy)
        self._deadline = time.monotonic() + retry_policy.seconds
        self._socket: socket.socket | None = None
        self.is_waiting = False
        self.content: bytes | None = None
        self.fault: Exception | None = None

    def run(self) -> None:
        try:
            self.content = self._send()
        except (OSError, http.client.HTTPException, TransientError, UserError) as fault:
            self.fault = fault
        # A host with an empty part, or one of more than 63 letters.
        except ValueError as error:
            self.fault = UserError(f"{self._url} is no endpoint ({error}); give http://host:port/path")

    def give_up(self) -> None:
        """Cut the connection, so that whoever waits for it wakes up."""
        if self._socket is not None:
            with suppress(OSError):
                # Of the plain socket: that of a TLS one would first put its own state away under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _send(self) -> bytes:
        parts = parse_url(self._url)
        is_tls = parts.scheme == "https"
        connection_class = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        assert parts.hostname is not None
        connection: Any = connection_class(parts.hostname, parts.port, timeout=self._retry_policy.seconds)
        connection.response_class = self._timed_response
        with closing(connection):
            connection.connect()
            self._socket = connection.sock
            # Given up while it connected: a question that nobody waits for is not asked, nor paid for.
            self._check_time()
            path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
            connection.request("GET" if self._body is None else "POST", path, self._body, self._headers)
            self.is_waiting = True
            with closing(connection.getresponse()) as response:
                content = self._read_bounded(response)
        _refuse_status(self._url, response, content)
        return content

    def _timed_response(self, sock: socket.socket, **settings: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, **settings)
        connected: Any = response.fp
        response.fp = io.BufferedReader(_TimedReader(connected.detach(), self._check_time))
        return response

    def _read_bounded(self, response: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        # read1 gives what has arrived; read(n) takes a body that was cut off for a whole one.
        while chunk := response.read1(65536):
            content += chunk
            # Of an answer only: the words of an error are no piece of it.
            if self._on_piece is not None and response.status == 200:
                self._on_piece(chunk)
            if len(content) > (limit := self._retry_policy.max_bytes):
                raise UserError(
                    f"{self._url}: the answer has more than {limit:,} bytes, and none needs so many"
                )
        # An early end looks like the end to read1; what Content-Length still promises tells them apart.
        if response.length:
            raise LostReplyError("the answer was cut off")
        return bytes(content)

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"timed out: no whole answer within {self._retry_policy.seconds:g} seconds")


def is_passing_status(status: int) -> bool:
    """Whether a status says that the same request may do later.

    >>> is_passing_status(503), is_passing_status(404)
    (True, False)
    """
    return status in _RETRY_STATUSES


def retry_after(value: str | None, now: float | None = None) -> float:
    """The seconds of a Retry-After header, `MAX_WAIT` at most; 0 where there is none or it says nothing.

    now: seconds since 1970, for a header with a date; None is the clock's.

    >>> retry_after("7"), retry_after("Thu, 01 Jan 1970 00:00:09 GMT", now=4.0), retry_after("soon")
    (7.0, 5.0, 0.0)
    """
    text = (value or "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - (time.time() if now is None else now)
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_WAIT)


def _refuse_status(url: str, response: http.client.HTTPResponse, content: bytes) -> None:
    """Raise for every status but 200; a redirect is not followed, for it could lead anywhere and for ever."""
    # The server's own words: cut, and without what would steer a terminal.
    status = f"{response.status} {excerpt_of(response.reason)}"
    if response.status in _RETRY_STATUSES:
        raise TransientError(f"status {status}", wait=retry_after(response.headers.get("Retry-After")))
    if response.status != 200:
        excerpt, hint = content[:200].decode(errors="replace"), ""
        if response.status in (401, 403):
            hint = "; name the variable of its token"
        elif location := response.headers.get("Location"):
            hint = (
                f"; it points to {excerpt_of(location)}: redirects are not followed, give that address itself"
            )
        message = f"{url} answers {status}: {excerpt!r}{hint}"
        if response.status not in _REJECTED_STATUSES:
            raise UserError(message)
        words = content[:2000].decode(errors="replace").lower()
        is_too_long = response.status == 413 or any(sign in words for sign in _TOO_LONG_SIGNS)
        raise RejectedError(message, is_too_long=is_too_long)


def excerpt_of(value: object) -> str:
    """The value as Python writes it, of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
