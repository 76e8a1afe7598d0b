"""What may be asked over HTTP: a table of routes, each with who may ask and which fields it takes.

A token is of one person in one project, and every call is about that project: no request can name another.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from plaudit.collect import conversation, review
from plaudit.collect.adding import add_tasks, adjudicate, close_task, set_project
from plaudit.collect.answering import (
    add_note,
    own_counts,
    own_history,
    report_task,
    revise_answer,
    save_draft,
    skip_task,
    submit_answer,
    undo_answer,
)
from plaudit.collect.app.safety import (
    ANY,
    INTEGER,
    MAYBE_ANY,
    MAYBE_TEXT,
    MOST_BYTES,
    MOST_TASK_BYTES,
    NUMBER,
    SWITCH,
    TEXT,
    FieldRule,
    Lane,
)
from plaudit.collect.desk import Nothing, next_task
from plaudit.collect.export import Filters, export, snapshot_to_dict
from plaudit.collect.people import Identity, join_project, make_invite, revoke, set_preferences, set_standing
from plaudit.collect.pictures import MEDIA_TYPE, picture_content, stored_bodies
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people, project_status, project_tasks, review_queue
from plaudit.collect.project import guidelines_version, parse_settings, project_to_dict
from plaudit.collect.refusals import FieldError
from plaudit.collect.store import LabelStore, Receipt

PREFIX = "/api/v1"
_MOST_LISTED = 500
# Where the server itself reaches out, and which of its files it reads, is set by whoever runs it.
_FIXED_SETTINGS = ("talks_to", "gold_rows", "qualify_rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    store: LabelStore
    who: Identity
    given: Mapping[str, Any]
    """The fields of the request, checked; of tasks, the lines under ``lines``."""
    path: Mapping[str, str]
    """What stands for the braces of the address."""

    @property
    def person(self) -> tuple[str, str]:
        """Project and pseudonym, which most of the store's methods begin with."""
        return self.who.project, self.who.pseudonym

    def words(self, *names: str) -> list[Any]:
        """The values of fields, in order."""
        return [self.given.get(name) for name in names]

    def act(self, write: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a function that writes to the project does in the name of who asks."""
        return self.store.write(write, self.who.project, *given, actor=self.who.pseudonym, **named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    """Behind the prefix; braces stand for a word."""
    scope: str
    """What the token must be allowed: label, review, read or manage; any, where every token will do."""
    handler: Callable[[Call], object]
    """What is done, as JSON, or as bytes of the media type; a UserError becomes an error's answer."""
    rules: Mapping[str, FieldRule] = field(default_factory=dict[str, FieldRule])
    """The fields that it takes, in the body or, of a GET, behind the question mark."""
    status: int = 200
    lines: bool = False
    """Whether the body is JSON lines."""
    most: int = MOST_BYTES
    lane: Lane = ""
    media_type: str = "application/jsonl"


def join_by_invite(store: LabelStore, given: Mapping[str, Any]) -> dict[str, Any]:
    """Use an invite: the only call without a token."""
    return asdict(join_project(store, given["invite"], given["name"], given.get("key")))


JOIN_RULES: Mapping[str, FieldRule] = {"invite": TEXT, "name": TEXT, "key": MAYBE_TEXT}


def _next(call: Call) -> dict[str, Any]:
    result = call.store.write(next_task, *call.person, call.given.get("key"))
    if isinstance(result, Nothing):
        return {"task": None, "reason": result.reason, "until": result.until}
    # Not the task's id: it is the same for all, and two people could compare their notes.
    lease = {name: value for name, value in asdict(result).items() if name != "task"}
    return {"task": lease}


def _draft(call: Call) -> dict[str, Any]:
    assignment, label = call.words("assignment", "label")
    _refuse_whole_conversation(label)
    return {"until": call.store.write(save_draft, *call.person, assignment, label)}


def _submit(call: Call) -> Receipt:
    assignment, key, label, seconds, pasted = call.words("assignment", "key", "label", "seconds", "pasted")
    _refuse_whole_conversation(label)
    timing = {"seconds": seconds, "pasted": pasted}
    return call.store.write(submit_answer, *call.person, assignment, key, label, **timing)


def _refuse_whole_conversation(label: object) -> None:
    for name in ("turns", "messages"):
        if isinstance(label, dict) and name in label:
            raise FieldError(
                field=f"label.{name}",
                found="a conversation",
                expected="what you say of it; the conversation itself is kept by the server (POST /turn)",
            )


def _revise(call: Call) -> Receipt:
    assignment, key, label, seconds = call.words("assignment", "key", "label", "seconds")
    _refuse_whole_conversation(label)
    return call.store.write(revise_answer, *call.person, assignment, key, label, seconds=seconds)


def _written(write: Callable[..., Receipt], *names: str) -> Callable[[Call], Receipt]:
    """What writes these fields of a request for the person who sent it."""
    return lambda call: call.store.write(write, *call.person, *call.words(*names))


def _flag(call: Call) -> Receipt:
    assignment, key, reason, text = call.words("assignment", "key", "reason", "text")
    return call.store.write(report_task, *call.person, assignment, key, reason, text or "")


def _history(call: Call) -> dict[str, Any]:
    limit, before = _page(call, 50), call.given.get("before")
    return {"answers": call.store.read(own_history, *call.person, limit, before)}


def _page(call: Call, usual: int) -> int:
    limit = call.given.get("limit", usual)
    if not isinstance(limit, int) or not 0 < limit <= _MOST_LISTED:
        raise FieldError(
            field="limit", found=repr(limit), expected=f"a whole number from 1 to {_MOST_LISTED}"
        )
    return limit


def _guidelines(call: Call) -> dict[str, Any]:
    project = call.store.project(call.who.project)
    answered = [
        {"question": result.text, "answer": result.answer}
        for result in call.store.read(review.questions, project.name)
        if result.answer
    ]
    return {"version": guidelines_version(project), "text": project.guidelines, "questions": answered}


def _ask(call: Call) -> dict[str, Any]:
    key, text = call.words("key", "text")
    return asdict(call.store.write(review.ask_project, *call.person, key, text))


def _preferences(call: Call) -> dict[str, Any]:
    declined, languages, areas, groups = call.words("declined", "languages", "areas", "groups")
    given = {"declined": declined or (), "languages": languages or (), "areas": areas, "groups": groups}
    return {"receipt": call.store.write(set_preferences, *call.person, **given)}


def _turn(call: Call) -> dict[str, Any]:
    assignment, key, message = call.words("assignment", "key", "message")
    return conversation.say(call.store, *call.person, assignment, key=key, message=message)


def _choose(call: Call) -> dict[str, Any]:
    assignment, turn, strength = call.words("assignment", "turn", "strength")
    return conversation.choose(call.store, *call.person, assignment, turn=turn, strength=strength)


def _turns(call: Call) -> dict[str, Any]:
    return {"turns": conversation.shown_conversation(call.store, *call.person, call.given["assignment"])}


def _set_project(call: Call) -> dict[str, Any]:
    before = call.store.project(call.who.project)
    settings = {"name": call.who.project, **call.given["settings"]}
    project = parse_settings(settings, "settings", exact=True)
    if project.name != call.who.project:
        raise FieldError(field="settings.name", found=repr(project.name), expected=repr(call.who.project))
    for name in _FIXED_SETTINGS:
        # Compared, not forbidden: who sends back what was read changes nothing.
        if getattr(project, name) != getattr(before, name):
            raise FieldError(
                field=f"settings.{name}",
                found=repr(getattr(project, name)),
                expected=f"{getattr(before, name)!r}: it is set on the server, by plaudit collect project",
            )
    return {"receipt": call.store.write(set_project, project, actor=call.who.pseudonym)}


def _tasks(call: Call) -> dict[str, Any]:
    limit, state, after = _page(call, 100), call.given.get("state"), call.given.get("after", 0)
    return {"tasks": call.store.read(project_tasks, call.who.project, state, limit, after)}


def _add_tasks(call: Call) -> dict[str, Any]:
    bodies = stored_bodies(call.store, call.who.project, call.given["lines"])
    return asdict(call.act(add_tasks, bodies))


def _picture(call: Call) -> bytes:
    return call.store.read(picture_content, call.who.project, call.path["hash"])


def _close_task(call: Call) -> dict[str, Any]:
    return {"receipt": call.act(close_task, call.path["task"], reason=call.given["reason"])}


def _status(call: Call) -> dict[str, Any]:
    status = call.store.read(project_status, call.who.project)
    return asdict(status) | {"done": status.done}


def _people(call: Call) -> dict[str, Any]:
    result = call.store.read(project_people, call.who.project)
    # A reviewer decides about pseudonyms; whose they are is the owner's to know.
    if "manage" not in call.who.scopes:
        result = [{name: value for name, value in row.items() if name != "person"} for row in result]
    return {"people": result}


def _set_standing(call: Call) -> dict[str, Any]:
    standing, reason = call.words("standing", "reason")
    return {"receipt": call.act(set_standing, call.path["person"], standing, reason=reason)}


def _erase(call: Call) -> dict[str, Any]:
    seq = erase_person(call.store, call.who.project, call.path["person"], actor=call.who.pseudonym)
    return {"receipt": seq}


def _invite(call: Call) -> dict[str, Any]:
    wanted = {name: call.given[name] for name in ("role", "uses", "days") if name in call.given}
    return {"invite": call.act(make_invite, **wanted)}


def _queue(call: Call) -> dict[str, Any]:
    result = call.store.read(review_queue, call.who.project)
    return {"tasks": [{**item, "body": _without_sources(item["body"])} for item in result]}


def _without_sources(body: Mapping[str, Any]) -> dict[str, Any]:
    """A task as a reviewer sees it: blind, so without the models that wrote its answers."""
    hidden = ("method", "score", "probability", "priority", "metadata", "reference_answer")
    candidates = [
        {name: value for name, value in candidate.items() if name != "source"}
        for candidate in body.get("candidates", ())
    ]
    return {name: value for name, value in body.items() if name not in hidden} | {"candidates": candidates}


def _adjudicate(call: Call) -> Receipt:
    label, reason, key = call.words("label", "reason", "key")
    return call.act(adjudicate, call.path["task"], label, reason=reason, key=key)


def _export(call: Call) -> bytes:
    wanted = {name: value for name, value in call.given.items() if name != "position" and value is not None}
    how = {"filters": Filters(**wanted), "position": call.given.get("position")}
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        snapshot = export(call.store, call.who.project, rows, actor=call.who.pseudonym, **how)
        first = json.dumps({"snapshot": snapshot_to_dict(snapshot)}, ensure_ascii=False).encode() + b"\n"
        return first + rows.read_bytes()


_NAMED = {"assignment": TEXT, "key": TEXT}
_TIMED = {"seconds": MAYBE_ANY, "pasted": MAYBE_ANY}
_LISTED = FieldRule(types=(list,), required=False)
# A word and no type: in a module with postponed annotations that is all a field knows of it.
_FILTERS = {item.name: SWITCH if item.type == "bool" else MAYBE_TEXT for item in fields(Filters)}


def _at(
    address: str,
    scope: str,
    handler: Callable[[Call], object],
    rules: Mapping[str, FieldRule] | None = None,
    **more: Any,
) -> Endpoint:
    method, path = address.split()
    return Endpoint(method=method, path=path, scope=scope, handler=handler, rules=rules or {}, **more)


ENDPOINTS: tuple[Endpoint, ...] = (
    _at("GET /me", "any", lambda call: asdict(call.who) | call.store.read(own_counts, *call.person)),
    _at("POST /next", "label", _next, {"key": MAYBE_TEXT}),
    _at("POST /draft", "label", _draft, {"assignment": TEXT, "label": ANY}),
    _at("POST /submit", "label", _submit, {**_NAMED, "label": ANY, **_TIMED}),
    _at("POST /revise", "label", _revise, {**_NAMED, "label": ANY, "seconds": MAYBE_ANY}),
    _at(
        "POST /skip", "label", _written(skip_task, "assignment", "key", "reason"), {**_NAMED, "reason": TEXT}
    ),
    _at("POST /undo", "label", _written(undo_answer, "assignment", "key"), _NAMED),
    _at("POST /note", "label", _written(add_note, "assignment", "key", "text"), {**_NAMED, "text": TEXT}),
    _at("POST /flag", "label", _flag, {**_NAMED, "reason": TEXT, "text": MAYBE_TEXT}),
    _at("GET /history", "label", _history, {"limit": INTEGER, "before": INTEGER}),
    _at("GET /guidelines", "any", _guidelines),
    _at("GET /pictures/{hash}", "any", _picture, media_type=MEDIA_TYPE),
    _at("POST /ask", "label", _ask, {"key": TEXT, "text": TEXT}),
    _at(
        "POST /preferences",
        "label",
        _preferences,
        {
            "declined": _LISTED,
            "languages": _LISTED,
            "areas": _LISTED,
            "groups": FieldRule(types=(dict,), required=False),
        },
    ),
    _at("POST /turn", "label", _turn, {**_NAMED, "message": TEXT}, lane="model"),
    _at("POST /choose", "label", _choose, {"assignment": TEXT, "turn": ANY, "strength": ANY}),
    _at("GET /turns", "label", _turns, {"assignment": TEXT}),
    _at("GET /project", "read", lambda call: project_to_dict(call.store.project(call.who.project))),
    _at("PUT /project", "manage", _set_project, {"settings": FieldRule(types=(dict,))}),
    _at("POST /tasks", "manage", _add_tasks, lines=True, most=MOST_TASK_BYTES),
    _at("GET /tasks", "manage", _tasks, {"state": MAYBE_TEXT, "limit": INTEGER, "after": INTEGER}),
    _at("POST /tasks/{task}/close", "manage", _close_task, {"reason": TEXT}),
    _at("GET /queue", "review", _queue),
    _at("POST /tasks/{task}/adjudicate", "review", _adjudicate, {"label": ANY, "reason": TEXT, "key": TEXT}),
    _at("GET /status", "read", _status),
    _at("GET /people", "review", _people),
    _at("POST /people/{person}/standing", "review", _set_standing, {"standing": TEXT, "reason": TEXT}),
    _at(
        "POST /people/{person}/revoke",
        "manage",
        lambda call: {"tokens": call.act(revoke, call.path["person"])},
    ),
    _at("POST /people/{person}/erase", "manage", _erase),
    _at(
        "POST /invites", "manage", _invite, {"role": MAYBE_TEXT, "uses": INTEGER, "days": NUMBER}, status=201
    ),
    _at("POST /export", "manage", _export, {**_FILTERS, "position": INTEGER}),
)
