"""A reward that learnt few pairs by heart, and one that saw many: what is left on unseen pairs."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table
from plaudit.evaluation.reward_models.result import RewardEvaluation

_REWARDS = {"few": "few pairs, many epochs", "many": "many pairs, few epochs"}
_PAIR_SETS = {"own": "its own pairs", "fresh": "unseen pairs"}
_RewardsByKey = Mapping[tuple[str, str], measure.PairRewards]
"""What each reward says of its own pairs and of the unseen ones."""
_SIDES = (attrgetter("preferred_B"), attrgetter("other_B"))
_EvaluationByKey = Mapping[tuple[str, str], RewardEvaluation]


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    stages = {
        (name, kind): f"{name}-on-own" if kind == "own" else "on-fresh"
        for name in _REWARDS
        for kind in _PAIR_SETS
    }
    rewards = {
        (name, kind): measure.read_pair_rewards(folder, stage, [name])[name]
        for (name, kind), stage in stages.items()
    }
    evaluations = {
        (name, kind): measure.read_reward_results(folder, stage)[name]
        for (name, kind), stage in stages.items()
    }
    charts = (
        measure.reward_reliability_chart("Reliability", evaluation)
        for key, evaluation in evaluations.items()
        if key != ("few", "own")
    )
    rows = [
        pages.interval_row(
            f"{_REWARDS[name]}: {_PAIR_SETS[kind]}", *(measure.mean_measure(reward, side) for side in _SIDES)
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
        name: measure.independent_difference(
            *(measure.mean_measure(rewards[name, kind], measure.correct, share=True) for kind in _PAIR_SETS)
        )
        for name in _REWARDS
    }
    return measure.above_zero_claims(
        "unseen",
        (
            lost["few"],
            measure.independent_difference(
                measure.mean_measure(few_own, measure.margin),
                measure.mean_measure(few_fresh, measure.margin),
                times=2,
            ),
            measure.mean_measure(few_fresh, measure.overconfidence),
            measure.independent_difference(lost["few"], lost["many"]),
            measure.mean_measure(rewards["many", "fresh"], measure.margin),
            measure.paired_reward_difference(few_fresh, rewards["many", "fresh"], measure.preference_loss),
        ),
    )


def _table(rewards: _RewardsByKey, evaluations: _EvaluationByKey) -> pages.Table:
    rows = [
        (
            f"{name}, {_PAIR_SETS[kind]}",
            *(
                pages.number_text(measure.mean_measure(reward, part).value)
                for part in (*_SIDES, measure.margin)
            ),
            pages.percent(measure.mean_measure(reward, measure.correct, share=True).value),
            pages.percent(_calibration_error(evaluations[name, kind])),
        )
        for (name, kind), reward in rewards.items()
    ]
    return result_table("unseen", rows, **_REWARDS)


def _calibration_error(evaluation: RewardEvaluation) -> float:
    assert evaluation.calibration is not None, "pairs with a preference were judged"
    return evaluation.calibration.ece_mass


EXERCISE = exercise("unseen", analyse)
