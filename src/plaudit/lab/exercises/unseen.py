"""A reward that learnt few pairs by heart, and one that saw many: what is left on unseen pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.lab.exercise import captioned, exercise, result_table
from plaudit.lab.exercises import pages
from plaudit.lab.measure import (
    PairRewards,
    above_zero_claims,
    correct,
    independent_difference,
    margin,
    mean_measure,
    overconfidence,
    paired_reward_difference,
    preference_loss,
    read_pair_rewards,
    read_reward_results,
    reward_reliability_chart,
)

_REWARDS = {"few": "few pairs, many epochs", "many": "many pairs, few epochs"}
_PAIR_SETS = {"own": "its own pairs", "fresh": "unseen pairs"}
_RewardsByKey = Mapping[tuple[str, str], PairRewards]
"""What each reward says of its own pairs and of the unseen ones."""
_EvaluationByKey = Mapping[tuple[str, str], RewardEvaluation]


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    stages = {
        (name, kind): f"{name}-on-own" if kind == "own" else "on-fresh"
        for name in _REWARDS
        for kind in _PAIR_SETS
    }
    rewards = {
        (name, kind): read_pair_rewards(folder, stage, [name])[name] for (name, kind), stage in stages.items()
    }
    evaluations = {
        (name, kind): read_reward_results(folder, stage)[name] for (name, kind), stage in stages.items()
    }
    charts = (
        reward_reliability_chart("Reliability", evaluation)
        for key, evaluation in evaluations.items()
        if key != ("few", "own")
    )
    rows = [
        pages.interval_row(
            f"{_REWARDS[name]}: {_PAIR_SETS[kind]}",
            *(mean_measure(reward, part) for part in (_preferred, _other)),
        )
        for (name, kind), reward in rewards.items()
    ]
    data = pages.IntervalRows(rows=rows, series=("preferred", "other"))
    return pages.ExerciseResult(
        claims=_claims(rewards),
        table=_table(rewards, evaluations),
        charts=captioned("unseen", pages.amount_chart("Mean rewards", "with 95 % intervals", data), *charts),
    )


def _claims(rewards: _RewardsByKey) -> tuple[pages.Claim, ...]:
    few_own, few_fresh = rewards["few", "own"], rewards["few", "fresh"]
    lost = {
        name: independent_difference(
            *(mean_measure(rewards[name, kind], correct, share=True) for kind in _PAIR_SETS)
        )
        for name in _REWARDS
    }
    return above_zero_claims(
        "unseen",
        (
            lost["few"],
            independent_difference(mean_measure(few_own, margin), mean_measure(few_fresh, margin), times=2),
            mean_measure(few_fresh, overconfidence),
            independent_difference(lost["few"], lost["many"]),
            mean_measure(rewards["many", "fresh"], margin),
            paired_reward_difference(few_fresh, rewards["many", "fresh"], preference_loss),
        ),
    )


def _table(rewards: _RewardsByKey, evaluations: _EvaluationByKey) -> pages.Table:
    rows = [
        (
            f"{name}, {_PAIR_SETS[kind]}",
            *(pages.number_text(mean_measure(reward, part).value) for part in (_preferred, _other, margin)),
            pages.percent(mean_measure(reward, correct, share=True).value),
            pages.percent(_calibration_error(evaluations[name, kind])),
        )
        for (name, kind), reward in rewards.items()
    ]
    return result_table("unseen", rows, **_REWARDS)


def _calibration_error(evaluation: RewardEvaluation) -> float:
    assert evaluation.calibration is not None, "pairs with a preference were judged"
    return evaluation.calibration.ece_mass


def _preferred(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    return rewards.preferred_B


def _other(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    return rewards.other_B


EXERCISE = exercise("unseen", analyse)
