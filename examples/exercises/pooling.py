"""Where a reward is read: at the last token of an answer, or as the mean over all of its tokens."""

from __future__ import annotations

from markupsafe import Markup

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table

_PAIR_SETS = {"on-own": "own pairs", "on-fresh": "fresh pairs"}
_POOLINGS = {"last": "last token", "mean": "mean"}
_RewardsByKey = dict[tuple[str, str], measure.PairRewards]


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    rewards = {
        (stage, pooling): reward
        for stage in _PAIR_SETS
        for pooling, reward in measure.read_pair_rewards(folder, stage, _POOLINGS).items()
    }
    fresh = measure.read_reward_results(folder, "on-fresh")
    charts = (
        _loss_difference_chart(rewards),
        _accuracy_chart(rewards),
        *(
            measure.reward_reliability_chart("Reliability on fresh pairs", fresh[pooling])
            for pooling in _POOLINGS
        ),
    )
    rows = [
        (
            f"{_POOLINGS[pooling]}, {_PAIR_SETS[stage]}",
            pages.percent(measure.mean_measure(reward, measure.correct, share=True).value),
            f"{measure.mean_measure(reward, measure.preference_loss).value:.3f}",
            f"{100 * measure.mean_measure(reward, measure.overconfidence).value:+.1f} points".replace(
                "-", "−"
            ),
        )
        for (stage, pooling), reward in rewards.items()
    ]
    return pages.ExerciseResult(
        claims=_claims(rewards), table=result_table("pooling", rows), charts=captioned("pooling", *charts)
    )


def _claims(rewards: _RewardsByKey) -> tuple[pages.Claim, ...]:
    own, fresh = ({pooling: rewards[stage, pooling] for pooling in _POOLINGS} for stage in _PAIR_SETS)
    accuracies = (measure.mean_measure(pair["mean"], measure.correct, share=True) for pair in (own, fresh))
    *claims, lost_accuracy = measure.above_zero_claims(
        "pooling",
        (
            measure.paired_reward_difference(fresh["last"], fresh["mean"], measure.preference_loss),
            measure.paired_reward_difference(own["mean"], own["last"], measure.preference_loss),
            measure.mean_measure(fresh["last"], measure.overconfidence),
            measure.independent_difference(*accuracies),
        ),
    )
    gap = measure.paired_reward_difference(fresh["mean"], fresh["last"], measure.correct)
    undecided = pages.Claim(
        statement="Accuracy on fresh pairs alone does not tell which of the two is better.",
        # The claim is that nothing can be told, and an interval around 0 is what bears it out.
        holds=gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high,
        evidence=f"accuracy of the mean less that of the last token: {measure.value_with_interval(gap)}, on "
        f"{gap.n} pairs",
    )
    return (*claims, undecided, lost_accuracy)


def _loss_difference_chart(rewards: _RewardsByKey) -> Markup:
    gaps = {
        name: measure.paired_reward_difference(
            rewards[stage, "last"], rewards[stage, "mean"], lambda found: 100 * measure.preference_loss(found)
        )
        for stage, name in _PAIR_SETS.items()
    }
    rows = [pages.interval_row(name, gap) for name, gap in gaps.items()]
    no_difference = pages.GuideLine(low=0.0, high=0.0, label="no difference")
    chart_data = pages.IntervalRows(rows=rows, series=("difference",), guide=no_difference)
    return pages.amount_chart("Log-loss of the last token less that of the mean", "in hundredths", chart_data)


def _accuracy_chart(rewards: _RewardsByKey) -> Markup:
    rows = [
        pages.interval_row(
            f"read at the {name}",
            *(
                measure.mean_measure(rewards[stage, pooling], measure.correct, share=True)
                for stage in _PAIR_SETS
            ),
        )
        for pooling, name in _POOLINGS.items()
    ]
    chart_data = pages.IntervalRows(rows=rows, series=tuple(_PAIR_SETS.values()))
    return pages.share_chart("Accuracy", "share of pairs in which the preferred answer has more", chart_data)


EXERCISE = exercise("pooling", analyse)
