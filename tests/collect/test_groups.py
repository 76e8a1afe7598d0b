"""Groups that people say they belong to: asked, declined, set by an owner, and told in sums of five."""

import json
import re

import pytest

from plaudit.cli.main import main
from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.export import read_snapshot
from plaudit.collect.own import own_preferences
from plaudit.collect.people import issue_token, make_invite, set_groups, set_preferences, set_standing
from plaudit.collect.privacy import erase_person, export_person
from plaudit.collect.progress import group_sizes, project_people, rebuild_tables, store_faults
from plaudit.collect.project import read_project
from plaudit.collect.quality.report import quality
from plaudit.collect.refusals import FieldError
from plaudit.collect.rounds import PeopleJudge
from plaudit.collect.sessions import open_session
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.errors import UserError
from plaudit.evaluation.policies.win_rate import JudgedPair
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from tests.collect.desks import Desk, MakeDesk, pair_body
from tests.collect.offices import Forms

GROUPS = (("region", "north", "south"), ("sworn", "yes", "no"))


def told(desk: Desk) -> dict[str, int | None]:
    return {size.value: size.people for size in desk.store.read(group_sizes, "p") if size.name == "region"}


def grouped(make_desk: MakeDesk, north: int, south: int, silent: int, **settings: object) -> Desk:
    desk = make_desk(groups=GROUPS, **settings)
    people = desk.people(north + south + silent)
    for number, person in enumerate(people[: north + south]):
        value = "north" if number < north else "south"
        desk.store.write(set_preferences, "p", person, groups={"region": value})
    return desk


def test_only_sums_of_five_are_told_and_none_from_which_fewer_follow(make_desk):
    desk = grouped(make_desk, 9, 6, 0)
    assert told(desk) == {"north": 9, "south": 6, "": None}
    # With two who say nothing 17 − 9 − 6 would tell of them, so the smaller sum goes too.
    for person in desk.people(2):
        desk.store.write(set_preferences, "p", person, groups={"region": ""})
    assert told(desk) == {"north": 9, "south": None, "": None}
    desk.store.write(set_groups, "p", "a1", {"region": "south"}, actor="o1")
    assert told(desk) == {"north": 8, "south": None, "": None}
    assert "groups" not in json.dumps(desk.store.read(project_people, "p"))


def test_an_owner_sets_them_a_person_declines_and_erasing_takes_all_of_it(make_desk):
    desk = grouped(make_desk, 1, 0, 0)
    store = desk.store
    store.write(set_preferences, "p", "a1", areas=("law",), languages=("en",))
    store.write(set_groups, "p", "a1", {"sworn": "yes"}, actor="o1")
    kept = store.read(export_person, "p", "a1")["preferences"]
    assert kept == {
        "declined": [],
        "languages": ["en"],
        "areas": ["law"],
        "groups": {"region": "north", "sworn": "yes"},
    }
    store.write(set_preferences, "p", "a1", groups={"region": ""})
    assert store.read(export_person, "p", "a1")["preferences"]["groups"] == {"sworn": "yes"}
    store.write(set_groups, "p", "a1", {"sworn": "no"}, actor="o1")
    erase_person(store, "p", "a1", actor="o1")
    assert store.read(store_faults) == []
    bodies = [event.body for event in store.events() if event.kind == "preferences-set"]
    assert bodies == [None] * 5
    store.write(rebuild_tables)
    assert store.read(export_person, "p", "a1")["preferences"] == {}
    # An owner who is erased takes along nothing of those whom they wrote about.
    owner = store.write(issue_token, "p", "owner", name="Olga").pseudonym
    (other,) = desk.people(1)
    store.write(set_groups, "p", other, {"sworn": "no"}, actor=owner)
    erase_person(store, "p", owner, actor="o1")
    assert store.read(store_faults) == []
    assert store.read(own_preferences, "p", other)["groups"] == {"sworn": "no"}
    with pytest.raises(UserError, match="was erased"):
        store.write(set_groups, "p", "a1", {"sworn": "no"}, actor="o1")


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"regoin": "north"}, "one of region, sworn"),
        ({"region": "east"}, "one of north, south, or nothing"),
        ({"region": 3}, "one of north, south"),
        ({"region": None}, "one of north, south"),
    ],
)
def test_groups_that_the_project_does_not_ask_for_are_refused(make_desk, groups, says):
    desk = grouped(make_desk, 1, 0, 0)
    with pytest.raises(FieldError, match=says):
        desk.store.write(set_preferences, "p", "a1", groups=groups)
    assert desk.store.read(export_person, "p", "a1")["preferences"]["groups"] == {"region": "north"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("groups: {region: [north]}", "2 to 20 values"),
        ("groups: {region: [north, north]}", "each once"),
        ("groups: {a=b: [x, y]}", "without '='"),
        ("groups: {region: north}", "2 to 20 values"),
    ],
)
def test_settings_of_groups_that_nobody_could_answer_are_refused(tmp_path, line, says):
    file = tmp_path / "p.yaml"
    file.write_text(f"project: p\n{line}\n")
    with pytest.raises(UserError, match=says):
        read_project(file)
    file.write_text("project: p\ngroups: {sworn: [yes, no]}\n")
    assert read_project(file).groups == (("sworn", "yes", "no"),)


def test_quality_is_told_by_groups_of_five_as_counted_by_hand(make_desk, tmp_path, capsys):
    desk = grouped(make_desk, 5, 5, 1, tasks=12, overlap=11, most=11)
    for number in range(11):
        person = f"a{number + 1}"
        for _ in range(12):
            lease = desk.lease(person)
            # The south prefers the other answer of the three last tasks.
            three = any(f"It is {2 * last}." in str(lease.shown["answers"]) for last in (9, 10, 11))
            right = desk.better(lease)
            desk.submit(person, lease, f"k{_}", {"strength": -right if number >= 5 and three else right})
    desk.store.write(set_standing, "p", "a11", "suspended", reason="left", actor="o1")
    found = quality(desk.store, "p")
    assert [(row.name, row.value, row.people, row.labels) for row in found.groups] == [
        ("region", "north", 5, 60),
        ("region", "south", 5, 60),
        ("sworn", "", 10, 120),
    ]
    assert [row.name for row in found.agreement if row.part == "group"] == [
        *("region: north", "region: south", "sworn: not said")
    ]
    # Within a group all say the same; between them a quarter of the tasks is disputed.
    assert [row.percent.value for row in found.agreement if row.part == "group"][:2] == [1.0, 1.0]
    for row, first in zip(found.groups[:2], (1, 6), strict=True):
        names = {f"a{first + number}" for number in range(5)}
        shares = [card.held_out for card in found.annotators if card.name in names]
        hits = sum(round(share.value * share.n) for share in shares)
        assert row.held_out.value == pytest.approx(hits / sum(share.n for share in shares))
    where = ["--store", str(tmp_path / "labels.db")]
    assert main(["collect", "quality", *where]) == 0
    printed = capsys.readouterr().out
    assert "region: south" in printed
    assert "Groups of fewer than five people" in printed


def test_the_command_sets_and_tells(make_desk, tmp_path, capsys):
    grouped(make_desk, 5, 5, 0)
    where = ["--store", str(tmp_path / "labels.db")]
    assert main(["collect", "person", "a1", "--group", "region=south", "--group", "sworn=yes", *where]) == 0
    assert "a1 of p: region, sworn set" in capsys.readouterr().out
    assert main(["collect", "people", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "group region: south: 6" not in lines
    assert "group sworn: yes: fewer than 5 people, or told by the other sums" in lines
    assert main(["collect", "person", "a1", "--group", "south", *where]) == 2
    assert "write NAME=VALUE" in capsys.readouterr().err
    assert main(["collect", "people", "--json", *where]) == 0
    assert {size["name"] for size in json.loads(capsys.readouterr().out)["groups"]} == {"region", "sworn"}


def test_pages_ask_let_decline_and_tell_no_person(make_desk):
    desk = grouped(make_desk, 5, 5, 0)
    desk.store.write(set_groups, "p", "a1", {"sworn": "yes"}, actor="o1")
    invite = desk.store.write(make_invite, "p", actor="o1")
    app = make_app(desk.store, site_of(8080))
    joiner = Forms(app)
    page = joiner.get(f"/join/{invite}")
    assert 'name="group-region"' in page.text
    key = re.search(r'name="key" value="([^"]+)"', page.text)
    assert key
    sent = {"name": "Ada", "password": "correct horse battery", "key": key[1]}
    refused = joiner.post(f"/join/{invite}", **sent, **{"group-region": "east"})
    assert (refused.status_code, "one of north, south" in refused.text) == (422, True)
    joiner.post(f"/join/{invite}", **sent, **{"group-region": "south", "group-sworn": ""})
    assert desk.store.read(own_preferences, "p", "a11")["groups"] == {"region": "south"}
    assert re.search(r'value="south" selected', joiner.get("/preferences").text)
    joiner.post("/preferences", **{"group-region": "", "group-sworn": "no", "areas": "law"})
    assert desk.store.read(own_preferences, "p", "a11")["groups"] == {"sworn": "no"}
    owner = Forms(app)
    joined = desk.store.write(issue_token, "p", "owner", name="Olga")
    secret = desk.store.write(open_session, "p", joined.pseudonym).secret
    owner.client.cookies.set("plaudit-8080", secret)
    assert "Only sums of five or more" in owner.get("/manage/people").text
    page = owner.get("/manage/people/a1").text
    # What the person said is chosen nowhere, and stays where nothing is chosen.
    assert "group-region" in page
    assert "selected" not in page.partition("/groups")[2].partition("</form>")[0]
    owner.post("/manage/people/a1/groups", **{"group-region": "south", "group-sworn": "="})
    assert desk.store.read(own_preferences, "p", "a1")["groups"] == {"region": "south", "sworn": "yes"}


@pytest.fixture
def regions(make_desk) -> Desk:
    """Five of the north, four of the south and one who says nothing labelled the same two tasks rightly."""
    desk = grouped(make_desk, 5, 4, 1, tasks=2, overlap=10, most=10)
    for number in range(10):
        for place in range(2):
            lease = desk.lease(f"a{number + 1}")
            desk.submit(f"a{number + 1}", lease, f"k{place}", {"strength": desk.better(lease)})
    return desk


def test_win_rates_by_people_are_told_by_groups_of_five(regions, tmp_path):
    judge = judge_named(f"people:{tmp_path / 'labels.db'}#p", JudgeSettings())
    assert isinstance(judge, PeopleJudge)
    duels = [
        JudgedPair(
            prompt=body["prompt"], mine=wrong["text"], theirs=right["text"], forward=None, backward=None
        )
        for body in map(pair_body, (0, 1))
        for right, wrong in [body["candidates"]]
    ]
    tasks = [Task(prompt=d.prompt, answers=(d.mine, d.theirs), ended=(True, True)) for d in duels]
    judge.verdicts(tasks, 0)
    assert [note.partition(",")[0] for note in judge.contest_notes(duels)] == ["by region north"]
    # The fifth of the south makes it large enough.
    regions.store.write(set_preferences, "p", "a10", groups={"region": "south"})
    judge.verdicts(tasks, 0)
    # All prefer the right answer, which is not the first policy's.
    assert [note.partition(" (")[0] for note in judge.contest_notes(duels)] == [
        f"by region {where}, 5 people: wins 0.0%" for where in ("north", "south")
    ]


def test_rows_by_group_name_it_for_group_preferences_and_evaluation(regions, tmp_path, capsys):
    desk = regions
    rows, where = tmp_path / "rows.jsonl", ["--store", str(tmp_path / "labels.db")]
    command = ["collect", "export", "--out", str(rows), *where]
    assert main([*command, "--by", "region"]) == 0
    assert "8 labels of a group of fewer than five people" in capsys.readouterr().out
    records = read_records(rows).records
    assert {(record.annotator, record.group) for record in records} == {
        (f"a{number}", "north") for number in range(1, 6)
    }
    snapshot = read_snapshot(rows)
    assert snapshot.left_out["of people who did not say their group"] == 2
    # The fifth of the south makes it large enough.
    desk.store.write(set_preferences, "p", "a10", groups={"region": "south"})
    assert main([*command, "--by", "region"]) == 0
    assert [record.group for record in read_records(rows).records].count("south") == 10
    capsys.readouterr()
    for words, says in (
        (["--by", "regoin"], "it asks for region, sworn"),
        (["--by", "region", "--soft"], "one a label"),
        (["--by", "sworn"], "nothing of project p to export (20 of people who did not say"),
    ):
        assert main([*command, *words]) == 2
        assert says in capsys.readouterr().err
