"""Reports kept beside the labels, and made by a process of their own: a server only asks for them.

Of a project the newest report is kept, with the position of the log that it is of. Whoever asks for a newer
one gets the old one at once, and a child process computes; nothing here loads what computes.
"""

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, Table, Text, bindparam, delete, insert, inspect, select

from plaudit.collect import log
from plaudit.collect.quality.result import QUALITY_VERSION
from plaudit.collect.store import LabelStore

# Tables of its own: a report is no part of the store, is not copied with it, and may be dropped at any time.
_METADATA = MetaData()
_report = Table(
    "quality_report",
    _METADATA,
    Column("project", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
_READ = select(_report.c.seq, _report.c.body).where(_report.c.project == bindparam("p"))
_OUT = delete(_report).where(_report.c.project == bindparam("p"))

MOST_SECONDS = 600
"""A child that computes for longer is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    process: subprocess.Popen[bytes]
    seq: int
    """The position that it was started for."""
    started: float
    """When, by a clock that only goes forward."""

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    report: dict[str, Any] | None
    """The newest report, perhaps of an older position; None where there is none yet."""
    seq: int
    """The position that a report would be of now."""
    is_fresh: bool
    """Whether the report is of that position."""
    computing: bool
    """Whether a child is at work on one."""
    failure: str
    """What the last child said when it failed; empty where it did not."""


def read_report(store: LabelStore, project: str) -> tuple[dict[str, Any] | None, int]:
    with store.looking() as look:
        look.settings(project)
        seq, _ = log.last_of_labels(look.connection, project, log.last(look.connection)[0])
        if not inspect(look.connection).has_table(_report.name):
            return None, seq
        row = look.connection.execute(_READ, {"p": project}).first()
    report = None if row is None else json.loads(row.body)
    # Of another version it may lack what a page shows.
    return (report if report is not None and report["version"] == QUALITY_VERSION else None), seq


def keep_report(store: LabelStore, report: dict[str, Any]) -> None:
    """Put a report in the place of the one before."""
    row = {"project": report["project"], "seq": report["seq"], "body": json.dumps(report)}
    with store.database.writing() as connection:
        _METADATA.create_all(connection)
        connection.execute(_OUT, {"p": report["project"]})
        connection.execute(insert(_report), row)


class Reports:
    """The reports of a store's projects, each computed by a child process where it is out of date."""

    def __init__(self, store: LabelStore) -> None:
        self._store = store
        self._children = dict[str, Child]()
        self._failed = dict[str, tuple[int, str]]()
        self._lock = threading.Lock()

    def get(self, project: str) -> Held:
        """What there is now; a child is started where that is out of date and none is at work."""
        # A server asks from many threads: two at once would start two children.
        with self._lock:
            report, seq = read_report(self._store, project)
            is_fresh = report is not None and report["seq"] == seq
            self._reap(project)
            failed_at, failure = self._failed.get(project, (0, ""))
            # What failed at this position would fail again; the next label is another try.
            if not is_fresh and project not in self._children and failed_at != seq:
                self._children[project] = start(self._store, project, seq=seq)
            return Held(
                report=report,
                seq=seq,
                is_fresh=is_fresh,
                computing=not is_fresh and project in self._children,
                failure=failure if failed_at == seq else "",
            )

    def _reap(self, project: str) -> None:
        child = self._children.get(project)
        if child is None:
            return
        status = child.process.poll()
        if status is None and time.monotonic() - child.started <= MOST_SECONDS:
            return
        child.end()
        del self._children[project]
        if status is None:
            self._failed[project] = (child.seq, f"it took more than {MOST_SECONDS} seconds")
        elif status:
            why = f"it ended with status {status}; the server's output and `plaudit collect quality` say why"
            self._failed[project] = (child.seq, why)

    def close(self) -> None:
        # A thread of a server that ends may still be asking, and would leave a child behind.
        with self._lock:
            for child in self._children.values():
                child.end()
            self._children.clear()


def start(store: LabelStore, project: str, *, seq: int) -> Child:
    # What it says of a fault goes where the server's own words go: a pipe that nobody reads would stop it.
    child = subprocess.Popen(
        [sys.executable, "-m", "plaudit.collect.quality"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    url = store.database.engine.url
    where = store.where if store.database.is_file else url.render_as_string(hide_password=False)
    assert child.stdin is not None
    # A child that has ended already says so by its status. Not as words of the command: everybody on the
    # machine could read the database's password there.
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(json.dumps({"store": where, "project": project}).encode())
    return Child(process=child, seq=seq, started=time.monotonic())
