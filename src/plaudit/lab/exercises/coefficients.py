"""PPO by a learnt reward on leashes of three lengths."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.lab.exercise import Exercise
from plaudit.lab.measure import (
    beta_labels,
    claim_greater,
    mean_gold,
    mean_kl,
    mean_reward,
    metric_curve,
    policy_figures,
    read_policy_results,
    value_with_interval,
)
from plaudit.runs.pipeline.store import PipelineFolder
from plaudit.runs.report.lab import CaptionedChart, Claim, ExerciseResult, Table, chart_over_steps

START, LOW, MIDDLE, HIGH = "sft", "low", "middle", "high"
"""The policies of the config: before, and by the price of their distance."""


def analyse(folder: PipelineFolder) -> ExerciseResult:
    evaluation = read_policy_results(folder, "evaluation")
    names = beta_labels(folder, LOW, MIDDLE, HIGH)
    score, root, value = (
        {label: metric_curve(folder, name, figure) for name, label in names.items()}
        for figure in ("reward", "sqrt_kl", "judge")
    )
    return ExerciseResult(
        claims=_claims(evaluation, names),
        table=_table(evaluation, {START: "at the start", **names}),
        charts=(
            CaptionedChart(
                title="What the reward says",
                caption="What is optimised: where does it rise, and where does it stop?",
                chart=chart_over_steps("Learnt reward", "held-out answers", score),
            ),
            CaptionedChart(
                title="How far each went",
                caption="What the reward was bought with.",
                chart=chart_over_steps("√KL from the start", "nats an answer", root),
            ),
            CaptionedChart(
                title="What the answers are worth",
                caption="What was bought: compare it with the reward.",
                chart=chart_over_steps("True worth", "by the world, never shown", value),
            ),
        ),
    )


def _claims(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> tuple[Claim, ...]:
    low, middle, high = (names[name] for name in (LOW, MIDDLE, HIGH))
    lost = "holds nothing here: answers are worth less than at the start."
    far, value = "nats an answer", "of true worth"
    return (
        claim_greater(f"{low} goes further than {high}.", evaluation, (LOW, HIGH), mean_kl, far),
        claim_greater(f"{middle} goes further than {high}.", evaluation, (MIDDLE, HIGH), mean_kl, far),
        claim_greater(
            f"{low} gets more of the reward than at the start.",
            evaluation,
            (LOW, START),
            mean_reward,
            "of the reward",
        ),
        claim_greater(f"{low} {lost}", evaluation, (START, LOW), mean_gold, value),
        claim_greater(f"{middle} {lost}", evaluation, (START, MIDDLE), mean_gold, value),
        claim_greater(
            f"With {high} answers are worth more than with {middle}.",
            evaluation,
            (HIGH, MIDDLE),
            mean_gold,
            value,
        ),
    )


def _table(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (label, *map(value_with_interval, (figure.reward, figure.gold, figure.kl, figure.length)))
        for label, figure in ((label, policy_figures(evaluation, name)) for name, label in names.items())
    )
    head = ("leash", "reward", "true worth", "KL, nats", "tokens")
    return Table(
        head=head,
        rows=rows,
        note=f"{evaluation.prompts} unseen prompts. In brackets: 95 % intervals over prompts.",
    )


EXERCISE = Exercise(
    name="coefficients",
    title="How dear must distance be?",
    background=(
        "β is the price of a nat of distance from the model at the start. Too low, and the policy learns "
        "what is wrong with its reward; too high, and it learns nothing (Ziegler et al. 2019, "
        "arXiv:1909.08593; Stiennon et al. 2020, arXiv:2009.01325). No β is right for all rewards: twice the "
        "reward wants twice the β. Annotators who love length teach this one."
    ),
    minutes=1.5,
    analyse=analyse,
    next_commands=(
        "plaudit lab coefficients --set middle.kl-coef=0.1: look for a leash between none and all",
        "plaudit lab coefficients --set comparisons.annotators=crowd: people who love length less",
    ),
)
