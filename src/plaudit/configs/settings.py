"""The settings inside a frozen dataclass: their names, types, defaults and docstrings, read from the class.

A nested dataclass is a group of settings with dotted names; a nested dataclass that may be None is a
group that can be turned on and off as a whole.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_type_hints

from plaudit.configs.values import describe

Names = tuple[str, ...]
"""The names that lead to a setting: ``("optimizer", "beta2")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field of a config.

    Example: ``Setting(path=("optimizer", "beta2"), wanted=float, default=0.95, doc="How slowly.")``
    """

    path: Names
    """The names that lead to it."""
    wanted: Any
    """Its type."""
    default: Any
    """Its default; ``dataclasses.MISSING`` when it has none."""
    doc: str
    """Its docstring, on one line."""
    group: type | None = None
    """The nested dataclass, when the setting is a group."""

    @property
    def key(self) -> str:
        """Its name in a file and in messages."""
        return ".".join(self.path)

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return "--" + self.key.replace("_", "-")

    @property
    def optional_group(self) -> bool:
        """Whether it is a group that may be None."""
        return self.group is not None and self.wanted is not self.group


def settings_of(config_type: type, path: Names = (), base: object = MISSING) -> Iterator[Setting]:
    """The fields of one config, groups not entered; ``base`` is where the defaults are taken from."""
    hints, docs = get_type_hints(config_type), _docstrings(config_type)
    for field in dataclasses.fields(config_type):
        if not field.init:
            continue
        if field.name not in docs:
            raise TypeError(
                f"{config_type.__name__}.{field.name} needs a docstring: it is the text of --help"
            )
        wanted = hints[field.name]
        setting = Setting(
            path=(*path, field.name),
            wanted=wanted,
            default=_default(field) if base is MISSING else getattr(base, field.name),
            doc=docs[field.name],
            group=_group(wanted),
        )
        if setting.group is None:
            describe(wanted)
        yield setting


def all_settings(config_type: type, path: Names = (), base: object = MISSING) -> Iterator[Setting]:
    """The fields of a config and of every group inside it, each group before what is inside it."""
    for setting in settings_of(config_type, path, base):
        yield setting
        if setting.group is not None:
            yield from all_settings(setting.group, setting.path, base_of(setting))


def base_of(setting: Setting) -> object:
    """Where the fields of a group take their defaults from: the group's own default, when it has one."""
    return MISSING if setting.default is None else setting.default


def _group(wanted: Any) -> type | None:
    inside = [member for member in get_args(wanted) if member is not type(None)] or [wanted]
    is_config = len(inside) == 1 and isinstance(inside[0], type) and dataclasses.is_dataclass(inside[0])
    return inside[0] if is_config else None


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _docstrings(config_type: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for ancestor in reversed(config_type.__mro__):
        if dataclasses.is_dataclass(ancestor):
            found |= _docstrings_in(_definition(ancestor).body)
    return found


def _docstrings_in(body: list[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for statement, following in pairwise(body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def _definition(config_type: type) -> ast.ClassDef:
    """The class statement, found by its qualified name (``outer.<locals>.Config``)."""
    node: ast.AST = _parsed(config_type.__module__)
    for name in config_type.__qualname__.split("."):
        if name != "<locals>":
            node = next(n for n in ast.walk(node) if isinstance(n, _NAMED) and n.name == name)
    assert isinstance(node, ast.ClassDef)
    return node


_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))
