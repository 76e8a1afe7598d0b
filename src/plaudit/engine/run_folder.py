"""The folder of one run: where everything lies, who may use it, and whether it is still the same run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plaudit.errors import UserError
from plaudit.files import atomic, lock

_MISSING = object()
_RESULT_NAMES = ("model", "adapter", "summary.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """An open run folder; only the process that holds its lock has one.

    Example: ``RunFolder(path=Path("runs/first"), resumed=False, notes=())``
    """

    path: Path
    """The folder."""
    resumed: bool
    """Whether the folder holds a checkpoint or a result of an earlier start."""
    notes: tuple[str, ...]
    """What the user should hear: leftovers removed, settings that changed, a run that was killed."""

    @property
    def config(self) -> Path:
        """The settings, resolved: enough to run again."""
        return self.path / "config.yaml"

    @property
    def lineage(self) -> Path:
        """What went in: hashes of data and models, versions, seed."""
        return self.path / "lineage.json"

    @property
    def metrics(self) -> Path:
        """metrics.jsonl: one line a step."""
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        """samples.jsonl: sampled completions."""
        return self.path / "samples.jsonl"

    @property
    def summary(self) -> Path:
        """summary.json of a finished run."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        """The states from which a run can go on."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The result, as a Hugging Face folder."""
        return self.path / "model"

    @property
    def report(self) -> Path:
        """report.html."""
        return self.path / "report.html"


@contextmanager
def open_run_folder(
    path: Path, *, config: Mapping[str, Any], may_change: AbstractSet[str] = frozenset()
) -> Iterator[RunFolder]:
    """Opens the folder for a new run, or for the run that it holds if the config is still the same.

    ``config`` is plain data (it goes through YAML). A key in ``may_change`` (nested: ``data.workers``; a
    section's name stands for all of it) may differ on resume and is then brought up to date; any other
    difference is a `UserError` that names each key with both values. Before its first checkpoint a run has
    nothing to lose, so a start that failed can be repeated with other settings. A summary goes when a
    setting changes: it vouches for a result that was made with the settings beside it. Refused as well: a
    folder in use, and one that holds something else.
    """
    resolved = _yaml_round_trip(config)
    _refuse_foreign(path)
    atomic.make_folder(path)
    with lock.hold_lock(path) as previous_holder:
        notes = list(atomic.remove_leftovers(path))
        folder = RunFolder(path=path, resumed=_has_checkpoint_or_result(path), notes=())
        if previous_holder is not None:
            notes.append(f"{path}: the last run here ({previous_holder}) did not end in good order")
        if folder.resumed:
            notes += _config_changes(folder.config, resolved, may_change)
        atomic.make_folder(folder.checkpoints)
        notes += atomic.remove_leftovers(folder.checkpoints)
        if not folder.resumed or _read_config(folder.config) != resolved:
            with atomic.disk_errors_explained(folder.summary):
                folder.summary.unlink(missing_ok=True)
            atomic.write_text(folder.config, _yaml_of(resolved))
        yield RunFolder(path=path, resumed=folder.resumed, notes=tuple(notes))


def _refuse_foreign(path: Path) -> None:
    if not path.is_dir() or (path / "config.yaml").exists():
        return
    # Before config.yaml is there, a run that was killed can leave only these.
    foreign = sorted(
        item.name
        for item in path.iterdir()
        if item.name not in (lock.LOCK_NAME, "checkpoints") and not item.name.endswith(".partial")
    )
    if foreign:
        names_text = ", ".join(foreign[:5]) + (", …" if len(foreign) > 5 else "")
        raise UserError(
            f"{path}: this folder is not a run (it has no config.yaml) and is not empty: {names_text}. "
            "Choose an empty or new folder with `--out`."
        )


def _has_checkpoint_or_result(path: Path) -> bool:
    checkpoints = path / "checkpoints"
    saved = checkpoints.is_dir() and any(not item.name.endswith(".partial") for item in checkpoints.iterdir())
    return (path / "config.yaml").exists() and (
        saved or any((path / name).exists() for name in _RESULT_NAMES)
    )


def _config_changes(path: Path, resolved: Mapping[str, Any], may_change: AbstractSet[str]) -> list[str]:
    old, new = _flatten(_read_config(path)), _flatten(resolved)
    keys = [
        key for key in {**old, **new} if not _equal_values(old.get(key, _MISSING), new.get(key, _MISSING))
    ]
    changes = {key: f"{key}: {_value_text(old, key)} → {_value_text(new, key)}" for key in keys}
    fixed = [key for key in keys if not _is_changeable(key, may_change)]
    if fixed:
        raise UserError(
            f"{path}: the config no longer matches the run in this folder (then → now):\n"
            + "".join(f"  {changes[key]}\n" for key in fixed)
            + f"May change when a run goes on: {', '.join(sorted(may_change)) or 'nothing'}.\n"
            "To go on: restore the values above, or start another run with `--out` elsewhere."
        )
    return [f"{path}: changed for the rest of the run: {text}" for text in changes.values()]


def _is_changeable(key: str, may_change: AbstractSet[str]) -> bool:
    names = key.split(".")
    return any(".".join(names[:depth]) in may_change for depth in range(1, len(names) + 1))


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _equal_values(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new):
        return True
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def _value_text(flat: Mapping[str, Any], key: str) -> str:
    return repr(flat[key]) if key in flat else "(not set)"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not readable as YAML: {error}. Restore it, or choose another folder."
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no settings. Restore it, or choose another folder with `--out`.")
    return content


def _yaml_round_trip(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return yaml.safe_load(_yaml_of(_plain_data(config)))
    except yaml.YAMLError as error:
        raise ValueError(
            f"the config must be plain data (mappings, lists, strings, numbers): {error}"
        ) from error


def _plain_data(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_data(item) for key, item in value.items()}
    return [_plain_data(item) for item in value] if isinstance(value, list | tuple) else value


def _yaml_of(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
