"""Pages of what reviewers decide: divided tasks, blind; whom to trust how far; gaps of the guidelines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from plaudit.collect import review
from plaudit.collect.adding import ADJUDICATION_REASONS, adjudicate, make_gold
from plaudit.collect.answers import field_of_form, known_answer, label_from_form, values_of
from plaudit.collect.app.managing import LabelRow, label_rows, manage_page, whole_number
from plaudit.collect.app.pages import Answer, Sent, Shown, Visit, fresh_key, page
from plaudit.collect.app.render import speaker
from plaudit.collect.app.safety import is_number
from plaudit.collect.app.saying import compared, say_question
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.people import STANDINGS
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError
from plaudit.collect.review import GivenLabel, TaskDetails
from plaudit.collect.tasks import shown_task
from plaudit.data.records import plain_text

_BEHIND = 99
_PEOPLE_SHOWN = 50


def _queue(visit: Visit) -> Answer:
    after = whole_number(visit.query, "after")
    details, left = review.next_divided(visit.store, visit.who.project, after)
    done = visit.query.get("done", "")
    if details is None:
        return manage_page(visit, "manage_queue.html", task=None, done=done, left=0)
    return _queue_page(visit, details, left=left, done=done)


def _queue_page(
    visit: Visit, details: TaskDetails, *, left: int, done: str = "", error: FieldError | None = None
) -> Shown:
    project, form = visit.store.project(visit.who.project), visit.form
    display = _shown(details, project)
    given = label_rows(visit, details, project)
    rows = [row for row in given if row.given.purpose == "work" and not row.given.surplus]
    return manage_page(
        visit,
        "manage_queue.html",
        task=details,
        shown=display,
        # People are divided over some kinds alone, but an address may name a task of any.
        original=plain_text(text_of(display["draft"])) if display["draft"] else "",
        edit=True,
        turns=[],
        question=say_question(display, speaker(visit.language)),
        spread=_spread(rows),
        labels=len(rows),
        # In the order of their words: the order in which they came would tell who wrote which.
        notes=sorted(_notes(details, rows)),
        markdown=project.text == "markdown",
        left=left,
        done=done,
        key=form.value("key") or fresh_key(),
        values={name: [*given] for name, given in form.fields.items()} or values_of(display, {}),
        **compared(display, {}, wanted=visit.query.get("differences") == "yes"),
        reason=form.value("decision_reason") or "",
        reasons=ADJUDICATION_REASONS,
        gold=form.value("gold") == "yes",
        error=error,
    )


def _spread(rows: Sequence[LabelRow]) -> list[tuple[str, int]]:
    """What people chose, and how many chose it: of two answers from A to B, of others the most first."""
    counts = Counter(row.described.summary for row in rows)
    places = {row.described.summary: _strength(row.given) for row in rows}
    return sorted(counts.items(), key=lambda item: (places[item[0]], -item[1], item[0]))


def _strength(given: GivenLabel) -> int:
    """How far B is better than A; no preference stands behind all others."""
    strength = given.label.get("strength", 0 if "none" not in given.label else _BEHIND)
    return -strength if given.order[:1] == (1,) and strength != _BEHIND else strength


def _shown(details: TaskDetails, project: Project) -> dict[str, Any]:
    """The task as a reviewer sees it: as an annotator would, in the task's own order."""
    order = range(len(details.body.get("candidates", ())))
    absent = {"language": "", "markdown": False, "category": "", "draft": "", "ties": True, "anchors": {}}
    display = shown_task(details.body, order, project)
    # Whoever decides about a task has chosen to read it, so that nothing is blurred.
    return {**absent, **display, "blurred": False}


def _notes(details: TaskDetails, rows: Sequence[LabelRow]) -> list[str]:
    written = [text for row in rows for name, text in row.described.texts if name == "why"]
    return [*written, *(comment.text for comment in details.comments if comment.text)]


def _decide(visit: Visit) -> Answer:
    details = review.task_details(visit.store, visit.who.project, visit.path["task"])
    project = visit.store.project(visit.who.project)
    try:
        label = label_from_form(_shown(details, project), visit.form.fields)
        wants_gold = visit.form.value("gold") == "yes"
        order = range(len(details.body.get("candidates", ())))
        # Before anything is decided: a gold item needs an answer that is right.
        if wants_gold and known_answer(label, details.body, order, project) is None:
            raise FieldError(
                field="gold",
                found="a decision that leaves open what is right",
                expected="one for a single answer, or no gold item",
            )
        reason, key = visit.form.value("decision_reason") or "", visit.form.need("key")
        visit.act(adjudicate, details.id, label, reason=reason, key=key, first=True)
    except FieldError as error:
        _, left = review.next_divided(visit.store, visit.who.project)
        return _queue_page(visit, details, left=left, error=field_of_form(error))
    if wants_gold:
        # The same decision makes the same item: sent twice, it is there once.
        visit.act(make_gold, details.id)
    done = "gold" if wants_gold else "yes"
    return Sent(to=f"/manage/queue?after={details.seq}&done={done}")


def _gaps(visit: Visit) -> Answer:
    versions = review.gaps(visit.store, visit.who.project)
    return manage_page(visit, "manage_gaps.html", versions=versions, reasons=ADJUDICATION_REASONS)


def _quality(visit: Visit) -> Answer:
    assert visit.site.reports is not None
    # Read and never computed here: a child process does that, and this page is fast however many labels.
    held = visit.site.reports.get(visit.who.project)
    everybody = [] if held.report is None else held.report["annotators"]
    start = whole_number(visit.query, "from")
    return manage_page(
        visit,
        "manage_quality.html",
        report=held.report,
        people=everybody[start : start + _PEOPLE_SHOWN],
        onward=start + _PEOPLE_SHOWN if len(everybody) > start + _PEOPLE_SHOWN else None,
        fresh=held.is_fresh,
        computing=held.computing,
        failure=held.failure,
        standings=STANDINGS,
        done=visit.query.get("done", ""),
    )


def _questions(visit: Visit, *, error: FieldError | None = None) -> Answer:
    result = visit.store.read(review.questions, visit.who.project)
    # Those that wait first.
    ordered = sorted(result, key=lambda question: (bool(question.answer), -question.seq))
    values = {"questions": ordered, "key": fresh_key(), "done": visit.query.get("done", "")}
    return manage_page(visit, "manage_questions.html", error=error, form=visit.form, **values)


def _answer_question(visit: Visit) -> Answer:
    form = visit.form
    seq = form.need("question")
    given = {"key": form.need("key"), "words": form.value("words") or ""}
    try:
        visit.act(review.answer_question, int(seq) if is_number(seq) else 0, form.value("text"), **given)
    except FieldError as error:
        return _questions(visit, error=error)
    return Sent(to="/manage/questions?done=answered")


PAGES = (
    page("GET /manage/queue", "review", _queue),
    page("POST /manage/queue/{task}", "review", _decide),
    page("GET /manage/quality", "review", _quality),
    page("GET /manage/questions", "review", _questions),
    page("POST /manage/questions", "review", _answer_question),
    page("GET /manage/gaps", "read", _gaps),
)
