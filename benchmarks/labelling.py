"""How long a store of labels takes for one piece of work, by how many tasks it holds.

python -m benchmarks.labelling next           1,000 and 100,000 tasks in turn, before and after 10,000 labels
python -m benchmarks.labelling pages          the same by pages of the browser, with what they weigh
python -m benchmarks.labelling solo           from the command of one person to the first task
python -m benchmarks.labelling quality        the report of 50,000 labels
python -m benchmarks.labelling snapshot       snapshots of 20,000, 200,000 and 2,000,000 labels, and agreement
python -m benchmarks.labelling next --save    and keeps the table in RESULTS.md
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from sqlalchemy import insert

from plaudit.collect import tables
from plaudit.collect.adding import add_tasks, set_project, task_id
from plaudit.collect.answering import GivenAnswer, submit_answer, take_in
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.project import Project
from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore, open_store
from plaudit.collect.tasks import check_task

SIZES = (1_000, 100_000)
"""How many tasks the stores have."""
_PROJECT = "next"
_COLUMNS = ("tasks", "labelled before", "next p50, ms", "next p95, ms", "CPU p50, ms", "submit p95, ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How long one call of the store took.

    Example: ``Call(seconds=0.0024, cpu_seconds=0.0019)``
    """

    seconds: float
    """By the clock, with all that a change waits for: the disk, too."""
    cpu_seconds: float
    """Of this process."""


class Labelled:
    """A store with so many tasks, and one person who labels them.

    Example: ``Labelled(Path("labels.db"), tasks=1_000).label()``
    """

    def __init__(self, path: Path, *, tasks: int) -> None:
        self.tasks, self.labelled = tasks, 0
        self.store: LabelStore = open_store(path, create=True)
        # With two labels for each task, those that were labelled once stay open, and are to be passed by.
        self.store.write(set_project, Project(name=_PROJECT, overlap=2, repeat=0.02), actor="o1")
        self.store.write(add_tasks, _PROJECT, map(_body, range(tasks)), actor="o1")
        invite = self.store.write(make_invite, _PROJECT, actor="o1")
        self.person = join_project(self.store, invite, "Ada").pseudonym

    def label(self) -> tuple[Call, Call]:
        """Ask for a task and answer it."""
        self.labelled += 1
        lease, leased = _timed(
            lambda: self.store.write(next_task, _PROJECT, self.person, f"n{self.labelled}")
        )
        assert isinstance(lease, Lease), "there are more tasks than labels"
        words = (_PROJECT, self.person, lease.assignment, f"s{self.labelled}", {"strength": 1})
        return leased, _timed(lambda: self.store.write(submit_answer, *words))[1]


def _body(number: int) -> dict[str, Any]:
    """A task of two answers as long as those of a chat."""
    texts = (f"{word} {number}. " + "And so it goes on. " * 30 for word in ("Yes", "No"))
    return {
        "prompt": f"Is {number} what I am looking for? " + "I have looked for long. " * 10,
        "candidates": [{"text": text, "source": {"model": "m"}} for text in texts],
    }


def _timed(call: Any) -> tuple[Any, Call]:
    cpu, begin = time.process_time(), time.perf_counter()
    found = call()
    return found, Call(seconds=time.perf_counter() - begin, cpu_seconds=time.process_time() - cpu)


def quantile(values: Sequence[float], share: float) -> float:
    """The value at a share of the sorted ones.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return sorted(values)[round(share * (len(values) - 1))]


def measure_next(sizes: Sequence[int], *, labelled: int, calls: int) -> list[list[str]]:
    """The rows of the table: stores of each size in turn, so that what else the machine does falls on all.

    A store with fewer tasks than ``labelled`` gets labels until as many tasks are left as are measured.
    """
    rows = list[list[str]]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = [Labelled(Path(folder) / f"{size}.db", tasks=size) for size in sizes]
        for own in stores:
            stack.enter_context(closing(own.store))
        rows += _in_turn(stores, calls)
        for own in stores:
            while own.labelled < min(labelled, own.tasks - calls):
                own.label()
        rows += _in_turn(stores, calls)
    return rows


def _in_turn(stores: Sequence[Labelled], calls: int) -> list[list[str]]:
    before = [own.labelled for own in stores]
    taken = [[own.label() for own in stores] for _ in range(calls)]
    rows = list[list[str]]()
    for place, own in enumerate(stores):
        leased, sent = zip(*(both[place] for both in taken), strict=True)
        figures = (
            quantile([call.seconds for call in leased], 0.5),
            quantile([call.seconds for call in leased], 0.95),
            quantile([call.cpu_seconds for call in leased], 0.5),
            quantile([call.seconds for call in sent], 0.95),
        )
        milliseconds = (f"{1000 * seconds:.1f}" for seconds in figures)
        rows.append([f"{own.tasks:,}", f"{before[place]:,}", *milliseconds])
    return rows


class Browser:
    """Somebody who is signed in, and sends forms as a browser without scripts does.

    Example: ``Browser(url, secret).get("/label")``
    """

    def __init__(self, url: str, secret: str) -> None:
        port = urlsplit(url).port
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Cookie": f"plaudit-{port}={secret}", "Origin": url, "Accept-Encoding": "gzip"}
        self.form: dict[str, str] = {}

    def get(self, path: str) -> bytes:
        """A page; the hidden fields of its answer's form are kept for `send`."""
        return self._fetch("GET", path, None)

    def send(self, path: str, **fields: str) -> bytes:
        """The form of the last page, and the page that it leads to."""
        return self._fetch("POST", path, urlencode({**self.form, **fields}).encode())

    def _fetch(self, method: str, path: str, body: bytes | None) -> bytes:
        form = {} if body is None else {"Content-Type": "application/x-www-form-urlencoded"}
        self._http.request(method, path, body, {**self._headers, **form})
        response = self._http.getresponse()
        content = response.read()
        if response.status == 303:
            return self._fetch("GET", response.headers["Location"], None)
        assert response.status == 200, f"{method} {path}: {response.status}"
        plain = gzip.decompress(content) if response.headers.get("Content-Encoding") == "gzip" else content
        own = plain.decode().partition('action="/label"')[2].partition("</form>")[0]
        self.form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', own))
        return content

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def measure_pages(sizes: Sequence[int], *, calls: int) -> list[list[str]]:
    """The rows of the table of pages, stores of each size in turn."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        browsers = list[Browser]()
        for size in sizes:
            own = Labelled(Path(folder) / f"{size}.db", tasks=size)
            stack.enter_context(closing(own.store))
            url = stack.enter_context(serve_in_background(own.store)).url
            secret = own.store.write(open_session, _PROJECT, own.person).secret
            browsers.append(stack.enter_context(closing(Browser(url, secret))))
        taken = [[_shown_and_sent(browser) for browser in browsers] for _ in range(calls)]
    rows = list[list[str]]()
    for place, size in enumerate(sizes):
        shown, sent, weights = zip(*(both[place] for both in taken), strict=True)
        seconds = [[call.seconds for call in part] for part in (shown, sent)]
        figures = (quantile(part, share) for part in seconds for share in (0.5, 0.95))
        rows.append(
            [f"{size:,}", *(f"{1000 * value:.1f}" for value in figures), f"{max(weights) / 1000:.1f}"]
        )
    return rows


def _shown_and_sent(browser: Browser) -> tuple[Call, Call, int]:
    page, shown = _timed(lambda: browser.get("/label"))
    _, sent = _timed(lambda: browser.send("/label", strength="1"))
    return shown, sent, len(page)


def measure_solo(calls: int) -> list[list[str]]:
    """From `plaudit collect` to the first task, as often as wanted."""
    taken = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        rows = "".join(f"{json.dumps(_pair(number))}\n" for number in range(200))
        (Path(folder) / "pairs.jsonl").write_text(rows, "utf-8")
        for number in range(calls):
            taken.append(_first_task(Path(folder), f"labels-{number}.jsonl"))
    return [[f"{quantile(taken, 0.5):.2f}", f"{max(taken):.2f}", str(calls)]]


def _pair(number: int) -> dict[str, str]:
    body = _body(number)
    first, second = (candidate["text"] for candidate in body["candidates"])
    return {"prompt": body["prompt"], "chosen": first, "rejected": second}


def _first_task(folder: Path, out: str) -> float:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "plaudit", "collect", "pairs.jsonl", "--out", out, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as running:
        assert running.stdout is not None
        link = next(found[0] for line in running.stdout if (found := re.search(r"http://\S+", line)))
        jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with jar.open(link) as page:
            assert b'name="strength"' in page.read(), "the first page is no task"
        taken = time.perf_counter() - begin
        running.terminate()
    return taken


def measure_quality(labels: int) -> list[list[str]]:
    """The report of a project with so many labels, made as the server has it made."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.db"
        with closing(open_store(path, create=True)) as store:
            _label_many(store, labels)
        command = [sys.executable, "-m", "plaudit", "collect", "quality", "--json", "--store", str(path)]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True)
        taken = time.perf_counter() - begin
        counted = json.loads(done.stdout)["labels"]
        assert counted == labels, f"{counted} of {labels}"
    return [[f"{labels:,}", f"{taken:.2f}"]]


def _label_many(store: LabelStore, labels: int) -> None:
    """Five labels a task by fifty people, all in one change: what is measured is the report."""
    store.write(set_project, Project(name=_PROJECT, overlap=5), actor="o1")
    bodies = [check_task(_body(number), store.project(_PROJECT)) for number in range(labels // 5)]
    given = [
        GivenAnswer(
            task=task_id(body),
            order=(place % 2, 1 - place % 2),
            label={"strength": sign},
            person=f"person {(5 * number + place) % 50}",
            origin=f"made:{number}",
        )
        for number, body in enumerate(bodies)
        for place, sign in enumerate((1, -1, 2, -2, 1))
    ]
    store.write(take_in, _PROJECT, bodies, given, actor="o1")


def measure_snapshots(sizes: Sequence[int]) -> list[list[str]]:
    """How long the commands take for a store of each size and its snapshot, with the most memory of any."""
    rows = list[list[str]]()
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            db, table = Path(folder) / "labels.db", Path(folder) / "labels.parquet"
            with closing(open_store(db, create=True)) as store:
                _fill(store, size)
            commands = (
                ("snapshot", "--store", str(db), "--out", str(table)),
                ("quality", "--json", "--agreement", "--store", str(table)),
                ("quality", "--json", "--store", str(table)),
                ("quality", "--json", "--store", str(db)),
            )
            cells = [f"{size:,}", f"{db.stat().st_size / 1e6:,.0f}"]
            for number, command in enumerate(commands):
                seconds, cpu, megabytes = _run_single(command)
                cells.append(f"{seconds:.1f} ({cpu:.1f}, {megabytes:,.0f} MB)")
                cells += [f"{table.stat().st_size / 1e6:,.1f}"] if number == 0 else []
        rows.append(cells)
    return rows


def _run_single(command: Sequence[str]) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and the most megabytes, of a command of its own."""
    begin = time.perf_counter()
    words = [sys.executable, "-m", "plaudit", "collect", *command]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    assert running.returncode == 0, " ".join(words)
    taken = time.perf_counter() - begin
    return taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _fill(store: LabelStore, labels: int) -> None:
    """Five labels a task by fifty people, two tasks a prompt, straight into the tables: no log has them."""
    store.write(set_project, Project(name=_PROJECT, overlap=5), actor="o1")
    invite = store.write(make_invite, _PROJECT, uses=50, actor="o1")
    people = [join_project(store, invite, f"person {number}").pseudonym for number in range(50)]
    rng, settings = random.Random(0), store.project(_PROJECT)
    done = {"authors": "[]", "priority": 0.0, "scramble": "", "state": "done", "wanted": 5, "done": 5}
    task = {**done, "project": _PROJECT, "purpose": "work", "taken": 0, "started": 0, "lacking": 0}
    label = {"project": _PROJECT, "purpose": "work", "guidelines": "", "surplus": 0}
    for start in range(0, labels // 5, 2_000):
        tasks, given = list[dict[str, Any]](), list[dict[str, Any]]()
        for number in range(start, min(start + 2_000, labels // 5)):
            body = check_task(_body(number), settings)
            own = {"id": task_id(body), "seq": number + 1_000, "prompt": f"p{number // 2}"}
            tasks.append({**task, **own, "body": json.dumps(body)})
            truth = rng.choice((-2, -1, -1, 1, 1, 2))
            for place, person in enumerate(rng.sample(people, 5)):
                order, seq = rng.choice(((0, 1), (1, 0))), 10_000_000 + 5 * number + place
                strength = truth if rng.random() < 0.7 else rng.choice((-2, -1, 0, 1, 2))
                answer = {"strength": -strength if order[0] else strength}
                words = {"task": own["id"], "shown": json.dumps(order), "label": json.dumps(answer)}
                who = {"assignment": f"a{seq}", "annotator": person, "author": person, "number": number}
                at = {"seq": seq, "at": "2026-03-01T12:00:00.000000Z", "seconds": rng.lognormvariate(2, 0.5)}
                given.append({**label, **words, **who, **at})
        with store.database.writing() as connection:
            connection.execute(insert(tables.task), tasks)
            connection.execute(insert(tables.label), given)


TITLES = {
    "next": "The next task among many",
    "pages": "Pages of a labeller",
    "solo": "To the first task by oneself",
    "quality": "The report of quality",
    "snapshot": "Snapshots of labels, and agreement over them",
}
"""The heading of each table."""
_SNAPSHOT_COLUMNS = (
    *("labels", "store, MB", "snapshot, s (CPU s, memory)", "its size, MB"),
    *("agreement of it", "the whole report of it", "the whole report of the store"),
)
_PAGE_COLUMNS = ("tasks", "shown p50, ms", "p95", "sent and next shown p50, ms", "p95", "largest page, kB")


def _table(args: argparse.Namespace) -> tuple[Sequence[str], list[list[str]]]:
    if args.part == "pages":
        return _PAGE_COLUMNS, measure_pages(args.tasks, calls=args.calls)
    if args.part == "solo":
        return ("seconds p50", "largest", "starts"), measure_solo(20)
    if args.part == "snapshot":
        return _SNAPSHOT_COLUMNS, measure_snapshots((20_000, 200_000, 2_000_000))
    if args.part == "quality":
        return ("labels", "seconds"), measure_quality(50_000)
    return _COLUMNS, measure_next(args.tasks, labelled=args.labels, calls=args.calls)


def main() -> None:
    """Measure, print, and keep the table where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labelling", description=__doc__)
    parser.add_argument("part", choices=tuple(TITLES))
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--labels", type=int, default=10_000, help="given before the second measurement")
    parser.add_argument("--calls", type=int, default=400, help="of each store, each time")
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    args = parser.parse_args()
    # Not above: what is measured needs no torch, and the page of results asks it for the machine.
    from benchmarks.table import machine, markdown, save_section

    columns, rows = _table(args)
    table = markdown([*columns], rows)
    print(table)
    if args.save:
        command = f"`python -m benchmarks.labelling {args.part} --labels {args.labels} --calls {args.calls}`"
        save_section(
            TITLES[args.part], f"{machine()}\n\n{command}, SQLite, one annotator, overlap 2\n\n{table}"
        )


if __name__ == "__main__":
    main()
