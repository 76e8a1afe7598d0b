"""A config in a YAML file: read with keys and types checked, written so that it reads back the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plaudit.configs.settings import Names, all_settings, settings_of
from plaudit.configs.suggest import did_you_mean
from plaudit.configs.values import convert
from plaudit.errors import UserError


def read_yaml(path: Path, config_type: type) -> dict[Names, object]:
    """What a file sets, by the names that lead to it; a group that is on or off is True or False."""
    return read_values(load_yaml(path)[0], config_type, str(path))


def read_values(loaded: object, config_type: type, where: str) -> dict[Names, object]:
    """What loaded YAML sets, by the names that lead to it; ``where`` begins each complaint."""
    values: dict[Names, object] = {}
    _collect(loaded, config_type, (), where, values)
    return values


def to_yaml(config: Any) -> str:
    """The config as YAML, in the order of its fields."""
    import yaml

    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


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
    seen: set[str] = set()
    for key, value in node.value:
        if str(key.value) in seen:
            raise UserError(
                f"{path}:{key.start_mark.line + 1}: {key.value} is set twice; keep one of the two"
            )
        seen.add(str(key.value))
        _refuse_repeated_keys(value, path)


def _collect(loaded: object, config_type: type, at: Names, file: str, values: dict[Names, object]) -> None:
    where = f"{file}: {'.'.join(at)}" if at else file
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


def plain(value: Any) -> Any:
    """A config, or a part of one, as YAML and JSON can hold it."""
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
