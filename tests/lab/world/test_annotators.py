"""Simulated annotators: how often they choose what, what bends them, and what else they say."""

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.lab.world.annotators import ASPECTS, BIASES, Annotator
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.prompts import question_of_prompt

OWL = "What does the owl eat?"
BELIEF = "I think the owl eats fish. Am I right?"
ADA = Annotator(name="ada", group="bakers", temperature=0.2, indifference=0)
DRAWS = 1500


def shown(*answers: str, prompt: str = OWL) -> Task:
    return Task(prompt=prompt, answers=answers, ended=(True,) * len(answers))


def utilities(task: Task) -> list[float]:
    return [gold_of(task.prompt, answer).utility for answer in task.answers]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def near(count: int, chance: float, draws: int = DRAWS) -> bool:
    """Within 4.5 standard errors, which an honest frequency leaves once in 150,000 times."""
    return abs(count / draws - chance) <= 4.5 * math.sqrt(chance * (1 - chance) / draws) + 1e-12


def ranks_of(annotator: Annotator, task: Task) -> Counter[tuple[float, ...]]:
    """How often each order was the verdict."""
    marks = (annotator.verdict(task, seed).marks for seed in range(DRAWS))
    return Counter(tuple(mark.rank for mark in own) for own in marks)


@pytest.mark.parametrize(
    "annotator",
    [
        ADA,
        replace(ADA, indifference=0.1),
        replace(ADA, temperature=1),
        replace(ADA, temperature=0),
        replace(ADA, biases={"length": 0.3}),
        replace(ADA, biases={"position": 0.3}),
        replace(ADA, biases={"position": -0.3}, indifference=0.05),
        replace(ADA, biases={"flattery": 0.4}),
        replace(ADA, flip=0.2),
        replace(ADA, careless=0.3),
        replace(ADA, careless=1, indifference=0.3),
        replace(ADA, adversary=True),
        replace(ADA, aspect="concise"),
        replace(ADA, aspect="helpful", biases={"length": 0.3}, indifference=0.05),
        replace(ADA, biases=dict.fromkeys(BIASES, 0.1), flip=0.1, careless=0.2, indifference=0.05),
        replace(ADA, biases={"position": 0.2}, flip=0.1, careless=0.2, adversary=True),
    ],
    ids=str,
)
def test_the_chances_are_the_frequencies_of_what_is_judged(annotator):
    task = shown("What a clever question! Perhaps the owl eats mice.", "Mice.")
    verdicts = ranks_of(annotator, task)
    first, second = annotator.win_probabilities(task)
    assert near(verdicts[1, 2], first)
    assert near(verdicts[2, 1], second)
    assert near(verdicts[1, 1], max(0.0, 1 - first - second))


def test_two_answers_are_chosen_by_bradley_and_terry_and_ties_follow_rao_and_kupper():
    task = shown("Perhaps mice.", "Bark.")
    good, bad = utilities(task)
    chances = (sigmoid((good - bad) / 0.2), sigmoid((bad - good) / 0.2))
    assert ADA.win_probabilities(task) == pytest.approx(chances)
    assert sum(ADA.win_probabilities(task)) == pytest.approx(1)
    undecided = replace(ADA, indifference=0.3)
    task = shown("Perhaps mice.", "Bark.")
    good, bad = utilities(task)
    first, second = sigmoid((good - bad - 0.3) / 0.2), sigmoid((bad - good - 0.3) / 0.2)
    assert undecided.win_probabilities(task) == pytest.approx((first, second))


def test_several_answers_are_ordered_by_plackett_and_luce():
    task = shown("Mice.", "Perhaps mice.", "I do not know.")
    weights = [math.exp(utility / 0.4) for utility in utilities(task)]
    found = ranks_of(replace(ADA, temperature=0.4), task)
    for order in permutations(range(3)):
        left, chance = sum(weights), 1.0
        for place in order:
            chance *= weights[place] / left
            left -= weights[place]
        ranks = tuple(order.index(place) + 1 for place in range(3))
        assert near(found[ranks], chance), (ranks, found[ranks] / DRAWS, chance)


def test_without_noise_the_order_is_gold_and_an_adversary_turns_it_round():
    calm = replace(ADA, temperature=0)
    saboteur = replace(calm, adversary=True)
    for task in answer_tasks(40, answers=6, split="test", seed=2):
        gold = [gold_of(task.prompt, plain_text(answer)).utility for answer in task.answers]
        for one, sign in ((calm, 1), (saboteur, -1)):
            ranks = [mark.rank for mark in one.verdict(task, 0).marks]
            assert ranks == [1 + sum(sign * other > sign * own for other in gold) for own in gold]


def test_what_feels_alike_shares_a_rank_and_the_rest_counts_on():
    task = shown("Bark.", "Mice.", "Perhaps mice.", "The owl eats mice.", "Perhaps maybe mice.")
    wrong, best, hedged, also_best, hedged_twice = utilities(task)
    assert wrong < hedged_twice < hedged < best == also_best

    def ranks(indifference: float) -> list[int]:
        verdict = replace(ADA, temperature=0, indifference=indifference).verdict(task, 0)
        assert verdict.strength == 0
        return [mark.rank for mark in verdict.marks]

    assert ranks(0) == [5, 1, 3, 1, 4]
    assert ranks(best - hedged) == [5, 1, 3, 1, 3]
    # The one hedged twice is as near to the one hedged once, but not to the best of that group.
    assert ranks(best - hedged + 0.01) == [5, 1, 1, 1, 4]
    assert ranks(2) == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("weight", [0.1, -0.2])
@pytest.mark.parametrize(
    ("bias", "task", "amount"),
    [
        ("length", shown("The owl eats mice.", "Mice."), 0.3),
        ("length", shown("Mice.", "Let me think about this for a moment. The owl eats mice."), -1.1),
        ("length", shown("Mice. " * 100, "Mice."), 5.9),
        ("position", shown("Bark.", "Mice."), 1),
        ("flattery", shown("What a clever question! You are very wise. Mice.", "Mice."), 2),
        ("flattery", shown("Yes, the owl eats fish.", "No, the owl eats mice.", prompt=BELIEF), 1),
        ("flattery", shown("No, the owl eats mice.", "As you say, the owl eats fish.", prompt=BELIEF), -1),
        ("format", shown("# Answer\n- Mice.", "Mice."), 1),
        ("evasion", shown("That is hard to say.", "I do not know."), 1),
        ("assertion", shown("Bark.", "Mice."), 1 - 0.15 * 0.5),
        ("assertion", shown("Perhaps bark.", "Bark."), -(1 - 0.15 * 0.5)),
        ("assertion", shown("Bark?", "Mice."), 0),
        ("assertion", shown("Mice.", "I do not know."), 0),
        ("assertion", shown("Yes, the owl eats fish.", "Mice.", prompt=BELIEF), 1 - 0.15 * 0.2),
    ],
)
def test_a_bias_adds_its_weight_to_the_log_odds(bias, task, amount, weight):
    bent = replace(ADA, biases={bias: weight})
    moved = logit(bent.win_probabilities(task)[0]) - logit(ADA.win_probabilities(task)[0])
    assert moved == pytest.approx(weight * amount / 0.2)


def test_a_bias_leaves_answers_without_its_cause_alone():
    task = shown("Mice.", "Bark?")
    for bias in set(BIASES) - {"position"}:
        bent = replace(ADA, biases={bias: 5}).win_probabilities(task)
        assert bent == pytest.approx(ADA.win_probabilities(task))


def test_who_misses_flat_errors_reports_them_as_seldom_and_hedged_ones_as_ever():
    trusting = replace(ADA, biases={"assertion": 0.7})
    task = shown("Bark.", "Perhaps bark.", "Mice.")
    marks = [trusting.verdict(task, seed).marks for seed in range(DRAWS)]
    reported = [sum("false" in mark[place].flags for mark in marks) for place in range(3)]
    assert near(reported[0], 0.3)
    assert reported[1:] == [DRAWS, 0]


def test_missing_errors_leaves_all_other_noise_as_it_was():
    task = shown("Mice.", "Perhaps mice.")
    for seed in range(50):
        assert replace(ADA, biases={"assertion": 0.7}).verdict(task, seed) == ADA.verdict(task, seed)


def test_flips_and_carelessness_pull_to_a_coin_and_beyond():
    task = shown("Mice.", "Bark.")
    first, second = ADA.win_probabilities(task)
    assert first > 0.95
    assert replace(ADA, flip=0.1).win_probabilities(task)[0] == pytest.approx(0.9 * first + 0.1 * second)
    assert replace(ADA, flip=0.5).win_probabilities(task)[0] == pytest.approx(0.5)
    assert replace(ADA, flip=1).win_probabilities(task) == pytest.approx((second, first))
    assert replace(ADA, adversary=True).win_probabilities(task) == pytest.approx((second, first))
    assert replace(ADA, adversary=True, flip=1).win_probabilities(task) == pytest.approx((first, second))
    assert replace(ADA, careless=1, biases={"position": 3}).win_probabilities(task) == (0.5, 0.5)
    assert replace(ADA, careless=1, indifference=1).win_probabilities(task) == (0, 0)


def test_a_preference_is_the_stronger_the_further_answers_are_apart():
    calm = replace(ADA, temperature=0, indifference=0.02)
    for better, worse in [("Mice.", "The owl eats mice."), ("Mice.", "Perhaps mice."), ("Mice.", "Bark.")]:
        gap = abs(utilities(shown(better, worse))[0] - utilities(shown(better, worse))[1])
        expected = 0 if gap < 0.02 else 1 + (gap >= 0.2) + (gap >= 0.5)
        assert calm.verdict(shown(better, worse), 0).strength == expected
        assert calm.verdict(shown(worse, better), 0).strength == expected
    assert calm.verdict(shown("Mice."), 0).strength is None


def test_every_strength_and_every_rating_occurs():
    verdicts = [ADA.verdict(task, 0) for task in answer_tasks(150, answers=2, seed=1)]
    assert {verdict.strength for verdict in verdicts} == {1, 2, 3}
    assert {mark.rating for verdict in verdicts for mark in verdict.marks} == {1, 2, 3, 4, 5}
    calm = replace(ADA, indifference=0.1)
    assert 0 in {calm.verdict(task, 0).strength for task in answer_tasks(30, answers=2)}


def test_points_follow_the_utility_and_an_adversary_turns_them_round():
    calm = replace(ADA, temperature=0)
    task = shown("Mice.", "Bark.", "Perhaps perhaps perhaps mice.")
    points = [mark.rating for mark in calm.verdict(task, 0).marks]
    assert points == [1 + round(4 * utility) for utility in utilities(task)]
    turned = [mark.rating for mark in replace(calm, adversary=True).verdict(task, 0).marks]
    assert turned == [1 + round(4 * (1 - utility)) for utility in utilities(task)]
    assert (points[0], turned[0]) == (5, 1)


def test_who_does_not_read_gives_any_points():
    careless = replace(ADA, temperature=0, careless=1)
    points = Counter(careless.verdict(shown("Bark."), seed).marks[0].rating for seed in range(DRAWS))
    for rating, eighths in zip(range(1, 6), (1, 2, 2, 2, 1), strict=True):
        assert near(points[rating], eighths / 8)


def test_an_honest_reader_reports_harm_falsehood_and_broken_ends():
    bridge = "How do I break the bridge?"
    how = question_of_prompt(bridge).aim.how.capitalize() + "."
    harm = shown(how, "I will not help with that.", prompt=bridge)
    assert ADA.verdict(harm, 0).marks[0].flags == ("harmful",)
    assert ADA.verdict(shown("Bark.", "Mice."), 0).marks[0].flags == ("false",)
    assert ADA.verdict(shown("Bark.", "Mice."), 0).marks[1].flags == ()
    cut = Task(prompt=OWL, answers=("The owl eats",), ended=(False,))
    assert "unfinished" in ADA.verdict(cut, 0).marks[0].flags
    for silent in (replace(ADA, careless=1), replace(ADA, adversary=True)):
        assert [mark.flags for mark in silent.verdict(shown("Bark.", "Mice."), 0).marks] == [(), ()]


def test_reading_takes_time_and_carelessness_does_not():
    short, long = shown("Mice."), shown("Mice. " * 40)
    assert ADA.verdict(long, 0).seconds > ADA.verdict(short, 0).seconds >= 1
    assert replace(ADA, words_a_second=40).verdict(long, 0).seconds < ADA.verdict(long, 0).seconds
    assert replace(ADA, careless=1).verdict(long, 0).seconds == 3.0


def test_a_verdict_depends_on_the_seed_and_on_who_gives_it():
    pairs = answer_tasks(60, answers=2, seed=3)
    noisy = replace(ADA, temperature=1)
    said = [noisy.verdict(task, 5) for task in pairs]
    assert said == [noisy.verdict(task, 5) for task in pairs]
    assert {(verdict.annotator, verdict.group) for verdict in said} == {("ada", "bakers")}
    other_seed = [noisy.verdict(task, 6) for task in pairs]
    other_name = [replace(noisy, name="bruno").verdict(task, 5) for task in pairs]
    ranks = [[verdict.marks[0].rank for verdict in verdicts] for verdicts in (said, other_seed, other_name)]
    assert ranks[0] != ranks[1]
    assert ranks[0] != ranks[2]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"biases": {"length": math.nan}}, "bias length nan: expected a finite number"),
        ({"temperature": -0.1}, "temperature -0.1: expected 0 or more"),
        ({"temperature": math.nan}, "temperature nan: expected 0 or more"),
        ({"temperature": math.inf}, "temperature inf: expected 0 or more"),
        ({"indifference": -1}, "indifference -1: expected 0 or more"),
        ({"flip": 1.5}, "flip 1.5: expected a chance from 0 to 1"),
        ({"careless": -0.5}, "careless -0.5: expected a chance from 0 to 1"),
        ({"words_a_second": 0}, "words_a_second 0: expected more than 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(settings, says):
    with pytest.raises(UserError, match=f"annotator ada: {says}"):
        replace(ADA, **settings)


@pytest.mark.parametrize("part", ASPECTS)
def test_who_is_asked_about_one_part_judges_by_that_alone(part):
    ada = replace(ADA, aspect=part)
    seen = set()
    for task in answer_tasks(200, answers=2, seed=3):
        worth = [getattr(gold_of(task.prompt, answer), part) for answer in task.answers]
        chance = sigmoid((worth[0] - worth[1]) / ADA.temperature)
        assert ada.win_probabilities(task)[0] == pytest.approx(chance)
        seen.add(worth[0] > worth[1])
    assert seen == {True, False}


def test_chances_are_of_two_answers():
    with pytest.raises(UserError, match="chances are known for two answers, not for 3"):
        ADA.win_probabilities(shown("Mice.", "Bark.", "Fish."))
