"""``plaudit collect FILE --out ROWS``: one person, one browser, rows in the end; the next start goes on."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plaudit.cli.main import main
from plaudit.collect.asking import task_body
from plaudit.collect.drawing import Draw, draw_tasks
from plaudit.collect.progress import project_status
from plaudit.collect.store import open_store
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Ranking, plain_text
from plaudit.lab.world import base_model_folder
from plaudit.rollouts.sampler import SamplingSettings

PAIRS = [
    {"prompt": f"What is {n} + {n}?", "chosen": f"It is {2 * n}.", "rejected": f"{2 * n}, I think."}
    for n in range(3)
]
RANKED = {"prompt": "Name a bird.", "completions": ["An owl.", "A wren.", "A bat."], "ranks": [1, 2, 3]}


@contextmanager
def labelling(folder: Path, *words: str) -> Iterator[tuple[httpx2.Client, subprocess.Popen[str]]]:
    """The command, with a browser that has followed the link that it prints."""
    command = [sys.executable, "-m", "plaudit", "collect", *words, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as running:
        assert running.stdout is not None
        link = next(found[0] for line in running.stdout if (found := re.search(r"http://\S+", line)))
        with httpx2.Client(base_url=re.sub(r"/start/.*", "", link), follow_redirects=True) as browser:
            assert browser.get(link).url.path == "/label"
            try:
                yield browser, running
            finally:
                running.send_signal(signal.SIGINT)
                running.wait(30)


def send(browser: httpx2.Client, **label: str) -> httpx2.Response:
    """Answer the task that is shown, as a browser without scripts does."""
    page = browser.get("/label").text
    # Its own form alone: others of the page name the answer before it.
    page = page[page.index('action="/label"') :].partition("</form>")[0]
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    return browser.post(
        "/label", data={**hidden, **label}, headers={"Origin": str(browser.base_url).rstrip("/")}
    )


def end(running: subprocess.Popen[str]) -> str:
    """End the command as Ctrl-C does, and give what it said."""
    running.send_signal(signal.SIGINT)
    running.wait(30)
    assert running.stdout is not None
    return running.stdout.read()


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in PAIRS))
    return tmp_path


def test_labels_become_rows_and_the_next_start_goes_on(pairs):
    with labelling(pairs, "pairs.jsonl", "--out", "labels.jsonl") as (browser, running):
        assert send(browser, strength="2").status_code == 200
        ended = end(running)
    assert running.returncode == 0
    assert "labels.jsonl: 1 rows of 1 labels; from where: labels.snapshot.json" in ended
    assert "2 tasks are left" in ended
    (row,) = read_records(pairs / "labels.jsonl").records
    assert isinstance(row, Comparison)
    assert row.strength == 2
    assert json.loads((pairs / "labels.snapshot.json").read_text())["rows"] == 1
    with labelling(pairs, "pairs.jsonl", "--out", "labels.jsonl") as (browser, running):
        for strength in ("-1", "0"):
            last = send(browser, strength=strength)
        assert 'name="strength"' not in last.text
        ended = end(running)
    assert "every task has its label" in ended
    assert len(read_records(pairs / "labels.jsonl").records) == 3


@pytest.mark.slow
def test_nothing_labelled_writes_nothing(pairs):
    with labelling(pairs, "pairs.jsonl", "--out", "labels.jsonl") as (_, running):
        assert "nothing was labelled yet; labels.jsonl is not written" in end(running)
    assert not (pairs / "labels.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "field"),
    [([RANKED], "Name a bird"), ([{"prompt": "Say hello."}], "Say hello")],
    ids=["rank", "write"],
)
def test_what_is_asked_is_told_from_the_rows(tmp_path, rows, field):
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with labelling(tmp_path, "rows.jsonl", "--out", "labels.jsonl") as (browser, _):
        assert field in browser.get("/label").text


@pytest.mark.slow
def test_a_model_answers_first_and_only_once(tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "What is 3 plus 4?"}\n{"prompt": "Hello"}\n')
    words = ("--model", str(base_model_folder()), "--prompts", "prompts.jsonl", "--out", "labels.jsonl")
    more = ("--answers", "3", "--as", "rank", "--max-tokens", "24")
    with labelling(tmp_path, *words, *more) as (browser, _):
        sent = send(browser, **{"place-0": "1", "place-1": "2", "place-2": "2"})
        assert sent.status_code == 200, sent.text
    (row,) = read_records(tmp_path / "labels.jsonl").records
    assert isinstance(row, Ranking)
    assert len({plain_text(answer) for answer in row.completions}) == 3
    with labelling(tmp_path, *words, *more), closing(open_store(tmp_path / "labels.db")) as store:
        assert store.read(project_status, "solo").wanted == 2
    # Another draw is other tasks; what was labelled stays.
    with (
        labelling(tmp_path, *words, *more, "--seed", "1"),
        closing(open_store(tmp_path / "labels.db")) as store,
    ):
        status = store.read(project_status, "solo")
        assert (status.wanted, status.labels) == (4, 1)


def test_the_last_answer_of_a_task_is_of_each_source_in_turn(tmp_path):
    rows = [{"prompt": f"What is {n} plus 4?", "completion": f"It is {n + 4}, says a row."} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how: dict[str, Any] = {"sampling": SamplingSettings(max_tokens=24, seed=3), "answers": 2, "device": "cpu"}
    draw = Draw(model=base_model_folder(), prompts=tmp_path / "rows.jsonl", **how)
    against = ("written", str(base_model_folder()), "policy")
    tasks, _ = draw_tasks(replace(draw, against=against), tmp_path)
    assert len(tasks) > 3
    for task in tasks:
        number = int(str(task.metadata["origin"]).rpartition(":")[2]) - 1
        body = task_body(task, source={"model": "m"}, **task.metadata)
        source = ("written", str(base_model_folder()), "m")[number % 3]
        assert [each["source"]["model"] for each in body["candidates"]] == ["m", source]
        assert (plain_text(task.answers[1]) == rows[number]["completion"]) == (source == "written")
    # Drawn again, nothing is drawn.
    assert draw_tasks(replace(draw, against=against), tmp_path)[0] == tasks
    assert all("sources" not in task.metadata for task in draw_tasks(draw, tmp_path)[0])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pairs.jsonl"], "--out"),
        (["--out", "labels.jsonl"], "either FILE, or --model DIR with --prompts ROWS"),
        (["pairs.jsonl", "--model", "m", "--prompts", "p", "--out", "l.jsonl"], "either FILE, or --model"),
        (["--model", "m", "--out", "l.jsonl"], "--model and --prompts go together"),
        (
            ["--model", "m", "--prompts", "pairs.jsonl", "--out", "l.jsonl"],
            "--model m: there is no such file",
        ),
        (["none.jsonl", "--out", "l.jsonl"], "none.jsonl"),
        (["pairs.jsonl", "--out", "rows.xml"], "rows.xml"),
        (["pairs.jsonl", "--as", "rank", "--out", "l.jsonl"], "field answers: expected 3 to 9"),
        (["pairs.jsonl", "--port", "70000", "--out", "l.jsonl"], "--port 70000"),
        (["pairs.jsonl", "--guidelines", "none.md", "--out", "l.jsonl"], "--guidelines none.md"),
        (["pairs"], "plaudit collect pairs: there is no such file and no such verb"),
    ],
)
def test_what_cannot_be_is_refused_in_words(pairs, monkeypatch, capsys, words, says):
    monkeypatch.chdir(pairs)
    assert main(["collect", *words]) == 2
    assert says in capsys.readouterr().err
    assert not [*pairs.glob("l.*")]


@pytest.mark.slow
def test_a_store_of_a_team_and_another_kind_are_refused(pairs, monkeypatch, capsys):
    monkeypatch.chdir(pairs)
    with labelling(pairs, "pairs.jsonl", "--out", "labels.jsonl"):
        pass
    assert main(["collect", "pairs.jsonl", "--as", "rate", "--out", "labels.jsonl"]) == 2
    assert "its tasks are to pair, and now rate is wanted" in capsys.readouterr().err
    (pairs / "team.yaml").write_text("project: team\n")
    assert main(["collect", "project", "team.yaml", "--store", "team.db"]) == 0
    assert main(["collect", "pairs.jsonl", "--out", "team.jsonl"]) == 2
    assert "it is the store of a team (team)" in capsys.readouterr().err
