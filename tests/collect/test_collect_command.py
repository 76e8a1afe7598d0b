"""``plaudit collect`` from a file of pairs to a trained reward and back, and what it refuses."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.store import open_store
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import save_combination
from tests.engine.toy import make_toy, write_rows
from tests.methods.reward_model.rows import command, judged
from tests.rewards.scorers import scorer_folder

Told = tuple[int, str, str]
Run = Callable[..., Told]


def pairs(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"prompt": f"What is {n} + {n}?", "chosen": f"{2 * n}.", "rejected": f"{2 * n + 1}, I think."}
        for n in range(start, start + count)
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``plaudit collect`` in a folder of its own with a file of pairs and of settings."""
    monkeypatch.chdir(tmp_path)
    write_rows(Path("pairs.jsonl"), pairs(12))
    Path("p.yaml").write_text("project: helpful\noverlap: 1\n")

    def collect(*words: object) -> Told:
        status = main(["collect", *map(str, words)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return collect


def sound(run: Run, *words: object) -> str:
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    return out


def refused(run: Run, *words: object) -> str:
    """What a command says that cannot be done, without a line of standard output."""
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err.startswith("plaudit: ")
    return err


def answer_all(where: str = "labels.db", project: str = "helpful", most: int = 100) -> int:
    """One person who prefers what does not think; gives how many tasks there were."""
    with closing(open_store(where)) as store:
        person = join_project(store, store.write(make_invite, project, actor="o1"), "Ada").pseudonym
        for number in range(most):
            lease = store.write(next_task, project, person, f"n{number}")
            if not isinstance(lease, Lease):
                return number
            label = {"strength": 2 if "I think" in lease.shown["answers"][0] else -2}
            store.write(submit_answer, project, person, lease.assignment, f"s{number}", label, seconds=4)
        return most


@pytest.fixture
def labelled(run: Run) -> Run:
    """A project whose twelve pairs were labelled and exported to rows.jsonl."""
    sound(run, "project", "p.yaml")
    sound(run, "add", "pairs.jsonl")
    assert answer_all() == 12
    sound(run, "export", "--out", "rows.jsonl")
    return run


def test_from_a_file_of_pairs_to_rows_and_back(run):
    made = "labels.db: project helpful made: it asks for pair, 1 of each task\n"
    assert sound(run, "project", "p.yaml") == made
    assert "pairs.jsonl: 12 tasks added to helpful\n" in sound(run, "add", "pairs.jsonl")
    assert "0 tasks added to helpful, 12 were there already" in sound(run, "add", "pairs.jsonl")
    said = sound(run, "status", "--project", "helpful").splitlines()
    assert said[0] == "helpful asks for pair; labels.db at event 13"
    assert said[1].split() == ["tasks", "12", "open"]
    assert said[2].split() == ["labels", "0", "of", "12,", "12", "missing"]
    answer_all()
    (status,) = json.loads(sound(run, "status", "--json"))["projects"]
    assert (status["labels"], status["missing"], status["done"]) == (12, 0, True)
    said = sound(run, "export", "--out", "rows.jsonl")
    assert "rows.jsonl: 12 rows of 12 labels of helpful" in said
    assert "rows.snapshot.json" in said
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text("utf-8").splitlines()]
    assert {row["chosen"] for row in rows} == {row["chosen"] for row in pairs(12)}
    lines = sound(run, "trace", "rows.jsonl", 3).splitlines()
    assert lines[0].startswith("row 3 of rows.jsonl, exported from project helpful at event ")
    kinds = [line.split(": ", 1)[1].split()[0] for line in lines[1:]]
    assert kinds == ["set", "added", "was", "answered", "exported"]
    assert "a1: answered w" in lines[-2]
    assert "after 4 s" in lines[-2]
    event = int(lines[-2].split()[0])
    became = sound(run, "trace", "--event", event, "rows.jsonl")
    assert became.startswith(f"event {event} became row 3 of rows.jsonl:")
    assert "event 1 became no row" in sound(run, "trace", "--event", 1, "rows.jsonl")
    assert "sound: " in sound(run, "check")


def test_what_is_left_out_is_said_with_its_reason_and_its_option(run):
    Path("p.yaml").write_text("project: helpful\ngold: {rows: gold.jsonl, share: 0.5}\n")
    write_rows(Path("gold.jsonl"), pairs(8, start=50))
    assert "labels.db: 8 gold items added to helpful\n" in sound(run, "project", "p.yaml")
    sound(run, "add", "pairs.jsonl")
    answer_all()
    said = sound(run, "export", "--out", "rows.jsonl")
    items = json.loads(sound(run, "status", "--json", "--project", "helpful"))["items"]
    assert items > 0
    assert f"left out: {items} labels of an item whose answer is known (--items takes them in)" in said
    assert f"{12 + items} rows" in sound(run, "export", "--out", "all.jsonl", "--items")


@pytest.mark.slow
def test_the_same_position_and_a_restored_backup_give_the_same_bytes(labelled):
    said = sound(labelled, "backup", "copy.db")
    assert "copy.db: a copy of labels.db" in said
    # What happens later is not in the copy, and not at the position.
    sound(labelled, "add", write_rows(Path("more.jsonl"), pairs(3, start=20)))
    answer_all()
    sound(labelled, "backup", "restored.db", "--store", "copy.db")
    assert "sound: " in sound(labelled, "check", "--store", "restored.db")
    sound(labelled, "export", "--out", "restored.jsonl", "--store", "restored.db")
    assert Path("restored.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()
    seq = json.loads(Path("rows.snapshot.json").read_text())["seq"]
    sound(labelled, "export", "--out", "then.jsonl", "--position", seq)
    assert Path("then.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()
    sound(labelled, "export", "--out", "now.jsonl")
    assert Path("now.jsonl").read_bytes() != Path("rows.jsonl").read_bytes()
    assert "answered" in sound(labelled, "trace", "rows.jsonl", 1, "--store", "restored.db")
    assert "there is a file already" in refused(labelled, "backup", "copy.db")


@pytest.mark.slow
def test_everything_works_on_postgresql(run, cluster):
    where = cluster.database()
    for words in (["project", "p.yaml"], ["add", "pairs.jsonl"]):
        sound(run, *words, "--store", where)
    assert answer_all(where) == 12
    sound(run, "export", "--out", "rows.jsonl", "--store", where)
    assert "answered" in sound(run, "trace", "rows.jsonl", 1, "--store", where)
    sound(run, "check", "--rebuild", "--store", where)
    sound(run, "backup", "copy.db", "--store", where)
    sound(run, "export", "--out", "copy.jsonl", "--store", "copy.db")
    assert Path("copy.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()


def test_a_changed_project_says_what_changed(run):
    Path("g.md").write_text("Be kind.")
    sound(run, "project", "p.yaml")
    assert "nothing changed" in sound(run, "project", "p.yaml")
    Path("p.yaml").write_text("project: helpful\noverlap: 2\nguidelines: g.md\nflags: [rude]\n")
    said = sound(run, "project", "p.yaml")
    assert "project helpful: overlap: 1 → 2\n" in said
    assert "project helpful: guidelines: none → version " in said
    assert "flags: harmful, false, unfinished, private → rude" in said
    Path("p.yaml").write_text("project: helpful\nask: rank\n")
    assert "asks for pair, and so do its tasks" in refused(run, "project", "p.yaml")


@pytest.mark.parametrize(
    ("number", "rows", "says"),
    [
        (25, 3, "Nobody can qualify yet: 25 qualifying items are asked for, and 3 are there"),
        (3, 3, "Nobody can qualify: even 3 right ones of 3 say only 0.44 for certain, and the floor is 0.65"),
    ],
)
def test_a_qualification_that_nobody_can_pass_is_said(run, number, rows, says):
    write_rows(Path("first.jsonl"), pairs(rows))
    Path("p.yaml").write_text(f"project: helpful\nqualify: {{rows: first.jsonl, n: {number}}}\n")
    assert says in sound(run, "project", "p.yaml")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("overlapp: 2", "did you mean overlap?"),
        ("gold: {rows: gold.jsonl}", "gold.jsonl:3: field probability: expected one answer that is better"),
    ],
)
def test_wrong_settings_and_known_answers_leave_no_project_behind(run, settings, says):
    write_rows(Path("gold.jsonl"), [*pairs(2), {**pairs(1)[0], "probability": 0.5}])
    Path("p.yaml").write_text(f"project: helpful\n{settings}\n")
    assert says in refused(run, "project", "p.yaml")
    assert not Path("labels.db").exists()


def test_a_file_of_people_is_taken_in_once_with_what_was_filled_in(run):
    sound(run, "project", "p.yaml")
    asked = [
        {"pair": n, "origin": "q", "prompt": f"Q{n}?", "first": "Yes.", "second": "No."} for n in (1, 2, 3)
    ]
    better = ({"better": "first", "annotator": "Ada"}, {"better": "skip"}, {"better": None})
    write_rows(Path("people.jsonl"), [{**row, **said} for row, said in zip(asked, better, strict=True)])
    said = sound(run, "add", "people.jsonl")
    assert "people.jsonl: read as pairs that people compare, 2 of 3 filled in" in said
    assert "people.jsonl: 2 answers of a1, a2 taken in\n" in said
    assert "0 answers of a1, a2 taken in, 2 were taken in before" in sound(run, "add", "people.jsonl")
    said = sound(run, "export", "--out", "rows.jsonl")
    assert "left out: 1 labels that say nothing of the answers" in said
    assert "had it in people.jsonl:1" in sound(run, "trace", "rows.jsonl", 1)
    assert "sound: " in sound(run, "check")


def test_an_invite_is_printed_once_with_how_to_use_it(run):
    sound(run, "project", "p.yaml")
    status, out, how = run("invite", "--uses", 2, "--days", 3)
    secret = out.removesuffix("\n")
    # The secret alone on standard output: invite=$(plaudit collect invite).
    assert (status, secret[:2], len(secret.split())) == (0, "i_", 1)
    assert "It lets in as annotator of helpful, 2 times, for 3 days. Nothing shows it again." in how
    assert secret not in how
    with closing(open_store("labels.db")) as store:
        assert [join_project(store, secret, name).role for name in ("Ada", "Ben")] == ["annotator"] * 2
    assert "days: expected a number above 0" in refused(run, "invite", "--days", "nan")


TURNS = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}


@pytest.fixture
def ensemble(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A project, twelve pairs in the words of two tiny rewards, and both as ``both``."""
    for seed, name in enumerate("ab"):
        scorer_folder(tmp_path / f"made-{name}", seed=seed).rename(tmp_path / name)
    save_combination(tmp_path / "both", [tmp_path / "a", tmp_path / "b"], Combination(how="mean"))
    rows = [{"prompt": f"w{n} w{n + 1}", "chosen": f"w{n + 9}", "rejected": "w8 " * n} for n in range(10, 22)]
    turns = [{side: [{"role": TURNS[side], "content": row[side]}] for side in row} for row in rows]
    write_rows(Path("asked.jsonl"), turns)
    capsys.readouterr()
    sound(run, "project", "p.yaml")
    return run


def test_chosen_pairs_say_how_they_were_chosen_and_figures_are_of_the_random_ones(ensemble, capsys):
    choose = ("add", "asked.jsonl", "--most", 4, "--random", 0.5, "--choose")
    said = sound(ensemble, *choose, "d-optimal", "--by", "a")
    assert "4 of 12 pairs chosen: 2 × random, 2 × d-optimal; 8 left out" in said
    assert "4 tasks added to helpful" in said
    assert answer_all() == 4
    # What is there is not asked again, and its labels count.
    said = sound(ensemble, *choose, "disagreement", "--by", "both")
    assert "4 of 12 pairs are in helpful already\n4 of 8 pairs chosen: 2 × random, 2 × dis" in said
    sound(ensemble, "export", "--out", "labels.jsonl")
    rows = [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()]
    methods = {(row["method"], row.get("propensity")) for row in rows}
    assert methods == {("random", 2 / 12), ("d-optimal", None)}
    measure = ("--bootstrap", "2", "--device", "cpu")
    left_out = "2 of 4 rows left out, which a score chose (d-optimal)"
    assert main(["eval", "reward", "a", "--data", "labels.jsonl", *measure]) == 0
    assert left_out in " ".join(capsys.readouterr().out.split())
    write_rows(Path("chosen.jsonl"), [row for row in rows if row["method"] != "random"])
    for words in (["eval", "reward", "a", "--data"], ["judge", "--by", "a", "--card"]):
        assert main([*words, "chosen.jsonl", *measure]) == 2
        assert "this label was chosen (d-optimal) and carries no chance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--choose", "d-optimal", "--most", 2], "choose d-optimal needs a reward: name it with by"),
        (["--choose", "random", "--most", 2, "--by", "length"], "choose random asks no reward"),
        (["--choose", "bald", "--by", "a"], "choose bald: say how many"),
        (["--choose", "best", "--by", "a", "--most", 2], "choose best: expected one of random, d-optimal"),
        (["--choose", "bald", "--by", "length:1-9", "--most", 2], "train it with --ensemble.members 4"),
        (["--choose", "d-optimal", "--by", "length:1-9", "--most", 2], "needs a reward with a head"),
        (["--choose", "random", "--most", 2, "--random", 2], "random must be from 0 to 1"),
        (["--most", 2], "--most says how pairs are chosen"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_in_words(run, words, says):
    sound(run, "project", "p.yaml")
    assert says in refused(run, "add", "pairs.jsonl", *words)


# Refusals.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status"], "labels.db: there is no such store; make one with `plaudit collect project`"),
        (["status", "--store", ""], "--store: expected a file or an address"),
        (["status", "p.yaml"], "p.yaml: the file is no store of plaudit"),
        (["status", "--store", "mysql://x/y"], "mysql://x/y: "),
        (["project", "none.yaml"], "none.yaml"),
        (["add"], "the following arguments are required: ROWS"),
        (["add", "pairs.jsonl", "--gold", "--qualify"], "--qualify: not allowed with argument --gold"),
        (["invite", "--role", "oner"], "there is no 'oner'; did you mean owner?"),
        (["sttus"], "collect sttus: there is no such file and no such verb; did you mean status?"),
        (["export"], "--out"),
        (["export", "--out", "rows.xml"], "rows.xml"),
        (["trace", "rows.jsonl"], "say either a row (ROWS N), for its events, or --event SEQ"),
        (["trace", "rows.jsonl", "1", "--event", "1"], "say either a row"),
        (["trace", "pairs.jsonl", "1"], "there is no pairs.snapshot.json, so these rows were not exported"),
        (["trace", "rows.jsonl", "0"], "expected 1 or more, got 0"),
        (["serve", "--host", "0.0.0.0"], "--host 0.0.0.0: other machines could read tokens and answers"),
        (["serve", "--host", "0.0.0.0", "--behind", "http://x"], "--behind http://x: expected https://…"),
        (["serve", "--behind", "https://"], "--behind https://: expected the address of a proxy"),
        (["serve", "--port", "70000"], "--port 70000: expected 0 to 65535"),
    ],
)
def test_what_cannot_be_is_refused_in_words(run, words, says):
    assert says in refused(run, *words)


def test_a_store_of_several_projects_asks_which_and_status_tells_of_all(run):
    open_store("labels.db", create=True).close()
    assert "there is no project in it; make one" in refused(run, "status")
    sound(run, "project", "p.yaml")
    Path("q.yaml").write_text("project: harmless\n")
    sound(run, "project", "q.yaml")
    for words in (["add", "pairs.jsonl"], ["invite"], ["export", "--out", "rows.jsonl"]):
        assert "it has several projects (harmless, helpful): say --project NAME" in refused(run, *words)
    said = refused(run, "status", "--project", "helpfull")
    assert "there is no project 'helpfull'; did you mean helpful?" in said
    sound(run, "add", "pairs.jsonl", "--project", "helpful")
    answer_all(most=5)
    Path("q.yaml").write_text("project: words\nask: write\n")
    sound(run, "project", "q.yaml")
    # By name, all or one; as a table and as JSON.
    table = [
        ["project", "kind", "tasks", "done", "labels", "people", "state", "to", "review"],
        ["harmless", "pair", "0/0", "0/0", "0", "empty", "0"],
        ["helpful", "pair", "5/12", "5/12", "1", "open", "0"],
        ["words", "write", "0/0", "0/0", "0", "empty", "0"],
    ]
    assert [line.split() for line in sound(run, "status", "labels.db").splitlines()] == table
    whole = json.loads(sound(run, "status", "--json"))
    assert (whole["store"], len(whole["projects"])) == ("labels.db", 3)
    assert json.loads(sound(run, "status", "--json", "--project", "helpful")) == whole["projects"][1]
    said = refused(run, "export", "--out", "rows.jsonl", "--project", "harmless")
    assert "labels.db: nothing of project harmless to export (there are no labels yet)" in said


def test_bad_rows_add_nothing_not_even_of_the_other_files(run):
    sound(run, "project", "p.yaml")
    for line, says in (
        (b'{"prompt": "a", "candidates": [{"text": "b"}]}', "field candidates: expected 2"),
        (b'{"prompt": "a", "chosen": "b\xff", "rejected": "c"}', "expected text in UTF-8"),
    ):
        Path("bad.jsonl").write_bytes(line + b"\n")
        assert f"bad.jsonl:1: {says}" in refused(run, "add", "pairs.jsonl", "bad.jsonl")
    assert " 0/0 " in sound(run, "status")


def test_what_was_changed_after_its_export_is_not_traced(labelled):
    assert "there is no row 13; there are 1 to 12" in refused(labelled, "trace", "rows.jsonl", 13)
    assert "there is no event 9999" in refused(labelled, "trace", "rows.jsonl", "--event", 9999)
    Path("q.yaml").write_text("project: other\n")
    sound(labelled, "project", "q.yaml", "--store", "other.db")
    for words in ([1], ["--event", 1]):
        said = refused(labelled, "trace", "rows.jsonl", *words, "--store", "other.db")
        assert "is not the one that rows.jsonl was exported at; name the store" in said
        assert "that it came from (labels.db)" in said
    Path("rows.jsonl").write_text(Path("rows.jsonl").read_text("utf-8").replace("2.", "3."))
    for words in ([1], ["--event", 1]):
        assert "changed after they were exported" in refused(labelled, "trace", "rows.jsonl", *words)


@pytest.mark.slow
def test_a_damaged_store_is_told_fault_by_fault(labelled):
    with sqlite3.connect("labels.db") as connection:
        connection.execute("UPDATE task SET done = 7 WHERE seq = 2")
    connection.close()
    assert "labels.db: the store is damaged:\n  table task: " in refused(labelled, "check")
    said = sound(labelled, "check", "--rebuild")
    assert "labels.db: all tables made anew from the log\nlabels.db: sound: " in said
    expected = said.split()[-1]
    assert "sound: " in sound(labelled, "check", "--expect", expected)
    assert "expected SEQUENCE:LINK" in refused(labelled, "check", "--expect", "15")
    sound(labelled, "backup", "cut.db")
    with sqlite3.connect("cut.db") as connection:
        connection.execute("DELETE FROM log WHERE seq > 15")
    connection.close()
    assert "sound: 15 events" in sound(labelled, "check", "--rebuild", "--store", "cut.db")
    assert "the log was cut" in refused(labelled, "check", "--store", "cut.db", "--expect", expected)
    with sqlite3.connect("labels.db") as connection:
        connection.execute("UPDATE log SET actor = 'a9' WHERE seq IN (15, 17)")
    connection.close()
    said = refused(labelled, "check")
    assert "  event 15: its link is not that of what it says, so it was altered\n" in said
    assert "  event 17: " in said
    # Tables of an altered log would only look sound.
    assert "event 15: " in refused(labelled, "check", "--rebuild")
    assert "the store is damaged, so it was not copied" in refused(labelled, "backup", "copy.db")
    assert not Path("copy.db").exists()


# Other processes.


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_help_imports_nothing_heavy():
    heavy = ("torch", "sqlalchemy", "starlette", "uvicorn", "numpy", "yaml", "rich")
    done = python(
        "import contextlib, sys\nfrom plaudit.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['collect', 'add', '--help'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("package", "verb"), [("sqlalchemy", "status"), ("uvicorn", "serve"), ("starlette", "serve")]
)
def test_a_missing_extra_is_named(package, verb):
    done = python(
        f"import sys\nsys.modules[{package!r}] = None\nfrom plaudit.cli.main import main\n"
        f"sys.exit(main(['collect', {verb!r}]))"
    )
    assert done.returncode == 2
    assert f'plaudit collect {verb} needs {package}: pip install "plaudit[collect]"' in done.stderr


@pytest.fixture
def served(run: Run) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server of the command, and its process."""
    sound(run, "project", "p.yaml")
    sound(run, "add", "pairs.jsonl")
    command = [sys.executable, "-m", "plaudit", "collect", "serve"]
    words = [*command, "--port", "0", "--behind", "https://l.example"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("labels.db: serving helpful at http://127.0.0.1:"), line
            assert line.endswith(", for people https://l.example\n")
            yield line.split(" at ")[1].split(",")[0], process
        finally:
            process.kill()


def send(url: str, content: dict[str, Any] | None = None, token: str = "") -> dict[str, Any]:
    data = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=20) as reply:
        return json.load(reply)


@pytest.mark.slow
def test_people_answer_at_the_address_that_serve_prints(run, served):
    url, process = served
    secret = run("invite")[1].strip()
    token = send(f"{url}/api/v1/join", {"invite": secret, "name": "Ada"})["token"]
    task = send(f"{url}/api/v1/next", {}, token)["task"]
    answer = {"assignment": task["assignment"], "key": "k", "label": {"strength": 1}}
    assert send(f"{url}/api/v1/submit", answer, token)["receipt"] > 0
    assert json.loads(sound(run, "status", "--json"))["projects"][0]["labels"] == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "sound: " in sound(run, "check")


# What is trained on an export.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy(tmp_path_factory.mktemp("toy")).model


@pytest.fixture
def exported(run: Run) -> Run:
    """Comparisons that a toy can learn, labelled as their rows say, in rows.jsonl."""
    sound(run, "project", "p.yaml")
    rows = [row for row in judged("comparisons", 24) if "probability" not in row]
    sound(run, "add", write_rows(Path("judged.jsonl"), rows))
    answer_all()
    sound(run, "export", "--out", "rows.jsonl")
    return run


def train(model: Path, out: str, *more: object) -> int:
    return main([*map(str, command(model, Path("rows.jsonl"), Path(out), "--steps", 2, *more))])


@pytest.mark.slow
def test_a_trained_reward_leads_back_to_the_log(exported, model, capsys):
    assert train(model, "reward") == 0, capsys.readouterr().err
    capsys.readouterr()
    lineage = json.loads(Path("reward/lineage.json").read_text("utf-8"))
    snapshot = json.loads(Path("rows.snapshot.json").read_text("utf-8"))
    names = ("store", "project", "seq", "link", "sha256")
    assert lineage["snapshots"] == {"rows.jsonl": {name: snapshot[name] for name in names}}
    assert lineage["data"]["rows.jsonl"] == snapshot["sha256"]
    # The same bytes, exported from a copy at another place, are the same data for a run that goes on.
    sound(exported, "backup", "copy.db")
    sound(exported, "export", "--out", "rows.jsonl", "--store", "copy.db")
    assert train(model, "reward") == 0, capsys.readouterr().err
    # Rows of another origin name no store.
    os.rename("rows.snapshot.json", "elsewhere.json")
    assert train(model, "plain") == 0, capsys.readouterr().err
    assert json.loads(Path("plain/lineage.json").read_text("utf-8"))["snapshots"] == {}


def test_rows_that_were_changed_after_their_export_are_told(exported, model, capsys):
    del exported
    lines = Path("rows.jsonl").read_text("utf-8").splitlines(keepends=True)
    Path("rows.jsonl").write_text("".join(lines[1:]), "utf-8")
    assert train(model, "reward") == 0, capsys.readouterr().err
    said = "".join(capsys.readouterr())
    assert "rows.jsonl: changed after it was exported from labels.db (project helpful, position" in said
    lineage = json.loads(Path("reward/lineage.json").read_text("utf-8"))
    assert lineage["data"]["rows.jsonl"] != lineage["snapshots"]["rows.jsonl"]["sha256"]
    Path("rows.snapshot.json").write_text("{}")
    assert train(model, "other") == 2
    assert "rows.snapshot.json: not a snapshot that plaudit wrote" in capsys.readouterr().err
    shutil.rmtree("other")
