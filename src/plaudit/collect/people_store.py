"""The part of the label store that is about people: who comes in, stays signed in, is paid, and is erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from plaudit.collect import log, panels, passwords, pay, people, privacy, qualifying, sessions
from plaudit.collect.database import Database
from plaudit.collect.pay import Pay
from plaudit.collect.people import Identity, InviteView, Joined, Panel
from plaudit.collect.privacy import GroupSum
from plaudit.collect.qualifying import Qualification
from plaudit.collect.sessions import Opened, Session, SessionEntry
from plaudit.collect.transaction import Transaction, stamp


class PeopleStore:
    """The people of all projects in one database; `LabelStore` has their work too.

    Example: ``store.sign_in("helpful", "Ada", "a horse in the rain").identity.pseudonym``
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self.database = database
        self._clock = clock

    @property
    def where(self) -> str:
        """The file or address, without a password."""
        return self.database.where

    def close(self) -> None:
        """Give back all connections."""
        self.database.close()

    @contextmanager
    def changing(self) -> Iterator[Transaction]:
        """One change: all of it or nothing."""
        with self.database.writing() as connection:
            # Never before the last event: leases are compared with this moment, and clocks are set back.
            yield Transaction(connection, max(stamp(self._clock()), log.last(connection)[2]))

    @contextmanager
    def looking(self) -> Iterator[Transaction]:
        """One moment of the store, in which nothing can be written."""
        with self.database.reading() as connection:
            yield Transaction(connection, stamp(self._clock()))

    def invite(
        self,
        project: str,
        *,
        role: str = "annotator",
        uses: int = 1,
        days: float = 14,
        actor: str,
        panel: Panel | None = None,
        key: str | None = None,
    ) -> str:
        """An invite's secret, shown here and never again; one for a key; with a panel, for its people."""
        with self.changing() as change:
            return people.make_invite(
                change, project, role=role, uses=uses, days=days, actor=actor, panel=panel, key=key
            )

    def end_invite(self, project: str, invite: str, *, actor: str) -> int:
        """Let nobody in any more by an invite, named by its id."""
        with self.changing() as change:
            return people.end_invite(change, project, invite, actor=actor)

    def look_at_invite(self, secret: str, key: str | None = None) -> InviteView:
        """What an invite is for, without using it; refused as a join, with that key, would be."""
        with self.looking() as look:
            return people.look_at_invite(look, secret, key)

    def join(
        self,
        secret: str,
        name: object,
        key: object = None,
        *,
        password: object = None,
        participant: object = None,
    ) -> Joined:
        """Use an invite; with the same key again the same person, with a fresh token.

        With a password the person can sign in by name; a panel's invite wants its participant's id.
        """
        stored = None
        if password is not None:
            # Whoever holds no invite makes nobody hash; and never under the writer's lock, as it takes long.
            with self.looking() as look:
                project = people.invite_row(look, secret).project
            words = passwords.checked_password(password, str(name), project)
            # One at a time: many who join at once would take 64 MiB each.
            with passwords.GATE:
                stored = passwords.hash_password(words)
        with self.changing() as change:
            return people.join(change, secret, name, key, password_hash=stored, participant=participant)

    def token(
        self,
        project: str,
        role: str,
        *,
        name: str,
        scopes: Sequence[str] | None = None,
        days: float = people.TOKEN_DAYS,
    ) -> Joined:
        """A token without an invite: how the first owner comes in, by the command line."""
        with self.changing() as change:
            granted = people.SCOPES.get(role, ()) if scopes is None else scopes
            return people.enter(change, project, role, name=name, scopes=granted, days=days)

    def identity(self, token: str) -> Identity | None:
        """Who holds a token; None for an unknown, expired or revoked one."""
        return people.identity(self.database, token, stamp(self._clock()))

    def revoke(self, project: str, annotator: str, *, actor: str) -> int:
        """End all tokens and sessions of a person."""
        with self.changing() as change:
            return people.revoke(change, project, annotator, actor=actor)

    # Sessions.

    def sign_in(self, project: str, name: str, password: str, *, replacing: str | None = None) -> Opened:
        """A session for a name and its password; the browser's session of before, if it had one, ends."""
        with passwords.GATE:
            with self.looking() as look:
                attempt = sessions.look_up(look, project, name)
            self._refuse_wrong(attempt, password)
        with self.changing() as change:
            if replacing is not None:
                sessions.end_session(change, replacing)
            assert attempt.pseudonym is not None
            return sessions.open_session(change, attempt.project, attempt.pseudonym, by="password")

    def _refuse_wrong(self, attempt: sessions.SignIn, password: str) -> None:
        if not passwords.fits(attempt.stored, password):
            with self.changing() as change:
                refusal = sessions.record_failure(change, attempt)
            # Outside, or the failure would be rolled back and never counted.
            raise refusal

    def open_session(self, project: str, annotator: str, *, by: str = "invite") -> Opened:
        """A session without a password: for whoever has just joined, or brought the one-time link."""
        with self.changing() as change:
            return sessions.open_session(change, project, annotator, by=by)

    def session(self, secret: str) -> Session | None:
        """The session of a browser; None for one that is unknown or has ended."""
        return sessions.find_session(self.database, secret, stamp(self._clock()))

    def end_session(self, secret: str) -> None:
        """Sign out."""
        with self.changing() as change:
            sessions.end_session(change, secret)

    def sessions(self, project: str, annotator: str) -> list[SessionEntry]:
        """Where somebody is signed in."""
        with self.looking() as look:
            return sessions.list_sessions(look, project, annotator)

    def end_sessions(
        self, project: str, annotator: str, session: str | None = None, *, actor: str | None = None
    ) -> int:
        """Sign somebody out everywhere, or of the session of an id; gives how many ended."""
        with self.changing() as change:
            return sessions.end_sessions(change, project, annotator, session, actor=actor or annotator)

    def change_password(self, project: str, annotator: str, old: str, new: object) -> Opened:
        """Another password; all sessions end, and the returned one takes the place of the browser's."""
        with passwords.GATE:
            with self.looking() as look:
                attempt = sessions.own_sign_in(look, project, annotator)
            words = passwords.checked_password(new, project, attempt.typed.partition("/")[2])
            self._refuse_wrong(attempt, old)
            stored = passwords.hash_password(words)
        with self.changing() as change:
            sessions.replace_password(change, project, annotator, stored)
            return sessions.open_session(change, project, annotator, by="password")

    def set_password(self, project: str, annotator: str, new: object, *, actor: str) -> None:
        """A password for somebody, without the old one: by whoever works on the store itself."""
        with self.looking() as look:
            name = sessions.name_of(look, project, annotator)
        stored = passwords.hash_password(passwords.checked_password(new, name, project))
        with self.changing() as change:
            people.set_password(change, project, annotator, name=name, password_hash=stored)
            sessions.record_password(change, project, annotator, actor=actor)

    def prefer(
        self,
        project: str,
        annotator: str,
        *,
        declined: Sequence[str] = (),
        languages: Sequence[str] = (),
        areas: Sequence[str] | None = None,
    ) -> int:
        """What a person does not want to read, which languages they read, and which areas they know."""
        with self.changing() as change:
            return people.set_preferences(
                change, project, annotator, declined=declined, languages=languages, areas=areas
            )

    def erase(self, project: str, annotator: str, *, actor: str) -> int:
        """Delete what is personal of somebody, and what a database's own files still hold of it."""
        with self.changing() as change:
            seq = privacy.erase(change, project, annotator, actor=actor)
        self.database.clear_traces()
        return seq

    def export_person(self, project: str, annotator: str) -> dict[str, Any]:
        """Everything that is stored of a person, for the person."""
        with self.looking() as look:
            return privacy.export_person(look, project, annotator)

    def set_group(self, project: str, annotator: str, group: object) -> None:
        """In which group a person wants to be counted; nothing for none."""
        with self.changing() as change:
            privacy.set_group(change, project, annotator, group)

    def groups(self, project: str) -> list[GroupSum]:
        """What groups of five people or more did together."""
        with self.looking() as look:
            look.settings(project)
            return privacy.group_sums(look, project)

    def pay(self, project: str) -> list[Pay]:
        """What everybody did, to be paid for."""
        with self.looking() as look:
            look.settings(project)
            return pay.pay_rows(look, project)

    def refused(self, project: str, actor: str, what: str) -> None:
        """Remember a refused request."""
        with self.changing() as change:
            people.refuse(change, project, actor, what)

    # What a person shows and reads before the work.

    def read_guidelines(self, project: str, annotator: str, version: object) -> None:
        """Remember that a person has read a version of the guidelines."""
        with self.changing() as change:
            qualifying.read_guidelines(change, project, annotator, version)

    def guidelines_read(self, project: str, annotator: str) -> str | None:
        """The version of the guidelines that a person has read last."""
        with self.looking() as look:
            return qualifying.guidelines_read(look, project, annotator)

    def qualification(self, project: str, annotator: str) -> Qualification:
        """How far a person is with qualifying, and how it ended."""
        with self.looking() as look:
            return qualifying.qualification(look, project, annotator)

    def completion(self, project: str, annotator: str) -> str | None:
        """The completion code for somebody whom a panel sent and who is through; else None."""
        with self.looking() as look:
            return panels.completion(look, project, annotator)
