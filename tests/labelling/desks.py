"""Stores for tests: with a clock that is set by hand, in a file or in a PostgreSQL of the test's own."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pg8000.dbapi

from plaudit.labelling.desk import Lease
from plaudit.labelling.project import Project
from plaudit.labelling.store import LabelStore, open_store

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that goes on only when it is told to."""

    now: datetime = field(default=NOON)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


def pair_body(number: int, **more: Any) -> dict[str, Any]:
    """A task of two answers, the first of them better."""
    return {
        "kind": "pair",
        "prompt": f"What is {number} + {number}?",
        "candidates": [
            {"text": f"It is {2 * number}.", "ended": True, "source": {"model": "secret-model-a"}},
            {
                "text": f"It is {2 * number + 1}, I think.",
                "ended": True,
                "source": {"model": "secret-model-b"},
            },
        ],
        **more,
    }


class Desk:
    """A project with some tasks and people, and short words for what they do."""

    def __init__(self, where: str | Path, *, tasks: int = 4, **settings: Any) -> None:
        self.clock = Clock()
        self.store: LabelStore = open_store(where, clock=self.clock, create=True)
        self.store.set_project(Project(name="p", **settings), actor="o1")
        if tasks:
            self.store.add_tasks("p", [pair_body(number) for number in range(tasks)], actor="o1")

    def people(self, count: int) -> list[str]:
        secret = self.store.invite("p", uses=count, actor="o1")
        return [self.store.join(secret, f"person {number}").pseudonym for number in range(count)]

    def lease(self, person: str, key: str | None = None) -> Lease:
        found = self.store.next("p", person, key or secrets.token_hex(4))
        assert isinstance(found, Lease), found
        return found

    def answer(self, person: str, strength: int = -1) -> Lease:
        lease = self.lease(person)
        self.store.submit("p", person, lease.assignment, secrets.token_hex(4), {"strength": strength})
        return lease

    def better(self, lease: Lease) -> int:
        """The strength that prefers the right answer, wherever it is shown."""
        return 2 if "I think" in lease.shown["answers"][0] else -2


MakeDesk = Callable[..., Desk]
"""Makes desks that are closed when the test ends."""


class Cluster:
    """A PostgreSQL of its own: made in a temporary folder, started on the loopback, stopped and removed."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Not below pytest's folder, which only its own user may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="plaudit-postgres-"))
        self._user: list[str] = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            self._user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self.port = _free_port()
        self._run(
            "initdb", "-E", "UTF8", "--auth", "trust", "-U", "plaudit", "-D", str(self._folder / "data")
        )
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -k {self._folder} -h 127.0.0.1"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", mode, "-w", "stop")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def database(self, encoding: str = "UTF8") -> str:
        """A new database, and its address as a store."""
        name = f"labels_{secrets.token_hex(4)}"
        connection = pg8000.dbapi.connect(
            user="plaudit", host="127.0.0.1", port=self.port, database="postgres"
        )
        connection.autocommit = True
        try:
            connection.cursor().execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            )
        finally:
            connection.close()
        return f"postgresql+pg8000://plaudit@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._user, str(self._programs / program), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def postgres_programs() -> Path | None:
    """Where PostgreSQL's programs are; None where it is not installed."""
    found = shutil.which("initdb")
    folders = (
        [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def cluster() -> Iterator[Cluster]:
    """A cluster while a test module runs."""
    programs = postgres_programs()
    assert programs is not None
    own = Cluster(programs)
    try:
        yield own
    finally:
        own.remove()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
