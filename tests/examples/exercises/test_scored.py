"""What rewards say of pairs, as claims read it: what was preferred, how far, how sure, on which prompts."""

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from examples.exercises import measure
from plaudit.errors import UserError
from plaudit.evaluation.stats import Estimate
from plaudit.runs.pipeline.store import PipelineFolder

ROWS = [
    {"prompt": "a", "chance": 1.0, "rewards": {"last": [2.0, 1.0], "mean": [0.0, 0.0]}},
    {"prompt": "a", "chance": 0.0, "rewards": {"last": [2.0, 1.0], "mean": [0.0, 3.0]}},
    {"prompt": "b", "chance": 0.5, "rewards": {"last": [9.0, 1.0], "mean": [0.0, 9.0]}},
    {"prompt": "c", "chance": 1.0, "rewards": {"last": [None, 1.0], "mean": [0.0, 9.0]}},
]
WIDE = Estimate(value=0.1, low=-0.1, high=0.3, n=9, prompts=9)


def folder(path: Path, rows: list[dict[str, object]]) -> PipelineFolder:
    here = path / "stages" / "on-fresh"
    here.mkdir(parents=True)
    (here / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return PipelineFolder(path=path)


@pytest.fixture
def told(tmp_path: Path) -> dict[str, measure.PairRewards]:
    return dict(measure.read_pair_rewards(folder(tmp_path, ROWS), "on-fresh", ["last", "mean"]))


def test_ties_and_pairs_without_a_verdict_are_left_out_of_all_rewards(told):
    assert told["last"].preferred_B.tolist() == [2.0, 1.0]
    assert told["last"].other_B.tolist() == [1.0, 2.0]
    assert told["mean"].preferred_B.tolist() == [0.0, 3.0]
    assert told["mean"].prompt_B.tolist() == [0, 0]


def test_each_measure_is_as_it_is_by_hand(told: dict[str, measure.PairRewards]) -> None:
    last, sure = told["last"], 1 / (1 + exp(-1))
    assert measure.margin(last).tolist() == [1.0, -1.0]
    assert measure.correct(last).tolist() == [1.0, 0.0]
    assert measure.correct(told["mean"]).tolist() == [0.5, 1.0]
    assert measure.preference_loss(last).tolist() == pytest.approx([-log(sure), -log(1 - sure)])
    assert measure.overconfidence(last).tolist() == pytest.approx([sure - 1, sure])
    assert measure.paired_reward_difference(told["mean"], last, measure.margin).value == pytest.approx(1.5)


def test_pairs_of_one_prompt_have_no_interval_and_decide_nothing(told):
    gap = measure.mean_measure(told["mean"], measure.margin)
    assert (gap.low, gap.high, gap.n, gap.prompts) == (None, None, 2, 1)
    claim = measure.claim_above_zero("It has a margin.", gap, "margin")
    assert (claim.holds, claim.evidence) == (None, "margin: 1.50")
    assert measure.independent_difference(gap, WIDE).low is None


@pytest.mark.parametrize(
    ("low", "high", "holds"), [(-0.1, 0.3, None), (0.05, 0.3, True), (-0.3, -0.05, False), (-0.3, 0.0, False)]
)
def test_a_claim_is_decided_by_its_interval(low: float, high: float, holds: bool | None) -> None:
    assert measure.claim_above_zero("So.", replace(WIDE, low=low, high=high), "gap").holds is holds


def test_a_difference_is_as_uncertain_as_both_of_its_parts_together() -> None:
    one = Estimate(value=5.0, low=4.0, high=6.0, n=4, prompts=4)
    other = Estimate(value=2.0, low=1.25, high=3.0, n=3, prompts=3)
    found = measure.independent_difference(one, other, times=2)
    assert found.value == 1.0
    assert found.low == pytest.approx(1 - 5**0.5)
    assert found.high == pytest.approx(1 + (1 + 1.5**2) ** 0.5)
    assert (found.n, found.prompts) == (7, 7)


def test_pairs_that_nobody_prefers_and_rewards_that_were_not_judged_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"scores\.jsonl: there is no pair in which an answer is preferred"):
        measure.read_pair_rewards(folder(tmp_path, ROWS[2:]), "on-fresh", ["last"])
    with pytest.raises(UserError, match=r"no reward 'first' was judged there; name it in models of on-fresh"):
        measure.read_pair_rewards(folder(tmp_path / "all", ROWS), "on-fresh", ["last", "first"])
