"""A ranker asks in both orders, so the place of an answer does not decide; pairs make winners and scores."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from plaudit.data.generative_judging import PairwiseRankerSettings, pairwise_prompt
from plaudit.data.judging import Judge, to_comparison, to_ranking
from plaudit.errors import UserError
from plaudit.rewards.base import Reward
from plaudit.rewards.llm.pairwise import PairwiseRanker
from tests.rewards.llm.generative_zoo import (
    Planted,
    by_transformers,
    sigmoid,
    task,
    worded_folder,
    worded_model,
)
from tests.rewards.scorers import task as words_task

SETTINGS = PairwiseRankerSettings()


def test_the_chance_is_the_mean_over_both_orders_of_the_labels_shares(tmp_path):
    settings = PairwiseRankerSettings(first="w10 w11", second="w10 w12", ask="w13")
    folder = worded_folder(tmp_path, settings)
    model = worded_model(folder, settings)
    asked = words_task(4, 9)
    one, other = asked.answers

    def share(order, label):
        question = pairwise_prompt(settings, model.form, asked.prompt, order)
        logps = [
            by_transformers(folder, model.scorer.encoder, question, model.form.reply(word))
            for word in settings.replies
        ]
        return sigmoid(logps[label] - logps[1 - label])

    expected = (share((one, other), 0) + share((other, one), 1)) / 2
    assert PairwiseRanker(model).win_probabilities([asked])[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("bonus", [-8.0, 0.0, 0.7, 8.0])
def test_turning_the_order_round_turns_the_chance_round_whatever_the_bias(bonus):
    ranker = PairwiseRanker(Planted(SETTINGS, bonus=bonus))
    for one, other in [("3", "2"), ("2", "3"), ("1", "1"), ("0", "9")]:
        forth, back = (
            ranker.win_probabilities([task("p", one, other)])[0],
            ranker.win_probabilities([task("p", other, one)])[0],
        )
        assert forth == pytest.approx(1 - back)
        assert (forth - 0.5) * (float(one) - float(other)) > 0 or one == other


def test_the_bias_is_what_was_planted_among_pairs_with_a_verdict():
    pairs = [task("p", "4", "1"), task("p", "1", "2"), task("p", "2", "5")]
    none = PairwiseRanker(Planted(SETTINGS)).position_bias(pairs)
    assert none.first == pytest.approx(0.5)
    assert (none.flipped, none.pairs) == (0.0, 3)
    some = PairwiseRanker(Planted(SETTINGS, bonus=2.0)).position_bias(pairs)
    expected = sum((sigmoid(2 + gap) + sigmoid(2 - gap)) / 2 for gap in (3, 1, 3)) / 3
    assert some.first == pytest.approx(expected)
    assert some.flipped == pytest.approx(1 / 3)
    assert PairwiseRanker(Planted(SETTINGS, bonus=-2.0)).position_bias(pairs).first == pytest.approx(
        1 - expected
    )
    ranker = PairwiseRanker(Planted(SETTINGS, most=120))
    assert ranker.position_bias([task("p", "4", "1"), task("p" * 120, "4", "1")]).pairs == 1
    with pytest.raises(UserError, match="no pair has a verdict"):
        ranker.position_bias([task("p" * 120, "4", "1")])


def test_two_answers_are_judged_with_the_chance():
    ranker = PairwiseRanker(Planted(SETTINGS, bonus=1.0))
    assert isinstance(ranker, Judge)
    asked = task("p", "2", "3")
    verdict = ranker.verdicts([asked], 7)[0]
    row = to_comparison(asked, verdict)
    assert (row.chosen, row.rejected, row.annotator) == ("3", "2", "planted")
    assert row.probability == pytest.approx(1 - ranker.win_probabilities([asked])[0])
    assert ranker.verdicts([asked], 8)[0] == verdict
    tie = to_comparison(task("p", "2", "2"), ranker.verdicts([task("p", "2", "2")], 0)[0])
    assert (tie.probability, tie.strength) == (0.5, 0)


def test_several_answers_are_judged_by_round_robin():
    asked = task("p", "2", "7", "5", "7")
    verdict = PairwiseRanker(Planted(SETTINGS, bonus=3.0)).verdicts([asked], 0)[0]
    assert to_ranking(asked, verdict).ranks == (4.0, 1.0, 3.0, 1.0)
    assert verdict.probability is None


def test_a_pair_has_two_answers_and_one_alone_no_verdict_and_no_score():
    ranker = PairwiseRanker(Planted(SETTINGS))
    assert ranker.verdicts([task("p", "2")], 0)[0] is None
    assert ranker.scores([task("p", "2"), task("p", "2", "2")]) == ((None,), (0.5, 0.5))
    with pytest.raises(UserError, match="the task has 3"):
        PairwiseRanker(Planted(SETTINGS)).win_probabilities([task("p", "1", "2", "3")])


def test_round_robin_scores_are_mean_chances_or_the_share_of_the_beaten():
    asked = [task("p", "1", "2", "4"), task("q", "3", "3")]
    mean = PairwiseRanker(Planted(SETTINGS, bonus=2.0))
    assert isinstance(mean, Reward)
    row, tie = mean.scores(asked)

    def chance(gap):
        return (sigmoid(gap + 2) + sigmoid(gap - 2)) / 2

    expected = (chance(-1) + chance(-3), chance(1) + chance(-2), chance(3) + chance(2))
    assert row == pytest.approx([points / 2 for points in expected])
    assert tie == (0.5, 0.5)
    assert sum(row) == pytest.approx(1.5)
    borda = replace(SETTINGS, counting="borda")
    assert PairwiseRanker(Planted(borda, bonus=2.0)).scores(asked) == ((0, 0.5, 1), (0.5, 0.5))


def test_an_answer_that_cannot_be_compared_with_all_others_has_no_score_and_is_asked_of_once():
    long = "9".rjust(120, "0")
    ranker = PairwiseRanker(Planted(SETTINGS, most=150))
    asked = task("p", "1", long, "2")
    assert ranker.scores([asked]) == ((None, None, None),)
    assert ranker.verdicts([asked], 0)[0] is None
    assert ranker.tournament(asked) is None
    assert ranker.win_probabilities([task("p", "1", long)])[0] is None
    planted = Planted(SETTINGS, most=120)
    assert PairwiseRanker(planted).verdicts([task("p" * 120, "4", "1")], 0)[0] is None
    assert len(planted.asked) == 2


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_tournament_of_m_answers_has_one_match_fewer_and_the_best_wins_it(count, seed):
    answers = [str(number) for number in random.Random(count).sample(range(40), count)]
    planted = Planted(SETTINGS, bonus=5.0)
    winner, matches = PairwiseRanker(planted).tournament(task("p", *answers), seed=seed)
    assert len(matches) == count - 1
    assert len(planted.asked) == 2 * (count - 1)
    assert answers[winner] == max(answers, key=int)
    beaten = {match.first + match.second - match.winner for match in matches}
    assert beaten == set(range(count)) - {winner}


@pytest.mark.parametrize("count", range(2, 10))
def test_a_knock_out_gives_the_best_the_highest_score_for_as_few_questions(count):
    """By rounds outlived: half of a field falls in the first round, and one does in the last."""
    answers = [str(number) for number in random.Random(count).sample(range(40), count)]
    planted = Planted(replace(SETTINGS, counting="knock-out"), bonus=5.0)
    [row] = PairwiseRanker(planted).scores([task("p", *answers)])
    assert len(planted.asked) == 2 * (count - 1)
    assert answers[row.index(1.0)] == max(answers, key=int)
    assert row.count(1.0) == 1
    rounds = math.ceil(math.log2(count))
    assert set(row) == {number / rounds for number in range(rounds + 1)}
    assert row.count(0.0) == count // 2


def test_a_knock_out_without_a_verdict_or_a_partner_has_no_scores():
    ranker = PairwiseRanker(Planted(replace(SETTINGS, counting="knock-out"), most=150))
    assert ranker.scores([task("p", "1"), task("p", "1", "9".rjust(120, "0"))]) == ((None,), (None, None))


def test_the_seed_draws_the_matches():
    asked = task("p", *map(str, range(8)))
    draws = [PairwiseRanker(Planted(SETTINGS)).tournament(asked, seed=seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    _, matches = PairwiseRanker(Planted(SETTINGS)).tournament(asked)
    assert [(match.first, match.second) for match in matches[:4]] == list(pairwise(range(8)))[::2]
