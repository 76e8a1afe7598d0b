"""Where a reward is read: at the last token of an answer, or as the mean over all of its tokens."""

from __future__ import annotations

from markupsafe import Markup

from plaudit.lab.exercise import captioned, exercise, result_table
from plaudit.lab.exercises.pages import (
    Claim,
    ExerciseResult,
    GuideLine,
    IntervalRows,
    PipelineFolder,
    Table,
    amount_chart,
    interval_row,
    percent,
    share_chart,
)
from plaudit.lab.measure import (
    PairRewards,
    above_zero_claims,
    correct,
    independent_difference,
    mean_measure,
    overconfidence,
    paired_reward_difference,
    preference_loss,
    read_pair_rewards,
    read_reward_results,
    reward_reliability_chart,
    value_with_interval,
)

_PAIR_SETS = {"on-own": "own pairs", "on-fresh": "fresh pairs"}
_POOLINGS = {"last": "last token", "mean": "mean"}
_RewardsByKey = dict[tuple[str, str], PairRewards]


def analyse(folder: PipelineFolder) -> ExerciseResult:
    rewards = {
        (stage, pooling): reward
        for stage in _PAIR_SETS
        for pooling, reward in read_pair_rewards(folder, stage, _POOLINGS).items()
    }
    fresh = read_reward_results(folder, "on-fresh")
    charts = (
        _loss_difference_chart(rewards),
        _accuracy_chart(rewards),
        *(reward_reliability_chart("Reliability on fresh pairs", fresh[pooling]) for pooling in _POOLINGS),
    )
    return ExerciseResult(
        claims=_claims(rewards), table=_table(rewards), charts=captioned("pooling", *charts)
    )


def _claims(rewards: _RewardsByKey) -> tuple[Claim, ...]:
    own, fresh = ({pooling: rewards[stage, pooling] for pooling in _POOLINGS} for stage in _PAIR_SETS)
    accuracies = (mean_measure(pair["mean"], correct, share=True) for pair in (own, fresh))
    *claims, lost_accuracy = above_zero_claims(
        "pooling",
        (
            paired_reward_difference(fresh["last"], fresh["mean"], preference_loss),
            paired_reward_difference(own["mean"], own["last"], preference_loss),
            mean_measure(fresh["last"], overconfidence),
            independent_difference(*accuracies),
        ),
    )
    gap = paired_reward_difference(fresh["mean"], fresh["last"], correct)
    undecided = Claim(
        statement="Accuracy on fresh pairs alone does not tell which of the two is better.",
        # The claim is that nothing can be told, and an interval around 0 is what bears it out.
        holds=gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high,
        evidence=f"accuracy of the mean less that of the last token: {value_with_interval(gap)}, on "
        f"{gap.n} pairs",
    )
    return (*claims, undecided, lost_accuracy)


def _table(rewards: _RewardsByKey) -> Table:
    rows = [
        (
            f"{_POOLINGS[pooling]}, {_PAIR_SETS[stage]}",
            percent(mean_measure(reward, correct, share=True).value),
            f"{mean_measure(reward, preference_loss).value:.3f}",
            f"{100 * mean_measure(reward, overconfidence).value:+.1f} points".replace("-", "−"),
        )
        for (stage, pooling), reward in rewards.items()
    ]
    return result_table("pooling", rows)


def _loss_difference_chart(rewards: _RewardsByKey) -> Markup:
    gaps = {
        name: paired_reward_difference(
            rewards[stage, "last"], rewards[stage, "mean"], lambda found: 100 * preference_loss(found)
        )
        for stage, name in _PAIR_SETS.items()
    }
    rows = [interval_row(name, gap) for name, gap in gaps.items()]
    no_difference = GuideLine(low=0.0, high=0.0, label="no difference")
    chart_data = IntervalRows(rows=rows, series=("difference",), guide=no_difference)
    return amount_chart("Log-loss of the last token less that of the mean", "in hundredths", chart_data)


def _accuracy_chart(rewards: _RewardsByKey) -> Markup:
    rows = [
        interval_row(
            f"read at the {name}",
            *(mean_measure(rewards[stage, pooling], correct, share=True) for stage in _PAIR_SETS),
        )
        for pooling, name in _POOLINGS.items()
    ]
    chart_data = IntervalRows(rows=rows, series=tuple(_PAIR_SETS.values()))
    return share_chart("Accuracy", "share of pairs in which the preferred answer has more", chart_data)


EXERCISE = exercise("pooling", analyse)
