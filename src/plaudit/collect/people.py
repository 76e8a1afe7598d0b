"""People: invites that work once and expire, bearer tokens, roles and standing.

The log knows pseudonyms only. Names, invites and tokens lie in tables of their own; of a secret only its hash
is stored, so that whoever reads the store cannot act for anybody.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from plaudit.collect import log
from plaudit.collect.accounts import account_rows, password_row
from plaudit.collect.desk import key_of, person_row
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.names import checked_name, name_key, refuse_alike
from plaudit.collect.passwords import GATE, checked_password, hash_password
from plaudit.collect.refusals import (
    FieldError,
    KeyConflictError,
    NotFoundError,
    NotYoursError,
    check_choice,
    checked_text,
)
from plaudit.collect.store import LabelStore, Transaction, ahead, later
from plaudit.collect.tables import (
    annotator,
    draft,
    group,
    invite,
    panel,
    participant,
    password,
    person,
    session,
    token,
)

SCOPES = {
    "annotator": ("label",),
    "reviewer": ("label", "review", "read"),
    "owner": ("review", "read", "manage"),
}
"""What each role may do; a token may be given less."""
STANDINGS = ("active", "watch", "suspended")
"""What a reviewer may decide of a person."""
INVITE_LETTERS = 12
"""How many letters of an invite's hash name it."""
MOST_DAYS = 365
"""How long an invite or a token works at most."""
TOKEN_DAYS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    token: str
    """The secret that every later request carries; it is shown here and never again."""
    person: str
    pseudonym: str
    """What the log, exports and reports call the person."""
    project: str
    role: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    person: str
    """The name, where it was given."""
    pseudonym: str
    """What the log calls the person."""
    project: str
    """The only project that the token opens."""
    role: str
    scopes: tuple[str, ...]
    """What the token may do: label, review, read, manage."""
    standing: str
    """Qualifying, active, watch, suspended or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What an invite for the people of a panel has beyond any other."""

    code: str
    """The completion code, which the panel asks its people for at the end."""
    tasks: int | None = None
    """After how many answers it is shown; where it is not set, once there is nothing left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteView:
    """What an invite is for, without using it up."""

    project: str
    """The project that it lets into."""
    role: str
    uses: int
    """How many may still join by it."""
    expires: str
    panel: bool
    """Whether it is for a panel, whose participants come with an id of the panel."""


_INVITE_IN, _TOKEN_IN, _PERSON_IN = insert(invite), insert(token), insert(person)
_INVITE = select(invite).where(invite.c.hash == bindparam("h"))
_INVITES = select(invite).where(invite.c.project == bindparam("p"))
_USED_UP = update(invite).where(invite.c.hash == bindparam("h")).values(uses=0)
_USE = update(invite).where(invite.c.hash == bindparam("h")).values(uses=invite.c.uses - 1)
_COUNT = select(func.count()).where(bound(annotator, project="p", role="r"))
_TOKEN = (
    select(token, person.c.name, annotator.c.standing)
    # Inner joins: a token that outlived its person opens nothing.
    .join(person, same(person, token, pseudonym="pseudonym"))
    .join(annotator, same(annotator, token, name="pseudonym"))
    .where(token.c.hash == bindparam("h"))
    .where(token.c.expires > bindparam("now"), token.c.expires <= bindparam("longest"))
)
_ROLE = select(annotator.c.role).where(bound(annotator, project="p", name="n"))
_NAMED = (
    select(person.c.pseudonym)
    .join(annotator, same(annotator, person, name="pseudonym"))
    .where(bound(person, project="p", name="n"))
    # A reviewer of the same name is somebody else.
    .where(annotator.c.role == "annotator")
    .order_by(annotator.c.seq)
)
_PEOPLES_NAMES = select(person.c.name).where(person.c.project == bindparam("p"))
_PANEL = select(panel).where(panel.c.hash == bindparam("h"))
_PANEL_IN, _PARTICIPANT_IN, _PASSWORD_IN = insert(panel), insert(participant), insert(password)
_PARTICIPANT = select(participant.c.pseudonym, person.c.name).join(
    person, same(person, participant, pseudonym="pseudonym")
)
_OF_PANEL = _PARTICIPANT.where(bound(participant, panel="h", participant="i"))
_NAME_TAKEN = select(password.c.pseudonym).where(bound(password, project="p", name_key="k"))
_TOKENS_OUT, _SESSIONS_OUT, _PASSWORD_OUT, *_OTHERS_OUT = (
    delete(table).where(bound(table, project="p", pseudonym="n"))
    for table in (token, session, password, person, participant, group)
)
_DRAFTS_OUT = delete(draft).where(bound(draft, project="p", annotator="n"))
_PERSONAL_OUT = (_TOKENS_OUT, _SESSIONS_OUT, _PASSWORD_OUT, *_OTHERS_OUT, _DRAFTS_OUT)


def usable_scopes(role: str, standing: str, granted: Sequence[str] | None = None) -> tuple[str, ...]:
    """What somebody may do now: whoever is suspended sees no more than the own answers.

    >>> usable_scopes("reviewer", "active"), usable_scopes("reviewer", "suspended")
    (('label', 'review', 'read'), ('label',))
    """
    scopes = SCOPES[role] if granted is None else granted
    return tuple(scope for scope in scopes if scope == "label" or standing != "suspended")


def identity_of_row(row: Any, pseudonym: str, name: str, granted: Sequence[str] | None = None) -> Identity:
    """Who somebody is, by a row with project, role and standing."""
    scopes = usable_scopes(row.role, row.standing, granted)
    shared = {"project": row.project, "role": row.role, "standing": row.standing}
    return Identity(person=name, pseudonym=pseudonym, scopes=scopes, **shared)


def hash_secret(secret: str) -> str:
    """What is stored of a secret: it has 192 random bits, so that a plain hash cannot be searched."""
    return hashlib.sha256(secret.encode()).hexdigest()


def make_invite(
    change: Transaction,
    project: str,
    *,
    role: str = "annotator",
    uses: int = 1,
    days: float = 14,
    actor: str,
    panel: Panel | None = None,
    key: str | None = None,
) -> str:
    """An invite's secret; it works so many times, for so many days; one is made for a key."""
    change.settings(project)
    check_choice("role", role, SCOPES)
    if panel is not None and role != "annotator":
        raise FieldError(field="role", found=repr(role), expected="annotator, as a panel's people label")
    for field, value, most in (("uses", uses, 10_000), ("days", days, MOST_DAYS)):
        # Written so that NaN is refused too: it is above nothing and below nothing.
        if isinstance(value, bool) or not 0 < value <= most:
            raise FieldError(field=field, found=repr(value), expected=f"a number above 0, at most {most}")
    making = None if key is None else key_of(actor, key)
    if making is not None and log.by_key(change.connection, project, making) is not None:
        # The secret is stored nowhere, so that nobody can be shown it a second time.
        raise KeyConflictError(
            "this invite was made already, and its secret is shown only once; end it and make another one"
        )
    secret = f"i_{secrets.token_urlsafe(24)}"
    expires = later(change.now, days=days)
    row = {"hash": hash_secret(secret), "project": project, "role": role, "uses": uses, "expires": expires}
    change.connection.execute(_INVITE_IN, row)
    body: dict[str, Any] = {"role": role, "uses": uses, "expires": expires}
    if panel is not None:
        _set_up_panel(change, project, row["hash"], panel)
        # Not the code: whoever reads the log could be paid by it.
        body |= {"panel": True, "tasks": panel.tasks}
    change.record(Entry(project=project, actor=actor, kind="invited", subject=project, body=body, key=making))
    return secret


def _set_up_panel(change: Transaction, project: str, invite_hash: str, panel: Panel) -> None:
    code = checked_text("code", panel.code, most=200, empty=False).strip()
    tasks = panel.tasks
    if tasks is not None and (isinstance(tasks, bool) or not 0 < tasks <= 100_000):
        raise FieldError(field="tasks", found=repr(tasks), expected="a number above 0, at most 100000")
    row = {"hash": invite_hash, "project": project, "code": code, "tasks": tasks}
    change.connection.execute(_PANEL_IN, row)


def end_invite(change: Transaction, project: str, wanted: str, *, actor: str) -> int:
    """Let nobody in any more by an invite, named by its id; gives how many could still have joined by it."""
    rows = change.connection.execute(_INVITES, {"p": project}).all()
    ended = [row for row in rows if row.hash[:INVITE_LETTERS] == wanted and row.uses > 0]
    for row in ended:
        change.connection.execute(_USED_UP, {"h": row.hash})
        body = {"invite": wanted, "role": row.role, "uses": row.uses}
        change.record(Entry(project=project, actor=actor, kind="revoked", subject=project, body=body))
    return sum(row.uses for row in ended)


def join_project(
    store: LabelStore,
    secret: str,
    name: object,
    key: object = None,
    *,
    password: object = None,
    participant: object = None,
    account: tuple[str, str] | None = None,
) -> Joined:
    """Use an invite; with the same key again the same person, with a fresh token.

    With a password, or that of an account, the person can sign in by name; a panel's invite wants its
    participant's id.
    """
    stored = None
    if password is not None:
        # Whoever holds no invite makes nobody hash; and never under the writer's lock, as it takes long.
        project = store.read(_invite_row, secret).project
        words = checked_password(password, str(name), project)
        # One at a time: many who join at once would take 64 MiB each.
        with GATE:
            stored = hash_password(words)
    more = {"password_hash": stored, "participant": participant, "account": account}
    return store.write(_join, secret, name, key, **more)


def _join(
    change: Transaction,
    secret: str,
    name: object,
    key: object = None,
    *,
    password_hash: str | None = None,
    participant: object = None,
    account: tuple[str, str] | None = None,
) -> Joined:
    # Use an invite; whoever is asked to qualify does so first.
    # The same invite with the same key is the same person, with a fresh token: a reply that was lost costs
    # neither a use of the invite nor a second pseudonym. By a panel's invite the panel's id counts.
    row = _invite_row(change, secret)
    if change.connection.execute(_PANEL, {"h": row.hash}).first() is not None:
        return _join_panel(change, row, name, participant)
    if participant is not None:
        raise FieldError(field="participant", found="an id", expected="none, as this invite is of no panel")
    words = checked_name("name", name)
    joining = None if key is None else _joining_key(secret, key)
    earlier = None if joining is None else log.by_key(change.connection, row.project, joining)
    if earlier is None:
        refuse_alike(words, change.connection.execute(_PEOPLES_NAMES, {"p": row.project}).scalars())
        joined = _use(change, row, words, key=joining)
    elif person_row(change, row.project, earlier.subject).standing == "erased":
        raise NotYoursError("whoever joined with this key was erased; ask for another invite")
    else:
        joined = _with_token(change, row.project, row.role, earlier.subject, name=words)
    if account is not None:
        # Copied within the change: the password may have been another one a moment ago.
        password_hash = password_row(change, *account).hash
    if password_hash is not None:
        keep_password(change, row.project, joined.pseudonym, name=words, password_hash=password_hash)
    return joined


def _use(change: Transaction, row: Any, name: str, *, key: str | None = None) -> Joined:
    _refuse_used(row)
    change.connection.execute(_USE, {"h": row.hash})
    return issue_token(change, row.project, row.role, name=name, key=key)


def _join_panel(change: Transaction, row: Any, name: object, participant: object) -> Joined:
    # Join by a panel's invite: the same participant id is the same person, from whatever browser.
    words = checked_name("participant", participant).strip()
    found = change.connection.execute(_OF_PANEL, {"h": row.hash, "i": words}).first()
    if found is not None:
        return _with_token(change, row.project, row.role, found.pseudonym, name=found.name)
    # A panel keeps its people's names to itself.
    called = words if name in (None, "") else checked_name("name", name)
    joined = _use(change, row, called)
    names = {"project": row.project, "pseudonym": joined.pseudonym, "panel": row.hash, "participant": words}
    change.connection.execute(_PARTICIPANT_IN, names)
    return joined


def _invite_row(change: Transaction, secret: str) -> Any:
    row = change.connection.execute(_INVITE, {"h": hash_secret(secret)}).first()
    if row is None:
        raise NotFoundError("this invite does not exist; ask for another one")
    # Later than any invite may expire: it was made by a clock that was wrong.
    if not change.now < row.expires <= later(ahead(change.now), days=MOST_DAYS):
        raise NotYoursError("this invite has expired; ask for another one", tried_in=row.project)
    return row


def _refuse_used(row: Any) -> None:
    if row.uses < 1:
        raise NotYoursError("this invite was used already; ask for another one", tried_in=row.project)


def look_at_invite(look: Transaction, secret: str, key: str | None = None) -> InviteView:
    """What an invite is for; refused as a join by it, with that key, would be."""
    row = _invite_row(look, secret)
    is_panel = look.connection.execute(_PANEL, {"h": row.hash}).first() is not None
    joined = None if not key else log.by_key(look.connection, row.project, _joining_key(secret, key))
    # By a panel's invite those who joined before come in again, as does who sends the same join twice.
    if not is_panel and joined is None:
        _refuse_used(row)
    return InviteView(project=row.project, role=row.role, uses=row.uses, expires=row.expires, panel=is_panel)


def keep_password(
    change: Transaction, project: str, pseudonym: str, *, name: str, password_hash: str
) -> None:
    """Keep what is stored of a password, under the name by which the person signs in; sessions end."""
    names = {"p": project, "n": pseudonym, "k": name_key(name)}
    taken = change.connection.execute(_NAME_TAKEN, names).scalar_one_or_none()
    if taken not in (None, pseudonym):
        raise FieldError(
            field="name",
            found=repr(name),
            expected="a name that nobody in this project signs in with yet; add your surname or a number",
        )
    change.connection.execute(_PASSWORD_OUT, names)
    change.connection.execute(_SESSIONS_OUT, names)
    row = {"project": project, "pseudonym": pseudonym, "name_key": names["k"], "hash": password_hash}
    change.connection.execute(_PASSWORD_IN, row)


def _joining_key(secret: str, key: object) -> str:
    # The log's key of a join: a hash with the invite, so that nobody can guess another's.
    words = checked_text("key", key, most=200, empty=False)
    return f"join/{hash_secret(f'{secret} {words}')}"


def issue_token(
    change: Transaction,
    project: str,
    role: str,
    *,
    name: str,
    scopes: Sequence[str] | None = None,
    days: float = TOKEN_DAYS,
    key: str | None = None,
) -> Joined:
    """A new person with a token: without an invite, as the first owner comes in by the command line."""
    change.settings(project)
    check_choice("role", role, SCOPES)
    if not 0 < days <= MOST_DAYS:
        raise FieldError(field="days", found=repr(days), expected=f"a number above 0, at most {MOST_DAYS}")
    if unknown := set(scopes or ()) - set(SCOPES[role]):
        raise FieldError(
            field="scopes", found=", ".join(sorted(unknown)), expected=f"of {', '.join(SCOPES[role])}"
        )
    pseudonym = _admit(change, project, role, name=name, key=key)
    return _with_token(change, project, role, pseudonym, name=name, scopes=scopes, days=days)


def _admit(change: Transaction, project: str, role: str, *, name: str, key: str | None) -> str:
    # Rows of erased people stay and are counted, so no pseudonym ever comes to mean two people.
    number = change.connection.execute(_COUNT, {"p": project, "r": role}).scalar_one() + 1
    # The three roles begin with different letters, or their numbers would meet.
    pseudonym = f"{role[0]}{number}"
    qualifies = role == "annotator" and change.settings(project).qualify_n > 0
    body = {"role": role, "standing": "qualifying" if qualifies else "active"}
    change.record(
        Entry(project=project, actor=pseudonym, kind="joined", subject=pseudonym, body=body, key=key)
    )
    change.connection.execute(
        _PERSON_IN, {"project": project, "pseudonym": pseudonym, "name": name, "at": change.now}
    )
    return pseudonym


def annotator_named(change: Transaction, project: str, name: str) -> str:
    """The pseudonym of the annotator of a name; a new one, without a token, where nobody is called so."""
    words = checked_name("annotator", name)
    found = change.connection.execute(_NAMED, {"p": project, "n": words}).scalars().all()
    if len(found) > 1:
        raise FieldError(
            field="annotator",
            found=f"{words!r}, as {' and '.join(found)} are both called",
            expected="a name that one person of the project has, or nobody yet",
        )
    return found[0] if found else _admit(change, project, "annotator", name=words, key=None)


def _with_token(
    change: Transaction,
    project: str,
    role: str,
    pseudonym: str,
    *,
    name: str,
    scopes: Sequence[str] | None = None,
    days: float = TOKEN_DAYS,
) -> Joined:
    secret, expires = f"p_{secrets.token_urlsafe(24)}", later(change.now, days=days)
    granted = SCOPES[role] if scopes is None else scopes
    row = {"hash": hash_secret(secret), "project": project, "pseudonym": pseudonym, "role": role}
    change.connection.execute(_TOKEN_IN, {**row, "scopes": " ".join(granted), "expires": expires})
    return Joined(token=secret, person=name, pseudonym=pseudonym, project=project, role=role, expires=expires)


def identity_of(store: LabelStore, secret: str) -> Identity | None:
    """Who holds a token; None for an unknown, expired or revoked one."""
    # Every request asks this: a single question needs no transaction around it.
    now = store.now
    names = {"h": hash_secret(secret), "now": now, "longest": later(ahead(now), days=MOST_DAYS)}
    row = store.database.ask(_TOKEN, names)
    if row is None or row.standing == "erased":
        return None
    return identity_of_row(row, row.pseudonym, row.name, row.scopes.split())


def revoke(change: Transaction, project: str, pseudonym: str, *, actor: str) -> int:
    """End all tokens and sessions of a person; gives how many tokens there were."""
    # A misspelt pseudonym is refused here: no token would end, and it would look like success.
    rows = account_rows(change, project, pseudonym)
    ended = change.connection.execute(_TOKENS_OUT, {"p": project, "n": pseudonym}).rowcount
    body = {"tokens": ended, "sessions": end_all_sessions(change, rows)}
    change.record(Entry(project=project, actor=actor, kind="revoked", subject=pseudonym, body=body))
    return ended


def end_all_sessions(change: Transaction, rows: Iterable[Any]) -> int:
    """End the sessions of an account's rows, as each of them opens all its projects; gives how many."""
    names = [{"p": row.project, "n": row.name} for row in rows]
    return sum(change.connection.execute(_SESSIONS_OUT, name).rowcount for name in names)


def set_standing(
    change: Transaction, project: str, name: str, standing: str, *, reason: object, actor: str
) -> int:
    """A reviewer's decision about a person, with its reason."""
    check_choice("standing", standing, STANDINGS)
    row = person_row(change, project, name)
    if row.standing == "erased":
        raise NotYoursError(f"{name} was erased; nothing can be decided of nobody")
    # A reviewer decides about annotators: one who could suspend an owner would soon be the only one left.
    by = change.connection.execute(_ROLE, {"p": row.project, "n": actor}).scalar_one_or_none()
    if by == "reviewer" and row.role != "annotator":
        raise NotYoursError(
            f"{row.name} is {row.role}: only an owner decides about reviewers and owners",
            tried_in=row.project,
        )
    body = {"standing": standing, "reason": checked_text("reason", reason, empty=False)}
    if standing == "suspended":
        change.connection.execute(_SESSIONS_OUT, {"p": project, "n": name})
    entry = Entry(project=project, actor=actor, kind="standing-set", subject=name, body=body)
    return change.record(entry).seq


def set_preferences(
    change: Transaction,
    project: str,
    name: str,
    *,
    declined: Sequence[str] = (),
    languages: Sequence[str] = (),
    areas: Sequence[str] | None = None,
    groups: Mapping[str, str] | None = None,
) -> int:
    """What a person does not want to read, which languages the person reads, and which areas they know.

    Areas of None stay as they were, and so do groups; a group of an empty value is declined.
    """
    before = json.loads(person_row(change, project, name).preferences)
    checked_groups(change, project, groups or {})
    given = {"declined": declined, "languages": languages}
    known = before.get("areas", ()) if areas is None else areas
    preferences = {
        field: [checked_text(field, value, most=200, empty=False) for value in values]
        for field, values in (given | ({"areas": known} if known else {})).items()
    }
    return _prefer(change, project, name, preferences, {**before.get("groups", {}), **(groups or {})}, name)


def set_groups(change: Transaction, project: str, name: str, groups: Mapping[str, str], *, actor: str) -> int:
    """What an owner knows of somebody, by groups; an empty value takes out what was said, others stay."""
    row = person_row(change, project, name)
    if row.standing == "erased":
        raise NotYoursError(f"{name} was erased; nothing is kept of nobody")
    before = json.loads(row.preferences)
    answers = {**before.pop("groups", {}), **checked_groups(change, project, groups)}
    return _prefer(change, project, name, before, answers, actor)


def checked_groups(look: Transaction, project: str, groups: Mapping[str, str]) -> dict[str, str]:
    """Groups as somebody says them, of those that the project asks for; empty ones are declined."""
    known = look.settings(project).values_of_groups
    for name, value in groups.items():
        if name not in known:
            requested = ", ".join(known) or "none, as the project asks for no groups"
            raise FieldError(field="groups", found=repr(name)[:80], expected=f"one of {requested}")
        # Anything but a text, as a program may send, is in no list.
        if value != "" and value not in known[name]:
            expected = f"one of {', '.join(known[name])}, or nothing"
            raise FieldError(field=f"group-{name}", found=repr(value)[:80], expected=expected)
    return dict(groups)


def _prefer(
    change: Transaction,
    project: str,
    name: str,
    preferences: Mapping[str, Any],
    groups: Mapping[str, str],
    actor: str,
) -> int:
    # What the settings ask for no more is kept no longer.
    known = change.settings(project).values_of_groups
    answers = {group: value for group, value in groups.items() if value and value in known.get(group, ())}
    body = {"preferences": {**preferences, **({"groups": answers} if answers else {})}}
    entry = Entry(project=project, actor=actor, kind="preferences-set", subject=name, body=body)
    return change.record(entry).seq


def take_out_rows(change: Transaction, project: str, pseudonym: str) -> None:
    """Delete all rows that say who somebody is, let the person in, or hold what is not sent yet."""
    for statement in _PERSONAL_OUT:
        change.connection.execute(statement, {"p": project, "n": pseudonym})


def record_refusal(change: Transaction, project: str, actor: str, what: str) -> None:
    """Remember a refused request: the audit trail, and what a limit of failures counts."""
    # Cut: what stands in the log stands there for ever.
    body = {"what": what[:500]}
    change.record(Entry(project=project, actor=actor, kind="refused", subject=project, body=body))
