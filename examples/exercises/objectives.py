"""Two objectives: a policy that follows one reward alone pays for it with the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from examples.exercises import pages
from examples.exercises.exercise import captioned, exercise, result_table
from examples.exercises.measure import (
    greater_claims,
    mean_gold,
    mean_over_prompts,
    policy_figures,
    read_policy_results,
    value_with_interval,
)
from plaudit.evaluation.policies.result import PolicyAnswer, PolicyEvaluation, PromptAnswers
from plaudit.lab.world.annotators import Aspect
from plaudit.lab.world.gold import gold_of

START, HELP_ONLY, BOTH_REWARDS = "base", "follows-help", "follows-both"
"""The policies of the config: before, by the reward for help alone, by both rewards."""
_LABELS = {START: "at the start", HELP_ONLY: "help alone", BOTH_REWARDS: "help and brevity"}
_PARTS: tuple[Aspect, ...] = ("helpful", "concise")
_MAX_PROMPTS = 3
_EvaluationByPart = Mapping[Aspect, PolicyEvaluation]


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = read_policy_results(folder, "evaluation")
    parts: _EvaluationByPart = {part: with_partial_gold(evaluation, part) for part in _PARTS}
    rows = [
        (
            label,
            *(value_with_interval(mean_over_prompts(parts[part], name, mean_gold)) for part in _PARTS),
            value_with_interval(policy_figures(evaluation, name).length),
            value_with_interval(mean_over_prompts(evaluation, name, mean_gold)),
            value_with_interval(policy_figures(evaluation, name).kl),
        )
        for name, label in _LABELS.items()
    ]
    return pages.ExerciseResult(
        claims=greater_claims("objectives", evaluation, parts=parts),
        table=result_table("objectives", rows),
        charts=captioned(
            "objectives",
            pages.charts_side_by_side(_parts_chart(parts), _length_chart(evaluation)),
            pages.answers_side_by_side(_LABELS, _wordiest(evaluation)),
        ),
    )


def with_partial_gold(evaluation: PolicyEvaluation, part: Aspect) -> PolicyEvaluation:
    """The same answers, with one part of the true utility as their gold score: how helpful each is, say."""
    return replace(
        evaluation, all_answers=tuple(_row_with_partial_gold(shown, part) for shown in evaluation.all_answers)
    )


def _row_with_partial_gold(row: PromptAnswers, part: Aspect) -> PromptAnswers:
    def valued(answer: PolicyAnswer) -> PolicyAnswer:
        gold = gold_of(row.prompt, answer.text, ended=answer.ended)
        return replace(answer, gold=float(getattr(gold, part)))

    return replace(row, answers=tuple(map(valued, row.answers)))


def _parts_chart(parts: _EvaluationByPart) -> Markup:
    rows = [
        pages.interval_row(label, *(mean_over_prompts(parts[part], name, mean_gold) for part in _PARTS))
        for name, label in _LABELS.items()
    ]
    data = pages.IntervalRows(rows=rows, series=_PARTS)
    return pages.share_chart("Helpful and concise", "parts of the true worth", data)


def _length_chart(evaluation: PolicyEvaluation) -> Markup:
    rows = [
        pages.interval_row(label, policy_figures(evaluation, name).length) for name, label in _LABELS.items()
    ]
    return pages.amount_chart(
        "Length", "tokens of an answer", pages.IntervalRows(rows=rows, series=("length",))
    )


def _wordiest(evaluation: PolicyEvaluation) -> Sequence[PromptAnswers]:
    def spared(shown: PromptAnswers) -> int:
        tokens = {answer.policy: answer.tokens for answer in shown.answers}
        return tokens[HELP_ONLY] - tokens[BOTH_REWARDS]

    return sorted(evaluation.all_answers, key=spared, reverse=True)[:_MAX_PROMPTS]


EXERCISE = exercise("objectives", analyse)
