"""A kind of task that plaudit does not have: one file and one template, from a task to an exported row."""

import json
from pathlib import Path

import pytest

from plaudit.collect.app.render import environment
from plaudit.collect.export import export
from plaudit.collect.kinds import KINDS
from plaudit.collect.progress import project_tasks
from tests.collect.browsers import given_labels, signed_in
from tests.collect.desks import MakeDesk

FILE = '''
"""One answer, and the better word for one of its words."""

from pathlib import Path

from plaudit.collect.kinds.kind import (
    Kind, form_texts, needed_words, read_words, refuse_unknown, shared_values, task_of
)
from plaudit.data.records import Comparison, Rating


def check(node, body, settings):
    refuse_unknown(node, ("word", "why"))
    return {"word": needed_words(node.get("word")), **read_words(node)}


def rows(given):
    (answer,), word = task_of(given).answers, given.label["word"]
    better = f"{answer} {word}"
    return [Comparison(prompt=given.prompt, chosen=better, rejected=answer, **given.shared)]


KIND = Kind(
    name="amend",
    answers=(1, 1),
    records=(Rating,),
    template=Path(__file__).with_name("amend.html"),
    question="task-send",
    fields=("word", "why"),
    read=lambda shown, form: form_texts(form, "word", "why"),
    values=lambda shown, label: {"word": [label.get("word", "")], **shared_values(label)},
    check=check,
    say=lambda shown, label, voice: f"amended with {label['word']}",
    summary=lambda label, order, settings, voice: voice.written(label["word"]),
    essence="word",
    rows=rows,
)
'''
TEMPLATE = """
{{ parts.prompt() }}
{% call parts.answer(0) %}{% endcall %}
{{ m.field("word", "The missing word", parts.value("word"), error=error) }}
"""


@pytest.fixture
def amend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "amend_kind.py").write_text(FILE)
    (tmp_path / "amend.html").write_text(TEMPLATE)
    monkeypatch.syspath_prepend(tmp_path)
    import amend_kind  # type: ignore[import-not-found]

    monkeypatch.setitem(KINDS, amend_kind.KIND.name, amend_kind.KIND)
    environment.cache_clear()
    return "amend"


def test_a_kind_is_a_file_and_a_template(amend: str, tmp_path: Path, make_desk: MakeDesk) -> None:
    task = {"prompt": "How old is the sea?", "candidates": [{"text": "Four billion"}]}
    desk = make_desk(ask=amend, tasks=[task])
    browser = signed_in(desk.store)
    page = browser.get("/label")
    assert "How old is the sea?" in page.words
    # Refused by its field, with what was typed still there.
    refused = browser.send(page.form(), why="It lacks a unit.")
    assert (refused.status, refused.form().value("why")) == (422, "It lacks a unit.")
    assert browser.send(refused.form(), word="years").status == 200
    assert given_labels(desk) == [{"word": "years", "why": "It lacks a unit."}]
    assert "amended with years" in browser.get("/history").words
    manager = signed_in(desk.store, "Owner", "owner")
    (row,) = desk.store.read(project_tasks, "p")
    assert "It lacks a unit." in manager.get(f"/manage/tasks/{row['id']}").words
    snapshot = export(desk.store, "p", tmp_path / "rows.jsonl")
    (exported,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert (snapshot.rows, exported["chosen"]) == (1, "Four billion years")
