import secrets

import pytest

from plaudit.collect.desk import Lease, next_task
from plaudit.collect.own import completion_code, guidelines_read, qualification, read_guidelines
from plaudit.collect.people import Panel, join_project, look_at_invite, make_invite, set_standing
from plaudit.collect.progress import rebuild_tables, store_faults
from plaudit.collect.refusals import FieldError, NotYoursError
from tests.collect.desks import Desk, MakeDesk, pair_body


def _answer_all(desk: Desk, person: str, *, right: bool = True) -> int:
    answered = 0
    while isinstance(found := desk.store.write(next_task, "p", person, secrets.token_hex(4)), Lease):
        strength = desk.better(found) * (1 if right else -1)
        desk.submit(person, found, secrets.token_hex(4), {"strength": strength})
        answered += 1
    return answered


def test_the_same_participant_is_the_same_person_and_costs_one_use(desk: Desk) -> None:
    secret = desk.store.write(make_invite, "p", uses=2, actor="o1", panel=Panel(code="C1X7"))
    assert desk.store.read(look_at_invite, secret).panel
    first = join_project(desk.store, secret, None, participant="5f0a")
    again = join_project(desk.store, secret, "another name", participant=" 5f0a ")
    other = join_project(desk.store, secret, "", participant="77bc")
    assert first.pseudonym == again.pseudonym == "a1"
    assert (first.person, again.person, other.pseudonym) == ("5f0a", "5f0a", "a2")
    with pytest.raises(NotYoursError, match="used already"):
        join_project(desk.store, secret, None, participant="93e1")
    # Who joined before comes in again, also when all uses are gone.
    assert desk.store.read(look_at_invite, secret).uses == 0
    assert join_project(desk.store, secret, None, participant="77bc").pseudonym == "a2"


def test_an_invite_of_a_panel_wants_an_id_and_no_other_does(desk: Desk) -> None:
    panel = desk.store.write(make_invite, "p", actor="o1", panel=Panel(code="C1X7"))
    plain = desk.store.write(make_invite, "p", actor="o1")
    for secret, participant in ((panel, None), (panel, " "), (plain, "5f0a")):
        with pytest.raises(FieldError, match="participant: "):
            join_project(desk.store, secret, "Ada", participant=participant)
    with pytest.raises(FieldError, match="role: "):
        desk.store.write(make_invite, "p", role="owner", actor="o1", panel=Panel(code="C1X7"))
    with pytest.raises(FieldError, match="tasks: "):
        desk.store.write(make_invite, "p", actor="o1", panel=Panel(code="C1X7", tasks=0))


def test_the_code_is_shown_once_there_is_nothing_left_to_do_and_stands_in_no_event(on_both: MakeDesk) -> None:
    desk = on_both(tasks=3)
    secret = desk.store.write(make_invite, "p", actor="o1", panel=Panel(code="C1X7"))
    person = join_project(desk.store, secret, None, participant="crowd-worker-7").pseudonym
    assert desk.store.read(completion_code, "p", person) is None
    held = desk.lease(person)
    assert desk.store.read(completion_code, "p", person) is None
    desk.submit(person, held, "k", {"strength": 1})
    assert desk.store.read(completion_code, "p", person) is None
    # Who came by no panel has no code.
    (other,) = desk.people(1)
    desk.answer(other)
    _answer_all(desk, person)
    codes = [desk.store.read(completion_code, "p", somebody) for somebody in (person, other)]
    assert codes == ["C1X7", None]
    words = str(list(desk.store.events()))
    assert "C1X7" not in words
    assert "crowd-worker-7" not in words


def test_the_code_is_shown_after_so_many_answers_where_the_invite_says_how_many(on_both: MakeDesk) -> None:
    desk = on_both(tasks=3)
    secret = desk.store.write(make_invite, "p", actor="o1", panel=Panel(code="C1X7", tasks=2))
    person = join_project(desk.store, secret, None, participant="5f0a").pseudonym
    codes = []
    for _ in range(2):
        desk.answer(person)
        codes.append(desk.store.read(completion_code, "p", person))
    assert codes == [None, "C1X7"]
    desk.store.write(set_standing, "p", person, "suspended", reason="at random", actor="o1")
    assert desk.store.read(completion_code, "p", person) is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("right", [True, False])
def test_a_person_learns_how_qualifying_ended_and_nothing_before(on_both: MakeDesk, right: bool) -> None:
    desk = on_both(tasks=1, qualify_n=8)
    items = [pair_body(100 + number, gold={"better": 0}, qualify=True) for number in range(8)]
    desk.add(items)
    (person,) = desk.people(1)
    assert desk.store.read(qualification, "p", person).state == "running"
    for _ in range(7):
        held = desk.lease(person)
        strength = desk.better(held) * (1 if right else -1)
        desk.submit(person, held, secrets.token_hex(4), {"strength": strength})
    found = desk.store.read(qualification, "p", person)
    assert (found.state, found.answered, found.right, found.lower) == ("running", 7, 0, 0)
    _answer_all(desk, person, right=right)
    found = desk.store.read(qualification, "p", person)
    assert (found.state, found.answered, found.needed) == ("passed" if right else "failed", 8, 8)
    assert found.right == (8 if right else 0)
    assert (found.lower >= found.floor) == right


def test_where_nobody_is_asked_to_qualify_there_is_nothing_to_report(desk: Desk) -> None:
    (person,) = desk.people(1)
    assert desk.store.read(qualification, "p", person).state == "none"


def test_which_guidelines_somebody_has_read_is_remembered_once_for_each_version(desk: Desk) -> None:
    (person,) = desk.people(1)
    assert desk.store.read(guidelines_read, "p", person) is None
    for version in ("5499befb38db", "5499befb38db", "0123456789ab"):
        desk.store.write(read_guidelines, "p", person, version)
        assert desk.store.read(guidelines_read, "p", person) == version
    with pytest.raises(FieldError, match="version: "):
        desk.store.write(read_guidelines, "p", person, "<script>")
    read = [event.body for event in desk.store.events() if event.kind == "guidelines-read"]
    assert read == [{"version": "5499befb38db"}, {"version": "0123456789ab"}]
    assert desk.store.read(store_faults) == []
    desk.store.write(rebuild_tables)
    assert desk.store.read(guidelines_read, "p", person) == "0123456789ab"
