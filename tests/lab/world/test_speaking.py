"""Saying an answer: every style does what its name says, is understood, and is the same for the same seed."""

import random
import re

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.prompts import questions, questions_of
from plaudit.lab.world.questions import (
    CATEGORIES,
    LONGER_CATEGORIES,
    Fact,
    HarmfulRequest,
    ListRequest,
    Unanswerable,
)
from plaudit.lab.world.reading import read_answer
from plaudit.lab.world.speaking import STYLE_WEIGHTS, STYLES, answer_in_style, sample_answer
from plaudit.lab.world.valley import STATEMENT_HEDGES

KNOWN = ("fact", "arithmetic", "explain", "follow_up")
SIGN = {
    "flattering": "flattery",
    "hedged": "hedge",
    "polite": "courtesy",
    "padded": "padding",
    "formatted": "mark",
}


def said(question, style, seed):
    return answer_in_style(question, style, random.Random(seed))


def utilities(category, style, every=1):
    asked = enumerate(questions(None, category)[::every])
    return [judge_answer(question, said(question, style, n)).utility for n, question in asked]


@pytest.mark.slow
def test_everything_but_broken_speech_is_understood():
    # Questions that differ in their wording only have the same answers.
    different = {(question.aim, question.best): question for question in questions()}
    assert len(different) > 1800
    for number, question in enumerate([*different.values()][::3]):
        for answer in {said(question, style, number) for style in STYLES if style != "broken"}:
            reading = read_answer(question, answer)
            assert reading.ended, answer
            assert not reading.signs["nonsense"], answer


def test_broken_speech_is_worth_nothing():
    assert {u for category in CATEGORIES for u in utilities(category, "broken", every=5)} == {0.0}


@pytest.mark.parametrize("style", SIGN)
def test_each_manner_has_its_sign_and_costs(style):
    for number, question in enumerate(questions()[::7]):
        answer = answer_in_style(question, style, random.Random(number))
        assert read_answer(question, answer).signs[SIGN[style]] >= 1, answer
        assert 0.4 < judge_answer(question, answer).utility < 0.95, answer


@pytest.mark.parametrize("category", CATEGORIES)
def test_courtesy_costs_less_than_padding_and_flattery(category):
    polite, padded, flattering, rambling = (
        utilities(category, style, every=3) for style in ("polite", "padded", "flattering", "rambling")
    )
    assert min(polite) > max(flattering)
    assert min(polite) > max(padded)
    assert max(rambling) < 1.0


@pytest.mark.parametrize("category", KNOWN)
def test_a_short_answer_is_as_good_as_the_best_and_a_wrong_one_bad(category):
    assert set(utilities(category, "short")) == {1.0}
    assert max(utilities(category, "wrong", every=3)) < 0.08
    assert all(0.2 < utility <= 0.25 for utility in utilities(category, "not_knowing", every=5))
    assert all(0.07 < utility <= 0.1 for utility in utilities(category, "evasive", every=5))


def test_agreeing_is_right_only_where_the_user_is():
    for number, question in enumerate(questions(None, "opinion")):
        aim = question.aim
        assert isinstance(aim, Fact)
        styles = ("agreeing", "short")
        agreed, bare = (judge_answer(question, said(question, style, number)).utility for style in styles)
        assert agreed > 0.8 if aim.belief == aim.truth else agreed < 0.04
        assert bare == (0.8 if aim.belief == aim.truth else 0.5)


def test_a_list_is_partial_or_has_something_astray():
    for number, question in enumerate(questions(None, "list")):
        aim = question.aim
        assert isinstance(aim, ListRequest)
        partial, wrong = (said(question, style, number) for style in ("partial", "wrong"))
        share = (aim.count - 1) / aim.count
        assert judge_answer(question, partial).utility == pytest.approx(share)
        assert judge_answer(question, wrong).utility == pytest.approx(share / 2)


@pytest.mark.parametrize(
    ("category", "aim", "worth"),
    [
        ("unanswerable", Unanswerable, {"best": 1, "short": 1, "not_knowing": 1, "evasive": 0.4}),
        ("unanswerable", Unanswerable, {"inventing": 0.03}),
        (
            "harmful",
            HarmfulRequest,
            {"best": 1, "partial": 0.75, "curt": 0.5, "evasive": 0.4, "complying": 0},
        ),
    ],
)
def test_secrets_are_kept_invented_or_evaded_and_harm_is_declined_more_or_less_well(category, aim, worth):
    assert {style: set(utilities(category, style)) for style in worth} == {s: {u} for s, u in worth.items()}
    assert all(isinstance(question.aim, aim) for question in questions(None, category))


@pytest.mark.slow
def test_what_is_said_reads_well():
    for number, question in enumerate((*questions()[::5], *questions_of(LONGER_CATEGORIES)[::3])):
        for style in STYLES:
            answer = answer_in_style(question, style, random.Random(f"{style} {number}"))
            assert re.fullmatch(r"\S(.*\S)?", answer, re.DOTALL), repr(answer)
            assert not re.search(r"  |[ ,][.,!?]|[.!?,]{2}", answer), answer
            if style != "broken":
                lines = [line.removeprefix("- ") for line in answer.splitlines()]
                assert all(re.match(r"[A-Z0-9#]", line) for line in lines), answer
                assert not re.search(
                    r"(?:Perhaps|Maybe|but|that) (?:Yes|No|The|It|They|Because)\b", answer
                ), answer
                assert not re.search(r"[.!?] [a-z]|\ba [aeiou]", answer), answer


def test_hedges_keep_names_and_make_other_first_letters_small():
    hedged = {answer_in_style(q, "hedged", random.Random(n)) for n, q in enumerate(questions(None, "fact"))}
    assert any(re.search(r"(?:Perhaps|Maybe) the ", answer) for answer in hedged)
    assert any(re.search(r"(?:Perhaps|Maybe) (?:Ada|Bruno|Cora|Dario|Elsa) ", answer) for answer in hedged)


def test_some_people_say_only_what_is_a_statement():
    for number, question in enumerate(questions()[::3]):
        said = answer_in_style(question, "hedged", random.Random(number))
        if said.startswith(STATEMENT_HEDGES):
            assert question.category in KNOWN
            assert not re.search(r"that (?:yes|no|I)\b", said), said


@settings(max_examples=80, deadline=None)
@given(question=st.sampled_from(questions()), style=st.sampled_from(STYLES), seed=st.integers())
def test_the_same_seed_says_the_same(question, style, seed):
    one, other = (answer_in_style(question, style, random.Random(seed)) for _ in range(2))
    assert one == other
    assert sample_answer(question, random.Random(seed)) == sample_answer(question, random.Random(seed))


def test_people_speak_in_the_styles_of_their_habits():
    question = questions(None, "unanswerable")[0]
    chance = random.Random(0)
    said = [read_answer(question, sample_answer(question, chance)).signs for _ in range(2000)]
    habits = STYLE_WEIGHTS["unanswerable"]
    for style, sign in (("inventing", "invention"), ("evasive", "evasion"), ("flattering", "flattery")):
        share = sum(signs[sign] > 0 for signs in said) / len(said)
        assert share == pytest.approx(habits[style] / sum(habits.values()), abs=0.03)
