"""What is left is told by what stages took before, by their weights, and by how many run side by side."""

from __future__ import annotations

import pytest

from plaudit.pipeline.reading import read_pipeline
from plaudit.pipeline.shipped import DEFAULT
from plaudit.pipeline.time_left import PRIOR, expected, seconds_left

STAGES = read_pipeline(DEFAULT).stages
WEIGHTS = {stage.name: float(stage.weight) for stage in STAGES}


def test_weights_are_seconds_until_something_was_measured() -> None:
    assert expected(STAGES, {}, {}) == WEIGHTS
    twice = {"sft": 2 * WEIGHTS["sft"] + PRIOR}
    assert expected(STAGES, {}, twice)["ppo"] == pytest.approx(2 * WEIGHTS["ppo"])
    assert expected(STAGES, {"ppo": 7.0}, twice)["ppo"] == 7.0


def test_one_lane_takes_the_sum_and_many_the_longest_way() -> None:
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 1) == sum(WEIGHTS.values())
    way = ("demonstrations", "sft", "comparisons", "reward", "both", "ppo", "evaluation")
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 99) == sum(WEIGHTS[name] for name in way)
    two = seconds_left(STAGES, set(), {}, WEIGHTS, 2)
    assert sum(WEIGHTS[name] for name in way) <= two < sum(WEIGHTS.values())


def test_what_runs_is_counted_by_its_rest_and_what_is_done_not_at_all() -> None:
    done = set(WEIGHTS) - {"ppo", "evaluation"}
    left = seconds_left(STAGES, done, {"ppo": WEIGHTS["ppo"] - 10}, WEIGHTS, 2)
    assert left == 10 + WEIGHTS["evaluation"]
    assert seconds_left(STAGES, done, {"ppo": 1e6}, WEIGHTS, 2) == WEIGHTS["evaluation"]
    assert seconds_left(STAGES, set(WEIGHTS), {}, WEIGHTS, 1) == 0
