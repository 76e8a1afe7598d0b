"""Reads a pipeline's folder, finished or not; what cannot be read is named, with what to do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from plaudit.errors import UserError
from plaudit.evaluation.policies.files import read_results
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.result import RewardEvaluation
from plaudit.evaluation.revive import revived
from plaudit.reports.story import Input, Looked, Stage, State, Story
from plaudit.training import exact_json
from plaudit.training.page.facts import RunFacts, read_facts
from plaudit.training.sinks.jsonl import METRICS

CONFIG, STAGES, STAGE, FOUND, JUDGED = (
    "pipeline.yaml",
    "stages",
    "stage.json",
    "policies.json",
    "summary.json",
)
_READ = (FOUND, JUDGED, f"run/{METRICS}")
_OWN_WAY = "Restore it, or delete it and give the pipeline's command again."


def is_pipeline(folder: Path) -> bool:
    """Whether this is the folder of a pipeline."""
    return (folder / CONFIG).is_file() or (folder / STAGES).is_dir()


def is_evaluation(folder: Path) -> bool:
    """Whether this is what ``plaudit eval policy --out`` leaves."""
    return (folder / FOUND).is_file()


def read_story(folder: Path) -> Story:
    """All that the folder tells."""
    if is_pipeline(folder):
        planned = _planned(folder / CONFIG)
        unplanned = {path.parent.name: {} for path in sorted((folder / STAGES).glob(f"*/{STAGE}"))}
        every = planned | {name: told for name, told in unplanned.items() if name not in planned}
        if not every:
            raise UserError(
                f"{folder}: no stage is planned here, and none has been run. Name another folder."
            )
        stages = [_stage(folder, number, *one) for number, one in enumerate(every.items(), start=1)]
    elif is_evaluation(folder):
        stages = [_evaluation_alone(folder)]
    else:
        raise UserError(
            f"{folder}: neither a pipeline (it has no {CONFIG}), nor a run (no config.yaml), nor an "
            f"evaluation (no {FOUND}). Name the folder that was `--out`."
        )
    config = _text(folder / CONFIG) if (folder / CONFIG).is_file() else ""
    return Story(path=folder, name=folder.resolve().name, config=config, stages=tuple(stages))


def read_json(path: Path) -> Any:
    """The content of a file of JSON."""
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: this is no JSON that plaudit wrote ({error}). {_OWN_WAY}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). {_OWN_WAY}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}). {_OWN_WAY}") from error


def _planned(path: Path) -> dict[str, dict[str, Any]]:
    """Name and settings of every stage in the order of the config."""
    if not path.is_file():
        return {}
    try:
        held = yaml.safe_load(_text(path))
        return {str(name): dict(told) for one in held["stages"] for name, told in one.items()}
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: not a pipeline's config ({_first_line(error)}). {_OWN_WAY}") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _stage(top: Path, number: int, name: str, planned: Mapping[str, Any]) -> Stage:
    folder = top / STAGES / name
    if folder.resolve().parent != (top / STAGES).resolve():
        raise UserError(f"{top / CONFIG}: {name!r} is no name of a stage: it leads out of {top / STAGES}.")
    if not (folder / STAGE).is_file():
        return _unfinished(folder, number, name, planned)
    told = read_json(folder / STAGE)
    try:
        return _told(folder, number, told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{folder / STAGE}: not a stage that plaudit wrote ({_first_line(error)}). {_OWN_WAY}"
        ) from error


def _told(folder: Path, number: int, told: Mapping[str, Any]) -> Stage:
    outputs = {str(name): str(digest) for name, digest in told["outputs"].items()}
    seconds = told.get("seconds")
    return Stage(
        name=folder.name,
        number=number,
        do=str(told["do"]),
        state="done",
        folder=folder,
        needs=tuple(map(str, told.get("needs", ()))),
        settings=dict(told.get("settings", {})),
        inputs=tuple(_input(str(name), one) for name, one in told.get("inputs", {}).items()),
        outputs=outputs,
        key=str(told.get("key", "")),
        code=dict(told.get("code", {})),
        seconds=None if seconds is None else float(seconds),
        ended=str(told.get("ended", "")),
        command=str(told.get("command") or ""),
        said=tuple(map(str, told.get("said", ()))),
        checks=tuple(_look(one) for one in told.get("checks", ())),
        run=_run(folder / "run"),
        found=_found(folder),
        rewards=_rewards(folder),
        changed=tuple(name for name in _READ if _differs(folder / name, outputs.get(name))),
    )


def _unfinished(folder: Path, number: int, name: str, planned: Mapping[str, Any]) -> Stage:
    state: State = "begun" if folder.is_dir() and any(folder.iterdir()) else "waiting"
    needs = dict.fromkeys(_referred(planned))
    return Stage(
        name=name,
        number=number,
        do=str(planned.get("do", "")),
        state=state,
        folder=folder,
        needs=tuple(needs),
        settings={key: value for key, value in planned.items() if key != "do"},
        inputs=(),
        outputs={},
        key="",
        code={},
        seconds=None,
        ended="",
        command="",
        said=(),
        checks=(),
        run=_run(folder / "run"),
        found=None,
        rewards=(),
        changed=(),
    )


def _evaluation_alone(folder: Path) -> Stage:
    name = folder.resolve().name
    return replace(_unfinished(folder, 1, name, {"do": "evaluate"}), state="done", found=_found(folder))


def _referred(told: object) -> Iterator[str]:
    """The stages that settings refer to, as ``$name``."""
    if isinstance(told, str) and told.startswith("$"):
        yield told[1:]
    elif isinstance(told, Mapping):
        for one in told.values():
            yield from _referred(one)
    elif isinstance(told, list):
        for one in told:
            yield from _referred(one)


def _input(name: str, told: Mapping[str, Any]) -> Input:
    from_stage = "from" in told
    source = told["from"] if from_stage else told.get("path", "")
    return Input(name=name, source=str(source), hash=str(told.get("hash", "")), from_stage=from_stage)


def _look(told: Mapping[str, Any]) -> Looked:
    return Looked(
        name=str(told["name"]),
        verdict=str(told["verdict"]),
        saw=str(told.get("saw", "")),
        mend=str(told.get("mend", "")),
    )


def _run(folder: Path) -> RunFacts | None:
    """The run, the first member of an ensemble, or the last policy of several rounds."""
    rounds = sorted(folder.glob("rounds/*/policy"), key=lambda path: (len(path.parent.name), path))
    places = (folder, *sorted(folder.glob("members/*")), *reversed(rounds))
    chosen = next(
        (one for one in places if (one / METRICS).is_file() and (one / "config.yaml").is_file()), None
    )
    return None if chosen is None else read_facts(chosen)


def _found(folder: Path) -> PolicyEvaluation | None:
    return read_results(folder / FOUND) if is_evaluation(folder) else None


def _rewards(folder: Path) -> tuple[RewardEvaluation, ...]:
    path = folder / JUDGED
    if not path.is_file() or not (folder / "scores.jsonl").is_file():
        return ()
    try:
        return tuple(revived(RewardEvaluation, one) for one in read_json(path)["evaluations"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not what plaudit eval reward wrote ({_first_line(error)}). {_OWN_WAY}"
        ) from error


def _differs(path: Path, digest: str | None) -> bool:
    if digest is None or not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != digest
