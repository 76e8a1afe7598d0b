"""What each kind of stage does: rows, training, combinations, evaluations; and the command for the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from plaudit.data.write import RowsSettings, convert_rows
from plaudit.errors import UserError
from plaudit.evaluation.policies.result import write_policy_evaluation
from plaudit.files import exact_json
from plaudit.pipeline.stage_run import StageContext, StageResult
from plaudit.report.reward_models.page import write_reward_evaluations
from plaudit.rewards.combine.manifest import CombineSettings, write_combination, write_implicit
from plaudit.world.exam import evaluate_requested_policies, evaluate_requested_rewards
from plaudit.world.wanted import EvaluateSettings, JudgeRewardSettings, RowRequest, write_requested_rows


def run_stage_action(context: StageContext) -> StageResult:
    """Run the action of a stage's kind: rows, training, a combination or an evaluation."""
    return _train(context) if context.stage.kind.trains else _ACTIONS[context.stage.kind.name](context)


def command_line(verb: str, *words: object, **options: object) -> str:
    """A command as it is typed; what was not said is left out, and a switch has no value.

    A list is one option with several words, a tuple an option that is there several times.

    >>> command_line("plaudit world make", "prompts", n=None, seed=0, out="my rows.jsonl")
    "plaudit world make prompts --seed 0 --out 'my rows.jsonl'"
    """
    parts = [verb, *(shlex.quote(str(word)) for word in words)]
    for name, value in options.items():
        for given in value if isinstance(value, tuple) else (value,):
            items = given if isinstance(given, list) else [given]
            if given is True or (given is not None and given is not False and items):
                parts.append(f"--{name.replace('_', '-')}")
                parts += [shlex.quote(str(item)) for item in items if item is not True]
    return " ".join(parts)


def _options(settings: Any, *without: str) -> dict[str, Any]:
    """All settings of a stage as options, without those that its command does not have."""
    return {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in without}


def _train(context: StageContext) -> StageResult:
    """A new run, or one that goes on from its last checkpoint."""
    from plaudit.methods.registry import run_method
    from plaudit.methods.run import CHECKS_FILE

    config, name = context.config(), context.stage.kind.name
    run_method(name, config)
    # A run, or those that it is made of: members of an ensemble, rounds of a loop.
    runs = [
        path.parent for path in sorted(config.out.rglob("summary.json")) if "checkpoints" not in path.parts
    ]
    runs = [config.out] if config.out in runs else runs
    sentences = [sentence for run in runs for sentence in _run_sentences(run, config.out)]
    checks = {
        check["name"]: check for run in runs for check in _read_json(run / CHECKS_FILE).get("checks", [])
    }
    return StageResult(
        sentences=tuple(dict.fromkeys(sentences)),
        command=command_line("plaudit train", name, config=config.out / "config.yaml"),
        checks=tuple(checks.values()),
    )


def _run_sentences(run: Path, out: Path) -> list[str]:
    """What a run has come to, and what it says of itself."""
    summary = _read_json(run / "summary.json")
    last, prefix = summary.get("last", {}), "" if run == out else f"{run.relative_to(out)}: "
    names = ("held_out/judge", "held_out/reward", "held_out/accuracy", "held_out/loss", "loss")
    metrics = [
        f"{name.replace('held_out/', 'held-out ')} {last[name]:.3f}" for name in names if last.get(name)
    ]
    has_figures = metrics and "step" in summary
    figures = [f"{prefix}{summary['step']} steps: {', '.join(metrics)}"] if has_figures else []
    return [*figures, *summary.get("notes", [])]


def _read_json(path: Path) -> dict[str, Any]:
    """A file that a run has written; nothing where it writes none."""
    if not path.exists():
        return {}
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _make_world_rows(context: StageContext) -> StageResult:
    settings: RowRequest = context.config()
    path = context.stage_folder / "rows.jsonl"
    sentence = settings.sentence(write_requested_rows(settings, path))
    options = {**_options(settings, "make"), "category": [*settings.category]}
    return StageResult(
        sentences=(sentence,), command=command_line("plaudit world make", settings.make, out=path, **options)
    )


def _import_rows(context: StageContext) -> StageResult:
    settings: RowsSettings = context.config()
    sentences = convert_rows(settings, context.stage_folder)
    words, options = (
        (settings.data, context.stage_folder / "rows.jsonl"),
        _options(settings, "data", "n", "seed"),
    )
    return StageResult(sentences=sentences, command=command_line("plaudit data convert", *words, **options))


def _combine(context: StageContext) -> StageResult:
    settings: CombineSettings = context.config()
    inputs, folder = context.stage.inputs, context.stage_folder
    if settings.policy is not None:
        words = (*inputs["policy"], *inputs.get("reference", ()))
        sentence = write_implicit(settings, folder, tuple(map(context.display_name, words)))
        options = {"policy": settings.policy, "reference": settings.reference, "beta": settings.scale}
        command = command_line("plaudit combine implicit", **options, out=folder)
        return StageResult(sentences=(sentence,), command=command)
    write_combination(settings, folder)
    options = {
        "how": settings.how,
        "weights": [*settings.weights],
        "k": settings.deviations,
        "normalise": settings.normalise,
    }
    return StageResult(
        sentences=(f"{settings.how} of {', '.join(map(context.display_name, inputs['members']))}",),
        command=command_line("plaudit combine rewards", *settings.members, **options, out=folder),
    )


def _evaluate(context: StageContext) -> StageResult:
    """Policies compared on prompts that none of them was trained on, as ``plaudit eval policy`` does."""
    settings: EvaluateSettings = context.config()
    names = map(context.display_name, context.stage.inputs["policies"])
    models = dict(zip(names, map(Path, settings.policies), strict=True))
    evaluation = evaluate_requested_policies(settings, models, on_progress=print)
    write_policy_evaluation(evaluation, context.stage_folder)
    each = "an answer" if evaluation.answers == 1 else f"{evaluation.answers} answers"
    overview = f"{evaluation.prompts} prompts, {each} of every policy to each; {evaluation.sampling}"
    win_rates = (
        f"{contest.policy} is preferred to {contest.against} by {contest.judge} in {contest.raw.value:.1%} "
        f"({contest.raw.low:.1%} to {contest.raw.high:.1%})"
        for contest in evaluation.contests
        if contest.raw is not None
    )
    is_world = settings.prompts is None
    options = _options(settings, "policies", "gold", *(() if is_world else ("split",)))
    command = command_line(
        "plaudit eval policy", *settings.policies, world=is_world, **options, out=context.stage_folder
    )
    return StageResult(sentences=(overview, *win_rates, *evaluation.notes), command=command)


def _judge_rewards(context: StageContext) -> StageResult:
    """Rewards on comparisons that none of them was trained on, as ``plaudit eval reward`` does."""
    settings: JudgeRewardSettings = context.config()
    names = [context.display_name(word) for word in context.stage.inputs["models"]]
    evaluations, notes = evaluate_requested_rewards(settings, names)
    write_reward_evaluations(evaluations, context.stage_folder)
    accuracies = ", ".join(
        f"{one.evaluation.model}: {one.evaluation.accuracy.value:.1%} right"
        for one in evaluations
        if one.evaluation.accuracy is not None
    )
    options = _options(settings, "models")
    command = command_line("plaudit eval reward", *settings.models, **options, out=context.stage_folder)
    return StageResult(sentences=(accuracies or "no verdict on any pair", *notes), command=command)


_ACTIONS: Mapping[str, Callable[[StageContext], StageResult]] = {
    "world-rows": _make_world_rows,
    "rows": _import_rows,
    "combine": _combine,
    "evaluate": _evaluate,
    "judge-reward": _judge_rewards,
}
"""The kinds that train nothing."""
