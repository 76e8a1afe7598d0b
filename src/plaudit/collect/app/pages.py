"""Pages of the app: a table of what a browser may ask, and what stands between a request and its handler.

A page is a form that posts and redirects. The session is a cookie that no script reads; every change needs
the form's own token and must come from a page of this very app.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from plaudit.collect.app import safety
from plaudit.collect.app.render import LANGUAGES, best_language, render, words
from plaudit.collect.people import Identity, record_refusal
from plaudit.collect.quality.cache import Reports
from plaudit.collect.refusals import FieldError, NotYoursError, checked_text
from plaudit.collect.sessions import Session, find_session
from plaudit.collect.store import LabelStore
from plaudit.data.fields import describe_value
from plaudit.errors import UserError

MOST_FORM_BYTES = 8_000_000
"""The largest form: the longest answer, with every letter escaped."""
MOST_FORM_FIELDS = 2_000
"""How many fields a form may have: nine answers by a hundred aspects leave room."""
_END = object()
_HALF_TOKEN = 32
LANGUAGE_COOKIE = "plaudit-language"
"""The language that a person chose; it tells nothing of the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    hosts: tuple[str, ...] = ()
    """The names under which it may be called; another one is a web page that plays tricks with addresses."""
    port: int = 0
    """Of the loopback: cookies know no ports, so their name does."""
    behind: str | None = None
    """The https address of a proxy."""
    solo: Solo | None = None
    """Of an app for one person at their own machine."""
    reports: Reports | None = None
    """What is known of the quality of labels; of an app that is served."""

    @property
    def cookie(self) -> str:
        return "__Host-plaudit" if self.behind else f"plaudit-{self.port}"

    @property
    def guest_cookie(self) -> str:
        """The name of the cookie of somebody who is not signed in."""
        return f"{self.cookie}-guest"

    @property
    def origins(self) -> tuple[str, ...]:
        """What a browser says a form of this app comes from."""
        if self.behind is None:
            return (*(f"http://{host}" for host in self.hosts),)
        proxy = self.behind.rstrip("/").lower()
        # The proxy's name without its encryption is whoever stands in between.
        return (proxy, *(f"http://{host}" for host in self.hosts if host != urlsplit(proxy).netloc))


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo:
    """The one person of an app on their own machine, who comes in by a link that works once."""

    project: str
    pseudonym: str
    link: OnceLink
    """How the browser is let in."""


class OnceLink:
    def __init__(self, secret: str) -> None:
        self.secret, self._is_left = secret, True

    @staticmethod
    def new() -> OnceLink:
        return OnceLink(secrets.token_urlsafe(24))

    def take(self, word: str) -> bool:
        """Whether this is the secret, for the first time."""
        fits = self._is_left and hmac.compare_digest(word.encode(), self.secret.encode())
        # No lock: the threads of one process change a flag in one step, and two at once hold the same secret.
        self._is_left = self._is_left and not fits
        return fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The fields of a form, as a browser sends them."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def value(self, name: str) -> str | None:
        """The value of a field that is there once; None where it is not there."""
        values = self.fields.get(name, ())
        if len(values) > 1:
            raise FieldError(field=name, found=f"{len(values)} values", expected="one")
        return values[0] if values else None

    def many(self, name: str) -> list[str]:
        """All values of a field, as of check boxes."""
        return [*self.fields.get(name, ())]

    def need(self, name: str) -> str:
        """The value of a field that must be there."""
        value = self.value(name)
        if value is None:
            raise FieldError(field=name, found="nothing", expected="a value")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    store: LabelStore
    site: Site
    path: Mapping[str, str]
    """What stands for the braces of the address."""
    query: Mapping[str, str]
    """What stands behind its question mark."""
    language: str
    form_token: str
    """What the page's forms send back."""
    address: str = "/"
    """The address that was asked for, with what stands behind the question mark."""
    session: Session | None = None
    """The session; None of somebody who is not signed in."""
    secret: str = field(default="", repr=False)
    form: Form = field(default_factory=Form)
    sent: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def who(self) -> Identity:
        """Who is signed in; only of pages that need it."""
        assert self.session is not None
        return self.session.identity

    @property
    def person(self) -> tuple[str, str]:
        """Project and pseudonym, which most of the store's methods begin with."""
        return self.who.project, self.who.pseudonym

    @property
    def solo(self) -> bool:
        """Whether this is one person at their own machine."""
        return self.site.solo is not None

    def may(self, scope: str) -> bool:
        return self.session is not None and scope in self.session.identity.scopes

    def act(self, write: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a function that writes to the project does in the name of who is signed in."""
        return self.store.write(write, self.who.project, *given, actor=self.who.pseudonym, **named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie that an answer sets, or takes away."""

    name: str
    value: str = ""
    seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    template: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200
    cookies: tuple[Cookie, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A form that was taken: the browser goes on to another page."""

    to: str
    cookies: tuple[Cookie, ...] = ()

    def __post_init__(self) -> None:
        assert self.to == local_address(self.to, otherwise=""), self.to


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    name: str
    """What it is called: letters, digits, dots and dashes; empty of a picture, which pages show."""
    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    value: Any
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer that comes in parts, a line of JSON each, to a script of the pages."""

    parts: Iterator[Any]


Answer = Shown | Sent | File | Json | Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    method: str
    """GET or POST; a GET changes nothing but what it gives out."""
    path: str
    scope: str
    """label, review, read or manage; any for whoever is signed in, open for everybody."""
    handler: Callable[[Visit], Answer]
    """What is done; a UserError of it becomes a page."""
    script: bool = False
    """Whether a script asks, with JSON, and reads JSON."""
    lane: safety.Lane = ""
    """Which threads do it: those of ``model`` or ``password`` where it waits for long."""
    most: int = MOST_FORM_BYTES
    anywhere: bool = False
    """Whether the form means the same in whatever project it is sent."""


def page(address: str, scope: str, handler: Callable[[Visit], Answer], **more: Any) -> Page:
    """A page by its method and path, such as ``page("GET /label", "label", …)``."""
    method, path = address.split()
    return Page(method=method, path=path, scope=scope, handler=handler, **more)


def page_routes(store: LabelStore, site: Site, pages: Sequence[Page]) -> list[Route]:
    return [Route(page.path, _serving(store, site, page), methods=[page.method]) for page in pages]


def _serving(store: LabelStore, site: Site, page: Page) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            most = page.most
            if safety.is_large(request):
                session, *_ = await to_thread.run_sync(_session_of, store, site, request)
                # Not nothing: what somebody wrote whose session has ended is shown, so that it is not lost.
                most = most if session else min(most, 8 * safety.MOST_OF_A_STRANGER)
            content = await safety.read_body(request, most)
            return await safety.in_lane(
                page.lane, content, partial(_answer, store, site, page, request, content)
            )
        except UserError as error:
            return refused_outright(request, error)

    return answer


def _answer(store: LabelStore, site: Site, page: Page, request: Request, content: bytes) -> Response:
    try:
        if page.method != "GET":
            _refuse_other_origin(site, request)
        session, secret, new_guest = _session_of(store, site, request)
    except UserError as error:
        return refused_outright(request, error)
    visit = Visit(
        store=store,
        site=site,
        path=dict(request.path_params),
        query=dict(request.query_params),
        language=_language(request),
        form_token=form_token(secret, "" if session is None else session.identity.project),
        address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        session=session,
        secret=secret if session is not None else "",
    )
    cookies = () if new_guest is None else (new_guest,)
    try:
        found = _handled(page, visit, request, content)
    except UserError as error:
        found = _refusal(page, error)
    return respond(visit, found, cookies)


def _handled(page: Page, visit: Visit, request: Request, content: bytes) -> Answer:
    # Words of the address reach the database as fields do.
    for name, word in (*visit.path.items(), *visit.query.items()):
        checked_text(name, word)
    visit = _with_content(page, visit, content)
    if page.scope != "open" and visit.session is None:
        return _signed_out(page, visit)
    if page.method != "GET" and not _has_token(page, visit, request):
        return _old_form(page, visit, has_cookies=bool(request.cookies))
    try:
        if page.scope != "open":
            safety.refuse_scope(visit.who, page.scope)
        return page.handler(visit)
    except NotYoursError as error:
        # The audit trail: who tried what is not theirs.
        if error.tried_in is not None:
            actor = "nobody" if visit.session is None else visit.who.pseudonym
            visit.store.write(record_refusal, error.tried_in, actor, f"{page.method} {page.path}: {error}")
        raise


def _with_content(page: Page, visit: Visit, content: bytes) -> Visit:
    if page.method == "GET":
        return visit
    if page.script:
        sent = safety.parse_json(content, "the request")
        if not isinstance(sent, dict):
            raise FieldError(field="request", found=describe_value(sent), expected="a JSON object")
        return replace(visit, sent=sent)
    return replace(visit, form=read_form(content))


def read_form(content: bytes) -> Form:
    """The fields of a form; line ends as files have them, not as browsers send them."""
    try:
        pairs = parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=MOST_FORM_FIELDS,
        )
    except ValueError as error:
        raise safety.RequestError(400, f"the form cannot be read: {error}") from None
    fields = dict[str, tuple[str, ...]]()
    for name, value in pairs:
        checked_text("a field's name", name, most=200)
        checked_text(name, value, most=MOST_FORM_BYTES)
        fields[name] = (*fields.get(name, ()), value.replace("\r\n", "\n"))
    return Form(fields=fields)


def fresh_key() -> str:
    """What makes a form be taken once, however often it is sent."""
    return secrets.token_urlsafe(12)


def form_token(secret: str, project: str = "") -> str:
    """What forms of a session send back: of its secret, which no page can read, and of the project."""
    # A form of one project that is sent from an old tab does nothing in another.
    words = (f"plaudit form {word}".encode() for word in ("", project))
    halves = (hmac.new(secret.encode(), word, hashlib.sha256).hexdigest() for word in words)
    return "".join(half[:_HALF_TOKEN] for half in halves)


def _has_token(page: Page, visit: Visit, request: Request) -> bool:
    given = request.headers.get("x-form-token", "") if page.script else "".join(visit.form.many("form_token"))
    # Whoever clicks twice to go elsewhere is there already when the second click arrives.
    most = _HALF_TOKEN if page.anywhere else None
    return hmac.compare_digest(given[:most].encode(), visit.form_token[:most].encode())


def _session_of(store: LabelStore, site: Site, request: Request) -> tuple[Session | None, str, Cookie | None]:
    """The session, the secret that form tokens are made of, and the cookie of a guest who is new."""
    secret = request.cookies.get(site.cookie, "")
    session = find_session(store, secret) if secret else None
    if session is not None:
        return session, secret, None
    guest = request.cookies.get(site.guest_cookie, "")
    if 20 <= len(guest) <= 100:
        return None, guest, None
    fresh = secrets.token_urlsafe(24)
    return None, fresh, Cookie(name=site.guest_cookie, value=fresh, seconds=24 * 3600)


def _refuse_other_origin(site: Site, request: Request) -> None:
    """Complain about a form that another site sent: by what browsers say of it, and no page can forge."""
    fetched, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_own = fetched == "same-origin" if fetched is not None else origin in site.origins
    # Both where both are sent: an old proxy may drop one of them.
    if not is_own or (origin is not None and origin not in site.origins):
        raise safety.RequestError(403, "this was not sent by a page of this app; nothing was changed")


def _language(request: Request) -> str:
    """The language that was chosen, or the first of the browser's list that there is."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return best_language(request.headers.get("accept-language", ""))


def _signed_out(page: Page, visit: Visit) -> Answer:
    """Whoever is not signed in signs in; what they had filled in is shown, so that it is not lost."""
    if page.script:
        return Json(value={"error": {"message": words(visit.language)["signed-out"]}}, status=401)
    if page.method == "GET":
        return Sent(to=f"/enter?next={quote(visit.address, safe='')}")
    return Shown(template="lost.html", values=_filled_in(visit, reason="signed-out"), status=401)


def _old_form(page: Page, visit: Visit, *, has_cookies: bool) -> Answer:
    """A form of an earlier session, or of a page whose cookie is gone: it can be sent again, knowingly."""
    if page.script:
        return Json(value={"error": {"message": words(visit.language)["old-form"]}}, status=403)
    if not has_cookies:
        # The page of the form set one: sent again, it would be refused again.
        return Shown(template="no_cookies.html", status=400)
    return Shown(template="lost.html", values=_filled_in(visit, reason="old-form"), status=403)


def _filled_in(visit: Visit, reason: str) -> dict[str, Any]:
    fields = [
        (name, value)
        for name, values in visit.form.fields.items()
        # Never shown again: a token is of another session, and a password is nobody's to read.
        if name != "form_token" and "password" not in name
        for value in values
    ]
    return {"reason": reason, "action": visit.address, "fields": fields}


def local_address(word: str | None, otherwise: str = "/") -> str:
    """An address of this app, or another one where the word leads elsewhere.

    >>> local_address("/label?lang=de"), local_address("https://elsewhere.example"), local_address("///x")
    ('/label?lang=de', '/', '/')
    """
    # To a browser two strokes or more begin a name. A backslash is a stroke, and a control character nothing.
    plain = word is not None and word.startswith("/") and not word.startswith("//")
    return word if plain and word is not None and "\\" not in word and word.isprintable() else otherwise


def _refusal(page: Page, error: UserError) -> Answer:
    status = safety.status_of(error)
    if page.script:
        return Json(value={"error": safety.error_details(error)}, status=status)
    values = {"message": str(error), "status": status, "field": getattr(error, "field", None)}
    return Shown(template="refused.html", values=values, status=status)


def refused_outright(request: Request, error: UserError) -> Response:
    values = {"message": str(error), "status": safety.status_of(error)}
    html = render("outright.html", language=_language(request), values=values)
    return Response(html, safety.status_of(error), media_type="text/html")


def respond(visit: Visit, found: Answer, cookies: Iterable[Cookie] = ()) -> Response:
    """What a handler gave, as bytes with their headers."""
    response: Response
    if isinstance(found, Shown):
        shared = {"visit": visit, "nav": _menu(visit)}
        html = render(found.template, language=visit.language, values=shared | dict(found.values))
        response = Response(html, found.status, media_type="text/html")
    elif isinstance(found, Sent):
        response = RedirectResponse(found.to, 303)
    elif isinstance(found, File):
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'} if found.name else _PICTURE
        response = Response(found.content, 200, headers, media_type=found.media_type)
    elif isinstance(found, Stream):
        response = StreamingResponse(_lines(found.parts), 200, media_type="application/jsonl")
    else:
        # In ASCII: a refusal may repeat half a character, which a script can send and UTF-8 cannot.
        content = json.dumps(found.value)
        response = Response(content, found.status, media_type="application/json")
    for cookie in (*cookies, *(found.cookies if isinstance(found, Shown | Sent) else ())):
        _set(response, visit.site, cookie)
    return response


async def _lines(parts: Iterator[Any]) -> AsyncIterator[bytes]:
    """A line for each part, in the threads of what waits for a model; whoever hangs up ends the parts."""
    try:
        while (
            part := await to_thread.run_sync(next, parts, _END, limiter=safety.LANES["model"])
        ) is not _END:
            # In ASCII: a model's server may cut a letter into halves, which the script joins again.
            yield json.dumps(part).encode() + b"\n"
    finally:
        if isinstance(parts, Generator):
            parts.close()


# Kept by the browser alone, and by no proxy; opened by itself it is a picture and can be nothing else.
_PICTURE = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; sandbox",
}
_MENU: tuple[tuple[str, str, str], ...] = (
    ("/label", "nav-label", "label"),
    ("/history", "nav-history", "label"),
    ("/guidelines", "nav-guidelines", "label"),
    ("/preferences", "nav-preferences", "label"),
    ("/manage", "nav-manage", "read"),
    ("/account", "nav-account", "any"),
)


def _menu(visit: Visit) -> list[dict[str, Any]]:
    if visit.session is None:
        return []
    here = visit.address.partition("?")[0]
    return [
        {"to": to, "key": key, "here": here == to or here.startswith(f"{to}/")}
        for to, key, scope in _MENU
        # Solo at one's own machine there is no account.
        if (visit.may(scope) or scope == "any") and not (visit.solo and key == "nav-account")
    ]


def _set(response: Response, site: Site, cookie: Cookie) -> None:
    response.set_cookie(
        cookie.name,
        cookie.value,
        max_age=cookie.seconds,
        path="/",
        secure=site.behind is not None,
        httponly=True,
        samesite="lax",
    )
