"""``plaudit run --wait`` serves the stores in which people answer, and goes on when they have."""

import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect.client import LabelClient
from plaudit.collect.progress import store_faults
from plaudit.collect.store import open_store
from tests.collect.stage.pipelines import PAIRS, write_collecting
from tests.engine.toy_command import Command
from tests.methods.iterative.answering import fuller, let_answer

SERVED = re.compile(r"(http://127\.0\.0\.1:\d+): people answer here for project (\S+); the invite (\S+) lets")


def served(running: Command, projects: int) -> dict[str, tuple[str, str]]:
    """Where each project is served, and the invite; waits until it was said."""
    running.until(lambda: len(SERVED.findall(running.said())) >= projects)
    return {project: (url, invite) for url, project, invite in SERVED.findall(running.said())}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows: dict[str, Any] = {"do": "rows", "data": "$pairs"}
    again = {"do": "collect", "data": "$below", "n": 3}
    return write_collecting(tmp_path, pairs=PAIRS, below=rows, again=again)


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_and_people_then_answer_over_http(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    running = Command(["run", config, "--out", out, "--wait"])
    served(running, 1)
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.code == 128 + signal.SIGINT
    assert "the same command goes on from here" in done.err
    running = Command(["run", config, "--out", out, "--wait"])
    url, invite = served(running, 1)["pairs"]
    client = LabelClient(url)
    client.join(invite, "Ada")
    while (given := client.next()["task"]) is not None:
        client.submit(given["assignment"], fuller(given["shown"]))
    urls = served(running, 2)
    assert urls["again"][0] == url, "one store has one server, as long as the command runs"
    let_answer(out / "labels.db", "again")
    done = running.wait()
    assert done.code == 0, done.err
    client.close()
    assert (out / "stages" / "again" / "rows.jsonl").read_bytes().count(b"\n") == 3
    with closing(open_store(out / "labels.db")) as store:
        assert store.read(store_faults) == []


@pytest.mark.slow
def test_fresh_with_wait_begins_once(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    running = Command(
        ["run", config, "--out", out, "--wait", "--fresh", "--only", "prompts", "pairs", "below"]
    )
    served(running, 1)
    answers = (out / "stages" / "pairs" / "answers.jsonl").stat().st_mtime_ns
    let_answer(out / "labels.db", "pairs")
    done = running.wait()
    assert done.code == 0, done.err
    assert (out / "stages" / "pairs" / "answers.jsonl").stat().st_mtime_ns == answers
