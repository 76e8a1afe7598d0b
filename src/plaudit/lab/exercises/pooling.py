"""Where a reward is read: at the last token of an answer, or as the mean over all of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.lab.exercise import exercise
from plaudit.lab.exercises.pages import (
    CaptionedChart,
    Claim,
    ExerciseResult,
    GuideLine,
    IntervalRow,
    IntervalRows,
    PipelineFolder,
    Table,
    amount_chart,
    estimate_span,
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
    return ExerciseResult(
        claims=_claims(rewards), table=_table(rewards), charts=(*_pictures(rewards, fresh),)
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
            mean_measure(reward, correct, share=True).value,
            mean_measure(reward, preference_loss).value,
            mean_measure(reward, overconfidence).value,
        )
        for (stage, pooling), reward in rewards.items()
    ]
    return Table(
        head=("read at", "accuracy", "log-loss", "surer than right"),
        rows=tuple(
            (name, percent(a), f"{b:.3f}", f"{100 * c:+.1f} points".replace("-", "−"))
            for name, a, b, c in rows
        ),
        note="Log-loss: 0.693 knows nothing, and less is better. Surer than right: how sure it was, less how "
        "often it was right.",
    )


def _pictures(rewards: _RewardsByKey, fresh: Mapping[str, RewardEvaluation]) -> Iterator[CaptionedChart]:
    yield CaptionedChart(
        title="Which of the two is better?",
        caption="Right of the line the mean is better, left of it the last token. Where own pairs and fresh "
        "pairs contradict each other, believe the fresh ones.",
        chart=_loss_difference_chart(rewards),
    )
    yield CaptionedChart(
        title="How often are they right?",
        caption="What a reward loses on pairs that it has not seen lies between its two marks. Where "
        "intervals "
        "overlap, accuracy does not tell the two rewards apart.",
        chart=_accuracy_chart(rewards),
    )
    for pooling, name in _POOLINGS.items():
        yield CaptionedChart(
            title=f"What is it worth that it is sure? Read at the {name}",
            caption="Where a point lies below the broken line, the reward was surer than it may be.",
            chart=reward_reliability_chart("Reliability on fresh pairs", fresh[pooling]),
        )


def _loss_difference_chart(rewards: _RewardsByKey) -> Markup:
    gaps = {
        name: paired_reward_difference(
            rewards[stage, "last"], rewards[stage, "mean"], lambda found: 100 * preference_loss(found)
        )
        for stage, name in _PAIR_SETS.items()
    }
    rows = [IntervalRow(label=name, spans=(estimate_span(gap),)) for name, gap in gaps.items()]
    no_difference = GuideLine(low=0.0, high=0.0, label="no difference")
    chart_data = IntervalRows(rows=rows, series=("difference",), guide=no_difference)
    return amount_chart("Log-loss of the last token less that of the mean", "in hundredths", chart_data)


def _accuracy_chart(rewards: _RewardsByKey) -> Markup:
    rows = [
        IntervalRow(
            label=f"read at the {name}",
            spans=tuple(
                estimate_span(mean_measure(rewards[stage, pooling], correct, share=True))
                for stage in _PAIR_SETS
            ),
        )
        for pooling, name in _POOLINGS.items()
    ]
    chart_data = IntervalRows(rows=rows, series=tuple(_PAIR_SETS.values()))
    return share_chart("Accuracy", "share of pairs in which the preferred answer has more", chart_data)


EXERCISE = exercise("pooling", analyse)
