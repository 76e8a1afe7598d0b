"""Pages of the people of a project: who there is, what is decided of them, invites, and what is paid."""

import json
import math
from typing import Any

from plaudit.collect import review
from plaudit.collect.app.managing import manage_page
from plaudit.collect.app.pages import Answer, File, Form, Sent, Shown, Visit, fresh_key, local_address, page
from plaudit.collect.app.safety import status_of
from plaudit.collect.own import qualification
from plaudit.collect.people import (
    SCOPES,
    STANDINGS,
    Panel,
    end_invite,
    make_invite,
    revoke,
    set_groups,
    set_standing,
)
from plaudit.collect.privacy import erase_person, export_person
from plaudit.collect.progress import group_sizes, pay_csv, pay_rows, project_people
from plaudit.collect.quality.cache import read_report
from plaudit.collect.refusals import FieldError, KeyConflictError, NotYoursError
from plaudit.collect.sessions import end_sessions, list_sessions
from plaudit.errors import UserError

_STANDING_KINDS = ("joined", "standing-set", "revoked", "erased")
_MOST_USES = 10_000


def _people(visit: Visit) -> Answer:
    return manage_page(
        visit,
        "manage_people.html",
        people=visit.store.read(project_people, visit.who.project),
        sizes=visit.store.read(group_sizes, visit.who.project),
        # A reviewer decides about pseudonyms; whose they are is the owner's to know.
        named=visit.may("manage"),
        done=visit.query.get("done", ""),
    )


def _person_row(visit: Visit) -> dict[str, Any]:
    return review.person_named(visit.store, visit.who.project, visit.path["person"])


def _person_page(visit: Visit, row: dict[str, Any], *, error: FieldError | None = None) -> Shown:
    project, pseudonym, form = visit.who.project, row["pseudonym"], visit.form
    named = visit.may("manage")
    gone = row["standing"] == "erased"
    # The person's figures of the newest report, if there is one; none is computed for this page.
    report, _ = read_report(visit.store, visit.who.project)
    rows = () if report is None else report["annotators"]
    return manage_page(
        visit,
        "manage_person.html",
        person=row,
        named=named,
        gone=gone,
        groups=visit.store.project(project).values_of_groups if row["role"] == "annotator" else {},
        sessions=visit.store.read(list_sessions, project, pseudonym) if named and not gone else [],
        history=review.trail(visit.store, project, kinds=_STANDING_KINDS, subject=pseudonym),
        standings=STANDINGS,
        standing=form.value("standing") or row["standing"],
        reason=form.value("reason") or "",
        decides=not gone and _why_not(visit, row) is None,
        qualification=visit.store.read(qualification, project, pseudonym),
        figures=next((person for person in rows if person["name"] == pseudonym), None),
        done=visit.query.get("done", ""),
        error=error,
    )


def _why_not(visit: Visit, row: dict[str, Any]) -> str | None:
    """Why whoever asks may not decide about a person; None where they may."""
    if row["pseudonym"] == visit.who.pseudonym:
        return "nobody decides about themselves; ask another reviewer or owner"
    if row["role"] != "annotator" and not visit.may("manage"):
        return f"about a person who is {row['role']}, an owner decides"
    return None


def _set_standing(visit: Visit) -> Answer:
    row = _person_row(visit)
    refused = _why_not(visit, row)
    if refused is not None:
        raise NotYoursError(refused, tried_in=visit.who.project)
    standing, reason = visit.form.value("standing") or "", visit.form.value("reason") or ""
    # Sent twice it is decided once: what holds already is not decided again.
    if standing != row["standing"]:
        try:
            visit.act(set_standing, row["pseudonym"], standing, reason=reason)
        except FieldError as error:
            return _person_page(visit, row, error=error)
    onward = local_address(visit.form.value("next"), f"/manage/people/{row['pseudonym']}")
    return Sent(to=f"{onward.partition('?')[0]}?done=standing")


def _set_groups(visit: Visit) -> Answer:
    row = _person_row(visit)
    given = {name[6:]: visit.form.value(name) for name in visit.form.fields if name.startswith("group-")}
    # What somebody said is not shown to those who manage, so that leaving it as it is is a choice of its own.
    answers = {name: value or "" for name, value in given.items() if value != "="}
    if answers:
        visit.act(set_groups, row["pseudonym"], answers)
    return Sent(to=f"/manage/people/{row['pseudonym']}?done=groups")


def _end_sessions(visit: Visit) -> Answer:
    row = _person_row(visit)
    wanted = visit.form.value("session")
    if wanted is None:
        # Tokens too: whoever is signed out everywhere does not come in by a program either.
        visit.act(revoke, row["pseudonym"])
    else:
        visit.act(end_sessions, row["pseudonym"], wanted)
    return Sent(to=f"/manage/people/{row['pseudonym']}?done=sessions")


def _export_person(visit: Visit) -> Answer:
    row = _person_row(visit)
    result = visit.store.read(export_person, visit.who.project, row["pseudonym"])
    content = json.dumps(result, ensure_ascii=False, indent=2).encode()
    return File(name=f"{row['pseudonym']}.json", content=content, media_type="application/json")


def _erase(visit: Visit) -> Answer:
    row = _person_row(visit)
    if row["standing"] == "erased":
        return Sent(to=f"/manage/people/{row['pseudonym']}?done=erased")
    if row["pseudonym"] == visit.who.pseudonym:
        raise NotYoursError("nobody erases themselves: another owner, or the command line, does")
    typed = (visit.form.value("confirm") or "").strip()
    if typed != row["pseudonym"]:
        error = FieldError(field="confirm", found=repr(typed[:40]), expected=repr(row["pseudonym"]))
        return _person_page(visit, row, error=error)
    erase_person(visit.store, visit.who.project, row["pseudonym"], actor=visit.who.pseudonym)
    return Sent(to=f"/manage/people/{row['pseudonym']}?done=erased")


def _invites_page(visit: Visit, *, secret: str = "", fault: UserError | None = None) -> Shown:
    form = visit.form
    error = fault if isinstance(fault, FieldError) else None
    address = next(iter(visit.site.origins), "")
    return manage_page(
        visit,
        "manage_invites.html",
        status=200 if fault is None else status_of(fault),
        invites=review.invites(visit.store, visit.who.project),
        roles=[*SCOPES],
        values={name: usual if secret else form.value(name) or usual for name, usual in _USUAL.items()},
        secret=secret,
        address=f"{address}/join/{secret}",
        # A fresh one with every page but that which is sent again.
        key=(form.value("key") if error is not None else None) or fresh_key(),
        done=visit.query.get("done", ""),
        error=error,
        problem="" if fault is None else str(fault),
    )


_USUAL = {"role": "annotator", "uses": "1", "days": "14", "code": "", "tasks": ""}


def _invite(visit: Visit) -> Answer:
    form = visit.form
    try:
        code = (form.value("code") or "").strip()
        tasks = (form.value("tasks") or "").strip()
        if tasks and not code:
            raise FieldError(field="code", found="nothing", expected="the panel's completion code")
        uses = _whole(form, "uses")
        text = (form.value("days") or "").strip().replace(",", ".")
        try:
            days = float(text)
        except ValueError:
            days = math.nan
        if not math.isfinite(days):
            raise FieldError(field="days", found=repr(text[:40]), expected="a number of days, such as 14")
        secret = visit.act(
            make_invite,
            role=form.value("role") or "",
            uses=uses,
            days=days,
            key=form.need("key"),
            panel=Panel(code=code, tasks=_whole(form, "tasks") if tasks else None) if code else None,
        )
    except (FieldError, KeyConflictError) as fault:
        return _invites_page(visit, fault=fault)
    # Shown and not led on to: only this answer ever holds the secret.
    return _invites_page(visit, secret=secret)


def _whole(form: Form, name: str) -> int:
    text = (form.value(name) or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FieldError(field=name, found=repr(text[:40]), expected=f"a whole number from 1 to {_MOST_USES}")
    return int(text)


def _end_invite(visit: Visit) -> Answer:
    visit.act(end_invite, visit.form.need("invite"))
    return Sent(to="/manage/invites?done=ended")


def _pay(visit: Visit) -> Answer:
    sheet = pay_csv(visit.store.read(pay_rows, visit.who.project))
    # With a byte order mark: without it spreadsheets read names as letters of another alphabet.
    return File(name="pay.csv", content=sheet.encode("utf-8-sig"), media_type="text/csv; charset=utf-8")


PAGES = (
    page("GET /manage/people", "review", _people),
    page("GET /manage/people/{person}", "review", lambda visit: _person_page(visit, _person_row(visit))),
    page("POST /manage/people/{person}/standing", "review", _set_standing),
    page("POST /manage/people/{person}/groups", "manage", _set_groups),
    page("POST /manage/people/{person}/sessions", "manage", _end_sessions),
    page("POST /manage/people/{person}/export", "manage", _export_person),
    page("POST /manage/people/{person}/erase", "manage", _erase),
    page("GET /manage/invites", "manage", _invites_page),
    page("POST /manage/invites", "manage", _invite),
    page("POST /manage/invites/end", "manage", _end_invite),
    page("GET /manage/pay.csv", "manage", _pay),
)
