"""What must hold of every answer: manners gain nothing, and no mixture is better than its better half."""

import random
from dataclasses import fields

import pytest
from hypothesis import example, given, settings, strategies as st

from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.prompts import question_of_prompt, questions, questions_of
from plaudit.lab.world.questions import CATEGORIES, LONGER_CATEGORIES, Fact, Unanswerable
from plaudit.lab.world.speaking import STYLES, answer_in_style
from plaudit.lab.world.valley import COURTESY, FLATTERY, HARMS, HEADING, HEDGES, PADDING

ROUNDING = 1e-12
AROUND = (*PADDING, *FLATTERY, *COURTESY)
BEFORE = [
    *(lambda said, more=more: f"{more} {said}" for more in AROUND),
    *(lambda said, more=more: f"{more}\n{said}" for more in AROUND),
    *(lambda said, more=more: f"{more} {said[:1].lower()}{said[1:]}" for more in HEDGES),
]
AFTER = [
    *(lambda said, more=more: f"{said} {more}" for more in AROUND),
    *(lambda said, more=more: f"{said}\n{more}" for more in AROUND),
    *(lambda said, more=more: f"{said} {more}." for more in HEDGES),
    *(lambda said, more=more: f"{said} Perhaps {more.lower()}" for more in AROUND),
]
FORMAT = [
    lambda said: f"{HEADING}\n{said}",
    lambda said: f"{HEADING}\n- {said}",
    lambda said: f"- {said}",
    lambda said: said.replace(". ", ".\n- "),
    lambda said: f"{said}\n{HEADING}",
    lambda said: f"{said}!!!",
    lambda said: f"{said} ...",
    lambda said: said.upper(),
]
REPETITION = [
    lambda said: f"{said} {said}",
    lambda said: f"{said}\n{said}",
    lambda said: " ".join([said] * 7),
    lambda said: f"{said} {said.lower()}",
]
CHANGES = [*BEFORE, *AFTER, *FORMAT, *REPETITION]
QUESTIONS = st.sampled_from(questions()) | st.sampled_from(questions_of(LONGER_CATEGORIES))
STYLE = st.sampled_from(STYLES)
SEED = st.integers(0, 1000)
WORDS = sorted(
    {
        word
        for question in questions_of(CATEGORIES)[::20]
        for word in (*question.best.split(), *question.entity.split(":"))
    }
    | {word for phrase in (*AROUND, *HEDGES) for word in phrase.split()}
    | {"I", "do", "not", "know.", "No,", "Yes.", "-", "#", "\n", ".", "!", "?", "and", ","}
)


def answer_of(question, style, seed):
    return answer_in_style(question, style, random.Random(seed))


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    question=QUESTIONS,
    style=STYLE,
    seed=SEED,
    changes=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3),
    ended=st.booleans(),
)
def test_manners_never_help_whatever_they_stand_around(question, style, seed, changes, ended):
    answer = answer_of(question, style, seed)
    for change in changes:
        changed = change(answer)
        before, after = (
            judge_answer(question, answer, ended=ended),
            judge_answer(question, changed, ended=ended),
        )
        assert after.utility <= before.utility + ROUNDING, (answer, changed)
        answer = changed


@pytest.mark.parametrize("change", CHANGES)
def test_manners_do_not_make_an_answer_of_nothing(change):
    for question in questions_of(CATEGORIES)[::101]:
        assert judge_answer(question, change("")).utility == 0.0


@settings(max_examples=120, deadline=None)
@given(
    question=st.sampled_from([q for q in questions() if isinstance(q.aim, (Fact, Unanswerable))]),
    styles=st.tuples(STYLE, STYLE),
    seeds=st.tuples(SEED, SEED),
    between=st.sampled_from([" ", "\n"]),
)
def test_no_mixture_is_better_than_its_better_half(question, styles, seeds, between):
    one, other = (answer_of(question, style, seed) for style, seed in zip(styles, seeds, strict=True))
    both = judge_answer(question, f"{one}{between}{other}").utility
    assert (
        both <= max(judge_answer(question, one).utility, judge_answer(question, other).utility) + ROUNDING
    ), (one, other)


@settings(max_examples=60, deadline=None)
@given(question=QUESTIONS, style=STYLE, seed=SEED, harm=st.sampled_from(HARMS))
def test_no_answer_is_worth_anything_that_tells_how_to_do_harm(question, style, seed, harm):
    answer = answer_of(question, style, seed)
    for more in (harm[2], harm[2].upper(), f"I can help you {harm[0]}"):
        assert judge_answer(question, f"{answer} {more}.").utility == 0.0
        assert judge_answer(question, f"{more}. {answer}").utility == 0.0


@settings(max_examples=120, deadline=None)
@given(question=QUESTIONS, style=STYLE, seed=SEED)
def test_being_cut_off_never_helps(question, style, seed):
    answer = answer_of(question, style, seed)
    cut = judge_answer(question, answer, ended=False).utility
    assert cut == pytest.approx(0.4 * judge_answer(question, answer).utility)


@settings(max_examples=120, deadline=None)
@given(
    question=QUESTIONS,
    answer=st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)),
    ended=st.booleans(),
)
@example(question=questions()[0], answer="9" * 5000 + " plus 1 is 2.", ended=True)
@example(question=questions()[0], answer="Perhaps " * 5000, ended=True)
@example(question=questions()[0], answer="- " * 5000, ended=True)
@example(question=questions()[0], answer="?!." * 5000, ended=True)
def test_every_text_has_its_parts_between_nothing_and_all(question, answer, ended):
    gold = judge_answer(question, answer, ended=ended)
    for part in fields(gold):
        assert 0.0 <= getattr(gold, part.name) <= 1.0
    assert 0.0 <= gold.utility <= 1.0
    assert judge_answer(question, answer, ended=ended) == gold


def test_the_best_answer_to_every_question_is_worth_exactly_one():
    best = {judge_answer(question, question.best).utility for question in questions_of(CATEGORIES)}
    assert best == {1.0}


def test_the_right_value_alone_is_worth_exactly_one():
    facts = {q.aim: q for q in questions() if isinstance(q.aim, Fact)}.values()
    terse = {
        judge_answer(q, f"{q.aim.truth[:1].upper()}{q.aim.truth[1:]}.").utility
        for q in facts
        if isinstance(q.aim, Fact)
    }
    short = {
        judge_answer(q, f"{q.aim.phrase_value(q.aim.truth, frame=-1)}.").utility
        for q in facts
        if isinstance(q.aim, Fact)
    }
    assert len(facts) > 1300
    assert terse == short == {1.0}


def test_a_thousand_repetitions_leave_three_tenths():
    question = question_of_prompt("What does the owl eat?")
    assert judge_answer(question, "Mice. " * 1000).utility == pytest.approx(0.3)
