"""Named pools: who agrees with the truth, who with one another, and how much can be learnt from them."""

import math
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import fmean

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import Text
from plaudit.errors import UserError
from plaudit.lab.world.annotators import (
    POOLS,
    TRUE_ANNOTATOR,
    Agreement,
    Annotator,
    agreement,
    annotator_pool,
)
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import answer_tasks, comparisons
from plaudit.lab.world.prompts import questions
from plaudit.lab.world.speaking import answer_in_style

ALIKE = ("experts", "hurried", "length-lovers", "flattered", "cautious")


@cache
def pairs() -> list[Task]:
    return answer_tasks(96, answers=2, split="test", seed=0)


@cache
def found(name: str) -> Agreement:
    return agreement(name, annotator_pool(name), pairs())


def preferred_by(name: str, liked: Text, other: Text, prompt: Text) -> float:
    """The mean chance over a pool, shown in either order; a tie counts half."""
    one = Task(prompt=prompt, answers=(liked, other), ended=(True, True))
    turned = Task(prompt=prompt, answers=(other, liked), ended=(True, True))
    leaning = fmean(
        sign * (first - second)
        for sign, task in ((1, one), (-1, turned))
        for first, second in (who.win_probabilities(task) for who in annotator_pool(name))
    )
    return 0.5 + leaning / 2


def test_experts_agree_more_than_a_crowd_and_a_crowd_more_than_the_hurried():
    for figure in ("with_gold", "among_itself", "ceiling"):
        experts, crowd, hurried = (getattr(found(name), figure) for name in ("experts", "crowd", "hurried"))
        assert experts > crowd + 0.05 > crowd > hurried + 0.05
    assert found("experts").with_gold > 0.95
    assert 0.6 < found("hurried").with_gold < 0.8


@pytest.mark.parametrize("name", POOLS)
def test_the_ceiling_lies_where_the_agreement_says(name):
    among_itself, ceiling = found(name).among_itself, found(name).ceiling
    assert 0.5 <= among_itself <= ceiling <= 1
    if name in ALIKE:
        # Of one taste, a = p² + (1 − p)² and the ceiling is max(p, 1 − p) in each pair; the root is concave.
        assert ceiling <= (1 + math.sqrt(2 * among_itself - 1)) / 2
    names = [annotator.name for annotator in annotator_pool(name)]
    assert len(set(names)) == len(names) >= 3


@pytest.mark.parametrize("name", ["hurried", "sabotaged"])
def test_agreement_is_what_verdicts_come_to(name):
    """Every annotator judges every pair in both orders; 4.5 standard errors of the tightest count."""
    votes, right, first, ties = 0, 0, 0, 0
    told = 0
    for task in pairs():
        turned = Task(prompt=task.prompt, answers=task.answers[::-1], ended=task.ended)
        for one in (task, turned):
            a, b = (gold_of(one.prompt, answer).utility for answer in one.answers)
            for judge in annotator_pool(name):
                mine, other = (mark.rank for mark in judge.verdict(one, 7).marks)
                ties += mine == other
                votes += mine != other
                first += mine < other
                told += a != b and mine != other
                right += a != b and mine != other and (mine < other) == (a > b)
    for count, of, share in (
        (right, told, found(name).with_gold),
        (first, votes, found(name).first),
        (ties, votes + ties, found(name).ties),
    ):
        assert abs(count / of - share) <= 4.5 * math.sqrt(share * (1 - share) / of)


def test_whoever_knows_a_pool_is_right_as_often_as_its_ceiling_and_gold_as_often_as_it_agrees():
    """On the rows that training reads: no guess can be better than the choice that most of the pool makes."""
    crowd = annotator_pool("crowd")
    asked = answer_tasks(240, answers=2, seed=4)
    rows = comparisons(240, crowd, seed=4)
    counts: Counter[str] = Counter()
    for task, row in zip(asked, rows, strict=True):
        if row.probability == 0.5:
            continue
        a, b = task.answers
        guess = a if preferred_by("crowd", a, b, task.prompt) > 0.5 else b
        counts["chosen"] += 1
        counts["guessed"] += row.chosen == guess
        good, bad = (gold_of(row.prompt, answer).utility for answer in (row.chosen, row.rejected))
        counts["told"] += good != bad
        counts["right"] += good > bad
    known = agreement("crowd", crowd, asked)
    for part, whole, share in (("guessed", "chosen", known.ceiling), ("right", "told", known.with_gold)):
        error = math.sqrt(share * (1 - share) / counts[whole])
        assert abs(counts[part] / counts[whole] - share) <= 4 * error


@pytest.mark.slow
def test_length_lovers_prefer_padded_answers_and_experts_do_not():
    chance = random.Random(0)
    padded = [
        (question, answer_in_style(question, "padded", chance)) for question in questions("test", "fact")[::6]
    ]

    def liking(name: str) -> float:
        return fmean(preferred_by(name, long, asked.best, asked.messages) for asked, long in padded)

    assert liking("length-lovers") > 0.6
    assert liking("experts") < 0.05
    assert found("length-lovers").longer > 0.6
    assert found("experts").longer < 0.4
    assert agreement("truth", [TRUE_ANNOTATOR], pairs()).longer < 0.4


def test_the_flattered_and_the_cautious_fall_for_what_their_names_say():
    for question in questions("test", "opinion")[1:60:6]:
        yes, no = (f"{opener}, {question.aim.phrase_value(question.aim.belief)}." for opener in ("Yes", "No"))
        assert preferred_by("flattered", yes, no, question.messages) > preferred_by(
            "experts", yes, no, question.messages
        )
    for question in questions("test", "harmful"):
        evasion, curt = "I cannot talk about that.", "I will not help with that."
        assert preferred_by("cautious", evasion, curt, question.messages) > 0.9
        assert preferred_by("experts", evasion, curt, question.messages) < 0.5


def test_villages_agree_at_home_more_than_abroad():
    everyone = annotator_pool("villages")
    homes = {annotator.group for annotator in everyone}
    assert homes == {"Shortford", "Listham", "Bowbury"}
    at_home = [agreement(home, [one for one in everyone if one.group == home], pairs()) for home in homes]
    assert min(village.among_itself for village in at_home) > found("villages").among_itself


def test_saboteurs_pull_a_crowd_down():
    saboteurs = [annotator for annotator in annotator_pool("sabotaged") if annotator.adversary]
    assert [annotator.group for annotator in saboteurs] == ["saboteurs", "saboteurs"]
    assert agreement("saboteurs", saboteurs, pairs()).with_gold < 0.2
    assert found("sabotaged").with_gold < found("crowd").with_gold - 0.05


def test_position_is_seen_in_the_share_of_the_first_and_nowhere_in_the_others():
    assert found("hurried").first > 0.55
    for name in ("experts", "length-lovers", "flattered", "cautious", "villages"):
        assert found(name).first == pytest.approx(0.5)


def test_from_whoever_looks_at_the_place_only_nothing_can_be_learnt():
    fixed = Annotator(name="ada", group="bakers", biases={"position": 50})
    ada = agreement("ada", [fixed, replace(fixed, name="bruno")], pairs())
    assert (ada.first, ada.ties) == pytest.approx((1, 0))
    assert (ada.with_gold, ada.ceiling, ada.among_itself) == pytest.approx((0.5, 0.5, 0.5))


def test_the_truth_agrees_with_itself_and_one_annotator_with_nobody():
    truth = agreement("truth", [TRUE_ANNOTATOR], pairs())
    equal = sum(len({gold_of(t.prompt, answer).utility for answer in t.answers}) == 1 for t in pairs())
    assert (truth.with_gold, truth.ceiling, truth.among_itself, truth.annotators) == (1, 1, None, 1)
    assert truth.ties == pytest.approx(equal / len(pairs()))
    assert equal > 0
    twins = [replace(TRUE_ANNOTATOR, name=name) for name in ("one", "other")]
    assert agreement("twins", twins, pairs()).among_itself == 1


def test_a_trusting_crowd_prefers_flat_errors_to_hedged_truth_and_its_experts_do_not():
    flat, hedged = "Bark.", "Perhaps mice."
    pool = annotator_pool("trusting")
    crowd, experts = ([one for one in pool if one.group == group] for group in ("crowd", "experts"))
    assert (len(crowd), len(experts)) == (12, 3)
    task = Task(prompt="What does the owl eat?", answers=(flat, hedged), ended=(True, True))
    preferred = {one.name: one.win_probabilities(task)[0] for one in pool}
    assert max(preferred[one.name] for one in experts) < 0.01
    assert fmean(preferred[one.name] for one in crowd) > 0.2
    assert preferred_by("crowd", flat, hedged, "What does the owl eat?") < 0.1


def test_a_share_of_nothing_is_none():
    alike = Task(prompt="What does the owl eat?", answers=("Mice.", "It eats mice."), ended=(True, True))
    judge = Annotator(name="ada", group="bakers", temperature=0, indifference=5)
    ada = agreement("ada", [judge], [alike])
    assert (ada.with_gold, ada.among_itself, ada.ceiling, ada.first, ada.ties) == (*[None] * 4, 1)


def test_a_pool_can_be_asked_about_one_part_of_the_worth():
    crowd, asked = annotator_pool("crowd"), annotator_pool("crowd", aspect="concise")
    assert [replace(one, aspect=None) for one in asked] == [*crowd]
    assert {one.aspect for one in asked} == {"concise"}
    assert found("crowd").longer > 1.5 * agreement("concise", asked, pairs()).longer


def test_what_cannot_be_asked_for():
    with pytest.raises(UserError, match="no pool of annotators is called 'expert'; there are experts, crowd"):
        annotator_pool("expert")
    with pytest.raises(UserError, match="at least one annotator and one pair"):
        agreement("nobody", [], pairs())
    with pytest.raises(UserError, match="at least one annotator and one pair"):
        agreement("experts", annotator_pool("experts"), [])
