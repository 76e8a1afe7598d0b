"""A config from what a file and the command line say: the line beats the file, the file the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

from plaudit.configs.settings import Names, Setting, all_settings, base_of, settings_of
from plaudit.errors import UserError

ConfigT = TypeVar("ConfigT")
"""The class of a config."""

Values = Mapping[Names, object]
"""What is set, by the names that lead to it."""


def resolve(config_type: type[ConfigT], file: Values, said: Values) -> ConfigT:
    """The config; a setting that nobody gave and that has no default is named."""
    values = _merged(file, said, config_type)
    missing = ", ".join(setting.option for setting in _missing(config_type, values))
    if missing:
        raise UserError(f"missing: {missing}; give it as an option or in the file of --config")
    return _build(config_type, values)


def _merged(file: Values, said: Values, config_type: type) -> dict[Names, object]:
    """The file's values under those of the command line, where a setting turns its group on."""
    merged = {**file, **said}
    for setting in all_settings(config_type):
        depth = len(setting.path)
        inside = [path for path in said if path[:depth] == setting.path and len(path) > depth]
        if not setting.optional_group or not inside:
            continue
        if said.get(setting.path) is False:
            off, on = setting.option.replace("--", "--no-"), "--" + ".".join(inside[0])
            raise UserError(f"{off} turns off what {on} sets; leave one of them out")
        merged[setting.path] = True
    return merged


def _is_on(setting: Setting, values: Values) -> bool:
    return not setting.optional_group or bool(values.get(setting.path, setting.default is not None))


def _missing(config_type: type, values: Values, path: Names = (), base: object = MISSING) -> list[Setting]:
    missing: list[Setting] = []
    for setting in settings_of(config_type, path, base):
        if setting.group is not None and _is_on(setting, values):
            missing += _missing(setting.group, values, setting.path, base_of(setting))
        elif setting.group is None and setting.default is MISSING and setting.path not in values:
            missing.append(setting)
    return missing


def _build(config_type: type[ConfigT], values: Values, path: Names = (), base: object = MISSING) -> ConfigT:
    fields: dict[str, Any] = {}
    for setting in settings_of(config_type, path, base):
        if setting.group is None:
            fields[setting.path[-1]] = values.get(setting.path, setting.default)
        else:
            inside = base_of(setting)
            on = _is_on(setting, values)
            fields[setting.path[-1]] = _build(setting.group, values, setting.path, inside) if on else None
    try:
        return config_type(**fields)
    except ValueError as error:
        raise UserError(str(error)) from error
