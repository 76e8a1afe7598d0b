"""What a command found, as a file for programs: ``--json FILE``.

Numbers on the command line, refused in words.

Command-line options from a frozen dataclass, so that a setting is written down once.

The type of a field decides how its option is read and its docstring is the help. A field is a str, int,
float, bool, Path or Literal, one of these or None, a tuple of them, or another such dataclass, whose
fields get dotted options: ``--optimizer.beta2 0.95``. The command line beats ``--config FILE.yaml``, and
the file beats the defaults.

argparse with three habits changed: no abbreviations, `UserError` for a fault, the nearest word in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar, get_args, get_origin

from plaudit.config import (
    Setting,
    SettingPath,
    all_settings,
    did_you_mean,
    explain_unknown,
    is_switch,
    item_type,
    load_yaml,
    parse_word,
    read_yaml,
    resolve,
    to_yaml,
)
from plaudit.errors import CommandEnd, UserError
from plaudit.files import hub
from plaudit.files.data_sets import joined

if TYPE_CHECKING:
    from plaudit.data.formats.layout import ReadOptions

_Option = TypeVar("_Option")
_Value = TypeVar("_Value")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """The file, written as a whole or not at all."""
    from plaudit.files.atomic import write_text

    try:
        write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--json {path}: cannot be written ({error.strerror})") from error


def integer(word: str) -> int:
    """The whole number that an option was given; anything else is refused by argparse."""
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {word!r}") from None


def given_path(word: str) -> Path:
    """A path; the empty word of a variable that was never set would be the present folder."""
    if not word:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(word)


def _read_word(read: Callable[[str], _Value], word: str) -> _Value:
    """What a word is read as; argparse puts the option's name before a complaint."""
    try:
        return read(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def model_path(word: str) -> Path:
    return _read_word(partial(hub.local_path, kind="model"), word)


def positive_integer(word: str) -> int:
    number = integer(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def _named_role(word: str) -> str:
    from plaudit.data.formats.layout import named_role

    return _read_word(named_role, word)


def add_row_options(
    add: Callable[..., _Option], *, formats: str = "plaudit data inspect names them"
) -> list[_Option]:
    """Add the options that say what the user's rows are, by a parser's ``add_argument`` or one like it."""
    return [
        add("--format", metavar="NAME", help=f"do not guess the layout of the rows: {formats}"),
        add(
            "--columns",
            nargs="+",
            action="extend",
            default=[],
            metavar="NAME=FIELD",
            help="what fields of the rows are: prompt=question, or prompt=input.messages",
        ),
        add(
            "--roles",
            nargs="+",
            dest="columns",
            action="extend",
            type=_named_role,
            default=[],
            metavar="SPEAKER=ROLE",
            help="who speaks in conversations: narrator=assistant",
        ),
        add("--leave-out", nargs="+", default=(), metavar="FIELD", help="fields that nobody has to read"),
    ]


def row_options(args: argparse.Namespace, **settings: Any) -> ReadOptions:
    """What the parsed row options say; ``settings`` are further ones of the command."""
    from plaudit.data.formats.layout import ReadOptions

    return ReadOptions(columns=tuple(args.columns), leave_out=tuple(args.leave_out), **settings)


def refuse_missing_models(*models: str | Path | None) -> None:
    """Say that a model is not there before torch is imported, which takes seconds."""
    for model in models:
        if isinstance(model, Path):
            hub.refuse_address(model)
        # org/name and length:1-9 may be no paths to whoever reads them later; these can be nothing else.
        is_path = model is not None and ":" not in str(model) and str(model).count("/") != 1
        if is_path and not Path(str(model)).exists():
            raise UserError(
                f"{model}: no such folder; give the folder that holds the model and its tokenizer"
                f"{hub.name_hint(str(model))}"
            )


_FILES_OF_ROWS = (
    *("data", "prompts", "held_out", "ptx.data"),
    *("loop.data", "loop.people", "loop.held_out_prompts"),
)


def refuse_missing_inputs(config: Any) -> None:
    """Say it of every model and file of rows that the settings of a training run name."""
    from plaudit.data.files import READERS
    from plaudit.files.data_sets import SEVERAL

    # Ranks find out together what one of them lacks: one that ended here would leave the others waiting.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return

    for key in ("model", "teacher", "reference.model", "critic.model"):
        refuse_missing_models(_setting_value(config, key))
    for key in _FILES_OF_ROWS:
        word = str(_setting_value(config, key))
        hub.refuse_address(word)
        if SEVERAL not in word and word.endswith(tuple(READERS)):
            path = Path(word)
            if not path.exists():
                neighbours = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
                hint = did_you_mean(path.name, neighbours) or ". Check the name."
                raise UserError(f"{path}: there is no such file{hint}")


def _setting_value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name, None)
    return config


ConfigT = TypeVar("ConfigT")

_DEST_PREFIX = "setting."
_METAVARS: dict[object, str] = {bool: "true|false", int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


_ROWS = (("data",), ("prompts",))
"""Settings that several sources may be given to: a.jsonl*2 b.parquet org/name/train."""


def add_options(parser: argparse.ArgumentParser, config_type: type) -> None:
    """Gives a parser one option for each setting, and ``--config``, ``--print-config``, ``--help-all``."""
    common = parser.add_argument_group("config")
    common.add_argument("--config", type=Path, metavar="FILE", help="YAML file with any of the settings")
    common.add_argument("--print-config", action="store_true", help="print the resolved config and exit")
    groups: dict[SettingPath, argparse._ArgumentGroup] = {(): parser.add_argument_group("settings")}
    hidden: list[tuple[argparse.Action, str]] = []
    for setting in all_settings(config_type):
        if setting.group is not None:
            groups[setting.path] = parser.add_argument_group(f"{setting.key}: {setting.doc}".rstrip("."))
        if setting.group is None or setting.optional_group:
            text = argparse.SUPPRESS if setting.hidden else None
            action = _add_option(groups[setting.path[:-1]], setting, text)
            if setting.hidden:
                hidden.append((action, _help_text(setting)))
    refused: Mapping[str, str] = getattr(config_type, "refused", {})
    for name, why in refused.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, action=RefusedOption, nargs="*", why=why, help=argparse.SUPPRESS)
    if hidden:
        common.add_argument("--help-all", action=HelpAll, hidden=hidden, help="show every setting and exit")


class RefusedOption(argparse.Action):
    """Says why a setting of other algorithms has no meaning here."""

    def __init__(self, option_strings: Sequence[str], dest: str, why: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **settings)
        self.why = why

    def __call__(self, *_: Any) -> NoReturn:
        raise UserError(self.why)


class JoinedWords(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        if "" in values:
            parser.error(f"argument {self.option_strings[0]}: expected rows, got ''")
        setattr(namespace, self.dest, Path(joined(values)))


def read_config(
    config_type: type[ConfigT],
    args: argparse.Namespace,
    yaml_path: Path | None = None,
    fallback: Mapping[SettingPath, object] | None = None,
) -> ConfigT:
    """The config that the parsed arguments and the file add up to; ``--print-config`` ends the program.
    ``fallback`` holds what a setting without a default is where nobody says it."""
    command_line = {
        tuple(name.removeprefix(_DEST_PREFIX).split(".")): tuple(value) if isinstance(value, list) else value
        for name, value in vars(args).items()
        if name.startswith(_DEST_PREFIX)
    }
    file = yaml_path or args.config
    file_values = {**(fallback or {}), **(read_yaml(file, config_type) if file else {})}
    config = resolve(config_type, file_values, command_line)
    if args.print_config:
        print(to_yaml(config), end="")
        raise CommandEnd(0)
    return config


def add_method_options(parser: argparse.ArgumentParser, words: Sequence[str], *, method: str) -> None:
    """The options of a training method; those of an algorithm of one's own are read from its file.
    The parsed arguments hold the method's config as ``config_type``."""
    from plaudit.methods import registry

    algorithm = _own_algorithm(words) if method in registry.OWN_ALGORITHMS else None
    config = registry.config_type(method, algorithm)
    parser.set_defaults(config_type=config)
    add_options(parser, config)


def _own_algorithm(words: Sequence[str]) -> str | None:
    # Looked for before the real parse: which options there are depends on the file that it names.
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--algorithm")
    finder.add_argument("--config", type=Path)
    found, _ = finder.parse_known_args(words)
    if found.algorithm is not None or found.config is None:
        return found.algorithm
    loaded, _ = load_yaml(found.config)
    return loaded.get("algorithm") if isinstance(loaded, Mapping) else None


class HelpAll(argparse.Action):
    """Prints the help with the hidden options in it: each a pair of its action and its text."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, hidden: list[tuple[argparse.Action, str]], help: str
    ) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)
        self.hidden = hidden

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for action, text in self.hidden:
            action.help = text
        parser.print_help()
        parser.exit()


def _add_option(
    group: argparse._ActionsContainer, setting: Setting, text: str | None = None
) -> argparse.Action:
    # Absent unless it was said: only so does the command line beat the file, and the file the defaults.
    how: dict[str, Any] = {"dest": _DEST_PREFIX + setting.key, "default": argparse.SUPPRESS}
    if setting.optional_group or is_switch(setting.value_type):
        how |= {"action": argparse.BooleanOptionalAction}
    elif setting.path in _ROWS:
        how |= {"action": JoinedWords, "nargs": "+", "metavar": "ROWS"}
    else:
        item = item_type(setting.value_type)
        value_type = setting.value_type if item is None else item
        how |= {"nargs": None if item is None else "+", "metavar": _metavar(value_type)}
        how |= {"type": partial(_read_word, partial(parse_word, value_type=value_type))}
    return group.add_argument(setting.option, help=text or _help_text(setting), **how)


def _metavar(value_type: object) -> str:
    if get_origin(value_type) is Literal:
        return "{" + ",".join(str(choice) for choice in get_args(value_type)) + "}"
    members = [member for member in get_args(value_type) if member is not type(None)] or [value_type]
    return "|".join(_METAVARS[member] if member in _METAVARS else _metavar(member) for member in members)


def _help_text(setting: Setting) -> str:
    """The docstring and the default; argparse reads % as the start of a placeholder."""
    if setting.group is not None:
        default = "off" if setting.default is None else "on"
    elif setting.default is MISSING:
        return f"{setting.doc} (required)".replace("%", "%%")
    else:
        default = _format_default(setting.default)
    return f"{setting.doc} (default: {default})".replace("%", "%%")


def _format_default(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


class Parser(argparse.ArgumentParser):
    """The parser of the command and, since argparse hands the class on, of every verb."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """As ``argparse.ArgumentParser``; an abbreviation that works today breaks when an option is added."""
        super().__init__(*arguments, **{"allow_abbrev": False} | settings)
        self.add_options_on_use: Callable[[Parser, Sequence[str]], None] | None = None
        """What adds the options when they are needed, given the words after the verb: of fifty methods one is
        used, and an algorithm of one's own has options that only its file knows."""
        # Before Python 3.14 argparse takes -1e-4 for an option.
        self._negative_number_matcher = re.compile(r"-\d*\.?\d+(e[-+]?\d+)?$", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        """Ends the parse with what is wrong and where to read on."""
        raise UserError(f"{message}\nSee {self.prog} --help")

    def parse_known_args(self, *arguments: Any, **settings: Any) -> tuple[Any, list[str]]:
        """As argparse, but the parser that knows the options complains about one that does not exist."""
        if self.add_options_on_use is not None:
            # Taken away first: a second parse must not add the same options again.
            add_options_on_use, self.add_options_on_use = self.add_options_on_use, None
            add_options_on_use(self, arguments[0] if arguments and arguments[0] else ())
        if "--set" in self._option_string_actions and arguments and arguments[0]:
            # Complain about ``--set a.b=1 c.d=2``, whose second setting would be taken for a file.
            words = arguments[0]
            for option, _, behind in zip(words, words[1:], words[2:], strict=False):
                if option == "--set" and re.match(r"[\w-]+\.[\w.-]+=", behind):
                    raise UserError(f"--set takes one setting; write --set {behind} for the next")
        namespace, unknown = super().parse_known_args(*arguments, **settings)
        if unknown:
            word = unknown[0].partition("=")[0]
            if word.startswith("-"):
                self.error(f"unknown option {word}{explain_unknown(word, self._option_string_actions)}")
            self.error(f"unexpected argument {unknown[0]!r}")
        return namespace, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), choices) or f"; choose from {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"
