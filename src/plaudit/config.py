"""Settings of frozen dataclasses: from words on the command line and from YAML files, and back.

A nested dataclass is a group of settings with dotted names; a nested dataclass that may be None is a group
that can be turned on and off as a whole. A word on the command line or a value in a YAML file is converted to
the type of its setting, and for an unknown name the nearest known one is suggested.

The command line beats the YAML file, the file beats the defaults. Keys and types are checked while a file
is read, and a written file reads back the same.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from plaudit.errors import UserError, located
from plaudit.index import field_docstrings


def nearest_word(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was most likely meant; None when none is near.

    >>> nearest_word("--lerning_rate", ["--learning-rate", "--warmup"])
    '--learning-rate'
    >>> nearest_word("--beta2", ["--optimizer.beta1", "--optimizer.beta2"])
    '--optimizer.beta2'
    """
    names = list(candidates)
    normalised = {name: _normalised(name) for name in names}
    target = _normalised(word)
    for name in names:
        # The last part first: who left out the group ("--beta2") should not be sent to the nearest spelling.
        if normalised[name].rpartition(".")[2] == target:
            return name
    close = get_close_matches(target, normalised.values(), n=1)
    return next((name for name in names if close and normalised[name] == close[0]), None)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """The sentence to put behind a complaint; an empty string when nothing is near.

    >>> did_you_mean("trian", ["data", "train"])
    '; did you mean train?'
    """
    match = nearest_word(word, candidates)
    return f"; did you mean {match}?" if match else ""


def explain_unknown(word: str, options: Iterable[str]) -> str:
    """What to say behind an unknown setting: its name here, where other projects call it so, or the nearest.
    ``options`` are named as on the command line, or all as in a file.

    >>> explain_unknown("--lr", ["--learning-rate"])
    ': here it is --learning-rate, the peak learning rate'
    >>> explain_unknown("lr", ["learning_rate"])
    ': here it is learning_rate, the peak learning rate'
    """
    names = list(options)
    return _peer_answer(word, names) or did_you_mean(word, names)


def _peer_answer(word: str, names: Iterable[str] | None = None) -> str:
    """What a word of other projects is called here, of these names or of all; empty for any other one."""
    for entry in _peer_words():
        if _normalised(word) in entry["words"]:
            known = {_normalised(name) for name in (entry["here"] if names is None else names)}
            here = [option for option in entry["here"] if _normalised(option) in known]
            answer = entry["means"]
            answer = f"{entry['here'][0]} of other methods, {answer}" if entry["here"] else answer
            answer = f"here it is {here[0]}, {entry['means']}" if here else str(answer)
            return f": {answer if word.startswith('-') else _as_keys(answer)}"
    return ""


def _as_keys(text: str) -> str:
    return re.sub(r"--([a-z][\w.-]*\w)", lambda option: option[1].replace("-", "_"), text)


@cache
def _peer_words() -> list[dict[str, Any]]:
    import yaml

    return yaml.safe_load(Path(__file__).with_name("peer_words.yaml").read_text("utf-8"))


def _normalised(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()


def convert(value: object, value_type: object) -> object:
    """The value as the wanted type; ``ValueError`` says what was expected.
    Numbers may be written as text, since YAML reads ``1e-4`` as text.

    >>> convert("1e-4", float)
    0.0001
    >>> convert(["a", "b"], tuple[str, ...])
    ('a', 'b')
    """
    for member in _union_members(value_type):
        try:
            return _convert_to(value, member)
        except ValueError:
            continue
    raise ValueError(f"expected {describe_type(value_type)}, got {value!r}{_hint(value, value_type)}")


def parse_word(word: str, value_type: object) -> object:
    """As `convert`, for the command line, where ``none`` is how None is written.

    >>> parse_word("none", int | None) is None
    True
    """
    return None if word == "none" and type(None) in _union_members(value_type) else convert(word, value_type)


def describe_type(value_type: object) -> str:
    """A type in words; ``TypeError`` when settings cannot have it.

    >>> describe_type(int | None)
    'a whole number or none'
    """
    return " or ".join(_describe_member(member) for member in _union_members(value_type))


def is_switch(value_type: object) -> bool:
    """Whether a setting is turned on and off: a bool, or a bool that may be left open."""
    return set(_union_members(value_type)) - {type(None)} == {bool}


def item_type(value_type: object) -> object | None:
    tuples = [member for member in _union_members(value_type) if get_origin(member) is tuple]
    return get_args(tuples[0])[0] if tuples else None


def _union_members(value_type: object) -> tuple[object, ...]:
    """The alternatives; text comes last but for none, since any word is text."""
    members = get_args(value_type) if get_origin(value_type) in (Union, types.UnionType) else (value_type,)
    return tuple(sorted(members, key=lambda member: (member is type(None), member is str)))


def _describe_member(member: object) -> str:
    if get_origin(member) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(member))
    if get_origin(member) is tuple and get_args(member)[1:] == (...,):
        return f"a list, each {describe_type(item_type(member))}"
    if member not in _SCALAR_TYPES:
        raise TypeError(f"a setting cannot be of type {member}")
    return _SCALAR_TYPES[member][0]


def _convert_to(value: object, member: object) -> object:
    if get_origin(member) is Literal:
        for choice in get_args(member):
            # As text, since YAML reads a choice named 8 as a number; what is kept is the choice itself.
            if str(choice) == str(value):
                return choice
    elif get_origin(member) is not tuple:
        return _SCALAR_TYPES[member][1](value)
    elif isinstance(value, list | tuple):
        return tuple(convert(item, item_type(member)) for item in value)
    raise ValueError(value)


def _as_it_is(value: object, kind: type) -> object:
    if not isinstance(value, kind):
        raise ValueError(value)
    return value


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(value)


def _int(value: object) -> int:
    # A bool is an int in Python: `steps: true` would be one step.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _float(value: object) -> float:
    # NaN would slip through every range check that is written as "refuse when x < low".
    if isinstance(value, bool) or not isinstance(value, int | float | str) or math.isnan(float(value)):
        raise ValueError(value)
    return float(value)


def _path(value: object) -> Path:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        # Several sources of rows; a model that is given so is a folder that nobody has.
        value = " + ".join(value)
    # Path("") is the current folder: an unset shell variable would silently write there.
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return Path(value)


_SCALAR_TYPES: dict[object, tuple[str, Callable[[object], object]]] = {
    type(None): ("none", partial(_as_it_is, kind=type(None))),
    bool: ("true or false", _bool),
    int: ("a whole number", _int),
    float: ("a number", _float),
    Path: ("a path", _path),
    str: ("text", partial(_as_it_is, kind=str)),
}


def _hint(value: object, value_type: object) -> str:
    members = _union_members(value_type)
    choices = [
        str(choice) for member in members if get_origin(member) is Literal for choice in get_args(member)
    ]
    takes_words = bool(choices) or str in members or Path in members
    if isinstance(value, bool) and takes_words:
        return "; in YAML, yes, no, on and off are true and false unless they stand in quotes"
    if isinstance(value, int | float) and takes_words:
        return "; in YAML, text that looks like a number stands in quotes"
    return did_you_mean(str(value), choices)


SettingPath = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    path: SettingPath
    value_type: Any
    default: Any
    doc: str
    group: type | None = None
    """The nested dataclass, when the setting is a group."""
    hidden: bool = False
    """Whether only ``--help-all`` shows it, as it does whatever is inside a group."""

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def option(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def optional_group(self) -> bool:
        """Whether it is a group that may be None."""
        return self.group is not None and self.value_type is not self.group


def direct_settings(
    config_type: type, path: SettingPath = (), defaults: object = MISSING
) -> Iterator[Setting]:
    """The fields of one config, groups not entered; ``defaults`` is where those are taken from."""
    hints, docs = get_type_hints(config_type), field_docstrings(config_type)
    for field in dataclasses.fields(config_type):
        if not field.init:
            continue
        doc = field.metadata.get("doc") or docs.get(field.name)
        if doc is None:
            raise TypeError(f"{config_type.__name__}.{field.name} needs a docstring: the text of --help")
        value_type = hints[field.name]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        setting = Setting(
            path=(*path, field.name),
            value_type=value_type,
            # A group's own default may differ from its class's: --help shows what this config starts from.
            default=default if defaults is MISSING else getattr(defaults, field.name),
            doc=doc,
            group=_group_type(value_type),
            hidden=bool(path) or field.metadata.get("hidden", False),
        )
        if setting.group is None:
            # For its error alone: a type that no word can express fails wherever the config is first read.
            describe_type(value_type)
        yield setting


def all_settings(config_type: type, path: SettingPath = (), defaults: object = MISSING) -> Iterator[Setting]:
    """The fields of a config and of every group inside it, each group before what is inside it."""
    for setting in direct_settings(config_type, path, defaults):
        yield setting
        if setting.group is not None:
            yield from all_settings(setting.group, setting.path, group_defaults(setting))


def group_defaults(setting: Setting) -> object:
    """Where the fields of a group take their defaults from: the group's own default, when it has one."""
    return MISSING if setting.default is None else setting.default


def _group_type(value_type: Any) -> type | None:
    members = [member for member in get_args(value_type) if member is not type(None)] or [value_type]
    is_config = len(members) == 1 and isinstance(members[0], type) and dataclasses.is_dataclass(members[0])
    return members[0] if is_config else None


def read_yaml(path: Path, config_type: type) -> dict[SettingPath, object]:
    """What a file sets, by the names that lead to it; a group that is on or off is True or False."""
    return read_values(load_yaml(path)[0], config_type, str(path))


def read_values(loaded: object, config_type: type, where: str) -> dict[SettingPath, object]:
    """What loaded YAML sets, by the names that lead to it; ``where`` begins each complaint."""
    values: dict[SettingPath, object] = {}
    _collect(loaded, config_type, (), where, values)
    return values


def to_yaml(config: Any) -> str:
    import yaml

    return yaml.safe_dump(to_plain_data(config), sort_keys=False, allow_unicode=True)


def load_yaml(path: Path) -> tuple[Any, Any]:
    """What a file holds, and its nodes, which know their lines; a key that is there twice is refused."""
    import yaml

    try:
        # Editors on Windows begin UTF-8 with a mark that would become part of the first key.
        text = path.read_text("utf-8-sig")
        # Composed too: only nodes know their lines, and loading has merged repeated keys already.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_node(node, path, {})
        loaded = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: the config cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the config is not UTF-8 text (byte {error.start})") from error
    except UserError:
        raise
    except RecursionError as error:
        raise UserError(f"{path}: this is not YAML of settings: hundreds of levels in each other") from error
    # The last two are what Python says of a date that is none, and of a number of thousands of digits.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        words = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise UserError(f"{path}: this is not YAML: {words}") from error
    return ({} if loaded is None else loaded), node


_MOST_VALUES = 100_000
"""Values of a file, each counted wherever an alias (``*name``) repeats it."""


def _check_node(node: Any, path: Path, sizes: dict[int, int]) -> int:
    """How many values a node is; ``sizes`` are of nodes before, and 0 of those that are being looked at."""
    # YAML itself would quietly keep the last of two equal keys, and a few lines of aliases can be more values
    # than fit any memory, or a value that holds itself.
    import yaml

    if id(node) in sizes:
        if not sizes[id(node)]:
            raise UserError(
                f"{path}:{node.start_mark.line + 1}: this value holds itself by an alias (*name); write it "
                "out"
            )
        return sizes[id(node)]
    if not isinstance(node, yaml.SequenceNode | yaml.MappingNode):
        return 1
    sizes[id(node)] = 0
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in keys:
                where = f"{path}:{key.start_mark.line + 1}"
                raise UserError(f"{where}: {key.value} is set twice; keep one of the two")
            keys.add(str(key.value))
    parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    size = 1 + sum(_check_node(part, path, sizes) for part in parts)
    if size > _MOST_VALUES:
        raise UserError(
            f"{path}:{node.start_mark.line + 1}: more than {_MOST_VALUES:,} values, most of them by aliases "
            "(*name); write out what is meant"
        )
    sizes[id(node)] = size
    return size


def _collect(
    loaded: object, config_type: type, path: SettingPath, source: str, values: dict[SettingPath, object]
) -> None:
    where = f"{source}: {'.'.join(path)}" if path else source
    if not isinstance(loaded, Mapping):
        # Others have a file or a name where there is a group here (deepspeed: zero3.json).
        hint = _peer_answer(path[-1]) if path else ""
        raise UserError(f"{where}: expected settings (name: value), got {loaded!r}{hint}")
    settings_by_name = {setting.path[-1]: setting for setting in direct_settings(config_type, path)}
    for name, value in loaded.items():
        if name not in settings_by_name:
            key = ".".join((*path, str(name)))
            refused: Mapping[str, str] = getattr(config_type, "refused", {})
            if key in refused:
                raise UserError(f"{source}: {refused[key]}")
            nearby = [setting.key for setting in all_settings(config_type, path)]
            raise UserError(f"{source}: unknown key {key}{explain_unknown(key, nearby)}")
        setting = settings_by_name[name]
        if setting.group is None:
            with located(f"{source}: {setting.key}", ValueError):
                values[setting.path] = convert(value, setting.value_type)
        # False stands for "off, and said so", which the default of the group may not turn on again.
        elif setting.optional_group and value is None:
            values[setting.path] = False
        else:
            values[setting.path] = True
            _collect(value, setting.group, setting.path, source, values)


def to_plain_data(value: Any) -> Any:
    """A config, or a part of one, as YAML and JSON can hold it."""
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: to_plain_data(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [to_plain_data(item) for item in value]
    return str(value) if isinstance(value, Path) else value


ConfigT = TypeVar("ConfigT")
SettingValues = Mapping[SettingPath, object]


def resolve(config_type: type[ConfigT], file_values: SettingValues, command_line: SettingValues) -> ConfigT:
    """The config; a setting that nobody gave and that has no default is named."""
    values = {**file_values, **command_line}
    for setting in all_settings(config_type):
        depth = len(setting.path)
        # One option such as --lora.rank turns its whole group on, over a file that has it off.
        group_paths = [path for path in command_line if path[:depth] == setting.path and len(path) > depth]
        if not setting.optional_group or not group_paths:
            continue
        if command_line.get(setting.path) is False:
            off, on = setting.option.replace("--", "--no-"), "--" + ".".join(group_paths[0])
            raise UserError(f"{off} turns off what {on} sets; leave one of them out")
        values[setting.path] = True
    missing = ", ".join(setting.option for setting in missing_settings(config_type, values))
    if missing:
        raise UserError(f"missing: {missing}; give it as an option or in the file of --config")
    implied = getattr(config_type, "implied_settings", None)
    return _build(config_type, values if implied is None else {**implied(values), **values})


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
            nested = group_defaults(setting)
            group = _build(setting.group, values, setting.path, nested) if _is_on(setting, values) else None
            fields[setting.path[-1]] = group
    try:
        return config_type(**fields)
    except ValueError as error:
        raise UserError(str(error)) from error
