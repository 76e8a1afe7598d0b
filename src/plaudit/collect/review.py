"""What owners and reviewers look up: tasks by words, all that people gave on one, decisions, the audit trail.

Lists come a page at a time by the key of the last row, so that the last page costs no more than the first.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from plaudit.collect import log, progress
from plaudit.collect.desk import key_of, person_row, task_of
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import Entry, Event, bound
from plaudit.collect.people import INVITE_LETTERS
from plaudit.collect.pictures import texts_of
from plaudit.collect.project import project_from_dict, project_to_dict
from plaudit.collect.refusals import FieldError, NotFoundError, NotYoursError, check_choice, checked_text
from plaudit.collect.store import LabelStore, Receipt, Transaction, later, parsed
from plaudit.collect.tables import assignment, invite, label, panel, task
from plaudit.data.records import pictures, plain_text

TASK_STATES = ("open", "done", "review", "adjudicated", "closed", "item")
"""What a task may be: wanted, labelled, divided, decided, given out no more, or with a known answer."""
_PAGE = 50
_SCANNED = 250
_MOST_WORDS = 200
_DAYS = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry:
    id: str
    seq: int
    """The number of the event that added it: what pages go on from."""
    state: str
    """One of `TASK_STATES`."""
    purpose: str
    wanted: int
    done: int
    category: str | None
    prompt: str
    pictures: tuple[str, ...] = ()
    """Those of its prompt and answers, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    tasks: tuple[TaskEntry, ...]
    """The tasks, in the order in which they were added."""
    after: int | None
    """What the next page goes on from; None for the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLabel:
    seq: int
    at: str
    annotator: str
    """Who, by pseudonym; of a model its name."""
    purpose: str
    """work, gold, qualify, repeat, judged or adjudicated."""
    label: dict[str, Any]
    """What was answered, in the order shown."""
    order: tuple[int, ...]
    """Which candidate was shown at which place."""
    guidelines: str
    seconds: float | None
    """How long it took, where that is known."""
    pasted: float | None
    """The share of what was written that was pasted."""
    surplus: bool
    reason: str = ""
    """Why a reviewer decided, of a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A note, a report or a skip of a task."""

    at: str
    actor: str
    kind: str
    """noted, flagged or released (given back)."""
    reason: str = ""
    text: str = ""
    """The words, where there are some; they are gone once their writer is erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetails:
    """One task with all that people gave on it."""

    id: str
    seq: int
    state: str
    """One of `TASK_STATES`."""
    purpose: str
    wanted: int
    taken: int
    """How many people hold it now."""
    done: int
    body: dict[str, Any]
    labels: tuple[GivenLabel, ...] = ()
    comments: tuple[Comment, ...] = ()
    """Notes, reports and skips, the oldest first."""

    @property
    def decision(self) -> GivenLabel | None:
        return next((given for given in self.labels if given.purpose == "adjudicated"), None)


_TASKS = (
    select(task)
    .where(task.c.project == bindparam("p"), task.c.seq > bindparam("after"))
    .where(task.c.body.ilike(bindparam("pattern"), escape="\\"))
    .order_by(task.c.seq)
    .limit(bindparam("most"))
)
_TASKS_IN_STATE = _TASKS.where(task.c.state == bindparam("s"))
_IN_STATE = (
    select(task.c.id, task.c.seq)
    .where(task.c.project == bindparam("p"), task.c.seq > bindparam("after"), task.c.state == bindparam("s"))
    .order_by(task.c.seq)
    .limit(1)
)
_COUNT_IN_STATE = select(func.count()).where(bound(task, project="p", state="s"))
_LABELS = select(label).where(bound(label, project="p", task="t")).order_by(label.c.seq)
_ASSIGNMENTS = select(assignment.c.id, assignment.c.annotator).where(bound(assignment, project="p", task="t"))
_COMMENTS = (
    select(log.log)
    # By the index of actors: only who was given a task can have commented on it.
    .where(log.log.c.project == bindparam("p"), log.log.c.actor.in_(bindparam("actors", expanding=True)))
    .where(log.log.c.subject.in_(bindparam("subjects", expanding=True)))
    .where(log.log.c.kind.in_(("noted", "flagged", "released")))
    .order_by(log.log.c.seq)
)


def search_tasks(
    store: LabelStore,
    name: str,
    *,
    state: str | None = None,
    words: str = "",
    after: int = 0,
    items: bool = False,
) -> TaskPage:
    """A page of the tasks in a state whose prompt has all the words; ``items``: also known answers."""
    if state is not None:
        check_choice("state", state, TASK_STATES)
    if len(words) > _MOST_WORDS:
        raise FieldError(
            field="words", found=f"{len(words)} characters", expected=f"at most {_MOST_WORDS} of them"
        )
    wanted = words.casefold().split()
    found = list[TaskEntry]()
    for row in _scan(store, name, state, pattern=_pattern(words.split()), after=after):
        body = json.loads(row.body)
        body_prompt = body["prompt"]
        prompt = plain_text(text_of(body_prompt)) if body_prompt else ""
        folded = prompt.casefold()
        if (items or row.purpose == "work") and all(word in folded for word in wanted):
            names = ("id", "seq", "state", "purpose", "wanted", "done", "category")
            listed = tuple(source for _, text in texts_of(body) for source in pictures(text))
            values = {name: getattr(row, name) for name in names}
            found.append(TaskEntry(**values, prompt=prompt, pictures=listed))
        if len(found) > _PAGE:
            return TaskPage(tasks=tuple(found[:_PAGE]), after=found[_PAGE - 1].seq)
    return TaskPage(tasks=tuple(found), after=None)


def _scan(store: LabelStore, name: str, state: str | None, *, pattern: str, after: int) -> Iterator[Any]:
    statement = _TASKS if state is None else _TASKS_IN_STATE
    names: dict[str, Any] = {"p": name, "pattern": pattern, "most": _SCANNED}
    names |= {} if state is None else {"s": state}
    with store.looking() as look:
        while rows := look.connection.execute(statement, {**names, "after": after}).all():
            yield from rows
            after = rows[-1].seq


def _pattern(words: Sequence[str]) -> str:
    """What the database looks for: a sieve for one of the words, whose finds are looked at once more.

    >>> _pattern(["red", "Größe?"])
    '%red%'
    """
    # A body is JSON, which writes some signs otherwise, and SQLite folds the case of ASCII alone: those
    # may be anything.
    masked = ["".join(letter if _is_plain(letter) else "%" for letter in word) for word in words]
    return f"%{max(masked, key=lambda word: sum(map(_is_plain, word)), default='')}%"


def _is_plain(letter: str) -> bool:
    return letter.isalnum() and (letter.isascii() or letter.lower() == letter.upper())


def task_details(store: LabelStore, name: str, wanted: str) -> TaskDetails:
    with store.looking() as look:
        return _details(look, name, wanted)


def _details(look: Transaction, name: str, wanted: str) -> TaskDetails:
    row, names = task_of(look, name, wanted), {"p": name, "t": wanted}
    labels = [_given(look.connection, row) for row in look.connection.execute(_LABELS, names).all()]
    fields = ("id", "seq", "state", "purpose", "wanted", "taken", "done")
    return TaskDetails(
        **{field: getattr(row, field) for field in fields},
        body=json.loads(row.body),
        labels=tuple(labels),
        comments=tuple(_comments(look.connection, names)),
    )


def _given(connection: Connection, row: Any) -> GivenLabel:
    event = log.by_seq(connection, row.seq) if row.purpose == "adjudicated" else None
    names = ("seq", "at", "annotator", "purpose", "guidelines", "seconds", "pasted")
    return GivenLabel(
        **{name: getattr(row, name) for name in names},
        label=json.loads(row.label),
        order=tuple(json.loads(row.shown)),
        surplus=bool(row.surplus),
        reason="" if event is None or event.body is None else event.body["reason"],
    )


def _comments(connection: Connection, names: Mapping[str, str]) -> Iterator[Comment]:
    given = connection.execute(_ASSIGNMENTS, names).all()
    # Notes are of the task, a task is given back by its assignment.
    subjects = [names["t"], *(row.id for row in given)]
    actors = sorted({row.annotator for row in given})
    found = connection.execute(_COMMENTS, {"p": names["p"], "actors": actors, "subjects": subjects})
    for row in found.mappings():
        body = parsed(row["body"]) or {}
        yield Comment(
            at=row["at"],
            actor=row["actor"],
            kind=row["kind"],
            reason=body.get("reason", ""),
            text=body.get("text", ""),
        )


def next_divided(store: LabelStore, name: str, after: int = 0) -> tuple[TaskDetails | None, int]:
    """The next task that needs a reviewer, behind the last one the first again; and how many there are."""
    with store.looking() as look:
        names = {"p": name, "s": "review"}
        left = look.connection.execute(_COUNT_IN_STATE, names).scalar_one()
        for start in (after, 0):
            row = look.connection.execute(_IN_STATE, {**names, "after": start}).first()
            if row is not None:
                return _details(look, name, row.id), left
    return None, left


_PER_DAY = (
    select(func.substr(label.c.at, 1, 10).label("day"), func.count().label("labels"))
    .where(label.c.project == bindparam("p"), label.c.at >= bindparam("since"))
    # What a model judged was not labelled by anybody.
    .where(label.c.purpose != "judged")
    # By its name: PostgreSQL takes the expression, once more with parameters of its own, for another one.
    .group_by("day")
)


def labels_per_day(store: LabelStore, name: str) -> list[tuple[str, int]]:
    """The last four weeks, each day with how many labels that hold were given on it."""
    with store.looking() as look:
        days = [later(look.now, days=-back)[:10] for back in reversed(range(_DAYS))]
        rows = look.connection.execute(_PER_DAY, {"p": name, "since": days[0]})
        counts = {row.day: row.labels for row in rows}
    return [(day, counts.get(day, 0)) for day in days]


TRAIL_KINDS = (
    "project-set",
    "task-closed",
    "adjudicated",
    "flagged",
    "invited",
    "joined",
    "standing-set",
    "password-set",
    "signed-in",
    "refused",
    "revoked",
    "erased",
    "exported",
)
"""The kinds of event of the audit trail, which answers and tasks would drown."""
_TRAIL = (
    select(log.log)
    .where(log.log.c.project == bindparam("p"), log.in_trail(log.log), log.log.c.seq < bindparam("before"))
    .where(log.log.c.kind.in_(bindparam("kinds", expanding=True)))
    .order_by(log.log.c.seq.desc())
    .limit(bindparam("most"))
)
_TRAIL_OF = _TRAIL.where(log.log.c.subject == bindparam("subject"))
_NEWEST = 2**62


def trail(
    store: LabelStore,
    name: str,
    *,
    kinds: Sequence[str] = TRAIL_KINDS,
    subject: str | None = None,
    before: int | None = None,
    most: int = _PAGE,
) -> list[Event]:
    """Events of the audit trail, the newest first: of some kinds, of a person or task, before a number."""
    if unknown := {*kinds} - {*TRAIL_KINDS}:
        raise FieldError(
            field="kind", found=", ".join(sorted(unknown)), expected=f"one of {', '.join(TRAIL_KINDS)}"
        )
    names: dict[str, Any] = {"p": name, "kinds": [*kinds], "before": before or _NEWEST, "most": most}
    statement = _TRAIL if subject is None else _TRAIL_OF
    with store.looking() as look:
        found = look.connection.execute(statement, {**names, "subject": subject})
        return [log.event_of_row(row) for row in found.mappings()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    at: str
    actor: str
    guidelines: str
    changed: tuple[str, ...]
    """The settings that it changed; all that were not left alone, of the first."""


def settings_history(store: LabelStore, name: str) -> list[SettingsChange]:
    """The changes of a project's settings, the newest first."""
    events = trail(store, name, kinds=("project-set",), most=_NEWEST)
    # Read as the settings of today: an older event lacks those that came to be later.
    settings = [project_to_dict(project_from_dict((event.body or {})["settings"])) for event in events]
    return [
        SettingsChange(
            at=event.at,
            actor=event.actor,
            guidelines=(event.body or {}).get("guidelines", ""),
            changed=tuple(field for field in now if now[field] != before.get(field)),
        )
        for event, now, before in zip(events, settings, [*settings[1:], dict[str, Any]()], strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A reviewer's decision, as a hint at what the guidelines leave open."""

    task: str
    at: str
    reason: str
    words: str
    """What the reviewer wrote; empty for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What people were divided by under one version of the guidelines."""

    version: str
    """The version of the guidelines; empty where there were none."""
    since: str
    """Since when it holds; empty where that is not in the log."""
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """How many decisions had which reason."""
    decisions: tuple[Decision, ...] = ()
    """Those that name a gap of the guidelines, or say something in words, the newest first."""


def gaps(store: LabelStore, name: str) -> list[Gaps]:
    """The reasons of decisions by version of the guidelines, the newest version first."""
    newest = dict[str, Event]()
    for event in trail(store, name, kinds=("adjudicated",), most=_NEWEST):
        newest.setdefault(event.subject, event)
    # One whose words were erased has left no reason.
    held = [(event, event.body) for event in newest.values() if event.body is not None]
    since = {change.guidelines: change.at for change in settings_history(store, name)}
    versions = {body["guidelines"]: since.get(body["guidelines"], "") for _, body in held}
    found = list[Gaps]()
    for version, at in sorted(versions.items(), key=lambda item: item[1], reverse=True):
        own = [(event, body) for event, body in held if body["guidelines"] == version]
        reasons = Counter(body["reason"] for _, body in own)
        reasoned = ((event, body["reason"], body["label"].get("why", "")) for event, body in own)
        decisions = [Decision(task=e.subject, at=e.at, reason=why, words=words) for e, why, words in reasoned]
        shown = tuple(item for item in decisions if item.reason == "guideline-gap" or item.words)
        found.append(Gaps(version=version, since=at, reasons=dict(reasons), decisions=shown))
    return found


def person_named(store: LabelStore, name: str, pseudonym: str) -> dict[str, Any]:
    """One person of a project, with counts, as `LabelStore.annotators` lists all of them."""
    with store.looking() as look:
        found = progress.person_entry(look.connection, name, pseudonym)
    if found is None:
        raise NotFoundError(f"project {name} has nobody called {pseudonym[:40]!r}")
    return found


_INVITES = (
    select(invite, panel.c.code, panel.c.tasks)
    .outerjoin(panel, panel.c.hash == invite.c.hash)
    .where(invite.c.project == bindparam("p"), invite.c.expires > bindparam("now"), invite.c.uses > 0)
    .order_by(invite.c.expires, invite.c.hash)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteEntry:
    id: str
    """By what it is ended; it opens nothing."""
    role: str
    uses: int
    expires: str
    code: str | None
    """The completion code, of a panel's."""
    tasks: int | None
    """After how many answers the code is shown; None for all work."""


def invites(store: LabelStore, name: str) -> list[InviteEntry]:
    """The invites of a project that still work, those that end first first."""
    names = ("role", "uses", "expires", "code", "tasks")
    with store.looking() as look:
        return [
            InviteEntry(id=row.hash[:INVITE_LETTERS], **{name: getattr(row, name) for name in names})
            for row in look.connection.execute(_INVITES, {"p": name, "now": look.now})
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody asked the project, and what was answered for all to read."""

    seq: int
    at: str
    actor: str
    """Who asked, by pseudonym; annotators are not shown it."""
    text: str
    """What was asked, or what the answer put in its place; empty where the asker was erased."""
    answer: str = ""
    """The newest answer; empty while there is none."""
    answered_by: str = ""


def ask_project(change: Transaction, name: str, person: str, key: str, text: object) -> Receipt:
    """A question about the project and not about a task; those who review are shown it."""
    row = person_row(change, name, person)
    if row.standing in ("suspended", "failed", "erased"):
        raise NotYoursError("your work in this project is over, and so are questions about it")
    request = {"text": checked_text("text", text, empty=False)}
    entry = Entry(
        project=name, actor=person, kind="noted", subject=name, key=key_of(person, key), body=request
    )
    return change.record_once(entry, request)


def answer_question(
    change: Transaction, name: str, seq: int, text: object, *, actor: str, key: str, words: object = ""
) -> Receipt:
    """An answer that everybody reads; ``words`` stand for the question there, as names may be in it."""
    question = log.by_seq(change.connection, seq)
    if question is None or not _is_question(question, name):
        raise NotFoundError(f"event {seq} is no question to {name}")
    request = {"text": checked_text("text", text, empty=False), "to": seq}
    if reworded := checked_text("words", words).strip():
        request |= {"words": reworded}
    return _note(change, name, actor, key, request)


def _note(change: Transaction, name: str, actor: str, key: str, request: dict[str, Any]) -> Receipt:
    # A note on the project itself, where others are on a task.
    own = key_of(actor, key)
    entry = Entry(project=name, actor=actor, kind="noted", subject=name, key=own, body=request)
    return change.record_once(entry, request)


def _is_question(event: Event, name: str) -> bool:
    is_of_project = (event.kind, event.project, event.subject) == ("noted", name, name)
    return is_of_project and (event.body is None or "to" not in event.body)


def questions(look: Transaction, name: str) -> list[Question]:
    """All questions to a project in their order, each with its newest answer."""
    found = dict[int, Question]()
    for event in log.events_of_kind(look.connection, name, "noted"):
        body = event.body or {}
        if event.subject == name and body.get("to") in found:
            before = found[body["to"]]
            text = body.get("words") or before.text
            found[body["to"]] = replace(before, text=text, answer=body["text"], answered_by=event.actor)
        elif _is_question(event, name):
            question = {"seq": event.seq, "at": event.at, "actor": event.actor, "text": body.get("text", "")}
            found[event.seq] = Question(**question)
    # Of an erased answer as of an erased question nothing is left to read.
    return [question for question in found.values() if question.text or question.answer]
