import pytest

from plaudit.collect.people import join_project, make_invite, record_refusal, set_standing
from plaudit.collect.refusals import FieldError, NotYoursError, TooOftenError
from plaudit.collect.sessions import change_password, find_session, open_session, sign_in
from plaudit.collect.store import open_store
from tests.collect.desks import Desk

WORD = "a horse in the rain"


def _joined(desk: Desk, name: str = "Ada", word: str = WORD) -> str:
    return join_project(
        desk.store, desk.store.write(make_invite, "p", actor="o1"), name, password=word
    ).pseudonym


@pytest.mark.parametrize(("times", "hours", "last"), [(3, 11, 12.02), (16, 10, 10)], ids=["unused", "a week"])
def test_a_session_ends_after_twelve_hours_without_use_and_after_seven_days(desk, times, hours, last):
    secret = desk.store.write(open_session, "p", _joined(desk)).secret
    for _ in range(times):
        desk.clock.advance(hours=hours)
        assert find_session(desk.store, secret) is not None
    desk.clock.advance(hours=last)
    assert find_session(desk.store, secret) is None


def test_a_stretch_of_work_goes_on_over_short_pauses_and_ends_with_a_long_one(desk):
    secret = desk.store.write(open_session, "p", _joined(desk)).secret
    stretches = []
    for minutes in (9, 9, 0.5, 11, 5):
        desk.clock.advance(minutes=minutes)
        found = find_session(desk.store, secret)
        assert found is not None
        stretches.append(found.stretch_minutes)
    assert stretches == [9, 18, 18.5, 0, 5]


@pytest.mark.one_in(2)
def test_a_name_that_passes_for_somebody_elses_is_refused_and_costs_no_use(desk):
    _joined(desk, "Ada Pox")
    secret = desk.store.write(make_invite, "p", uses=3, actor="o1")
    # In letters of Cyrillic, Greek, Armenian and phonetics.
    for like in ("\u0410da Pox", "Ada P\u03bfx", "Ada P\u0585x", "\u0251da Pox"):
        with pytest.raises(FieldError, match="name: expected a name that looks like nobody else's"):
            join_project(desk.store, secret, like)
    with pytest.raises(FieldError, match="name: expected a name that nobody in this project signs in with"):
        join_project(desk.store, secret, "\uff21da\u00a0pox", password=WORD)
    for hidden in "\u200b\u202e\u3164\u2066\ufeff\u00ad\u034f\u2800\ufe0f\U000e0041\u2028\n\u200d":
        with pytest.raises(FieldError, match=f"U\\+{ord(hidden):04X}, which is not seen"):
            join_project(desk.store, secret, f"Ada{hidden} Pox")
    assert join_project(desk.store, secret, "ada pox the second").pseudonym == "a2"
    # As Persian is written, with a joiner inside a word, and Cyrillic that looks like nobody's name.
    for name in ("\u0639\u0644\u06cc\u200c\u0631\u0636\u0627", "\u041e\u043b\u044c\u0433\u0430"):
        assert join_project(desk.store, secret, name).person == name


@pytest.mark.slow
@pytest.mark.cases(quick=("sqlite",))
def test_ten_failures_of_a_name_stop_it_for_a_while_whether_or_not_somebody_has_it(where, desk):
    _joined(desk)
    words = dict[str, list[str]]()
    for name in ("Ada", "Nobody At All"):
        for _ in range(10):
            with pytest.raises(NotYoursError) as wrong:
                sign_in(desk.store, "p", name, "wrong")
            words.setdefault(name, []).append(str(wrong.value))
        with pytest.raises(TooOftenError) as stopped:
            sign_in(desk.store, "p", name, WORD)
        words[name].append(str(stopped.value))
    assert words["Ada"] == words["Nobody At All"]
    # Of another process, as after a restart: the log is what counts.
    other = open_store(where, clock=desk.clock)
    with pytest.raises(TooOftenError, match="come back after 12:15 UTC"):
        sign_in(other, "p", "ada", WORD)
    other.close()
    desk.clock.advance(minutes=15)
    assert sign_in(desk.store, "p", "Ada", WORD)
    assert "Nobody" not in "".join(f"{event}" for event in desk.store.events())


@pytest.mark.slow
@pytest.mark.cases(quick=("sqlite",))
def test_signing_in_ends_the_counting_of_the_persons_failures(desk):
    _joined(desk)
    for _ in range(2):
        desk.clock.advance(seconds=1)
        for _ in range(9):
            with pytest.raises(NotYoursError):
                sign_in(desk.store, "p", "Ada", "wrong")
        desk.clock.advance(seconds=1)
        assert sign_in(desk.store, "p", "Ada", WORD)


@pytest.mark.one_in(2)
def test_a_hundred_failures_of_a_project_stop_all_sign_ins_but_no_session(desk):
    secret = desk.store.write(open_session, "p", _joined(desk)).secret
    for _ in range(100):
        desk.store.write(record_refusal, "p", "nobody", "sign-in")
    with pytest.raises(TooOftenError):
        sign_in(desk.store, "p", "Ada", WORD)
    assert find_session(desk.store, secret) is not None


@pytest.mark.slow
def test_a_project_that_is_not_there_is_refused_in_the_same_words_and_counted_too(desk):
    _joined(desk)
    for project, name in (("q", "Ada"), ("p", "Bob"), ("\0", "\ud800"), ("p", "Ada")):
        with pytest.raises(NotYoursError, match="the name or the password is wrong"):
            sign_in(desk.store, project, name, "wrong")
    assert [event.project for event in desk.store.events() if event.kind == "refused"] == ["", "p", "", "p"]


@pytest.mark.slow
def test_changing_a_password_wants_the_old_one_and_counts_its_failures(desk):
    ada = _joined(desk)
    for _ in range(10):
        with pytest.raises(NotYoursError, match="wrong"):
            change_password(desk.store, "p", ada, "guess", "another horse in the rain")
    with pytest.raises(TooOftenError):
        change_password(desk.store, "p", ada, WORD, "another horse in the rain")


@pytest.mark.one_in(2)
def test_a_reviewer_decides_about_annotators_only(desk):
    reviewer, owner = (
        join_project(desk.store, desk.store.write(make_invite, "p", role=role, actor="o1"), role).pseudonym
        for role in ("reviewer", "owner")
    )
    for other in (reviewer, owner):
        with pytest.raises(NotYoursError, match="only an owner decides about reviewers and owners"):
            desk.store.write(set_standing, "p", other, "suspended", reason="mine alone", actor=reviewer)
    desk.store.write(set_standing, "p", _joined(desk), "suspended", reason="at random", actor=reviewer)
    desk.store.write(set_standing, "p", reviewer, "suspended", reason="left", actor=owner)
