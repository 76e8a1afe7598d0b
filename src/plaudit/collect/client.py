"""A small client of the label store: it keeps its connection, and repeats a failed send under the same key.

A key is drawn for every change before it is sent, so that a reply that was lost costs nothing: the repeated
send gets the first receipt again.
"""

import hashlib
import http.client
import json
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from plaudit.collect.refusals import StoreUnavailableError
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.data_sets import snapshot_path
from plaudit.files.posting import parse_url

_PREFIX = "/api/v1"
# Faults of the server too: nothing was acknowledged, and the key makes another send safe.
_BUSY = (429, 500, 502, 503, 504)
_TASKS_AT_ONCE = 1_000


class RefusedError(UserError):
    """The server refuses this very request, and would again; says why, and of which field."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", f"status {status}")))
        self.status = status
        self.field: str | None = error.get("field")


class LabelClient:
    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        attempts: int = 8,
        pause: float = 0.2,
        seconds: float = 60,
    ) -> None:
        """Nothing is sent yet; a send is tried so often, with pauses that double, up to five seconds."""
        parts = parse_url(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        assert parts.hostname is not None
        self._connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=seconds)
        self._path = parts.path.rstrip("/") + _PREFIX
        self._attempts, self._pause = attempts, pause
        self.url, self.token = url, token

    def close(self) -> None:
        self._connection.close()

    # Annotators.

    def join(self, invite: str, name: str, key: str | None = None) -> dict[str, Any]:
        """Use an invite, and go on as the person who joined."""
        # Longer than other keys: beside the invite it is all that lets the same person in again.
        body = {"invite": invite, "name": name, "key": key or secrets.token_urlsafe(24)}
        joined = self._send("POST", "/join", body)
        self.token = joined["token"]
        return joined

    def me(self) -> dict[str, Any]:
        return self._send("GET", "/me")

    def next(self, key: str | None = None) -> dict[str, Any]:
        """A task under ``task``, or None there and a reason; the same task for the same key."""
        # Without a key the server gives what is held already, so a repeated send leases nothing more.
        return self._send("POST", "/next", {} if key is None else {"key": key})

    def draft(self, assignment: str, label: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("POST", "/draft", {"assignment": assignment, "label": label})

    def submit(
        self,
        assignment: str,
        label: Mapping[str, Any],
        key: str | None = None,
        *,
        seconds: float | None = None,
        pasted: float | None = None,
    ) -> dict[str, Any]:
        return self._change("/submit", assignment, key, label=label, seconds=seconds, pasted=pasted)

    def revise(self, assignment: str, label: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
        return self._change("/revise", assignment, key, label=label)

    def skip(self, assignment: str, reason: str, key: str | None = None) -> dict[str, Any]:
        return self._change("/skip", assignment, key, reason=reason)

    def undo(self, assignment: str, key: str | None = None) -> dict[str, Any]:
        return self._change("/undo", assignment, key)

    def note(self, assignment: str, text: str, key: str | None = None) -> dict[str, Any]:
        return self._change("/note", assignment, key, text=text)

    def flag(self, assignment: str, reason: str, text: str = "", key: str | None = None) -> dict[str, Any]:
        return self._change("/flag", assignment, key, reason=reason, text=text)

    def turn(self, assignment: str, message: str, key: str | None = None) -> dict[str, Any]:
        return self._change("/turn", assignment, key, message=message)

    def choose(self, assignment: str, turn: int, strength: int) -> dict[str, Any]:
        return self._send("POST", "/choose", {"assignment": assignment, "turn": turn, "strength": strength})

    def turns(self, assignment: str) -> list[dict[str, Any]]:
        return self._send("GET", f"/turns?{urlencode({'assignment': assignment})}")["turns"]

    def history(self, limit: int = 50, before: int | None = None) -> list[dict[str, Any]]:
        query = {"limit": limit, **({} if before is None else {"before": before})}
        return self._send("GET", f"/history?{urlencode(query)}")["answers"]

    def guidelines(self) -> dict[str, Any]:
        return self._send("GET", "/guidelines")

    def ask(self, text: str, key: str | None = None) -> dict[str, Any]:
        """A question to the project; `guidelines` has those that were answered."""
        return self._send("POST", "/ask", {"text": text, "key": key or secrets.token_hex(12)})

    def prefer(
        self,
        declined: Iterable[str] = (),
        languages: Iterable[str] = (),
        areas: Iterable[str] | None = None,
        groups: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What the person does not want to read, which languages they read, which areas they know, and what
        they say of themselves, by group."""
        known = None if areas is None else [*areas]
        body: dict[str, Any] = {"declined": [*declined], "languages": [*languages], "areas": known}
        body |= {} if groups is None else {"groups": dict(groups)}
        return self._send("POST", "/preferences", body)

    # Owners and reviewers.

    def project(self) -> dict[str, Any]:
        return self._send("GET", "/project")

    def set_project(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("PUT", "/project", {"settings": settings})

    def add_tasks(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        """Add tasks, a thousand at a time; one that is there already is counted as repeated."""
        lines, counts = [json.dumps(row, ensure_ascii=False) for row in rows], {"added": 0, "repeated": 0}
        for start in range(0, len(lines), _TASKS_AT_ONCE):
            body = "\n".join(lines[start : start + _TASKS_AT_ONCE]).encode()
            result = self._send("POST", "/tasks", body)
            counts = {name: count + result[name] for name, count in counts.items()}
        return counts

    def status(self) -> dict[str, Any]:
        return self._send("GET", "/status")

    def people(self) -> list[dict[str, Any]]:
        return self._send("GET", "/people")["people"]

    def set_standing(self, person: str, standing: str, reason: str) -> dict[str, Any]:
        body = {"standing": standing, "reason": reason}
        return self._send("POST", f"/people/{quote(person, safe='')}/standing", body)

    def invite(self, role: str = "annotator", uses: int = 1, days: float = 14) -> str:
        return self._send("POST", "/invites", {"role": role, "uses": uses, "days": days})["invite"]

    def queue(self) -> list[dict[str, Any]]:
        return self._send("GET", "/queue")["tasks"]

    def adjudicate(
        self, task: str, label: Mapping[str, Any], reason: str, key: str | None = None
    ) -> dict[str, Any]:
        """Decide a task, in its own order."""
        body = {"label": label, "reason": reason, "key": key or secrets.token_urlsafe(12)}
        return self._send("POST", f"/tasks/{quote(task, safe='')}/adjudicate", body)

    def export(self, out: Path, **filters: Any) -> dict[str, Any]:
        """Write the rows and their snapshot; the rows are compared with the hash that the snapshot has."""
        if out.suffix != ".jsonl":
            raise UserError(f"{out}: rows arrive as JSON lines; name a file that ends with .jsonl")
        content = self._request("POST", "/export", filters)
        first, _, rows = content.partition(b"\n")
        snapshot = json.loads(first)["snapshot"]
        if hashlib.sha256(rows).hexdigest() != snapshot["sha256"]:
            raise UserError(f"{self.url}: the rows arrived damaged; export them again")
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic.AtomicFile(out) as file:
            file.stream.write(rows)
        atomic.write_json(snapshot_path(out), snapshot)
        return snapshot

    def _change(self, path: str, assignment: str, key: str | None, **words: Any) -> dict[str, Any]:
        # A change, with a key of its own that stays the same however often it is sent.
        send_key = key or secrets.token_urlsafe(12)
        return self._send("POST", path, {"assignment": assignment, "key": send_key, **words})

    def _send(self, method: str, path: str, body: object = None) -> Any:
        return json.loads(self._request(method, path, body))

    def _request(self, method: str, path: str, body: object = None) -> bytes:
        reason = ""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(self._pause * 2 ** (attempt - 1), 5))
            try:
                status, answer = self._once(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                # What the connection holds is unknown now; the next attempt begins a new one.
                self._connection.close()
                reason = str(error) or type(error).__name__
                continue
            if status < 300:
                return answer
            error = _error_of(answer)
            if status not in _BUSY:
                raise RefusedError(status, error)
            reason = f"status {status}, {error.get('message', '')}"
        raise StoreUnavailableError(
            f"{self.url} does not answer: tried {self._attempts} times, the last time: {reason}"
        )

    def _once(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self._connection.sock is None:
            self._connection.connect()
            # Small messages that wait for each other's acknowledgement would cost 40 ms each.
            connected: Any = self._connection.sock
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.request(method, self._path + path, content, headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def _error_of(answer: bytes) -> Mapping[str, Any]:
    try:
        error = json.loads(answer)["error"]
    # A proxy in front may answer with a page of its own.
    except (ValueError, LookupError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
