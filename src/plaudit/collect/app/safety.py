"""What comes in is bounded, read strictly and checked by field; what goes wrong is said in one shape."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from plaudit.collect import refusals
from plaudit.collect.desk import MOST_OF_A_KEY
from plaudit.collect.people import Identity
from plaudit.collect.tasks import MOST_LEVELS, refuse_deep
from plaudit.config import did_you_mean
from plaudit.data.fields import describe_value
from plaudit.errors import UserError
from plaudit.files import exact_json

MOST_BYTES = 8_000_000
"""The largest body of a usual request: the longest label, with every letter escaped."""
MOST_OF_A_STRANGER = 64_000
"""The largest body that is read before it is known whose it is."""
MOST_TASK_BYTES = 64_000_000
MOST_TASKS = 20_000
MOST_OF_A_NUMBER = 2**62
"""The largest whole number of a request: what a column of a database holds."""
# An object around a label, which may be as deep as a task.
_LEVELS = MOST_LEVELS + 4


class RequestError(UserError):
    """A request that is refused before any of it is looked at, with the status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    types: tuple[type, ...]
    """Its types; none for any JSON, which is checked further inside."""
    required: bool = True


TEXT, ANY = FieldRule(types=(str,)), FieldRule(types=())
MAYBE_TEXT, MAYBE_ANY = FieldRule(types=(str,), required=False), FieldRule(types=(), required=False)
INTEGER = FieldRule(types=(int,), required=False)
NUMBER = FieldRule(types=(float, int), required=False)
SWITCH = FieldRule(types=(bool,), required=False)
_TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


Lane = Literal["", "model", "password", "large"]
"""Which threads answer: the usual ones, or those of what waits for a model or a hash, or is large."""
LANES: Mapping[Lane, CapacityLimiter | None] = {
    "": None,
    # A slow model holds up those who talk to it, and nobody else.
    "model": CapacityLimiter(100),
    "password": CapacityLimiter(8),
    # Each takes several times its size in memory while it is read.
    "large": CapacityLimiter(2),
}
"""How many of each may be at work at once; none for the limit that all usual ones share."""
MOST_WAITING = 100
"""How many may wait for a place in a lane; whoever comes next is told to come back."""


_ENTERED = Counter[Lane]()


async def in_lane(lane: Lane, content: bytes, work: Callable[[], Response]) -> Response:
    """What is answered in a thread of a lane, and of none while too many wait there."""
    lane = "large" if not lane and len(content) > MOST_OF_A_STRANGER else lane
    limiter = LANES[lane]
    if limiter is None:
        return await to_thread.run_sync(work)
    # Counted here: the limiter itself knows of none that came in the same moment.
    if _ENTERED[lane] >= limiter.total_tokens + MOST_WAITING:
        raise RequestError(503, "too many ask for this at once; try again in a moment")
    _ENTERED[lane] += 1
    try:
        return await to_thread.run_sync(work, limiter=limiter)
    finally:
        _ENTERED[lane] -= 1


def is_large(request: Request) -> bool:
    """Whether a body is longer than is read of strangers, or does not say how long it is."""
    declared = request.headers.get("content-length")
    if declared is None:
        return "transfer-encoding" in request.headers
    # A thousand digits are more than Python turns into a number.
    return len(declared) > 15 or not declared.isdigit() or int(declared) > MOST_OF_A_STRANGER


async def read_body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is longer than it may be."""
    # By its own word first, so that nothing of it need be read; who says nothing is counted below.
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > most:
        raise RequestError(413, f"the request has {int(declared):,} bytes; at most {most:,} are taken")
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > most:
                raise RequestError(413, f"the request has more than the {most:,} bytes that are taken")
    except ClientDisconnect:
        raise RequestError(400, "the request was cut off") from None
    return bytes(content)


def read_object(content: bytes, rules: Mapping[str, FieldRule]) -> dict[str, Any]:
    """The fields of a JSON object; an unknown one is refused by name, with the nearest known."""
    result = parse_json(content, "the request") if content else {}
    if not isinstance(result, dict):
        raise refusals.FieldError(field="request", found=describe_value(result), expected="a JSON object")
    return check_fields(result, rules)


def read_query(query: Iterable[tuple[str, str]], rules: Mapping[str, FieldRule]) -> dict[str, Any]:
    """The words behind the question mark of an address, as numbers where numbers are wanted."""
    result = dict[str, Any]()
    for name, text in query:
        if name in result:
            raise refusals.FieldError(field=name, found="the same name twice", expected="each name once")
        wants_number = name in rules and rules[name].types == INTEGER.types
        result[name] = int(text) if wants_number and is_number(text) else text
    return check_fields(result, rules)


def is_number(text: str) -> bool:
    # In ASCII only: a raised 2 is a digit to isdigit, and int refuses it. Python refuses to read a number of
    # thousands of digits too, and no database holds one of twenty.
    return text.isascii() and text.isdigit() and len(text) < 19


def parse_json(content: bytes, what: str) -> Any:
    """JSON of a bounded depth, in UTF-8, with every key once and no NaN."""
    try:
        value = exact_json.loads_foreign(content.decode())
        # Written for its refusal: Python reads NaN, and 1e999 as infinity, and JSON has neither.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"{what} is no JSON in UTF-8: {error}") from error
    refuse_deep(value, what, _LEVELS)
    return value


def check_fields(found: Mapping[str, Any], rules: Mapping[str, FieldRule]) -> dict[str, Any]:
    """The fields, each as its rule wants it."""
    for name, value in found.items():
        if name not in rules:
            raise refusals.FieldError(
                field=name,
                found=f"an unknown field{did_you_mean(name, rules)}",
                expected=f"one of {', '.join(rules)}" if rules else "no fields at all",
            )
        _check_type(name, value, rules[name])
    for name, rule in rules.items():
        if rule.required and name not in found:
            raise refusals.FieldError(field=name, found="nothing", expected=_expected(rule))
    return dict(found)


def _check_type(name: str, value: object, rule: FieldRule) -> None:
    # True is an int to Python.
    fits = not rule.types or (
        isinstance(value, rule.types) and (type(value) is not bool or bool in rule.types)
    )
    # null stands for what was left out: many clients send every field that they know.
    if not fits and not (value is None and not rule.required):
        raise refusals.FieldError(field=name, found=describe_value(value), expected=_expected(rule))
    if isinstance(value, int) and abs(value) > MOST_OF_A_NUMBER:
        raise refusals.FieldError(
            field=name, found="a number of more digits", expected=f"at most {MOST_OF_A_NUMBER}"
        )
    if isinstance(value, str):
        refusals.checked_text(name, value, most=MOST_BYTES)
    if name == "key" and isinstance(value, str) and not 0 < len(value) <= MOST_OF_A_KEY:
        raise refusals.FieldError(
            field="key", found=f"{len(value)} characters", expected=f"1 to {MOST_OF_A_KEY} characters"
        )


def _expected(rule: FieldRule) -> str:
    return _TYPE_NAMES[rule.types[0]] if rule.types else "a value"


def read_json_lines(content: bytes) -> list[Any]:
    """Tasks as JSON lines: so many at most, each of a bounded depth; a fault names its line."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    if len(lines) > MOST_TASKS:
        raise RequestError(413, f"{len(lines):,} tasks; send at most {MOST_TASKS:,} at once")
    return [parse_json(line, f"line {number}") for number, line in enumerate(lines, start=1)]


_STATUSES: Sequence[tuple[type[UserError], int]] = (
    (refusals.FieldError, 422),
    (refusals.KeyConflictError, 409),
    (refusals.ChangedMeanwhileError, 409),
    (refusals.NotYoursError, 403),
    (refusals.NotFoundError, 404),
    (refusals.TooOftenError, 429),
    (refusals.StoreUnavailableError, 503),
    (refusals.ModelUnavailableError, 503),
)


def status_of(error: UserError) -> int:
    """The status of HTTP that a refusal is sent with."""
    if isinstance(error, RequestError):
        return error.status
    return next((number for kind, number in _STATUSES if isinstance(error, kind)), 400)


def error_details(error: UserError) -> dict[str, Any]:
    details: dict[str, Any] = {"message": str(error)}
    if isinstance(error, refusals.FieldError):
        details |= {"field": error.field, "found": error.found, "expected": error.expected}
    return details


def refusal(error: UserError) -> Response:
    status = status_of(error)
    headers = dict[str, str]()
    if status == 503:
        headers["Retry-After"] = "1"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # In ASCII: the name of an unknown field is repeated, and JSON can name one by half a character.
    content = json.dumps({"error": error_details(error)})
    return Response(content, status, headers, media_type="application/json")


def refuse_other_host(hosts: Sequence[str], host: str) -> None:
    """Complain about a name that is not this app's: a page elsewhere may make its name lead here."""
    if hosts and host.lower() not in hosts:
        raise RequestError(421, f"{host or 'a request without Host'} is not the name of this app")


def bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise RequestError(401, "who asks? Send the token of your invite as Authorization: Bearer TOKEN")
    return token.strip()


def refuse_scope(who: Identity, scope: str) -> None:
    """Complain where a token may not do this; ``any`` is open to every token."""
    if scope != "any" and scope not in who.scopes:
        raise refusals.NotYoursError(
            f"a token of {who.role} with {', '.join(who.scopes)} may not do this ({scope})",
            tried_in=who.project,
        )


_ALWAYS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers hide the origin of our own forms too, and none could be told apart.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    # Only static files say otherwise, whose addresses hold a digest of them.
    "Cache-Control": "no-store",
}
_BEHIND_HTTPS = {"Strict-Transport-Security": "max-age=31536000; includeSubDomains"}


class WithHeaders:
    """The application, with what browsers obey added to each of its answers.

    Outside of it and not in its handlers, since an answer to a fault comes from none of them.
    """

    def __init__(
        self, app: Starlette, *, behind_https: bool, refused: Callable[[Request], Response | None]
    ) -> None:
        """``refused`` says what a request is answered that nothing else is to see; None lets it in."""
        self._app, self._refused = app, refused
        self._headers = _ALWAYS | (_BEHIND_HTTPS if behind_https else {})

    @property
    def routes(self) -> list[BaseRoute]:
        return self._app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refused(Request(scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send_with_headers)
