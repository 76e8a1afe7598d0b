"""Reads, writes and resolves configs: the command line beats the YAML file, the file beats the defaults.

Keys and types are checked while a file is read, and a written file reads back the same.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from plaudit.config.fields import (
    Setting,
    SettingPath,
    all_settings,
    convert,
    did_you_mean,
    direct_settings,
    group_defaults,
)
from plaudit.errors import UserError


def read_yaml(path: Path, config_type: type) -> dict[SettingPath, object]:
    """What a file sets, by the names that lead to it; a group that is on or off is True or False."""
    return read_values(load_yaml(path)[0], config_type, str(path))


def read_values(loaded: object, config_type: type, where: str) -> dict[SettingPath, object]:
    """What loaded YAML sets, by the names that lead to it; ``where`` begins each complaint."""
    values: dict[SettingPath, object] = {}
    _collect(_with_current_names(loaded, config_type, where), config_type, (), where, values)
    return values


def rename_note(old: str, new: str) -> None:
    """Say on stderr that a setting has another name now."""
    print(f"plaudit: {old} is called {new} now; the old name is taken for this release", file=sys.stderr)


def _with_current_names(loaded: object, config_type: type, where: str) -> object:
    """Loaded YAML in which each setting that was renamed stands under its new name."""
    renamed: Mapping[str, str] = getattr(config_type, "renamed", {})
    if not isinstance(loaded, Mapping) or not renamed:
        return loaded
    old_defaults: Mapping[str, object] = getattr(config_type, "old_defaults", {})
    current = copy.deepcopy(dict(loaded))
    for old, new in renamed.items():
        *groups, name = old.split(".")
        holder: Any = current
        for group in groups:
            holder = holder.get(group) if isinstance(holder, Mapping) else None
        if not isinstance(holder, dict) or name not in holder:
            continue
        value = holder.pop(name)
        # An older config.yaml lists what nobody had set as well.
        if value not in (None, "auto", []) and value != old_defaults.get(old):
            rename_note(f"{where}: {old}", new)
            _put(current, new.split("."), OLD_WORDS.get(value, value) if isinstance(value, str) else value)
    first_groups = {old.partition(".")[0] for old in renamed if "." in old}
    return {name: value for name, value in current.items() if value != {} or name not in first_groups}


OLD_WORDS = {"yes": True, "no": False}
"""What switches were set to when they could be ``auto`` as well."""


def _put(values: dict[str, Any], path: list[str], value: object) -> None:
    for group in path[:-1]:
        values = values.setdefault(group, {})
    values.setdefault(path[-1], value)


def to_yaml(config: Any) -> str:
    """The config as YAML, in the order of its fields."""
    import yaml

    return yaml.safe_dump(to_plain_data(config), sort_keys=False, allow_unicode=True)


def load_yaml(path: Path) -> tuple[Any, Any]:
    """What a file holds, and its nodes, which know their lines; a key that is there twice is refused."""
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
    return ({} if loaded is None else loaded), node


def _refuse_repeated_keys(node: Any, path: Path) -> None:
    """YAML itself would quietly keep the last of two equal keys."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path)
    if not isinstance(node, yaml.MappingNode):
        return
    keys: set[str] = set()
    for key, value in node.value:
        if str(key.value) in keys:
            raise UserError(
                f"{path}:{key.start_mark.line + 1}: {key.value} is set twice; keep one of the two"
            )
        keys.add(str(key.value))
        _refuse_repeated_keys(value, path)


def _collect(
    loaded: object, config_type: type, path: SettingPath, source: str, values: dict[SettingPath, object]
) -> None:
    where = f"{source}: {'.'.join(path)}" if path else source
    if not isinstance(loaded, Mapping):
        raise UserError(f"{where}: expected settings (name: value), got {loaded!r}")
    settings_by_name = {setting.path[-1]: setting for setting in direct_settings(config_type, path)}
    for name, value in loaded.items():
        if name not in settings_by_name:
            key = ".".join((*path, str(name)))
            refused: Mapping[str, str] = getattr(config_type, "refused", {})
            if key in refused:
                raise UserError(f"{source}: {refused[key]}")
            nearby = [setting.key for setting in all_settings(config_type, path)]
            raise UserError(f"{source}: unknown key {key}{did_you_mean(key, nearby)}")
        setting = settings_by_name[name]
        if setting.group is None:
            values[setting.path] = _convert_value(value, setting.value_type, f"{source}: {setting.key}")
        elif setting.optional_group and value is None:
            values[setting.path] = False
        else:
            values[setting.path] = True
            _collect(value, setting.group, setting.path, source, values)


def _convert_value(value: object, value_type: object, where: str) -> object:
    try:
        return convert(value, value_type)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def to_plain_data(value: Any) -> Any:
    """A config, or a part of one, as YAML and JSON can hold it."""
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: to_plain_data(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [to_plain_data(item) for item in value]
    return str(value) if isinstance(value, Path) else value


ConfigT = TypeVar("ConfigT")
"""The class of a config."""

SettingValues = Mapping[SettingPath, object]
"""What is set, by the names that lead to it."""


def resolve(config_type: type[ConfigT], file_values: SettingValues, command_line: SettingValues) -> ConfigT:
    """The config; a setting that nobody gave and that has no default is named."""
    values = _merge(file_values, command_line, config_type)
    missing = ", ".join(setting.option for setting in missing_settings(config_type, values))
    if missing:
        raise UserError(f"missing: {missing}; give it as an option or in the file of --config")
    return _build(config_type, values)


def _merge(
    file_values: SettingValues, command_line: SettingValues, config_type: type
) -> dict[SettingPath, object]:
    """The file's values under those of the command line, where a setting turns its group on."""
    merged = {**file_values, **command_line}
    for setting in all_settings(config_type):
        depth = len(setting.path)
        group_paths = [path for path in command_line if path[:depth] == setting.path and len(path) > depth]
        if not setting.optional_group or not group_paths:
            continue
        if command_line.get(setting.path) is False:
            off, on = setting.option.replace("--", "--no-"), "--" + ".".join(group_paths[0])
            raise UserError(f"{off} turns off what {on} sets; leave one of them out")
        merged[setting.path] = True
    return merged


def _is_on(setting: Setting, values: SettingValues) -> bool:
    return not setting.optional_group or bool(values.get(setting.path, setting.default is not None))


def missing_settings(
    config_type: type, values: SettingValues, path: SettingPath = (), defaults: object = MISSING
) -> list[Setting]:
    """The settings without a default that nobody gave, those of groups that are on among them."""
    missing: list[Setting] = []
    for setting in direct_settings(config_type, path, defaults):
        if setting.group is not None and _is_on(setting, values):
            missing += missing_settings(setting.group, values, setting.path, group_defaults(setting))
        elif setting.group is None and setting.default is MISSING and setting.path not in values:
            missing.append(setting)
    return missing


def _build(
    config_type: type[ConfigT], values: SettingValues, path: SettingPath = (), defaults: object = MISSING
) -> ConfigT:
    fields: dict[str, Any] = {}
    for setting in direct_settings(config_type, path, defaults):
        if setting.group is None:
            fields[setting.path[-1]] = values.get(setting.path, setting.default)
        else:
            nested_defaults = group_defaults(setting)
            is_on = _is_on(setting, values)
            fields[setting.path[-1]] = (
                _build(setting.group, values, setting.path, nested_defaults) if is_on else None
            )
    try:
        return config_type(**fields)
    except ValueError as error:
        raise UserError(str(error)) from error
