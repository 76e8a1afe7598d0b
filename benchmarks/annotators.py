"""Many people label at once over HTTP: how fast, how long each waits, and whether anything is lost.

python -m benchmarks.annotators                    200 people without think time, 20,000 labels, SQLite
python -m benchmarks.annotators --postgres         the same on a PostgreSQL of its own
python -m benchmarks.annotators --servers 2        two servers on one store, and half of the people at each
python -m benchmarks.annotators --think 5          each person thinks for five seconds a task
python -m benchmarks.annotators --kills 50         the server is killed again and again meanwhile
python -m benchmarks.annotators --save             and keeps the table in RESULTS.md

The server is `plaudit collect serve` in a process of its own; the people are one asyncio process beside it,
on the same cores. Traffic goes to the loopback alone, and ends with the labels or with the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.log import by_key
from plaudit.collect.people import make_invite
from plaudit.collect.progress import project_status, store_faults
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, open_store
from tools.postgres import Cluster, postgres_programs

PROJECT = "load"
"""The project that is labelled."""
TITLE = "Many annotators at once"
"""The heading of its table."""
_LONGEST = 900.0
_TWICE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is asked of the server.

    Example: ``Load(people=200, labels=20_000, overlap=3)``
    """

    people: int = 200
    """How many label at once."""
    labels: int = 20_000
    """How many labels there are to be had, about: a whole number of tasks is made."""
    overlap: int = 3
    """Labels of each task."""
    think: float = 0.0
    """Seconds between a task and its answer."""
    most_seconds: float = _LONGEST
    """When it ends, whatever is done."""

    @property
    def tasks(self) -> int:
        """How many tasks that makes."""
        return -(-self.labels // self.overlap)


@dataclass(slots=True, kw_only=True)
class Observed:
    """What the people saw.

    Example: ``Observed(receipts={"a1/k0": 12})``
    """

    receipts: dict[str, int] = field(default_factory=dict[str, int])
    """Of every acknowledged answer the number of its event, by its key in the log."""
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"next": [], "submit": []})
    """How long each answer of the server took, by what was asked."""
    repeats: int = 0
    """Answers that were sent twice, and got the same receipt."""
    failures: int = 0
    """Sends that got no answer, and were sent again."""
    torn: int = 0
    """Answers of which only a part came."""
    wall: float = 0.0
    """Seconds from the first task to the last receipt."""


def add_work(store: LabelStore, load: Load) -> str:
    """A project with tasks, and an invite for everybody."""
    store.write(set_project, Project(name=PROJECT, overlap=load.overlap), actor="o1")
    bodies = (_body(number) for number in range(load.tasks))
    store.write(add_tasks, PROJECT, bodies, actor="o1")
    return store.write(make_invite, PROJECT, uses=load.people, actor="o1")


def _body(number: int) -> dict[str, Any]:
    return {
        "prompt": f"What is {number} + {number}, and how would you explain it to a child of seven years?",
        "candidates": [{"text": f"It is {2 * number}. {'Count on. ' * 12}"}, {"text": f"{2 * number + 1}?"}],
    }


class _Person:
    """One annotator: a connection, a token, and every send repeated until it is answered."""

    def __init__(self, number: int, port: int, observed: Observed, deadline: float) -> None:
        self.number, self._port, self._observed, self._deadline = number, port, observed, deadline
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._rng = random.Random(number)
        self.token, self.pseudonym = "", ""

    async def join(self, invite: str) -> None:
        body = {"invite": invite, "name": f"person {self.number}", "key": f"person {self.number}"}
        joined = await self._send("join", body)
        self.token, self.pseudonym = joined["token"], joined["pseudonym"]

    async def work(self, think: float) -> None:
        ordinal = 0
        await asyncio.sleep(self._rng.random() * think)
        while time.monotonic() < self._deadline:
            task = (await self._send("next", {"key": f"n{ordinal}"}))["task"]
            if task is None:
                return
            if think:
                await asyncio.sleep(think)
            await self._answer(task, f"k{ordinal}")
            ordinal += 1

    async def _answer(self, task: Mapping[str, Any], key: str) -> None:
        first_is_right = task["shown"]["answers"][0].startswith("It is")
        body = {
            "assignment": task["assignment"],
            "key": key,
            "label": {"strength": -2 if first_is_right else 2},
            "seconds": 4.5,
        }
        receipt = await self._send("submit", body)
        if self._rng.random() < _TWICE:
            assert await self._send("submit", body) == receipt, "a repeated send got another receipt"
            self._observed.repeats += 1
        self._observed.receipts[f"{self.pseudonym}/{key}"] = receipt["receipt"]

    async def _send(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        content, pause = json.dumps(body).encode(), 0.02
        while True:
            start = time.perf_counter()
            try:
                status, answer = await asyncio.wait_for(self._once(what, content), 60)
            except (OSError, asyncio.IncompleteReadError, ValueError, TimeoutError) as error:
                self._observed.torn += bool(getattr(error, "partial", b""))
                status, answer = 0, b""
            if status in (200, 201):
                self._observed.seconds.setdefault(what, []).append(time.perf_counter() - start)
                return json.loads(answer)
            if status not in (0, 500, 503) or (status and "error" not in json.loads(answer)):
                raise RuntimeError(f"{what} {body}: {status} {answer[:300]!r}")
            self._observed.failures += 1
            self.close()
            if time.monotonic() > self._deadline:
                raise RuntimeError(f"{what}: no answer until the time was over")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _once(self, what: str, content: bytes) -> tuple[int, bytes]:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST /api/v1/{what} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        head += f"Content-Length: {len(content)}\r\n"
        if self.token:
            head += f"Authorization: Bearer {self.token}\r\n"
        self._writer.write(head.encode() + b"\r\n" + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status, fields = int(answer.split(b" ", 2)[1]), answer.lower()
        start = fields.index(b"content-length:") + 15
        length = int(fields[start : fields.index(b"\r\n", start)])
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def _label(ports: Sequence[int], invite: str, load: Load, observed: Observed) -> None:
    deadline = time.monotonic() + load.most_seconds
    people = [
        _Person(number, ports[number % len(ports)], observed, deadline) for number in range(load.people)
    ]
    try:
        # Some at a time: a queue of two hundred at the door is another question than the work itself.
        for start in range(0, len(people), 20):
            await asyncio.gather(*(person.join(invite) for person in people[start : start + 20]))
        start = time.perf_counter()
        await asyncio.gather(*(person.work(load.think) for person in people))
        observed.wall = time.perf_counter() - start
    finally:
        for person in people:
            person.close()


def label(ports: Sequence[int], invite: str, load: Load) -> Observed:
    """Let everybody label until there is no work, or no time, left; people go to the servers in turn."""
    observed = Observed()
    asyncio.run(_label(ports, invite, load, observed))
    return observed


class Serving:
    """``plaudit collect serve`` on a store, in a process that can be killed and started again."""

    def __init__(self, store: str) -> None:
        self._store, self.port = store, _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        words = ["collect", "serve", "--store", self._store, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plaudit", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        give_up = time.monotonic() + 120
        while time.monotonic() < give_up and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the server does not listen: {self.stop()}")

    def kill(self) -> str:
        """End it as a power failure of the process: without a word."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
        return ""

    def stop(self) -> str:
        """End it in good order; gives its errors."""
        assert self._process is not None
        self._process.terminate()
        return self._process.communicate(timeout=60)[1].decode(errors="replace")

    @contextmanager
    def running(self) -> Iterator[Serving]:
        """The server while the block runs."""
        self.start()
        try:
            yield self
        finally:
            self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def load_store(where: str, load: Load, servers: int = 1) -> Observed:
    """Label everything in a new store, and look whether all of it is there."""
    store = open_store(where, create=True)
    try:
        invite = add_work(store, load)
        with ExitStack() as stack:
            running = [stack.enter_context(Serving(where).running()) for _ in range(servers)]
            observed = label([server.port for server in running], invite, load)
        refuse_losses(store, observed)
        return observed
    finally:
        store.close()


def load_under_kills(
    where: str,
    load: Load,
    kills: int,
    disturb: Callable[[int], None] = lambda number: None,
    *,
    gently: bool = False,
) -> Observed:
    """The same while the server is killed so many times, spread over the work; then all is counted.

    ``disturb`` is called before each kill with its number: it may restart the database. ``gently`` it is told
    to end, and must have nothing to complain of.
    """
    store = open_store(where, create=True)
    server = Serving(where)
    try:
        invite = add_work(store, load)
        server.start()
        words = ["--people-of", invite, *_words(load, server.port)]
        people = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.annotators", *words], stdout=subprocess.PIPE
        )
        for number in range(kills):
            wanted = int((number + 1) * load.labels / (kills + 1))
            while people.poll() is None and _labels(store) < wanted:
                time.sleep(0.05)
            if people.poll() is not None:
                break
            disturb(number)
            faults = server.stop() if gently else server.kill()
            if faults:
                raise RuntimeError(faults)
            server.start()
        output, _ = people.communicate(timeout=load.most_seconds)
        if people.returncode:
            raise RuntimeError("the people gave up; their fault stands above")
        observed = Observed(**json.loads(output))
        refuse_losses(store, observed)
        return observed
    finally:
        server.stop()
        store.close()


def _labels(store: LabelStore) -> int:
    return store.read(project_status, PROJECT).labels


def _words(load: Load, port: int) -> list[str]:
    values = {
        "people": load.people,
        "labels": load.labels,
        "overlap": load.overlap,
        "think": load.think,
        "most-seconds": load.most_seconds,
        "port": port,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def refuse_losses(store: LabelStore, observed: Observed) -> None:
    """Complain about a lost, doubled or surplus label, a broken chain, or tables that are no replay."""
    status, faults = store.read(project_status, PROJECT), store.read(store_faults)
    if status.surplus or status.labels != status.wanted or len(observed.receipts) != status.labels:
        faults.append(
            f"{len(observed.receipts)} labels were acknowledged; {status.labels} count, {status.wanted} are "
            f"wanted, {status.surplus} are surplus"
        )
    with store.looking() as look:
        for key, receipt in observed.receipts.items():
            event = by_key(look.connection, PROJECT, key)
            if event is None or event.seq != receipt:
                faults.append(f"{key}: acknowledged as event {receipt}, and the log has {event}")
    if faults:
        raise RuntimeError("\n".join(faults[:20]))


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not pass.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5)
    2.0
    """
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]


def figures(observed: Observed) -> dict[str, str]:
    """The columns of the table."""
    row = {
        "labels": f"{len(observed.receipts):,}",
        "seconds": f"{observed.wall:.1f}",
        "submissions a second": f"{len(observed.seconds['submit']) / observed.wall:.0f}",
    }
    for what in ("next", "submit"):
        for share in (0.5, 0.95, 0.99):
            value = 1000 * percentile(observed.seconds[what], share)
            row[f"{what} p{share * 100:g}, ms"] = f"{value:,.0f}"
    return row | {"sent twice": f"{observed.repeats:,}", "sent again": f"{observed.failures:,}"}


@contextmanager
def _where(folder: Path, *, postgres: bool) -> Iterator[tuple[str, Cluster | None]]:
    if not postgres:
        yield str(folder / "labels.db"), None
        return
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed here")
    cluster = Cluster(programs)
    try:
        yield cluster.database(), cluster
    finally:
        cluster.remove()


def _restarting(cluster: Cluster | None) -> Callable[[int], None]:
    def disturb(number: int) -> None:
        # Every tenth time the database itself goes down, in the middle of whatever it does.
        if cluster is not None and number % 10 == 4:
            cluster.stop("immediate")
            cluster.start()

    return disturb


def _measured(args: argparse.Namespace, load: Load) -> Observed:
    with (
        tempfile.TemporaryDirectory() as folder,
        _where(Path(folder), postgres=args.postgres) as (where, own),
    ):
        if args.kills:
            return load_under_kills(where, load, args.kills, _restarting(own))
        return load_store(where, load, args.servers)


def main() -> None:
    """Measure, print, and keep the table where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.annotators", description=__doc__)
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--overlap", type=int, default=3)
    parser.add_argument("--think", type=float, default=0.0, help="seconds between a task and its answer")
    parser.add_argument("--servers", type=int, default=1, help="on one store; with --kills one")
    parser.add_argument("--kills", type=int, default=0, help="how often the server is killed meanwhile")
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own in place of a file")
    parser.add_argument("--most-seconds", type=float, default=_LONGEST)
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    parser.add_argument("--people-of", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    load = Load(
        people=args.people,
        labels=args.labels,
        overlap=args.overlap,
        think=args.think,
        most_seconds=args.most_seconds,
    )
    if args.people_of:
        observed = label([args.port], args.people_of, load)
        print(json.dumps({name: getattr(observed, name) for name in observed.__slots__}))
        return
    row = figures(_measured(args, load))
    from benchmarks.table import machine, markdown, save_section

    name = f"{'PostgreSQL' if args.postgres else 'SQLite'}, {load.people} people"
    more = f"{', think ' + format(load.think, 'g') + ' s' if load.think else ''}"
    more += f"{f', {args.servers} servers' if args.servers > 1 else ''}"
    more += f"{f', {args.kills} kills' if args.kills else ''}"
    table = markdown(["what", *row], [[name + more, *row.values()]])
    print(table)
    if args.save:
        command = f"`python -m benchmarks.annotators {' '.join(sys.argv[1:])}`"
        save_section(f"{TITLE}: {name}{more}", f"{command}, {machine()}\n\n{table}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
