"""Reward hacking by length, without a leash and with one."""

from __future__ import annotations

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table
from plaudit.evaluation.policies.result import PolicyEvaluation, PromptAnswers

START, WITHOUT_KL, SMALL_BETA, LARGE_BETA = "sft", "free", "loose", "tight"
"""The policies of the config: before, without a leash, with the lesson's, with a shorter one."""
_MAX_PROMPTS = 3


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = measure.read_policy_results(folder, "evaluation")
    names = {START: "at the start"} | measure.beta_labels(folder, WITHOUT_KL, SMALL_BETA, LARGE_BETA)
    length, value = (
        {
            names[name]: measure.metric_curve(folder, name, figure)
            for name in (WITHOUT_KL, SMALL_BETA, LARGE_BETA)
        }
        for figure in ("length_mean", "judge")
    )
    rows = [
        (
            label,
            measure.value_with_interval(measure.policy_figures(evaluation, name).length),
            measure.value_with_interval(measure.policy_figures(evaluation, name).gold),
            measure.value_with_interval(measure.mean_over_prompts(evaluation, name, measure.mean_repetition)),
            measure.value_with_interval(measure.policy_figures(evaluation, name).kl),
        )
        for name, label in names.items()
    ]
    return pages.ExerciseResult(
        claims=measure.greater_claims("leash", evaluation, names),
        table=result_table("leash", rows, found=evaluation),
        charts=captioned(
            "leash",
            pages.chart_over_steps("Length", "tokens", length),
            pages.chart_over_steps("True worth", "by the world", value),
            pages.answers_side_by_side(names, _prompts_with_most_worth_lost(evaluation)),
        ),
    )


def _prompts_with_most_worth_lost(evaluation: PolicyEvaluation) -> list[PromptAnswers]:
    before, after = (
        measure.statistic_by_prompt(evaluation, name, measure.mean_gold) for name in (START, WITHOUT_KL)
    )
    lost = sorted(before, key=lambda prompt: after.get(prompt, 0.0) - before[prompt])[:_MAX_PROMPTS]
    return [next(answer for answer in evaluation.all_answers if answer.prompt == prompt) for prompt in lost]


EXERCISE = exercise("leash", analyse)
