"""Sessions of browsers: how somebody signs in, stays signed in, and is signed out everywhere.

Of a session's secret only the hash is stored. Failed sign-ins are events, and limits are counted from the
log: so they hold over several servers, and over restarts.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, delete, func, insert, select, update

from plaudit.collect import log, views
from plaudit.collect.accounts import account_rows, password_row
from plaudit.collect.desk import person_row
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.names import name_key
from plaudit.collect.passwords import GATE, checked_password, fits, hash_password
from plaudit.collect.people import Identity, end_all_sessions, hash_secret, identity_of_row, keep_password
from plaudit.collect.refusals import NotYoursError, TooOftenError
from plaudit.collect.store import LabelStore, Transaction, ahead, later
from plaudit.collect.tables import annotator, password, person, salt, session

IDLE_HOURS = 12
"""A session that was not used for so long has ended."""
SESSION_DAYS = 7
"""And so has every session after this time."""
PAUSE_MINUTES = 10
"""A pause of so many minutes is a break: after it somebody works on with fresh eyes."""
MOST_FAILURES = 10
"""So many failed sign-ins of one name within the window, and nobody signs in by it for a while."""
MOST_OF_PROJECT = 100
"""The same of a project, whatever the names."""
WINDOW_MINUTES = 15
"""The window in which failures are counted."""
FAILED = {"what": "sign-in"}
"""The body of the event of a failed sign-in: neither the name that was typed, nor the password."""
_BY_ACCOUNT = {"by": "account"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    secret: str
    """What the browser's cookie carries; it is shown here and never again."""
    identity: Identity
    expires: str
    """When the session ends, however often it is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    """By what it is listed and ended: a part of the hash, which opens nothing."""
    identity: Identity
    started: str
    used: str
    stretch_minutes: float
    """How long the person has been working without a break."""
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    id: str
    """By what it is ended; it opens nothing."""
    started: str
    used: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """What is known of whoever tries to sign in, before the password is looked at."""

    project: str
    """The project; empty where there is none of that name."""
    typed: str
    """The project and name as they were typed, in one spelling."""
    subject: str
    """What failures are counted by: a pseudonym, or what hides a name that nobody has."""
    pseudonym: str | None
    """Who signs in by that name; None for nobody."""
    stored: str | None
    """What is stored of the password."""


_ID_LETTERS = 12
_SESSION_IN = insert(session)
_SESSION = (
    select(session, person.c.name, annotator.c.standing, annotator.c.role)
    # Inner joins: a session that outlived its person opens nothing.
    .join(person, same(person, session, pseudonym="pseudonym"))
    .join(annotator, same(annotator, session, name="pseudonym"))
    .where(
        session.c.hash == bindparam("h"),
        session.c.expires > bindparam("now"),
        session.c.used > bindparam("idle"),
        session.c.used <= bindparam("ahead"),
    )
)
_TOUCH = (
    update(session)
    # Two requests at once: the second would end the stretch that the first has just begun.
    .where(bound(session, hash="h", used="before"))
    .values(used=bindparam("now_used"), stretch=bindparam("new_stretch"))
)
_OWN = bound(session, project="p", pseudonym="n")
# The session stays the same one: it ends no later for going on elsewhere.
_ELSEWHERE = {"project": bindparam("to"), "pseudonym": bindparam("as")}
_SWITCH = update(session).where(_OWN, session.c.hash == bindparam("h")).values(_ELSEWHERE)
_LIST = (
    select(session)
    .where(_OWN, session.c.expires > bindparam("now"))
    .where(session.c.used > bindparam("idle"), session.c.used <= bindparam("ahead"))
)
_OUT = delete(session).where(session.c.hash == bindparam("h"))
_OF_ID_OUT = delete(session).where(_OWN, session.c.hash.startswith(bindparam("i"), autoescape=False))
_ENDED_OUT = delete(session).where(
    (session.c.expires <= bindparam("now"))
    | (session.c.used <= bindparam("idle"))
    | (session.c.used > bindparam("ahead"))
)
_BY_NAME = select(password).where(bound(password, project="p", name_key="k"))
_NAME = select(person.c.name).where(bound(person, project="p", pseudonym="n"))
_SALT, _SALT_IN = select(salt.c.value).where(salt.c.name == "sign-in"), insert(salt)
_LAST_SIGN_IN = select(func.max(log.log.c.seq)).where(
    bound(log.log, project="p", actor="n"),
    log.log.c.kind == "signed-in",
    # Or whoever holds a session could guess without end: going back and forth would begin the count anew.
    log.log.c.body != log.canonical(_BY_ACCOUNT),
)


def open_session(change: Transaction, project: str, pseudonym: str, *, by: str = "invite") -> Opened:
    """A new session of a person, and the event of the sign-in; ``by`` says how: password, invite or link."""
    row = person_row(change, project, pseudonym)
    if row.standing == "erased":
        raise NotYoursError(f"{pseudonym} was erased; nobody can sign in as nobody")
    # Now and then is enough: what has ended opens nothing while it lies there.
    change.connection.execute(_ENDED_OUT, _moments(change.now))
    secret, expires = f"s_{secrets.token_urlsafe(24)}", later(change.now, days=SESSION_DAYS)
    entry = {"hash": hash_secret(secret), "project": project, "pseudonym": pseudonym, "expires": expires}
    times = dict.fromkeys(("started", "used", "stretch"), change.now)
    change.connection.execute(_SESSION_IN, {**entry, **times})
    change.record(
        Entry(project=project, actor=pseudonym, kind="signed-in", subject=pseudonym, body={"by": by})
    )
    name = change.connection.execute(_NAME, {"p": project, "n": pseudonym}).scalar_one()
    return Opened(secret=secret, identity=identity_of_row(row, pseudonym, name), expires=expires)


def _moments(now: str) -> dict[str, str]:
    return {"now": now, "idle": later(now, hours=-IDLE_HOURS), "ahead": ahead(now)}


def find_session(store: LabelStore, secret: str) -> Session | None:
    """The session of a secret; None for one that is unknown, has ended or was ended."""
    # Every page asks this: a single question needs no transaction around it.
    now, database = store.now, store.database
    row = database.ask(_SESSION, {"h": hash_secret(secret), **_moments(now)})
    if row is None or row.standing == "erased":
        return None
    pause = _minutes(row.used, now)
    stretch = now if pause > PAUSE_MINUTES else row.stretch
    # At most once a minute, or every page would wait for the disk.
    if pause >= 1:
        with database.writing() as connection:
            names = {"h": row.hash, "before": row.used, "now_used": now, "new_stretch": stretch}
            connection.execute(_TOUCH, names)
    return Session(
        id=row.hash[:_ID_LETTERS],
        identity=identity_of_row(row, row.pseudonym, row.name),
        started=row.started,
        used=now if pause >= 1 else row.used,
        stretch_minutes=max(_minutes(stretch, now), 0.0),
        expires=row.expires,
    )


def _minutes(before: str, after: str) -> float:
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds() / 60


def end_session(change: Transaction, secret: str) -> None:
    """Sign out; a session that has ended already is no fault."""
    change.connection.execute(_OUT, {"h": hash_secret(secret)})


def list_sessions(look: Transaction, project: str, pseudonym: str) -> list[SessionEntry]:
    """Where somebody is signed in, in whatever project of the account, the last used first."""
    rows = [
        entry
        for row in account_rows(look, project, pseudonym)
        for entry in look.connection.execute(_LIST, {"p": row.project, "n": row.name, **_moments(look.now)})
    ]
    return [
        SessionEntry(id=row.hash[:_ID_LETTERS], started=row.started, used=row.used, expires=row.expires)
        for row in sorted(rows, key=lambda row: row.used, reverse=True)
    ]


def end_sessions(
    change: Transaction, project: str, pseudonym: str, wanted: str | None = None, *, actor: str | None = None
) -> int:
    """Sign somebody out everywhere, or of the session of an id; gives how many sessions ended."""
    rows, ended = account_rows(change, project, pseudonym), 0
    if wanted is None:
        ended = end_all_sessions(change, rows)
    elif len(wanted) == _ID_LETTERS and wanted.isalnum():
        names = [{"p": row.project, "n": row.name, "i": wanted} for row in rows]
        ended = sum(change.connection.execute(_OF_ID_OUT, name).rowcount for name in names)
    if ended:
        body = {"tokens": 0, "sessions": ended}
        by = actor or pseudonym
        change.record(Entry(project=project, actor=by, kind="revoked", subject=pseudonym, body=body))
    return ended


def switch_project(change: Transaction, secret: str, project: str, pseudonym: str, wanted: str) -> str:
    """Go on in another project of the account with the same session; gives the role there."""
    row = next((row for row in account_rows(change, project, pseudonym) if row.project == wanted), None)
    if row is None or row.standing == "suspended":
        raise NotYoursError("your account does not open this project", tried_in=project)
    names = {"h": hash_secret(secret), "p": project, "n": pseudonym, "to": wanted, "as": row.name}
    if wanted != project and change.connection.execute(_SWITCH, names).rowcount:
        entry = Entry(project=wanted, actor=row.name, kind="signed-in", subject=row.name, body=_BY_ACCOUNT)
        change.record(entry)
    return row.role


def sign_in(
    store: LabelStore, project: str, name: str, password: str, *, replacing: str | None = None
) -> Opened:
    """A session for a name and its password; the browser's session of before, if it had one, ends."""
    with GATE:
        attempt = store.read(_look_up, project, name)
        _refuse_wrong(store, attempt, password)
    with store.changing() as change:
        if replacing is not None:
            end_session(change, replacing)
        assert attempt.pseudonym is not None
        return open_session(change, attempt.project, attempt.pseudonym, by="password")


def _refuse_wrong(store: LabelStore, attempt: SignIn, password: str) -> None:
    if not fits(attempt.stored, password):
        # In a change of its own, or the failure would be rolled back and never counted.
        raise store.write(_record_failure, attempt)


def change_password(store: LabelStore, project: str, pseudonym: str, old: str, new: object) -> Opened:
    """Another password for the account; all sessions end, and the returned one takes the browser's place."""
    with GATE:
        attempt = store.read(_own_sign_in, project, pseudonym)
        words = checked_password(new, project, attempt.typed.partition("/")[2])
        _refuse_wrong(store, attempt, old)
        stored = hash_password(words)
    with store.changing() as change:
        _give_password(change, project, pseudonym, stored)
        return open_session(change, project, pseudonym, by="password")


def set_password(store: LabelStore, project: str, pseudonym: str, new: object, *, actor: str) -> None:
    """A password for somebody, without the old one: by whoever works on the store itself."""
    name = store.read(_name_of, project, pseudonym)
    stored = hash_password(checked_password(new, name, project))
    store.write(_give_password, project, pseudonym, stored, actor)


def link_project(store: LabelStore, project: str, pseudonym: str, wanted: str, password: str) -> None:
    """Take the account of the same name in another project into this one; this password holds there too."""
    with GATE:
        name = store.read(_own_sign_in, project, pseudonym).typed.partition("/")[2]
        attempt = store.read(_look_up, wanted, name)
        _refuse_wrong(store, attempt, password)
    with store.changing() as change:
        stored = password_row(change, project, pseudonym).hash
        assert attempt.pseudonym is not None
        if stored != attempt.stored:
            _give_password(change, attempt.project, attempt.pseudonym, stored)


def _give_password(change: Transaction, project: str, pseudonym: str, stored: str, actor: str = "") -> None:
    # To every row of the account, or it would come apart; sessions end.
    name = _name_of(change, project, pseudonym)
    for row in account_rows(change, project, pseudonym):
        keep_password(change, row.project, row.name, name=name, password_hash=stored)
        by = actor or row.name
        change.record(Entry(project=row.project, actor=by, kind="password-set", subject=row.name, body={}))


def _look_up(look: Transaction, project: str, name: str) -> SignIn:
    # Who wants to sign in; refused where too many have failed.
    place, key = _storable(project), name_key(_storable(name))
    found = look.connection.execute(_BY_NAME, {"p": place, "k": key}).first()
    hidden = _hidden(look, f"{place}/{key}")
    attempt = SignIn(
        project=place if views.settings_of(look.connection, place) is not None else "",
        typed=f"{place}/{key}",
        subject=hidden if found is None else found.pseudonym,
        pseudonym=None if found is None else found.pseudonym,
        stored=None if found is None else found.hash,
    )
    _refuse_too_many(look, attempt)
    return attempt


def _own_sign_in(look: Transaction, project: str, pseudonym: str) -> SignIn:
    # The same for somebody who is signed in and is to show the password once more.
    if password_row(look, project, pseudonym) is None:
        raise NotYoursError("you have no password: you came in by an invite or a link alone")
    return _look_up(look, project, _name_of(look, project, pseudonym))


def _name_of(look: Transaction, project: str, pseudonym: str) -> str:
    person_row(look, project, pseudonym)
    found = look.connection.execute(_NAME, {"p": project, "n": pseudonym}).scalar_one_or_none()
    if found is None:
        raise NotYoursError(f"{pseudonym} was erased; there is nobody left")
    return found


def _storable(word: str) -> str:
    # What was typed, without what no database holds; a name with such letters is nobody's.
    return word[:1_000].encode("utf-8", "replace").decode().replace("\0", "?")


def _hidden(look: Transaction, typed: str) -> str:
    # What stands in the log for a name that nobody has: the same for the same name, and it tells no name.
    value = look.connection.execute(_SALT).scalar_one_or_none()
    # Before the first failure there is no salt, and nothing that could be counted.
    return "" if value is None else hmac.new(value.encode(), typed.encode(), hashlib.sha256).hexdigest()[:16]


def _refuse_too_many(look: Transaction, attempt: SignIn) -> None:
    since = later(look.now, minutes=-WINDOW_MINUTES)
    failures = log.refusals(
        look.connection, attempt.project, since, ahead(look.now), body=FAILED, most=MOST_OF_PROJECT
    )
    if len(failures) == MOST_OF_PROJECT:
        _refuse_until(failures[-1].at)
    own = [failure for failure in failures if failure.subject == attempt.subject]
    if len(own) < MOST_FAILURES:
        return
    names = {"p": attempt.project, "n": attempt.subject}
    latest = look.connection.execute(_LAST_SIGN_IN, names).scalar_one() or 0
    # Whoever has signed in since did know the password.
    own = [failure for failure in own if failure.seq > latest]
    if len(own) >= MOST_FAILURES:
        _refuse_until(own[MOST_FAILURES - 1].at)


def _refuse_until(oldest: str) -> None:
    until = later(oldest, minutes=WINDOW_MINUTES)
    raise TooOftenError(
        f"too many sign-ins have failed; come back after {until[11:16]} UTC, or ask for a new invite",
        until=until,
    )


def _record_failure(change: Transaction, attempt: SignIn) -> NotYoursError:
    # Write the event of a failed sign-in; gives the refusal, the same for a wrong name and a wrong word.
    if not attempt.subject and change.connection.execute(_SALT).first() is None:
        change.connection.execute(_SALT_IN, {"name": "sign-in", "value": secrets.token_hex(16)})
    subject = attempt.subject or _hidden(change, attempt.typed)
    change.record(
        Entry(project=attempt.project, actor="nobody", kind="refused", subject=subject, body=FAILED)
    )
    return NotYoursError("the name or the password is wrong")
