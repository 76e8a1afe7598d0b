"""Command-line options from a frozen dataclass, so that a setting is written down once.

The type of a field decides how its option is read and its docstring is the help. A field is a str, int,
float, bool, Path or Literal, one of these or None, a tuple of them, or another such dataclass, whose
fields get dotted options: ``--optimizer.beta2 0.95``. The command line beats ``--config FILE.yaml``, and
the file beats the defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from plaudit.configs.config_file import read_yaml, to_yaml
from plaudit.configs.resolve import resolve
from plaudit.configs.settings import Names, Setting, all_settings
from plaudit.configs.values import from_word, is_switch, item_of

__all__ = ["HelpAll", "add_options", "read_config", "to_yaml"]

ConfigT = TypeVar("ConfigT")
"""The class of a config."""

_PREFIX = "setting."
_METAVARS: dict[object, str] = {bool: "true|false", int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


def add_options(parser: argparse.ArgumentParser, config_type: type) -> None:
    """Gives a parser one option for each setting, and ``--config``, ``--print-config``, ``--help-all``."""
    common = parser.add_argument_group("config")
    common.add_argument("--config", type=Path, metavar="FILE", help="YAML file with any of the settings")
    common.add_argument("--print-config", action="store_true", help="print the resolved config and exit")
    groups: dict[Names, argparse._ArgumentGroup] = {(): parser.add_argument_group("settings")}
    hidden: list[tuple[argparse.Action, str]] = []
    for setting in all_settings(config_type):
        if setting.group is not None:
            groups[setting.path] = parser.add_argument_group(f"{setting.key}: {setting.doc}".rstrip("."))
        if setting.group is None or setting.optional_group:
            nested = len(setting.path) > 1
            action = _add_option(groups[setting.path[:-1]], setting, argparse.SUPPRESS if nested else None)
            if nested:
                hidden.append((action, _help(setting)))
    if hidden:
        common.add_argument("--help-all", action=HelpAll, hidden=hidden, help="show every setting and exit")


def read_config(
    config_type: type[ConfigT],
    args: argparse.Namespace,
    yaml_path: Path | None = None,
    fallback: Mapping[Names, object] | None = None,
) -> ConfigT:
    """The config that the parsed arguments and the file add up to; ``--print-config`` ends the program.

    ``fallback`` holds what a setting without a default is where nobody says it.
    """
    said = {
        tuple(name.removeprefix(_PREFIX).split(".")): tuple(value) if isinstance(value, list) else value
        for name, value in vars(args).items()
        if name.startswith(_PREFIX)
    }
    file = yaml_path or args.config
    written = {**(fallback or {}), **(read_yaml(file, config_type) if file else {})}
    config = resolve(config_type, written, said)
    if args.print_config:
        print(to_yaml(config), end="")
        raise SystemExit(0)
    return config


class HelpAll(argparse.Action):
    """Prints the help with the hidden options in it: each a pair of its action and its text."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, hidden: list[tuple[argparse.Action, str]], help: str
    ) -> None:
        """Remember what is hidden."""
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)
        self.hidden = hidden

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Show everything, and end the program."""
        for action, text in self.hidden:
            action.help = text
        parser.print_help()
        parser.exit()


def _add_option(group: argparse._ArgumentGroup, setting: Setting, text: str | None = None) -> argparse.Action:
    text = text or _help(setting)
    dest = _PREFIX + setting.key
    if setting.optional_group or is_switch(setting.wanted):
        switch = argparse.BooleanOptionalAction
        return group.add_argument(
            setting.option, dest=dest, action=switch, default=argparse.SUPPRESS, help=text
        )
    item = item_of(setting.wanted)
    return group.add_argument(
        setting.option,
        dest=dest,
        type=partial(_read_word, wanted=setting.wanted if item is None else item),
        nargs=None if item is None else "+",
        default=argparse.SUPPRESS,
        metavar=_metavar(setting.wanted if item is None else item),
        help=text,
    )


def _read_word(word: str, wanted: object) -> object:
    try:
        return from_word(word, wanted)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _metavar(wanted: object) -> str:
    if get_origin(wanted) is Literal:
        return "{" + ",".join(str(choice) for choice in get_args(wanted)) + "}"
    members = [member for member in get_args(wanted) if member is not type(None)] or [wanted]
    return "|".join(_METAVARS[member] if member in _METAVARS else _metavar(member) for member in members)


def _help(setting: Setting) -> str:
    """The docstring and the default; argparse reads % as the start of a placeholder."""
    if setting.group is not None:
        default = "off" if setting.default is None else "on"
    elif setting.default is MISSING:
        return f"{setting.doc} (required)".replace("%", "%%")
    else:
        default = _shown(setting.default)
    return f"{setting.doc} (default: {default})".replace("%", "%%")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)
