import csv
import io
import json
import sqlite3

import pytest
from sqlalchemy import insert

from plaudit.collect import tables
from plaudit.collect.answering import add_note, own_history, report_task, save_draft, skip_task
from plaudit.collect.people import (
    Panel,
    issue_token,
    join_project,
    make_invite,
    set_preferences,
    set_standing,
)
from plaudit.collect.privacy import erase_person, export_person
from plaudit.collect.progress import pay_csv, pay_rows, rebuild_tables, store_faults
from plaudit.collect.refusals import NotYoursError, StoreUnavailableError
from plaudit.collect.sessions import open_session
from tests.collect.desks import Desk, pair_body

NAME = "Zerubbabel Quux"
WROTE = "my aunt Philippa in Upper Slaughter"
GROUP = "people of Slaughter"


def _somebody(desk: Desk) -> str:
    """A person of whom there is something in every table and every kind of event."""
    secret = desk.store.write(make_invite, "p", actor="o1", panel=Panel(code="C1X7"))
    joined = join_project(desk.store, secret, NAME, participant="5f0a99panel")
    person = joined.pseudonym
    desk.store.write(open_session, "p", person)
    lease = desk.lease(person)
    desk.submit(person, lease, "k1", {"strength": 2, "why": WROTE})
    desk.store.write(add_note, "p", person, lease.assignment, "k2", WROTE)
    desk.store.write(report_task, "p", person, lease.assignment, "k3", "other", WROTE)
    desk.store.write(set_preferences, "p", person, declined=[WROTE])
    with desk.store.changing() as change:
        row = {"project": "p", "pseudonym": person, "value": GROUP}
        change.connection.execute(insert(tables.group), row)
    desk.store.write(save_draft, "p", person, desk.lease(person).assignment, {"why": WROTE})
    return person


def test_everything_about_a_person_is_handed_out_without_secrets_and_checks(on_both):
    desk = on_both(gold_share=1.0)
    desk.add([pair_body(77, gold={"better": 0})])
    secret = desk.store.write(make_invite, "p", actor="o1")
    desk.answer(join_project(desk.store, secret, "Somebody Else").pseudonym)
    person = _somebody(desk)
    desk.store.write(set_standing, "p", person, "watch", reason="quick", actor="o1")
    found = desk.store.read(export_person, "p", person)
    text = json.dumps(found)
    assert (found["name"], found["group"], found["participant"]) == (NAME, GROUP, "5f0a99panel")
    assert found["standing"] == "watch"
    assert found["drafts"][0]["label"] == {"why": WROTE}
    assert len(found["sessions"]) == len(found["tokens"]) == 1
    kinds = {event["kind"] for event in found["events"]}
    assert {"joined", "signed-in", "leased", "answered", "noted", "flagged", "preferences-set"} <= kinds
    assert "standing-set" in kinds
    assert "hash" not in text
    assert "gold" not in text
    assert "Somebody Else" not in text


def test_what_somebody_wrote_is_gone_and_what_was_clicked_stays(desk):
    person = _somebody(desk)
    assert len(desk.store.read(own_history, "p", person)) == 1
    erase_person(desk.store, "p", person, actor="o1")
    assert desk.store.read(store_faults) == []
    found = desk.store.read(export_person, "p", person)
    with desk.store.looking() as look:
        kept = [look.connection.execute(table.select()).all() for table in (*tables.FOLDS, *tables.PERSONAL)]
    text = json.dumps(found) + str(kept) + str(list(desk.store.events()))
    assert not any(word in text for word in (NAME, WROTE, GROUP, "5f0a99panel"))
    assert not any(found[name] for name in ("name", "group", "participant", "sessions", "tokens", "drafts"))
    assert [answer["label"] for answer in desk.store.read(own_history, "p", person)] == [{"strength": 2}]
    with pytest.raises(NotYoursError, match="erased before"):
        erase_person(desk.store, "p", person, actor="o1")
    desk.store.write(rebuild_tables)
    assert [answer["label"] for answer in desk.store.read(own_history, "p", person)] == [{"strength": 2}]


def test_no_byte_of_an_erased_person_is_left_in_the_files(tmp_path, make_desk):
    where = tmp_path / "labels.db"
    desk = make_desk(where)
    person = _somebody(desk)
    desk.people(3)

    def found() -> set[str]:
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return {word for word in (NAME, WROTE, GROUP, "5f0a99panel") if word.encode() in content}

    assert found() == {NAME, WROTE, GROUP, "5f0a99panel"}
    erase_person(desk.store, "p", person, actor="o1")
    # While the store is open: its own file, the -wal and the -shm.
    assert len(list(tmp_path.iterdir())) == 3
    assert found() == set()


def test_where_somebody_reads_on_words_still_in_a_file_are_reported(tmp_path, make_desk, monkeypatch):
    monkeypatch.setattr("plaudit.collect.database.BUSY_SECONDS", 0.1)
    where = tmp_path / "labels.db"
    desk = make_desk(where)
    person = _somebody(desk)
    reader = sqlite3.connect(where, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM log").fetchone()
    with pytest.raises(StoreUnavailableError, match="still reading the store"):
        erase_person(desk.store, "p", person, actor="o1")
    assert desk.store.read(export_person, "p", person)["standing"] == "erased"
    reader.close()


def test_the_pay_sheet_counts_all_work_and_computes_nothing(on_both):
    desk = on_both(tasks=5, gold_share=0.5)
    desk.add([pair_body(77, gold={"better": 0})])
    secret = desk.store.write(make_invite, "p", uses=2, actor="o1")
    first, second = (join_project(desk.store, secret, name).pseudonym for name in ("=1+1", "Ada, B."))
    late = desk.lease(second)
    for _ in range(3):
        lease = desk.lease(first)
        desk.submit(first, lease, lease.assignment, {"strength": 1}, seconds=20.5)
    desk.store.write(skip_task, "p", second, late.assignment, "k", "unclear")
    rows = desk.store.read(pay_rows, "p")
    one, two = rows
    assert one.labels + one.gold == 3
    assert one.seconds == 61.5
    assert (two.name, two.labels, two.skipped, two.seconds) == ("Ada, B.", 0, 1, 0)
    sheet = list(csv.reader(io.StringIO(pay_csv(rows))))
    assert sheet[0][:3] == ["pseudonym", "name", "participant"]
    assert sheet[1][1] == "'=1+1"
    erase_person(desk.store, "p", first, actor="o1")
    assert desk.store.read(pay_rows, "p")[0].name is None


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", " =1", "＝1", "\u00a0+1"])
def test_a_cell_that_could_be_a_formula_stands_behind_an_apostrophe(make_desk, cell):
    desk = make_desk(tasks=0)
    desk.store.write(issue_token, "p", "annotator", name=f"{cell}x")
    (_, line) = csv.reader(io.StringIO(pay_csv(desk.store.read(pay_rows, "p")), newline=""))
    assert line[1] == f"'{cell}x"
