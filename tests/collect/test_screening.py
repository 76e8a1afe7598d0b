"""Who is kept after a trial: what is measured, who is ranked where, and that only a person decides."""

import json
import random
from dataclasses import asdict
from math import comb
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite, set_preferences, set_standing
from plaudit.collect.progress import project_people
from plaudit.collect.project import Project
from plaudit.collect.quality.report import quality
from plaudit.collect.screening import (
    CutOffs,
    Screened,
    Screening,
    decide,
    demonstration_tasks,
    measure_of,
    screen,
)
from plaudit.errors import UserError
from tests.collect.desks import Desk, MakeDesk, pair_body

QUESTIONS = 20
HARMFUL = [["harmful"], []]


def qualifying(number: int) -> dict[str, Any]:
    """A pair whose first answer is better and whose first answer deserves a flag."""
    return pair_body(number, qualify=True, gold={"better": 0, "flags": HARMFUL})


def trial(make_desk: MakeDesk, rights: dict[str, int], **settings: Any) -> Desk:
    """People who answered so many of the qualifying questions rightly, and flagged as well."""
    asked = {"qualify_n": QUESTIONS, "qualify_floor": 0.0, **settings}
    desk = make_desk(tasks=[qualifying(number) for number in range(QUESTIONS)], **asked)
    secret = desk.store.write(make_invite, "p", uses=len(rights), actor="o1")
    for name, right in rights.items():
        person = join_project(desk.store, secret, name).pseudonym
        for number in range(QUESTIONS):
            lease = desk.lease(person)
            first_is_right = "I think" not in lease.shown["answers"][0]
            good = number < right
            label = {
                "strength": -1 if first_is_right == good else 1,
                "flags": [
                    ["harmful"] if shown == (first_is_right == good) else [] for shown in (True, False)
                ],
            }
            desk.submit(person, lease, f"k{number}", label)
    return desk


def by_name(found: Screening) -> dict[str | None, Screened]:
    return {one.person: one for one in found.people}


def test_the_best_are_proposed_and_who_is_below_for_certain_is_not(make_desk):
    desk = trial(make_desk, {"Ada": 14, "Bo": 20, "Cy": 8, "Di": 18, "Ed": 19})
    before = desk.store.position()
    found = screen(desk.store, "p", keep=3)
    assert [(one.person, one.rank, one.proposed) for one in found.people] == [
        ("Bo", 1, "active"),
        ("Ed", 2, "active"),
        ("Di", 3, "active"),
        ("Ada", 4, "suspended"),
        ("Cy", 5, "suspended"),
    ]
    ada, cy = by_name(found)["Ada"], by_name(found)["Cy"]
    # 14 of 20 is below 75 %, and its interval is not; 8 of 20 is below as a whole.
    assert (ada.missed, ada.below) == (("comparisons", "flags"), ())
    assert cy.below == ("comparisons", "flags")
    assert ada.comparisons is not None
    assert (ada.comparisons.value, ada.comparisons.n) == (0.7, 20)
    assert [round(end, 3) for end in (ada.comparisons.low, ada.comparisons.high)] == [0.457, 0.881]
    assert ada.flags is not None
    assert (ada.flags.value, ada.flags.n) == (0.7, 20)
    assert ada.reason == (
        "screening: 4 of 5, comparisons 70 % of 20 (46–88); flags 70 % of 20 (46–88); others are better"
    )
    assert "below the cut-off: comparisons, flags" in cy.reason
    kept = [one.person for one in screen(desk.store, "p", keep=16).people if one.proposed == "active"]
    assert kept == ["Bo", "Ed", "Di", "Ada"]
    assert desk.store.position() == before


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 20, 40])
def test_who_stands_at_the_cut_off_is_below_it_for_certain_once_in_forty_times_at_most(count):
    chances = [comb(count, right) * 0.75**right * 0.25 ** (count - right) for right in range(count + 1)]
    found = [measure_of([1.0] * right + [0.0] * (count - right)) for right in range(count + 1)]
    alarms = sum(chance for chance, one in zip(chances, found, strict=True) if one and one.high < 0.75)
    assert alarms <= 0.025


def test_marks_that_are_alike_make_nobody_certain_and_one_answer_no_first():
    five, one = measure_of([5, 5, 5], 1, 7), measure_of([1.0])
    assert five
    assert one
    assert 6 < five.high < 7
    assert one.low < 0.05


def test_a_decision_is_written_for_those_alone_whose_standing_changes(make_desk):
    desk = trial(make_desk, {"Ada": 14, "Bo": 20, "Cy": 8})
    before = desk.store.position()[0]
    decided = decide(desk.store, screen(desk.store, "p", keep=2), actor="r1")
    assert [one.person for one in decided] == ["Cy"]
    events = [event for event in desk.store.events(before) if event.kind == "standing-set"]
    assert [(event.actor, event.subject, event.body) for event in events] == [
        ("r1", "a3", {"standing": "suspended", "reason": decided[0].reason})
    ]
    # Who was suspended is decided about, and no rule looks at them again.
    assert [one.person for one in screen(desk.store, "p").people] == ["Bo", "Ada"]


def test_who_failed_the_floor_may_be_among_the_best_and_who_is_watched_stays_so(make_desk):
    desk = trial(make_desk, {"Ada": 17, "Bo": 20, "Cy": 8}, qualify_floor=0.7)
    desk.store.write(set_standing, "p", "a2", "watch", reason="odd hours", actor="r1")
    found = by_name(screen(desk.store, "p"))
    assert (found["Ada"].standing, found["Ada"].proposed) == ("failed", "active")
    assert (found["Bo"].standing, found["Bo"].proposed) == ("watch", "watch")
    assert (found["Cy"].standing, found["Cy"].proposed) == ("failed", "failed")


def test_who_is_still_qualifying_or_did_nothing_known_is_not_ranked(make_desk, tmp_path):
    desk = make_desk(tasks=2, gold_share=0)
    (one,) = desk.people(1)
    desk.answer(one)
    found = screen(desk.store, "p")
    (person,) = found.people
    assert (person.rank, person.proposed, person.comparisons) == (0, "active", None)
    assert found.decisions == ()
    assert [note.partition(" ")[0] for note in found.notes] == [
        *("comparisons", "flags", "demonstrations", "reading")
    ]
    asked = make_desk(tmp_path / "more.db", tasks=[qualifying(1), qualifying(2)], qualify_n=2)
    (somebody,) = asked.people(1)
    asked.answer(somebody)
    (halfway,) = screen(asked.store, "p").people
    assert (halfway.standing, halfway.rank, halfway.proposed) == ("qualifying", 0, "qualifying")
    assert halfway.comparisons is not None


def crowd(make_desk: MakeDesk, where: Path, accuracies: dict[str, float], *, seed: int, **more: Any) -> Desk:
    """People who are right so often, at a low overlap with few gold items; below 0 they click the first."""
    rng, tasks = random.Random(seed), more.pop("tasks", 60)
    gold = [pair_body(1000 + number, gold={"better": 0}) for number in range(more.pop("gold", 4))]
    bodies = [*gold, *(pair_body(number) for number in range(tasks))]
    desk = make_desk(where, tasks=bodies, overlap=2, most=2, gold_share=0.1, **more)
    people = desk.people(len(accuracies))
    idle = set[str]()
    while len(idle) < len(people):
        for person, right in zip(people, accuracies.values(), strict=True):
            lease = desk.store.write(next_task, "p", person, f"{person} {rng.random()}")
            if not isinstance(lease, Lease):
                idle.add(person)
                continue
            better = desk.better(lease) if rng.random() < right else -desk.better(lease)
            desk.submit(person, lease, f"{person} {rng.random()}", {"strength": -1 if right < 0 else better})
    return desk


def test_the_best_reader_stays_and_who_clicks_the_first_goes_where_gold_tells_nothing(make_desk, tmp_path):
    people = {"good": 0.95, "fair": 0.8, "fairish": 0.75, "clicker": -1.0}
    desk = crowd(make_desk, tmp_path / "audit.db", people, seed=1, tasks=120)
    found, report = screen(desk.store, "p", keep=2), quality(desk.store, "p")
    assert max(card.gold.n for card in report.annotators) <= 4
    named = dict(zip(people, found_by_name(found, 4), strict=True))
    assert (named["good"].rank, named["good"].proposed) == (1, "active")
    assert (named["clicker"].rank, named["clicker"].proposed, named["clicker"].habit) == (
        4,
        "suspended",
        "first",
    )
    # The reasons are the report's, in its own words.
    (proposal,) = [proposal for proposal in report.proposals if proposal.name == "a4"]
    assert (*named["clicker"].suspend, *named["clicker"].watch) == proposal.reasons
    assert proposal.reasons[0] in named["clicker"].reason
    # Also where there is room for all of them.
    roomy = found_by_name(screen(desk.store, "p", keep=16), 4)
    assert [member.proposed for member in roomy] == ["active", "active", "active", "suspended"]


def found_by_name(found: Screening, count: int) -> list[Screened]:
    by = {member.annotator: member for member in found.people}
    return [by[f"a{number + 1}"] for number in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_screening_and_the_report_on_quality_never_disagree(make_desk, tmp_path, seed):
    rng = random.Random(seed)
    accuracies = {f"{n}": rng.choice([-1.0, 0.5, 0.2, rng.uniform(0.6, 1)]) for n in range(rng.randint(3, 6))}
    sizes = {"tasks": rng.randint(20, 60), "gold": rng.randint(0, 12)}
    desk = crowd(make_desk, tmp_path / "random.db", accuracies, seed=seed, **sizes)
    cards = {card.name: card for card in quality(desk.store, "p").annotators}
    proposed = {proposal.name: proposal.standing for proposal in quality(desk.store, "p").proposals}
    for keep in (1, 2, 16):
        found = screen(desk.store, "p", keep=keep)
        chosen = {member.annotator: member for member in found.people if member.proposed != "suspended"}
        assert all(proposed.get(name) != "suspended" for name in chosen)
        assert {name for name, member in chosen.items() if member.proposed == "watch"} == {
            name for name in chosen if proposed.get(name) == "watch"
        }
        for gone in (member for member in found.people if member.annotator not in chosen):
            clearly_worse = [
                name for name in chosen if cards[name].skill.high < cards[gone.annotator].skill.low
            ]
            assert not clearly_worse or proposed.get(gone.annotator) == "suspended"


def written(desk: Desk) -> dict[str, str]:
    """A project in which Ada and Bo write, and what they wrote, rated from 1 to 5 by a reviewer."""
    store = desk.store
    store.write(set_project, Project(name="w", ask="write", overlap=2), actor="o1")
    store.write(add_tasks, "w", [{"prompt": f"Greet me {n}."} for n in range(3)], actor="o1")
    secret = store.write(make_invite, "w", uses=2, actor="o1")
    authors = {name: join_project(store, secret, name).pseudonym for name in ("Bo", "Ada")}
    for name, person in authors.items():
        for number in range(3):
            lease = store.write(next_task, "w", person, f"{name}{number}")
            assert isinstance(lease, Lease)
            label = {"answer": f"Hi from {name}"}
            store.write(submit_answer, "w", person, lease.assignment, f"k{name}{number}", label)
    return authors


def test_demonstrations_are_rated_without_their_author_and_counted_for_them(make_desk):
    desk = trial(make_desk, {"Ada": 20, "Bo": 20})
    authors, store = written(desk), desk.store
    tasks = demonstration_tasks(store, "w")
    assert len(tasks) == 6
    store.write(set_project, Project(name="r", ask="rate"), actor="o1")
    store.write(add_tasks, "r", tasks, actor="o1")
    rater = join_project(store, store.write(make_invite, "r", actor="o1"), "Rae").pseudonym
    for number in range(6):
        lease = store.write(next_task, "r", rater, f"n{number}")
        assert isinstance(lease, Lease)
        (text,) = lease.shown["answers"]
        assert not any(pseudonym in json.dumps(lease.shown) for pseudonym in ('"a1"', '"a2"'))
        points = {"overall": [5 if "Ada" in text else 1 + number % 2]}
        store.write(submit_answer, "r", rater, lease.assignment, f"k{number}", {"points": points})
    own = {one.annotator: one for one in screen(store, "w").people}
    ada = own[authors["Ada"]].demonstrations
    assert ada is not None
    # Points from 1 to 5 are told from 1 to 7.
    assert (ada.value, ada.n) == (7, 3)
    assert own[authors["Bo"]].below == ("demonstrations",)
    # By name in the project of pairs, where Ada is a1 and not a2; without it nothing is taken over.
    assert by_name(screen(store, "p", written_in="w"))["Ada"].demonstrations == ada
    assert by_name(screen(store, "p"))["Ada"].demonstrations is None
    with pytest.raises(UserError, match="asks for pair, and nobody writes in it"):
        demonstration_tasks(store, "p")


def test_areas_that_somebody_says_to_know_are_told_and_stay(make_desk):
    desk = trial(make_desk, {"Ada": 20})
    desk.store.write(set_preferences, "p", "a1", areas=("law", "cooking"))
    desk.store.write(set_preferences, "p", "a1", languages=("en",))
    (ada,) = screen(desk.store, "p").people
    assert ada.areas == ("law", "cooking")
    desk.store.write(set_preferences, "p", "a1", areas=())
    assert screen(desk.store, "p").people[0].areas == ()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"comparisons": 75}, "shares from 0 to 1, not 75 and 0.75"),
        ({"flags": -0.1}, "shares from 0 to 1"),
        ({"comparisons": float("nan")}, "shares from 0 to 1"),
        ({"demonstrations": 8}, "from 1 to 7, not 8"),
    ],
)
def test_a_cut_off_that_nobody_can_reach_is_refused(settings, says):
    with pytest.raises(UserError, match="cut-off") as refused:
        CutOffs(**settings)
    assert says in str(refused.value)


def test_the_command_prints_a_ranking_and_decides_on_demand(make_desk, tmp_path, capsys):
    desk = trial(make_desk, {"Ada": 14, "Bo": 20, "Cy": 8})
    words = ["collect", "screen", "--store", str(tmp_path / "labels.db")]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "p: 3 people tried; 2 are proposed, of 16 at most"
    assert lines[3].split()[:4] == ["1", "a2", "Bo", "active"]
    assert lines[-1].startswith("decisions that follow: 1; --apply writes them")
    assert main([*words, "--json", "--keep", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["decided"] == []
    assert told["people"] == json.loads(json.dumps(asdict(screen(desk.store, "p", keep=1))))["people"]
    assert main([*words, "--apply"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "decisions written to the log, each with its reason: 1"
    standings = {one["pseudonym"]: one["standing"] for one in desk.store.read(project_people, "p")}
    assert standings == {"a1": "active", "a2": "active", "a3": "suspended"}


def test_the_command_writes_what_was_written_as_tasks(make_desk, tmp_path, capsys):
    desk = make_desk(tasks=0)
    written(desk)
    out = tmp_path / "demos.jsonl"
    words = ["collect", "screen", "--store", str(tmp_path / "labels.db"), "--project", "w"]
    assert main([*words, "--demonstrations", str(out)]) == 0
    assert "6 tasks; add them to a project that asks for rate" in capsys.readouterr().out
    desk.store.write(set_project, Project(name="r", ask="rate"), actor="o1")
    assert main(["collect", "add", str(out), "--store", str(tmp_path / "labels.db"), "--project", "r"]) == 0
    assert "6 tasks added to r" in capsys.readouterr().out
