"""A stage that collects: answers are drawn once, people or a pool judge them, and their labels are rows."""

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect.adding import set_project
from plaudit.collect.export import read_snapshot
from plaudit.collect.progress import project_tasks
from plaudit.collect.store import open_store
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Ranking, Rating
from plaudit.lab.world import base_model_folder
from tests.collect.desks import pair_body
from tests.collect.stage.pipelines import PAIRS, rows_of, write_collecting
from tests.engine.toy import write_rows
from tests.methods.iterative.answering import let_answer
from tests.models.reward_zoo import saved
from tests.runs.pipeline.places import go, seal, states, well

CROWD = {**PAIRS, "judges": "crowd", "overlap": 2}
RANKS = {**PAIRS, "ask": "rank", "answers": 3, "judges": "experts"}
Row = dict[str, Any]


def events_of(store: Path) -> Counter[str]:
    with closing(open_store(store)) as opened:
        return Counter(event.kind for event in opened.events())


def tasks_of(store: Path, project: str) -> list[Row]:
    with closing(open_store(store)) as opened:
        return opened.read(project_tasks, project, limit=500)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collects")


@pytest.fixture(scope="module")
def config(place: Path) -> Path:
    rated = {"do": "collect", "data": "$pairs", "ask": "rate", "judges": "crowd"}
    by = {"choose": "d-optimal", "by": str(saved(place, base_model_folder())[0]), "random": 0.5}
    chosen = {"do": "collect", "data": "$pairs", "n": 4, "judges": "crowd", **by}
    return write_collecting(place, pairs=CROWD, ranks=RANKS, rated=rated, chosen=chosen)


@pytest.fixture(scope="module")
def out(place: Path, config: Path) -> Path:
    """A pipeline whose pools have answered; who changes it copies it."""
    well(config, place / "out")
    return place / "out"


def test_a_pool_answers_and_every_label_is_a_row(out):
    rows = read_records(out / "stages" / "pairs" / "rows.jsonl").records
    assert all(isinstance(row, Comparison) for row in rows)
    tasks = tasks_of(out / "labels.db", "pairs")
    assert len(tasks) == 8
    assert len(rows) >= 16
    per_task = Counter((row.prompt, row.chosen, row.rejected) for row in rows if isinstance(row, Comparison))
    assert len({row.annotator for row in rows if isinstance(row, Comparison)}) > 2
    assert max(per_task.values()) <= 4
    for task in tasks:
        body = task["body"]
        assert body["metadata"]["stage"] == "pairs"
        assert body["metadata"]["origin"].startswith("rows.jsonl:")
        first, second = (candidate["source"] for candidate in body["candidates"])
        assert first == second
        assert set(first) == {"model", "hash", "temperature", "max_tokens", "seed"}
        assert (first["model"], first["max_tokens"]) == ("base", 32)
        assert body["category"]


def test_chosen_pairs_are_distinct_and_rows_say_how_they_were_chosen(out):
    rows = read_records(out / "stages" / "chosen" / "rows.jsonl").records
    ways = [(row.method, row.propensity) for row in rows if isinstance(row, Comparison)]
    # Eight pairs, each of which stands in several rows.
    assert sorted(ways, key=str) == [("d-optimal", None)] * 2 + [("random", 2 / 8)] * 2
    assert "4 of 8 pairs chosen: 2 × random, 2 × d-optimal; 4 left out" in seal(out, "chosen")["summary"]


def test_ranks_and_ratings_are_rows_of_their_kind(out):
    ranks = read_records(out / "stages" / "ranks" / "rows.jsonl").records
    assert len(ranks) == 8
    for row in ranks:
        assert isinstance(row, Ranking)
        assert len(row.completions) == 3
    rated = read_records(out / "stages" / "rated" / "rows.jsonl").records
    assert len(rated) == 16
    assert all(isinstance(row, Rating) and 1 <= row.score <= 5 for row in rated)
    judged = {row.completion for row in rated if isinstance(row, Rating)}
    pairs = read_records(out / "stages" / "pairs" / "rows.jsonl").records
    assert judged == {
        text for row in pairs if isinstance(row, Comparison) for text in (row.chosen, row.rejected)
    }


def test_the_snapshot_says_which_labels_they_are(out):
    snapshot = read_snapshot(out / "stages" / "pairs" / "rows.jsonl")
    assert (snapshot.project, snapshot.store) == ("pairs", str(out / "labels.db"))
    assert seal(out, "pairs")["outputs"].keys() >= {"rows.jsonl", "rows.snapshot.json", "answers.jsonl"}
    (sentence, *_) = seal(out, "pairs")["summary"]
    assert sentence.startswith(f"{snapshot.rows} rows of {snapshot.rows} labels on 8 tasks of project pairs")
    command = seal(out, "pairs")["command"]
    assert f"plaudit collect export --store {out / 'labels.db'} --project pairs" in command
    assert f"--position {snapshot.seq}" in command


def test_a_trace_leads_to_the_position_of_the_log(config, out):
    told = " ".join(well(config, out, "--trace", "rated").out.split())
    for name in ("rated", "pairs"):
        snapshot = read_snapshot(out / "stages" / name / "rows.jsonl")
        assert f"labels of rows.jsonl: event {snapshot.seq} ({snapshot.link[:12]})" in told
        assert f"plaudit collect trace {out / 'stages' / name / 'rows.jsonl'} 1" in told


def test_it_is_kept_and_fresh_exports_again_without_drawing_or_asking(config, out, place):
    assert set(states(well(config, out)).values()) == {"kept"}
    rows = {name: rows_of(out, name) for name in ("pairs", "ranks", "rated")}
    before = events_of(out / "labels.db")
    for _ in range(2):
        again = well(config, out, "--fresh")
        assert set(states(again).values()) == {"ran"}
        assert {name: rows_of(out, name) for name in rows} == rows
        assert not (out / "stages" / "pairs" / "answers.jsonl").exists(), "nothing was drawn"
    assert events_of(out / "labels.db") == before
    well(config, out, "--from", "pairs")
    assert events_of(out / "labels.db") == before


@pytest.mark.slow
def test_more_tasks_keep_the_labels_that_there_are(place, out, tmp_path):
    own = Path(shutil.copytree(out, tmp_path / "out"))
    before = events_of(own / "labels.db")
    well(write_collecting(tmp_path, pairs={**CROWD, "n": 10}), own)
    after = events_of(own / "labels.db")
    assert after["task-added"] - before["task-added"] == 2
    assert 4 <= after["answered"] - before["answered"] <= 8


def test_a_greater_overlap_asks_for_more_labels_of_the_same_answers(out, tmp_path):
    own = Path(shutil.copytree(out, tmp_path / "out"))
    before = events_of(own / "labels.db")
    well(write_collecting(tmp_path, pairs={**CROWD, "overlap": 4}), own)
    after = events_of(own / "labels.db")
    assert after["task-added"] == before["task-added"]
    assert after["answered"] > before["answered"]
    assert not (own / "stages" / "pairs" / "answers.jsonl").exists(), "the same answers, not drawn anew"


@pytest.fixture(scope="module")
def asks(place: Path) -> Path:
    reward = {"do": "rows", "data": "$pairs"}
    lane = {"do": "rows", "data": "$prompts", "n": 5}
    more = {"do": "collect", "data": "$prompts-rated", "ask": "rate"}
    rated = {"do": "world-rows", "make": "ratings", "n": 6}
    return write_collecting(
        place, "asks", pairs={**PAIRS}, below=reward, lane=lane, **{"prompts-rated": rated}, more=more
    )


@pytest.mark.slow
def test_people_are_waited_for_and_every_waiting_stage_is_told(asks, tmp_path):
    out = tmp_path / "out"
    went = go(asks, out)
    assert went.code == 3
    store = out / "labels.db"
    assert f"stage pairs (collect): 8 of 8 labels are missing in project pairs of {store}" in went.words
    assert f"stage more (collect): 6 of 6 labels are missing in project more of {store}" in went.words
    assert went.words.count("Then give the same command again") == 2
    assert states(went)["lane"] == "ran"
    assert not (out / "stages" / "below").exists()
    dry = well(asks, out, "--dry-run").out
    assert "waits for people: 8 of 8 labels are missing in project pairs" in dry
    assert "waits: after pairs" in dry
    assert "labels: 8 tasks × 1 person = 8" in dry
    assert "time: 300 s each (assumed: nothing was measured) = 40.0 minutes of work" in dry
    drawn = (out / "stages" / "pairs" / "answers.jsonl").read_bytes()
    assert let_answer(store, "pairs", most=5) == 5
    assert "3 of 8 labels are missing" in go(asks, out).words
    let_answer(store, "pairs")
    went = go(asks, out)
    assert went.code == 3
    assert states(went)["below"] == "ran"
    assert "stage pairs" not in went.words
    assert (out / "stages" / "pairs" / "answers.jsonl").read_bytes() == drawn
    let_answer(store, "more", lambda shown: {"points": {"overall": [3]}})
    assert states(well(asks, out))["more"] == "ran"
    assert not [*out.rglob("waits.json")]


@pytest.mark.slow
def test_fresh_says_to_be_left_out_when_people_are_waited_for(asks, tmp_path):
    out = tmp_path / "out"
    assert "without --fresh, which begins anew" in go(asks, out, "--fresh").words
    let_answer(out / "labels.db", "pairs")
    well(asks, out, "--fresh", "--only", "prompts", "pairs")
    assert len(tasks_of(out / "labels.db", "pairs")) == 8


@pytest.mark.slow
def test_a_project_file_says_how_people_are_asked(place, tmp_path):
    (tmp_path / "guide.md").write_text("Be kind.\n", "utf-8")
    project = tmp_path / "kind.yaml"
    project.write_text(
        "project: kind\nask: rank\nquestion: Which is kindest?\nguidelines: guide.md\noverlap: 3\n", "utf-8"
    )
    stage = {**PAIRS, "n": 4, "project": str(project), "overlap": 1}
    out = tmp_path / "out"
    went = go(write_collecting(tmp_path, pairs=stage), out)
    assert "4 of 4 labels are missing in project kind" in went.words
    with closing(open_store(out / "labels.db")) as store:
        settings = store.project("kind")
    assert (settings.ask, settings.question, settings.overlap) == ("rank", "Which is kindest?", 1)
    assert settings.guidelines == "Be kind.\n"
    events = events_of(out / "labels.db")
    assert go(write_collecting(tmp_path, pairs=stage), out).code == 3
    assert events_of(out / "labels.db") == events, "the same settings are not set again"


def test_a_project_file_brings_its_items(place, tmp_path):
    write_rows(tmp_path / "gold.jsonl", [pair_body(n, gold={"better": 0}) for n in range(3)])
    project = tmp_path / "sums.yaml"
    project.write_text("project: sums\ngold: {rows: gold.jsonl, share: 0.2}\n", "utf-8")
    out = tmp_path / "out"
    config = write_collecting(tmp_path, pairs={**PAIRS, "project": str(project)})
    assert "8 of 8 labels are missing in project sums" in go(config, out).words
    assert go(config, out).code == 3
    assert Counter(task["purpose"] for task in tasks_of(out / "labels.db", "sums")) == {"work": 8, "gold": 3}


def test_what_its_owner_changed_stays(tmp_path):
    out, config = tmp_path / "out", write_collecting(tmp_path, pairs=PAIRS)
    out.mkdir()
    # A store that was there before the pipeline is used.
    with closing(open_store(out / "labels.db", create=True)):
        assert go(config, out).code == 3
    with closing(open_store(out / "labels.db")) as store:
        store.write(set_project, replace(store.project("pairs"), overlap=3, question="Why?"), actor="o1")
    assert "24 of 24 labels are missing" in go(config, out).words
    with closing(open_store(out / "labels.db")) as store:
        assert store.project("pairs").question == "Why?"


@pytest.mark.slow
def test_a_store_is_named_from_where_the_command_is_given(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = write_collecting(tmp_path, pairs={**PAIRS, "store": "own.db"})
    went = go(config, tmp_path / "out")
    assert f"in project pairs of {tmp_path / 'here' / 'own.db'}" in went.words
    monkeypatch.chdir(tmp_path)
    let_answer(tmp_path / "here" / "own.db", "pairs")
    well(tmp_path / "out" / "pipeline.yaml", tmp_path / "out")
    moved = tmp_path / "moved.db"
    shutil.move(tmp_path / "here" / "own.db", moved)
    again = well(write_collecting(tmp_path, pairs={**PAIRS, "store": str(moved)}), tmp_path / "out")
    assert states(again)["pairs"] == "kept", "labels are the same in whichever store they lie"


WRONG: list[tuple[Row, str]] = [
    ({"choose": "bald", "n": 2}, "choose bald needs a reward: name it with by"),
    ({"judges": "crwod"}, "did you mean crowd?"),
    ({"judges": ["people", "crowd"]}, "give one word of people"),
    ({"answers": 3}, "answers 3: pair takes 2"),
    ({"ask": "rank", "answers": 10}, "answers 10: rank takes 3 to 9"),
    ({"ask": "write"}, "ask: expected one of pair, rank, rate or none"),
    ({"n": 0}, "n must be at least 1"),
    ({"temperature": 0}, "temperature 0 draws the same answer every time"),
    ({"data": "$prompts"}, "say either a model, whose answers to prompts are judged, or data"),
    ({"model": None}, "say either a model, whose answers to prompts are judged, or data"),
    ({"prompts": None}, "give model and prompts together"),
    ({"model": None, "prompts": None, "data": "$prompts", "answers": 2}, "data has its own; leave one of"),
    ({"overlap": 0}, "overlap is 1 to 100"),
    ({"project": "nowhere.yaml"}, "project: nowhere.yaml: there is no such file"),
    ({"prompts": "$model"}, "prompts: $model gives a model, and this takes rows"),
    ({"ovelap": 2}, "unknown key ovelap; did you mean overlap?"),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_what_nobody_can_be_asked_is_refused_before_anything_runs(tmp_path, change, words):
    stage = {name: value for name, value in {**PAIRS, **change}.items() if value is not None}
    config = write_collecting(tmp_path, pairs=stage)
    went = go(config, tmp_path / "out")
    assert went.code == 2, went.err
    assert words in went.words
    assert not (tmp_path / "out" / "stages" / "prompts").exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({**PAIRS, "n": 3, "judges": "experts", "overlap": 5}, "nobody of experts (3 people) can give them"),
        ({"do": "collect", "data": "$prompts"}, "cannot become tasks of project pairs (it asks for pair)"),
        ({**PAIRS, "n": 2, "max-tokens": 1}, "no prompt has 2 answers that differ and came to an end"),
    ],
)
def test_what_shows_when_it_runs_is_a_fault_of_the_stage(tmp_path, stage, words):
    went = go(write_collecting(tmp_path, pairs=stage), tmp_path / "out")
    assert went.code == 2
    assert words in went.words


def test_without_the_packages_of_a_store_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("plaudit.collect.waiting.find_spec", lambda name: None)
    went = go(write_collecting(tmp_path, pairs=PAIRS), tmp_path / "out")
    assert went.code == 2
    assert 'pip install "plaudit[collect]"' in went.words
    assert not (tmp_path / "out" / "stages" / "prompts").exists()


@pytest.mark.slow
def test_a_draw_that_finds_too_few_answers_says_so(tmp_path):
    out = tmp_path / "out"
    well(write_collecting(tmp_path, pairs={**PAIRS, "n": 45, "judges": "experts"}), out)
    notes = seal(out, "pairs")["summary"]
    assert any("of 45 tasks: other prompts have too few answers that differ" in note for note in notes)
