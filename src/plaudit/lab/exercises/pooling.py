"""Where a reward is read: at the last token of an answer, or as the mean over all of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.lab.exercise import Exercise
from plaudit.lab.measure import (
    PairRewards,
    claim_above_zero,
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
from plaudit.runs.pipeline.store import PipelineFolder
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    amount_chart,
    share_chart,
)
from plaudit.runs.report.figures import estimate_span
from plaudit.runs.report.lab import CaptionedChart, Claim, ExerciseResult, Table
from plaudit.runs.report.words import percent

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
        claims=(*_claims(rewards),), table=_table(rewards), charts=(*_pictures(rewards, fresh),)
    )


def _claims(rewards: _RewardsByKey) -> Iterator[Claim]:
    own_pairs, fresh_pairs = (
        {pooling: rewards[stage, pooling] for pooling in _POOLINGS} for stage in _PAIR_SETS
    )
    yield claim_above_zero(
        "On fresh pairs the mean over the answer predicts choices better than the last token.",
        paired_reward_difference(fresh_pairs["last"], fresh_pairs["mean"], preference_loss),
        "log-loss of the last token less that of the mean",
    )
    yield claim_above_zero(
        "On the pairs that both learnt from, it looks the other way round.",
        paired_reward_difference(own_pairs["mean"], own_pairs["last"], preference_loss),
        "log-loss of the mean less that of the last token",
    )
    yield claim_above_zero(
        "Read at the last token, the reward is surer of fresh pairs than it may be.",
        mean_measure(fresh_pairs["last"], overconfidence),
        "how sure it was less how often it was right",
    )
    gap = paired_reward_difference(fresh_pairs["mean"], fresh_pairs["last"], correct)
    # The claim is that nothing can be told, and an interval around 0 is what bears it out.
    is_undecided = gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high
    yield Claim(
        statement="Accuracy on fresh pairs alone does not tell which of the two is better.",
        holds=is_undecided,
        evidence=f"accuracy of the mean less that of the last token: {value_with_interval(gap)}, on "
        f"{gap.n} pairs",
    )
    accuracies = (mean_measure(pair["mean"], correct, share=True) for pair in (own_pairs, fresh_pairs))
    yield claim_above_zero(
        "The better one, too, is right less often on fresh pairs than on its own.",
        independent_difference(*accuracies),
        "accuracy of the mean on its own pairs less that on fresh ones",
    )


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


EXERCISE = Exercise(
    name="pooling",
    title="Where should a reward be read?",
    background="A reward model makes one number out of an answer: from its state at the last token "
    "(Stiennon et al. "
    "2020, arXiv:2009.01325), or as the mean over all of its tokens. Here both learn from the same "
    "choices of a crowd, and are compared twice: on these, and on fresh choices on prompts that neither has "
    "seen. Which one looks better depends on where one looks.",
    minutes=1,
    analyse=analyse,
    next_commands=(
        "plaudit lab pooling --set own.n=6 --set last.batch-size=6 --set mean.batch-size=6: what "
        "six pairs alone are worth",
        "plaudit lab pooling --seed 1 --out runs/lab-1: whether it was luck",
        "plaudit lab pooling --set own.annotators=length-lovers: a crowd that loves length",
    ),
)
