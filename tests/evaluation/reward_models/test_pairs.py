"""From records and a reward to scored pairs: what is asked, in which order, and what has no verdict."""

import pytest

from plaudit.data.records import Comparison, Ranking
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.pairs import score_records, scored_pairs
from plaudit.rewards.base import FunctionReward

LENGTH = FunctionReward(name="length", function=lambda prompt, answer: float(len(answer)))
RANKING = Ranking(
    prompt="q",
    completions=("a", "bbb", "cc"),
    ranks=(2.0, 1.0, 2.0),
    category="facts",
    annotator="ada",
    origin="r:1",
)


class Counting:
    name = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[object, object]] = []

    def scores(self, tasks):
        self.asked += [(task.prompt, answer) for task in tasks for answer in task.answers]
        return tuple(tuple(0.0 for _ in task.answers) for task in tasks)


def test_a_ranking_gives_all_of_its_pairs_and_keeps_ties():
    pairs = scored_pairs([RANKING], score_records([RANKING], LENGTH))
    assert [(p.answers, p.p_first, p.places) for p in pairs] == [
        (("a", "bbb"), 0.0, (0, 1)),
        (("a", "cc"), 0.5, (0, 2)),
        (("bbb", "cc"), 1.0, (1, 2)),
    ]
    assert pairs[0].rewards == (1.0, 3.0)
    assert {(p.category, p.annotator, p.origin) for p in pairs} == {("facts", "ada", "r:1")}


def test_a_comparison_says_nothing_of_places_since_the_preferred_answer_is_always_first():
    row = Comparison(prompt="q", chosen="a", rejected="bb", strength=2.0, group="g")
    [pair] = scored_pairs([row], score_records([row], LENGTH))
    assert (pair.p_first, pair.places, pair.strength, pair.group) == (1.0, None, 2, "g")


@pytest.mark.parametrize(
    ("strength", "probability", "chance"),
    [(None, None, 1.0), (0.0, None, 0.5), (1.0, 0.8, 0.8), (None, 0.5, 0.5), (3.0, 0.3, 0.3)],
)
def test_a_comparison_is_as_sure_as_its_row_says(strength, probability, chance):
    row = Comparison(prompt="q", chosen="a", rejected="b", strength=strength, probability=probability)
    [pair] = scored_pairs([row], score_records([row], LENGTH))
    assert pair.p_first == chance


def test_answers_are_scored_beside_those_that_they_were_judged_with():
    rows = [
        Comparison(prompt="q", chosen="a", rejected="b", annotator="ada"),
        Comparison(prompt="q", chosen="a", rejected="b", annotator="bob"),
        Comparison(prompt="q", chosen="a", rejected="c"),
        Comparison(prompt="p", chosen="a", rejected="a"),
    ]
    reward = Counting()
    score_records(rows, reward)
    assert reward.asked == [("q", "a"), ("q", "b"), ("q", "a"), ("q", "c"), ("p", "a")]


def test_a_reward_that_compares_is_asked_about_each_row_alone():
    class Place:
        """An answer's place in the alphabet among the others, the first being the best."""

        name = "place"

        def scores(self, tasks):
            return tuple(
                tuple(-float(sorted(task.answers).index(answer)) for answer in task.answers) for task in tasks
            )

    rows = [Comparison(prompt="q", chosen=one, rejected=other) for one, other in ("ac", "bc", "ab")]
    pairs = scored_pairs(rows, score_records(rows, Place()))
    assert [pair.rewards for pair in pairs] == [(0.0, -1.0)] * 3


def test_truths_stand_beside_rewards():
    truth = FunctionReward(name="truth", function=lambda prompt, answer: None if answer == "a" else 1.0)
    pairs = scored_pairs([RANKING], score_records([RANKING], LENGTH), score_records([RANKING], truth))
    assert [p.truths for p in pairs] == [(None, 1.0), (None, 1.0), (1.0, 1.0)]


def test_a_reward_that_returns_too_few_scores_is_refused():
    class Short:
        name = "short"

        def scores(self, tasks):
            return tuple((0.0,) for _ in tasks)

    with pytest.raises(UserError, match="one score for each answer"):
        score_records([RANKING], Short())
