"""The pages of those who run a project, as a browser has them: who may open which, tasks, exports."""

import io
import json
import re
import zipfile
from typing import Any

import pytest

from plaudit.collect import review
from plaudit.collect.adding import add_tasks, close_task, set_project
from plaudit.collect.export import read_snapshot, trace_row
from plaudit.collect.people import record_refusal
from plaudit.collect.progress import project_status
from plaudit.collect.project import Project
from plaudit.collect.quality.cache import keep_report
from plaudit.collect.quality.result import quality_to_dict
from tests.collect.desks import pair_body
from tests.collect.offices import Browser, Office, a_report

PATHS = (
    *("/manage", "/manage/tasks", "/manage/queue", "/manage/quality", "/manage/gaps", "/manage/people"),
    *("/manage/invites", "/manage/settings", "/manage/export", "/manage/log", "/manage/add"),
    "/manage/pay.csv",
)


# Who may open what.


@pytest.mark.one_in(3)
@pytest.mark.parametrize("language", ["en", "de", "ar"])
def test_pages_have_one_heading_captions_and_headers_with_scopes(office, language):
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


def test_the_overview_counts_and_leads_to_what_waits(office):
    assert "no labels" not in office.owner.get("/manage").text
    divided = office.divide()
    page = office.owner.get("/manage").text
    assert f"People stay divided on {len(divided)} tasks." in page
    assert 'href="/manage/queue"' in page
    days = review.labels_per_day(office.store, "p")
    assert len(days) == 28
    assert days[-1] == ("2026-03-01", 16)
    assert "16 on the busiest day" in page


@pytest.mark.one_in(2)
def test_pages_of_managing_are_read_from_both_databases(where):
    office = Office(where)
    try:
        task, *_ = office.divide()
        for path in (*PATHS, f"/manage/tasks/{task}", f"/manage/people/{office.annotator.pseudonym}"):
            assert office.owner.get(path).status_code == 200, path
    finally:
        office.reports.close()
        office.store.close()


@pytest.mark.slow
def test_an_empty_project_says_so(tmp_path):
    office = Office(tmp_path / "labels.db")
    try:
        for task in review.search_tasks(office.store, "p").tasks:
            office.store.write(close_task, "p", task.id, reason="none", actor="o1")
        office.store.write(set_project, Project(name="empty"), actor="o1")
        owner = Browser(office, "owner", "empty")
        assert "nothing to label yet" in owner.get("/manage").text
        assert "Nothing fits." in owner.get("/manage/tasks").text
        assert "Nothing waits" in owner.get("/manage/queue").text
        assert "Nothing was decided" in owner.get("/manage/gaps").text
        export = owner.post("/manage/export", group="people", adjudicated="yes")
        assert (export.status_code, "nothing to export" in export.text) == (422, True)
    finally:
        office.store.close()


def test_tasks_are_found_by_words_in_any_order_case_and_alphabet(office):
    prompts = ["Wie groß ist die ÜBERRASCHUNG?", 'Say "no" 100% of the time\\now', "لماذا السماء زرقاء؟"]
    office.store.write(
        add_tasks, "p", [pair_body(50 + at, prompt=text) for at, text in enumerate(prompts)], actor="o"
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


def test_pages_of_tasks_follow_one_another_without_gap_or_repeat(office):
    office.store.write(add_tasks, "p", [pair_body(100 + number) for number in range(120)], actor="o1")
    listed, path, pages = list[str](), "/manage/tasks?words=what", 0
    while True:
        page, pages = office.owner.get(path).text, pages + 1
        listed += re.findall(r'href="/manage/tasks/(t\w+)"', page)
        onward = re.search(r'href="(/manage/tasks\?[^"]*after=\d+)"', page)
        if onward is None:
            break
        path = onward[1].replace("&amp;", "&")
    assert (pages, len(listed), len({*listed})) == (3, 124, 124)


def test_a_task_shows_owners_who_gave_what_and_reviewers_neither_people_nor_models(office):
    task = office.divide()[0]
    page = office.owner.get(f"/manage/tasks/{task}").text
    for words in ("secret-model-a", "a3", "A is better: clearly", "equally good", "A note, number 2."):
        assert words in page, words
    assert "Because of 0 &lt;b&gt;." in page
    assert "person 0" not in page
    page = office.reviewer.get(f"/manage/tasks/{task}").text
    assert "A is better: clearly" in page
    assert not re.search(r"secret-model|/manage/people/a\d|· a\d", page)


def test_items_whose_answer_is_known_are_for_owners_alone(office):
    office.store.write(add_tasks, "p", [pair_body(77, gold={"better": 0})], actor="o1")
    (item,) = review.search_tasks(office.store, "p", state="item", items=True).tasks
    assert item.id in office.owner.get("/manage/tasks").text
    assert "&#34;better&#34;: 0" in office.owner.get(f"/manage/tasks/{item.id}").text
    assert item.id not in office.reviewer.get("/manage/tasks").text
    assert item.id not in office.reviewer.get("/manage/tasks?state=item").text
    assert office.reviewer.get(f"/manage/tasks/{item.id}").status_code == 404


def test_a_task_is_closed_once_with_a_reason(office):
    task = review.search_tasks(office.store, "p").tasks[0].id
    again = office.owner.post(f"/manage/tasks/{task}/close", reason=" ")
    assert (again.status_code, "reason-fault" in again.text) == (422, True)
    for _ in range(2):
        page = office.owner.post(f"/manage/tasks/{task}/close", reason="It is about a <person>.")
        assert page.status_code == 200
        assert "It is about a &lt;person&gt;." in page.text
    assert len(review.trail(office.store, "p", kinds=("task-closed",))) == 1


def test_tasks_are_added_as_lines_and_a_wrong_line_is_named(office):
    right = [json.dumps(pair_body(number)) for number in (1, 201, 202)]
    wrong = [right[0], "", "{not json", json.dumps({"prompt": "x", "candidates": []}), right[1]]
    page = office.owner.post("/manage/add", lines="\r\n".join(wrong))
    assert page.status_code == 422
    assert re.findall(r'<th scope="row" class="number">(\d+)</th>', page.text) == ["3", "4"]
    assert "{not json" in page.text
    assert "2 lines are wrong" in page.text
    assert office.store.read(project_status, "p").tasks == {"open": 4}
    page = office.owner.post("/manage/add", lines="\n".join(right))
    assert ("2 tasks were added." in page.text, "1 task was there already" in page.text) == (True, True)
    again = office.owner.post("/manage/add", lines="\n".join(right))
    assert "0 tasks were added." in again.text
    assert office.store.read(project_status, "p").tasks == {"open": 6}
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


def test_settings_are_changed_and_the_page_says_what_changed(office):
    before = office.store.project("p")
    assert "Nothing was different" in office.owner.post("/manage/settings", **settings_form(office)).text
    guidelines = "Prefer what is kind.\r\nAlways."
    form = settings_form(office, overlap="3", guidelines=guidelines, scale="a bit\nmuch")
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
def test_a_setting_that_cannot_be_is_refused_and_the_form_is_shown_again(office, field, value):
    before = office.store.project("p")
    form = settings_form(office, question="Which one, then?") | {field: value}
    page = office.owner.post("/manage/settings", **form)
    assert page.status_code == 422
    assert value[:20] in page.text
    assert field == "question" or "Which one, then?" in page.text
    assert office.store.project("p") == before


def test_settings_that_somebody_else_changed_meanwhile_are_not_overwritten(office):
    form = settings_form(office, overlap="5")
    office.owner.post("/manage/settings", **settings_form(office, lease_minutes="60"))
    page = office.owner.post("/manage/settings", **form)
    assert page.status_code == 409
    assert 'value="5"' in page.text
    assert "changed meanwhile" in page.text
    assert (office.store.project("p").overlap, office.store.project("p").lease_minutes) == (2, 60)


def test_what_the_server_reads_is_not_set_by_a_browser(office):
    form = settings_form(
        office, talks_to="http://169.254.169.254/#x", gold_rows="/etc/passwd", name="q", ask="rank"
    )
    assert "Nothing was different" in office.owner.post("/manage/settings", **form).text
    now = office.store.project("p")
    assert (now.talks_to, now.gold_rows, now.name, now.ask) == (None, None, "p", "pair")


# Exports, pay and the audit trail.


def test_an_export_is_a_zip_that_can_be_traced(office, tmp_path):
    office.divide()
    page = office.owner.post("/manage/export", group="people", adjudicated="yes")
    assert page.headers["content-disposition"] == 'attachment; filename="labels.zip"'
    again = office.owner.post("/manage/export", group="people", adjudicated="yes")
    assert again.content == page.content
    with zipfile.ZipFile(io.BytesIO(page.content)) as archive:
        assert archive.namelist() == ["rows.jsonl", "rows.snapshot.json"]
        archive.extractall(tmp_path / "out")
    assert read_snapshot(tmp_path / "out" / "rows.jsonl").rows == 16
    assert trace_row(office.store, tmp_path / "out" / "rows.jsonl", 1)[-1].kind == "exported"
    assert office.owner.post("/manage/export", group="everybody").status_code == 422


def test_the_audit_trail_is_read_page_by_page(office):
    for number in range(70):
        office.store.write(record_refusal, "p", "nobody", f"attempt {number} <b>")
    first = office.owner.get("/manage/log?kind=refused")
    assert "attempt 69 &lt;b&gt;" in first.text
    onward = re.search(r'href="(/manage/log\?kind=refused&amp;before=\d+)"', first.text)
    assert onward
    second = office.owner.get(onward[1].replace("&amp;", "&")).text
    seen = re.findall(r"attempt (\d+) ", first.text + second)
    assert seen == [str(number) for number in reversed(range(70))]
    assert office.owner.get("/manage/log?kind=answered").status_code == 422
    assert "Prefer what is true" not in office.owner.get("/manage/log").text
