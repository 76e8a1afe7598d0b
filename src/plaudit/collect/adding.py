"""What an owner puts in: the settings of a project, and its tasks, all of a call or none."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from plaudit.collect import log, views
from plaudit.collect.answers import check_label, known_answer
from plaudit.collect.desk import key_of, task_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.log import Entry, bound, canonical, digest, same
from plaudit.collect.pictures import refuse_missing
from plaudit.collect.project import Project, guidelines_version, project_to_dict
from plaudit.collect.refusals import (
    ChangedMeanwhileError,
    FieldError,
    NotYoursError,
    check_choice,
    checked_text,
)
from plaudit.collect.store import Receipt, Transaction, receipt_of
from plaudit.collect.tables import annotator, label as labels, project as projects, task
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
_REVIEWERS_LABELS = (
    select(labels.c.seq, labels.c.task, labels.c.annotator, labels.c.label, labels.c.shown)
    .join(annotator, same(annotator, labels, name="annotator"))
    .where(labels.c.project == bindparam("p"), labels.c.purpose == "work", annotator.c.role != "annotator")
    .order_by(labels.c.seq)
)
_EXCLUDED = select(annotator.c.name).where(annotator.c.project == bindparam("p"), annotator.c.excluded == 1)
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
    _refuse_unseen_aspects(project)
    body = {"settings": project_to_dict(project), "guidelines": guidelines_version(project)}
    entry = Entry(project=project.name, actor=actor, kind="project-set", subject=project.name, body=body)
    return change.record(entry).seq


def settings_seq(connection: Connection, name: str) -> int | None:
    """The number of the event that set a project's settings of now."""
    return connection.execute(_SETTINGS_SEQ, {"p": name}).scalar_one_or_none()


def _refuse_unseen_aspects(project: Project) -> None:
    # When it is set and not when it is read: older stores may hold aspects that no page ever showed.
    kinds = [kind.name for kind in KINDS.values() if kind.aspects]
    if project.aspects and project.ask not in kinds:
        raise UserError(
            f"project {project.name!r}: aspects are rated where it asks for {' or '.join(kinds)}, and nobody "
            f"would see them where it asks for {project.ask}; leave them out"
        )


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
        refuse_missing(change, name, [*fresh.values()])
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
    mine = [body.get(name) for name in KINDS[body["kind"]].own]
    return digest([body["prompt"], answers, mine])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkGold:
    """What the reviewers of a project make known together."""

    bodies: tuple[dict[str, Any], ...]
    """Tasks with what most of their reviewers say as known answer."""
    left_open: tuple[tuple[str, str], ...]
    """Other tasks that a reviewer answered, by id, each with the reason."""


def gold_of_reviewers(look: Transaction, name: str, *, least: int = 3, agreement: float = 0.75) -> BulkGold:
    """Known answers by the majority of reviewers; nothing is written.

    A reviewer counts once a task, by the newest that he or she decided or labelled; owners count too.
    """
    if least < 2:
        raise FieldError(field="reviewers", found=str(least), expected="2 or more: one alone is no majority")
    if not 0.5 < agreement <= 1:
        expected = "a share above 0.5, at most 1"
        raise FieldError(field="agreement", found=f"{agreement:g}", expected=expected)
    settings, bodies, left_open = look.settings(name), list[dict[str, Any]](), list[tuple[str, str]]()
    if KINDS[settings.ask].known is None:
        raise UserError(
            f"project {name} asks for {settings.ask}, and no answer of that kind is right or wrong"
        )
    for wanted, votes in _votes_of_reviewers(look, name).items():
        body = views.body_of(task_of(look, name, wanted))
        answers = [known_answer(label, body, order, settings) for label, order in votes.values()]
        settled = Counter(canonical(answer) for answer in answers if answer is not None)
        best, most = settled.most_common(1)[0] if settled else ("null", 0)
        if len(votes) < least:
            left_open.append((wanted, f"{len(votes)} of {least} reviewers have answered it"))
        elif most < agreement * len(votes):
            left_open.append((wanted, f"{most} of {len(votes)} reviewers agree on an answer"))
        else:
            bodies.append({**body, "gold": json.loads(best)})
    return BulkGold(bodies=tuple(bodies), left_open=tuple(left_open))


def _votes_of_reviewers(look: Transaction, name: str) -> dict[str, dict[str, tuple[Any, Any]]]:
    # By task and reviewer. From the log, since of several decisions about a task only the last one holds.
    excluded = {*look.connection.execute(_EXCLUDED, {"p": name}).scalars()}
    given = [
        (row.seq, row.task, row.annotator, json.loads(row.label), json.loads(row.shown))
        for row in look.connection.execute(_REVIEWERS_LABELS, {"p": name})
    ]
    given += [
        (event.seq, event.subject, event.actor, event.body["label"], event.body["order"])
        for event in log.events_of_kind(look.connection, name, "adjudicated")
        if event.body is not None and event.body["label"] is not None
    ]
    votes = dict[str, dict[str, tuple[Any, Any]]]()
    for _, wanted, reviewer, label, order in sorted(given, key=lambda vote: vote[0]):
        if reviewer not in excluded:
            votes.setdefault(wanted, {})[reviewer] = label, order
    return votes
