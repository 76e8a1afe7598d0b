"""How long a store of labels takes for one piece of work, by how many tasks it holds.

python -m benchmarks.labelling next           1,000 and 100,000 tasks in turn, before and after 10,000 labels
python -m benchmarks.labelling next --save    and keeps the table in RESULTS.md
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit.labelling.desk import Lease
from plaudit.labelling.project import Project
from plaudit.labelling.store import LabelStore, open_store

TITLE = "The next task among many"
"""The heading of its table."""
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
        self.store.set_project(Project(name=_PROJECT, overlap=2, repeat=0.02), actor="o1")
        self.store.add_tasks(_PROJECT, map(_body, range(tasks)), actor="o1")
        invite = self.store.invite(_PROJECT, actor="o1")
        self._person = self.store.join(invite, "Ada").pseudonym

    def label(self) -> tuple[Call, Call]:
        """Ask for a task and answer it."""
        self.labelled += 1
        lease, leased = _timed(lambda: self.store.next(_PROJECT, self._person, f"n{self.labelled}"))
        assert isinstance(lease, Lease), "there are more tasks than labels"
        words = (_PROJECT, self._person, lease.assignment, f"s{self.labelled}", {"strength": 1})
        return leased, _timed(lambda: self.store.submit(*words))[1]


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


def main() -> None:
    """Measure, print, and keep the table where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labelling", description=__doc__)
    parser.add_argument("part", choices=("next",))
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--labels", type=int, default=10_000, help="given before the second measurement")
    parser.add_argument("--calls", type=int, default=400, help="of each store, each time")
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    args = parser.parse_args()
    # Not above: what is measured needs no torch, and the page of results asks it for the machine.
    from benchmarks.table import machine, markdown, save_section

    table = markdown([*_COLUMNS], measure_next(args.tasks, labelled=args.labels, calls=args.calls))
    print(table)
    if args.save:
        command = f"`python -m benchmarks.labelling {args.part} --labels {args.labels} --calls {args.calls}`"
        save_section(TITLE, f"{machine()}\n\n{command}, SQLite, one annotator, overlap 2\n\n{table}")


if __name__ == "__main__":
    main()
