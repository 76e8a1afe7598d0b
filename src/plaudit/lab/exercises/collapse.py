"""What becomes of the variety of answers when a policy is optimised."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.lab.exercise import captioned, exercise, result_table
from plaudit.lab.exercises.pages import (
    ExerciseResult,
    IntervalRows,
    PipelineFolder,
    Table,
    answer_counts,
    chart_over_steps,
    interval_row,
    number_text,
    percent,
    share_chart,
)
from plaudit.lab.measure import (
    beta_labels,
    greater_claims,
    mean_over_prompts,
    metric_curve,
    policy_figures,
    read_policy_results,
    same_answer_rate,
    statistic_by_prompt,
    value_text,
    value_with_interval,
)

BASE, START, WITH_KL, WITHOUT_KL = "base", "sft", "leashed", "free"
"""The policies of the config: before all, fine-tuned, optimised on a leash, and without one."""
_MAX_PROMPTS = 3


def analyse(folder: PipelineFolder) -> ExerciseResult:
    evaluation = read_policy_results(folder, "evaluation")
    names = {BASE: "the base model", START: "fine-tuned"} | beta_labels(folder, WITH_KL, WITHOUT_KL)
    entropy = {names[name]: metric_curve(folder, name, "entropy") for name in (WITHOUT_KL, WITH_KL)}
    return ExerciseResult(
        claims=greater_claims("collapse", evaluation, names),
        table=_table(evaluation, names),
        charts=captioned(
            "collapse",
            _same_answer_chart(evaluation, names),
            chart_over_steps("Entropy", "nats a token", entropy),
            answer_counts(
                evaluation,
                {name: names[name] for name in (START, WITHOUT_KL)},
                _prompts_with_most_variety_lost(evaluation),
            ),
        ),
    )


def _table(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    figures = ((name, policy_figures(evaluation, name)) for name in names)
    rows = [
        (
            names[name],
            value_with_interval(figure.gold),
            value_with_interval(mean_over_prompts(evaluation, name, same_answer_rate)),
            value_text(figure.entropy),
            *_diversity_texts(figure),
            value_text(figure.kl),
        )
        for name, figure in figures
    ]
    words = policy_figures(evaluation, START).diversity.words
    return result_table("collapse", rows, found=evaluation, words=words)


def _diversity_texts(policy: PolicyFigures) -> tuple[str, ...]:
    diversity = policy.diversity
    figures = (
        (diversity.unique_within, percent),
        (diversity.distinct_2, percent),
        (diversity.self_bleu_within, number_text),
    )
    return tuple("not known" if value is None else write(value) for value, write in figures)


def _same_answer_chart(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Markup:
    rows = [
        interval_row(label, mean_over_prompts(evaluation, name, same_answer_rate))
        for name, label in names.items()
    ]
    data = IntervalRows(rows=rows, series=("the same",))
    return share_chart("The same answer twice", "of pairs of answers", data)


def _prompts_with_most_variety_lost(evaluation: PolicyEvaluation) -> list[str]:
    before, after = (statistic_by_prompt(evaluation, name, same_answer_rate) for name in (START, WITHOUT_KL))
    return sorted(before, key=lambda prompt: before[prompt] - after.get(prompt, 0.0))[:_MAX_PROMPTS]


EXERCISE = exercise("collapse", analyse)
