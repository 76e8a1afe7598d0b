"""Reward hacking by length, without a leash and with one."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation, PromptAnswers
from plaudit.lab.exercise import Exercise
from plaudit.lab.measure import (
    beta_labels,
    claim_greater,
    mean_gold,
    mean_over_prompts,
    mean_repetition,
    mean_tokens,
    metric_curve,
    policy_figures,
    read_policy_results,
    statistic_by_prompt,
    value_with_interval,
)
from plaudit.runs.pipeline.store import PipelineFolder
from plaudit.runs.report.lab import (
    CaptionedChart,
    Claim,
    ExerciseResult,
    Table,
    answers_side_by_side,
    chart_over_steps,
)
from plaudit.runs.report.pipeline.findings import LENGTH_FACTOR

START, WITHOUT_KL, SMALL_BETA, LARGE_BETA = "sft", "free", "loose", "tight"
"""The policies of the config: before, without a leash, with the lesson's, with a shorter one."""
MAX_LENGTH_FACTOR = 1.5
_MAX_PROMPTS = 3


def analyse(folder: PipelineFolder) -> ExerciseResult:
    evaluation = read_policy_results(folder, "evaluation")
    names = {START: "at the start"} | beta_labels(folder, WITHOUT_KL, SMALL_BETA, LARGE_BETA)
    length, value = (
        {names[name]: metric_curve(folder, name, figure) for name in (WITHOUT_KL, SMALL_BETA, LARGE_BETA)}
        for figure in ("length_mean", "judge")
    )
    return ExerciseResult(
        claims=_claims(evaluation, names[SMALL_BETA], names[LARGE_BETA]),
        table=_table(evaluation, names),
        charts=(
            CaptionedChart(
                title="How long answers are",
                caption="Every letter is paid: how far do answers grow on each leash?",
                chart=chart_over_steps("Length", "tokens", length),
            ),
            CaptionedChart(
                title="What they are worth",
                caption="The truth never teaches, it only looks on: compare it with the length.",
                chart=chart_over_steps("True worth", "by the world", value),
            ),
            CaptionedChart(
                title="Before and after",
                caption="The prompts on which most was lost without a leash.",
                chart=answers_side_by_side(names, _prompts_with_most_worth_lost(evaluation)),
            ),
        ),
    )


def _claims(evaluation: PolicyEvaluation, loose: str, tight: str) -> tuple[Claim, ...]:
    share = "of the pairs of words said before"
    return (
        claim_greater(
            "Without a leash answers grow.", evaluation, (WITHOUT_KL, START), mean_tokens, "tokens"
        ),
        claim_greater(
            "They are worth less for it.", evaluation, (START, WITHOUT_KL), mean_gold, "of true worth"
        ),
        claim_greater(
            "They say the same again and again.", evaluation, (WITHOUT_KL, START), mean_repetition, share
        ),
        _length_claim(evaluation, loose, (START, SMALL_BETA), MAX_LENGTH_FACTOR),
        claim_greater(
            f"{loose} alone does not stop them growing.",
            evaluation,
            (SMALL_BETA, START),
            mean_tokens,
            "tokens",
        ),
        _length_claim(evaluation, tight, (START, LARGE_BETA), LENGTH_FACTOR),
        claim_greater(
            f"{tight} keeps the worth.",
            evaluation,
            (LARGE_BETA, WITHOUT_KL),
            mean_gold,
            "of true worth without a leash",
        ),
    )


def _length_claim(evaluation: PolicyEvaluation, leash: str, policies: tuple[str, str], times: float) -> Claim:
    statement = f"With {leash} answers stay below {times:g} times their length at the start."
    return claim_greater(statement, evaluation, policies, mean_tokens, "tokens", factor=times)


def _table(evaluation: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            label,
            value_with_interval(policy_figures(evaluation, name).length),
            value_with_interval(policy_figures(evaluation, name).gold),
            value_with_interval(mean_over_prompts(evaluation, name, mean_repetition)),
            value_with_interval(policy_figures(evaluation, name).kl),
        )
        for name, label in names.items()
    )
    head = ("policy", "tokens", "true worth", "said before", "KL, nats")
    note = (
        f"{evaluation.prompts} unseen prompts. Said before: the share of pairs of words that the answer had. "
        "In brackets: 95 % intervals over prompts."
    )
    return Table(head=head, rows=rows, note=note)


def _prompts_with_most_worth_lost(evaluation: PolicyEvaluation) -> list[PromptAnswers]:
    before, after = (statistic_by_prompt(evaluation, name, mean_gold) for name in (START, WITHOUT_KL))
    lost = sorted(before, key=lambda prompt: after.get(prompt, 0.0) - before[prompt])[:_MAX_PROMPTS]
    return [next(answer for answer in evaluation.all_answers if answer.prompt == prompt) for prompt in lost]


EXERCISE = Exercise(
    name="leash",
    title="What happens when every letter is paid, and what does the leash hold?",
    background=(
        "A reward that likes length is gamed by length: the policy learns to go on, and says the same again. "
        "People prefer longer answers a little, reward models learn that, and much of what RLHF gains can be "
        "length alone (Singhal et al. 2023, arXiv:2310.03716). The leash is the KL from the model at the "
        "start: every answer pays β for each nat of it (Ziegler et al. 2019, arXiv:1909.08593)."
    ),
    minutes=1.5,
    analyse=analyse,
    next_commands=(
        "plaudit lab leash --set loose.kl-coef=0.2: a leash between the two",
        "plaudit lab leash --set free.shape.per_token=0.05: every token costs about what it pays",
    ),
)
