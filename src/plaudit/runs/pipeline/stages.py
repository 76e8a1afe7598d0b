"""The kinds of stages: what wings register, and every method of training; rows, rewards and evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from plaudit.config import all_settings
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Record
from plaudit.data.transforms import preferred_demonstration, some_of
from plaudit.data.write import write_records
from plaudit.errors import UserError, located
from plaudit.evaluation.policies import WRITTEN, PolicyWord
from plaudit.files import exact_json
from plaudit.methods.registry import TABLES, TRAINING_INPUTS, config_types, preflight_methods, run_method
from plaudit.runs.pipeline.kinds import MODEL, REWARD, ROWS, StageKind, StageResult, command_line, options_of
from plaudit.runs.pipeline.settings import (
    CombineSettings,
    EvaluateSettings,
    JudgeRewardSettings,
    RowsSettings,
)
from plaudit.wings import everything, load

if TYPE_CHECKING:
    from plaudit.methods.iterative.config import RlhfConfig
    from plaudit.methods.preference.config import PreferenceConfig
    from plaudit.runs.pipeline.spec import Stage
    from plaudit.runs.pipeline.status import PipelineContext

_REWARD_METHODS = ("reward", "text-reward", "ranker", "critic")
_TABLE_WEIGHTS = {
    "Preference optimisation": 30,
    "Policy optimisation": 90,
    "Loops that make their own rows": 120,
}


@cache
def stage_kinds() -> Mapping[str, StageKind]:
    """All kinds of stages by name: those of the wings, then every training method."""
    kinds: dict[str, StageKind] = {name: load(place) for name, place in everything("stages").items()}
    weights = {name: _TABLE_WEIGHTS[table.title] for table in TABLES for name in table.rows}
    for name, config in config_types().items():
        leaves = {setting.key for setting in all_settings(config) if setting.group is None}
        kinds[name] = StageKind(
            name=name,
            produces="reward" if name in _REWARD_METHODS else "groups" if name == "group" else "model",
            settings=config,
            accepts={key: types for key, types in TRAINING_INPUTS.items() if key in leaves},
            run=_train,
            weight=weights.get(name, 120 if name == "rlhf" else 20),
            check=partial(_check_training, name),
            cost=_training_cost,
            trains=True,
        )
    return kinds


def _train(config: Any, _: Path, stage: Stage, __: PipelineContext) -> StageResult:
    from plaudit.methods.run import CHECKS_FILE

    run_method(stage.kind.name, config)
    # A run, or those that it is made of: members of an ensemble, rounds of a loop.
    summaries = sorted(config.out.rglob("summary.json"))
    runs = [path.parent for path in summaries if "checkpoints" not in path.parts]
    runs = [config.out] if config.out in runs else runs
    sentences = [sentence for run in runs for sentence in _run_sentences(run, config.out)]
    checks = [check for run in runs for check in _read_json(run / CHECKS_FILE).get("checks", [])]
    return StageResult(
        sentences=tuple(dict.fromkeys(sentences)),
        command=command_line("plaudit train", stage.kind.name, config=config.out / "config.yaml"),
        checks=tuple({check["name"]: check for check in checks}.values()),
    )


def _run_sentences(run: Path, out: Path) -> list[str]:
    from plaudit.runs.report.words import with_minus

    summary = _read_json(run / "summary.json")
    prefix = "" if run == out else f"{run.relative_to(out)}: "
    # The result may be the model of an earlier look than the last: held-out figures are that one's.
    selected = summary.get("selected") or {"values": {}}
    last = {**summary.get("last", {}), **selected["values"]}
    of_step = f", of which step {selected['step']} is kept" if "step" in selected else ""
    names = ("held_out/judge", "held_out/reward", "held_out/accuracy", "held_out/loss", "loss")
    metrics = ", ".join(
        f"{name.replace('held_out/', 'held-out ')} {with_minus(format(last[name], '.3f'))}"
        for name in names
        if last.get(name)
    )
    figures = (
        [f"{prefix}{summary['step']} steps{of_step}: {metrics}"] if metrics and "step" in summary else []
    )
    return [*figures, *summary.get("notes", [])]


def _read_json(path: Path) -> dict[str, Any]:
    # A file that a run has written; nothing where it writes none.
    with located(f"{path}: cannot be read", ValueError):
        return exact_json.loads(path.read_bytes()) if path.exists() else {}


def _training_cost(context: PipelineContext, stage: Stage) -> Iterator[str]:
    if stage.kind.name not in preflight_methods():
        yield "it is made of other runs: plaudit plan tells the cost of each"
        return
    from plaudit.runs.planner.render import cost_sentences

    # Rows of several sources are joined for the count alone; a dry run leaves nothing behind.
    with TemporaryDirectory() as joined:
        yield from cost_sentences(stage.kind.name, context.config(stage, Path(joined)))


def _check_training(name: str, config: Any) -> None:
    from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
    from plaudit.methods.iterative.config import LoopConfig, RlhfConfig, resolve_settings
    from plaudit.methods.policy.config import PolicyConfig
    from plaudit.methods.policy.conflicts import configured_algorithm
    from plaudit.methods.preference.config import PreferenceConfig

    checks: Mapping[type, Callable[[], object]] = {
        PolicyConfig: lambda: configured_algorithm(name, config),
        PreferenceConfig: lambda: _check_preference(name, config),
        LoopConfig: lambda: resolve_settings(ITERATIVE_ALGORITHMS[name], config),
        RlhfConfig: lambda: _check_rlhf(config),
    }
    for config_type, check in checks.items():
        if isinstance(config, config_type):
            check()


def _check_preference(name: str, config: PreferenceConfig) -> None:
    from plaudit.methods.preference.config import configured_algorithm
    from plaudit.methods.reference import refuse_unused_reference_settings

    needs_reference = "reference" in configured_algorithm(name, config).needs
    refuse_unused_reference_settings(name, config.reference, referenced=needs_reference)


def _check_rlhf(config: RlhfConfig) -> None:
    from plaudit.methods.iterative.config import PEOPLE
    from plaudit.methods.iterative.rlhf import policy_config, rlhf_round
    from plaudit.methods.policy.conflicts import configured_algorithm
    from plaudit.methods.reward_model.losses import loss_name_for
    from plaudit.wings import offered

    configured_algorithm(config.loop.teach, policy_config(config, rlhf_round(config, 1)))
    if config.comparisons == PEOPLE:
        offered("refuse_without_database")()
    loss_name_for("comparisons", config.reward_run.reward)


def _import_rows(settings: RowsSettings, out: Path, *_: object) -> StageResult:
    result = read_records(
        settings.data,
        format=settings.format,
        threshold=settings.threshold,
        quarantine=out / "quarantine.jsonl",
        options=ReadOptions(
            ties=settings.ties,
            split=settings.split,
            columns=settings.columns,
            leave_out=settings.leave_out,
            safety=settings.safety,
            unsafe=settings.unsafe,
        ),
    )
    sentences = [f"{count} × {reason} left out" for reason, count in result.left_out.items()]
    if result.quarantine is not None:
        sentences.append(
            f"{len(result.problems)} of {result.rows} rows are bad; they are in {result.quarantine}"
        )
    records: Sequence[Record] = result.records
    if settings.preferred:
        records = tuple(filter(None, map(preferred_demonstration, records)))
        missing = len(result.records) - len(records)
        sentences.append(f"{missing} of {len(result.records)} records prefer nothing")
    output = write_records(some_of(records, settings.n, f"rows {settings.seed}"), out / "rows.jsonl")
    sentences = [f"{output.rows} rows", result.format_sentence, *sentences]
    options = options_of(settings, "data", "n", "seed")
    command = command_line("plaudit data convert", settings.data, out / "rows.jsonl", **options)
    return StageResult(sentences=tuple(sentences), command=command)


def _combine(settings: CombineSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
    from plaudit.rewards.load import check_implicit

    names = {key: [*map(context.display_name, words)] for key, words in stage.inputs.items()}
    if settings.policy is not None:
        policies = ImplicitManifest(policy=settings.policy, reference=settings.reference, beta=settings.scale)
        check_implicit(policies)
        save_manifest(out, policies)
        sentence = policies.describe(*names["policy"], *names.get("reference", ()))
        options = {"policy": settings.policy, "reference": settings.reference, "beta": settings.scale}
        command = command_line("plaudit combine implicit", **options, out=out)
    else:
        _write_combination(settings, out)
        sentence = f"{settings.how} of {', '.join(names['members'])}"
        options = {"how": settings.how, "weights": [*settings.weights], "k": settings.deviations}
        options |= {
            "gate": settings.gate,
            "below": settings.below,
            "normalise": settings.normalise,
            "device": settings.device,
            "out": out,
        }
        command = command_line("plaudit combine rewards", *settings.members, **options)
    return StageResult(sentences=(sentence,), command=command)


def _write_combination(settings: CombineSettings, folder: Path) -> None:
    from plaudit.rewards.combine.aggregate import Combination
    from plaudit.rewards.combine.manifest import save_combination
    from plaudit.rewards.load import check_reward, fit_reward_normalisations

    assert settings.how != "implicit", "that one has no members"
    members = [Path(member) for member in settings.members]
    for member in members:
        check_reward(member)
    normalise, weights = settings.normalise, settings.weights or None
    normal = None
    if normalise is not None:
        normal = fit_reward_normalisations(members, normalise, device=settings.device)
    k = settings.deviations
    combination = Combination(
        how=settings.how, weights=weights, k=k, gate=settings.gate, below=settings.below, normal=normal
    )
    save_combination(folder, members, combination)


def _evaluate(settings: EvaluateSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    from plaudit.evaluation.policies.generate import Contestant, prompted_policy
    from plaudit.evaluation.policies.result import write_policy_evaluation
    from plaudit.runs.pipeline.evaluating import evaluate_requested_policies

    names = context.display_names(stage.inputs.get("policies", ()))
    folders = (None if word == WRITTEN else Path(word) for word in settings.policies)
    models = {name: Contestant(folder=folder) for name, folder in zip(names, folders, strict=True)}
    for name, contestant in map(prompted_policy, settings.policy):
        if name in models:
            raise UserError(f"policy: {name} is there already; give it another name")
        models[name] = contestant
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
    return StageResult(sentences=(overview, *win_rates, *evaluation.all_notes), command=command)


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
    from plaudit.runs.pipeline.evaluating import evaluate_requested_rewards
    from plaudit.runs.report.reward_models.page import write_reward_evaluations

    found = evaluate_requested_rewards(settings, context.display_names(stage.inputs["models"]))
    if found.rewards:
        write_reward_evaluations(found.rewards, out)
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


IMPORT_ROWS = StageKind(
    name="rows", produces="rows", settings=RowsSettings, accepts={"data": ROWS}, run=_import_rows, weight=2
)
COMBINE = StageKind(
    name="combine",
    produces="reward",
    settings=CombineSettings,
    accepts={"policy": MODEL, "reference": MODEL, "members": REWARD, "normalise": ROWS},
    run=_combine,
    weight=1,
)
EVALUATE = StageKind(
    name="evaluate",
    produces="evaluation",
    settings=EvaluateSettings,
    accepts={
        **dict.fromkeys(("policies", "against"), ("model",)),
        **dict.fromkeys(("judge", "reward"), ("reward",)),
        **{"prompts": ("rows",), "people": ("rows",), "choices": (), "right": (), "card": ()},
    },
    run=_evaluate,
    weight=20,
    check=_check_evaluation,
    words={"policies": (WRITTEN,), "against": (WRITTEN,)},
    prompted=True,
    divides=lambda settings: True,
)
JUDGE_REWARDS = StageKind(
    name="judge-reward",
    produces="evaluation",
    settings=JudgeRewardSettings,
    accepts={"models": ("reward",), "data": ("rows",)},
    run=_judge_rewards,
    divides=lambda settings: True,
)
