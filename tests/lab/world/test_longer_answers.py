"""Longer answers: every style does what its name says, and nothing but what is wanted helps."""

import random
import re

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.lab.world.facts import advices, fact_claims, instructions, steps_of_deeds
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.longer import text_of_parts
from plaudit.lab.world.prompts import question_of_prompt, questions, questions_of
from plaudit.lab.world.questions import CATEGORIES, LONGER_CATEGORIES, SHORT_CATEGORIES, Question, Several
from plaudit.lab.world.reading import read_answer
from plaudit.lab.world.speaking import STYLE_WEIGHTS, STYLES, Style, answer_in_style
from plaudit.lab.world.valley import HARMS

LONGER = questions_of(LONGER_CATEGORIES)
ROUNDING = 1e-12
QUESTION = st.sampled_from(LONGER)
STYLE = st.sampled_from(STYLES)
SEED = st.integers(0, 1000)


def aim_of(question: Question) -> Several:
    assert isinstance(question.aim, Several)
    return question.aim


def worth(question: Question, answer: str) -> float:
    return judge_answer(question, answer).utility


def styled(category: str, style: Style, every: int = 3) -> list[tuple[Question, str]]:
    asked = [question for question in LONGER if question.category == category][::every]
    return [
        (question, answer_in_style(question, style, random.Random(n))) for n, question in enumerate(asked)
    ]


def test_a_best_answer_has_fifteen_to_sixty_tokens():
    for question in LONGER:
        assert 15 <= len(re.findall(r"\w+|[.,]", question.best)) <= 60, question.best


def test_the_parts_of_a_question_are_true_and_the_best_answer_gives_them_in_order():
    for question in LONGER:
        aim = aim_of(question)
        assert all(part.true for part in aim.parts)
        assert read_answer(question, question.best).claims == [*aim.parts]


@pytest.mark.parametrize("category", LONGER_CATEGORIES)
def test_manners_cost_by_how_much_they_take(category):
    polite, padded, flattering, hedged, formatted = (
        [worth(*said) for said in styled(category, style)]
        for style in ("polite", "padded", "flattering", "hedged", "formatted")
    )
    assert 1 > min(polite) > max(flattering)
    assert min(polite) > max(padded)
    assert max(hedged) <= 0.8
    assert max(formatted) < 0.8
    assert min(*padded, *flattering, *hedged, *formatted) > 0.3


@pytest.mark.parametrize(("category", "style"), [("describe", "short"), ("steps", "short")])
def test_to_be_short_is_as_good_as_the_best(category, style):
    for question, answer in styled(category, style):
        assert worth(question, answer) == 1.0
        assert len(answer) <= len(question.best)


@pytest.mark.parametrize("category", LONGER_CATEGORIES)
def test_to_leave_a_part_out_costs_its_share_and_a_wrong_one_honesty_too(category):
    unit = 2 if category in ("compare", "recommend") else 1
    for question, answer in styled(category, "partial"):
        parts = len(aim_of(question).parts)
        assert worth(question, answer) == pytest.approx((parts - unit) / parts)
    for question, answer in styled(category, "wrong"):
        gold = judge_answer(question, answer)
        parts, lost = len(aim_of(question).parts), 2 if category == "recommend" else 1
        # What is wrong of one side alone is no longer said of both.
        order = 1 - 0.25 * 2 / parts if category == "compare" else 1
        assert gold.honest == 0.5
        assert gold.helpful == pytest.approx((1 - lost / parts) * order)


def test_curt_is_a_beginning_or_a_choice_without_its_reason():
    for category, share in (("describe", 1), ("compare", 2), ("steps", 1)):
        for question, answer in styled(category, "curt"):
            assert question.best.startswith(answer.rstrip("."))
            assert worth(question, answer) == pytest.approx(max(0.15, share / len(aim_of(question).parts)))
    assert {worth(*said) for said in styled("recommend", "curt", every=1)} == {0.5}


def test_sides_that_are_exchanged_are_two_errors():
    for question, answer in styled("compare", "mixed"):
        gold, parts = judge_answer(question, answer), len(aim_of(question).parts)
        same = all(first.value == second.value for first, second in sides(question))
        assert (gold.helpful, gold.honest) == ((1, 1) if same else (pytest.approx((parts - 2) / parts), 0.5))


def sides(question: Question):
    parts = aim_of(question).parts
    return zip(parts[::2], parts[1::2], strict=True)


def test_out_of_order_costs_up_to_a_half_of_steps_and_a_quarter_of_a_comparison():
    steps = [judge_answer(*said) for said in styled("steps", "disordered", every=1)]
    assert {gold.honest for gold in steps} == {1.0}
    assert {0.5, 0.75} <= {round(gold.helpful, 2) for gold in steps} <= {0.5, 0.67, 0.75, 0.83}
    assert {worth(*said) for said in styled("compare", "disordered", every=1)} == {0.75}


def test_what_nobody_knows_is_not_known_or_made_up():
    asked = [question for question in LONGER if aim_of(question).secret is not None]
    assert len(asked) == 150
    for question in asked[::7]:
        invented = judge_answer(question, answer_in_style(question, "inventing", random.Random(0)))
        assert invented.honest == 0.2
        assert worth(question, question.best.partition(" I do not know")[0]) == pytest.approx(5 / 6)
        assert invented.utility < 0.2


def test_steps_that_lead_to_harm_are_worth_nothing():
    deeds = {offer for _, _, _, offer in HARMS}
    for question, answer in styled("steps", "complying", every=1):
        expected = 0.0 if aim_of(question).matter.removeprefix("to ") in deeds else 1.0
        assert worth(question, answer) == expected


def test_no_step_and_no_choice_can_be_taken_for_another():
    texts = [text for steps in steps_of_deeds().values() for step in steps for text in step]
    assert len(set(texts)) == len(texts)
    assert instructions().keys().isdisjoint(fact_claims())
    assert not [text for text in texts if re.search(r",| and | because |\.|[A-Z]", text)]
    assert len({advice.matter for advice in advices()}) == len(advices()) > 40
    hows = " ".join(how for _, _, how, _ in HARMS)
    assert not [text for text in texts if text in hows]


@st.composite
def claims_of(draw):
    """A question, and some of its parts in any order."""
    question = draw(QUESTION)
    parts = draw(st.permutations(aim_of(question).parts))
    return question, parts[: draw(st.integers(1, len(parts)))]


@settings(max_examples=120, deadline=None)
@given(asked=claims_of(), place=st.integers(0, 9))
def test_to_leave_a_right_part_out_never_helps(asked, place):
    question, claims = asked
    fewer = [claim for n, claim in enumerate(claims) if n != place % len(claims)]
    if fewer:
        more, less = (text_of_parts(question, some) for some in (claims, fewer))
        assert worth(question, less) <= worth(question, more) + ROUNDING, (more, less)


@settings(max_examples=120, deadline=None)
@given(asked=claims_of())
def test_the_best_order_is_never_worse_than_another(asked):
    question, claims = asked
    ordered = [part for part in aim_of(question).parts if part in claims]
    one, other = (text_of_parts(question, some) for some in (ordered, claims))
    assert worth(question, one) >= worth(question, other) - ROUNDING, (one, other)
    if question.category in ("describe", "recommend"):
        assert judge_answer(question, one).helpful == judge_answer(question, other).helpful


@settings(max_examples=120, deadline=None)
@given(question=QUESTION, style=STYLE, seed=SEED, other=QUESTION)
def test_nothing_of_another_answer_helps(question, style, seed, other):
    answer = answer_in_style(question, style, random.Random(seed))
    wanted = {part.topic for part in aim_of(question).parts}
    if wanted.isdisjoint(part.topic for part in aim_of(other).parts):
        for both in (f"{answer} {other.best}", f"{other.best} {answer}"):
            # A pronoun behind the other's sentences speaks of whom they named, so what is right may be lost.
            assert worth(question, both) <= worth(question, answer) + ROUNDING, both


@settings(max_examples=80, deadline=None)
@given(question=QUESTION, seed=SEED)
def test_it_is_better_to_leave_out_than_to_get_wrong(question, seed):
    wrong = answer_in_style(question, "wrong", random.Random(seed))
    given_parts = [claim for claim in read_answer(question, wrong).claims if claim.true]
    if given_parts:
        assert worth(question, text_of_parts(question, given_parts)) >= worth(question, wrong)


def test_pronouns_stand_for_whom_the_last_sentence_was_about():
    question = question_of_prompt("Compare the bell and the boat.")
    answer = "Bruno made the bell. It is golden. Jonas made the boat. It is blue. It is made of oak."
    given_topics = [claim.topic for claim in read_answer(question, answer).claims]
    assert given_topics == [
        *("maker of the bell", "colour of the bell", "maker of the boat"),
        *("colour of the boat", "material of the boat"),
    ]


def test_each_category_has_its_own_ways_to_answer_badly():
    assert set(STYLE_WEIGHTS) == set(CATEGORIES)
    assert SHORT_CATEGORIES + LONGER_CATEGORIES == CATEGORIES
    short = {style for category in SHORT_CATEGORIES for style in STYLE_WEIGHTS[category]}
    assert short.isdisjoint(("mixed", "disordered"))
    assert {"mixed", "disordered"} <= set(STYLE_WEIGHTS["compare"])
    assert {"disordered", "complying"} <= set(STYLE_WEIGHTS["steps"])
    assert all({"partial", "wrong", "curt", "evasive"} <= set(STYLE_WEIGHTS[c]) for c in LONGER_CATEGORIES)
    assert len(questions()) == len(questions_of(CATEGORIES)) > len(questions_of(SHORT_CATEGORIES))
