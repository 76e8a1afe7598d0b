"""Stages of pipelines: rows of the world, evaluations that know the truth about its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.evaluation.policies import WRITTEN, PolicyWord
from plaudit.evaluation.settings import EvaluateSettings, JudgeRewardSettings
from plaudit.lab.world.wanted import RowRequest, write_requested_rows
from plaudit.runs import StageKind, StageResult, command_line, options_of
from plaudit.wings import offered

if TYPE_CHECKING:
    from plaudit.runs import PipelineContext, Stage


def _make_rows(settings: RowRequest, out: Path, *_: object) -> StageResult:
    path = out / "rows.jsonl"
    sentences = write_requested_rows(settings, path)
    options = {**options_of(settings, "make"), "category": [*settings.category]}
    command = command_line("plaudit world make", settings.make, out=path, **options)
    return StageResult(sentences=sentences, command=command)


def _evaluate(settings: EvaluateSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    from plaudit.evaluation.policies.generate import Contestant, prompted_policy
    from plaudit.evaluation.policies.result import write_policy_evaluation
    from plaudit.evaluation.run import evaluate_requested_policies

    names = map(context.display_name, stage.inputs.get("policies", ()))
    folders = (None if word == WRITTEN else Path(word) for word in settings.policies)
    models = {name: Contestant(folder=folder) for name, folder in zip(names, folders, strict=True)} | dict(
        map(prompted_policy, settings.policy)
    )
    evaluation = evaluate_requested_policies(settings, models, on_progress=print)
    write_policy_evaluation(evaluation, out)
    each = "an answer" if evaluation.answers == 1 else f"{evaluation.answers} answers"
    overview = f"{evaluation.prompts} prompts, {each} of every policy to each; {evaluation.sampling}"
    win_rates = (
        f"win rate of {contest.policy} against {contest.against} by {contest.judge}: {contest.raw.value:.1%} "
        f"({contest.raw.low:.1%} to {contest.raw.high:.1%})"
        for contest in evaluation.contests
        if contest.raw is not None
    )
    is_world = settings.prompts is None
    options = options_of(settings, "policies", "gold", *(() if is_world else ("split",)))
    command = command_line("plaudit eval policy", *settings.policies, world=is_world, **options, out=out)
    return StageResult(sentences=(overview, *win_rates, *evaluation.notes), command=command)


def _check_evaluation(settings: EvaluateSettings) -> None:
    from plaudit.evaluation.policies.generate import prompted_context
    from plaudit.evaluation.policies.judge import check_judge

    for word in settings.judge:
        if not word.startswith("$"):
            check_judge(word, has_gold=settings.true_worth is not None)
    for policy in map(PolicyWord.parse, settings.policy):
        is_above = (policy.shots or "").startswith("$")
        prompted_context(replace(policy, shots=None) if is_above else policy)


def _judge_rewards(
    settings: JudgeRewardSettings, out: Path, stage: Stage, context: PipelineContext
) -> StageResult:
    from plaudit.evaluation.policies.result import write_agreements
    from plaudit.evaluation.run import evaluate_requested_rewards

    names = [context.display_name(word) for word in stage.inputs["models"]]
    found = evaluate_requested_rewards(settings, names)
    if found.rewards:
        offered("reward_pages")(found.rewards, out)
    if found.judges:
        write_agreements(found.judges, out)
    evaluations = [item.evaluation for item in found.rewards]
    accuracies = ", ".join(
        f"{evaluation.model}: {evaluation.accuracy.value:.1%} right"
        for evaluation in evaluations
        if evaluation.accuracy is not None
    )
    agreements = ", ".join(
        f"{contest.judge}: agrees with people in {contest.raw.value:.1%}"
        for contest, _ in found.judges
        if contest.raw is not None
    )
    figures = "; ".join(filter(None, (accuracies, agreements)))
    options = options_of(settings, "models")
    command = command_line("plaudit eval reward", *settings.models, **options, out=out)
    return StageResult(sentences=(figures or "no verdict on any pair", *found.notes), command=command)


WORLD_ROWS = StageKind(
    name="world-rows",
    produces="rows",
    settings=RowRequest,
    accepts={"model": ("model",)},
    run=_make_rows,
    weight=5,
)
EVALUATE = StageKind(
    name="evaluate",
    produces="evaluation",
    settings=EvaluateSettings,
    accepts={
        **dict.fromkeys(("policies", "against"), ("model",)),
        **dict.fromkeys(("judge", "reward"), ("reward",)),
        **{"prompts": ("rows",), "choices": (), "right": ()},
    },
    run=_evaluate,
    weight=20,
    check=_check_evaluation,
    words={"policies": (WRITTEN,), "against": (WRITTEN,)},
    prompted=True,
)
JUDGE_REWARD = StageKind(
    name="judge-reward",
    produces="evaluation",
    settings=JudgeRewardSettings,
    accepts={"models": ("reward",), "data": ("rows",)},
    run=_judge_rewards,
)
