"""A config in a YAML file: read with keys and types checked, written so that it reads back the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plaudit.cli.settings import Names, all_settings, settings_of
from plaudit.cli.suggest import did_you_mean
from plaudit.cli.values import convert
from plaudit.errors import UserError


def read_yaml(path: Path, config_type: type) -> dict[Names, object]:
    """What a file sets, by the names that lead to it; a group that is on or off is True or False."""
    values: dict[Names, object] = {}
    _collect(_load(path), config_type, (), path, values)
    return values


def to_yaml(config: Any) -> str:
    """The config as YAML, in the order of its fields."""
    import yaml

    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _load(path: Path) -> Any:
    import yaml

    try:
        text = path.read_text("utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        loaded = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: the config cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the config is not UTF-8 text (byte {error.start})") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from error
    _refuse_repeated_keys(node, path)
    return {} if loaded is None else loaded


def _refuse_repeated_keys(node: Any, path: Path) -> None:
    """YAML itself would quietly keep the last of two equal keys."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if str(key.value) in seen:
            raise UserError(
                f"{path}:{key.start_mark.line + 1}: {key.value} is set twice; keep one of the two"
            )
        seen.add(str(key.value))
        _refuse_repeated_keys(value, path)


def _collect(loaded: object, config_type: type, at: Names, file: Path, values: dict[Names, object]) -> None:
    where = f"{file}: {'.'.join(at)}" if at else str(file)
    if not isinstance(loaded, Mapping):
        raise UserError(f"{where}: expected settings (name: value), got {loaded!r}")
    known = {setting.path[-1]: setting for setting in settings_of(config_type, at)}
    for name, value in loaded.items():
        if name not in known:
            key = ".".join((*at, str(name)))
            nearby = [setting.key for setting in all_settings(config_type, at)]
            raise UserError(f"{file}: unknown key {key}{did_you_mean(key, nearby)}")
        setting = known[name]
        if setting.group is None:
            values[setting.path] = _checked(value, setting.wanted, f"{file}: {setting.key}")
        elif setting.optional_group and value is None:
            values[setting.path] = False
        else:
            values[setting.path] = True
            _collect(value, setting.group, setting.path, file, values)


def _checked(value: object, wanted: object, where: str) -> object:
    try:
        return convert(value, wanted)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
