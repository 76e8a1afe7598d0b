"""The report of whole projects: simulated crowds in a store, every kind, what is kept, and soft rows."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from subprocess import Popen
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import add_tasks, adjudicate, set_project
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.export import EmptyExportError, Filters, export, read_snapshot, rows_of_event, trace_row
from plaudit.collect.judging import Judged, record_judgements
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.progress import project_people, project_tasks
from plaudit.collect.project import Project
from plaudit.collect.quality import bias, skill
from plaudit.collect.quality.cache import Reports
from plaudit.collect.quality.gathering import gather_rows
from plaudit.collect.quality.report import quality
from plaudit.collect.quality.result import Quality, quality_to_dict
from plaudit.collect.store import LabelStore, open_store
from plaudit.data.edits import refuses
from plaudit.data.judging import Judging, Mark, Verdict
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.stats import wilson_interval
from plaudit.lab.world.annotators import agreement as expected_agreement, annotator_pool
from plaudit.lab.world.making import answer_tasks
from tests.collect.desks import MakeDesk, pair_body
from tests.collect.quality.crowds import (
    Clicker,
    body_of,
    first,
    in_turn,
    labelled_store,
    reader,
    rows_of_pool,
)
from tests.engine.toy_command import plaudit
from tests.methods.reward_model.rows import command, judged, make_files


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabelStore, list[str]]]:
    """Ten who read, one who clicks the first and one in turn, three on each of 120 tasks; some gold."""
    where = tmp_path_factory.mktemp("crowd") / "labels.db"
    readers = [reader(person) for person in annotator_pool("crowd")[:10]]
    gold = [
        {**body_of(task), "gold": {"better": 0}}
        for task in answer_tasks(20, answers=2, split="train", seed=5)
    ]
    store, people = labelled_store(
        where, [*readers, first, in_turn], tasks=120, overlap=3, most=3, more=gold, gold_share=0.2
    )
    with closing(store):
        yield store, people


@pytest.fixture(scope="module")
def found(crowd: tuple[LabelStore, list[str]]) -> Quality:
    return quality(crowd[0], "p")


@pytest.mark.slow
def test_the_crowd_agrees_and_those_who_do_not_read_are_proposed_with_their_habit(found, crowd):
    whole = found.agreement[0]
    assert (whole.part, whole.level, whole.units, whole.labels) == ("all", "ordinal", 120, 360)
    assert 0.2 < whole.alpha.low < whole.alpha.value < whole.alpha.high < 1
    *readers, clicker, alternating = found.annotators
    assert [card.name for card in found.annotators] == crowd[1]
    for spammer, habit in ((clicker, "first"), (alternating, "alternating")):
        assert spammer.habit == habit
        assert all(card.skill.value > spammer.skill.value for card in readers)
        assert all(card.seconds > spammer.seconds for card in readers)
    assert clicker.first.value == 1.0
    assert {"suspended", "watch"} >= {proposal.standing for proposal in found.proposals}
    named = {proposal.name for proposal in found.proposals}
    assert {clicker.name, alternating.name} <= named
    # Nothing happens by itself.
    assert {row["standing"] for row in crowd[0].read(project_people, "p") if row["role"] == "annotator"} == {
        "active"
    }


@pytest.mark.slow
def test_the_command_prints_tables_or_json(crowd, capsys):
    assert main(["collect", "quality", "--store", crowd[0].where]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("p asks for pair: ")
    assert "A reviewer decides; nothing is done by itself." in printed
    assert main(["collect", "quality", "--store", crowd[0].where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["people"] == 12


def wait_for(reports: Reports) -> dict[str, Any]:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        held = reports.get("p")
        assert not held.failure
        if held.is_fresh:
            assert held.report is not None
            return held.report
        time.sleep(0.1)
    raise AssertionError("no report came")


@pytest.mark.slow
@pytest.mark.cases(quick=("sqlite",))
def test_a_child_makes_the_report_and_the_next_label_makes_it_old(on_both):
    desk = on_both(overlap=2)
    ada, bob = desk.people(2)
    for person in (ada, bob, ada):
        desk.answer(person)
    reports = Reports(desk.store)
    try:
        before = reports.get("p")
        assert (before.report, before.is_fresh, before.computing) == (None, False, True)
        report = wait_for(reports)
        assert report == json.loads(json.dumps(quality_to_dict(quality(desk.store, "p"))))
        # Asked again, nothing is computed.
        assert not reports.get("p").computing
        desk.answer(bob)
        old = reports.get("p")
        assert old.report == report
        assert not old.is_fresh
        assert wait_for(reports)["labels"] == 4
    finally:
        reports.close()


@pytest.mark.slow
def test_a_server_that_asks_for_reports_loads_nothing_that_computes():
    heavy = "{'numpy', 'pandas', 'scipy', 'torch'}"
    words = f"import sys, plaudit.collect.quality.cache; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_child_that_fails_says_why_and_is_not_started_again(make_desk, monkeypatch, ends_first):
    desk = make_desk()
    monkeypatch.setattr("plaudit.collect.quality.cache.sys.executable", "/bin/false")
    if ends_first:
        # It has ended before it is told what to compute: nobody reads that pipe any more.
        monkeypatch.setattr("plaudit.collect.quality.cache.subprocess.Popen", ended)
    reports = Reports(desk.store)
    try:
        give_up = time.monotonic() + 60
        reports.get("p")
        while not (held := reports.get("p")).failure and time.monotonic() < give_up:
            time.sleep(0.05)
        assert held.failure.startswith("it ended with status 1; ")
        assert (held.computing, held.report) == (False, None)
    finally:
        reports.close()


def ended(*words: Any, **settings: Any) -> subprocess.Popen[bytes]:
    child = Popen(*words, **settings)
    child.wait()
    return child


def test_nobody_overlaps_is_said(make_desk):
    desk = make_desk(overlap=1)
    (ada,) = desk.people(1)
    for _ in range(3):
        desk.answer(ada)
    found = quality(desk.store, "p")
    assert found.agreement[0].alpha.reason == "undefined: nothing was labelled by two people"
    assert found.annotators[0].skill.value is None
    assert found.annotators[0].habit == ""
    assert found.proposals == ()


def test_an_empty_project_has_an_empty_report(make_desk):
    found = quality(make_desk().store, "p")
    assert (found.labels, found.agreement, found.annotators, found.consensus) == (0, (), (), None)


def labelled(
    make_desk: MakeDesk, ask: str, body: dict[str, Any], labels: list[Any], **settings: Any
) -> Quality:
    """Two people on one task of a kind."""
    desk = make_desk(tasks=[body], ask=ask, overlap=len(labels), **settings)
    for person, label in zip(desk.people(len(labels)), labels, strict=True):
        lease = desk.lease(person)
        given = label(lease.shown) if callable(label) else label
        desk.submit(person, lease, "k", given)
    return quality(desk.store, "p")


FRUITS = {"prompt": "A fruit?", "candidates": [{"text": text} for text in ("Pear.", "Fig.", "Car.")]}


def test_rankings_are_compared_by_pairs_whatever_the_order_shown(make_desk):
    def best_first(shown: dict[str, Any]) -> dict[str, Any]:
        return {"groups": [[shown["answers"].index(text)] for text in ("Pear.", "Fig.", "Car.")]}

    found = labelled(make_desk, "rank", FRUITS, [best_first, best_first])
    assert (found.agreement[0].units, found.agreement[0].percent.value) == (3, 1.0)
    assert found.consensus is not None
    assert found.consensus.pairs == 3


def test_ratings_are_compared_by_aspect_and_steps_by_step(make_desk, tmp_path):
    def rated(shown: dict[str, Any]) -> dict[str, Any]:
        points = [{"Pear.": 5, "Fig.": 4, "Car.": 1}[text] for text in shown["answers"]]
        return {"points": {"true": points, "kind": [3, 3, 3]}, "thumbs": [point > 2 for point in points]}

    found = labelled(make_desk, "rate", FRUITS, [rated, rated], aspects=("true", "kind"))
    rows = {row.name: row for row in found.agreement}
    assert rows["true"].alpha.value == pytest.approx(1.0)
    assert rows["kind"].alpha.reason.startswith("undefined: only one value")
    assert rows["thumbs"].level == "nominal"
    steps = {"prompt": "1 + 1 + 1?", "steps": ["1 + 1 = 2", "2 + 1 = 4"]}
    labels = [
        {"labels": ["right", "wrong"], "ended": "error"},
        {"labels": ["right", "right"], "ended": "solved"},
    ]
    found = labelled(partial(make_desk, tmp_path / "steps.db"), "steps", steps, labels)
    assert found.agreement[0].percent.value == 0.5


def test_an_aspect_has_as_many_values_as_its_levels_have_words(make_desk):
    anchors = (tuple("ABCDEFG"), ("Poor", "Good"))

    def rated(fig: int) -> Any:
        layout = {"Pear.": 1, "Fig.": fig, "Car.": 1}

        def points(shown: dict[str, Any]) -> dict[str, Any]:
            given = {"depth": {"Pear.": 7, "Fig.": 1, "Car.": 6}, "layout": layout}
            return {"points": {name: [own[text] for text in shown["answers"]] for name, own in given.items()}}

        return points

    found = labelled(
        make_desk, "rate", FRUITS, [rated(1), rated(2)], aspects=("depth", "layout"), anchors=anchors
    )
    rows = {row.name: row for row in found.agreement}
    assert rows["depth"].percent.value == 1.0
    assert rows["layout"].percent.value == pytest.approx(2 / 3)
    # Of two values in order one is as far from the other as of two without one: AC2 is AC1.
    assert rows["layout"].gwet.value == pytest.approx((2 / 3 - 5 / 18) / (1 - 5 / 18))


@pytest.mark.slow
def test_a_rating_of_some_answers_is_the_same_in_another_order(make_desk):
    desk = make_desk(tasks=0, ask="rate", repeat=0.5)
    (person,) = desk.people(1)
    bodies = [{**FRUITS, "prompt": f"A fruit, {number}?"} for number in range(80)]
    desk.add(bodies)
    while isinstance(lease := desk.store.write(next_task, "p", person), Lease):
        points = [{"Pear.": 5, "Fig.": None, "Car.": 1}[text] for text in lease.shown["answers"]]
        desk.submit(person, lease, f"k{lease.assignment}", {"points": {"overall": points}})
    (card,) = quality(desk.store, "p").annotators
    assert card.consistency.n > 0
    assert card.consistency.value == 1.0


def test_written_answers_have_no_agreement_and_the_report_says_so(make_desk):
    found = labelled(make_desk, "write", {"prompt": "Say hello."}, [{"answer": "Hello."}])
    assert found.agreement == ()
    assert found.notes == ("Tasks of the kind write are answered by each person alone, so nobody can agree.",)


def test_another_version_of_the_guidelines_has_a_row_of_its_own(make_desk):
    desk = make_desk(overlap=2, guidelines="Be kind.")
    ada, bob = desk.people(2)
    for person in (ada, bob):
        desk.answer(person)
    desk.store.write(set_project, Project(name="p", overlap=2, guidelines="Be kinder."), actor="o1")
    for person in (ada, bob):
        desk.answer(person)
    found = quality(desk.store, "p")
    assert [row.part for row in found.agreement] == ["all", "guidelines", "guidelines"]
    assert [row.labels for row in found.agreement] == [4, 2, 2]


def test_tasks_that_a_score_chose_are_no_sample_of_all(make_desk):
    bodies = [pair_body(0, method="random"), pair_body(1, method="d-optimal", probability=0.2)]
    desk = make_desk(tasks=bodies, overlap=2)
    for person in desk.people(2):
        for _ in bodies:
            desk.answer(person)
    found = quality(desk.store, "p")
    assert found.agreement[0].units == 1
    assert found.notes[0].startswith("Agreement leaves out 1 tasks that were chosen by a score")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pool", ["hurried", "length-lovers", "crowd"])
def test_what_is_set_of_a_pool_lies_in_the_intervals(pool):
    rows, tasks, people = rows_of_pool(pool, tasks=250)
    choices = gather_rows(Project(name="p"), rows).choices
    assert choices is not None
    fit = skill.fit_skill(choices.votes)
    others = skill.truth_without(choices.votes, fit)
    given = bias.preferences_of(choices.votes, choices.looks_UF, choices.prompt_U, others)
    shares = bias.shares_of_people(given)
    uneven = [task for task in tasks if abs(len(str(task.answers[0])) - len(str(task.answers[1]))) > 30]
    inside = list[bool]()
    for number, person in enumerate(people):
        first_share = expected_agreement("one", [person], tasks).first
        longer = expected_agreement("one", [person], uneven).longer
        for figure, expected in ((shares["first"][number], first_share), (shares["longer"][number], longer)):
            inside.append(figure.low <= expected <= figure.high)
    # Of 2 × 12 intervals of 95 % two or more miss once in three times, and four or more once in thirty.
    assert sum(inside) >= len(inside) - 3


@pytest.mark.slow
def test_pools_show_the_bias_that_they_were_given():
    def odds(pool: str) -> bias.Biases:
        rows, _, _ = rows_of_pool(pool, tasks=300, seed=1)
        choices = gather_rows(Project(name="p"), rows).choices
        assert choices is not None
        others = skill.truth_without(choices.votes, skill.fit_skill(choices.votes))
        return bias.odds_of(bias.preferences_of(choices.votes, choices.looks_UF, choices.prompt_U, others))

    hurried, experts, lovers = odds("hurried"), odds("experts"), odds("length-lovers")
    assert np.exp(np.mean([np.log(figure.value) for figure in hurried.place])) > 1.2
    assert sum(p < 0.05 for p in hurried.place_p) >= 2
    assert all(p > 0.05 for p in (*experts.place_p, *lovers.place_p))
    assert lovers.shared[0].odds.low > 1.2
    assert experts.shared[0].odds.low < 1 < experts.shared[0].odds.high


def test_refusals_are_known_by_how_they_begin():
    for words in (
        "I'm sorry, but I can't help with that.",
        "I cannot do this.",
        "Sorry, I won't write that.",
        "As an AI, I can't say.",
        "I am not able to answer.",
    ):
        assert refuses(words), words
    for words in ("Sorry to hear that. Rest!", "I can help.", "It cannot fly.", "You can't miss it."):
        assert not refuses(words), words


# Soft rows.


def test_soft_rows_are_one_a_pair_with_the_chance_and_lead_back_to_every_label(crowd, tmp_path):
    out = tmp_path / "soft.jsonl"
    snapshot = export(crowd[0], "p", out, soft=True)
    rows = [row for row in read_records(out).records if isinstance(row, Comparison)]
    assert len(rows) == snapshot.rows == 120
    assert all(row.probability is not None and 0.5 <= row.probability <= 1 for row in rows)
    assert len({row.probability for row in rows}) > 10
    assert snapshot.filters["soft"] is True
    assert [len(own) for own in snapshot.votes] == [3] * 120
    assert read_snapshot(out) == snapshot
    events = trace_row(crowd[0], out, 1)
    assert [event.kind for event in events].count("answered") == 3
    assert rows_of_event(out, snapshot.votes[4][1]) == [5]
    again = export(crowd[0], "p", tmp_path / "again.jsonl", soft=True)
    assert again.sha256 == snapshot.sha256


def test_a_vote_counts_by_who_gave_it():
    rows, _, people = rows_of_pool("experts", tasks=60)
    spam = [
        type(row)(**{**vars(row), "annotator": "spam", "label": json.dumps({"strength": -1})})
        for row in rows
        if row.annotator == people[0].name
    ]
    from plaudit.collect.quality.gathering import soft_rows

    alone, _, _ = soft_rows(rows, Project(name="p"))
    spammed, _, _ = soft_rows([*rows, *spam], Project(name="p"))
    chances = [[row.probability for row in side if isinstance(row, Comparison)] for side in (alone, spammed)]
    assert np.mean(np.abs(np.subtract(*chances))) < 0.05


def test_what_a_reviewer_decided_stays_decided(make_desk, tmp_path):
    desk = make_desk(tasks=1, overlap=2, most=2)
    ada, bob = desk.people(2)
    desk.answer(ada, -1)
    desk.answer(bob, -1)
    (task,) = desk.store.read(project_tasks, "p")
    desk.store.write(adjudicate, "p", task["id"], {"strength": -3}, reason="error", actor="r1", key="k")
    snapshot = export(desk.store, "p", tmp_path / "soft.jsonl", soft=True)
    (row,) = read_records(tmp_path / "soft.jsonl").records
    assert isinstance(row, Comparison)
    assert (row.chosen, row.probability, row.annotator) == ("It is 0.", None, "r1")
    assert snapshot.left_out == {"decided by a reviewer": 2}


def test_soft_rows_are_refused_where_there_are_none(make_desk, tmp_path):
    desk = make_desk(tasks=0, ask="write")
    out = tmp_path / "soft.jsonl"
    with pytest.raises(UserError, match="soft rows are of pairs and rankings"):
        export(desk.store, "p", out, soft=True)
    with pytest.raises(UserError, match="soft rows are of people"):
        export(desk.store, "p", out, filters=Filters(group="ai"), soft=True)
    empty = make_desk(tmp_path / "empty.db")
    with pytest.raises(EmptyExportError):
        export(empty.store, "p", out, soft=True)


@pytest.mark.slow
def test_a_reward_learns_from_soft_rows(tmp_path):
    """Two who err once in eight, one who clicks the first, on each of 80 pairs: the rule is learnt."""
    toy, _ = make_files(tmp_path, rows=16)
    pairs = judged("comparisons", 80)
    store = open_store(tmp_path / "labels.db", create=True)
    with closing(store):
        store.write(set_project, Project(name="p", overlap=3, most=3), actor="o1")
        bodies = [
            {"prompt": row["prompt"], "candidates": [{"text": row["chosen"]}, {"text": row["rejected"]}]}
            for row in pairs
        ]
        store.write(add_tasks, "p", bodies, actor="o1")
        secret = store.write(make_invite, "p", uses=3, actor="o1")
        people = [join_project(store, secret, f"person {number}").pseudonym for number in range(3)]
        for step in range(80):
            for number, person in enumerate(people):
                lease: Any = store.write(next_task, "p", person, f"n{step}")
                good = min(range(2), key=lambda place: -lease.shown["answers"][place].count("dogs"))
                wrong = number != 2 and (step * 7 + number * 3) % 8 == 0
                strength = -1 if number == 2 else (1 if good == 1 else -1) * (-1 if wrong else 1)
                store.write(submit_answer, "p", person, lease.assignment, f"s{step}", {"strength": strength})
        rows = tmp_path / "soft.jsonl"
        export(store, "p", rows, soft=True)
    done = plaudit(
        *command(toy.model, rows, tmp_path / "run", "--steps", 40, "--batch-size", 8, "--evaluate-every", 10)
    )
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["held_out/loss"] for line in lines if "held_out/loss" in line]
    assert losses[-1] < losses[0]
    assert [line["held_out/accuracy"] for line in lines if "held_out/accuracy" in line][-1] > 0.8


def digest(text: object) -> int:
    return crc32(json.dumps(text, sort_keys=True).encode())


def by_chance(right: float, seed: int, said: dict[frozenset[int], int]) -> Clicker:
    """Who prefers the answer with the lower digest that often, wherever it stands; all goes into ``said``."""
    rng = random.Random(seed)

    def click(shown: Mapping[str, Any], number: int) -> dict[str, Any]:
        answers = [digest(text) for text in shown["answers"]]
        place = answers.index(min(answers)) ^ (rng.random() > right)
        said[frozenset(answers)] = answers[place]
        return {"strength": 2 * place - 1}

    return click


def test_everybody_stands_beside_the_judge_and_an_outlier_is_proposed(tmp_path, capsys):
    rng, said = random.Random(7), [dict[frozenset[int], int]() for _ in range(4)]
    clickers = [by_chance(right, n, said[n]) for n, right in enumerate((0.95, 0.9, 0.9, 0.35))]
    store, people = labelled_store(tmp_path / "labels.db", clickers, tasks=80, overlap=4)
    with closing(store):
        assert {card.judge.value for card in quality(store, "p").annotators} == {None}
        judged, sides = list[Judged](), dict[frozenset[int], int]()
        for number, task in enumerate(answer_tasks(80, answers=2, split="test", seed=3)):
            answers = [digest(text_to_json(text)) for text in task.answers]
            place = answers.index(min(answers)) ^ (rng.random() > 0.85)
            # Of a tie nobody can be said to agree or not.
            ranks = (1, 1) if number % 10 == 0 else (1 + place, 2 - place)
            if number % 10:
                sides[frozenset(answers)] = answers[place]
            marks = tuple(Mark(rank=rank) for rank in ranks)
            judged.append(Judged(task=task, outcome=Verdict(marks=marks, annotator="small")))
        record_judgements(store, "p", Judging(judge="small", version="letter1"), judged)
        report = quality(store, "p")
    assert report.judges == ("small@letter1",)
    for card, own in zip(report.annotators, said, strict=True):
        hits = [own[pair] == side for pair, side in sides.items()]
        expected = wilson_interval(sum(hits) / len(hits), len(hits))
        assert (card.judge.value, card.judge.n) == (sum(hits) / len(hits), len(hits))
        # No wider than for so many independent labels, of prompts that hold one pair each.
        assert (card.judge.low, card.judge.high) == pytest.approx(expected, abs=0.01)
    (reasons,) = [proposal.reasons for proposal in report.proposals if proposal.name == people[3]]
    assert any(reason.startswith("agrees with the judge in ") and "is usual" in reason for reason in reasons)
    assert not any("the judge" in reason for proposal in report.proposals[1:] for reason in proposal.reasons)
    assert main(["collect", "quality", "--store", str(tmp_path / "labels.db")]) == 0
    printed = capsys.readouterr().out
    assert "like the judge" in printed
    assert "judges: small@letter1" in printed


def test_who_pastes_what_they_are_to_write_is_proposed(make_desk, tmp_path, capsys):
    desk = make_desk(tasks=[{"prompt": f"Greet {number}."} for number in range(12)], ask="write", overlap=2)
    shares = {"a1": [0.9, 1.0] * 6, "a2": [0.0, 0.4] * 6}
    for person, own in zip(desk.people(2), shares.values(), strict=True):
        for number, pasted in enumerate(own):
            desk.submit(person, desk.lease(person), f"k{number}", {"answer": f"Hi {person}"}, pasted=pasted)
    report = quality(desk.store, "p")
    for card in report.annotators:
        mean = sum(shares[card.name]) / 12
        assert card.pasted.value == pytest.approx(mean)
        assert (card.pasted.low, card.pasted.high) == pytest.approx(wilson_interval(mean, 12))
    (proposal,) = report.proposals
    assert (proposal.name, proposal.standing) == ("a1", "watch")
    assert proposal.reasons == ("pasted 95% of what 12 answers hold (69% to 99%)",)
    assert main(["collect", "quality", "--store", str(tmp_path / "labels.db")]) == 0
    assert "pasted" in capsys.readouterr().out
