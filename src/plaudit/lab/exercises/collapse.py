"""What becomes of the variety of answers when a policy is optimised."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from markupsafe import Markup

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.lab.exercise import exercise
from plaudit.lab.exercises.pages import (
    CaptionedChart,
    ExerciseResult,
    IntervalRow,
    IntervalRows,
    Number,
    PipelineFolder,
    Table,
    answer_counts,
    chart_over_steps,
    estimate_span,
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
        charts=(
            CaptionedChart(
                title="How often two answers to a prompt are the same",
                caption="Before and after, with a leash and without.",
                chart=_same_answer_chart(evaluation, names),
            ),
            CaptionedChart(
                title="Entropy on the way",
                caption="Does it fall while the policy learns, and does the leash hold it?",
                chart=chart_over_steps("Entropy", "nats a token", entropy),
            ),
            CaptionedChart(
                title="All that it says",
                caption="The prompts on which most variety was lost: every answer once, with how often it "
                "came.",
                chart=answer_counts(
                    evaluation,
                    {START: names[START], WITHOUT_KL: names[WITHOUT_KL]},
                    _prompts_with_most_variety_lost(evaluation),
                ),
            ),
        ),
    )


def _table(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            label,
            value_with_interval(figure.gold),
            value_with_interval(mean_over_prompts(evaluation, name, same_answer_rate)),
            value_text(figure.entropy),
            *_diversity_texts(figure),
            value_text(figure.kl),
        )
        for name, label, figure in (
            (name, label, policy_figures(evaluation, name)) for name, label in names.items()
        )
    )
    words = policy_figures(evaluation, START).diversity.words
    head = ("policy", "true worth", "the same", "entropy", "unlike", "pairs", "BLEU", "KL")
    note = (
        f"{evaluation.prompts} prompts, {evaluation.answers} answers to each. The same: the chance that "
        "two answers to "
        "a prompt are. Unlike: of the answers to a prompt. Pairs: unlike pairs of neighbouring words; these "
        f"and self-BLEU, among the answers to a prompt, are of their first {words} words. KL: nats. "
        "In brackets: 95 % intervals over prompts."
    )
    return Table(head=head, rows=rows, note=note)


def _diversity_texts(policy: PolicyFigures) -> tuple[str, str, str]:
    diversity = policy.diversity
    return (
        _text_or_missing(diversity.unique_within, percent),
        _text_or_missing(diversity.distinct_2, percent),
        _text_or_missing(diversity.self_bleu_within, number_text),
    )


def _text_or_missing(value: Number | None, write: Callable[[Number], str]) -> str:
    return "not known" if value is None else write(value)


def _same_answer_chart(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Markup:
    rows = [
        IntervalRow(
            label=label, spans=(estimate_span(mean_over_prompts(evaluation, name, same_answer_rate)),)
        )
        for name, label in names.items()
    ]
    return share_chart(
        "The same answer twice", "of pairs of answers", IntervalRows(rows=rows, series=("the same",))
    )


def _prompts_with_most_variety_lost(evaluation: PolicyEvaluation) -> list[str]:
    before, after = (statistic_by_prompt(evaluation, name, same_answer_rate) for name in (START, WITHOUT_KL))
    return sorted(before, key=lambda prompt: before[prompt] - after.get(prompt, 0.0))[:_MAX_PROMPTS]


EXERCISE = exercise("collapse", analyse)
