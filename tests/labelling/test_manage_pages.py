"""The pages of those who run a project, as a browser has them: who may open which, and what each one does."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from plaudit.labelling import review
from plaudit.labelling.app.server import PAGES, make_app, site_of
from plaudit.labelling.desk import Lease
from plaudit.labelling.people import Panel
from plaudit.labelling.project import Project
from plaudit.labelling.quality.cache import Reports, keep_report
from plaudit.labelling.quality.result import (
    AgreementRow,
    Consensus,
    Drift,
    Figure,
    Odds,
    PersonQuality,
    Proposal,
    Quality,
    quality_to_dict,
)
from tests.labelling import desks
from tests.labelling.desks import pair_body

HERE = "http://127.0.0.1:8080"
SAME = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
PATHS = (
    *("/manage", "/manage/tasks", "/manage/queue", "/manage/quality", "/manage/gaps", "/manage/people"),
    *(
        "/manage/invites",
        "/manage/settings",
        "/manage/export",
        "/manage/log",
        "/manage/add",
        "/manage/pay.csv",
    ),
)


class Browser:
    """Somebody who is signed in, and sends forms with the token of the page that was read last."""

    def __init__(self, office: Office, role: str, project: str = "p") -> None:
        self.office = office
        joined = office.store.token(project, role, name=f"{role} Name")
        self.pseudonym = joined.pseudonym
        self.client = TestClient(office.app, base_url=HERE)
        secret = office.store.open_session(project, joined.pseudonym).secret
        self.client.cookies.set("plaudit-8080", secret)
        self.token = ""

    def get(self, path: str, language: str = "en") -> Response:
        return self._read(self.client.get(path, headers={"Accept-Language": language}))

    def post(self, path: str, **fields: Any) -> Response:
        """Send the fields; the token is that of a page that has one, as the account has."""
        if not self.token:
            self.get("/account")
        return self._read(self.client.post(path, data={"form_token": self.token, **fields}, headers=SAME))

    def _read(self, response: Response) -> Response:
        found = re.search(r'name="form_token" value="(\w+)"', response.text)
        self.token = found[1] if found else self.token
        return response


class Office:
    """A project with people, labels and disagreements, and its app."""

    def __init__(self, where: Path) -> None:
        self.desk = desks.Desk(where, overlap=2, guidelines="Prefer what is true.")
        self.store = self.desk.store
        self.reports = Reports(self.store)
        self.app = make_app(self.store, site_of(8080), self.reports)
        self.owner, self.reviewer, self.annotator = (
            Browser(self, role) for role in ("owner", "reviewer", "annotator")
        )

    def divide(self) -> list[str]:
        """Four people label all tasks: for A, for B, for neither, for A; gives the tasks' ids."""
        for number, person in enumerate(self.desk.people(4)):
            while isinstance(lease := self.store.next("p", person), Lease):
                better = self.desk.better(lease)
                label = {
                    "strength": (better, -better, 0, better)[number],
                    "why": f"Because of {number} <b>.",
                }
                key = f"{person}{lease.assignment}"
                self.store.note("p", person, lease.assignment, f"n{key}", f"A note, number {number}.")
                self.store.submit("p", person, lease.assignment, key, label, seconds=12.5)
        found = review.search_tasks(self.store, "p", state="review").tasks
        return [task.id for task in found]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path / "labels.db")
    yield made
    made.reports.close()
    made.store.close()


def a_report(office: Office, **more: Any) -> Quality:
    """A report with something of everything, of the position of now."""
    _, seq = review_position(office)
    figure = Figure(value=0.71, low=0.66, high=0.75, n=400)
    nothing = Figure(value=None, reason="no label says anything of it")
    row = AgreementRow(
        part="all",
        name="",
        level="ordinal",
        alpha=figure,
        gwet=figure,
        percent=figure,
        labels=400,
        units=200,
        people=4,
        prompts=100,
    )
    person = PersonQuality(
        name="a2",
        standing="active",
        labels=100,
        seconds=12.5,
        gold=figure,
        skill=figure,
        habit="first",
        habit_shares={"first": 0.9, "second": 0.1, "tie": 0.0},
        held_out=figure,
        consistency=nothing,
        first=figure,
        longer=nothing,
        lists=nothing,
        refusals=nothing,
        place_odds=figure,
        place_p=0.01,
        drift=(Drift(what="seconds", before=14.2, now=3.1, p=0.0002, n=50),),
        skipped=0,
    )
    return Quality(
        **{
            "project": "p",
            "kind": "pair",
            "seq": seq,
            "labels": 400,
            "people": 4,
            "agreement": (row,),
            "annotators": (person,),
            "biases": (Odds(name="length", unit="twice as long", odds=figure, p=0.01),),
            "proposals": (Proposal(name="a2", standing="suspended", reasons=("12 of 30 <i> are right",)),),
            "consensus": Consensus(pairs=300, labels=900, certain=0.61, tied=0.08, undecided=24),
            "notes": ("Left out: nothing.",),
            **more,
        }
    )


def review_position(office: Office) -> tuple[Any, int]:
    from plaudit.labelling.quality.cache import read_report

    return read_report(office.store, "p")


# Who may open what.


def test_every_page_is_for_those_whose_scope_it_is(office: Office) -> None:
    (task, *_), person = office.divide(), office.annotator.pseudonym
    keep_report(office.store, quality_to_dict(a_report(office)))
    own = [page for page in PAGES if page.path.startswith("/manage")]
    assert {page.path for page in own if page.method == "GET"} >= {*PATHS}
    may = {"owner": office.owner, "reviewer": office.reviewer, "annotator": office.annotator}
    scopes = {"owner": {"review", "read", "manage"}, "reviewer": {"label", "review", "read"}}
    for page in own:
        path = page.path.replace("{task}", task).replace("{person}", person)
        for role, browser in may.items():
            allowed = page.scope in scopes.get(role, {"label"})
            if page.method == "GET":
                found = browser.get(path)
                assert (found.status_code == 200) == allowed, (role, path, found.status_code)
            elif not allowed:
                found = browser.post(path)
                assert found.status_code == 403, (role, path, found.status_code)
    refused = [event.actor for event in review.trail(office.store, "p", kinds=("refused",))]
    assert {*refused} == {office.annotator.pseudonym, office.reviewer.pseudonym}


def test_who_is_signed_out_is_led_to_the_sign_in(office: Office) -> None:
    stranger = TestClient(office.app, base_url=HERE)
    for path in PATHS:
        assert stranger.get(path).url.path == "/enter"
    sent = stranger.post("/manage/invites", data={"role": "owner"}, headers=SAME)
    assert sent.status_code == 401


def test_what_is_another_projects_is_not_there(office: Office) -> None:
    office.store.set_project(Project(name="q"), actor="o1")
    other = Browser(office, "owner", "q")
    task, person = office.divide()[0], office.annotator.pseudonym
    # In both projects people are called by the same pseudonyms: this one is not there in the other.
    office.desk.people(1)
    assert other.get(f"/manage/tasks/{task}").status_code == 404
    assert other.get("/manage/people/a3").status_code == 404
    for path in (f"/manage/tasks/{task}/close", f"/manage/tasks/{task}/gold", f"/manage/queue/{task}"):
        assert other.post(path, reason="mine", key="k", strength="1").status_code == 404
    for verb in ("standing", "sessions", "export", "erase"):
        found = other.post(
            f"/manage/people/{person}/{verb}", standing="suspended", reason="x", confirm=person
        )
        assert found.status_code == 404, verb
    invite = office.store.invite("p", actor="o1")
    (listed,) = review.invites(office.store, "p")
    other.post("/manage/invites/end", invite=listed.id)
    assert office.store.look_at_invite(invite).uses == 1
    assert "What is 1" not in other.get("/manage/tasks").text


@pytest.mark.parametrize("language", ["en", "de", "ar"])
def test_pages_have_one_heading_captions_and_headers_with_scopes(office: Office, language: str) -> None:
    task = office.divide()[0]
    keep_report(office.store, quality_to_dict(a_report(office)))
    paths = [*PATHS[:-1], f"/manage/tasks/{task}", "/manage/people/a2"]
    for path in paths:
        page = office.owner.get(path, language)
        assert page.status_code == 200, path
        assert len(re.findall(r"<h1[ >]", page.text)) == 1, path
        assert page.text.count("<table") == page.text.count("<caption"), path
        assert not re.findall(r"<th(?![^>]*scope=)[ >]", page.text), path
        assert not re.findall(r"\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page.text), path
        assert "<b>" not in page.text


# Overview and tasks.


def test_the_overview_counts_and_leads_to_what_waits(office: Office) -> None:
    assert "no labels" not in office.owner.get("/manage").text
    divided = office.divide()
    page = office.owner.get("/manage").text
    assert f"People stay divided on {len(divided)} tasks." in page
    assert 'href="/manage/queue"' in page
    days = review.labels_per_day(office.store, "p")
    assert len(days) == 28
    assert days[-1] == ("2026-03-01", 16)
    assert "16 on the busiest day" in page


def test_an_empty_project_says_so(tmp_path: Path) -> None:
    office = Office(tmp_path / "labels.db")
    try:
        for task in review.search_tasks(office.store, "p").tasks:
            office.store.close_task("p", task.id, reason="none", actor="o1")
        office.store.set_project(Project(name="empty"), actor="o1")
        owner = Browser(office, "owner", "empty")
        assert "nothing to label yet" in owner.get("/manage").text
        assert "Nothing fits." in owner.get("/manage/tasks").text
        assert "Nothing waits" in owner.get("/manage/queue").text
        assert "Nothing was decided" in owner.get("/manage/gaps").text
        export = owner.post("/manage/export", group="people", adjudicated="yes")
        assert (export.status_code, "nothing to export" in export.text) == (422, True)
    finally:
        office.store.close()


def test_tasks_are_found_by_words_in_any_order_case_and_alphabet(office: Office) -> None:
    prompts = ["Wie groß ist die ÜBERRASCHUNG?", 'Say "no" 100% of the time\\now', "لماذا السماء زرقاء؟"]
    office.store.add_tasks(
        "p", [pair_body(50 + at, prompt=text) for at, text in enumerate(prompts)], actor="o"
    )

    def found(words: str) -> list[str]:
        return [task.prompt for task in review.search_tasks(office.store, "p", words=words).tasks]

    assert found("überraschung GROSS") == found("Überraschung groß") == prompts[:1]
    assert found('"NO" 100%') == prompts[1:2]
    assert found("time\\now") == prompts[1:2]
    assert found("زرقاء") == prompts[2:]
    assert found("100_") == []
    assert found("its answers are") == []
    assert len(found("what is")) == 4
    page = office.owner.get("/manage/tasks", "en")
    assert "لماذا السماء زرقاء؟" in page.text
    assert "Nothing fits." in office.owner.get("/manage/tasks?words=zebra").text
    assert office.owner.get("/manage/tasks?state=nonsense").status_code == 422
    assert office.owner.get("/manage/tasks?after=x").status_code == 422
    assert office.owner.get("/manage/tasks?after=" + "9" * 30).status_code == 422


def test_pages_of_tasks_follow_one_another_without_gap_or_repeat(office: Office) -> None:
    office.store.add_tasks("p", [pair_body(100 + number) for number in range(120)], actor="o1")
    listed, path, pages = list[str](), "/manage/tasks?words=what", 0
    while True:
        page, pages = office.owner.get(path).text, pages + 1
        listed += re.findall(r'href="/manage/tasks/(t\w+)"', page)
        onward = re.search(r'href="(/manage/tasks\?[^"]*after=\d+)"', page)
        if onward is None:
            break
        path = onward[1].replace("&amp;", "&")
    assert (pages, len(listed), len({*listed})) == (3, 124, 124)


def test_a_task_shows_owners_who_gave_what_and_where_answers_come_from(office: Office) -> None:
    task = office.divide()[0]
    page = office.owner.get(f"/manage/tasks/{task}").text
    for words in ("secret-model-a", "a3", "A is better: clearly", "equally good", "A note, number 2."):
        assert words in page, words
    assert "Because of 0 &lt;b&gt;." in page
    assert "person 0" not in page


def test_a_reviewer_sees_a_divided_task_without_people_and_models(office: Office) -> None:
    task = office.divide()[0]
    page = office.reviewer.get(f"/manage/tasks/{task}").text
    assert "A is better: clearly" in page
    assert not re.search(r"secret-model|/manage/people/a\d|· a\d", page)


def test_items_whose_answer_is_known_are_for_owners_alone(office: Office) -> None:
    office.store.add_tasks("p", [pair_body(77, gold={"better": 0})], actor="o1")
    (item,) = review.search_tasks(office.store, "p", state="item", items=True).tasks
    assert item.id in office.owner.get("/manage/tasks").text
    assert "&#34;better&#34;: 0" in office.owner.get(f"/manage/tasks/{item.id}").text
    assert item.id not in office.reviewer.get("/manage/tasks").text
    assert item.id not in office.reviewer.get("/manage/tasks?state=item").text
    assert office.reviewer.get(f"/manage/tasks/{item.id}").status_code == 404


def test_a_task_is_closed_once_with_a_reason(office: Office) -> None:
    task = review.search_tasks(office.store, "p").tasks[0].id
    again = office.owner.post(f"/manage/tasks/{task}/close", reason=" ")
    assert (again.status_code, "reason-fault" in again.text) == (422, True)
    for _ in range(2):
        page = office.owner.post(f"/manage/tasks/{task}/close", reason="It is about a <person>.")
        assert page.status_code == 200
        assert "It is about a &lt;person&gt;." in page.text
    assert len(review.trail(office.store, "p", kinds=("task-closed",))) == 1


def test_tasks_are_added_as_lines_and_a_wrong_line_is_named(office: Office) -> None:
    right = [json.dumps(pair_body(number)) for number in (1, 201, 202)]
    wrong = [right[0], "", "{not json", json.dumps({"prompt": "x", "candidates": []}), right[1]]
    page = office.owner.post("/manage/add", lines="\r\n".join(wrong))
    assert page.status_code == 422
    assert re.findall(r'<th scope="row" class="number">(\d+)</th>', page.text) == ["3", "4"]
    assert "{not json" in page.text
    assert "2 lines are wrong" in page.text
    assert office.store.status("p").tasks == {"open": 4}
    page = office.owner.post("/manage/add", lines="\n".join(right))
    assert ("2 tasks were added." in page.text, "1 was there already" in page.text) == (True, True)
    again = office.owner.post("/manage/add", lines="\n".join(right))
    assert "0 tasks were added." in again.text
    assert office.store.status("p").tasks == {"open": 6}
    assert office.owner.post("/manage/add", lines="\n").status_code == 422
    many = office.owner.post("/manage/add", lines="{}\n" * 20_001)
    assert (many.status_code, "at most 20,000" in many.text) == (413, True)


# Settings.


def settings_form(office: Office, **more: Any) -> dict[str, Any]:
    """What the form of the settings holds, as a browser reads it."""
    page = office.owner.get("/manage/settings").text
    names = re.findall(r'<input id="(\w+)" name="\w+" type="text" value="([^"]*)"', page)
    areas = re.findall(r'<textarea id="(\w+)"[^>]*>\n(.*?)</textarea>', page, re.S)
    seq = re.search(r'name="seq" value="(\d+)"', page)
    assert seq
    return {**dict(names), **dict(areas), "ties": "yes", "text": "plain", "seq": seq[1], **more}


def test_settings_are_changed_and_the_page_says_what_changed(office: Office) -> None:
    before = office.store.project("p")
    assert "Nothing was different" in office.owner.post("/manage/settings", **settings_form(office)).text
    form = settings_form(
        office, overlap="3", guidelines="Prefer what is kind.\r\nAlways.", scale="a bit\nmuch"
    )
    page = office.owner.post("/manage/settings", **form)
    assert page.status_code == 200
    assert re.search(r"Changed: \s*Guidelines,\s+Words for how much better,\s+Labels of each task", page.text)
    now = office.store.project("p")
    assert (now.overlap, now.guidelines, now.scale) == (3, "Prefer what is kind.\nAlways.", ("a bit", "much"))
    assert (now.flags, now.gold_share) == (before.flags, before.gold_share)
    changes = review.settings_history(office.store, "p")
    assert changes[0].changed == ("guidelines", "scale", "overlap")
    assert changes[0].actor == office.owner.pseudonym
    del form["ties"]
    office.owner.post("/manage/settings", **settings_form(office) | {"ties": "no"})
    assert office.store.project("p").ties is False


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("overlap", "two"),
        ("overlap", ""),
        ("gold_share", "1.5"),
        ("gold_share", "nan"),
        ("text", "html"),
        ("scale", ""),
        ("points", "1"),
        ("qualify_n", "9" * 40),
        ("flags", "same\nsame"),
        ("question", "x" * 20_000),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_the_form_is_shown_again(
    office: Office, field: str, value: str
) -> None:
    before = office.store.project("p")
    form = settings_form(office, question="Which one, then?") | {field: value}
    page = office.owner.post("/manage/settings", **form)
    assert page.status_code == 422
    assert value[:20] in page.text
    assert field == "question" or "Which one, then?" in page.text
    assert office.store.project("p") == before


def test_settings_that_somebody_else_changed_meanwhile_are_not_overwritten(office: Office) -> None:
    form = settings_form(office, overlap="5")
    office.owner.post("/manage/settings", **settings_form(office, lease_minutes="60"))
    page = office.owner.post("/manage/settings", **form)
    assert page.status_code == 409
    assert 'value="5"' in page.text
    assert "changed meanwhile" in page.text
    assert (office.store.project("p").overlap, office.store.project("p").lease_minutes) == (2, 60)


def test_what_the_server_reads_is_not_set_by_a_browser(office: Office) -> None:
    form = settings_form(
        office, talks_to="http://169.254.169.254/#x", gold_rows="/etc/passwd", name="q", ask="rank"
    )
    assert "Nothing was different" in office.owner.post("/manage/settings", **form).text
    now = office.store.project("p")
    assert (now.talks_to, now.gold_rows, now.name, now.ask) == (None, None, "p", "pair")


def test_a_scale_of_other_degrees_is_refused_once_there_are_labels(office: Office) -> None:
    office.divide()
    page = office.owner.post("/manage/settings", **settings_form(office, scale="worse\nbetter"))
    assert (page.status_code, "make another project" in page.text) == (422, True)


# Exports, pay and the audit trail.


def test_an_export_is_a_zip_that_can_be_traced(office: Office, tmp_path: Path) -> None:
    office.divide()
    page = office.owner.post("/manage/export", group="people", adjudicated="yes")
    assert page.headers["content-disposition"] == 'attachment; filename="labels.zip"'
    again = office.owner.post("/manage/export", group="people", adjudicated="yes")
    assert again.content == page.content
    with zipfile.ZipFile(io.BytesIO(page.content)) as archive:
        assert archive.namelist() == ["rows.jsonl", "rows.snapshot.json"]
        archive.extractall(tmp_path / "out")
    from plaudit.labelling.export import read_snapshot, trace_row

    assert read_snapshot(tmp_path / "out" / "rows.jsonl").rows == 16
    assert trace_row(office.store, tmp_path / "out" / "rows.jsonl", 1)[-1].kind == "exported"
    assert office.owner.post("/manage/export", group="everybody").status_code == 422


def test_the_pay_sheet_has_everybody_and_no_formula(office: Office) -> None:
    office.divide()
    invite = office.store.invite("p", actor="o1")
    office.store.join(invite, "=HYPERLINK(1)")
    page = office.owner.get("/manage/pay.csv")
    assert "attachment" in page.headers["content-disposition"]
    rows = {row["pseudonym"]: row for row in csv.DictReader(io.StringIO(page.content.decode("utf-8-sig")))}
    assert (rows["a2"]["labels"], rows["a2"]["seconds"]) == ("4", "50.0")
    assert rows["a6"]["name"] == "'=HYPERLINK(1)"


def test_the_audit_trail_is_read_page_by_page(office: Office) -> None:
    for number in range(70):
        office.store.refused("p", "nobody", f"attempt {number} <b>")
    first = office.owner.get("/manage/log?kind=refused")
    assert "attempt 69 &lt;b&gt;" in first.text
    onward = re.search(r'href="(/manage/log\?kind=refused&amp;before=\d+)"', first.text)
    assert onward
    second = office.owner.get(onward[1].replace("&amp;", "&")).text
    seen = re.findall(r"attempt (\d+) ", first.text + second)
    assert seen == [str(number) for number in reversed(range(70))]
    assert office.owner.get("/manage/log?kind=answered").status_code == 422
    assert "Prefer what is true" not in office.owner.get("/manage/log").text


# People.


def test_names_are_for_owners_and_pseudonyms_for_reviewers(office: Office) -> None:
    office.divide()
    for path in ("/manage/people", "/manage/people/a2"):
        assert "person 0" in office.owner.get(path).text
        assert "person 0" not in office.reviewer.get(path).text
    assert office.owner.get("/manage/people/a99").status_code == 404


def test_a_standing_is_decided_once_with_its_reason(office: Office) -> None:
    office.divide()
    missing = office.reviewer.post("/manage/people/a2/standing", standing="suspended", reason="")
    assert (missing.status_code, "reason-fault" in missing.text) == (422, True)
    assert office.reviewer.post("/manage/people/a2/standing", standing="king", reason="x").status_code == 422
    for _ in range(2):
        page = office.reviewer.post(
            "/manage/people/a2/standing", standing="suspended", reason="Clicks <left>", next="/manage/quality"
        )
        assert page.url.path == "/manage/quality"
    assert "Clicks &lt;left&gt;" in office.reviewer.get("/manage/people/a2").text
    decided = review.trail(office.store, "p", kinds=("standing-set",))
    assert [(event.actor, event.body) for event in decided] == [
        (office.reviewer.pseudonym, {"standing": "suspended", "reason": "Clicks <left>"})
    ]


def test_nobody_decides_about_themselves_and_reviewers_not_about_owners(office: Office) -> None:
    tried = [
        (office.reviewer, office.reviewer.pseudonym),
        (office.reviewer, office.owner.pseudonym),
        (office.owner, office.owner.pseudonym),
    ]
    for browser, person in tried:
        found = browser.post(f"/manage/people/{person}/standing", standing="watch", reason="x")
        assert found.status_code == 403
        assert 'name="standing"' not in browser.get(f"/manage/people/{person}").text
    refused = review.trail(office.store, "p", kinds=("refused",))
    assert len(refused) == 3
    found = office.owner.post(
        f"/manage/people/{office.reviewer.pseudonym}/standing", standing="suspended", reason="x"
    )
    assert found.status_code == 200
    assert office.reviewer.get("/manage").url.path == "/enter"


def test_sessions_of_a_person_are_listed_and_ended(office: Office) -> None:
    person = office.annotator.pseudonym
    (entry,) = office.store.sessions("p", person)
    assert entry.id in office.owner.get(f"/manage/people/{person}").text
    page = office.owner.post(f"/manage/people/{person}/sessions", session=entry.id)
    assert "Nowhere." in page.text
    assert office.annotator.get("/account").url.path == "/enter"
    office.store.open_session("p", person)
    token = office.store.token("p", "annotator", name="Bo")
    office.owner.post(f"/manage/people/{token.pseudonym}/sessions")
    assert office.store.identity(token.token) is None


def test_a_person_is_handed_out_as_a_file_and_erased_by_a_typed_word(office: Office) -> None:
    office.divide()
    page = office.owner.post("/manage/people/a2/export")
    assert page.headers["content-disposition"] == 'attachment; filename="a2.json"'
    assert "person 0" in page.text
    assert "Because of 0" in page.text
    wrong = office.owner.post("/manage/people/a2/erase", confirm="a3")
    assert (wrong.status_code, "confirm-fault" in wrong.text) == (422, True)
    for _ in range(2):
        page = office.owner.post("/manage/people/a2/erase", confirm="a2")
        assert "no name and no words are left" in page.text
        assert "person 0" not in page.text
    assert 'name="confirm"' not in page.text
    assert "Because of 0" not in office.owner.get(f"/manage/tasks/{office_task(office)}").text
    assert office.store.check() == []
    own = office.owner.pseudonym
    assert office.owner.post(f"/manage/people/{own}/erase", confirm=own).status_code == 403


def office_task(office: Office) -> str:
    return review.search_tasks(office.store, "p").tasks[0].id


# Invites.


def test_an_invite_is_made_once_and_its_secret_shown_once(office: Office) -> None:
    page = office.owner.get("/manage/invites")
    key = re.search(r'name="key" value="([^"]+)"', page.text)
    assert key
    form = {"key": key[1], "role": "reviewer", "uses": "3", "days": "0.5"}
    made = office.owner.post("/manage/invites", **form)
    address = re.search(rf'value="{HERE}/join/(i_[\w-]+)"', made.text) or re.search(
        r'value="http://[^"]+/join/(i_[\w-]+)"', made.text
    )
    assert address
    view = office.store.look_at_invite(address[1])
    assert (view.role, view.uses, view.expires) == ("reviewer", 3, "2026-03-02T00:00:00.000000Z")
    again = office.owner.post("/manage/invites", **form)
    assert (again.status_code, "shown only once" in again.text) == (409, True)
    assert len(review.invites(office.store, "p")) == 1
    assert address[1] not in office.owner.get("/manage/invites").text + office.owner.get("/manage/log").text


@pytest.mark.parametrize(
    ("field", "value"),
    [("uses", "0"), ("uses", "many"), ("days", "nan"), ("days", "1000"), ("role", "king"), ("tasks", "5")],
)
def test_an_impossible_invite_is_refused_and_the_form_shown_again(
    office: Office, field: str, value: str
) -> None:
    form = {"key": "k", "role": "annotator", "uses": "7", "days": "3"} | {field: value}
    page = office.owner.post("/manage/invites", **form)
    assert page.status_code == 422
    assert "fault" in page.text
    assert 'value="k"' in page.text
    assert field == "uses" or 'value="7"' in page.text
    assert review.invites(office.store, "p") == []


def test_a_panels_invite_has_a_code_and_is_ended(office: Office) -> None:
    form = {"key": "k", "role": "annotator", "uses": "50", "days": "3", "code": "C1X7", "tasks": "20"}
    page = office.owner.post("/manage/invites", **form).text
    assert "C1X7" in page
    assert "after 20 answers" in page
    (listed,) = review.invites(office.store, "p")
    assert (listed.code, listed.tasks, listed.uses) == ("C1X7", 20, 50)
    for _ in range(2):
        ended = office.owner.post("/manage/invites/end", invite=listed.id)
        assert "lets nobody in" in ended.text
    assert review.invites(office.store, "p") == []
    assert [event.body for event in review.trail(office.store, "p", kinds=("revoked",))] == [
        {"invite": listed.id, "role": "annotator", "uses": 50}
    ]
    office.store.invite("p", actor="o1", panel=Panel(code="C2"))
    assert "C2" not in office.owner.get("/manage/log").text


# The queue, gold items and gaps.


def test_a_divided_task_is_decided_blind_with_a_reason(office: Office) -> None:
    tasks = office.divide()
    page = office.reviewer.get("/manage/queue").text
    assert f"{len(tasks)} wait for a decision" in page
    assert "What 4 people chose" in page
    assert "Because of 3 &lt;b&gt;." in page
    assert "A note, number 1." in page
    assert not re.search(r"secret-model|>a\d<|person 0<", page)
    key = re.search(r'name="key" value="([^"]+)"', page)
    assert key
    form = {"key": key[1], "strength": "-2", "decision_reason": "guideline-gap", "why": "Is a guess worse?"}
    decided = [office.reviewer.post(f"/manage/queue/{tasks[0]}", **form).text for _ in range(2)]
    assert all("Decided. Here is what comes next." in page for page in decided)
    details = review.task_details(office.store, "p", tasks[0])
    assert details.state == "adjudicated"
    assert details.decision is not None
    assert details.decision.label == {"strength": -2, "why": "Is a guess worse?"}
    assert len(review.trail(office.store, "p", kinds=("adjudicated",))) == 1
    assert tasks[1] in decided[1]
    other = office.owner.post(f"/manage/queue/{tasks[0]}", **form | {"key": "another"})
    assert (other.status_code, "decided meanwhile" in other.text) == (409, True)
    gaps = office.reviewer.get("/manage/gaps").text
    assert "Is a guess worse?" in gaps
    assert "A gap in the guidelines" in gaps


def test_a_decision_that_lacks_something_shows_the_form_again(office: Office) -> None:
    task = office.divide()[0]
    path = f"/manage/queue/{task}"
    page = office.reviewer.post(path, key="k1", strength="1", why="Words that stay.")
    assert (page.status_code, "Words that stay." in page.text) == (422, True)
    assert 'id="reason-fault"' in page.text
    assert re.search(r'name="strength" value="1"[^>]* checked', page.text)
    page = office.reviewer.post(path, key="k1", decision_reason="taste")
    assert page.status_code == 422
    assert re.search(r'value="taste"[^>]* checked', page.text)
    page = office.reviewer.post(path, key="k1", strength="0", decision_reason="taste", gold="yes")
    assert (page.status_code, 'id="gold-fault"' in page.text) == (422, True)
    assert review.task_details(office.store, "p", task).state == "review"
    assert office.reviewer.get("/manage/queue?after=0&differences=yes").text.count("<mark>") > 0


def test_another_task_may_come_first_and_the_last_leads_to_the_first(office: Office) -> None:
    office.divide()
    first = re.search(r'action="/manage/queue/(t\w+)"', office.reviewer.get("/manage/queue").text)
    assert first
    found, page = [first[1]], office.reviewer.get("/manage/queue").text
    for _ in range(4):
        onward = re.search(r'href="(/manage/queue\?after=\d+)">Another', page)
        assert onward
        page = office.reviewer.get(onward[1]).text
        shown = re.search(r'action="/manage/queue/(t\w+)"', page)
        assert shown
        found.append(shown[1])
    assert (len({*found}), found[4]) == (4, found[0])


def test_a_decision_becomes_a_gold_item_once(office: Office) -> None:
    tasks = office.divide()
    form = {"key": "k", "strength": "-1", "decision_reason": "error", "gold": "yes"}
    for _ in range(2):
        page = office.reviewer.post(f"/manage/queue/{tasks[0]}", **form)
        assert "made a gold item" in page.text
    (item,) = review.search_tasks(office.store, "p", state="item", items=True).tasks
    body = review.task_details(office.store, "p", item.id).body
    assert body["gold"] == {"better": 0}
    page = office.owner.post(f"/manage/tasks/{tasks[0]}/gold")
    assert "There is a gold item" in page.text
    assert office.store.status("p").tasks["item"] == 1
    assert office.owner.post(f"/manage/tasks/{tasks[1]}/gold").status_code == 403


# Quality.


def test_the_quality_page_shows_the_report_and_proposals_are_decided_there(office: Office) -> None:
    office.divide()
    keep_report(office.store, quality_to_dict(a_report(office)))
    page = office.reviewer.get("/manage/quality").text
    for words in ("0.71", "0.66–0.75", "12 of 30 &lt;i&gt; are right", "the first", "no label says", "61 %"):
        assert words in page, words
    assert "being computed" not in page
    assert 'action="/manage/people/a2/standing"' in page
    person = office.reviewer.get("/manage/people/a2").text
    assert ("Figures of the newest report" in person, "71 %" in person) == (True, True)
    office.reviewer.post(
        "/manage/people/a2/standing", standing="suspended", reason="12 of 30", next="/manage/quality"
    )
    rows = {row["pseudonym"]: row["standing"] for row in office.store.annotators("p")}
    assert rows["a2"] == "suspended"


def test_the_report_cards_of_many_people_come_in_pages(office: Office) -> None:
    report = quality_to_dict(a_report(office, proposals=()))
    (card,) = report["annotators"]
    keep_report(office.store, report | {"annotators": [card | {"name": f"a{n}"} for n in range(120)]})
    listed, path = list[str](), "/manage/quality"
    while path:
        page = office.reviewer.get(path).text
        listed += re.findall(r'href="/manage/people/(a\d+)"', page)
        onward = re.search(r'href="(/manage/quality\?from=\d+)#people"', page)
        path = onward[1] if onward else ""
    assert listed == [f"a{n}" for n in range(120)]


def test_while_a_report_is_computed_the_page_says_so_and_then_has_it(office: Office) -> None:
    office.divide()
    page = office.reviewer.get("/manage/quality").text
    assert "is being computed" in page
    assert 'href="/manage/quality">Look again' in page
    # The real child process, however long it takes on a busy machine.
    for child in [*office.reports._children.values()]:
        child.wait(timeout=300)
    page = office.reviewer.get("/manage/quality").text
    assert "Krippendorff" in page
    assert "being computed" not in page
