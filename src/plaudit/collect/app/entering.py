"""Pages of coming in and going out: an invite, a sign-in, a link that works once, one's own account."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from plaudit.collect import review
from plaudit.collect.accounts import account_places, account_rows, password_row
from plaudit.collect.app.pages import (
    LANGUAGE_COOKIE,
    Answer,
    Cookie,
    Form,
    Sent,
    Shown,
    Visit,
    fresh_key,
    local_address,
    page,
)
from plaudit.collect.app.render import LANGUAGES
from plaudit.collect.app.safety import RequestError, status_of
from plaudit.collect.own import guidelines_read, own_preferences, read_guidelines
from plaudit.collect.people import SCOPES, checked_groups, join_project, look_at_invite, set_preferences
from plaudit.collect.project import guidelines_version
from plaudit.collect.refusals import FieldError, NotFoundError, NotYoursError, TooOftenError, check_choice
from plaudit.collect.sessions import (
    SESSION_DAYS,
    Opened,
    change_password,
    end_session,
    end_sessions,
    link_project,
    list_sessions,
    open_session,
    sign_in,
    switch_project,
)
from plaudit.errors import UserError

_PARTICIPANT_WORDS = ("participant", "PROLIFIC_PID", "workerId", "participantId")
_YEAR = 365 * 24 * 3600


def _home(visit: Visit) -> Answer:
    if visit.session is None:
        return Sent(to="/enter")
    # With one project there is nothing to choose.
    if len(visit.store.read(account_rows, *visit.person)) > 1:
        return Sent(to="/projects")
    return _to_work(visit.who.role)


def _to_work(role: str) -> Sent:
    return Sent(to="/label" if "label" in SCOPES[role] else "/manage")


def _projects(visit: Visit, *, project: str = "", error: UserError | None = None) -> Shown:
    places = visit.store.read(account_places, *visit.person)
    values = {"places": places, "project": project, "error": error or "", "done": visit.query.get("done", "")}
    return Shown(template="projects.html", values=values, status=200 if error is None else status_of(error))


def _switch(visit: Visit) -> Answer:
    wanted = visit.form.need("project")
    return _to_work(visit.store.write(switch_project, visit.secret, *visit.person, wanted))


def _link(visit: Visit) -> Answer:
    project = visit.form.need("project")
    try:
        link_project(visit.store, *visit.person, project, visit.form.need("password"))
    except (NotYoursError, TooOftenError) as error:
        return _projects(visit, project=project, error=error)
    return Sent(to="/projects?done=linked")


def _enter(visit: Visit) -> Answer:
    if visit.session is not None:
        return Sent(to=local_address(visit.query.get("next")))
    if visit.solo:
        return Shown(template="closed.html", status=403)
    return _sign_in_form(visit, project=visit.query.get("project", ""), name="")


def _sign_in_form(visit: Visit, *, project: str, name: str, error: str = "", status: int = 200) -> Shown:
    onward = visit.query.get("next") or visit.form.value("next")
    values = {"project": project, "name": name, "error": error, "next": local_address(onward)}
    return Shown(template="enter.html", values=values, status=status)


def _sign_in(visit: Visit) -> Answer:
    project, name = visit.form.need("project"), visit.form.need("name")
    try:
        password = visit.form.need("password")
        opened = sign_in(visit.store, project, name, password, replacing=visit.secret or None)
    except (NotFoundError, NotYoursError, TooOftenError) as error:
        return _sign_in_form(visit, project=project, name=name, error=str(error), status=status_of(error))
    return _entered(visit, opened, local_address(visit.form.value("next")))


def _entered(visit: Visit, opened: Opened, onward: str) -> Sent:
    """On to a page that looks whether the browser has kept the session's cookie."""
    cookies = (
        Cookie(name=visit.site.cookie, value=opened.secret, seconds=SESSION_DAYS * 24 * 3600),
        # A secret from before the sign-in is worth nothing after it.
        Cookie(name=visit.site.guest_cookie),
    )
    return Sent(to=f"/entered?next={quote(onward, safe='')}", cookies=cookies)


def _look_for_cookie(visit: Visit) -> Answer:
    if visit.session is None:
        return Shown(template="no_cookies.html", status=400)
    return Sent(to=local_address(visit.query.get("next")))


def _leave(visit: Visit) -> Answer:
    visit.store.write(end_session, visit.secret)
    return Shown(template="left.html", cookies=(Cookie(name=visit.site.cookie),))


def _look_at_invite(visit: Visit) -> Answer:
    given = next((visit.query[word] for word in _PARTICIPANT_WORDS if word in visit.query), "")
    return _join_form(visit, name="", participant=given, key=fresh_key())


def _join_form(
    visit: Visit, *, name: str, participant: str, key: str, error: FieldError | None = None
) -> Shown:
    invite = visit.store.read(look_at_invite, visit.path["invite"], key)
    values: dict[str, Any] = {"invite": invite, "name": name, "participant": participant, "key": key}
    project = visit.store.project(invite.project)
    values |= {"error": error, "ask": project.ask, "guidelines": project.guidelines}
    values |= {"groups": project.values_of_groups, "answers": _groups_of(visit.form)}
    is_renamed = error is not None and error.field in ("name", "password")
    values |= {"account": not is_renamed and _joins_by_account(visit, invite.panel)}
    return Shown(template="join.html", values=values, status=200 if error is None else 422)


def _joins_by_account(visit: Visit, panel: bool) -> bool:
    # Whoever is signed in joins as who they are, unless they want to be called otherwise.
    if visit.session is None or panel or "name" in visit.form.fields or "other" in visit.query:
        return False
    return visit.store.read(password_row, *visit.person) is not None


def _groups_of(form: Form) -> dict[str, str]:
    return {name[6:]: form.value(name) or "" for name in form.fields if name.startswith("group-")}


def _join(visit: Visit) -> Answer:
    form = visit.form
    name, participant = form.value("name") or "", form.value("participant") or ""
    # With the form's key: whoever clicks twice has used the invite with the first click.
    invite = visit.store.read(look_at_invite, visit.path["invite"], form.value("key"))
    account = visit.person if _joins_by_account(visit, invite.panel) else None
    if account and invite.project in {row.project for row in visit.store.read(account_rows, *account)}:
        return Sent(to="/projects")
    try:
        if not invite.panel and account is None and not form.value("password"):
            raise FieldError(field="password", found="nothing", expected="a password to come back with")
        # Before anybody joins: a name would be taken by whoever fills in the form again.
        answers = visit.store.read(checked_groups, invite.project, _groups_of(form))
        joined = join_project(
            visit.store,
            visit.path["invite"],
            participant if invite.panel else name if account is None else visit.who.person,
            form.need("key"),
            password=form.value("password") or None,
            participant=participant if invite.panel else None,
            account=account,
        )
        if any(answers.values()):
            visit.store.write(set_preferences, joined.project, joined.pseudonym, groups=answers)
    except FieldError as error:
        return _join_form(visit, name=name, participant=participant, key=form.need("key"), error=error)
    if account is not None:
        return Sent(to="/projects?done=joined")
    opened = visit.store.write(open_session, joined.project, joined.pseudonym)
    return _entered(visit, opened, "/")


def _start(visit: Visit) -> Answer:
    solo = visit.site.solo
    if solo is None:
        raise RequestError(404, "there is no such address")
    if solo.link.take(visit.path["secret"]):
        opened = visit.store.write(open_session, solo.project, solo.pseudonym, by="link")
        return _entered(visit, opened, "/label")
    # The same link in the same browser is somebody who came back.
    return Sent(to="/label") if visit.session is not None else Shown(template="closed.html", status=403)


def _set_language(visit: Visit) -> Answer:
    language = visit.form.need("language")
    check_choice("language", language, LANGUAGES)
    chosen = Cookie(name=LANGUAGE_COOKIE, value=language, seconds=_YEAR)
    return Sent(to=local_address(visit.form.value("next")), cookies=(chosen,))


def _account(visit: Visit, *, error: FieldError | None = None) -> Shown:
    sessions = visit.store.read(list_sessions, *visit.person)
    values = {"sessions": sessions, "error": error, "done": visit.query.get("done", "")}
    return Shown(template="account.html", values=values, status=200 if error is None else 422)


def _change_password(visit: Visit) -> Answer:
    try:
        opened = change_password(
            visit.store, *visit.person, visit.form.need("old_password"), visit.form.need("new_password")
        )
    except FieldError as error:
        return _account(visit, error=error)
    return _entered(visit, opened, "/account?done=password")


def _end_sessions(visit: Visit) -> Answer:
    visit.store.write(end_sessions, *visit.person, visit.form.value("session"), actor=visit.who.pseudonym)
    return Sent(to="/account?done=sessions")


PAGES = (
    page("GET /", "open", _home),
    page("GET /enter", "open", _enter),
    page("POST /enter", "open", _sign_in, lane="password"),
    page("GET /entered", "open", _look_for_cookie),
    page("POST /sign-out", "any", _leave, anywhere=True),
    page("GET /join/{invite}", "open", _look_at_invite),
    page("POST /join/{invite}", "open", _join, lane="password"),
    page("GET /start/{secret}", "open", _start),
    page("POST /language", "open", _set_language, anywhere=True),
    page("GET /projects", "any", _projects),
    page("POST /projects", "any", _switch, anywhere=True),
    page("POST /projects/link", "any", _link, lane="password"),
    page("GET /account", "any", _account),
    page("POST /account/password", "any", _change_password, lane="password"),
    page("POST /account/sessions", "any", _end_sessions),
)


def _guidelines(visit: Visit, *, error: FieldError | None = None) -> Answer:
    project = visit.store.project(visit.who.project)
    values = {
        "words": project.guidelines,
        "version": guidelines_version(project),
        "read": visit.store.read(guidelines_read, *visit.person),
        # Others' questions only with their answer: whoever answers decides how it is put.
        "questions": [
            question
            for question in visit.store.read(review.questions, project.name)
            if question.answer or question.actor == visit.who.pseudonym
        ],
        "key": fresh_key(),
        "error": error,
        "question": visit.form.value("text") or "",
    }
    return Shown(template="guidelines.html", values=values, status=200 if error is None else 422)


def _ask(visit: Visit) -> Answer:
    try:
        visit.store.write(review.ask_project, *visit.person, visit.form.need("key"), visit.form.value("text"))
    except FieldError as error:
        return _guidelines(visit, error=error)
    return Sent(to="/guidelines#questions")


def _read_guidelines(visit: Visit) -> Answer:
    version = visit.form.need("version")
    # Those that were on the page: what changed while it was read is asked for again.
    visit.store.write(read_guidelines, *visit.person, version)
    return Sent(to="/label")


def _preferences(visit: Visit) -> Answer:
    return _preferences_page(visit, visit.store.read(own_preferences, *visit.person))


def _preferences_page(visit: Visit, chosen: Mapping[str, Any], error: FieldError | None = None) -> Shown:
    project, declined = visit.store.project(visit.who.project), chosen["declined"]
    upsetting = project.upsetting
    values = {
        "groups": project.values_of_groups,
        "answers": chosen["groups"],
        # With what was declined already and is asked for no more.
        "upsetting": [*upsetting, *(word for word in declined if word not in upsetting)],
        "declined": declined,
        "languages_read": " ".join(chosen["languages"]),
        "areas_known": ", ".join(chosen.get("areas", ())),
        "error": error,
        "notices": [("notice-preferences", "good")] if visit.query.get("notice") == "preferences" else [],
    }
    return Shown(template="preferences.html", values=values, status=200 if error is None else 422)


def _prefer(visit: Visit) -> Answer:
    chosen = {
        "declined": visit.form.many("declined"),
        "languages": (visit.form.value("languages") or "").split(),
        # With the comma of Arabic too.
        "groups": _groups_of(visit.form),
        "areas": [area.strip() for area in re.split("[,،]", visit.form.value("areas") or "") if area.strip()],
    }
    try:
        visit.store.write(set_preferences, *visit.person, **chosen)
    except FieldError as error:
        return _preferences_page(visit, chosen, error)
    return Sent(to="/preferences?notice=preferences")


READING_PAGES = (
    page("GET /guidelines", "label", _guidelines),
    page("POST /guidelines/question", "label", _ask),
    page("POST /guidelines/read", "label", _read_guidelines),
    page("GET /preferences", "label", _preferences),
    page("POST /preferences", "label", _prefer),
    page("GET /keys", "any", lambda _: Shown(template="keys.html")),
)
