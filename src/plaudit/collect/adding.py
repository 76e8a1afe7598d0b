"""What an owner puts in: the settings of a project, and its tasks, all of a call or none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from plaudit.collect import log, views
from plaudit.collect.answers import check_label, known_answer
from plaudit.collect.desk import key_of, task_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.log import Entry, bound, canonical, digest
from plaudit.collect.project import Project, guidelines_version, project_to_dict
from plaudit.collect.refusals import (
    ChangedMeanwhileError,
    FieldError,
    NotYoursError,
    check_choice,
    checked_text,
)
from plaudit.collect.store import Receipt, Transaction, receipt_of
from plaudit.collect.tables import label as labels, project as projects, task
from plaudit.collect.tasks import check_task
from plaudit.errors import UserError

_BATCH = 500
_WORK = (
    select(task.c.id, task.c.body)
    .where(task.c.project == bindparam("p"), task.c.purpose == "work")
    .where(task.c.prompt.in_(bindparam("prompts", expanding=True)))
    .order_by(task.c.done.desc(), task.c.seq)
)
_THERE = select(task.c.id).where(
    task.c.project == bindparam("p"), task.c.id.in_(bindparam("ids", expanding=True))
)
_DECISION = select(labels.c.label, labels.c.shown).where(
    bound(labels, project="p", task="t"), labels.c.purpose == "adjudicated"
)
_SETTINGS_SEQ = select(projects.c.seq).where(projects.c.name == bindparam("p"))
_ANY_LABEL = select(labels.c.seq).where(labels.c.project == bindparam("p")).limit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    added: int
    repeated: int
    """How many were there before, word for word."""
    first: int | None = None
    """The number of the first new one's event."""


def set_project(change: Transaction, project: Project, *, actor: str, replacing: int | None = None) -> int:
    """Make a project, or change its settings; labels keep the version of the guidelines they came under.

    ``replacing`` is the number of the settings that the new ones were made from: others are not overwritten.
    """
    checked_text("project", project.name, most=100, empty=False)
    before = views.settings_of(change.connection, project.name)
    if replacing is not None and replacing != settings_seq(change.connection, project.name):
        raise ChangedMeanwhileError(
            f"the settings of project {project.name} were changed meanwhile, by another page or person; look "
            "at them as they are now, and change them anew"
        )
    if before is not None and before.ask != project.ask:
        raise UserError(
            f"project {project.name} asks for {before.ask}, and so do its tasks; for {project.ask} make "
            "another project"
        )
    if before is not None:
        _refuse_another_measure(change, before, project)
    body = {"settings": project_to_dict(project), "guidelines": guidelines_version(project)}
    entry = Entry(project=project.name, actor=actor, kind="project-set", subject=project.name, body=body)
    return change.record(entry).seq


def settings_seq(connection: Connection, name: str) -> int | None:
    """The number of the event that set a project's settings of now."""
    return connection.execute(_SETTINGS_SEQ, {"p": name}).scalar_one_or_none()


def _refuse_another_measure(change: Transaction, before: Project, now: Project) -> None:
    # Labels are numbers on a scale: with another one, those that are there would say something else.
    other = _other_measure(before, now)
    if other is not None and change.connection.execute(_ANY_LABEL, {"p": now.name}).first() is not None:
        raise UserError(
            f"project {now.name} has labels {other} would change the meaning of; make another project "
            "(other words for as many degrees or levels are fine)"
        )


def _other_measure(before: Project, now: Project) -> str | None:
    # On which scale labels are, and which other one is wanted; None where they are the same.
    if (len(before.scale), before.points) != (len(now.scale), now.points):
        return (
            f"on a scale of {len(before.scale)} degrees and {before.points} points, which {len(now.scale)} "
            f"degrees and {now.points} points"
        )
    for aspect in sorted({*before.aspects} & {*now.aspects}):
        if before.levels(aspect) != now.levels(aspect):
            return f"of {aspect} on {before.levels(aspect)} levels, which {now.levels(aspect)} levels"
    return None


def add_tasks(change: Transaction, name: str, bodies: Iterable[object], *, actor: str) -> Added:
    """Add tasks; one that is wrong refuses all of them, by its number, field and what was found."""
    settings = change.settings(name)
    checked = [_checked(number, body, settings) for number, body in enumerate(bodies, start=1)]
    added, repeated, first = 0, 0, None
    # In parts: databases bound how many parameters the look for known ids may have.
    for start in range(0, len(checked), _BATCH):
        # The tasks that are not there yet, by id: what is the same word for word is the same task.
        # One that is there twice in a call becomes one task too, and is counted as repeated.
        by_id = {task_id(body): body for body in checked[start : start + _BATCH]}
        there = {row.id for row in change.connection.execute(_THERE, {"p": name, "ids": [*by_id]})}
        fresh = {wanted: body for wanted, body in by_id.items() if wanted not in there}
        repeated += len(checked[start : start + _BATCH]) - len(fresh)
        if not fresh:
            continue
        entries = [
            Entry(project=name, actor=actor, kind="task-added", subject=wanted, body=body)
            for wanted, body in fresh.items()
        ]
        # Past `record`, which would fold each task by a statement of its own.
        events = log.append(change.connection, change.now, entries)
        views.add_task_rows(change.connection, events, settings.overlap)
        added += len(events)
        first = events[0].seq if first is None else first
    return Added(added=added, repeated=repeated, first=first)


def _checked(number: int, body: object, settings: Project) -> dict[str, Any]:
    try:
        return check_task(body, settings)
    except FieldError as fault:
        raise fault.under(f"task {number}, {fault.field}") from fault


def content_key(body: Mapping[str, Any]) -> str:
    """What is asked, whoever asks it for whatever reason, and whichever answer stands first."""
    answers = sorted(canonical(candidate["text"]) for candidate in body.get("candidates", ()))
    own = [body.get(name) for name in KINDS[body["kind"]].own]
    return digest([body["prompt"], answers, own])


def ids_by_content(change: Transaction, name: str, bodies: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The ids of a project's tasks with the prompts of these by what they ask, known answers aside."""
    ids, prompts = dict[str, str](), sorted({views.prompt_key(body) for body in bodies})
    for start in range(0, len(prompts), _BATCH):
        for row in change.connection.execute(_WORK, {"p": name, "prompts": prompts[start : start + _BATCH]}):
            # The same may be there twice, as by rows that were added: what people answered counts.
            ids.setdefault(content_key(views.body_of(row)), row.id)
    return ids


def task_id(body: dict[str, Any]) -> str:
    """A task's id is a digest of all that it is: it tells nothing, and the same task has the same one."""
    # 80 bits: no two tasks of a project will share them by chance.
    return f"t{digest(body)[:20]}"


def close_task(change: Transaction, name: str, wanted: str, *, reason: object, actor: str) -> int:
    """Give a task out no more; labels that come all the same are surplus."""
    task_of(change, name, wanted)
    body = {"reason": checked_text("reason", reason, empty=False)}
    entry = Entry(project=name, actor=actor, kind="task-closed", subject=wanted, body=body)
    return change.record(entry).seq


def open_task(change: Transaction, name: str, wanted: str, *, reason: str, actor: str) -> int:
    """Give a task that was closed out again."""
    entry = Entry(project=name, actor=actor, kind="task-opened", subject=wanted, body={"reason": reason})
    return change.record(entry).seq


ADJUDICATION_REASONS = ("unclear-task", "guideline-gap", "error", "taste")
"""Why people were divided: the second makes the list of what the guidelines leave open."""


def adjudicate(
    change: Transaction,
    name: str,
    wanted: str,
    label: object,
    *,
    reason: str,
    actor: str,
    key: str,
    first: bool = False,
) -> Receipt:
    """A reviewer's own label, in the task's order; it settles the task.

    A later decision takes the place of an earlier one; ``first`` refuses a task that waits for none any more.
    """
    check_choice("reason", reason, ADJUDICATION_REASONS)
    row = task_of(change, name, wanted)
    request = {"task": wanted, "label": label, "reason": reason}
    entry = Entry(
        project=name, actor=actor, kind="adjudicated", subject=wanted, key=key_of(actor, key), body={}
    )
    earlier = change.earlier(entry, request)
    if earlier is not None:
        return receipt_of(earlier)
    if row.purpose != "work":
        raise NotYoursError("an item whose answer is known is not decided again")
    if first and row.state != "review":
        raise ChangedMeanwhileError(f"task {wanted} was decided meanwhile; that decision holds, go on")
    settings, task_body = change.settings(name), views.body_of(row)
    body = {
        "label": check_label(label, task_body, settings),
        "reason": reason,
        # Reviewers see the task's own order, so their labels are stored without turning round.
        "order": [*range(len(task_body.get("candidates", ())))],
        "guidelines": guidelines_version(settings),
    }
    return change.record_once(replace(entry, body=body), request)


def make_gold(change: Transaction, name: str, wanted: str, *, actor: str) -> Added:
    """A gold item from a task that a reviewer decided: the same task, with the decision as known answer."""
    row, settings = task_of(change, name, wanted), change.settings(name)
    body = views.body_of(row)
    decision = change.connection.execute(_DECISION, {"p": name, "t": wanted}).first()
    if decision is None:
        raise NotYoursError(f"task {wanted} was not decided by a reviewer, so that nothing is known of it")
    gold = known_answer(json.loads(decision.label), body, json.loads(decision.shown), settings)
    if gold is None:
        raise FieldError(
            field="gold",
            found="a decision for no answer alone",
            expected="one that says which answer is right, or there is nothing to check people by",
        )
    return add_tasks(change, name, [{**body, "gold": gold}], actor=actor)
