"""The Starlette application over a store, and how it is served: until a signal, or beside a program."""

import asyncio
import errno
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from plaudit import __version__
from plaudit.collect.app import deciding, entering, labelling_pages, managing, people_pages, safety, setting
from plaudit.collect.app.api import ENDPOINTS, JOIN_RULES, PREFIX, Call, Endpoint, join_by_invite
from plaudit.collect.app.pages import Page, Site, Solo, page_routes, refused_outright
from plaudit.collect.app.render import static_file
from plaudit.collect.people import Identity, identity_of, record_refusal
from plaudit.collect.quality.cache import Reports
from plaudit.collect.refusals import NotYoursError, checked_text
from plaudit.collect.store import LabelStore, Receipt
from plaudit.errors import UserError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PAGES: tuple[Page, ...] = (
    *entering.PAGES,
    *labelling_pages.PAGES,
    *entering.READING_PAGES,
    *managing.PAGES,
    *setting.PAGES,
    *people_pages.PAGES,
    *deciding.PAGES,
)


def make_app(
    store: LabelStore, site: Site | None = None, reports: Reports | None = None
) -> safety.WithHeaders:
    """The application: every address that is not in its tables is refused."""
    site = replace(Site() if site is None else site, reports=Reports(store) if reports is None else reports)
    routes = [
        Route(f"{PREFIX}/health", _health, methods=["GET"]),
        Route(f"{PREFIX}/join", _joining(store), methods=["POST"]),
        *(
            Route(PREFIX + endpoint.path, _serving(store, endpoint), methods=[endpoint.method])
            for endpoint in ENDPOINTS
        ),
        Route("/static/{version}/{name}", _static, methods=["GET"]),
        *page_routes(store, site, PAGES),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_such_address, 500: _fault})
    return safety.WithHeaders(app, behind_https=site.behind is not None, refused=partial(_refused_host, site))


def _refused_host(site: Site, request: Request) -> Response | None:
    """What is said to a request under a name that is not this app's; None where it is."""
    try:
        safety.refuse_other_host(site.hosts, request.headers.get("host", ""))
    except safety.RequestError as error:
        return _refusal_to(request, error)
    return None


async def _static(request: Request) -> Response:
    found = static_file(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    content, media_type = found
    # The address holds a digest of the content: what is kept under it is never old.
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, 200, headers, media_type=media_type)


async def _health(_: Request) -> Response:
    return _json({"plaudit": __version__})


def _joining(store: LabelStore) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            content = await safety.read_body(request, safety.MOST_OF_A_STRANGER)
            return _json(
                await run_in_threadpool(join_by_invite, store, safety.read_object(content, JOIN_RULES)), 201
            )
        except NotYoursError as error:
            # Whoever tries has no name yet; which project's invite it was is known.
            if error.tried_in is not None:
                what = f"POST /join: {error}"
                await run_in_threadpool(store.write, record_refusal, error.tried_in, "nobody", what)
            return safety.refusal(error)
        except UserError as error:
            return safety.refusal(error)

    return answer


def _serving(store: LabelStore, endpoint: Endpoint) -> Callable[[Request], Any]:
    """What answers at an endpoint: the body is read here, the rest is done in a thread."""

    async def answer(request: Request) -> Response:
        try:
            if safety.is_large(request):
                # So much is read and held for nobody whose token is not known.
                await run_in_threadpool(_who, store, request)
            content = await safety.read_body(request, endpoint.most)
            return await safety.in_lane(
                endpoint.lane, content, partial(_answer, store, endpoint, request, content)
            )
        except UserError as error:
            return safety.refusal(error)

    return answer


def _who(store: LabelStore, request: Request) -> Identity:
    who = identity_of(store, safety.bearer_token(request.headers.get("authorization", "")))
    if who is None:
        raise safety.RequestError(
            401, "this token is unknown, has ended or was revoked; ask for another invite"
        )
    return who


def _answer(store: LabelStore, endpoint: Endpoint, request: Request, content: bytes) -> Response:
    who = _who(store, request)
    try:
        # Before the fields: who may not ask learns nothing of what would be taken.
        safety.refuse_scope(who, endpoint.scope)
        given = _read_fields(endpoint, request, content)
        # Words of the address reach the database as fields do.
        for name, word in request.path_params.items():
            checked_text(name, word)
        result = endpoint.handler(Call(store=store, who=who, given=given, path=request.path_params))
    except NotYoursError as error:
        # The audit trail: who tried what is not theirs.
        if error.tried_in is not None:
            store.write(
                record_refusal, error.tried_in, who.pseudonym, f"{endpoint.method} {endpoint.path}: {error}"
            )
        raise
    if isinstance(result, bytes):
        return Response(result, endpoint.status, media_type=endpoint.media_type)
    return _json(asdict(result) if isinstance(result, Receipt) else result, endpoint.status)


def _read_fields(endpoint: Endpoint, request: Request, content: bytes) -> dict[str, Any]:
    if endpoint.lines:
        return {"lines": safety.read_json_lines(content)}
    if endpoint.method == "GET":
        return safety.read_query(request.query_params.multi_items(), endpoint.rules)
    return safety.read_object(content, endpoint.rules)


def _json(found: object, status: int = 200) -> Response:
    content = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(content, status, media_type="application/json")


async def _no_such_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = _PAGE_FAULTS[error.status_code]
    if _is_api(request):
        messages = {404: "there is no such address", 405: f"{request.method} is not taken here"}
        message = f"{messages.get(error.status_code, error.detail)}; docs/collecting-teams.md lists them"
    return _refusal_to(request, safety.RequestError(error.status_code, message))


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(f"{PREFIX}/")


def _refusal_to(request: Request, error: safety.RequestError) -> Response:
    """A refusal that comes from no endpoint and no page: as JSON to programs, as a page to people."""
    return safety.refusal(error) if _is_api(request) else refused_outright(request, error)


_PAGE_FAULTS = {404: "there is no such page", 405: "this page takes no such request"}


async def _fault(request: Request, error: Exception) -> Response:
    # What went wrong stands in the server's own output; a sender learns nothing of the machine.
    message = f"a fault of the server ({type(error).__name__}); nothing was acknowledged"
    return _refusal_to(request, safety.RequestError(500, message))


def serve(
    store: LabelStore,
    host: str,
    port: int,
    ready: Callable[[str], None],
    *,
    behind: str | None = None,
    solo: Solo | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, which end it in good order; ``ready`` is called once it listens."""
    stop = threading.Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        # No more than a flag: the server, in its own thread, brings what is under way to its end.
        signal.signal(number, lambda *_: stop.set())
    try:
        with serve_in_background(store, host, port, behind=behind, solo=solo) as server:
            ready(server.url)
            while server.is_running and not stop.wait(0.5):
                pass
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class BackgroundServer:
    def __init__(self, url: str, thread: threading.Thread) -> None:
        self.url, self._thread = url, thread

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()


@contextmanager
def serve_in_background(
    store: LabelStore,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    behind: str | None = None,
    solo: Solo | None = None,
) -> Iterator[BackgroundServer]:
    """Serve while the block runs, over real HTTP; port 0 takes a free one."""
    with _listening(host, port) as listener:
        reports = Reports(store)
        server = _server(make_app(store, site_of(listener.getsockname()[1], host, behind, solo), reports))
        thread = threading.Thread(target=asyncio.run, args=(_run(server, listener),), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                # Joined and not slept through: a server that cannot start is noticed at once.
                thread.join(0.01)
            if not server.started:
                raise UserError(f"{_url(listener)}: the server did not start")
            # Longer than asyncio's own: many may call at once, and wait here until they are taken.
            listener.listen(256)
            yield BackgroundServer(_url(listener), thread)
        finally:
            server.should_exit = True
            thread.join()
            reports.close()


def site_of(port: int, host: str = "127.0.0.1", behind: str | None = None, solo: Solo | None = None) -> Site:
    """The names under which a server on a port may be called."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    # A browser leaves out the port that http has by itself.
    hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
    proxy = set() if behind is None else {urlsplit(behind).netloc.lower()}
    return Site(hosts=(*sorted(hosts | proxy),), port=port, behind=behind, solo=solo)


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    pause_quietly()
    await server.serve(sockets=[listener])


def _server(app: safety.WithHeaders) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        # Not its warnings: each malformed request of a stranger would be a line.
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        http=Connection,
        ws="none",
        loop="asyncio",
        backlog=AT_ONCE,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    return uvicorn.Server(config)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves its delay for small packets on: 40 ms for every answer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # The port of a server that has just ended is held for a while, and would keep the next one out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"{host}:{port} cannot be listened on ({error}); name another --host or --port"
            ) from error
        listener.listen(AT_ONCE)
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
    """One connection, which ends when it keeps the server waiting, or when its place is needed.

    uvicorn ends a connection that says nothing after an answer. One that never asks, that sends a byte now
    and then, or that reads no answer would stay for as long as its sender likes.
    """

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
