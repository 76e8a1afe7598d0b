"""Whatever is sent, by whomever: no request is a fault of the server, and the store stays whole."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from hypothesis import given, settings, strategies as st

from plaudit.labelling.app.api import ENDPOINTS, PREFIX, Endpoint
from tests.labelling.desks import MakeDesk, pair_body
from tests.labelling.test_http import served

ODD = (
    *("", "\0", "a\0b", "\ufffe", "\ud800", "a" * 300, "../../etc/passwd", "%00", "%ed%a0%80", "%", "null"),
    *("' OR 1=1 --", "\u202e", "1e999", "-1", "9" * 40, "NaN", "t1", "a1", "w1", "p", "owner", "active"),
)
"""Texts that have been faults somewhere."""
ODD_BYTES = (b"\xff\xfe", b"%ed%a0%80", b"%00", b"%", b"%zz", b"\x00", b"\xc0\xaf", b"+", b"=&=&", b";")
"""Bytes that are no text, or no form."""
TEXTS = st.one_of(st.sampled_from(ODD), st.text(max_size=30))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=True),
        TEXTS,
        st.sampled_from(({"strength": 1}, {"groups": [[0], [1]]}, {"points": {"overall": [1, 2]}}, "w1")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


def escaped(word: str) -> str:
    """A word for an address; half a character goes as the bytes that a careless client would send."""
    return quote(word.encode("utf-8", "surrogatepass"), safe="")


class Wire:
    """One connection that is opened again when the server shuts it."""

    def __init__(self, url: str) -> None:
        self.host = urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=30)

    def status(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer, which was read to its end."""
        try:
            self.connection.request(method, path, body, dict(headers))
            response = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.connection.close()
            self.connection.request(method, path, body, dict(headers))
            response = self.connection.getresponse()
        response.read()
        return response.status


@st.composite
def api_requests(draw: st.DrawFn, endpoint: Endpoint) -> tuple[str, str, bytes]:
    """A request to an endpoint: its own fields with any values, fields of others, or no JSON at all."""
    path = PREFIX + endpoint.path
    for name in ("task", "person"):
        path = path.replace(f"{{{name}}}", escaped(draw(TEXTS)) or "t1")
    names = st.one_of(st.sampled_from([*endpoint.rules, "key", "assignment"]), TEXTS)
    if endpoint.method == "GET":
        pairs = draw(st.lists(st.tuples(names, TEXTS), max_size=4))
        return "GET", path + "?" + "&".join(f"{escaped(n)}={escaped(v)}" for n, v in pairs), b""
    if draw(st.booleans()):
        found: Any = draw(st.dictionaries(names, VALUES, max_size=6))
        found = {name: draw(VALUES) for name in endpoint.rules} | found if draw(st.booleans()) else found
        return endpoint.method, path, json.dumps(found).encode()
    # Lines of tasks are read as JSON too; what is no JSON goes everywhere.
    return endpoint.method, path, draw(st.one_of(st.binary(max_size=200), st.sampled_from(ODD_BYTES)))


def test_no_request_to_the_api_is_a_fault_of_the_server(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(tmp_path / "labels.db", overlap=3)
    desk.store.add_tasks("p", [pair_body(9, gold={"better": 0})], actor="o1")
    with served(desk) as api:
        wire = Wire(api.url)

        @settings(max_examples=400, deadline=None)
        @given(st.data())
        def ask(data: st.DataObject) -> None:
            endpoint = data.draw(st.sampled_from(ENDPOINTS))
            client = data.draw(st.sampled_from((api.owner, api.reviewer, api.annotator)))
            if data.draw(st.booleans()):
                desk.store.set_standing("p", api.pseudonyms["annotator"], "active", reason="r", actor="o1")
            method, path, body = data.draw(api_requests(endpoint))
            # Erased and revoked people answer nothing more, and the rest is to be asked too.
            if path.endswith(("/revoke", "/erase")) and api.pseudonyms[client.me()["role"]] in path:
                return
            headers = {"Authorization": f"Bearer {client.token}"}
            assert wire.status(method, path, body, headers) < 500, (method, path, body)

        ask()
        wire.connection.close()
    assert desk.store.check() == []
