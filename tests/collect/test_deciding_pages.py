"""The pages of people and of decisions: names, standing, sessions, invites, the queue, gold and quality."""

import re

import pytest
from starlette.testclient import TestClient

from plaudit.cli.main import main
from plaudit.collect import review
from plaudit.collect.adding import adjudicate
from plaudit.collect.people import Panel, identity_of, issue_token, look_at_invite, make_invite, set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people, project_status, project_tasks, store_faults
from plaudit.collect.quality.cache import keep_report
from plaudit.collect.quality.result import quality_to_dict
from plaudit.collect.sessions import list_sessions, open_session
from tests.collect.offices import HERE, Browser, Office, a_report

# People.


def test_names_are_for_owners_and_pseudonyms_for_reviewers(office):
    office.divide()
    for path in ("/manage/people", "/manage/people/a2"):
        assert "person 0" in office.owner.get(path).text
        assert "person 0" not in office.reviewer.get(path).text
    assert office.owner.get("/manage/people/a99").status_code == 404


def test_a_standing_is_decided_once_with_its_reason(office):
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


def test_nobody_decides_about_themselves_and_reviewers_not_about_owners(office):
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


def test_sessions_of_a_person_are_listed_and_ended(office):
    person = office.annotator.pseudonym
    (entry,) = office.store.read(list_sessions, "p", person)
    assert entry.id in office.owner.get(f"/manage/people/{person}").text
    page = office.owner.post(f"/manage/people/{person}/sessions", session=entry.id)
    assert "Nowhere." in page.text
    assert office.annotator.get("/account").url.path == "/enter"
    office.store.write(open_session, "p", person)
    token = office.store.write(issue_token, "p", "annotator", name="Bo")
    office.owner.post(f"/manage/people/{token.pseudonym}/sessions")
    assert identity_of(office.store, token.token) is None


def test_a_person_is_handed_out_as_a_file_and_erased_by_a_typed_word(office):
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
    assert office.store.read(store_faults) == []
    own = office.owner.pseudonym
    assert office.owner.post(f"/manage/people/{own}/erase", confirm=own).status_code == 403


def office_task(office: Office) -> str:
    return review.search_tasks(office.store, "p").tasks[0].id


# Invites.


def test_an_invite_is_made_once_and_its_secret_shown_once(office):
    page = office.owner.get("/manage/invites")
    key = re.search(r'name="key" value="([^"]+)"', page.text)
    assert key
    form = {"key": key[1], "role": "reviewer", "uses": "3", "days": "0.5"}
    made = office.owner.post("/manage/invites", **form)
    address = re.search(rf'value="{HERE}/join/(i_[\w-]+)"', made.text) or re.search(
        r'value="http://[^"]+/join/(i_[\w-]+)"', made.text
    )
    assert address
    view = office.store.read(look_at_invite, address[1])
    assert (view.role, view.uses, view.expires) == ("reviewer", 3, "2026-03-02T00:00:00.000000Z")
    again = office.owner.post("/manage/invites", **form)
    assert (again.status_code, "shown only once" in again.text) == (409, True)
    assert len(review.invites(office.store, "p")) == 1
    assert address[1] not in office.owner.get("/manage/invites").text + office.owner.get("/manage/log").text


@pytest.mark.parametrize(
    ("field", "value"),
    [("uses", "0"), ("uses", "many"), ("days", "nan"), ("days", "1000"), ("role", "king"), ("tasks", "5")],
)
def test_an_impossible_invite_is_refused_and_the_form_shown_again(office, field, value):
    form = {"key": "k", "role": "annotator", "uses": "7", "days": "3"} | {field: value}
    page = office.owner.post("/manage/invites", **form)
    assert page.status_code == 422
    assert "fault" in page.text
    assert 'value="k"' in page.text
    assert field == "uses" or 'value="7"' in page.text
    assert review.invites(office.store, "p") == []


def test_a_panels_invite_has_a_code_and_is_ended(office):
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
    office.store.write(make_invite, "p", actor="o1", panel=Panel(code="C2"))
    assert "C2" not in office.owner.get("/manage/log").text


# The queue, gold items and gaps.


def test_a_divided_task_is_decided_blind_with_a_reason(office):
    tasks = office.divide()
    page = office.reviewer.get("/manage/queue").text
    assert f"{len(tasks)} tasks wait for a decision" in page
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


def test_a_decision_that_lacks_something_shows_the_form_again(office):
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


def test_another_task_may_come_first_and_the_last_leads_to_the_first(office):
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


def test_a_decision_becomes_a_gold_item_once(office):
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
    assert office.store.read(project_status, "p").tasks["item"] == 1
    assert office.owner.post(f"/manage/tasks/{tasks[1]}/gold").status_code == 403


# Quality.


def test_the_quality_page_shows_the_report_and_proposals_are_decided_there(office):
    office.divide()
    keep_report(office.store, quality_to_dict(a_report(office)))
    page = office.reviewer.get("/manage/quality").text
    for words in ("0.71", "0.66–0.75", "12 of 30 &lt;i&gt; are right", "the first", "61 %"):
        assert words in page, words
    assert "being computed" not in page
    assert 'action="/manage/people/a2/standing"' in page
    person = office.reviewer.get("/manage/people/a2").text
    for words in ("Figures of the newest report", "71 %", "no label says", "the judge", "Pasted", "→"):
        assert words in person, words
    office.reviewer.post(
        "/manage/people/a2/standing", standing="suspended", reason="12 of 30", next="/manage/quality"
    )
    rows = {row["pseudonym"]: row["standing"] for row in office.store.read(project_people, "p")}
    assert rows["a2"] == "suspended"


def test_the_report_cards_of_many_people_come_in_pages(office):
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


@pytest.mark.slow
def test_while_a_report_is_computed_the_page_says_so_and_then_has_it(office):
    office.divide()
    page = office.reviewer.get("/manage/quality").text
    assert "is being computed" in page
    assert 'href="/manage/quality">Look again' in page
    # The real child process, however long it takes on a busy machine.
    for child in [*office.reports._children.values()]:
        child.process.wait(timeout=300)
    page = office.reviewer.get("/manage/quality").text
    assert "Krippendorff" in page
    assert "being computed" not in page


# Gold in bulk.


def decided(office: Office) -> list[str]:
    """Three reviewers on three tasks: all for A, two of three for A, two alone; one suspended."""
    tasks = [row.id for row in review.search_tasks(office.store, "p").tasks][:3]
    votes = {tasks[0]: (-2, -1, -3), tasks[1]: (-1, 2, -1), tasks[2]: (1, 1)}
    for place in range(4):
        reviewer = office.store.write(issue_token, "p", "reviewer", name=f"Reviewer {place}").pseudonym
        for task, strengths in votes.items():
            if place == 3 or place < len(strengths):
                # The last one is against all others, and suspended.
                label = {"strength": 3 if place == 3 else strengths[place]}
                given = {"reason": "error", "actor": reviewer, "key": f"{reviewer}{task}"}
                office.store.write(adjudicate, "p", task, label, **given)
    office.store.write(set_standing, "p", reviewer, "suspended", reason="left", actor="o1")
    return tasks


def test_what_most_reviewers_say_becomes_gold_and_the_rest_is_named(office, capsys, tmp_path):
    tasks = decided(office)
    command = ["collect", "gold", "--store", office.store.where]
    assert main([*command, "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "1 gold items would be made; 2 tasks that reviewers answered are left open"
    assert f"left open: {tasks[1]}: 2 of 3 reviewers agree on an answer" in out
    assert f"left open: {tasks[2]}: 2 of 3 reviewers have answered it" in out
    assert main([*command, "--agreement", "0.6"]) == 0
    assert capsys.readouterr().out.startswith("2 gold items added to p; 1 tasks")
    found = office.store.read(project_tasks, "p", None, 100)
    gold = {row["id"]: row["body"] for row in found if row["purpose"] == "gold"}
    before = {row["id"]: row["body"] for row in found if row["id"] in tasks}
    assert sorted(body["prompt"] for body in gold.values()) == sorted(
        before[task]["prompt"] for task in tasks[:2]
    )
    assert [body["gold"] for body in gold.values()] == [{"better": 0}] * 2
    # By the page: what is there is not made again, and a lower bound takes in the last one.
    page = office.owner.get("/manage/gold?reviewers=2&agreement=0.6").text
    assert "3 tasks have a known answer" in page
    page = office.owner.post("/manage/gold", reviewers="2", agreement="0,6").text
    assert "1 gold items were made; 2 were there before." in page
    assert office.owner.post("/manage/gold", reviewers="1", agreement="0.6").status_code == 422
    assert office.owner.post("/manage/gold", reviewers="2", agreement="0.5").status_code == 422
    assert main([*command, "--reviewers", "1"]) == 2
    assert "one alone is no majority" in capsys.readouterr().err
    assert office.store.read(store_faults) == []


# Questions to the project.


def test_a_question_is_answered_for_all_and_names_nobody(office):
    asker = office.annotator
    asker.get("/guidelines")
    empty = asker.post("/guidelines/question", key="k0", text=" ")
    assert (empty.status_code, "text-fault" in empty.text) == (422, True)
    for _ in range(2):
        # The same click twice is one question.
        page = asker.post("/guidelines/question", key="k1", text="May Ada of <Ulm> be brief?").text
    assert page.count("Ada of &lt;Ulm&gt;") == 1
    assert "Nobody has answered this yet" in page
    other = Browser(office, "annotator")
    assert "Ulm" not in other.get("/guidelines").text
    page = office.reviewer.get("/manage/questions").text
    (seq,) = re.findall(r'name="question" value="(\d+)"', page)
    refused = office.reviewer.post("/manage/questions", question=seq, key="a0", text="")
    assert (refused.status_code, refused.text.count("Ada of")) == (422, 1)
    answer = {"question": seq, "key": "a1", "words": "May one be brief?", "text": "Yes, where both hold."}
    assert "sees the answer now" in office.reviewer.post("/manage/questions", **answer).text
    for reader in (other, asker):
        page = reader.get("/guidelines").text
        assert "May one be brief?" in page
        assert "Yes, where both hold." in page
        assert "Ulm" not in page
        # The words alone: a form's token may hold any letters.
        assert asker.pseudonym not in re.sub(r"<[^>]*>", "", page.partition("questions-title")[2])


def test_a_later_answer_holds_and_what_an_erased_person_asked_is_gone(office):
    asker, store, other = office.annotator, office.store, Browser(office, "annotator")
    seq = store.write(review.ask_project, "p", asker.pseudonym, "k1", "May Ada of Ulm be brief?").receipt
    for words, text in (("May one be brief?", "Yes, where both hold."), ("", "No, not ever.")):
        given = {"question": str(seq), "key": f"a{text}", "words": words, "text": text}
        office.reviewer.post("/manage/questions", **given)
    page = other.get("/guidelines").text
    assert "No, not ever." in page
    assert "May one be brief?" in page
    assert "where both hold" not in page
    for number in ("999999", "x", str(int(seq) - 1)):
        missing = office.reviewer.post("/manage/questions", question=number, key="a3", text="?")
        assert missing.status_code == 404
    # A note on a task is none, and what an erased person asked is gone, though not what was answered.
    assert [found.text for found in store.read(review.questions, "p")] == ["May one be brief?"]
    erase_person(store, "p", asker.pseudonym, actor="o1")
    assert "Ulm" not in str([event.body for event in store.events()])
    assert "No, not ever." in other.get("/guidelines").text
    assert store.read(store_faults) == []


def test_a_program_asks_too_and_reads_what_was_answered(office):
    joined = office.store.write(issue_token, "p", "annotator", name="Robin")
    api = {"Authorization": f"Bearer {joined.token}"}
    client = TestClient(office.app, base_url=HERE)
    sent = client.post("/api/v1/ask", json={"key": "k", "text": "Are lists fine?"}, headers=api)
    assert sent.status_code == 200
    assert client.post("/api/v1/ask", json={"key": "k", "text": "Else?"}, headers=api).status_code == 409
    seq = sent.json()["receipt"]
    office.store.write(review.answer_question, "p", seq, "Yes.", actor="r1", key="a")
    found = client.get("/api/v1/guidelines", headers=api).json()
    assert found["questions"] == [{"question": "Are lists fine?", "answer": "Yes."}]
    office.store.write(set_standing, "p", joined.pseudonym, "suspended", reason="left", actor="o1")
    assert client.post("/api/v1/ask", json={"key": "k2", "text": "Why?"}, headers=api).status_code == 403
