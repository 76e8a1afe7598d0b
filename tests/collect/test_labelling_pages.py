"""The pages of whoever labels, without scripts: every kind, and everything that may go wrong on the way."""

import re
from typing import Any

import pytest

from plaudit.collect.adding import close_task, set_project
from plaudit.collect.answering import FLAG_REASONS, SKIP_REASONS, own_history, revise_answer, undo_answer
from plaudit.collect.app.render import LANGUAGES, words
from plaudit.collect.kinds import KINDS
from plaudit.collect.own import own_preferences
from plaudit.collect.people import set_standing
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project, guidelines_version
from plaudit.collect.refusals import NotYoursError
from plaudit.collect.sessions import sign_in
from tests.collect.browsers import TASKS, Browser, HtmlPage, desk_of, given_labels, signed_in
from tests.collect.desks import Desk, MakeDesk

FILLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pair": (
        {"strength": "-2", "both_bad": "yes", "flags_1": ["false", "harmful"], "why": "Two\nlines"},
        {"strength": -2, "both_bad": True, "flags": [[], ["false", "harmful"]], "why": "Two\nlines"},
    ),
    "rank": ({"place_0": "2", "place_1": "1", "place_3": "2"}, {"groups": [[1], [0, 3]]}),
    "rate": (
        {"points_0_0": "4", "thumb_1": "down"},
        {"points": {"overall": [4, None]}, "thumbs": [None, False]},
    ),
    "write": ({"answer": "\nBecause of\nthat."}, {"answer": "\nBecause of\nthat."}),
    "steps": ({"step_0": "right", "step_1": "wrong"}, {"labels": ["right", "wrong"], "ended": "error"}),
}


@pytest.fixture
def pairs(make_desk: MakeDesk) -> Desk:
    return desk_of(make_desk, "pair", 4)


@pytest.fixture
def browser(pairs: Desk) -> Browser:
    return signed_in(pairs.store)


@pytest.fixture
def page(browser: Browser) -> HtmlPage:
    """The first of the pairs, as it is shown."""
    return browser.get("/label")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_fault_and_notice_has_words(language):
    known = words(language)
    assert {f"skip-{reason}" for reason in SKIP_REASONS} <= known.keys()
    assert {f"report-{reason}" for reason in FLAG_REASONS} <= known.keys()
    assert {f"question-{kind}" for kind in KINDS if kind != "pair"} <= known.keys()
    assert {
        f"default: {word}" for word in (*Project(name="p").scale, *Project(name="p").flags)
    } <= known.keys()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", FILLED)
def test_a_task_is_answered_by_its_form_alone(make_desk, kind):
    desk = desk_of(make_desk, kind)
    browser = signed_in(desk.store)
    values, label = FILLED[kind]
    page = browser.send(browser.get("/label").form(), **values)
    assert (page.status, page.path) == (200, "/label")
    assert "Nothing left to do" in page.words
    assert given_labels(desk) == [label]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", FILLED)
def test_a_form_with_nothing_in_it_says_what_is_missing_and_loses_nothing(make_desk, kind):
    desk = desk_of(make_desk, kind)
    browser = signed_in(desk.store)
    empty = {"answer": ""} if kind == "write" else {}
    page = browser.send(browser.get("/label").form(), why="My reason", **empty)
    assert page.status == 422
    assert "something is missing" in page.words
    assert 'class="fault"' in page.html
    assert page.form().value("why") == "My reason"
    assert given_labels(desk) == []
    # The form that came back is as good as the first.
    values, label = FILLED[kind]
    assert browser.send(page.form(), **values).status == 200
    assert given_labels(desk) == [{"why": "My reason", **label}]


def test_what_a_browser_sends_is_what_was_written_down_to_the_line_ends(make_desk):
    desk = desk_of(make_desk, "write")
    browser = signed_in(desk.store)
    form = browser.get("/label").form()
    assert form.value("answer") == TASKS["write"]["draft"]
    browser.send(form)
    assert given_labels(desk) == [{"answer": TASKS["write"]["draft"]}]


def test_skipping_wants_a_reason_and_leads_to_the_next(pairs, browser, page):
    after = browser.send(page.form(), "It is unclear", strength="1")
    assert "Skipped" in after.words
    assert after.form().value("assignment") != page.form().value("assignment")
    (released,) = [event for event in pairs.store.events() if event.kind == "released"]
    assert released.body == {"reason": "unclear", "request": released.body["request"]}  # type: ignore[index]


@pytest.mark.slow
def test_undo_brings_the_answer_back_to_be_changed(pairs, browser, page):
    after = browser.send(page.form(), strength="3", why="First thought")
    undone = browser.send(after.form("undo"))
    assert "Taken back" in undone.words
    form = undone.form()
    assert form.value("assignment") == page.form().value("assignment")
    assert (form.value("strength"), form.value("why")) == ("3", "First thought")
    # The same click twice takes nothing else back.
    again = browser.send(after.form("undo"))
    assert again.form().value("assignment") == page.form().value("assignment")
    browser.send(form, strength="-1")
    assert [row["label"]["strength"] for row in pairs.store.read(own_history, "p", browser.pseudonym)] == [-1]


def test_an_answer_is_changed_from_the_history(browser):
    browser.send(browser.get("/label").form(), strength="3", why="First thought")
    history = browser.get("/history")
    assert "B is much better" in history.words
    (address,) = re.findall(r'href="(/label/edit/\w+)"', history.html)
    page = browser.get(address)
    assert page.form().value("strength") == "3"
    done = browser.send(page.form(), strength="0")
    assert (done.path, done.status) == ("/history", 200)
    assert "Changed." in done.words
    assert "Equally good" in done.words


def test_notes_and_reports_keep_what_is_filled_in(pairs, browser):
    page = browser.send(browser.get("/label").form(), "Keep the note", strength="2", note="Odd question")
    assert "Your note is kept" in page.words
    assert page.form().value("strength") == "2"
    page = browser.send(page.form(), "Send the report", report="private", report_words="An address")
    assert "Reported" in page.words
    assert page.form().value("strength") == "2"
    bodies = {event.kind: event.body for event in pairs.store.events() if event.kind in ("noted", "flagged")}
    assert bodies["noted"]["text"] == "Odd question"  # type: ignore[index]
    assert bodies["flagged"]["reason"] == "private"  # type: ignore[index]
    assert browser.send(page.form(), "Keep the note").status == 422


def test_a_draft_is_there_when_one_comes_back(browser):
    browser.send(browser.get("/label").form(), "Save for later", strength="2", why="half a")
    form = browser.get("/label").form()
    assert (form.value("strength"), form.value("why")) == ("2", "half a")


def test_differences_are_marked_when_wanted_and_the_form_is_kept(browser, page):
    assert "<mark>" not in page.html
    marked = browser.send(page.form(), "Show differences", strength="2")
    assert marked.html.count("<mark>") == 2
    assert marked.form().value("strength") == "2"
    assert "<mark>" not in browser.send(marked.form(), "Hide differences").html


def test_texts_that_are_too_long_to_be_compared_are_said_to_be(make_desk):
    desk = make_desk(tasks=0)
    desk.add([{"prompt": "Why?", "candidates": [{"text": f"{n}\n" * 5_001} for n in range(2)]}])
    browser = signed_in(desk.store)
    page = browser.send(browser.get("/label").form(), "Show differences")
    assert "too long to be compared" in page.words


def test_own_progress_is_shown(browser, page):
    assert "0 answered" in page.words
    assert "4 left" in page.words
    for seconds in ("10", "30", "20"):
        page = browser.send(page.form(), strength="1", seconds=seconds)
    assert "3 answered" in page.words
    assert "typically 20 s" in page.words
    assert "1 left" in page.words


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seconds", ["", "soon", "-3", "nan", "1e999", "99999999"])
def test_a_clock_that_jumps_keeps_no_answer_from_being_taken(pairs, browser, seconds):
    assert browser.send(browser.get("/label").form(), strength="1", seconds=seconds).status == 200
    assert len(given_labels(pairs)) == 1


# Guidelines, qualification, breaks, categories.


def test_guidelines_are_read_before_the_first_task_and_again_when_they_change(make_desk):
    desk = desk_of(make_desk, "pair", 3, guidelines="Be *kind*.")
    browser = signed_in(desk.store)
    page = browser.get("/label")
    assert page.path == "/guidelines"
    assert "<em>kind</em>" in page.html
    page = browser.send(page.form("/guidelines/read"))
    assert page.path == "/label"
    changed = desk.store.project("p")
    desk.store.write(set_project, type(changed)(name="p", guidelines="Be short."), actor="o1")
    # Changed meanwhile: the answer counts under what was read, and the next task waits.
    after = browser.send(page.form(), strength="1")
    assert after.path == "/guidelines"
    assert "have changed since you read them" in after.words
    assert len(given_labels(desk)) == 1
    assert [row.body["guidelines"] for row in desk.store.events() if row.kind == "answered" and row.body] == [
        guidelines_version(changed)
    ]
    # Of the page that was open before: what was not there is not taken for read.
    assert browser.send(page.form(), strength="1").path == "/guidelines"
    assert browser.send(after.form("/guidelines/read")).path == "/label"


@pytest.mark.parametrize(
    ("floor", "sign", "told"),
    [(0.65, 1, ("not passed", "0 of 2 right")), (0.2, -1, ("passed the qualification",))],
)
def test_how_qualifying_ended_is_told_with_figures(make_desk, floor, sign, told):
    desk = make_desk(tasks=1, qualify_n=2, qualify_floor=floor)
    items = [{**TASKS["pair"], "prompt": f"Q{n}?", "gold": {"better": 0}, "qualify": True} for n in range(2)]
    desk.add(items)
    browser = signed_in(desk.store)
    page = browser.get("/label")
    assert "Qualification: 0 of 2" in page.words
    for _ in range(2):
        right_first = page.html.index("Answer number 0") < page.html.index("Answer number 1")
        page = browser.send(page.form(), strength=f"{sign * (3 if right_first else -3)}")
    assert all(words in page.words for words in told), page.words
    # No byte of it says which.
    assert "Q0?" not in page.html


def test_a_break_is_proposed_after_fifty_minutes_with_a_way_on(pairs, browser):
    for _ in range(10):
        assert "Time for a break" not in browser.get("/label").words
        pairs.clock.advance(minutes=5.1)
    page = browser.get("/label")
    assert "Time for a break" in page.words
    assert browser.send(page.form(), strength="1").status == 200


def test_what_may_upset_is_closed_until_it_is_opened_and_may_be_declined(make_desk):
    desk = make_desk(tasks=[{**TASKS["pair"], "category": "war"}], upsetting=("war",))
    browser = signed_in(desk.store)
    page = browser.get("/label")
    assert '<details class="blur">' in page.html
    assert "(war)" in page.words
    browser.send(page.form(), "It upsets me")
    done = browser.send(
        browser.get("/preferences").form("/preferences"),
        declined="war",
        languages="en de",
        areas="law, , cooking،tea",
    )
    assert "Saved" in done.words
    assert desk.store.read(own_preferences, "p", browser.pseudonym) == {
        "declined": ["war"],
        "languages": ["en", "de"],
        "areas": ["law", "cooking", "tea"],
        "groups": {},
    }
    assert 'value="war" checked' in done.html
    desk.add([{**TASKS["pair"], "prompt": "Another?", "category": "war"}])
    assert "Nothing left to do" in browser.get("/label").words


def test_markdown_is_shown_where_the_project_says_so(make_desk):
    body = {"prompt": "**Why?**", "candidates": [{"text": "*a* <b>x</b>"}, {"text": "b"}]}
    desk = make_desk(tasks=[body], text="markdown")
    html = signed_in(desk.store).get("/label").html
    assert "<strong>Why?</strong>" in html
    assert "<em>a</em> &lt;b&gt;x" in html


@pytest.mark.one_in(7)
@pytest.mark.parametrize("language", ["en", "de", "ar"])
@pytest.mark.parametrize("kind", [*FILLED])
def test_every_kind_is_there_in_every_language(make_desk, kind, language):
    desk = desk_of(make_desk, kind, 2)
    browser = signed_in(desk.store, language=language)
    for path in ("/label", "/history", "/guidelines", "/preferences", "/keys"):
        page = browser.get(path)
        assert page.status == 200
        assert f'<html lang="{language}" dir="{"rtl" if language == "ar" else "ltr"}">' in page.html
        assert page.bytes < 30_000
    empty = {"answer": ""} if kind == "write" else {}
    assert browser.send(browser.get("/label").form(), why="w", **empty).status == 422


# What goes wrong.


def test_late_work_is_kept_as_surplus_and_said_so(make_desk):
    desk = desk_of(make_desk, "pair", 1)
    slow, quick = signed_in(desk.store, "Ada"), signed_in(desk.store, "Bob")
    page = slow.get("/label")
    desk.clock.advance(minutes=45)
    quick.send(quick.get("/label").form(), strength="1")
    after = slow.send(page.form(), strength="-1", why="Every word of it")
    assert "Your last answer is kept" in after.words
    assert {label.get("why") for label in given_labels(desk)} == {None, "Every word of it"}


def test_a_task_that_was_closed_meanwhile_takes_the_answer_and_says_so(pairs, browser, page):
    for row in pairs.store.read(project_tasks, "p"):
        pairs.store.write(close_task, "p", row["id"], reason="enough", actor="o1")
    after = browser.send(page.form(), strength="1")
    assert "Your last answer is kept" in after.words
    assert len(given_labels(pairs)) == 1


def test_a_page_left_open_over_night_is_shown_again_with_all_that_was_typed(pairs, browser, page):
    pairs.clock.advance(hours=14)
    lost = browser.send(page.form(), strength="1", why="Thought of all evening")
    assert lost.status == 401
    assert "Thought of all evening" in lost.html
    assert given_labels(pairs) == []
    # Signed in again in another tab, the same page can be sent once more.
    opened = sign_in(pairs.store, "p", "Ada", "a long way to go")
    again = Browser(pairs.store, opened.secret)
    form = lost.forms[0] if lost.forms[0].value("key") else next(f for f in lost.forms if f.value("key"))
    refused = again.send(form)
    assert refused.status == 403
    assert "Thought of all evening" in refused.html
    assert again.send(next(f for f in refused.forms if f.value("key"))).path == "/label"
    assert [label["why"] for label in given_labels(pairs)] == ["Thought of all evening"]


def conflict(pairs: Desk, browser: Browser, first: HtmlPage, second: HtmlPage) -> HtmlPage:
    browser.send(first.form(), strength="3", why="In the first tab")
    page = browser.send(second.form(), strength="-3", why="In the second tab")
    assert page.status == 409
    assert "You answered this task already" in page.words
    assert "B is much better" in page.words
    assert "A is much better" in page.words
    assert "In the second tab" in page.html
    assert [label["strength"] for label in given_labels(pairs)] == [3]
    return page


def test_two_tabs_with_the_same_task_lose_nothing(pairs, browser):
    page = conflict(pairs, browser, browser.get("/label"), browser.get("/label"))
    form = next(form for form in page.forms if form.action.startswith("/label/edit/"))
    assert browser.send(form).path == "/history"
    (held,) = pairs.store.read(own_history, "p", browser.pseudonym)
    assert held["label"] == {"strength": -3, "why": "In the second tab"}


def test_going_back_and_sending_something_else_is_no_second_answer(pairs, browser, page):
    conflict(pairs, browser, page, page)
    assert browser.get("/label").form().value("assignment") != page.form().value("assignment")


def test_who_was_suspended_meanwhile_sees_why_and_what_was_typed(pairs, browser, page):
    pairs.store.write(set_standing, "p", browser.pseudonym, "suspended", reason="too quick", actor="o1")
    after = browser.send(page.form(), strength="1", why="A long text")
    # The sessions of a suspended person end; the words are shown all the same.
    assert after.status in (401, 403)
    assert "A long text" in after.html
    assert given_labels(pairs) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "fields",
    [
        [],
        [("strength", "1")],
        [("assignment", "w1"), ("assignment", "w1"), ("key", "k")],
        [("assignment", "../../etc"), ("key", "k")],
        [("assignment", "ẃ"), ("key", "")],
        [("assignment", "w1"), ("key", "k" * 5_000), ("strength", "1")],
    ],
)
def test_a_form_that_no_page_made_is_refused_in_words(browser, fields):
    token = ("form_token", str(browser.get("/label").form().value("form_token")))
    for path in ("label", "draft", "skip", "undo", "note", "flag", "turn", "choose"):
        address = "/label" if path == "label" else f"/label/{path}"
        page = browser.post(address, [token, *fields])
        assert 400 <= page.status < 500, (path, page.status)
        assert "<h1>" in page.html


@pytest.mark.one_in(2)
@pytest.mark.parametrize("before", ["x", "²", "9" * 30, "-1", "", "0"])
def test_any_word_may_stand_behind_the_history(pairs, before):
    assert signed_in(pairs.store).get(f"/history?before={before}").status == 200


def test_the_history_goes_on_where_it_is_long(make_desk):
    desk = make_desk(tasks=52)
    browser = signed_in(desk.store)
    for _ in range(52):
        desk.answer(browser.pseudonym)
    page = browser.get("/history")
    assert page.html.count("/label/edit/") == 50
    (older,) = re.findall(r'href="(/history\?before=\d+)"', page.html)
    assert browser.get(older).html.count("/label/edit/") == 2


# Qualifying that teaches.


KNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "pair": ({"better": 1, "flags": [["harmful"], []]}, "is the better one"),
    "rate": ({"overall": [[4, 5], [1, 2]]}, "4–5"),
    "steps": ({"labels": ["right", "wrong"]}, "2: Wrong"),
}


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize("teaches", [True, False])
def test_after_a_qualifying_item_what_is_right_is_shown_where_the_project_teaches(make_desk, kind, teaches):
    gold, says = KNOWN[kind]
    more = {"qualify": True, "gold": gold, "gold_reason": "Because <of> that."}
    tasks = [{**TASKS[kind], **more, "metadata": {"n": n}} for n in range(2)]
    desk = make_desk(tasks=tasks, ask=kind, qualify_n=2, qualify_floor=1.0, qualify_teach=teaches)
    browser = signed_in(desk.store)
    page = browser.get("/label")
    for number in range(2):
        assert "Because" not in page.html.partition('id="task"')[2]
        assert ("Because &lt;of&gt; that." in page.html) == (teaches and number == 1)
        page = browser.send(page.form(), **FILLED[kind][0])
    # Also on the last page of whoever did not pass.
    assert (says in page.words, "Because &lt;of&gt; that." in page.html) == (teaches, teaches)
    if kind == "pair" and teaches:
        first = next(e for e in desk.store.events() if e.kind == "leased" and e.body["purpose"] == "qualify")
        letter = "AB"[first.body["order"].index(1)]
        shown = browser.get(f"/label?after={first.subject}")
        assert f"Answer {letter} is the better one." in shown.words
        assert f"flags: A: {'harmful' if letter == 'B' else '–'}" in shown.words


def test_who_has_seen_what_is_right_cannot_change_the_answer_any_more(make_desk):
    body = {**TASKS["pair"], "qualify": True, "gold": {"better": 0}}
    desk = make_desk(
        tasks=[{**body, "metadata": {"n": n}} for n in range(2)], qualify_n=2, qualify_teach=True
    )
    (person,) = desk.people(1)
    lease = desk.lease(person)
    desk.submit(person, lease, "k", {"strength": 1})
    for change, more in ((undo_answer, ()), (revise_answer, ({"strength": -1},))):
        with pytest.raises(NotYoursError, match="seen what is right"):
            desk.store.write(change, "p", person, lease.assignment, "k2", *more)
    assert given_labels(desk) == [{"strength": 1}]
