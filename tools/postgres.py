"""A PostgreSQL of one's own for tests and benchmarks: the distribution's programs, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pg8000.dbapi


class Cluster:
    """A cluster made in a temporary folder and started on the loopback.

    Example: ``Cluster(postgres_programs()).database()``
    """

    def __init__(self, programs: Path, password: str | None = None) -> None:
        """Make it and start it; as root under another user, since PostgreSQL refuses to run as root.

        With a password nobody gets in without it; otherwise everybody on this machine does.
        """
        self.password = password
        self._programs = programs
        # Not below pytest's folder, which only its own user may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="plaudit-postgres-"))
        self._user: list[str] = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            self._user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self.port = _free_port()
        words = ["--auth", "trust"]
        if password is not None:
            secret = self._folder / "password"
            secret.write_text(password)
            words = ["--auth", "scram-sha-256", "--pwfile", str(secret)]
            secret.chmod(0o644)
        self._run("initdb", "-E", "UTF8", *words, "-U", "plaudit", "-D", str(self._folder / "data"))
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = f"-p {self.port} -k {self._folder} -h 127.0.0.1"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "start")
        # On a busy machine pg_ctl may come back while the server still looks through what a crash left.
        for _ in range(600):
            try:
                self._connect().close()
            except pg8000.dbapi.DatabaseError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError((self._folder / "log").read_text("utf-8", "replace"))

    def _connect(self) -> pg8000.dbapi.Connection:
        return pg8000.dbapi.connect(
            user="plaudit", host="127.0.0.1", port=self.port, database="postgres", password=self.password
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` as a crash would, to recover at the next start."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", mode, "-w", "stop")

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def database(self, encoding: str = "UTF8") -> str:
        """A new database, and its address as a store."""
        name = f"labels_{secrets.token_hex(4)}"
        connection = self._connect()
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
