"""The store itself: versions, tampering, backups, erasing, people, and what a database can do to it."""

import multiprocessing
import sqlite3
from dataclasses import replace
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from sqlalchemy import text

from plaudit.cli.main import main
from plaudit.collect import tables
from plaudit.collect.adding import set_project
from plaudit.collect.answering import add_note, own_history
from plaudit.collect.desk import next_task
from plaudit.collect.log import Entry
from plaudit.collect.people import identity_of, issue_token, join_project, make_invite, record_refusal, revoke
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import clock_notes, project_status, store_faults
from plaudit.collect.refusals import (
    FieldError,
    NotFoundError,
    NotYoursError,
    StoreUnavailableError,
    TooOftenError,
)
from plaudit.collect.sessions import FAILED, find_session, open_session, sign_in
from plaudit.collect.store import Transaction, copy_store, open_store
from plaudit.errors import UserError
from tests.collect.desks import NOON, Cluster, Desk, MakeDesk, pair_body
from tools.postgres import postgres_programs


def worked(make_desk: MakeDesk) -> tuple[Desk, list[str]]:
    """A store in which some things have happened."""
    desk = make_desk(tasks=6, overlap=2)
    people = desk.people(3)
    for person in people[:2]:
        for _ in range(3):
            desk.answer(person)
    lease = desk.lease(people[2])
    desk.submit(people[2], lease, "k", {"strength": 1, "why": "my cousin wrote it"})
    desk.store.write(add_note, "p", people[2], lease.assignment, "n", "I live next to the author")
    return desk, people


@pytest.mark.slow
def test_an_older_store_is_replayed_and_a_newer_one_refused(on_both, where):
    desk, _ = worked(on_both)
    before = desk.store.read(project_status, "p")
    with desk.store.database.writing() as connection:
        connection.execute(text("UPDATE meta SET value = '0' WHERE name = 'views'"))
        connection.execute(text("UPDATE task SET wanted = 77"))
    again = open_store(where)
    try:
        assert again.read(project_status, "p") == before
        assert again.read(store_faults) == []
    finally:
        again.close()
    for name, words in (("views", "newer plaudit works on"), ("log", "is of a newer plaudit")):
        with desk.store.database.writing() as connection:
            connection.execute(text(f"UPDATE meta SET value = '99' WHERE name = '{name}'"))
        with pytest.raises(UserError, match=words):
            open_store(where)


def test_the_store_of_the_first_version_is_still_read(tmp_path):
    there = tmp_path / "labels.db"
    there.write_bytes(Path(__file__).with_name("first.db").read_bytes())
    store = open_store(there)
    try:
        assert store.read(store_faults) == []
        assert store.read(project_status, "p").labels == 7
    finally:
        store.close()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE log SET actor = 'a9' WHERE seq = 5", "event 5: its link"),
        ("UPDATE log SET body = '{}' WHERE seq = 5", "event 5: its body"),
        ("DELETE FROM log WHERE seq = 5", "events are missing"),
        ("UPDATE label SET surplus = 1", "table label"),
        ("DELETE FROM assignment", "table assignment"),
        ("UPDATE label SET task = (SELECT min(task) FROM label)", "7 labels count, and never more than 4"),
        ("UPDATE label SET annotator = 'a1'", "a1 labelled it twice"),
    ],
)
def test_what_was_altered_is_found(on_both, statement, words):
    desk, _ = worked(on_both)
    assert desk.store.read(store_faults) == []
    with desk.store.database.writing() as connection:
        connection.execute(text(statement))
    desk.is_damaged = True
    assert any(words in fault for fault in desk.store.read(store_faults))


def test_a_backup_made_at_work_is_restored_in_either_database(on_both, tmp_path, cluster):
    desk, people = worked(on_both)
    assert copy_store(desk.store, tmp_path / "backup.db") == desk.store.position()[0]
    with pytest.raises(UserError, match="never overwrites"):
        copy_store(desk.store, tmp_path / "backup.db")
    backup = open_store(tmp_path / "backup.db", clock=desk.clock)
    address = cluster.database()
    try:
        assert copy_store(backup, address) == desk.store.position()[0]
        with pytest.raises(UserError, match="there is a store already"):
            copy_store(backup, address)
    finally:
        backup.close()
    restored = open_store(address, clock=desk.clock)
    try:
        assert restored.read(store_faults) == []
        assert restored.position() == desk.store.position()
        assert restored.read(project_status, "p") == desk.store.read(project_status, "p")
        assert restored.read(own_history, "p", people[0]) == desk.store.read(own_history, "p", people[0])
    finally:
        restored.close()


def test_a_written_answer_goes_with_its_author(make_desk):
    desk = make_desk(tasks=[{"kind": "write", "prompt": "Greet me."}], ask="write")
    (one,) = desk.people(1)
    lease = desk.lease(one)
    desk.submit(one, lease, "k", {"answer": "Good morning from Ada"})
    erase_person(desk.store, "p", one, actor="o1")
    assert desk.store.read(store_faults) == []
    assert desk.store.read(project_status, "p").labels == 0
    assert "from Ada" not in str(list(desk.store.events()))


def test_invites_work_once_and_expire_and_secrets_are_not_stored(desk):
    secret = desk.store.write(make_invite, "p", actor="o1")
    joined = join_project(desk.store, secret, "Ada")
    with pytest.raises(NotYoursError, match="used already"):
        join_project(desk.store, secret, "Bob")
    late = desk.store.write(make_invite, "p", days=1, actor="o1")
    desk.clock.advance(days=2)
    with pytest.raises(NotYoursError, match="expired"):
        join_project(desk.store, late, "Bob")
    with pytest.raises(NotFoundError):
        join_project(desk.store, "i_nothing", "Bob")
    with pytest.raises(FieldError, match="name"):
        join_project(desk.store, desk.store.write(make_invite, "p", actor="o1"), "  ")
    identity = identity_of(desk.store, joined.token)
    assert identity is not None
    assert (identity.pseudonym, identity.role, identity.scopes) == (joined.pseudonym, "annotator", ("label",))
    with desk.store.looking() as look:
        for table in (*tables.PERSONAL, tables.annotator):
            rows = str(look.connection.execute(table.select()).all())
            assert secret not in rows
            assert joined.token not in rows
    assert "Ada" not in str(list(desk.store.events()))
    desk.store.write(revoke, "p", joined.pseudonym, actor="o1")
    assert identity_of(desk.store, joined.token) is None


def test_a_token_ends_and_is_given_no_more_than_its_role(make_desk):
    desk = make_desk()
    owner = desk.store.write(issue_token, "p", "owner", name="Olga", days=1)
    assert identity_of(desk.store, owner.token) is not None
    desk.clock.advance(days=2)
    assert identity_of(desk.store, owner.token) is None
    with pytest.raises(FieldError, match="scopes"):
        desk.store.write(issue_token, "p", "annotator", name="Ann", scopes=["manage"])


def test_a_clock_that_was_set_back_makes_no_event_older(make_desk):
    desk = make_desk()
    (one,) = desk.people(1)
    desk.clock.now = NOON - timedelta(minutes=50)
    lease = desk.lease(one)
    assert lease.until > "2026-03-01T12:29"
    desk.submit(one, lease, "k", {"strength": 1})
    times = [event.at for event in desk.store.events()]
    assert times == sorted(times)
    assert desk.store.read(store_faults) == []
    assert desk.store.read(clock_notes) == []


def test_what_a_wrong_clock_gave_holds_nothing_once_it_is_right(on_both):
    desk = on_both(tasks=1)
    one, two = desk.people(2)
    desk.clock.advance(days=730)
    desk.lease(one)
    invite = desk.store.write(make_invite, "p", uses=9, actor="o1")
    ada = join_project(desk.store, invite, "Ada", password="a horse in the rain")
    session = desk.store.write(open_session, "p", ada.pseudonym).secret
    with desk.store.changing() as change:
        for _ in range(100):
            record_refusal(change, "p", "nobody", "sign-in")
    desk.clock.now = NOON
    (note,) = desk.store.read(clock_notes)
    assert "is of 2028-02-29" in note
    # Neither a place of 2028, nor a lockout, nor a secret.
    with pytest.raises(NotYoursError, match="name or the password is wrong"):
        sign_in(desk.store, "p", "Ada", "wrong")
    lease = desk.lease(two)
    assert lease.until[:16] == "2026-03-01T12:30"
    assert find_session(desk.store, session) is None
    assert identity_of(desk.store, ada.token) is None
    with pytest.raises(NotYoursError, match="expired"):
        join_project(desk.store, invite, "Eve")
    # A sign-in of 2028 forgives no failure of today.
    failed = Entry(project="p", actor="nobody", kind="refused", subject=ada.pseudonym, body=FAILED)
    for _ in range(9):
        desk.store.write(Transaction.record, failed)
    with pytest.raises(TooOftenError):
        sign_in(desk.store, "p", "Ada", "a horse in the rain")
    desk.submit(two, lease, "k", {"strength": 1})
    assert desk.store.read(store_faults) == []
    assert len(desk.store.read(clock_notes)) == 1


def test_a_full_disk_is_said_and_loses_nothing(make_desk):
    desk = make_desk()
    before = desk.store.position()
    with desk.store.database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    # As a full disk answers: no page more.
    with desk.store.database.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    big = [pair_body(n, metadata={"text": "x" * 50_000}) for n in range(50, 60)]
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        desk.add(big)
    assert desk.store.position() == before
    desk.store.database.close()
    assert desk.add(big).added == 10


def _hold_lock(path: str, held: Event, done: Event) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    held.set()
    done.wait(60)
    connection.execute("ROLLBACK")
    connection.close()


@pytest.mark.slow
def test_a_store_that_another_program_locks_is_said(make_desk, tmp_path, monkeypatch):
    monkeypatch.setattr("plaudit.collect.database.BUSY_SECONDS", 0.3)
    desk = make_desk()
    (one,) = desk.people(1)
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold_lock, args=(str(tmp_path / "labels.db"), held, done))
    other.start()
    try:
        assert held.wait(60)
        with pytest.raises(StoreUnavailableError, match="another program holds"):
            desk.store.write(next_task, "p", one)
    finally:
        done.set()
        other.join()
    assert desk.lease(one).task


@pytest.mark.slow
def test_a_database_that_is_gone_for_a_while_is_said_and_comes_back(make_desk, cluster):
    desk = make_desk(cluster.database())
    (one,) = desk.people(1)
    lease = desk.lease(one)
    first = desk.submit(one, lease, "k", {"strength": 1})
    cluster.stop("immediate")
    try:
        with pytest.raises(StoreUnavailableError, match="send it again"):
            desk.store.write(next_task, "p", one)
    finally:
        cluster.start()
    assert desk.submit(one, lease, "k", {"strength": 1}) == first


@pytest.mark.slow
def test_a_password_may_stand_in_the_environment(monkeypatch, cluster):
    """An address goes into files of settings and messages; its password need not."""
    assert cluster.password is None
    programs = postgres_programs()
    assert programs is not None
    closed = Cluster(programs, password="open sesame")
    try:
        address = closed.database()
        monkeypatch.delenv("PGPASSWORD", raising=False)
        with pytest.raises(UserError, match="password"):
            open_store(address, create=True)
        monkeypatch.setenv("PGPASSWORD", "open sesame")
        store = open_store(address, create=True)
        store.close()
        # What an address says itself comes first.
        with pytest.raises(UserError, match="password"):
            open_store(address.replace("plaudit@", "plaudit:wrong@"))
    finally:
        closed.remove()


def test_a_writer_sees_what_was_written_while_it_waited(make_desk, cluster):
    """Also where a database has a stricter level by default, which sees what was there before the wait."""
    desk = make_desk(where := cluster.database())
    with desk.store.database.writing() as connection:
        name = where.rpartition("/")[2]
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable"))
    other = make_desk(where).store.database
    with other.writing() as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"


def test_a_database_of_another_encoding_is_refused(cluster):
    with pytest.raises(UserError, match="encoding is SQL_ASCII"):
        open_store(cluster.database("SQL_ASCII"), create=True)


def test_what_is_no_store_is_refused_in_words(tmp_path):
    with pytest.raises(NotFoundError, match="there is no such store"):
        open_store(tmp_path / "none.db")
    (tmp_path / "notes.db").write_text("Dear diary, this is not a database at all. " * 100)
    with pytest.raises(UserError, match="is no store of plaudit"):
        open_store(tmp_path / "notes.db")
    with pytest.raises(UserError, match=r"not mysql|cannot be used"):
        open_store("mysql://me:secret@127.0.0.1/x")
    for address in (
        "postgresql+pg8000://me:secret@127.0.0.1:1/x",
        # A slash in a password: its first half is read as a port.
        "postgresql+pg8000://me:sec/secret@127.0.0.1:1/x",
        "postgresql+pg8000://me@127.0.0.1:1/x?password=secret",
    ):
        with pytest.raises(UserError) as caught:
            open_store(address)
        assert "sec" not in str(caught.value).replace("second", "")


@pytest.mark.parametrize(
    ("sound", "torn"), [(b"my cousin", b"my \xff\xffusin"), (b"CREATE TABLE", b"CREATE \xffABLE")]
)
def test_a_file_with_other_bytes_is_refused_in_a_sentence(make_desk, tmp_path, capsys, sound, torn):
    worked(make_desk)[0].store.database.clear_traces()
    content = (tmp_path / "labels.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(content.replace(sound, torn))
    assert main(["collect", "check", "--store", str(tmp_path / "torn.db")]) == 2
    assert "torn.db: the file is damaged: restore a backup" in capsys.readouterr().err


def test_labels_keep_their_meaning_when_a_scale_would_change(make_desk):
    desk = make_desk(tasks=1)
    settings = desk.store.project("p")
    two_degrees = replace(settings, scale=("a bit", "much"))
    desk.store.write(set_project, two_degrees, actor="o1")
    (one,) = desk.people(1)
    desk.answer(one)
    desk.store.write(set_project, replace(two_degrees, scale=("somewhat", "far")), actor="o1")
    for other in (settings, replace(two_degrees, points=7)):
        with pytest.raises(UserError, match="make another project"):
            desk.store.write(set_project, other, actor="o1")


def test_an_aspect_keeps_its_levels_while_there_are_labels(make_desk, tmp_path):
    desk = make_desk(
        tmp_path / "labels.db", tasks=0, ask="rate", aspects=("tone",), anchors=(("Bad", "Good"),)
    )
    settings = desk.store.project("p")
    three = replace(settings, anchors=(("Bad", "Fair", "Good"),))
    desk.store.write(set_project, three, actor="o1")
    desk.add([{"prompt": "?", "candidates": [{"text": "a"}]}])
    (one,) = desk.people(1)
    desk.submit(one, desk.lease(one), "k", {"points": {"tone": [3]}})
    desk.store.write(set_project, replace(three, anchors=(("Rude", "Plain", "Kind"),)), actor="o1")
    more = replace(three, aspects=("tone", "form"), anchors=(*three.anchors, ("Bad", "Good")))
    desk.store.write(set_project, more, actor="o1")
    with pytest.raises(UserError, match="labels of tone on 3 levels, which 2 levels would change"):
        desk.store.write(set_project, settings, actor="o1")
