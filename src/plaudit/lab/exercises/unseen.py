"""A reward that learnt few pairs by heart, and one that saw many: what is left on unseen pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.lab.exercise import exercise
from plaudit.lab.exercises.pages import (
    CaptionedChart,
    Claim,
    ExerciseResult,
    IntervalRow,
    IntervalRows,
    PipelineFolder,
    Table,
    amount_chart,
    estimate_span,
    number_text,
    percent,
)
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
_CAPTIONS = {
    (
        "few",
        "fresh",
    ): "Look at the pairs that it is surest of, on the right, and how far below the broken line they lie.",
    (
        "many",
        "own",
    ): "Above the broken line it is right more often than it claims, for it has seen these pairs.",
    (
        "many",
        "fresh",
    ): "The nearer to the broken line, the more its claims about unseen pairs can be believed.",
}
_RewardsByKey = Mapping[tuple[str, str], PairRewards]
"""What each reward says of its own pairs and of the unseen ones."""
_EvaluationByKey = Mapping[tuple[str, str], RewardEvaluation]


def analyse(folder: PipelineFolder) -> ExerciseResult:
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
    return ExerciseResult(
        claims=_claims(rewards),
        table=_table(rewards, evaluations),
        charts=(*_pictures(rewards, evaluations),),
    )


def _claims(rewards: _RewardsByKey) -> tuple[Claim, ...]:
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


def _table(rewards: _RewardsByKey, evaluations: _EvaluationByKey) -> Table:
    return Table(
        head=("reward, pairs", "preferred", "other", "margin", "accuracy", "ECE"),
        rows=tuple(
            (
                f"{name}, {_PAIR_SETS[kind]}",
                number_text(mean_measure(reward, lambda pairs: pairs.preferred_B).value),
                number_text(mean_measure(reward, lambda pairs: pairs.other_B).value),
                number_text(mean_measure(reward, margin).value),
                percent(mean_measure(reward, correct, share=True).value),
                percent(_calibration_error(evaluations[name, kind])),
            )
            for (name, kind), reward in rewards.items()
        ),
        note="Preferred and other: the mean rewards of the two answers. ECE: expected calibration error "
        f"over bins of as many pairs each. few: {_REWARDS['few']}; many: {_REWARDS['many']}.",
    )


def _calibration_error(evaluation: RewardEvaluation) -> float:
    assert evaluation.calibration is not None, "pairs with a preference were judged"
    return evaluation.calibration.ece_mass


def _pictures(rewards: _RewardsByKey, evaluations: _EvaluationByKey) -> Iterator[CaptionedChart]:
    yield CaptionedChart(
        title="What is left of the margin?",
        caption="The distance between the two marks of a row is the margin. Compare what is left of it on "
        "unseen pairs with what it was on a reward's own.",
        chart=_mean_rewards_chart(rewards),
    )
    for (name, kind), evaluation in evaluations.items():
        if (name, kind) != ("few", "own"):
            yield CaptionedChart(
                title=f"{_REWARDS[name].capitalize()}: {_PAIR_SETS[kind]}",
                caption=_CAPTIONS[name, kind],
                chart=reward_reliability_chart("Reliability", evaluation),
            )


def _mean_rewards_chart(rewards: _RewardsByKey) -> Markup:
    rows = [
        IntervalRow(
            label=f"{_REWARDS[name]}: {_PAIR_SETS[kind]}",
            spans=tuple(
                estimate_span(mean_measure(reward, part))
                for part in (lambda s: s.preferred_B, lambda s: s.other_B)
            ),
        )
        for (name, kind), reward in rewards.items()
    ]
    return amount_chart(
        "Mean rewards", "with 95 % intervals", IntervalRows(rows=rows, series=("preferred", "other"))
    )


EXERCISE = exercise("unseen", analyse)
