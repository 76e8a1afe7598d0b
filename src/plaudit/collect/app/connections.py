"""Connections are bounded: in number, and in how long one may take over a head, a body or an answer.

uvicorn ends a connection that says nothing after an answer. One that never asks, that sends a byte now and
then, or that reads no answer would stay for as long as its sender likes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform == "win32":
    # What select takes there.
    _FILES = 512
else:
    import resource

    _FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

PATIENCE = 15.0
"""After so many seconds it is looked whether a connection that keeps the server waiting has moved."""
LEAST_BYTES = 20_000
"""What must have moved by then: more than the longest head, so that an unfinished one never suffices."""
AT_ONCE = 32
"""How many connections asyncio takes in one go, before any is looked at."""
RESERVED_FILES = 256
"""Files left for the database, whose connections hold three each, and for what is taken in one go."""
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Where files have no limit the number stands for one that memory bears.
MOST_CONNECTIONS = min(_FILES - min(RESERVED_FILES, _FILES // 2), 8_000) if _FILES > 0 else 8_000
"""How many connections may be open, below what the machine lets this process open."""


class Connection(H11Protocol):
    """One connection, which ends when it keeps the server waiting, or when its place is needed."""

    _since = _moved = _unsent = 0
    _waited = False
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # Told of every byte that nobody reads, and not only of those beyond the first 64 kB.
        transport.set_write_buffer_limits(high=0)
        self._since = time.monotonic_ns()
        self._clock = self.loop.call_later(PATIENCE, self._hang_up_if_still)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._moved += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        # All that was to be sent is gone.
        self._waited = False
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._since, self._waited = time.monotonic_ns(), False
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # The rest of a body that was refused; until then its sender may read why.
            self.loop.call_later(5.0, self._end_refused)

    def _end_refused(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self.transport.abort()

    def _hang_up_if_still(self) -> None:
        unsent, waits = self.transport.get_write_buffer_size(), self._keeps_waiting()
        if self._waited and waits and self._moved + max(self._unsent - unsent, 0) < LEAST_BYTES:
            self.transport.abort()
            return
        self._waited, self._moved, self._unsent = waits, 0, unsent
        self._clock = self.loop.call_later(PATIENCE, self._hang_up_if_still)

    def _keeps_waiting(self) -> bool:
        """Whether the other side is to send or to read something now."""
        if self.transport.get_write_buffer_size():
            return True
        if self.conn.their_state is h11.SEND_BODY:
            return not self.flow.read_paused
        # Between two requests uvicorn's own limit holds, until the next one has begun.
        return self.conn.their_state is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))

    def _make_room(self) -> None:
        """End the one that has owed a whole request for the longest: the newest is as likely a person."""
        owing = [
            other
            for other in self.connections
            if isinstance(other, Connection)
            and other.conn.their_state in (h11.IDLE, h11.SEND_BODY)
            and not other.transport.is_closing()
        ]
        min(owing, key=lambda other: other._since).transport.abort()


def pause_quietly() -> None:
    """Let asyncio's pause on a lack of files cost one line a minute, and not one for each attempt."""
    reported = -60.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in _OUT_OF_FILES:
            loop.default_exception_handler(context)
        elif loop.time() - reported >= 60:
            reported = loop.time()
            logging.getLogger("uvicorn.error").error(
                "new connections wait, as too many files are open (%s): raise `ulimit -n`", error
            )

    asyncio.get_running_loop().set_exception_handler(handle)
