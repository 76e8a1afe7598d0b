"""What is left is told by what stages took before, by their weights, and by how many run side by side."""

import pytest

from plaudit.runs.pipeline.read import DEFAULT_CONFIG, read_pipeline
from plaudit.runs.pipeline.status import PRIOR_SECONDS, expected_seconds, seconds_left

STAGES = read_pipeline(DEFAULT_CONFIG).stages
WEIGHTS = {stage.name: float(stage.weight) for stage in STAGES}


def test_weights_are_seconds_until_something_was_measured() -> None:
    assert expected_seconds(STAGES, {}, {}) == WEIGHTS
    twice = {"sft": 2 * WEIGHTS["sft"] + PRIOR_SECONDS}
    assert expected_seconds(STAGES, {}, twice)["ppo"] == pytest.approx(2 * WEIGHTS["ppo"])
    assert expected_seconds(STAGES, {"ppo": 7.0}, twice)["ppo"] == 7.0


def test_one_lane_takes_the_sum_and_many_the_longest_way_of_what_is_not_done() -> None:
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 1) == sum(WEIGHTS.values())
    way = ("demonstrations", "sft", "comparisons", "reward", "ppo", "evaluation")
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 99) == sum(WEIGHTS[name] for name in way)
    two = seconds_left(STAGES, set(), {}, WEIGHTS, 2)
    assert sum(WEIGHTS[name] for name in way) <= two < sum(WEIGHTS.values())
    done = set(WEIGHTS) - {"ppo", "evaluation"}
    left = seconds_left(STAGES, done, {"ppo": WEIGHTS["ppo"] - 10}, WEIGHTS, 2)
    assert left == 10 + WEIGHTS["evaluation"]
    assert seconds_left(STAGES, done, {"ppo": 1e6}, WEIGHTS, 2) == WEIGHTS["evaluation"]
    assert seconds_left(STAGES, set(WEIGHTS), {}, WEIGHTS, 1) == 0
