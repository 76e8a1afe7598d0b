"""Simulated people over HTTP: what comes of it is what the same pool says when it is asked directly."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import own_history
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.export import export
from plaudit.collect.people import make_invite
from plaudit.collect.progress import project_people, project_status, store_faults
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, open_store
from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.lab.world import making
from plaudit.lab.world.annotators import TRUE_ANNOTATOR, annotator_pool
from plaudit.lab.world.online import Habits, annotate, direct_verdict, label_of, shown_as_task


def bodies(n: int, answers: int = 2, seed: int = 0) -> list[dict[str, Any]]:
    """Tasks of the world: its prompts, with answers in the manner of its corpus."""
    tasks = making.answer_tasks(n, answers=answers, split="train", seed=seed)
    return [
        {
            "prompt": text_to_json(task.prompt),
            "candidates": [
                {"text": text_to_json(answer), "ended": ended}
                for answer, ended in zip(task.answers, task.ended, strict=True)
            ],
        }
        for task in tasks
        if len({str(answer) for answer in task.answers}) == answers
    ]


@contextmanager
def store_of(where: str | Path, rows: list[dict[str, Any]], **settings: Any) -> Iterator[LabelStore]:
    store = open_store(where, create=True)
    try:
        store.write(set_project, Project(name="p", **settings), actor="o1")
        store.write(add_tasks, "p", rows, actor="o1")
        yield store
    finally:
        store.close()


def answered(store: LabelStore) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for row in store.read(project_people, "p"):
        for item in store.read(own_history, "p", row["pseudonym"], 500):
            yield row["pseudonym"], item["shown"], item["label"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "answers", "settings"),
    [
        ("pair", 2, {"overlap": 3}),
        ("pair", 2, {"scale": ("better",), "ties": False}),
        ("rank", 4, {"overlap": 2}),
        ("rank", 3, {"ties": False}),
        ("rate", 3, {"aspects": ("overall", "kind"), "points": 7}),
    ],
)
def test_the_labels_are_those_of_the_pool_asked_directly(tmp_path, ask, answers, settings):
    with store_of(tmp_path / "l.db", bodies(30, answers), ask=ask, **settings) as store:
        secret = store.write(make_invite, "p", uses=12, actor="o1")
        habits = Habits(twice=0.2, vanish=0.1, skip=0.05)
        with serve_in_background(store) as server:
            work = annotate(server.url, secret, "crowd", seed=5, habits=habits)
        people = {f"a{number}": person for number, person in enumerate(annotator_pool("crowd"), start=1)}
        found = [*answered(store)]
        for pseudonym, shown, label in found:
            assert label == label_of(shown, direct_verdict(people[pseudonym], shown_as_task(shown), 5))
        assert len(found) == sum(work.labels.values()) > 25
        assert min(work.counts[name] for name in ("sent twice", "left and came back")) > 0
        assert store.read(project_status, "p").done
        assert store.read(project_status, "p").surplus == 0
        assert store.read(store_faults) == []
        assert {row["person"] for row in store.read(project_people, "p")} == {
            p.name for p in annotator_pool("crowd")
        }


def test_another_order_of_the_same_answers_is_another_look_at_them():
    (task,) = making.answer_tasks(1, answers=2, split="train", seed=3)
    turned = replace(task, answers=task.answers[::-1], ended=task.ended[::-1])
    ranks = [
        [mark.rank for mark in direct_verdict(TRUE_ANNOTATOR, either, 0).marks] for either in (task, turned)
    ]
    assert ranks[0] == ranks[1][::-1]


@pytest.mark.slow
def test_people_qualify_and_gold_is_answered(tmp_path):
    rows = bodies(60, seed=1)
    known = []
    for row in rows[:20]:
        shown = {
            "prompt": row["prompt"],
            "answers": [c["text"] for c in row["candidates"]],
            "ended": [True] * 2,
        }
        first, second = (m.rank for m in direct_verdict(TRUE_ANNOTATOR, shown_as_task(shown), 0).marks)
        if first != second:
            known.append({**row, "gold": {"better": int(second < first)}})
    rows = rows[20:] + [{**row, "qualify": True} for row in known[:10]] + known[10:]
    settings: dict[str, Any] = {"qualify_n": 8, "qualify_floor": 0.3, "gold_share": 0.2}
    with store_of(tmp_path / "l.db", rows, **settings) as store:
        secret = store.write(make_invite, "p", uses=15, actor="o1")
        with serve_in_background(store) as server:
            annotate(server.url, secret, "experts", seed=0)
        status = store.read(project_status, "p")
        assert status.done
        assert status.people == {"active": 3}
        assert status.items > 3 * 8


def _crowd(url: str, secret: str) -> None:
    annotate(url, secret, "crowd", seed=1, habits=Habits(twice=0.1, vanish=0.2, skip=0.1))


@pytest.mark.slow
def test_a_crowd_that_is_killed_ends_with_the_same_rows(tmp_path):
    """Its process is killed again and again, wherever it is; the bytes are those of one that ran through."""
    contents = list[bytes]()
    context = multiprocessing.get_context("spawn")
    for kills in (0, 6):
        with store_of(tmp_path / f"{kills}.db", bodies(40), overlap=3, lease_minutes=1440) as store:
            secret = store.write(make_invite, "p", uses=12, actor="o1")
            with serve_in_background(store) as server:
                for number in range(kills):
                    process = context.Process(target=_crowd, args=(server.url, secret))
                    process.start()
                    begun = store.position()[0]
                    while store.position()[0] < begun + 9 + 4 * number and process.is_alive():
                        time.sleep(0.002)
                    assert process.pid is not None
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()
                _crowd(server.url, secret)
            export(store, "p", tmp_path / f"{kills}.jsonl")
            contents.append((tmp_path / f"{kills}.jsonl").read_bytes())
            assert store.read(store_faults) == []
    assert contents[0] == contents[1]


def test_the_command_says_what_its_people_did(tmp_path, capsys):
    with store_of(tmp_path / "l.db", bodies(12)) as store:
        secret = store.write(make_invite, "p", uses=3, actor="o1")
        with serve_in_background(store) as server:
            words = ["world", "annotate", server.url, "--invite", secret, "--pool", "experts", "--seed", "2"]
            assert main([*words, "--most", "3"]) == 0
            said = capsys.readouterr().out
            assert "9 labels by 3 people of experts: a1 3, a2 3, a3 3" in said
            assert "stopped: most: 3" in said
            assert main([*words, "--speed", "5000", "--twice", "1"]) == 0
            assert "stopped: done: 3" in capsys.readouterr().out
            assert store.read(project_status, "p").done
            assert main([*words, "--twice", "2"]) == 2
            assert "expected a share from 0 to 1" in capsys.readouterr().err
            assert main(["world", "annotate", server.url, "--invite", "i_wrong"]) == 2
            assert "this invite does not exist" in capsys.readouterr().err


def test_what_the_world_cannot_answer_is_said(tmp_path):
    rows = [json.loads('{"prompt": "Greet me."}')]
    with store_of(tmp_path / "l.db", rows, ask="write") as store:
        secret = store.write(make_invite, "p", uses=12, actor="o1")
        with (
            serve_in_background(store) as server,
            pytest.raises(UserError, match="the project asks for write"),
        ):
            annotate(server.url, secret, "crowd")
