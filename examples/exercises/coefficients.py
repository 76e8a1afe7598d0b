"""PPO by a learnt reward on leashes of three lengths."""

from __future__ import annotations

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table

START, LOW, MIDDLE, HIGH = "sft", "low", "middle", "high"
"""The policies of the config: before, and by the price of their distance."""


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = measure.read_policy_results(folder, "evaluation")
    names = measure.beta_labels(folder, LOW, MIDDLE, HIGH)
    score, root, value = (
        {label: measure.metric_curve(folder, name, figure) for name, label in names.items()}
        for figure in ("reward", "sqrt_kl", "judge")
    )
    figures = (
        (label, measure.policy_figures(evaluation, name))
        for name, label in {START: "at the start", **names}.items()
    )
    rows = [
        (label, *map(measure.value_with_interval, (figure.reward, figure.gold, figure.kl, figure.length)))
        for label, figure in figures
    ]
    return pages.ExerciseResult(
        claims=measure.greater_claims("coefficients", evaluation, names),
        table=result_table("coefficients", rows, found=evaluation),
        charts=captioned(
            "coefficients",
            pages.chart_over_steps("Learnt reward", "held-out answers", score),
            pages.chart_over_steps("√KL from the start", "nats an answer", root),
            pages.chart_over_steps("True worth", "by the world, never shown", value),
        ),
    )


EXERCISE = exercise("coefficients", analyse)
