"""Judges before people: the promise over many trials, and the table before all is asked."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import binom, binomtest

from benchmarks.routing import JUDGES, study
from plaudit.cli.main import main
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.export import trace_row
from plaudit.collect.log import Event
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project
from plaudit.collect.routing import Promise, keep_sure
from plaudit.collect.store import open_store
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.errors import UserError
from tests.collect.desks import Desk, pair_body
from tests.engine.toy import write_rows
from tests.methods.iterative.answering import let_answer
from tests.runs.pipeline.places import Went, go, seal

TRIALS, RISK = 1_000, 0.1


@pytest.mark.parametrize("name", JUDGES)
def test_the_promise_is_broken_in_no_more_trials_than_the_risk(name):
    laws = JUDGES[name]
    promise = Promise(agreement=0.8, risk=RISK, judges=len(laws))
    found = study(laws, promise, trials=TRIALS, pairs=600, sample=150, seed=1)
    # As many as this come of a chance of 10 % in one study of a thousand.
    assert found.broken <= binom.ppf(0.999, TRIALS, RISK)
    if name in ("useless", "confidently wrong"):
        assert found.nothing == TRIALS
    if name == "good":
        assert found.retained > 0.3
    if name.startswith("just below"):
        assert found.broken > 0.02 * TRIALS, "the test is no more careful than it has to be"
    # The same trials without a test break it, so they could.
    assert found.broken_by_cut > 0.2 * TRIALS


def test_what_is_kept_is_the_most_that_the_tests_in_order_let_through():
    rng = np.random.default_rng(3)
    sure = rng.uniform(0.5, 1, 500)
    agrees, labelled = rng.random(500) < sure, rng.random(500) < 0.5
    promise = Promise(agreement=0.8)
    kept = keep_sure(sure, agrees, labelled, promise)
    assert kept.threshold is not None
    tried = labelled & (sure >= kept.threshold)
    assert (kept.tested, kept.agreeing) == (tried.sum(), (tried & agrees).sum())
    assert binomtest(kept.agreeing, kept.tested, 0.8, alternative="greater").pvalue <= 0.1
    # One step more, of a twentieth of the pairs, fails; it is passed on to no other judge.
    step = np.sort(sure)[::-1][int(kept.retained_B.sum()) + 25 - 1]
    tried = labelled & (sure >= step)
    assert binomtest(int((tried & agrees).sum()), int(tried.sum()), 0.8, alternative="greater").pvalue > 0.1
    assert (sure[kept.passed_B] < step).all()
    assert (sure[~kept.passed_B] >= step).all()


def test_pairs_on_which_a_judge_prefers_nothing_pass_on():
    sure = np.where(np.arange(200) < 100, np.nan, 0.9)
    kept = keep_sure(sure, np.ones(200, bool), np.ones(200, bool), Promise(agreement=0.9))
    assert kept.retained_B.tolist() == [False] * 100 + [True] * 100
    assert kept.passed_B.tolist() == [True] * 100 + [False] * 100


@pytest.mark.parametrize(
    ("agreement", "risk", "words"),
    [
        (1.0, 0.1, "0.99 takes a sample of at least 230 labels"),
        (0.5, 0.1, "above 0.5 and below 1"),
        (0.9, 1.0, "expected a chance above 0 and below 1"),
    ],
)
def test_what_nothing_can_promise_is_refused(agreement, risk, words):
    with pytest.raises(UserError, match=words):
        Promise(agreement=agreement, risk=risk)


def test_a_sample_that_proves_nothing_says_how_many_would():
    with pytest.raises(UserError, match=r"100 labels cannot prove it.*at least 230"):
        Promise(agreement=0.99).refuse_small(100)
    Promise(agreement=0.99).refuse_small(230)


JUDGE = """\
import re

def sure(question):
    # Sure of three pairs in four and right about these; of the others right about some.
    number = int(re.search(r"What is (\\d+)", question)[1])
    first, second = question.split("Answer A:")[1].split("Answer B:")
    chance, is_right = (0.95, True) if number % 4 else (0.55, number % 8 != 0)
    better = "A" if ("I think" not in first) == is_right else "B"
    odds = {"A": chance, "B": 1 - chance} if better == "A" else {"A": 1 - chance, "B": chance}
    return {"text": better, "odds": odds}

def mute(question):
    first, second = question.split("Answer A:")[1].split("Answer B:")
    return {"text": "A", "odds": {"A": 1.0, "B": 0.0} if "I think" in second else {"A": 0.0, "B": 1.0}}
"""


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """A store with a random sample of 60 pairs, of 240."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "judges.py").write_text(JUDGE, "utf-8")
    bodies = [pair_body(n, method="random", metadata={"chance": 0.25}) for n in range(10, 70)]
    Desk(tmp_path / "labels.db", tasks=bodies).store.close()
    return tmp_path / "labels.db"


def _better(shown):
    return {"strength": 2 if "I think" in shown["answers"][0] else -2}


def _route(capsys, *words: str) -> tuple[int, str]:
    code = main(["collect", "route", *words])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_the_table_says_what_judges_would_keep_and_what_that_costs(store, capsys):
    judge = ("--judge", "call:judges.py:sure,price=1/2")
    assert "nobody has labelled in project p" in _route(capsys, *judge)[1]
    let_answer(store, "p", _better)
    code, said = _route(capsys, *judge, "--estimate")
    assert code == 0
    assert "p: 60 pairs that people labelled, 180 left to label sure: 120 questions" in said
    assert "wanted" not in said
    code, said = _route(capsys, *judge, "--pay", "36", "--seconds", "100", "--json", "table.json")
    assert code == 0, said
    table = json.loads(Path("table.json").read_text("utf-8"))
    assert (table["judges"], table["sample"]) == (["sure@letter-1"], 60)
    by_wanted = {row["wanted"]: row for row in table["rows"]}
    # It is sure of 45 of 60 and agrees on all; of the 15 others on 8: 53 of 60 prove 0.8, and not 0.85.
    assert {wanted: row["shares"] for wanted, row in by_wanted.items()} == {
        **{0.8: [1.0], 0.85: [0.75], 0.9: [0.75]},
        # 45 labels are the fewest that prove it: all 60 are tested first, and seven are wrong.
        0.95: [0.0],
    }
    assert binom.sf(52, 60, 0.8) < RISK < binom.sf(52, 60, 0.85)
    assert by_wanted[0.9]["agreement"] == pytest.approx([1.0, 0.025 ** (1 / 45), 1.0])
    assert [row["fewest"] for row in table["rows"]] == [11, 15, 22, 45]
    # A label costs 1, of 180 pairs.
    assert [row["people_money"] for row in table["rows"]] == pytest.approx([0, 45, 45, 180])
    asked = {row["money"] for row in table["rows"]}
    assert len(asked) == 1
    assert 0 < asked.pop() < 0.25
    assert "0.9 75% 45 100.0% (92.1%–100.0%)" in said


WRONG = [
    (["--judge", "call:judges.py:mute"], "mute@letter-1 gives sides and no chances"),
    (["--judge", "call:judges.py:sure", "--agreement", "1"], "0.99 takes a sample of at least 230 labels"),
    (["--judge", "crowd"], "there is no reward 'crowd'"),
    (["--judge", "call:judges.py:sure", "--project", "q"], "there is no project 'q'"),
]


def test_what_says_nothing_of_judges_is_refused(store, capsys):
    let_answer(store, "p", _better)
    for words, complaint in WRONG:
        code, said = _route(capsys, *words)
        assert code == 2
        assert complaint in said
    with closing(open_store(store)) as opened:
        opened.write(set_project, Project(name="ranks", ask="rank"), actor="o1")
        chosen = [pair_body(n, method="disagreement") for n in range(100, 120)]
        opened.write(set_project, Project(name="chosen"), actor="o1")
        opened.write(add_tasks, "chosen", chosen, actor="o1")
    let_answer(store, "chosen", _better)
    judge = ("--judge", "call:judges.py:sure", "--project")
    assert "judges before people judge pairs" in _route(capsys, *judge, "ranks")[1]
    code, said = _route(capsys, *judge, "chosen")
    assert code == 2
    assert "the 20 labelled tasks of project chosen do not say that they were drawn at random" in said
    assert _route(capsys, *judge, "chosen", "--random", "--tasks", "100")[0] == 0


STAGE = {"do": "collect", "data": "tasks.jsonl", "judges": ["call:judges.py:sure", "people"], "sample": 60}


def _run(agreement: float, *words: str, **more: object) -> Went:
    stage = {**STAGE, "agreement": agreement, **more}
    Path("routed.yaml").write_text(yaml.safe_dump({"name": "routed", "stages": [{"pairs": stage}]}), "utf-8")
    write_rows(Path("tasks.jsonl"), [pair_body(n) for n in range(10, 250)])
    return go(Path("routed.yaml"), Path("out"), *words)


def _tasks() -> dict[str, str]:
    with closing(open_store("out/labels.db")) as opened:
        return {task["id"]: task["state"] for task in opened.read(project_tasks, "pairs", limit=500)}


def _events(kind: str) -> list[Event]:
    with closing(open_store("out/labels.db")) as opened:
        return [event for event in opened.events() if event.kind == kind]


def test_a_stage_asks_people_a_sample_then_judges_then_people_the_rest(store):
    dry = _run(0.9, "--dry-run")
    assert "a random sample of 60 first" in dry.out
    went = _run(0.9)
    assert went.code == 3
    assert "60 of 60 labels are missing in project pairs" in went.words
    added = _events("task-added")
    assert len(added) == 60, "nobody is given what a judge may keep"
    assert all(e.body and e.body["method"] == "random" for e in added)
    assert {e.body["metadata"]["chance"] for e in added if e.body} == {0.25}
    let_answer(Path("out/labels.db"), "pairs", _better)
    went = _run(0.9)
    assert went.code == 3
    [route] = _events("routed")
    assert route.body is not None
    [judge] = route.body["judges"]
    sampled = {e.subject for e in added}
    numbers = {e.subject: int(e.body["prompt"].split()[2]) for e in _events("task-added") if e.body}
    is_sure = {own for own, number in numbers.items() if number % 4}
    assert judge == {
        **{"judge": "sure@letter-1", "asked": 240, "threshold": pytest.approx(0.95), "kept": 180},
        **dict.fromkeys(("tested", "agreeing"), len(is_sure & sampled)),
    }
    assert route.body["kept"].keys() == is_sure - sampled
    assert {own for own, state in _tasks().items() if state == "closed"} == is_sure - sampled
    left = 240 - len(is_sure - sampled) - 60
    assert f"{left} of {left + 60} labels are missing" in went.words
    assert let_answer(Path("out/labels.db"), "pairs", _better) == left
    assert _run(0.9).code == 0
    _check_rows(is_sure - sampled)
    # With more wanted nothing is kept: the same tasks are opened for people again.
    assert _run(0.97, sample=60, risk=0.2).code == 3
    assert "closed" not in _tasks().values()
    assert {e.subject for e in _events("task-opened")} == is_sure - sampled
    let_answer(Path("out/labels.db"), "pairs", _better)
    assert _run(0.97, sample=60, risk=0.2).code == 0
    rows = read_records("out/stages/pairs/rows.jsonl").records
    assert {row.group for row in rows if isinstance(row, Comparison)} == {"people"}
    assert main(["collect", "check", "--store", "out/labels.db", "--rebuild"]) == 0


def _check_rows(kept: set[str]) -> None:
    # Each pair is a row, of people or of the judge that keeps it, and the log leads to the threshold.
    rows = [row for row in read_records("out/stages/pairs/rows.jsonl").records if isinstance(row, Comparison)]
    judged = [row for row in rows if row.group == "ai"]
    assert (len(rows), len(judged)) == (240, len(kept))
    assert {row.annotator for row in judged} == {"sure@letter-1"}
    assert all(row.probability == pytest.approx(0.95) and "I think" not in str(row.chosen) for row in judged)
    assert {row.group for row in rows} == {"people", "ai"}
    assert main(["collect", "export", "--store", "out/labels.db", "--out", "people.jsonl"]) == 0
    people = read_records("people.jsonl").records
    assert len(people) == 240 - len(kept), "a judge's labels never count as people's"
    with closing(open_store("out/labels.db")) as opened:
        first = next(n for n, row in enumerate(rows, 1) if row.group == "ai")
        trail = trace_row(opened, Path("out/stages/pairs/rows.jsonl"), first)
    assert [e.kind for e in trail if e.kind in ("routed", "judged", "answered")] == ["routed", "judged"]
    summary = " ".join(seal(Path("out"), "pairs")["summary"])
    assert "sure@letter-1 was asked about 240 pairs and keeps 180" in summary
    assert "at least 90 % chance that what judges keep agrees with people on 90 % or more" in summary


def test_what_cannot_be_routed_is_refused_before_anything_runs(store):
    wrong: list[tuple[float | None, dict[str, object], str]] = [
        (1.0, {}, "0.99 takes a sample of at least 230 labels"),
        (0.99, {}, "60 labels cannot prove it, even if judges agree with all of them; take a sample of"),
        (0.9, {"judges": ["people"]}, "agreement and models go together"),
        (None, {}, "agreement and models go together"),
        (0.9, {"judges": ["call:judges.py:sure"]}, "give one word of people"),
        (0.9, {"judges": ["call:judges.py:sure"] * 2 + ["people"]}, "name each of them once"),
        (0.9, {"judges": ["call:judges.py:nobody", "people"]}, "nobody"),
        (0.9, {"ask": "rank"}, "models judge pairs before people do, and rank is asked"),
    ]
    for agreement, more, words in wrong:
        stage = {**STAGE, "agreement": agreement, **more}
        own = {name: value for name, value in stage.items() if value is not None}
        Path("routed.yaml").write_text(yaml.safe_dump({"name": "x", "stages": [{"pairs": own}]}), "utf-8")
        write_rows(Path("tasks.jsonl"), [pair_body(n) for n in range(10, 250)])
        went = go(Path("routed.yaml"), Path("out"))
        assert went.code == 2, words
        assert words in went.words
    assert not Path("out/labels.db").exists()


def test_a_sample_of_all_tasks_leaves_nothing_to_judges(store):
    went = _run(0.9, sample=240)
    assert went.code == 2
    assert "people would label all of them" in went.words
