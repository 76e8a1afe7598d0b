"""What is stored of a person: all of it handed out or erased on wish.

Erased is what a person wrote; what the person clicked stays, under a pseudonym that has no name any more.
"""

from typing import Any

from sqlalchemy import select

from plaudit.collect import log, tables
from plaudit.collect.answers import without_free_text
from plaudit.collect.desk import person_row
from plaudit.collect.log import Entry, bound
from plaudit.collect.people import take_out_rows
from plaudit.collect.refusals import NotYoursError
from plaudit.collect.store import LabelStore, Transaction, columns, parsed

_LABELS = select(tables.label).where(bound(tables.label, project="p", author="n"))
_OF_PERSON = {
    table.name: select(table).where(bound(table, project="p", pseudonym="n"))
    for table in (
        tables.person,
        tables.password,
        tables.session,
        tables.token,
        tables.participant,
        tables.group,
    )
}
_DRAFTS = select(tables.draft).where(bound(tables.draft, project="p", annotator="n"))
_SECRET = ("hash", "project", "pseudonym", "panel", "name_key")


def export_person(look: Transaction, project: str, pseudonym: str) -> dict[str, Any]:
    """Everything that is stored of a person, as plain JSON: for the person, who may ask for it.

    Without what would open something (hashes of secrets), and without which tasks were a check.
    """
    row, names = person_row(look, project, pseudonym), {"p": project, "n": pseudonym}
    rows = {
        name: [
            {key: value for key, value in entry.items() if key not in _SECRET}
            for entry in columns(look.connection.execute(statement, names).all())
        ]
        for name, statement in _OF_PERSON.items()
    }
    drafts = [
        {
            "assignment": entry.assignment,
            **{name: parsed(getattr(entry, name)) for name in ("label", "conversation")},
        }
        for entry in look.connection.execute(_DRAFTS, names)
    ]
    return {
        "project": project,
        "pseudonym": pseudonym,
        "role": row.role,
        "standing": row.standing,
        "preferences": parsed(row.preferences),
        "guidelines": row.guidelines or None,
        "name": next((entry["name"] for entry in rows["person"]), None),
        "group": next((entry["value"] for entry in rows["group_of_person"]), None),
        "participant": next((entry["participant"] for entry in rows["participant"]), None),
        "has_password": bool(rows["password"]),
        "sessions": rows["session"],
        "tokens": rows["token"],
        "drafts": drafts,
        "events": [_own_event(event) for event in log.events_about(look.connection, project, pseudonym)],
    }


def _own_event(event: log.Event) -> dict[str, Any]:
    body = event.body
    if event.kind == "leased" and body is not None:
        # Which items were a check is not given away: others are still to answer them.
        body = {name: value for name, value in body.items() if name != "purpose"}
    fields = {name: getattr(event, name) for name in ("seq", "at", "actor", "kind", "subject")}
    return {**fields, "body": body}


def erase_person(store: LabelStore, project: str, name: str, *, actor: str) -> int:
    """Delete what is personal of somebody, and what a database's own files still hold of it."""
    seq = store.write(_erase, project, name, actor=actor)
    store.database.clear_traces()
    return seq


def _erase(change: Transaction, project: str, name: str, *, actor: str) -> int:
    # Delete what is personal of somebody; what was clicked stays, without a name and without words.
    # The hashes of what was taken out stand in the event, so that the chain still proves that it was there.
    if person_row(change, project, name).standing == "erased":
        raise NotYoursError(f"{name} was erased before")
    current = {row.seq: row for row in change.connection.execute(_LABELS, {"p": project, "n": name})}
    remains, seqs = list[dict[str, Any]](), list[int]()
    for event in log.events_about(change.connection, project, name):
        # What an owner wrote down of the person goes as well, and what they wrote down of others stays.
        if name != (event.subject if event.kind == "preferences-set" else event.actor):
            continue
        rest = _without_words(event.kind, event.body)
        # Clicks alone are nobody's words: such an event stays whole.
        if rest == event.body:
            continue
        seqs.append(event.seq)
        if event.kind in ("answered", "revised", "adjudicated"):
            remains.append(_remains(event, rest, current.get(event.seq)))
    hashes = log.erase(change.connection, seqs)
    take_out_rows(change, project, name)
    body = {"remains": remains, "hashes": hashes}
    return change.record(Entry(project=project, actor=actor, kind="erased", subject=name, body=body)).seq


def _remains(event: log.Event, rest: dict[str, Any] | None, row: Any) -> dict[str, Any]:
    # What stays of an answer: the clicks, and whether it was the one that held.
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "subject": event.subject,
        "number": 0 if row is None else row.number,
        "holds": row is not None,
        # The digest of what was sent has no salt: words could be guessed until it fits.
        "body": None if rest is None else {name: rest[name] for name in rest if name != "request"},
    }


def _without_words(kind: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
    # An event's body without what a person wrote; None where nothing else is in it.
    if body is None or kind in ("noted", "flagged", "preferences-set"):
        return None
    if kind not in ("answered", "revised", "adjudicated") or body["label"] is None:
        return body
    rest = without_free_text(body["label"])
    return None if rest is None else {**body, "label": rest}
