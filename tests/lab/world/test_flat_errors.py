"""Wrong answers that sound sure beside right ones that do not: made fairly, and found in a reward."""

import pytest

from plaudit.data.records import Comparison, plain_text
from plaudit.evaluation.reward_models.bias_probes import hedges
from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData, evaluate_reward
from plaudit.evaluation.reward_models.result import FlatErrors
from plaudit.evaluation.stats import Resampling
from plaudit.lab.world.annotators import TRUE_ANNOTATOR, annotator_pool
from plaudit.lab.world.exam import add_world_knowledge, flat_error_tasks, gold_reward, right_preference
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import comparisons
from plaudit.rewards.base import FunctionReward

TASKS = flat_error_tasks()


def test_the_answers_differ_in_truth_and_sureness_and_not_in_length() -> None:
    for task in TASKS:
        right, wrong = (plain_text(answer) for answer in task.answers)
        assert (hedges(right), hedges(wrong)) == (1, 0)
        assert len(right.split()) == len(wrong.split())
        assert abs(len(right) - len(wrong)) <= 4
        golds = [gold_of(task.prompt, answer) for answer in task.answers]
        assert (golds[0].helpful, golds[1].helpful) == (1, 0.15)
        assert golds[0].utility > golds[1].utility
    assert len({task.prompt for task in TASKS}) == len(TASKS) == 128
    assert sum(len(plain_text(a)) == len(plain_text(b)) for a, b in (task.answers for task in TASKS)) > 110


def test_pools_miss_them_as_much_as_their_bias_says() -> None:
    assert right_preference([TRUE_ANNOTATOR], TASKS) == 1
    crowd, trusting = (right_preference(annotator_pool(name), TASKS) for name in ("crowd", "trusting"))
    assert crowd > 0.9
    assert trusting < crowd - 0.2
    experts = [one for one in annotator_pool("trusting") if one.group == "experts"]
    assert right_preference(experts, TASKS) > 0.99


def probed(reward: FunctionReward, pool: str) -> FlatErrors:
    rows = [row for row in comparisons(60, annotator_pool(pool), split="test", seed=1)]
    data = RewardEvaluationData(name="rows", records=rows)
    known = add_world_knowledge(data, answers=2, resampling=Resampling(times=50))
    found = evaluate_reward(reward, known, Resampling(times=50)).evaluation.probes.flat_errors
    assert found is not None
    return found


def test_a_reward_that_likes_sureness_is_found_and_the_truth_cleared() -> None:
    sure = FunctionReward(name="sure", function=lambda prompt, answer: -hedges(plain_text(answer)))
    found = probed(sure, "trusting")
    assert found.model is not None
    assert (found.model.value, found.prompts) == (0, 128)
    assert found.annotators == pytest.approx(right_preference(annotator_pool("trusting"), TASKS))
    assert found.words.startswith(
        "prefers a right answer that hedges to a wrong one, as long, that does not in 0.0 %"
    )
    assert found.words.endswith("of 128 questions; its annotators in 68.7 %")
    truth = probed(gold_reward(), "crowd").model
    assert truth is not None
    assert truth.value == 1


def test_a_reward_that_scores_none_of_them_has_no_figure() -> None:
    rows = comparisons(40, annotator_pool("crowd"), split="test", seed=1)
    silent = FunctionReward(
        name="silent", function=lambda prompt, answer: None if "Gladly" in plain_text(answer) else 1.0
    )
    data = RewardEvaluationData(name="rows", records=rows, flat_errors=TASKS[:5])
    found = evaluate_reward(silent, data, Resampling(times=50)).evaluation.probes.flat_errors
    assert found is not None
    assert found.model is None
    assert found.words == "no verdict on right answers that hedge and wrong ones that do not"


def test_rows_of_another_world_are_not_probed_so() -> None:
    pair = Comparison(prompt="Hi", chosen="Hello", rejected="Go")
    long = FunctionReward(name="long", function=lambda prompt, answer: float(len(plain_text(answer))))
    found = evaluate_reward(long, RewardEvaluationData(name="one", records=[pair])).evaluation
    assert found.probes.flat_errors is None
