"""Pages of those who run a project: how far it is, its tasks, settings, exports, pay and audit trail."""

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from plaudit.collect import review
from plaudit.collect.adding import add_tasks, close_task, gold_of_reviewers, make_gold
from plaudit.collect.app.pages import Answer, File, Sent, Shown, Visit, page
from plaudit.collect.app.safety import MOST_TASKS, RequestError, is_number, parse_json, status_of
from plaudit.collect.app.saying import Described, describe
from plaudit.collect.export import EmptyExportError, Filters, export
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import LETTERS
from plaudit.collect.pictures import Pictures
from plaudit.collect.progress import project_status
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError, NotFoundError
from plaudit.collect.review import TASK_STATES, TRAIL_KINDS, GivenLabel, TaskDetails
from plaudit.collect.tasks import check_task
from plaudit.errors import UserError

SECTIONS: tuple[tuple[str, str, str], ...] = (
    ("/manage", "manage-nav-overview", "read"),
    ("/manage/tasks", "manage-nav-tasks", "read"),
    ("/manage/queue", "manage-nav-queue", "review"),
    ("/manage/quality", "manage-nav-quality", "review"),
    ("/manage/gaps", "manage-nav-gaps", "read"),
    ("/manage/questions", "manage-nav-questions", "review"),
    ("/manage/people", "manage-nav-people", "review"),
    ("/manage/invites", "manage-nav-invites", "manage"),
    ("/manage/settings", "manage-nav-settings", "read"),
    ("/manage/export", "manage-nav-export", "manage"),
    ("/manage/log", "manage-nav-log", "manage"),
)
"""The parts of the pages, each with its words and who may look at it."""
_MOST_FAULTS = 20
_EXAMPLE = {"prompt": "Why is the sky blue?"}
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_SWITCHES = tuple(item.name for item in fields(Filters) if isinstance(item.default, bool))


def manage_page(
    visit: Visit, template: str, *, error: UserError | None = None, status: int | None = None, **values: Any
) -> Shown:
    """A page with the menu of those that whoever asks may open; its status is that of an error, if any."""
    here = visit.address.partition("?")[0]
    sections = [
        # The longest that fits is here: all addresses begin with the overview's.
        {"to": to, "key": key, "here": here == to or (to != "/manage" and here.startswith(f"{to}/"))}
        for to, key, scope in SECTIONS
        if visit.may(scope)
    ]
    if status is None:
        status = 200 if error is None else status_of(error)
    return Shown(template=template, values={"sections": sections, "error": error, **values}, status=status)


def whole_number(words: Mapping[str, str], name: str) -> int:
    """The number that stands behind the question mark of an address; 0 where there is none."""
    text = words.get(name, "") or "0"
    if not is_number(text):
        raise FieldError(field=name, found=repr(text[:40]), expected="a whole number")
    return int(text)


def _overview(visit: Visit) -> Answer:
    status = visit.store.read(project_status, visit.who.project)
    days = review.labels_per_day(visit.store, visit.who.project)
    project = visit.store.project(visit.who.project)
    # Bars of a chart that is 100 high, in the order of the days.
    most = max(count for _, count in days) or 1
    heights = [round(100 * count / most, 1) for _, count in days]
    bars = [{"x": 10 * at + 1, "y": 100 - high, "height": high} for at, high in enumerate(heights)]
    return manage_page(visit, "manage_overview.html", figures=status, project=project, days=days, bars=bars)


def _tasks(visit: Visit) -> Answer:
    state, words = visit.query.get("state") or None, visit.query.get("words", "")
    result = review.search_tasks(
        visit.store,
        visit.who.project,
        state=state,
        words=words,
        after=whole_number(visit.query, "after"),
        # Reviewers label too, and whoever labels is not to know which tasks check people.
        items=visit.may("manage"),
    )
    states = [name for name in TASK_STATES if visit.may("manage") or name != "item"]
    return manage_page(
        visit, "manage_tasks.html", found=result, state=state or "", words=words, states=states
    )


def task_of_visit(visit: Visit) -> TaskDetails:
    """The task of the address; of those whose answer is known only owners learn."""
    details = review.task_details(visit.store, visit.who.project, visit.path["task"])
    if details.purpose != "work" and not visit.may("manage"):
        # In the words of a task that is not there.
        raise NotFoundError(f"project {visit.who.project} has no task {details.id}")
    return details


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A label of a page, as it was given and in words."""

    given: GivenLabel
    described: Described


def label_rows(visit: Visit, details: TaskDetails, project: Project) -> list[LabelRow]:
    return [
        LabelRow(
            given=given, described=describe(given.label, details.body, given.order, project, visit.language)
        )
        for given in details.labels
    ]


def _task_page(visit: Visit, *, reason: str = "", error: FieldError | None = None) -> Shown:
    details, project = task_of_visit(visit), visit.store.project(visit.who.project)
    rows = label_rows(visit, details, project)
    # While a reviewer is still to decide, who was for what would weigh in the decision.
    blind = details.state == "review" and not visit.may("manage")
    return manage_page(
        visit,
        "manage_task.html",
        task=details,
        rows=sorted(rows, key=lambda row: row.described.summary) if blind else rows,
        blind=blind,
        markdown=project.text == "markdown",
        closed=_closing_reason(visit, details),
        done=visit.query.get("done", ""),
        reason=reason,
        error=error,
        # What nobody but an owner reads: where answers come from, why it is asked, and what is right.
        behind=_behind(details.body) if visit.may("manage") else None,
    )


def _behind(body: Mapping[str, Any]) -> str:
    names = ("method", "score", "probability", "priority", "gold", "metadata", "reference_answer")
    sources = {
        LETTERS[place]: candidate["source"]
        for place, candidate in enumerate(body.get("candidates", ()))
        if "source" in candidate
    }
    result = {name: body[name] for name in names if name in body} | ({"sources": sources} if sources else {})
    return json.dumps(result, ensure_ascii=False, indent=2) if result else ""


def _closing_reason(visit: Visit, details: TaskDetails) -> str:
    if details.state != "closed":
        return ""
    events = review.trail(visit.store, visit.who.project, kinds=("task-closed",), subject=details.id)
    return next((event.body["reason"] for event in events if event.body is not None), "")


def _close(visit: Visit) -> Answer:
    details, reason = task_of_visit(visit), visit.form.value("reason") or ""
    # Sent twice it is closed once.
    if details.state != "closed":
        try:
            visit.act(close_task, details.id, reason=reason)
        except FieldError as error:
            return _task_page(visit, reason=reason, error=error)
    return Sent(to=f"/manage/tasks/{details.id}?done=closed")


def _make_gold(visit: Visit) -> Answer:
    details = task_of_visit(visit)
    try:
        visit.act(make_gold, details.id)
    except FieldError as error:
        return _task_page(visit, error=error)
    return Sent(to=f"/manage/tasks/{details.id}?done=gold")


def _gold_page(visit: Visit, *, make: bool = False) -> Answer:
    # Looked at and made by the same page: what is left open stands on both.
    source = visit.form.value if make else visit.query.get
    values = {name: source(name) or usual for name, usual in (("reviewers", "3"), ("agreement", "0.75"))}
    project, added, result, error = visit.who.project, None, None, None
    try:
        least = int(values["reviewers"]) if is_number(values["reviewers"]) else 0
        try:
            share = float(values["agreement"].replace(",", "."))
        except ValueError:
            share = 0.0
        with visit.store.changing() if make else visit.store.looking() as change:
            result = gold_of_reviewers(change, project, least=least, agreement=share)
            if make:
                added = add_tasks(change, project, result.bodies, actor=visit.who.pseudonym)
    except UserError as fault:
        error = fault
    return manage_page(visit, "manage_gold.html", error=error, given=values, found=result, added=added)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFault:
    line: int
    """Its number in what was sent; the first is 1."""
    message: str


def _add_page(
    visit: Visit, *, lines: str = "", faults: Sequence[LineFault] = (), error: FieldError | None = None
) -> Shown:
    project = visit.store.project(visit.who.project)
    done = {name: whole_number(visit.query, name) for name in ("added", "repeated") if name in visit.query}
    return manage_page(
        visit,
        "manage_add.html",
        status=422 if faults else None,
        ask=project.ask,
        example=json.dumps({**_EXAMPLE, **KINDS[project.ask].example}, ensure_ascii=False),
        most=MOST_TASKS,
        lines=lines,
        faults=faults[:_MOST_FAULTS],
        more=max(len(faults) - _MOST_FAULTS, 0),
        done=done,
        error=error,
    )


def _add_tasks(visit: Visit) -> Answer:
    lines = visit.form.value("lines") or ""
    project = visit.store.project(visit.who.project)
    pictures = Pictures()
    bodies, faults = read_task_lines(lines, project, pictures)
    if faults:
        return _add_page(visit, lines=lines, faults=faults)
    if not bodies:
        error = FieldError(field="lines", found="nothing", expected="a task on each line")
        return _add_page(visit, lines=lines, error=error)
    pictures.keep(visit.store, project.name)
    added = visit.act(add_tasks, bodies)
    return Sent(to=f"/manage/add?added={added.added}&repeated={added.repeated}")


def read_task_lines(text: str, project: Project, pictures: Pictures) -> tuple[list[Any], list[LineFault]]:
    """The tasks of JSON lines, and what is wrong with which of them."""
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(numbered) > MOST_TASKS:
        raise RequestError(413, f"{len(numbered):,} tasks; send at most {MOST_TASKS:,} at once")
    bodies, faults = list[Any](), list[LineFault]()
    for number, line in numbered:
        try:
            body = parse_json(line.encode(), f"line {number}")
            bodies.append(check_task(pictures.body(body), project))
        except (RequestError, FieldError) as error:
            faults.append(LineFault(line=number, message=str(error)))
    return bodies, faults


def _export_page(visit: Visit, *, chosen: Filters, problem: str = "") -> Shown:
    switches = [(name, getattr(chosen, name)) for name in _SWITCHES]
    values = {"switches": switches, "group": chosen.group, "problem": problem}
    return manage_page(visit, "manage_export.html", status=422 if problem else 200, **values)


def _export(visit: Visit) -> Answer:
    group = visit.form.value("group") or "people"
    if group not in ("people", "ai"):
        raise FieldError(field="group", found=repr(group), expected="people or ai")
    chosen = replace(Filters(group=group), **{name: visit.form.value(name) == "yes" for name in _SWITCHES})
    name = visit.who.project
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(visit.store, name, Path(folder) / "rows.jsonl", filters=chosen, actor=visit.who.pseudonym)
        except EmptyExportError as error:
            return _export_page(visit, chosen=chosen, problem=str(error))
        content = _zipped(Path(folder))
    return File(name="labels.zip", content=content, media_type="application/zip")


def _zipped(folder: Path) -> bytes:
    """The files of a folder in a ZIP that is the same for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            # With a time of its own no two exports of the same labels would be equal.
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _ZIP_TIME)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _log(visit: Visit) -> Answer:
    kind = visit.query.get("kind", "")
    events = review.trail(
        visit.store,
        visit.who.project,
        kinds=(kind,) if kind else TRAIL_KINDS,
        before=whole_number(visit.query, "before") or None,
    )
    rows = [(event, _in_short(event.body)) for event in events]
    return manage_page(visit, "manage_log.html", rows=rows, kind=kind, kinds=TRAIL_KINDS)


def _in_short(body: Mapping[str, Any] | None) -> str:
    """What an event says, in a line: settings and labels are looked at elsewhere."""
    if body is None:
        return ""
    hidden = ("settings", "request", "remains", "hashes", "label", "order", "filters")
    parts = [f"{name}: {value}" for name, value in body.items() if name not in hidden and value != ""]
    return ", ".join(parts)[:300]


PAGES = (
    page("GET /manage", "read", _overview),
    page("GET /manage/tasks", "read", _tasks),
    page("GET /manage/tasks/{task}", "read", _task_page),
    page("POST /manage/tasks/{task}/close", "manage", _close),
    page("GET /manage/gold", "manage", _gold_page),
    page("POST /manage/gold", "manage", lambda visit: _gold_page(visit, make=True)),
    page("POST /manage/tasks/{task}/gold", "manage", _make_gold),
    page("GET /manage/add", "manage", _add_page),
    page("POST /manage/add", "manage", _add_tasks),
    page("GET /manage/export", "manage", lambda visit: _export_page(visit, chosen=Filters())),
    page("POST /manage/export", "manage", _export),
    page("GET /manage/log", "manage", _log),
)
