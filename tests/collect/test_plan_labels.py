"""``plaudit plan labels``: hours and money of people's work, stated or measured in a store."""

import json

import pytest

from plaudit.collect.progress import project_status
from plaudit.collect.verbs.plan import SECONDS, LabellingRequest, labelling_cost
from tests.collect.desks import Desk
from tests.commands import commands

printed, refused = commands("plan", "labels")


def test_the_figures_of_instructgpt_come_out_as_they_are_reckoned(capsys):
    out = printed(capsys, "--tasks", 33_000, "--pay", 10)
    assert "labels: 33,000 tasks × 1 person = 33,000\n" in out
    assert "time: 300 s each (assumed: nothing was measured) = 2,750.0 hours of work" in out
    assert "money: 10 an hour, in whatever money = 27,500.00" in out
    # Where one person answers nobody can be divided.
    assert "divided" not in out


def test_checks_and_qualifying_items_are_work_too(capsys, tmp_path):
    asked = ("--tasks", 1000, "--overlap", 2, "--people", 10, "--seconds", 36)
    out = printed(capsys, *asked, "--checks", 0.05, "--qualify", 25, "--json", tmp_path / "plan.json")
    assert "answers: 2,355, with 5 % of them gold or repeated and 25 qualifying items of 10 people" in out
    assert "time: 36 s each (as said) = 23.6 hours" in out
    assert "by up to 4: at most 4,000 labels, 44.6 hours, 892.20" in out
    told = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    assert told["cost"]["answers"] == 2355
    assert told["cost"]["money"] == pytest.approx(471)
    assert told["request"]["seconds"] == 36


def test_every_kind_has_seconds_that_are_assumed():
    for kind, seconds in SECONDS.items():
        cost = labelling_cost(LabellingRequest(ask=kind, tasks=10, overlap=2))
        assert cost.hours == pytest.approx(20 * seconds / 3600)
        assert (cost.labels_at_most > cost.labels) == (kind in ("pair", "rank", "steps"))


def worked(desk: Desk, seconds: list[float]) -> Desk:
    (person,) = desk.people(1)
    for number, taken in enumerate(seconds):
        lease = desk.lease(person)
        desk.submit(person, lease, f"k{number}", {"strength": -1}, seconds=taken)
    return desk


def test_a_store_says_what_is_left_and_how_long_its_people_take(make_desk, tmp_path, capsys):
    path = tmp_path / "labels.db"
    worked(make_desk(path, tasks=10, overlap=2, gold_share=0), [20, 30, 3000])
    out = printed(capsys, "--store", path)
    assert "labels: 17 are missing, of 10 open tasks × 2 people" in out
    # The median: the task over which somebody had lunch counts as one long one.
    assert "time: 30 s each (the median of 3 labels of this project) = 8.5 minutes of work" in out
    assert "time: 60 s each (as said) = 17.0 minutes" in printed(capsys, "--store", path, "--seconds", 60)
    assert "1,000 tasks × 1 person" in printed(capsys, "--store", path, "--tasks", 1000)
    assert "(the median of 3 labels" in printed(capsys, "--store", path, "--tasks", 1000)


def test_a_store_without_labels_says_that_nothing_was_measured(make_desk, tmp_path, capsys):
    make_desk(tasks=2, gold_share=0.3, repeat=0)
    out = printed(capsys, "--store", tmp_path / "labels.db")
    assert "300 s each (assumed: nothing was measured)" in out
    # A share of gold is asked only where there is gold.
    assert "gold or repeated" not in out
    done = worked(make_desk(tmp_path / "done.db", tasks=1), [5])
    assert done.store.read(project_status, "p").done
    told = refused(capsys, "--store", tmp_path / "done.db")
    assert "no task is open, so nothing is left to plan; say --tasks N" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say how many with --tasks N, or name a label store with --store FILE"),
        (["--tasks", 5, "--overlap", 3, "--most", 2], "--most is at least the overlap (3), not 2"),
        (["--tasks", 5, "--seconds", 0], "--seconds is above 0, not 0"),
        (["--tasks", 5, "--seconds", "nan"], "--seconds is above 0, not nan"),
        (["--tasks", 5, "--pay", -1], "--pay is 0 or more, not -1"),
        (["--tasks", 5, "--checks", 1], "--checks is a share from 0 to below 1, not 1"),
        (["--tasks", 5, "--qualify", -1], "--qualify is 0 or more, not -1"),
        (["--store", "none.db"], "none.db"),
    ],
)
def test_what_costs_nothing_or_without_end_is_refused(capsys, words, says):
    assert says in refused(capsys, *words)
