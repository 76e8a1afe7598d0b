"""The verbs of ``plaudit collect`` that are about people, through the real command."""

import csv
import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import add_tasks
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.own import completion_code
from plaudit.collect.people import issue_token, join_project
from plaudit.collect.sessions import find_session, sign_in
from plaudit.collect.store import LabelStore, open_store
from tests.collect.desks import pair_body

WORD = "a horse in the rain"
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``plaudit collect`` in a folder with a store, and gives what is printed; errors where it fails."""
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("project: helpful\n")
    assert main(["collect", "project", "p.yaml"]) == 0
    with closing(open_store("labels.db")) as store:
        store.write(add_tasks, "helpful", [pair_body(number) for number in range(3)], actor="o1")

    def collect(*words: object, status: int = 0) -> str:
        capsys.readouterr()
        found = main(["collect", *map(str, words)])
        printed = capsys.readouterr()
        assert found == status, printed.err
        return printed.err if status else printed.out

    secret = collect("invite", "--uses", 3).strip()
    with closing(open_store("labels.db")) as store:
        for name in ("Ada", "Bob", "Cy"):
            join_project(store, secret, name, password=WORD)
    return collect


def _store() -> closing[LabelStore]:
    return closing(open_store("labels.db"))


def _label(store: LabelStore, person: str) -> None:
    lease = store.write(next_task, "helpful", person, "k")
    assert isinstance(lease, Lease)
    label = {"strength": 1, "why": "clearer"}
    store.write(submit_answer, "helpful", person, lease.assignment, "k2", label, seconds=90)


def test_everybody_is_listed_with_what_they_did(run):
    with _store() as store:
        _label(store, "a1")
    lines = run("people").splitlines()
    assert lines[0].split() == [
        *("name", "role", "standing", "answered"),
        *("labels", "surplus", "skipped", "minutes"),
    ]
    assert lines[1].split() == ["a1", "Ada", "annotator", "active", "1", "1", "0", "0", "2"]
    assert len(lines) == 4
    found = json.loads(run("people", "--json"))
    assert [row["person"] for row in found["people"][:2]] == ["Ada", "Bob"]


def test_a_person_is_shown_by_name_and_by_pseudonym_and_a_name_of_two_is_not_guessed(run):
    with _store() as store:
        sign_in(store, "helpful", "Ada", WORD)
    shown = run("person", "Ada")
    assert run("person", "a1") == shown
    assert "signed in since " in shown
    assert "nobody in helpful is called 'Adda'; did you mean Ada?" in run("person", "Adda", status=2)
    with _store() as store:
        store.write(issue_token, "helpful", "annotator", name="Ada")
    assert "'Ada' may be a1 or a4 of helpful; say which" in run("person", "Ada", "--erase", status=2)


def test_what_is_stored_of_a_person_is_written_for_nobody_elses_eyes(run):
    with _store() as store:
        _label(store, "a1")
    assert "everything that is stored of a1" in run("person", "Ada", "--export", "ada.json")
    path = Path("ada.json")
    assert path.stat().st_mode & 0o077 == 0
    found = json.loads(path.read_text("utf-8"))
    assert (found["name"], found["has_password"]) == ("Ada", True)
    assert [event["kind"] for event in found["events"]] == ["joined", "leased", "answered"]


@pytest.mark.parametrize(
    ("deed", "says", "again"),
    [
        (["--erase"], "a1 of helpful is erased", "a1 was erased before"),
        (["--suspend", "clicks at random"], "a1 of helpful is suspended", None),
        (["--end-sessions"], "a1 of helpful: 1 sessions and 1 tokens ended\n", None),
        (["--suspend", " "], None, "reason: expected words"),
    ],
)
def test_whoever_is_erased_suspended_or_signed_out_comes_in_no_more(run, deed, says, again):
    with _store() as store:
        secret = sign_in(store, "helpful", "Ada", WORD).secret
    assert says is None or says in run("person", "a1", *deed)
    assert again is None or again in run("person", "a1", *deed, status=2)
    with _store() as store:
        assert (find_session(store, secret) is None) == (says is not None)


@pytest.mark.slow
def test_a_password_is_set_by_standard_input_and_a_usual_one_is_refused(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("password1\n"))
    assert "one of those that are tried first" in run("person", "Ada", "--password", status=2)
    monkeypatch.setattr("sys.stdin", io.StringIO("another horse in the rain\n"))
    assert "a1 of helpful has another password" in run("person", "Ada", "--password")
    with _store() as store:
        assert sign_in(store, "helpful", "Ada", "another horse in the rain")


def test_the_pay_sheet_is_for_nobody_elses_eyes(run):
    with _store() as store:
        _label(store, "a1")
    assert run("pay", "--out", "pay.csv") == "pay.csv: 3 people of helpful, 0.0 hours of active work\n"
    assert Path("pay.csv").stat().st_mode & 0o077 == 0
    sheet = list(csv.DictReader(Path("pay.csv").read_text("utf-8").splitlines()))
    assert (sheet[0]["name"], sheet[0]["labels"], sheet[0]["seconds"]) == ("Ada", "1", "90.0")
    assert "name a file in a folder that is there" in run("pay", "--out", "none/pay.csv", status=2)


def test_an_invite_of_a_panel_carries_its_code(run):
    secret = run("invite", "--panel", "--code", "C1X7", "--tasks", 1, "--uses", 20).strip()
    with _store() as store:
        person = join_project(store, secret, None, participant="5f0a").pseudonym
        _label(store, person)
        assert store.read(completion_code, "helpful", person) == "C1X7"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("words", [["--panel"], ["--code", "C1"], ["--tasks", 3]])
def test_what_belongs_together_is_refused_apart(run, words):
    assert "--panel and --code CODE belong together" in run("invite", *words, status=2)
