"""A small hub on the loopback: the parts of the Hugging Face hub's HTTP API that its own client uses.

The real client talks to it by ``HF_ENDPOINT``. Safetensors and Parquet files are told of as LFS files are
(a redirect, the size and the hash in headers), all others directly.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.rewards.server import running

Files = Mapping[str, bytes]


@dataclass(slots=True)
class Repository:
    """Commits, the names that lead to them, and who may see it."""

    commits: dict[str, Files] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: Files, *, ref: str = "main") -> str:
        digest = hashlib.sha1(repr((len(self.commits), sorted(files.items()))).encode()).hexdigest()
        self.commits[digest] = dict(files)
        self.refs[ref] = digest
        return digest


@dataclass(slots=True)
class Hub:
    url: str = ""
    token: str = "secret"
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    large: dict[str, bytes] = field(default_factory=dict)
    broken: int = 0
    """A status with which everything is answered, where it is not 0."""

    def put(self, repo: str, files: Files, *, kind: str = "model", ref: str = "main", **facts: bool) -> str:
        repository = self.repositories.setdefault((kind, repo), Repository())
        for name, value in facts.items():
            setattr(repository, name, value)
        return repository.commit(files, ref=ref)

    def files(self, repo: str, kind: str = "model") -> Files:
        repository = self.repositories[kind, repo]
        return repository.commits[repository.refs["main"]]

    @property
    def downloads(self) -> list[str]:
        return [
            line.split("/resolve/")[1].split("/", 1)[1]
            for line in self.asked
            if "GET /" in line and "/resolve/" in line
        ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def serving_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        here = hub

    with running(Handler) as url:
        hub.url = url
        yield hub


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """The variables by which a command in a process of its own finds this hub, and caches of its own."""
    return {
        **{
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(home / "hf"),
            "NO_PROXY": "127.0.0.1,localhost",
        },
        **{"XDG_CACHE_HOME": str(home / "cache"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    }


def use_hub(monkeypatch: pytest.MonkeyPatch, hub: Hub, home: Path, *, offline: bool = False) -> None:
    """The same for the client in this process, which has read the variables when it was imported."""
    from huggingface_hub import constants

    for name, value in environment(hub, home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "hf" / "token"))


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".parquet"))


class _Handler(BaseHTTPRequestHandler):
    here: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.here.asked.append(f"{self.command} {path}")
        if self.here.broken:
            return self._send(self.here.broken, b"{}")
        for pattern, handle in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None:
                return handle(self, body, parse_qs(parts.query), **match.groupdict())
        return self._send(404, b"{}")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value: Any, **headers: str) -> None:
        self._send(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    @property
    def _knows_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.here.token}"

    def _repository(self, kind: str | None, repo: str) -> Repository | None:
        """The repository, where the asker may see it; else the refusal is sent."""
        found = self.here.repositories.get(((kind or "model").rstrip("s/"), repo))
        if found is None or (found.private and not self._knows_token):
            # As the hub does: whoever is unknown is not told whether there is one.
            self._send(401, b"{}", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            return None
        return found

    def _found(self, kind: str | None, repo: str, revision: str) -> tuple[Repository, str] | None:
        repository = self._repository(kind, repo)
        if repository is None:
            return None
        commit = repository.refs.get(revision, revision if revision in repository.commits else None)
        if commit is None:
            self._send(404, b"{}", X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
            return None
        return repository, commit

    def info(self, body: bytes, query: Any, kind: str, repo: str, revision: str | None = None) -> None:
        del body, query
        found = self._found(kind, repo, revision or "main")
        if found is not None:
            repository, commit = found
            names = [{"rfilename": name} for name in repository.commits[commit]]
            self._json({"id": repo, "sha": commit, "siblings": names, "private": repository.private})

    def tree(self, body: bytes, query: Any, kind: str, repo: str, revision: str) -> None:
        del body, query
        found = self._found(kind, repo, revision)
        if found is not None:
            files = found[0].commits[found[1]]
            self._json([_entry(name, content) for name, content in files.items()])

    def resolve(self, body: bytes, query: Any, kind: str | None, repo: str, revision: str, name: str) -> None:
        del body, query
        found = self._found(kind, repo, revision)
        if found is None:
            return
        repository, commit = found
        if repository.gated and not self._knows_token:
            self._send(403, b"{}", X_Error_Code="GatedRepo", X_Error_Message="Access to it is restricted")
        elif name not in repository.commits[commit]:
            self._send(404, b"{}", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        else:
            self._send_file(name, repository.commits[commit][name], commit)

    def _send_file(self, name: str, content: bytes, commit: str) -> None:
        digest = hashlib.sha256(content).hexdigest()
        if not _is_large(name):
            self._send(200, content, ETag=f'"{_blob(content)}"', X_Repo_Commit=commit)
            return
        self.here.large[digest] = content
        linked = {"X_Linked_Etag": f'"{digest}"', "X_Linked_Size": str(len(content)), "X_Repo_Commit": commit}
        self._send(
            302,
            b"",
            Location=f"{self.here.url.replace('127.0.0.1', 'localhost')}/lfs/{digest}",
            ETag=f'"{digest}"',
            **linked,
        )

    def large(self, body: bytes, query: Any, digest: str) -> None:
        del query
        if self.command == "PUT":
            self.here.large[digest] = body
        self._send(200, self.here.large[digest] if self.command != "PUT" else b"", ETag=f'"{digest}"')

    def create(self, body: bytes, query: Any) -> None:
        del query
        if not self._knows_token:
            return self._send(401, b"{}", X_Error_Message="Invalid username or password.")
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        if ("model", repo) in self.here.repositories:
            return self._send(409, b"{}")
        private = asked.get("visibility") == "private" or asked.get("private", False)
        self.here.put(repo, {".gitattributes": b""}, private=private)
        return self._json({"url": f"{self.here.url}/{repo}", "id": repo, "name": repo})

    def validate(self, body: bytes, query: Any) -> None:
        del body, query
        self._json({"errors": [], "warnings": []})

    def preupload(self, body: bytes, query: Any, kind: str, repo: str, revision: str) -> None:
        del query, kind, repo, revision
        files = [file["path"] for file in json.loads(body)["files"]]
        modes = [{"path": name, "uploadMode": "lfs" if _is_large(name) else "regular"} for name in files]
        self._json({"files": [{**mode, "shouldIgnore": False} for mode in modes]})

    def batch(self, body: bytes, query: Any, repo: str) -> None:
        del query, repo
        objects = json.loads(body)["objects"]
        actions = [
            {**one, "actions": {"upload": {"href": f"{self.here.url}/lfs/{one['oid']}"}}} for one in objects
        ]
        self._json({"transfer": "basic", "objects": actions})

    def commit(self, body: bytes, query: Any, kind: str, repo: str, revision: str) -> None:
        del query
        found = self._found(kind, repo, revision)
        if found is None:
            return
        files = dict(found[0].commits[found[1]])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.here.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        oid = found[0].commit(files)
        self._json({"success": True, "commitOid": oid, "commitUrl": f"{self.here.url}/{repo}/commit/{oid}"})


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": name, "size": len(content), "oid": _blob(content)}
    if _is_large(name):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_KIND, _NAME, _REVISION = (
    r"(?P<kind>models|datasets)",
    r"(?P<repo>[^/]+/[^/]+)",
    r"(?P<revision>refs/[^/]+/[^/]+|[^/]+)",
)
_ROUTES: tuple[tuple[str, Any], ...] = (
    (f"/api/{_KIND}/{_NAME}", _Handler.info),
    (f"/api/{_KIND}/{_NAME}/revision/{_REVISION}", _Handler.info),
    (f"/api/{_KIND}/{_NAME}/tree/{_REVISION}", _Handler.tree),
    (f"/api/{_KIND}/{_NAME}/preupload/{_REVISION}", _Handler.preupload),
    (f"/api/{_KIND}/{_NAME}/commit/{_REVISION}", _Handler.commit),
    ("/api/repos/create", _Handler.create),
    ("/api/validate-yaml", _Handler.validate),
    (r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler.batch),
    (r"/lfs/(?P<digest>[0-9a-f]+)", _Handler.large),
    (f"/(?P<kind>datasets/)?{_NAME}/resolve/{_REVISION}/(?P<name>.+)", _Handler.resolve),
)
"""What is asked, and what answers; the first that fits."""
