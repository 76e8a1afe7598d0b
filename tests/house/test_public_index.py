"""The public index: what ``import plaudit`` offers, and that it costs nothing until it is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import plaudit

INDEX = Path(inspect.getfile(plaudit))


@pytest.mark.parametrize("name", plaudit.__all__)
def test_a_public_name_comes_from_its_home(name):
    home = next(home for home, names in plaudit._HOMES.items() if name in names)
    assert getattr(plaudit, name) is getattr(importlib.import_module(home), name)


def test_the_three_lists_of_the_index_agree():
    at_runtime = {(home, name) for home, names in plaudit._HOMES.items() for name in names}
    for_type_checkers = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(INDEX.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert at_runtime == for_type_checkers
    assert sorted(name for _, name in at_runtime) == plaudit.__all__


def test_nothing_else_is_public():
    script = (
        "import plaudit, types\n"
        "names = [n for n, v in vars(plaudit).items() if not n.startswith('_')]\n"
        "modules = [n for n in names if isinstance(getattr(plaudit, n), types.ModuleType)]\n"
        "print(sorted(set(names) - set(modules) - set(plaudit.__all__)))\n"
        "print(sorted(set(dir(plaudit)) - set(plaudit.__all__)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['__version__']"]


def test_an_unknown_name_is_refused_with_the_public_ones():
    with pytest.raises(AttributeError, match=r"plaudit has no 'Comparisons'; its public names are Answer, "):
        vars(plaudit)["__getattr__"]("Comparisons")
