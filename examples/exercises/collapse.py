"""What becomes of the variety of answers when a policy is optimised."""

from __future__ import annotations

from collections.abc import Mapping

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table
from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures

BASE, START, WITH_KL, WITHOUT_KL = "base", "sft", "leashed", "free"
"""The policies of the config: before all, fine-tuned, optimised on a leash, and without one."""
_MAX_PROMPTS = 3


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = measure.read_policy_results(folder, "evaluation")
    names = {BASE: "the base model", START: "fine-tuned"} | measure.beta_labels(folder, WITH_KL, WITHOUT_KL)
    entropy = {names[name]: measure.metric_curve(folder, name, "entropy") for name in (WITHOUT_KL, WITH_KL)}
    rows = [
        pages.interval_row(label, measure.mean_over_prompts(evaluation, name, measure.same_answer_rate))
        for name, label in names.items()
    ]
    data = pages.IntervalRows(rows=rows, series=("the same",))
    before, after = (
        measure.statistic_by_prompt(evaluation, name, measure.same_answer_rate)
        for name in (START, WITHOUT_KL)
    )
    return pages.ExerciseResult(
        claims=measure.greater_claims("collapse", evaluation, names),
        table=_table(evaluation, names),
        charts=captioned(
            "collapse",
            pages.share_chart("The same answer twice", "of pairs of answers", data),
            pages.chart_over_steps("Entropy", "nats a token", entropy),
            pages.answer_counts(
                evaluation,
                {name: names[name] for name in (START, WITHOUT_KL)},
                sorted(before, key=lambda prompt: before[prompt] - after.get(prompt, 0.0))[:_MAX_PROMPTS],
            ),
        ),
    )


def _table(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> pages.Table:
    figures = ((name, measure.policy_figures(evaluation, name)) for name in names)
    rows = [
        (
            names[name],
            measure.value_with_interval(figure.gold),
            measure.value_with_interval(
                measure.mean_over_prompts(evaluation, name, measure.same_answer_rate)
            ),
            measure.value_text(figure.entropy),
            *_diversity_texts(figure),
            measure.value_text(figure.kl),
        )
        for name, figure in figures
    ]
    words = measure.policy_figures(evaluation, START).diversity.words
    return result_table("collapse", rows, found=evaluation, words=words)


def _diversity_texts(policy: PolicyFigures) -> tuple[str, ...]:
    diversity = policy.diversity
    figures = (
        (diversity.unique_within, pages.percent),
        (diversity.distinct_2, pages.percent),
        (diversity.self_bleu_within, pages.number_text),
    )
    return tuple("not known" if value is None else write(value) for value, write in figures)


EXERCISE = exercise("collapse", analyse)
