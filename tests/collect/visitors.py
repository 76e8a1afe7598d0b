"""A browser without a screen: cookies, forms as pages hold them, and the headers that browsers send."""

import http.client
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore
from tests.collect.browsers import forms_of


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """Names in small letters; of cookies, the last one only."""
    cookies: tuple[str, ...]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def location(self) -> str:
        return self.headers["location"]


class Visitor:
    """Somebody with a cookie jar at an address of the app."""

    def __init__(self, url: str, behind: str | None = None) -> None:
        self.url, self.behind = url, behind
        self.origin = behind or url
        self.cookies = dict[str, str]()
        self.last: Reply | None = None

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    @property
    def cookie(self) -> str:
        return "__Host-plaudit" if self.behind else f"plaudit-{self.port}"

    def sign_in(self, store: LabelStore, pseudonym: str, project: str = "p") -> "Visitor":
        """Hold a session of a person, as if the sign-in page had just been passed."""
        self.cookies[self.cookie] = store.write(open_session, project, pseudonym, by="password").secret
        return self

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        """A request with the cookies; a header of None is left out."""
        sent: dict[str, str | None] = {
            "Host": urlsplit(self.origin).netloc,
            "Accept-Language": "en",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()) or None,
        }
        if method != "GET":
            sent |= {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
            sent |= {"Content-Type": "application/x-www-form-urlencoded"}
        sent |= headers or {}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request(
                method, path, body, {name: value for name, value in sent.items() if value is not None}
            )
            reply = _read(connection.getresponse())
        finally:
            connection.close()
        self._keep(reply.cookies)
        if reply.headers.get("content-type", "").startswith("text/html"):
            self.last = reply
        return reply

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers=headers)

    def post(
        self,
        path: str,
        fields: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str | None] | None = None,
    ) -> Reply:
        """A form as it is: nothing is added but the token of the page that was read last."""
        pairs: list[tuple[str, str]] = [*(fields.items() if isinstance(fields, Mapping) else fields)]
        if not any(name == "form_token" for name, _ in pairs):
            pairs.append(("form_token", self.form_token()))
        return self.send("POST", path, urlencode(pairs).encode(), headers)

    def send_form(self, action: str, **fields: str) -> Reply:
        """The form of the page that was read last, with what it holds already and these fields filled in."""
        assert self.last is not None
        (form,) = (form for form in forms_of(self.last.text) if form.action == action)
        assert set(fields) <= form.names, (set(fields) - form.names, form)
        kept = [(name, value) for name, value in form.fields if name not in fields]
        return self.post(action, [*kept, *fields.items()])

    def follow(self, reply: Reply) -> Reply:
        for _ in range(5):
            if reply.status != 303:
                return reply
            reply = self.get(reply.location)
        raise AssertionError(f"redirected in a circle: {reply.location}")

    def form_token(self) -> str:
        """The token of the page that was read last; empty where it has none."""
        forms = [] if self.last is None else forms_of(self.last.text)
        return next((value for form in forms for name, value in form.fields if name == "form_token"), "")

    def _keep(self, cookies: Iterable[str]) -> None:
        for line in cookies:
            name, _, value = line.partition(";")[0].partition("=")
            if value.strip('"'):
                self.cookies[name] = value.strip('"')
            else:
                self.cookies.pop(name, None)


def _read(response: http.client.HTTPResponse) -> Reply:
    return Reply(
        status=response.status,
        headers={name.lower(): value for name, value in response.getheaders()},
        cookies=tuple(response.headers.get_all("Set-Cookie") or ()),
        content=response.read(),
    )
