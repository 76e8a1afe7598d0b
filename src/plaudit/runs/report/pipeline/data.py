"""Reads a pipeline's folder, finished or not, into one frozen record that the page reads.

What cannot be read is named, with what to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from plaudit.data.read import read_records
from plaudit.data.records import plain_text
from plaudit.engine.sinks.files import METRICS_FILE
from plaudit.errors import UserError
from plaudit.evaluation.policies.result import (
    JUDGES_FILE,
    Contest,
    PolicyEvaluation,
    read_agreements,
    read_policy_evaluation,
)
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.files import exact_json
from plaudit.files.restored import restore
from plaudit.runs.pipeline.kinds import StageFindings, read_findings, section_files
from plaudit.runs.pipeline.store import WAIT_FILE
from plaudit.runs.report.run.data import RunData, foreign_content_refused, read_run_data

StageState = Literal["done", "begun", "people", "waiting"]
"""Whether a stage has ended, has left something and not ended, waits for people, or has left nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    name: str
    verdict: str
    """pass, FAIL, allowed or not applicable."""
    finding: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInput:
    name: str
    source: str
    hash: str
    from_stage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSnapshot:
    """Where the labels of a file of rows come from."""

    rows: str
    store: str
    project: str
    position: int
    """The number of the last event of the store's log that the rows are of."""
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageData:
    name: str
    number: int
    kind: str
    """Its kind: world-rows, sft, ppo, evaluate …"""
    state: StageState
    folder: Path
    needs: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    inputs: tuple[StageInput, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Each file or folder that came out, with its sha256."""
    key: str = ""
    result: str = ""
    """The sha256 of what the stages below read."""
    code: Mapping[str, object] = field(default_factory=dict[str, object])
    seconds: float | None = None
    ended: str = ""
    missing: str = ""
    """Of a stage that waits for people: which labels were missing when it was asked last."""
    snapshots: tuple[LabelSnapshot, ...] = ()
    command: str = ""
    summary_lines: tuple[str, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    training_run: RunData | None = None
    policy_evaluation: PolicyEvaluation | None = None
    reward_evaluations: tuple[RewardEvaluation, ...] = ()
    agreements: tuple[Contest, ...] = ()
    """Of judges that were compared with people: how far each agrees with them."""
    findings: Mapping[str, StageFindings] = field(default_factory=dict[str, StageFindings])
    """What sections of wings show of it, by the anchor of each."""
    changed_files: tuple[str, ...] = ()
    """Files that the page reads and that are not as the stage left them."""

    @property
    def anchor(self) -> str:
        """The anchor of the part of the page that says where it comes from."""
        return f"stage-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPrompts:
    """What the training stages of a pipeline learnt from."""

    prompts: frozenset[str]
    """The words of all prompts, as far as their files are still there."""
    complete: bool
    """Whether there was a file of rows, and each could be read."""


@dataclass(frozen=True, kw_only=True)
class PipelineData:
    path: Path
    name: str
    config: str
    stages: tuple[StageData, ...]

    @property
    def finished(self) -> bool:
        return all(stage.state == "done" for stage in self.stages)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def evaluation_stage(self) -> StageData | None:
        """The last stage that compared policies."""
        return next((stage for stage in reversed(self.stages) if stage.policy_evaluation is not None), None)

    @property
    def evaluation(self) -> PolicyEvaluation | None:
        return self.evaluation_stage.policy_evaluation if self.evaluation_stage else None

    @property
    def training_stages(self) -> Iterator[tuple[StageData, RunData]]:
        return ((stage, stage.training_run) for stage in self.stages if stage.training_run is not None)

    @cached_property
    def trained_prompts(self) -> TrainedPrompts:
        """All prompts that a training stage learnt from; their files are read once."""
        stages = {stage.name: stage for stage in self.stages}
        files: set[Path] = set()
        for stage, _ in self.training_stages:
            for entry in stage.inputs:
                made = stages.get(entry.source) if entry.from_stage else None
                if made is not None:
                    files |= {made.folder / name for name in made.outputs if name.endswith(_ROWS_ENDING)}
                elif not entry.from_stage and entry.name in _ROW_INPUTS:
                    files.add(Path(entry.source))
        found = [_prompts_of(file) for file in sorted(files)]
        return TrainedPrompts(
            prompts=frozenset(prompt for prompts in found for prompt in prompts or ()),
            complete=bool(found) and None not in found,
        )


def _prompts_of(file: Path) -> set[str] | None:
    try:
        records = read_records(file, threshold=1.0).records
    except UserError:
        # Moved, or changed since: what the stage itself read is no longer known here.
        return None
    return {plain_text(record.prompt) for record in records if record.prompt is not None}


_ROWS_ENDING = "rows.jsonl"
"""What files of rows that a stage makes are called."""
_SNAPSHOT_ENDING = ".snapshot.json"
"""What the snapshot of a file of rows of labels is called, behind the file's name."""
_ROW_INPUTS = frozenset({"data", "prompts"})
CONFIG_FILE, STAGES_FOLDER, STAGE_FILE = "pipeline.yaml", "stages", "stage.json"
POLICY_RESULTS_FILE, REWARD_RESULTS_FILE = "policies.json", "summary.json"
_FILES_READ = (POLICY_RESULTS_FILE, REWARD_RESULTS_FILE, JUDGES_FILE, f"run/{METRICS_FILE}")
_RESTORE_HINT = "Restore it, or delete it and give the pipeline's command again."


def is_pipeline(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file() or (folder / STAGES_FOLDER).is_dir()


def is_evaluation(folder: Path) -> bool:
    """Whether this is what ``eval policy --out``, ``eval reward`` of judges, or a verb of a wing leaves."""
    files = (POLICY_RESULTS_FILE, JUDGES_FILE, *section_files())
    return any((folder / name).is_file() for name in files)


def read_pipeline_folder(folder: Path) -> PipelineData:
    """Reads the folder of a pipeline or of a lone evaluation, finished or not."""
    if is_pipeline(folder):
        planned = _planned_stages(folder / CONFIG_FILE)
        # Stages that were run and are planned no more: what they left still lies here.
        unplanned = {
            path.parent.name: {} for path in sorted((folder / STAGES_FOLDER).glob(f"*/{STAGE_FILE}"))
        }
        all_stages = planned | {name: settings for name, settings in unplanned.items() if name not in planned}
        if not all_stages:
            raise UserError(
                f"{folder}: no stage is planned here, and none has been run. Name another folder."
            )
        stages = [
            _read_stage(folder, number, *stage) for number, stage in enumerate(all_stages.items(), start=1)
        ]
    elif is_evaluation(folder):
        stages = [_lone_evaluation(folder)]
    else:
        raise UserError(
            f"{folder}: neither a pipeline (it has no {CONFIG_FILE}), nor a run (no config.yaml), nor an "
            f"evaluation (no {POLICY_RESULTS_FILE}). Name the folder that was `--out`."
        )
    config = _read_text(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else ""
    return PipelineData(path=folder, name=folder.resolve().name, config=config, stages=tuple(stages))


def read_json(path: Path) -> Any:
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: this is no JSON that plaudit wrote ({error}). {_RESTORE_HINT}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). {_RESTORE_HINT}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}). {_RESTORE_HINT}") from error


def _planned_stages(path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    text = _read_text(path)
    with foreign_content_refused(f"{path}: not a pipeline's config ({{}}). {_RESTORE_HINT}"):
        entries = yaml.safe_load(text)["stages"]
        return {str(name): dict(settings) for entry in entries for name, settings in entry.items()}


def _read_stage(pipeline_folder: Path, number: int, name: str, planned: Mapping[str, Any]) -> StageData:
    folder = pipeline_folder / STAGES_FOLDER / name
    # A config is text from elsewhere: a name like ../x must not make the page read outside of its folder.
    if folder.resolve().parent != (pipeline_folder / STAGES_FOLDER).resolve():
        raise UserError(
            f"{pipeline_folder / CONFIG_FILE}: {name!r} is no name of a stage: it leads out of "
            f"{pipeline_folder / STAGES_FOLDER}."
        )
    if not (folder / STAGE_FILE).is_file():
        return _unfinished_stage(folder, number, name, planned)
    record = read_json(folder / STAGE_FILE)
    not_ours = f"{folder / STAGE_FILE}: not a stage that plaudit wrote ({{}}). {_RESTORE_HINT}"
    with foreign_content_refused(not_ours):
        return _finished_stage(folder, number, record)


def _finished_stage(folder: Path, number: int, record: Mapping[str, Any]) -> StageData:
    outputs = {str(name): str(digest) for name, digest in record["outputs"].items()}
    seconds = record.get("seconds")
    return StageData(
        name=folder.name,
        number=number,
        kind=str(record["do"]),
        state="done",
        folder=folder,
        needs=tuple(map(str, record.get("needs", ()))),
        settings=dict(record.get("settings", {})),
        inputs=tuple(_stage_input(str(name), entry) for name, entry in record.get("inputs", {}).items()),
        outputs=outputs,
        key=str(record.get("key", "")),
        result=str(record.get("result", "")),
        code=dict(record.get("code", {})),
        seconds=None if seconds is None else float(seconds),
        ended=str(record.get("ended", "")),
        command=str(record.get("command") or ""),
        summary_lines=tuple(map(str, record.get("summary", record.get("said", ())))),
        checks=tuple(_stage_check(check) for check in record.get("checks", ())),
        training_run=_training_run(folder / "run"),
        policy_evaluation=_read_policy_evaluation(folder),
        reward_evaluations=_read_reward_evaluations(folder),
        agreements=read_agreements(folder),
        findings=read_findings(folder),
        snapshots=tuple(_label_snapshots(folder, outputs)),
        changed_files=tuple(
            name for name in (*_FILES_READ, *section_files()) if _is_changed(folder / name, outputs.get(name))
        ),
    )


def _unfinished_stage(folder: Path, number: int, name: str, planned: Mapping[str, Any]) -> StageData:
    state: StageState = "begun" if folder.is_dir() and any(folder.iterdir()) else "waiting"
    missing = _missing_labels(folder)
    needs = dict.fromkeys(_referenced_stages(planned))
    return StageData(
        name=name,
        number=number,
        kind=str(planned.get("do", "")),
        state="people" if missing else state,
        missing=missing,
        folder=folder,
        needs=tuple(needs),
        settings={key: value for key, value in planned.items() if key != "do"},
        training_run=_training_run(folder / "run"),
    )


def _missing_labels(folder: Path) -> str:
    path = folder / WAIT_FILE
    if not path.is_file():
        return ""
    with foreign_content_refused(f"{path}: not what plaudit wrote ({{}}). {_RESTORE_HINT}"):
        return "; ".join(str(wait["sentence"]) for wait in read_json(path))


def _label_snapshots(folder: Path, outputs: Mapping[str, str]) -> Iterator[LabelSnapshot]:
    for name in outputs:
        path = folder / name
        if not name.endswith(_SNAPSHOT_ENDING) or not path.is_file():
            continue
        facts = read_json(path)
        yield LabelSnapshot(
            rows=name.removesuffix(_SNAPSHOT_ENDING) + ".jsonl",
            store=str(facts["store"]),
            project=str(facts["project"]),
            position=int(facts["seq"]),
            link=str(facts["link"]),
        )


def _lone_evaluation(folder: Path) -> StageData:
    name = folder.resolve().name
    return replace(
        _unfinished_stage(folder, 1, name, {"do": "evaluate"}),
        state="done",
        policy_evaluation=_read_policy_evaluation(folder),
        reward_evaluations=_read_reward_evaluations(folder),
        agreements=read_agreements(folder),
        findings=read_findings(folder),
    )


def _referenced_stages(settings: object) -> Iterator[str]:
    if isinstance(settings, str) and settings.startswith("$"):
        yield settings[1:]
    elif isinstance(settings, Mapping | list):
        for nested in settings.values() if isinstance(settings, Mapping) else settings:
            yield from _referenced_stages(nested)


def _stage_input(name: str, record: Mapping[str, Any]) -> StageInput:
    from_stage = "from" in record
    source = record["from"] if from_stage else record.get("path", "")
    return StageInput(name=name, source=str(source), hash=str(record.get("hash", "")), from_stage=from_stage)


def _stage_check(record: Mapping[str, Any]) -> CheckOutcome:
    return CheckOutcome(
        name=str(record["name"]),
        verdict=str(record["verdict"]),
        finding=str(record.get("finding", record.get("saw", ""))),
        remedy=str(record.get("mend", "")),
    )


def _training_run(folder: Path) -> RunData | None:
    """The facts of a training stage's run: of the first member of an ensemble, or of the last policy of
    several rounds."""
    # By length first, so that round 10 comes behind round 9.
    round_policies = sorted(folder.glob("rounds/*/policy"), key=lambda path: (len(path.parent.name), path))
    for candidate in (folder, *sorted(folder.glob("members/*")), *reversed(round_policies)):
        if (candidate / METRICS_FILE).is_file() and (candidate / "config.yaml").is_file():
            return read_run_data(candidate)
    return None


def _read_policy_evaluation(folder: Path) -> PolicyEvaluation | None:
    path = folder / POLICY_RESULTS_FILE
    return read_policy_evaluation(path) if path.is_file() else None


def _read_reward_evaluations(folder: Path) -> tuple[RewardEvaluation, ...]:
    path = folder / REWARD_RESULTS_FILE
    if not path.is_file() or not (folder / "scores.jsonl").is_file():
        return ()
    with foreign_content_refused(f"{path}: not what plaudit eval reward wrote ({{}}). {_RESTORE_HINT}"):
        return tuple(restore(RewardEvaluation, record) for record in read_json(path)["evaluations"])


def _is_changed(path: Path, digest: str | None) -> bool:
    if digest is None or not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != digest
