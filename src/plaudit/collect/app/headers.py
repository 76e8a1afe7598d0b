"""Headers that every answer carries, whoever gave it: a page, the API, a static file, a refusal, a fault."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

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

    def __init__(self, app: Starlette, *, behind_https: bool) -> None:
        self._app = app
        self._headers = _ALWAYS | (_BEHIND_HTTPS if behind_https else {})

    @property
    def routes(self) -> list[BaseRoute]:
        """All addresses of the application."""
        return self._app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
