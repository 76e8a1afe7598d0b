"""People compare in a label store: pairs are asked there, waited for, and what was said is learnt."""

import json
import secrets
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import adjudicate, close_task, set_project
from plaudit.collect.answering import own_history, revise_answer
from plaudit.collect.export import read_snapshot, rows_of_event, trace_row
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project
from plaudit.collect.store import open_store
from tests.engine.toy import Toy, write_rows
from tests.methods.iterative.answering import answer, fuller, join, let_answer, words_of
from tests.methods.iterative.rlhf_runs import Went, go, make_place, refused, well
from tests.methods.iterative.test_loop_runs import lines, text

PEOPLE = ("--comparisons", "people", "--reward-run.held-out", 0.2)
ONE = (*PEOPLE, "--loop.rounds", 1)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_place(tmp_path_factory.mktemp("people"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A loop as it stood at some moment, with a copy: a loop goes on only where it began."""

    went: Went
    copy: Path

    def back(self) -> Path:
        shutil.rmtree(self.went.out)
        return Path(shutil.copytree(self.copy, self.went.out))


def keep(went: Went, name: str) -> Kept:
    return Kept(went=went, copy=Path(shutil.copytree(went.out, went.out.with_name(name))))


@pytest.fixture(scope="module")
def waiting(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return keep(go(toy, tmp_path_factory.mktemp("waiting") / "run", *PEOPLE), "kept")


@pytest.fixture(scope="module")
def learnt(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    out = tmp_path_factory.mktemp("learnt") / "run"
    assert go(toy, out, *PEOPLE).code == 3
    let_answer(store_of(out), "rlhf")
    return keep(go(toy, out, *PEOPLE), "kept")


def store_of(out: Path) -> Path:
    return out / "labels.db"


def asked(out: Path) -> list[Row]:
    with closing(open_store(store_of(out))) as store:
        return store.read(project_tasks, "rlhf", limit=500)


def answers_of(task: Row) -> list[str]:
    return [words_of(candidate["text"]) for candidate in task["body"]["candidates"]]


def test_the_pairs_are_asked_in_the_store_and_waited_for(toy: Toy, waiting: Kept) -> None:
    went, out = waiting.went, waiting.back()
    assert went.code == 3
    store, tasks = store_of(out), asked(out)
    count = len(tasks)
    assert f"{count} of {count} labels are missing in project rlhf of {store}" in went.words
    assert f"plaudit collect serve --store {store}" in went.words
    assert f"plaudit collect invite --store {store} --project rlhf" in went.words
    assert "Then give the same command again" in went.words
    assert not went.part(1, "reward").exists()
    assert not went.part(1, "comparisons.jsonl").exists()
    for number, task in enumerate(tasks, start=1):
        body = task["body"]
        assert body["kind"] == "pair"
        assert body["metadata"] == {"round": 1, "pair": number, "origin": body["metadata"]["origin"]}
        assert body["metadata"]["origin"].startswith("prompts.jsonl:")
        sources = [candidate["source"] for candidate in body["candidates"]]
        assert sources == [{"model": str(toy.model), "round": 1}] * 2
        first, second = answers_of(task)
        assert first != second
        assert (task["state"], task["wanted"], task["done"]) == ("open", 1, 0)
    drawn = {answer["text"] for row in lines(went.part(1, "answers.jsonl")) for answer in row["answers"]}
    assert {words for task in tasks for words in answers_of(task)} <= drawn


def test_pairs_are_of_the_policy_and_of_each_source_in_turn(toy: Toy, tmp_path: Path) -> None:
    rows = [{**row, "completion": f" {number} times."} for number, row in enumerate(lines(toy.data))]
    prompts = write_rows(tmp_path / "written.jsonl", rows)
    how = (*ONE, "--prompts", prompts, "--loop.against", "policy", "written", "start")
    went = go(toy, tmp_path / "run", *how)
    assert went.code == 3, went.said
    drawn = [{answer["text"] for answer in row["answers"]} for row in lines(went.part(1, "answers.jsonl"))]
    began = lines(went.part(1, "answers-against-3.jsonl"))
    # In the first round the second source is that of the first prompt, and so on.
    assert [row["origin"] for row in began] == [f"written.jsonl:{n}" for n in range(2, len(rows) + 1, 3)]
    from_start = {row["origin"]: {answer["text"] for answer in row["answers"]} for row in began}
    for task in asked(tmp_path / "run"):
        number = int(task["body"]["metadata"]["origin"].partition(":")[2]) - 1
        source = ("written", "start", "policy")[number % 3]
        whose = {each["source"]["model"]: words_of(each["text"]) for each in task["body"]["candidates"]}
        assert whose.pop(str(toy.model)) in drawn[number]
        if source == "written":
            assert whose == {"written": rows[number]["completion"]}
        elif source == "start":
            assert whose["start"] in from_start[f"written.jsonl:{number + 1}"]
    files = {path: path.read_bytes() for path in went.part(1, "").glob("answers*.jsonl")}
    assert len(files) == 2
    assert go(toy, tmp_path / "run", *how).code == 3
    assert files == {path: path.read_bytes() for path in files}
    prompts.write_text('{"prompt": "the old cat?"}\n')
    bare = refused(toy, tmp_path / "bare", *how)
    assert "1 of 1 prompts have no written answer" in bare.words
    assert "loop.against 'nobody'" in refused(toy, tmp_path / "other", *ONE, "--loop.against", "nobody").words


def test_the_reward_of_the_round_before_chooses_the_pairs(toy: Toy, tmp_path: Path) -> None:
    how = (*PEOPLE, "--loop.choose", "d-optimal", "--loop.most", 10, "--loop.at-random", 0.3)
    out = tmp_path / "run"
    assert go(toy, out, *how).code == 3
    # There is no reward before the first round, so its pairs are drawn, all with the same chance.
    first = asked(out)
    drawn = {(task["body"]["method"], task["body"]["metadata"]["chance"]) for task in first}
    assert (len(first), {method for method, _ in drawn}, len(drawn)) == (10, {"random"}, 1)
    let_answer(store_of(out), "rlhf")
    assert go(toy, out, *how).code == 3
    ways = [task["body"]["method"] for task in asked(out)[10:]]
    assert (ways.count("random"), ways.count("d-optimal")) == (3, 7)
    chosen = (out / "rounds" / "2" / "chosen.json").read_bytes()
    let_answer(store_of(out), "rlhf")
    well(toy, out, *how)
    assert (out / "rounds" / "2" / "chosen.json").read_bytes() == chosen
    rows = lines(out / "rounds" / "2" / "comparisons.jsonl")
    assert sorted(row["method"] for row in rows) == sorted(ways)
    assert all((row["method"] == "random") == ("propensity" in row) for row in rows)


def test_asking_again_draws_nothing_and_adds_nothing(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out = waiting.back()
    ids = [task["id"] for task in asked(out)]
    again = go(toy, out, *PEOPLE)
    assert again.code == 3
    assert "drawing" not in again.said
    assert [task["id"] for task in asked(out)] == ids
    with closing(open_store(store_of(out))) as store:
        position = store.position()
    assert go(toy, out, *PEOPLE).code == 3
    with closing(open_store(store_of(out))) as store:
        assert store.position() == position, "a command that only waits writes nothing"


def test_what_is_missing_is_counted_down(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out = waiting.back()
    count = len(asked(out))
    assert let_answer(store_of(out), "rlhf", most=3) == 3
    assert f"{count - 3} of {count} labels are missing" in go(toy, out, *PEOPLE).words


def said_in_turn(count: int) -> Any:
    """Of every seventh pair nothing is said, the second is a tie, the first is clear; else the longer."""
    given = iter(range(1, count + 1))

    def say(shown: Row) -> Row:
        number = next(given)
        if number % 7 == 0:
            return {"none": True}
        first, second = (len(words_of(shown_answer).split()) for shown_answer in shown["answers"])
        return {"strength": {1: 3, 2: 0}.get(number, 1) * (-1 if first >= second else 1)}

    return say


def test_the_same_command_goes_on_with_what_people_have_said(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "run"
    went = go(toy, out, *PEOPLE)
    for n in (1, 2):
        assert went.code == 3
        assert went.words.count("labels are missing") == 1
        let_answer(store_of(out), "rlhf", said_in_turn(40))
        went = go(toy, out, *PEOPLE)
        with closing(open_store(store_of(out))) as store:
            labels = {event.subject: event.body for event in store.events() if event.kind == "answered"}
            leases = {event.subject: event.body for event in store.events() if event.kind == "leased"}
        tasks = {task["id"]: task for task in asked(out)}
        found = lines(went.part(n, "comparisons.jsonl"))
        told = [
            (tasks[leases[name]["task"]], leases[name]["order"], body["label"])  # type: ignore[index]
            for name, body in labels.items()
            if not body["label"].get("none")  # type: ignore[index]
            and tasks[leases[name]["task"]]["body"]["metadata"]["round"] == n  # type: ignore[index]
        ]
        told.sort(key=lambda one: one[0]["seq"])
        for (task, order, label), row in zip(told, found, strict=True):
            shown = [answers_of(task)[place] for place in order]
            first = label["strength"] <= 0 if label["strength"] else order[0] == 0
            assert text(row["chosen"]) == shown[0 if first else 1]
            assert text(row["rejected"]) == shown[1 if first else 0]
            assert row["prompt"] == task["body"]["prompt"]
            assert row["origin"] == task["body"]["metadata"]["origin"]
            assert row.get("probability") == (None if label["strength"] else 0.5)
            assert row["strength"] == abs(label["strength"])
            assert (row["annotator"], row["group"]) == (f"a{n}", "people")
    assert went.code == 0, went.said
    assert (out / "model" / "config.json").exists()
    pairs = [sum(task["body"]["metadata"]["round"] == n for task in tasks.values()) for n in (1, 2)]
    assert [one["unjudged"] for one in went.figures] == [count // 7 for count in pairs]
    assert all(one["ties"] == 1 for one in went.figures)


def files_of(out: Path, *rounds: int) -> Mapping[str, bytes]:
    return {
        f"{n}/{name}": (out / "rounds" / str(n) / name).read_bytes()
        for n in rounds
        for name in ("comparisons.jsonl", "comparisons.snapshot.json", "train.jsonl")
    }


@pytest.mark.slow
def test_labels_that_are_revised_after_their_round_change_nothing_of_it(toy, learnt, tmp_path):
    out = learnt.back()
    assert learnt.went.code == 3
    before = files_of(out, 1)
    with closing(open_store(store_of(out))) as store:
        for one in store.read(own_history, "rlhf", "a1", limit=100):
            other = {"strength": -one["label"]["strength"]}
            store.write(revise_answer, "rlhf", "a1", one["assignment"], secrets.token_hex(4), other)
    let_answer(store_of(out), "rlhf")
    went = go(toy, out, *PEOPLE)
    assert went.code == 0, went.said
    assert files_of(out, 1) == before
    first, second = (lines(went.part(n, "train.jsonl")) for n in (1, 2))
    assert [row for row in second if row in first] == first, "round 2 learns what round 1 has learnt"


@pytest.mark.slow
def test_labels_that_are_revised_before_their_round_is_read_are_learnt(toy, waiting, tmp_path):
    out = waiting.back()
    let_answer(store_of(out), "rlhf", lambda shown: {"strength": -1})
    with closing(open_store(store_of(out))) as store:
        for one in store.read(own_history, "rlhf", "a1", limit=100):
            store.write(
                revise_answer, "rlhf", "a1", one["assignment"], secrets.token_hex(4), fuller(one["shown"])
            )
    went = go(toy, out, *PEOPLE)
    for row in lines(went.part(1, "comparisons.jsonl")):
        assert len(text(row["chosen"]).split()) >= len(text(row["rejected"]).split())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["comparisons.jsonl", "comparisons.snapshot.json", "train.jsonl"])
def test_files_of_a_round_that_was_learnt_are_refused_when_they_were_edited(toy, learnt, tmp_path, name):
    out = learnt.back()
    path = out / "rounds" / "1" / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert f"{name}: it is not as round 1 has left it" in refused(toy, out, *PEOPLE).words


def test_answers_that_were_edited_while_they_waited_are_refused(toy, waiting, tmp_path):
    out = waiting.back()
    answers = out / "rounds" / "1" / "answers.jsonl"
    answers.write_bytes(answers.read_bytes().replace(b"w33", b"w34"))
    assert "answers.jsonl: it is not as round 1 has left it" in go(toy, out, *PEOPLE).words


def test_a_row_leads_to_its_click_and_back(learnt: Kept) -> None:
    rows = learnt.back() / "rounds" / "1" / "comparisons.jsonl"
    snapshot = read_snapshot(rows)
    assert (snapshot.project, snapshot.rows) == ("rlhf", len(lines(rows)))
    with closing(open_store(store_of(learnt.went.out))) as store:
        events = trace_row(store, rows, 3)
    assert [event.kind for event in events][:4] == ["project-set", "task-added", "leased", "answered"]
    assert events[1].body is not None
    assert events[1].body["metadata"]["origin"] == lines(rows)[2]["origin"]
    assert rows_of_event(rows, events[3].seq) == [3]


@pytest.mark.slow
def test_several_labels_of_a_pair_are_several_comparisons(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out = waiting.back()
    count = len(asked(out))
    with closing(open_store(store_of(out))) as store:
        store.write(set_project, replace(store.project("rlhf"), overlap=2, most=2), actor="o1")
    assert f"{2 * count} of {2 * count} labels are missing" in go(toy, out, *PEOPLE).words
    let_answer(store_of(out), "rlhf")
    assert f"{count} of {2 * count} labels are missing" in go(toy, out, *PEOPLE).words

    def shorter(shown: Row) -> Row:
        return {"strength": -fuller(shown)["strength"]}

    let_answer(store_of(out), "rlhf", shorter)
    states = {task["state"] for task in asked(out)}
    assert states == {"review"}, "where people stay divided a reviewer may decide, and nobody waits"
    went = go(toy, out, *PEOPLE)
    rows = lines(went.part(1, "comparisons.jsonl"))
    assert len(rows) == 2 * count
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        assert {one["annotator"], other["annotator"]} == {"a1", "a2"}
        assert one["prompt"] == other["prompt"]
        assert one.get("probability") == 0.5 or one["chosen"] == other["rejected"]
    assert "0 without a verdict" in went.words


@pytest.mark.slow
def test_a_reviewer_decides_and_closes_and_the_loop_goes_on(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out = waiting.back()
    first, second, *_ = asked(out)
    with closing(open_store(store_of(out))) as store:
        decided = {"reason": "error", "actor": "r1", "key": "k"}
        store.write(adjudicate, "rlhf", first["id"], {"strength": 3}, **decided)
        store.write(close_task, "rlhf", second["id"], reason="nobody can know", actor="o1")
        answer(store, "rlhf", join(store, "rlhf", "Ada"))
    went = go(toy, out, *ONE[:-1], 2)
    row, *others = lines(went.part(1, "comparisons.jsonl"))
    assert text(row["chosen"]) == answers_of(first)[1]
    assert (row["annotator"], row["strength"]) == ("r1", 3)
    assert second["body"]["prompt"] not in [other["prompt"] for other in others]
    assert "1 without a verdict" in went.words


@pytest.mark.slow
def test_a_pair_that_was_asked_before_is_not_asked_again(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    """Another loop of the same answers in the same store finds what people said, and asks nothing."""
    shared = tmp_path / "shared.db"
    where = (*ONE, "--loop.store", shared, "--loop.project", "both")
    assert go(toy, tmp_path / "one", *where).code == 3
    let_answer(shared, "both")
    well(toy, tmp_path / "one", *where)
    well(toy, tmp_path / "two", *where)
    rows = [lines(tmp_path / name / "rounds" / "1" / "comparisons.jsonl") for name in ("one", "two")]
    assert rows[0] == rows[1]
    assert not (tmp_path / "one" / "labels.db").exists()
    assert len(rows[0]) == len(asked(waiting.back()))


@pytest.mark.slow
def test_a_store_that_moved_is_named_by_the_same_command(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out = waiting.back()
    moved = tmp_path / "elsewhere.db"
    shutil.move(store_of(out), moved)
    let_answer(moved, "rlhf")
    went = go(toy, out, *PEOPLE, "--loop.store", moved)
    assert went.code == 3
    assert went.part(1, "policy").exists()
    assert f"of {moved}." in went.words


def test_when_nothing_can_be_said_of_any_pair_nothing_is_learnt(toy, waiting, tmp_path):
    out = waiting.back()
    let_answer(store_of(out), "rlhf", lambda shown: {"none": True})
    went = refused(toy, out, *PEOPLE)
    assert "round 1: nothing was said of any pair, so there is nothing to learn from" in went.words
    assert not went.part(1, "reward").exists()


def test_a_project_that_asks_for_something_else_is_refused_before_anything_is_drawn(toy, tmp_path):
    shared = tmp_path / "shared.db"
    with closing(open_store(shared, create=True)) as store:
        store.write(set_project, Project(name="rlhf", ask="rank"), actor="o1")
    went = refused(toy, tmp_path / "run", *PEOPLE, "--loop.store", shared)
    assert "project rlhf asks for rank, and pair is wanted here" in went.words
    assert not went.part(1, "answers.jsonl").exists()


def test_a_store_is_named_only_where_people_compare(toy: Toy, tmp_path: Path) -> None:
    went = refused(toy, tmp_path / "run", "--loop.store", tmp_path / "labels.db")
    assert "loop.store is where people compare" in went.words


def test_without_its_packages_it_says_what_to_install(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("plaudit.collect.waiting.find_spec", lambda name: None)
    went = refused(toy, tmp_path / "run", *PEOPLE)
    assert 'pip install "plaudit[collect]"' in went.words
    assert not went.part(1, "answers.jsonl").exists()


def test_figures_of_a_round_say_how_many_pairs_nobody_judged(learnt: Kept) -> None:
    out = learnt.back()
    (figures,) = learnt.went.figures
    assert figures["pairs"] == len([t for t in asked(out) if t["body"]["metadata"]["round"] == 1])
    assert figures["unjudged"] == 0
    marker = json.loads((out / "checkpoints" / "round-1-compared.json").read_text("utf-8"))
    assert "comparisons.snapshot.json" in marker["files"]


def old_file(out: Path, path: Path, filled: int) -> int:
    """The file that people filled in before there was a store, its first pairs filled; gives its rows."""
    rows = [
        {
            "pair": task["body"]["metadata"]["pair"],
            "origin": task["body"]["metadata"]["origin"],
            "prompt": task["body"]["prompt"],
            "first": answers_of(task)[0],
            "second": answers_of(task)[1],
            "better": "first" if number < filled else None,
            "annotator": "ada",
        }
        for number, task in enumerate(asked(out))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return len(rows)


def test_a_half_filled_file_of_before_is_taken_in(toy: Toy, waiting: Kept, tmp_path: Path) -> None:
    out, file = waiting.back(), tmp_path / "pairs.jsonl"
    count = old_file(out, file, 4)
    where = ["--store", str(store_of(out)), "--project", "rlhf"]
    assert main(["collect", "add", str(file), *where]) == 0
    assert f"{count - 4} of {count} labels are missing" in go(toy, out, *PEOPLE).words
