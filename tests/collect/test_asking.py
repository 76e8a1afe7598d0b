"""People as a judge: what was asked before is found again, and nobody waits for what is settled."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import adjudicate, close_task
from plaudit.collect.asking import People, task_body
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project
from plaudit.collect.waiting import Wait, waiting_error
from plaudit.data.judging import Task, first_probability, swapped
from plaudit.errors import UserError, WaitingError
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from tests.collect.desks import Desk, MakeDesk
from tests.evaluation.policies.tiny import policy


def pair(number: int) -> Task:
    return Task(
        prompt=f"What is {number} + {number}?",
        answers=(f"It is {2 * number}.", f"It is {2 * number + 1}, I think."),
        ended=(True, True),
    )


PAIRS = [pair(number) for number in range(4)]


def people_of(desk: Desk) -> People:
    return People(store=desk.store, project="p")


def missing(people: People, ids: tuple[str, ...]) -> int:
    wait = people.wait(ids)
    return 0 if wait is None else wait.missing


def test_what_was_asked_before_is_found_in_whichever_order(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0)
    people = people_of(desk)
    first = people.ask([task_body(task, round=1) for task in PAIRS])
    assert len({*first}) == 4
    position = desk.store.position()
    again = people.ask([task_body(swapped(task), source={"model": "b"}, round=2) for task in PAIRS[::-1]])
    assert again == first[::-1]
    assert desk.store.position() == position
    assert people.ask([task_body(pair(9)), task_body(PAIRS[0])])[1] == first[0]


def test_a_task_of_another_prompt_or_answer_is_another(on_both: MakeDesk) -> None:
    people = people_of(on_both(tasks=0))
    bodies = [task_body(PAIRS[0]), task_body(PAIRS[0]), task_body(PAIRS[1])]
    bodies[1] = {**bodies[1], "prompt": "What is 0 and 0?"}
    assert len({*people.ask(bodies)}) == 3


def test_tasks_whose_answer_is_known_are_not_what_was_asked(on_both: MakeDesk) -> None:
    desk = on_both(tasks=[{**task_body(PAIRS[0]), "gold": {"better": 0}}])
    (own,) = people_of(desk).ask([task_body(PAIRS[0])])
    assert [task["purpose"] for task in desk.store.read(project_tasks, "p") if task["id"] == own] == ["work"]


def test_what_was_drawn_under_a_name_is_remembered(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0)
    people = people_of(desk)
    assert people.requested("k1") is None
    ids = people.ask([task_body(task) for task in PAIRS], draw="k1")
    assert people.requested("k1") == ids
    assert people.requested("k2") is None
    position = desk.store.position()
    assert people.ask([task_body(task) for task in PAIRS], draw="k1") == ids
    assert desk.store.position() == position


def test_what_is_missing_is_counted_of_these_tasks_alone(on_both: MakeDesk) -> None:
    desk = on_both(tasks=3, overlap=2)
    people = people_of(desk)
    ids = people.ask([task_body(task) for task in (*PAIRS[:2], pair(7), pair(8))])
    assert missing(people, ids) == 8
    assert missing(people, ids[:1]) == 2
    a, b, c = desk.people(3)
    for person in (a, b):
        for _ in range(5):
            lease = desk.lease(person)
            desk.submit(person, lease, f"k-{lease.assignment}", {"strength": 1})
    assert missing(people, ids) == 4, "each said the right one of the screen, so all are divided"
    for _ in range(5):
        lease = desk.lease(c)
        desk.submit(c, lease, f"k-{lease.assignment}", {"strength": 1})
    assert missing(people, ids) == 0


def test_closed_decided_and_divided_tasks_are_waited_for_no_more(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0, overlap=2, most=2)
    people = people_of(desk)
    ids = people.ask([task_body(task) for task in PAIRS[:3]])
    desk.store.write(close_task, "p", ids[0], reason="nobody can know", actor="o1")
    assert missing(people, ids) == 4
    desk.store.write(adjudicate, "p", ids[1], {"strength": 1}, reason="taste", actor="r1", key="k")
    assert missing(people, ids) == 2
    for person in desk.people(2):
        desk.answer(person, 1)
    (third,) = [task for task in desk.store.read(project_tasks, "p") if task["id"] == ids[2]]
    assert third["state"] == "review"
    assert missing(people, ids) == 0


@pytest.mark.one_in(2)
def test_people_are_a_judge_whose_verdicts_take_days(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0)
    judge = judge_named("people", JudgeSettings(people=people_of(desk)))
    assert judge.name == "people"
    with pytest.raises(WaitingError, match="4 of 4 labels are missing in project p"):
        judge.verdicts(PAIRS, 0)
    silent = replace(PAIRS[0], answers=("It is 0.", " "))
    place = f"people:{desk.store.where}#p" if "postgresql" not in desk.store.where else None
    if place is not None:
        (verdict,) = judge_named(place, JudgeSettings()).verdicts([silent], 0)
        assert verdict is not None
        assert first_probability(verdict) == 1.0, "an empty answer loses, and nobody is asked"
    (ada,) = desk.people(1)
    for say in (None, 0, 2, 2):
        lease = desk.lease(ada)
        label: dict[str, Any] = {"none": True} if say is None else {"strength": say and desk.better(lease)}
        desk.submit(ada, lease, f"k-{lease.assignment}", label)
    found = judge.verdicts(PAIRS, 0)
    said = sorted(-1.0 if verdict is None else first_probability(verdict) for verdict in found)
    assert said == [-1.0, 0.5, 1.0, 1.0], "the right answer was preferred, which is the first"
    assert {(v.annotator, v.group) for v in found if v is not None} == {(ada, "people")}
    turned = judge.verdicts([swapped(task) for task in PAIRS], 0)
    for verdict, other in zip(found, turned, strict=True):
        assert (verdict is None) == (other is None)
        if verdict is not None and other is not None:
            assert first_probability(verdict) == 1 - first_probability(other)


def test_several_labels_are_one_verdict_of_their_shares(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0, overlap=2, most=2)
    people = people_of(desk)
    people.ask([task_body(PAIRS[0])])
    first, second = desk.people(2)
    lease = desk.lease(first)
    desk.submit(first, lease, "k", {"strength": desk.better(lease)})
    lease = desk.lease(second)
    desk.submit(second, lease, "k", {"strength": 0})
    (verdict,) = people.verdicts(PAIRS[:1], 0)
    assert verdict is not None
    assert (first_probability(verdict), verdict.annotator, verdict.group) == (0.75, "people", "people")


def test_a_project_is_begun_once_and_its_owner_may_change_it(on_both: MakeDesk) -> None:
    desk = on_both(tasks=0, overlap=3)
    assert people_of(desk).begin(Project(name="p")).overlap == 3
    other = People(store=desk.store, project="q")
    assert other.begin(Project(name="whatever", overlap=2)).overlap == 2
    assert desk.store.projects() == ["p", "q"]
    with pytest.raises(UserError, match="project p asks for pair, and rank is wanted here"):
        people_of(desk).begin(Project(name="p", ask="rank"))


def test_a_wait_says_what_to_do_with_words_that_a_shell_reads() -> None:
    wait = Wait(store="my runs/labels.db", project="helpful", missing=2, wanted=9)
    assert str(waiting_error(wait)) == (
        "2 of 9 labels are missing in project helpful of my runs/labels.db. "
        "`plaudit collect serve --store 'my runs/labels.db'` lets people answer, and `plaudit collect invite "
        "--store 'my runs/labels.db' --project helpful` lets one of them in. Then give the same command again"
    )


@pytest.fixture
def contest(tmp_path: Path) -> tuple[Desk, list[str]]:
    """A store, and a command by which its people compare two policies and a twin of the first."""
    ours, theirs = policy(tmp_path, 0), policy(tmp_path, 1)
    rows = tmp_path / "prompts.jsonl"
    rows.write_text("".join(f'{{"prompt": "w{n} w9"}}\n' for n in range(6)))
    command = ["eval", "policy", ours, theirs, "--policy", f"twin={ours}", "--prompts", rows]
    command += ["--max-tokens", 6, "--bootstrap", 50, "--device", "cpu", "--out", tmp_path / "e", "--judge"]
    return Desk(tmp_path / "labels.db", tasks=0, overlap=2), [*map(str, command)]


def test_people_compare_policies_and_the_figures_are_what_they_said(contest, tmp_path, capsys):
    desk, command = contest
    assert main([*command, "people:"]) == 2
    assert "name a label store, as in people:labels.db" in capsys.readouterr().err
    judge = f"people:{tmp_path / 'labels.db'}#p"
    assert main([*command, judge]) == 3
    tasks = len(desk.store.read(project_tasks, "p"))
    assert f"{2 * tasks} of {2 * tasks} labels are missing in project p" in capsys.readouterr().err
    # The longer answer is the better one, to either of two people, wherever it is shown.
    for person in desk.people(2):
        for _ in range(tasks):
            lease = desk.lease(person)
            first, second = (len(answer) for answer in lease.shown["answers"])
            strength = (second > first) - (first > second)
            desk.submit(person, lease, f"{person}-{lease.assignment}", {"strength": strength})
    assert main([*command, judge]) == 0
    desk.store.close()
    figures = read_policy_evaluation(tmp_path / "e")
    theirs, twin = figures.contests
    lengths = [[len(answer.text) for answer in row.answers] for row in figures.all_answers]
    expected = fmean(0.5 + 0.5 * ((their > our) - (our > their)) for our, their, _ in lengths)
    assert theirs.raw is not None
    assert theirs.raw.value == pytest.approx(expected, abs=1e-12)
    assert (twin.won, twin.tied, twin.lost) == (0, 6, 0), "the same words twice, and nobody was asked"
    notes = " ".join(figures.all_notes)
    assert f"{2 * tasks} labels by 2 people (2 active): a1, a2; two of them say the same in 100%" in notes
    assert "errs as all judges do" not in notes
