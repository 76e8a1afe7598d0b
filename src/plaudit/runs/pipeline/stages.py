"""One stage carried out: what each kind does, with its results sealed and the command that does the same."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plaudit.collect.waiting import WAIT_FILE, Wait
from plaudit.data.write import RowsSettings, convert_rows
from plaudit.errors import UserError, WaitingError
from plaudit.evaluation.policies import WRITTEN
from plaudit.evaluation.policies.generate import Contestant, prompted_policy
from plaudit.evaluation.policies.result import write_agreements, write_policy_evaluation
from plaudit.evaluation.run import evaluate_requested_policies, evaluate_requested_rewards
from plaudit.evaluation.settings import EvaluateSettings, JudgeRewardSettings
from plaudit.feedback.attack_run import attack, parties_of, read_attack_rows, write_attack_result
from plaudit.feedback.attacking import AttackSettings
from plaudit.feedback.judging import JudgeRowsSettings
from plaudit.feedback.revised_rows import (
    RevisionFiles,
    prepare_revising,
    revision_figures,
    write_revisions,
)
from plaudit.feedback.revising import ReviseSettings
from plaudit.feedback.row_judging import prepare_judging, write_judged_rows
from plaudit.files import atomic, exact_json
from plaudit.lab.world.wanted import RowRequest, write_requested_rows
from plaudit.methods.registry import run_method
from plaudit.methods.run import CHECKS_FILE
from plaudit.rewards.combine.request import CombineSettings, write_combination, write_implicit
from plaudit.runs.pipeline.collecting import CollectSettings, Place, collect
from plaudit.runs.pipeline.spec import FIELD_NAMES, Stage
from plaudit.runs.pipeline.status import GOES_ON, PipelineContext, StageKey, can_resume, store_of
from plaudit.runs.pipeline.store import (
    INVITES_FOLDER,
    LOG_FILE,
    MANIFEST_FILE,
    START_FILE,
    output_hashes,
    result_hash,
    running_code_version,
    set_aside,
)
from plaudit.runs.report.pipeline.attacks import attack_sentences
from plaudit.runs.report.reward_models.page import write_reward_evaluations
from plaudit.runs.report.words import with_minus


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What the action of a stage reports."""

    sentences: tuple[str, ...]
    command: str
    checks: tuple[Mapping[str, Any], ...] = ()
    """The checks that a training run made before it began."""


def run_stage(context: PipelineContext, stage: Stage, stage_key: StageKey, *, fresh: bool) -> str:
    """Carry out a stage and write its manifest; returns the hash of its result.

    Whatever ends the process, what is there then is either whole and sealed, or goes on, or is made anew.
    """
    stage_folder = context.folder.stage(stage.name)
    if fresh or not can_resume(context.folder, stage, stage_key.key):
        set_aside(context.folder, stage.name, stage_key.key)
    atomic.make_folder(stage_folder)
    began, start = _utc_now(), time.perf_counter()
    started = {"key": stage_key.key, "place": str(stage_folder), "began": began}
    atomic.write_json(stage_folder / START_FILE, started)
    waits_file = stage_folder / WAIT_FILE
    # A stage that waits says so anew: an old wait must not outlast what it waited for.
    waits_file.unlink(missing_ok=True)
    try:
        report = _run_action(context, stage)
    except WaitingError as waiting:
        waits = [wait.facts for wait in waiting.waits if isinstance(wait, Wait)]
        atomic.write_json(waits_file, waits)
        raise
    outputs = output_hashes(stage_folder)
    result = result_hash(stage.kind, stage_key.key, outputs)
    manifest = {
        "name": stage.name,
        "do": stage.kind.name,
        "settings": stage_key.settings,
        "needs": [*stage.needs],
        "inputs": {name: dict(input_) for name, input_ in stage_key.inputs.items()},
        "key": stage_key.key,
        "result": result,
        "outputs": outputs,
        "code": dict(running_code_version()),
        "seconds": round(time.perf_counter() - start, 3),
        "began": began,
        "ended": _utc_now(),
        "command": report.command,
        "summary": [*report.sentences],
        "checks": [dict(check) for check in report.checks],
    }
    # The manifest is the seal: it is written last, so a stage without one is never taken as finished.
    atomic.write_json(stage_folder / MANIFEST_FILE, manifest)
    return result


def _run_action(context: PipelineContext, stage: Stage) -> StageResult:
    """Whatever is printed goes to the stage's own file, and a fault is told with the stage's name."""
    out, kind = context.folder.stage(stage.name), stage.kind.name
    name = f"stage {stage.name} ({kind})"
    with (
        (out / LOG_FILE).open("a", encoding="utf-8", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            settings = context.config(stage)
            return (
                _train(kind, settings) if stage.kind.trains else _ACTIONS[kind](settings, out, stage, context)
            )
        # Before the errors of users, of which it is one: it keeps what is missing, and is no fault.
        except WaitingError as waiting:
            raise WaitingError(f"{name}: {waiting}", *waiting.waits) from waiting
        except UserError as error:
            raise UserError(f"{name}: {error}\nWhat {GOES_ON}") from error
        except Exception as error:
            error.add_note(f"in {name}; what {GOES_ON}")
            raise


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def command_line(verb: str, *words: object, **options: object) -> str:
    """A command as it is typed; an option of None, False or nothing is left out, and a switch has no value.

    A list is one option with several words, a tuple an option that is there several times.

    >>> command_line("plaudit world make", "prompts", n=None, seed=0, out="my rows.jsonl")
    "plaudit world make prompts --seed 0 --out 'my rows.jsonl'"
    """
    parts = [verb, *(shlex.quote(str(word)) for word in words)]
    for name, value in options.items():
        for given in value if isinstance(value, tuple) else (value,):
            items = given if isinstance(given, list) else [given]
            if items and given is not None and given is not False:
                parts.append(f"--{name.replace('_', '-')}")
                parts += [shlex.quote(str(item)) for item in items if item is not True]
    return " ".join(parts)


def _options(settings: Any, *without: str) -> dict[str, Any]:
    """All settings of a stage as options, without those that its command does not have."""
    options = {
        field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in without
    }
    # These take several words at once.
    return options | {name: [*options[name]] for name in FIELD_NAMES if name in options}


def _train(name: str, config: Any) -> StageResult:
    """A new run, or one that goes on from its last checkpoint."""
    run_method(name, config)
    # A run, or those that it is made of: members of an ensemble, rounds of a loop.
    summaries = sorted(config.out.rglob("summary.json"))
    runs = [path.parent for path in summaries if "checkpoints" not in path.parts]
    runs = [config.out] if config.out in runs else runs
    sentences = [sentence for run in runs for sentence in _run_sentences(run, config.out)]
    checks = [check for run in runs for check in _read_json(run / CHECKS_FILE).get("checks", [])]
    return StageResult(
        sentences=tuple(dict.fromkeys(sentences)),
        command=command_line("plaudit train", name, config=config.out / "config.yaml"),
        checks=tuple({check["name"]: check for check in checks}.values()),
    )


def _run_sentences(run: Path, out: Path) -> list[str]:
    """The last figures of a run, and its notes."""
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
    """A file that a run has written; nothing where it writes none."""
    try:
        return exact_json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _make_world_rows(settings: RowRequest, out: Path, *_: object) -> StageResult:
    path = out / "rows.jsonl"
    sentences = write_requested_rows(settings, path)
    options = {**_options(settings, "make"), "category": [*settings.category]}
    command = command_line("plaudit world make", settings.make, out=path, **options)
    return StageResult(sentences=sentences, command=command)


def _import_rows(settings: RowsSettings, out: Path, *_: object) -> StageResult:
    sentences = convert_rows(settings, out)
    options = _options(settings, "data", "n", "seed")
    command = command_line("plaudit data convert", settings.data, out / "rows.jsonl", **options)
    return StageResult(sentences=sentences, command=command)


def _combine(settings: CombineSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    names = {key: [*map(context.display_name, words)] for key, words in stage.inputs.items()}
    if settings.policy is not None:
        sentence = write_implicit(settings, out, (*names["policy"], *names.get("reference", ())))
        options = {"policy": settings.policy, "reference": settings.reference, "beta": settings.scale}
        command = command_line("plaudit combine implicit", **options, out=out)
    else:
        write_combination(settings, out)
        sentence = f"{settings.how} of {', '.join(names['members'])}"
        options = {"how": settings.how, "weights": [*settings.weights], "k": settings.deviations}
        options |= {"normalise": settings.normalise, "device": settings.device, "out": out}
        command = command_line("plaudit combine rewards", *settings.members, **options)
    return StageResult(sentences=(sentence,), command=command)


def _evaluate(settings: EvaluateSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    """Policies compared on prompts that none of them was trained on, as ``plaudit eval policy`` does."""
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
    options = _options(settings, "policies", "gold", *(() if is_world else ("split",)))
    command = command_line("plaudit eval policy", *settings.policies, world=is_world, **options, out=out)
    return StageResult(sentences=(overview, *win_rates, *evaluation.notes), command=command)


def _judge_rewards(
    settings: JudgeRewardSettings, out: Path, stage: Stage, context: PipelineContext
) -> StageResult:
    """Rewards on comparisons that none of them was trained on, as ``plaudit eval reward`` does."""
    names = [context.display_name(word) for word in stage.inputs["models"]]
    found = evaluate_requested_rewards(settings, names)
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
    options = _options(settings, "models")
    command = command_line("plaudit eval reward", *settings.models, **options, out=out)
    return StageResult(sentences=(figures or "no verdict on any pair", *found.notes), command=command)


def _attack(settings: AttackSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    """Policies attacked beside what they should not refuse, as ``plaudit attack`` does."""
    # A model on a server is called by its name there.
    words = stage.inputs["targets"]
    names = [word.rpartition("#")[2] if "://" in word else context.display_name(word) for word in words]
    rows, parties = read_attack_rows(settings), parties_of(settings, names)
    result = attack(settings, rows, parties, on_progress=print)
    write_attack_result(result, out)
    options = {**_options(settings, "targets", "prompts"), "model": settings.targets}
    prompts = () if settings.prompts is None else (settings.prompts,)
    command = command_line("plaudit attack", *prompts, **options, out=out)
    report = result.report
    sentences = (" ".join(attack_sentences(report)), *report.missing, *report.notes)
    return StageResult(sentences=sentences, command=command)


def _judge(settings: JudgeRowsSettings, out: Path, *_: object) -> StageResult:
    """Answers judged by a model, as ``plaudit judge`` does."""
    ready = prepare_judging(settings)
    print("\n".join((*ready.notes, ready.estimate())))
    judged = ready.run()
    write_judged_rows(judged, out / "rows.jsonl")
    options = _options(settings, "by", "data", "prompts")
    source = settings.data or settings.prompts
    command = command_line("plaudit judge", source, by=settings.by, **options, out=out / "rows.jsonl")
    made = f"{len(judged.rows)} rows by {ready.judging.actor}"
    sentences = (made, *ready.notes, *judged.sentences, *ready.end_notes)
    return StageResult(sentences=sentences, command=command)


def _revise(settings: ReviseSettings, out: Path, *_: object) -> StageResult:
    """Answers criticised and written anew, as ``plaudit revise`` does; rows of the kind that is not given
    lie beside those that are.
    """
    revising = prepare_revising(settings)
    revisions = revising.run()
    figures = revision_figures(revising, revisions, settings.marks)
    write_revisions(revising, revisions, figures, RevisionFiles.in_folder(out, settings.give))
    lines = [*revising.notes, *figures.lines()]
    print("\n".join(lines))
    options = _options(settings, "data", "prompts", "give")
    options["out" if settings.give == "demonstrations" else "pairs"] = out / "rows.jsonl"
    command = command_line("plaudit revise", settings.data or settings.prompts, **options)
    return StageResult(sentences=(*revising.notes, *figures.sentences), command=command)


def _collect(settings: CollectSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    """Answers judged by people, who are waited for, or by simulated ones."""
    place = Place(
        name=stage.name,
        folder=out,
        store=store_of(context.folder, stage),
        invites=context.folder.path / INVITES_FOLDER,
        model="".join(map(context.display_name, stage.inputs.get("model", ()))),
        hash_of=context.fingerprints.hash_of,
    )
    snapshot, sentences = collect(settings, place)
    options = {"store": snapshot.store, "project": snapshot.project, "out": out / "rows.jsonl"}
    command = command_line("plaudit collect export", **options, position=snapshot.seq)
    return StageResult(sentences=sentences, command=command)


_ACTIONS: Mapping[str, Callable[..., StageResult]] = {
    "world-rows": _make_world_rows,
    "rows": _import_rows,
    "combine": _combine,
    "evaluate": _evaluate,
    "judge-reward": _judge_rewards,
    "judge": _judge,
    "attack": _attack,
    "revise": _revise,
    "collect": _collect,
}
"""The kinds that train nothing; each gets its settings, its folder, the stage and the pipeline."""
