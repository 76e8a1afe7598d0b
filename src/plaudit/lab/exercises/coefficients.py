"""PPO by a learnt reward on leashes of three lengths."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.lab.exercise import exercise
from plaudit.lab.exercises.pages import (
    CaptionedChart,
    ExerciseResult,
    PipelineFolder,
    Table,
    chart_over_steps,
)
from plaudit.lab.measure import (
    beta_labels,
    greater_claims,
    metric_curve,
    policy_figures,
    read_policy_results,
    value_with_interval,
)

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
        claims=greater_claims("coefficients", evaluation, names),
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


EXERCISE = exercise("coefficients", analyse)
