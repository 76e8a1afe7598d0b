"""What a person who labels does in the browser: answer, skip, undo, change, note, report, talk.

Every page is a form that works without a script. What was typed is never lost: a form that cannot be taken
comes back with everything that was filled in, beside words that say what happened and what to do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plaudit.collect import answering, conversation, own, refusals
from plaudit.collect.answers import (
    draft_of,
    field_of_form,
    free_texts,
    is_answer_field,
    label_from_form,
    values_of,
)
from plaudit.collect.app import saying
from plaudit.collect.app.pages import Answer, File, Sent, Shown, Stream, Visit, fresh_key, page
from plaudit.collect.app.render import speaker, words
from plaudit.collect.app.safety import error_details, is_number
from plaudit.collect.desk import MOST_OF_A_KEY, Lease, Nothing, next_task
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import Form, Kind, in_a_line, text_of
from plaudit.collect.pictures import MEDIA_TYPE, picture_content
from plaudit.collect.project import guidelines_version
from plaudit.data.records import plain_text
from plaudit.errors import UserError

BREAK_AFTER = 50
"""After how many minutes without a break one is proposed."""
_BREAK_AGAIN, _BREAK_SHOWN = 15, 3
_LISTED = 50
_NOTICES: Mapping[str, str] = {
    "skipped": "good",
    "undone": "",
    "noted": "good",
    "reported": "good",
    "saved": "good",
    "revised": "good",
}
_FAULTS = {"note": "fault-note", "report": "fault-report"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFault:
    """What is wrong with a field, in the words of the reader's language."""

    field: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task on a page, to be answered, or with an answer to be changed."""

    assignment: str
    shown: Mapping[str, Any]
    guidelines: str
    values: Mapping[str, Sequence[str]]
    label: Mapping[str, Any] | None = None
    """The answer that is to be changed; None while there is none."""


def _label(visit: Visit) -> Answer:
    project = visit.store.project(visit.who.project)
    version = guidelines_version(project)
    if version and visit.store.read(own.guidelines_read, *visit.person) != version:
        return Sent(to="/guidelines")
    task = _wanted(visit) or visit.store.write(next_task, *visit.person)
    if isinstance(task, Nothing):
        return _resting(visit, task)
    return _task_page(visit, _task(task, _drafted(task)), notices=_notices(visit))


def _task(lease: Lease | own.OwnAnswer, values: Mapping[str, Sequence[str]]) -> Task:
    return Task(
        assignment=lease.assignment,
        shown=lease.shown,
        guidelines=lease.guidelines,
        values=values,
        label=lease.label if isinstance(lease, own.OwnAnswer) else None,
    )


def _drafted(lease: Lease) -> dict[str, list[str]]:
    return {} if lease.draft is None else values_of(lease.shown, lease.draft)


def _kind(task: Task) -> Kind:
    return KINDS[task.shown["kind"]]


def _wanted(visit: Visit) -> Any:
    assignment = visit.query.get("at")
    if assignment is None or visit.who.standing in ("suspended", "failed"):
        return None
    return visit.store.read(own.own_lease, *visit.person, assignment)


def _notices(visit: Visit) -> list[tuple[str, str]]:
    """What the last step came to, by words that an address may name."""
    result = list[tuple[str, str]]()
    after, named = visit.query.get("after"), visit.query.get("notice", "")
    if after is not None:
        before = visit.store.read(own.own_answer, *visit.person, after)
        if before is not None and before.surplus:
            result.append(("notice-surplus", "warn"))
    if named in _NOTICES:
        result.append((f"notice-{named}", _NOTICES[named]))
    return result


def _lesson(visit: Visit) -> dict[str, Any] | None:
    """What was right of the qualifying item just answered, where the project lets people learn from it."""
    after = visit.query.get("after")
    result = None if after is None else visit.store.read(own.lesson_of, *visit.person, after)
    if result is None:
        return None
    right = saying.say_known(result.gold, result.order, visit.language)
    return {"known": right, "reason": result.reason, "is_right": result.is_right}


def _task_page(
    visit: Visit,
    task: Task,
    *,
    notices: Sequence[tuple[str, str]] = (),
    error: refusals.FieldError | PageFault | None = None,
) -> Shown:
    edit = task.label is not None
    absent = {"language": "", "markdown": False, "blurred": False, "category": "", "draft": "", "anchors": {}}
    display = {**absent, "ties": True, **task.shown}
    draft = plain_text(text_of(display["draft"])) if display["draft"] else ""
    turns = _turns(visit, task) if _kind(task).conversation is not None else []
    speak = speaker(visit.language)
    progress = visit.store.read(own.own_progress, *visit.person)
    values = {
        "shown": display,
        "question": saying.say_question(display, speak),
        "assignment": task.assignment,
        "guidelines": task.guidelines,
        "key": fresh_key(),
        "values": task.values,
        "original": draft,
        "edit": edit,
        "action": f"/label/edit/{task.assignment}" if edit else "/label",
        "turns": turns,
        "progress": progress,
        "qualification": _qualification(visit),
        "notices": [*notices, *_passed(visit, progress.answered)],
        "lesson": _lesson(visit),
        "error": _fault(visit, error) if isinstance(error, refusals.FieldError) else error,
        "rest": _break_minutes(visit),
        "guide": visit.store.project(visit.who.project).guidelines,
        **saying.compared(display, task.values, wanted=visit.query.get("differences") == "yes"),
        "skip_reasons": answering.SKIP_REASONS,
        "report_options": [(reason, speak(f"report-{reason}")) for reason in answering.FLAG_REASONS],
    }
    return Shown(template="task.html", values=values, status=200 if error is None else 422)


def _fault(visit: Visit, error: refusals.FieldError) -> PageFault:
    result = field_of_form(error)
    faults = _FAULTS
    for kind in KINDS.values():
        faults = {**faults, **kind.faults}
    key = faults.get(result.field.partition("-")[0])
    # What has no words of its own is rare: a text that is too long, or a page that was tampered with.
    message = str(error) if key is None else words(visit.language)[key]
    return PageFault(field=result.field, message=message)


def _turns(visit: Visit, task: Task) -> list[dict[str, Any]]:
    if task.label is not None:
        return saying.turns_of_label(task.label)
    return conversation.shown_conversation(visit.store, *visit.person, task.assignment)


def _break_minutes(visit: Visit) -> int:
    """For how long the person has worked, where it is time for a break; else 0."""
    assert visit.session is not None
    over = visit.session.stretch_minutes - BREAK_AFTER
    # For a few minutes, and later again: on every page it would be read by nobody.
    return int(visit.session.stretch_minutes) if over >= 0 and over % _BREAK_AGAIN < _BREAK_SHOWN else 0


def _qualification(visit: Visit) -> Any:
    """How far the person is with qualifying; None where nobody asks for it."""
    return visit.store.read(own.qualification, *visit.person) if visit.who.standing == "qualifying" else None


def _passed(visit: Visit, answered: int) -> list[tuple[str, str]]:
    """The good news, on the first page behind the last item."""
    if visit.who.standing != "active":
        return []
    result = visit.store.read(own.qualification, *visit.person)
    # By the count and not by a mark that is kept: it is read once, and hardly ever twice.
    is_news = result.state == "passed" and result.answered == answered == result.needed
    return [("notice-qualified", "good")] if is_news else []


def _resting(visit: Visit, found: Nothing, *, typed: Sequence[str] = (), status: int = 200) -> Shown:
    is_over = found.reason in ("suspended", "failed")
    values = {
        "reason": found.reason,
        "until": "" if found.until is None else saying.say_moment(found.until),
        "notices": _notices(visit),
        "lesson": _lesson(visit),
        "qualification": visit.store.read(own.qualification, *visit.person)
        if found.reason == "failed"
        else None,
        "code": visit.store.read(own.completion_code, *visit.person) if found.reason == "done" else None,
        "typed": typed,
        "last": None if is_over else visit.store.read(own.own_progress, *visit.person).last,
        "key": fresh_key(),
    }
    return Shown(template="resting.html", values=values, status=status)


def _task_of(visit: Visit, assignment: str) -> Task:
    """The task of a form, with what was filled in; answered or not."""
    lease = visit.store.read(own.own_lease, *visit.person, assignment)
    lease = lease or visit.store.read(own.own_answer, *visit.person, assignment)
    if lease is None:
        raise refusals.NotYoursError("this answer was taken back meanwhile; open your tasks to give it again")
    return _task(lease, visit.form.fields)


def _submit(visit: Visit) -> Answer:
    assignment, key = visit.form.need("assignment"), visit.form.need("key")
    if visit.who.standing in ("suspended", "failed"):
        return _resting(visit, Nothing(reason=visit.who.standing), typed=_typed(visit), status=403)
    task = _task_of(visit, assignment)
    try:
        unsent = task.values.get("message", ())
        # It would be lost with the end of its conversation.
        if _kind(task).conversation is not None and any(text.strip() for text in unsent):
            expected = "an empty field"
            raise refusals.FieldError(field="message", found="words that were not sent", expected=expected)
        label = label_from_form(task.shown, task.values)
        visit.store.write(answering.submit_answer, *visit.person, assignment, key, label, **_timing(visit))
    except refusals.FieldError as error:
        return _task_page(visit, replace(task, label=None), error=error)
    except (refusals.KeyConflictError, refusals.NotYoursError):
        if task.label is None:
            raise
        return _conflict(visit, task)
    return Sent(to=f"/label?after={assignment}")


def _typed(visit: Visit) -> list[str]:
    names = (*free_texts(), "message", "note", "report-words")
    return [text for name in names for text in visit.form.many(name) if text.strip()]


def _timing(visit: Visit) -> dict[str, float | None]:
    """Active seconds and the pasted share, which scripts count; without a script there are none."""
    return {"seconds": _number(visit, "seconds", 86_400.0), "pasted": _number(visit, "pasted", 1.0)}


def _number(visit: Visit, name: str, most: float) -> float | None:
    try:
        value = float(visit.form.value(name) or "nan")
    except ValueError:
        return None
    # A clock that jumps must not keep an answer from being taken.
    return min(value, most) if math.isfinite(value) and value >= 0 else None


def _conflict(visit: Visit, task: Task) -> Shown:
    """Another answer to a task that was answered: in a second tab, or from a page that was sent before."""
    assert task.label is not None
    try:
        second = saying.say_label(task.shown, label_from_form(task.shown, task.values), visit.language)
    except refusals.FieldError as error:
        second = str(_fault(visit, error))
    values = {
        "assignment": task.assignment,
        "key": fresh_key(),
        "first": saying.say_label(task.shown, task.label, visit.language),
        "second": second,
        "typed": _typed(visit),
        "fields": [
            (name, text) for name, texts in task.values.items() if is_answer_field(name) for text in texts
        ],
    }
    return Shown(template="conflict.html", values=values, status=409)


def _draft(visit: Visit) -> Answer:
    assignment = visit.form.need("assignment")
    _keep(visit, assignment, visit.form.fields)
    marks = visit.form.value("differences")
    wanted = "notice=saved" if marks is None else f"differences={'yes' if marks == 'yes' else 'no'}"
    return Sent(to=f"/label?at={assignment}&{wanted}")


def _keep(visit: Visit, assignment: str, form: Form, *, without: str = "") -> None:
    rest = {name: values for name, values in form.items() if name != without}
    visit.store.write(answering.save_draft, *visit.person, assignment, draft_of(rest))


def _skip(visit: Visit) -> Answer:
    assignment, key = visit.form.need("assignment"), visit.form.need("key")
    # Of the same page as the answer, so the key is told apart: going back and answering is no repetition.
    visit.store.write(
        answering.skip_task, *visit.person, assignment, f"{key}-skip", visit.form.value("reason") or ""
    )
    return Sent(to="/label?notice=skipped")


def _undo(visit: Visit) -> Answer:
    assignment, key = visit.form.need("assignment"), visit.form.need("key")
    answer = visit.store.read(own.own_answer, *visit.person, assignment)
    visit.store.write(answering.undo_answer, *visit.person, assignment, key)
    # None where the same click came twice: it is taken back already.
    if answer is not None:
        _put_back(visit, assignment, answer.label)
    return Sent(to=f"/label?at={assignment}&notice=undone")


def _put_back(visit: Visit, assignment: str, label: Mapping[str, Any]) -> None:
    """Fill the task in with the answer that was taken back, a conversation with its turns."""
    turns = [{**turn, "key": f"undone-{number}"} for number, turn in enumerate(saying.turns_of_label(label))]
    if turns:
        visit.store.write(answering.save_conversation, *visit.person, assignment, {"turns": turns})
    rest = {name: value for name, value in label.items() if name not in ("turns", "messages")}
    visit.store.write(answering.save_draft, *visit.person, assignment, rest)


def _annotate(visit: Visit, field: str, done: str) -> Answer:
    """A note or a report beside the answer; what is filled in of the answer is kept."""
    assignment, key = visit.form.need("assignment"), visit.form.need("key")
    given = visit.form.value(field) or ""
    if not given.strip():
        error = refusals.FieldError(field=field, found="nothing", expected="words")
        return _task_page(visit, replace(_task_of(visit, assignment), label=None), error=error)
    if field == "note":
        visit.store.write(answering.add_note, *visit.person, assignment, f"{key}-note", given)
    else:
        text = visit.form.value("report-words") or ""
        visit.store.write(answering.report_task, *visit.person, assignment, f"{key}-report", given, text)
    _keep(visit, assignment, visit.form.fields)
    return Sent(to=f"/label?at={assignment}&notice={done}")


def _turn(visit: Visit) -> Answer:
    """Send a message; without a script the page waits for the answers."""
    assignment, key = visit.form.need("assignment"), visit.form.need("key")
    task = _task_of(visit, assignment)
    message = visit.form.value("message") or ""
    try:
        conversation.say(visit.store, *visit.person, assignment, key=f"{key}-turn", message=message)
    except UserError as error:
        # Whatever it is: the message stands in its field again.
        return _task_page(visit, replace(task, label=None), error=_unsent(visit, error))
    _keep(visit, assignment, visit.form.fields, without="message")
    return Sent(to=f"/label?at={assignment}#turns")


def _unsent(visit: Visit, error: UserError) -> PageFault:
    own_words = {refusals.FieldError: "fault-say", refusals.ModelUnavailableError: "fault-model"}
    key = own_words.get(type(error))
    return PageFault(field="message", message=str(error) if key is None else words(visit.language)[key])


def _stream(visit: Visit) -> Answer:
    assignment, key, message = (visit.sent.get(name) for name in ("assignment", "key", "message"))
    if not isinstance(assignment, str) or not isinstance(key, str):
        raise refusals.FieldError(field="assignment", found="no text", expected="the assignment and a key")
    refusals.checked_text("key", key, most=MOST_OF_A_KEY, empty=False)
    parts = conversation.say_in_parts(visit.store, *visit.person, assignment, key=key, message=message)
    return Stream(parts=_until_fault(visit, assignment, parts))


def _until_fault(visit: Visit, assignment: str, parts: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The parts, and words in place of the rest where it fails: the status of the answer is long gone."""
    try:
        yield from parts
        lease = visit.store.read(own.own_lease, *visit.person, assignment)
        # The message was said: it must not stand in its field again.
        _keep(visit, assignment, {} if lease is None else _drafted(lease), without="message")
    except UserError as error:
        yield {"error": error_details(error) | {"message": _unsent(visit, error).message}}


def _choose(visit: Visit) -> Answer:
    assignment = visit.form.need("assignment")
    turn, chosen = visit.form.value("turn") or "", visit.form.value("strength") or ""
    task = _task_of(visit, assignment)
    most = len(task.shown["scale"])
    strengths = {str(number): number for number in range(-most, most + 1)}
    turns = {str(number): number for number in range(1, conversation.MOST_TURNS + 1)}
    try:
        conversation.choose(
            visit.store, *visit.person, assignment, turn=turns.get(turn), strength=strengths.get(chosen)
        )
    except refusals.FieldError as error:
        return _task_page(visit, replace(task, label=None), error=error)
    _keep(visit, assignment, visit.form.fields, without="strength")
    return Sent(to=f"/label?at={assignment}#turns")


def _answered(visit: Visit) -> Task:
    answer = visit.store.read(own.own_answer, *visit.person, visit.path["assignment"])
    if answer is None:
        raise refusals.NotYoursError("there is no answer of yours to this task that could be changed")
    return _task(answer, values_of(answer.shown, answer.label))


def _revise(visit: Visit) -> Answer:
    task = replace(_answered(visit), values=dict(visit.form.fields))
    assert task.label is not None
    # The conversation itself is no part of the form.
    held = {name: task.label[name] for name in ("turns", "messages") if name in task.label}
    try:
        label = {**held, **label_from_form(task.shown, task.values)}
        seconds, key = _timing(visit)["seconds"], visit.form.need("key")
        given = (task.assignment, key, label)
        visit.store.write(answering.revise_answer, *visit.person, *given, seconds=seconds)
    except refusals.FieldError as error:
        return _task_page(visit, task, error=error)
    return Sent(to="/history?notice=revised")


def _history(visit: Visit) -> Answer:
    before = visit.query.get("before", "")
    number = int(before) if is_number(before) else None
    result = visit.store.read(answering.own_history, *visit.person, _LISTED, number)
    entries = [
        {
            "assignment": answer["assignment"],
            "at": answer["at"],
            "when": saying.say_moment(answer["at"]),
            "question": _beginning(answer["shown"], answer["label"])
            or speaker(visit.language)("picture", n=1),
            "said": saying.say_label(answer["shown"], answer["label"], visit.language),
        }
        for answer in result
    ]
    older = result[-1]["receipt"] if len(result) == _LISTED else None
    values = {"entries": entries, "older": older, "notices": _notices(visit)}
    return Shown(template="history.html", values=values)


def _beginning(shown: Mapping[str, Any], label: Mapping[str, Any]) -> str:
    """The first words of what was asked, by which a person knows a task again."""
    turns = saying.turns_of_label(label)
    prompt = shown["prompt"]
    return in_a_line(plain_text(text_of(prompt)) if prompt else turns[0]["message"] if turns else "")


def _picture(visit: Visit) -> Answer:
    content = visit.store.read(picture_content, visit.who.project, visit.path["hash"])
    return File(name="", content=content, media_type=MEDIA_TYPE)


PAGES = (
    page("GET /label", "label", _label),
    page("POST /label", "label", _submit),
    page("POST /label/draft", "label", _draft),
    page("POST /label/skip", "label", _skip),
    page("POST /label/undo", "label", _undo),
    page("POST /label/note", "label", lambda visit: _annotate(visit, "note", "noted")),
    page("POST /label/flag", "label", lambda visit: _annotate(visit, "report", "reported")),
    page("POST /label/turn", "label", _turn, lane="model"),
    page("POST /label/stream", "label", _stream, script=True, lane="model"),
    page("POST /label/choose", "label", _choose),
    page("GET /label/edit/{assignment}", "label", lambda visit: _task_page(visit, _answered(visit))),
    page("POST /label/edit/{assignment}", "label", _revise),
    page("GET /history", "label", _history),
    # As scripts are answered: nobody who is signed out should come back to a picture.
    page("GET /pictures/{hash}", "any", _picture, script=True),
)
