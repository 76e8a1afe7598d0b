"""A stage that collects, killed wherever: the same command ends with the rows of one that was not killed."""

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from plaudit.collect.progress import store_faults
from plaudit.collect.store import open_store
from tests.collect.stage import pipelines
from tests.collect.stage.pipelines import PAIRS, write_collecting
from tests.engine.toy_command import Command, finish

Moment = Callable[[], bool]
CROWD = {**PAIRS, "n": 70, "judges": "crowd", "overlap": 2, "max-tokens": 24}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    rated = {"do": "collect", "data": "$pairs", "ask": "rate", "judges": "experts", "n": 20}
    return write_collecting(place, prompts=200, pairs=CROWD, rated=rated)


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    finish("run", config, "--out", out)
    return rows(out)


def rows(out: Path) -> dict[str, bytes]:
    return {name: pipelines.rows_of(out, name) for name in ("pairs", "rated")}


def exists(name: str) -> Callable[[Path], Moment]:
    return lambda out: (out / "stages" / name).exists


def events(kind: str, count: int) -> Callable[[Path], Moment]:
    """When the store's log has so many events of a kind."""

    def moment(out: Path) -> Moment:
        return lambda: _count(out / "labels.db", kind) >= count

    return moment


def _count(store: Path, kind: str) -> int:
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM log WHERE kind = ?", [kind]).fetchone()[0]
    except sqlite3.OperationalError:
        # The file is there, and the table is not yet.
        return 0


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


MOMENTS = [
    exists("pairs/begun.json"),
    exists("pairs/answers.jsonl"),
    lambda out: lambda: _lines(out / "stages" / "pairs" / "answers.jsonl") > 64,
    events("project-set", 1),
    events("task-added", 1),
    events("asked", 1),
    events("joined", 5),
    events("leased", 1),
    events("answered", 7),
    events("leased", 60),
    events("answered", 120),
    exists("pairs/rows.jsonl"),
    exists("pairs/rows.snapshot.json"),
    events("exported", 1),
    exists("pairs/stage.json"),
    events("asked", 2),
    events("answered", 170),
]
"""While it draws, asks, lets the pool answer, and exports."""


@pytest.mark.slow
def test_it_is_killed_everywhere(config, undisturbed, tmp_path):
    out = tmp_path / "out"
    again: list[object] = ["run", config, "--out", out]
    codes = [Command(again).kill_when(moment(out)).code for moment in MOMENTS]
    assert codes.count(-signal.SIGKILL) >= len(MOMENTS) - 3, codes
    finish(*again)
    with closing(open_store(out / "labels.db")) as store:
        assert store.read(store_faults) == []
    assert rows(out) == undisturbed
