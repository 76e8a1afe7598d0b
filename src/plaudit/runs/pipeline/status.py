"""What decides the result of a stage, where it stands (finished, half done, to be run), how long it takes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from plaudit.config import SettingPath, all_settings, convert, did_you_mean, to_plain_data
from plaudit.data.read import read_records
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies import PolicyWord
from plaudit.files import exact_json
from plaudit.methods.iterative.config import PEOPLE, RlhfConfig
from plaudit.rewards.word_files import content_hash, first_path
from plaudit.runs.pipeline import spec, store

GOES_ON = "is finished is kept, and the same command goes on from here"
"""What a fault ends with, after "What"."""
RESULT_NEUTRAL_SETTINGS = (
    *("allow", "check", "device", "keep.last", "memory", "out", "reference.cache"),
    *("sample", "sample_every", "save_every", "sinks", "loop.project", "loop.store"),
)
"""Settings of training that leave the result as it is; all of them may change when a run goes on."""

# A device decides how fast a result is there and how it is rounded, not what it is of; labels are the same in
# whichever store they lie, and replies whatever may be spent on them and wherever they are kept.
_NEUTRAL_WITHOUT_TRAINING = ("cache", "device", "most_money", "price", "requests", "store", "token_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    """A pipeline in its folder, with the hashes of the files that it reads.

    Example: ``PipelineContext.of(folder, pipeline)``
    """

    folder: store.PipelineFolder
    """Where it runs, and what is there already."""
    pipeline: spec.Pipeline
    """The stages that the file describes."""
    fingerprints: store.Fingerprints
    """The content hashes of the files and folders that it reads from outside."""

    @classmethod
    def of(cls, folder: store.PipelineFolder, pipeline: spec.Pipeline) -> PipelineContext:
        """With the hashes that were computed in an earlier run."""
        stored = folder.path / "fingerprints.json"
        return cls(folder=folder, pipeline=pipeline, fingerprints=store.Fingerprints(stored))

    def config(self, stage: spec.Stage, joined: Path | None = None) -> Any:
        """The settings record of a stage's kind, with references replaced by paths.

        Rows of several sources become one file in ``joined``, by default the stage's folder.
        """
        joined = joined or self.folder.stage(stage.name)
        values: dict[SettingPath, object] = {}
        for setting in all_settings(stage.kind.settings):
            words = [
                self._input_value(word, stage.kind.accepts[setting.key], setting.key)
                for word in stage.inputs.get(setting.key, ())
            ]
            if words:
                takes_list = isinstance(stage.values[setting.path], tuple)
                value = words if takes_list else _one_file(words, joined, setting.key)
                values[setting.path] = convert(value, setting.value_type)
        values |= self._people_values(stage)
        if spec.PROMPTED in stage.inputs:
            values["policy",] = tuple(map(self._prompted_word, stage.config({}).policy))
        return stage.config(values, self.folder.stage(stage.name) / "run")

    def _people_values(self, stage: spec.Stage) -> dict[SettingPath, object]:
        # Where a loop asks people, if it does and nobody said where: in the pipeline's own store.
        # In the loop's folder labels would go with it when settings change.
        if stage.kind.settings is not RlhfConfig or stage.values["comparisons",] != PEOPLE:
            return {}
        own = {("loop", "store"): str(self.folder.labels), ("loop", "project"): stage.name}
        return {path: value for path, value in own.items() if path not in stage.values}

    def _prompted_word(self, word: str) -> str:
        # The word of a prompted policy with paths where it names stages.
        policy = PolicyWord.parse(word)
        folder = self._input_value(policy.folder, spec.PROMPTED_PARTS["folder"], "model")
        shots = policy.shots and self._input_value(policy.shots, spec.PROMPTED_PARTS["shots"], "shots")
        return str(replace(policy, folder=folder, shots=shots))

    def display_name(self, word: str) -> str:
        """The name of a model or a reward in tables; a model on a server is called by its name there."""
        if "://" in word:
            return word.rpartition("#")[2]
        if (name := spec.stage_in(word)) is not None:
            return name
        path = Path((self.pipeline.model or "") if word[:1] == "$" else word)
        if word[:1] == "$" and spec.word_path(str(path)).name == "model":
            return "base"
        return path.parent.name if path.name == "model" else path.name

    def display_names(self, words: Sequence[str]) -> list[str]:
        """The names of several, that tell them apart: by more of their paths where two would be one."""
        names = [self.display_name(word) for word in words]
        for depth in range(2, 1 + max((len(Path(word).parts) for word in words), default=0)):
            twice = {name for name in names if names.count(name) > 1}
            names = [
                # A stage has a name of its own, which the page leads to.
                "/".join(Path(word).parts[-depth:]) if name in twice and word[:1] != "$" else name
                for name, word in zip(names, words, strict=True)
            ]
        return names

    def _input_value(self, word: str, accepted: Sequence[str], setting: str) -> str:
        reference = spec.reference_in(word)
        if reference is not None:
            return reference.word(self._referred_path(reference, accepted))
        return str(spec.word_path(word)) if setting == "model" else word

    def _referred_path(self, reference: spec.Reference, accepted: Sequence[str]) -> str:
        if reference.name == spec.START_MODEL:
            return str(spec.word_path(self.pipeline.model or ""))
        above = self.pipeline.stage(reference.name)
        # Within a judge's word a stage is a model that is asked, whatever else the setting takes.
        is_model = "model" in accepted or not reference.is_whole
        return str(self.folder.result(above.name, above.kind, "model" if is_model else "reward"))

    def earlier_seconds(self) -> dict[str, float]:
        """By the name of each finished stage, how long it took."""
        names = [stage.name for stage in self.pipeline.stages]
        manifests = {name: store.read_manifest(self.folder.stage(name)) for name in names}
        return {
            name: float(manifest["seconds"]) for name, manifest in manifests.items() if manifest is not None
        }


def _one_file(words: list[str], folder: Path, setting: str) -> str:
    if len(words) == 1:
        return words[0]
    path = folder / f"{setting.replace('.', '-')}.jsonl"
    # The folder goes when the stage's key does, so rows that lie there are of these very sources.
    if not path.exists():
        write_records((record for word in words for record in read_records(word).records), path)
    return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKey:
    """The key of a stage's result: the same settings, inputs and kind give the same result."""

    settings: Mapping[str, Any]
    """All settings, resolved; what names another stage is its reference."""
    inputs: Mapping[str, Mapping[str, str]]
    key: str
    """The sha256 of both and of what is done."""


def compute_stage_key(
    context: PipelineContext, stage: spec.Stage, result_hashes: Mapping[str, str]
) -> StageKey | None:
    """The key of a stage's result; None while a stage above it has no result."""
    if not set(stage.needs) <= set(result_hashes):
        return None
    inputs: dict[str, Mapping[str, str]] = {}
    identities: dict[str, list[str]] = {}
    for setting, words in stage.inputs.items():
        for number, word in enumerate(words, 1):
            resolved = _resolve_input(context, word, result_hashes)
            identities.setdefault(setting, []).append(resolved.get("hash", word))
            if resolved:
                inputs[setting if len(words) == 1 else f"{setting} {number}"] = resolved
    settings = to_plain_data(stage.config({}))
    identity = {"do": stage.kind.name, "settings": _deciding_settings(stage, settings), "inputs": identities}
    if valley := os.environ.get("PLAUDIT_VALLEY"):
        # In another valley the same settings ask for other rows.
        identity["valley"] = valley
    settings.pop("out", None)
    key = hashlib.sha256(exact_json.dumps(identity).encode()).hexdigest()
    return StageKey(settings=settings, inputs=inputs, key=key)


def _resolve_input(context: PipelineContext, word: str, result_hashes: Mapping[str, str]) -> dict[str, str]:
    # Where an input is from and the hash of its content; nothing of a word that is no file.
    reference = spec.reference_in(word)
    if reference is not None:
        return _resolve_reference(context, word, reference, result_hashes)
    if word == spec.WORLD or Path(word).exists():
        file = spec.word_path(word)
        return {"path": str(file), "hash": context.fingerprints.hash_of(file)}
    file = first_path(word)
    # A word that names files has a meaning beside them: which function of a file, how a jury is asked.
    return (
        {} if file is None else {"path": str(file), "hash": content_hash(word, context.fingerprints.hash_of)}
    )


def _resolve_reference(
    context: PipelineContext, word: str, reference: spec.Reference, result_hashes: Mapping[str, str]
) -> dict[str, str]:
    hash_of = context.fingerprints.hash_of
    if reference.name == spec.START_MODEL:
        path = spec.word_path(context.pipeline.model or spec.WORLD)
        found = {"path": str(path), "hash": hash_of(path)}
    else:
        found = {"from": reference.name, "hash": result_hashes[reference.name]}
    if reference.is_whole:
        return found
    # Within a judge's word it counts as well how the model is asked, and by what files.
    content = f"{content_hash(word, hash_of)} {found['hash']}"
    return found | {"hash": hashlib.sha256(content.encode()).hexdigest()}


def _deciding_settings(stage: spec.Stage, settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    # The settings without inputs, which count by their content, and without those that change nothing.
    deciding: dict[str, Any] = {}
    neutral = RESULT_NEUTRAL_SETTINGS if stage.kind.trains else _NEUTRAL_WITHOUT_TRAINING
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if key not in stage.inputs and key not in neutral:
            deciding[name] = _deciding_settings(stage, value, f"{key}.") if isinstance(value, dict) else value
    return deciding


StageState = Literal["kept", "taken back", "goes on", "runs", "waits", "waits for people"]
"""What is to be done: nothing; nothing but to move a folder; the rest; all; not known yet; by people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    state: StageState
    reason: str
    stage_key: StageKey | None
    """What decides its result; None while a stage above it has none."""
    result_hash: str | None = None


def stage_status(
    context: PipelineContext,
    stage: spec.Stage,
    result_hashes: Mapping[str, str],
    forced_reasons: Mapping[str, str],
) -> StageStatus:
    """The status of a stage, given the results of the stages above it and why some run whatever is there.
    The files of a result that is kept are compared with its manifest."""
    stage_key = compute_stage_key(context, stage, result_hashes)
    status = partial(StageStatus, stage_key=stage_key)
    if stage_key is None:
        missing = ", ".join(name for name in stage.needs if name not in result_hashes)
        return status(state="waits", reason=f"after {missing}")
    if stage.name in forced_reasons:
        return status(state="runs", reason=forced_reasons[stage.name])
    here = context.folder.stage(stage.name)
    aside = context.folder.set_aside_path(stage.name, stage_key.key)
    manifest, manifest_aside = store.read_manifest(here), store.read_manifest(aside)
    if manifest is not None and manifest["key"] == stage_key.key:
        store.refuse_changed_outputs(here, manifest, context.fingerprints)
        return status(state="kept", reason=_code_note(manifest), result_hash=manifest["result"])
    if can_resume(context.folder, stage, stage_key.key):
        state, reason = _started_state(here)
        return status(state=state, reason=reason)
    # The name of a folder set aside has the first digits of its key only.
    if manifest_aside is not None and manifest_aside["key"] == stage_key.key:
        store.refuse_changed_outputs(aside, manifest_aside, context.fingerprints)
        reason = "these settings have been run before"
        return status(state="taken back", reason=reason, result_hash=manifest_aside["result"])
    not_sealed = "was stopped" if here.exists() else "never run"
    reason = not_sealed if manifest is None else _describe_changes(manifest, stage_key)
    return status(state="runs", reason=reason)


def _started_state(stage_folder: Path) -> tuple[StageState, str]:
    # Whether a stage that goes on was stopped, or waited for people when it was asked last.
    path = stage_folder / store.WAIT_FILE
    if not path.exists():
        return "goes on", "was stopped; it goes on from where it was"
    try:
        waits = exact_json.loads(path.read_bytes())
        return "waits for people", "; ".join(wait["sentence"] for wait in waits)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it, and the stage says it anew") from error


def _code_note(manifest: Mapping[str, Any]) -> str:
    # A note where another version of the code has made the result; empty where it was this one.
    made, current = manifest["code"], store.running_code_version()
    if all(made.get(name) == current[name] for name in ("plaudit", "commit")):
        return ""
    commit = f" at {made['commit'][:12]}" if made.get("commit") else ""
    return f"made by plaudit {made.get('plaudit')}{commit}; --fresh makes it anew"


def can_resume(folder: store.PipelineFolder, stage: spec.Stage, key: str) -> bool:
    """Whether training or collecting is half done, of this key, and in the place where it began."""
    stage_folder = folder.stage(stage.name)
    if not (stage.kind.trains or stage.kind.resumes) or store.read_manifest(stage_folder) is not None:
        return False
    start = store.read_start_file(stage_folder)
    return start.get("key") == key and start.get("place") == str(stage_folder)


def _describe_changes(manifest: Mapping[str, Any], stage_key: StageKey) -> str:
    before, after = dict(spec.flatten(manifest["settings"])), dict(spec.flatten(stage_key.settings))
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    words = [f"{name}: {before.get(name)} → {after.get(name)}" for name in changed]
    for name in {**manifest["inputs"], **stage_key.inputs}:
        old, new = (inputs.get(name, {}).get("hash") for inputs in (manifest["inputs"], stage_key.inputs))
        if old != new and name not in changed:
            words.append(f"{name} has another content")
    return "; ".join(words) or "it was made in another way"


def refuse_unknown_stages(pipeline: spec.Pipeline, names: Sequence[str], option: str) -> None:
    stage_names = [stage.name for stage in pipeline.stages]
    for name in names:
        if name not in stage_names:
            hint = did_you_mean(name, stage_names) or f"; they are {', '.join(stage_names)}"
            raise UserError(f"{option} {name}: there is no such stage{hint}")


PRIOR_SECONDS = 60.0
"""Seconds for which a weight is believed to be seconds, beside what was measured."""


def expected_seconds(
    stages: Sequence[spec.Stage],
    earlier_seconds: Mapping[str, int | float],
    seconds_now: Mapping[str, int | float],
) -> dict[str, float]:
    """Seconds of each stage: as measured before, or by its weight at the pace of those that ended ``now``.
    The prior keeps the first stages, with all that is loaded once, from setting the pace of a whole run."""
    finished = [stage for stage in stages if stage.name in seconds_now]
    seconds = PRIOR_SECONDS + sum(seconds_now[stage.name] for stage in finished)
    pace = seconds / (PRIOR_SECONDS + sum(stage.weight for stage in finished))
    return {stage.name: float(earlier_seconds.get(stage.name) or pace * stage.weight) for stage in stages}


def seconds_left(
    stages: Sequence[spec.Stage],
    finished: set[str],
    running: Mapping[str, int | float],
    stage_seconds: Mapping[str, int | float],
    jobs: int,
) -> float:
    """Until the last of the stages ends, when each takes what is expected; ``running`` has elapsed seconds.
    Each stage takes the worker that is free first, as soon as those that it needs have ended."""
    ends = dict.fromkeys(finished, 0.0)
    worker_ends = [0.0] * jobs
    for index, (name, elapsed) in enumerate(running.items()):
        worker_ends[index % jobs] = ends[name] = max(0.0, stage_seconds[name] - elapsed)
    for stage in stages:
        if stage.name not in ends:
            worker = worker_ends.index(min(worker_ends))
            start = max(worker_ends[worker], *(ends.get(name, 0.0) for name in stage.needs), 0.0)
            worker_ends[worker] = ends[stage.name] = start + stage_seconds[stage.name]
    return max(ends.values(), default=0.0)


def format_clock(seconds: int | float) -> str:
    """Minutes and seconds.

    >>> format_clock(83.7)
    '1:24'
    """
    return "{}:{:02}".format(*divmod(round(seconds), 60))
