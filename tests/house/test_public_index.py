"""The public index: what ``import plaudit`` offers, that it costs nothing until it is used, and its page."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import plaudit
from plaudit.index import homes_of

INDEX = Path(inspect.getfile(plaudit)).with_suffix(".pyi")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
CHAPTERS = ("plaudit", "plaudit.losses", "plaudit.advantages")
HOMES = {
    f"{chapter}.{name}": home
    for chapter in CHAPTERS
    for name, home in homes_of(Path(import_module(chapter).__file__ or "").with_suffix(".pyi")).items()
}


@pytest.mark.parametrize("public", HOMES)
def test_a_public_name_comes_from_its_home_and_says_what_it_is(public):
    chapter, _, name = public.rpartition(".")
    found = getattr(import_module(chapter), name)
    if HOMES[public] == chapter:
        assert found is import_module(public)
    else:
        assert found is getattr(import_module(HOMES[public]), name)
    assert inspect.getdoc(found) or not (inspect.isroutine(found) or inspect.isclass(found))


def test_the_index_at_runtime_is_that_of_type_checkers():
    assert sorted(homes_of(INDEX)) == plaudit.__all__
    assert all(HOMES[f"{chapter}.{name}"] for chapter in CHAPTERS for name in import_module(chapter).__all__)


def test_every_public_name_stands_on_the_page_and_no_other():
    text = PAGE.read_text("utf-8").partition("## The names")[2]
    cells = re.findall(r"^\| [^|]+ \| (`.*) \|$", text, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    names = [name.rpartition(".")[2] for name in HOMES]
    assert sorted(listed) == sorted(names)


def test_a_row_of_a_chapter_is_a_module_with_all_of_its_names():
    rows = re.findall(r"^\| `((?:losses|advantages)\.\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {f"plaudit.{module}": {*re.findall(r"`(\w+)`", cell)} for module, cell in rows}
    homes = [(home, name.rpartition(".")[2]) for name, home in HOMES.items() if name.count(".") > 1]
    assert listed == {module: {name for home, name in homes if home == module} for module, _ in homes}


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


def test_neither_the_index_nor_the_entry_points_import_torch():
    script = (
        "import plaudit, sys\n"
        "plaudit.train, plaudit.evaluate, plaudit.run, plaudit.UserError, plaudit.simpo, plaudit.losses\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_unknown_name_is_refused_with_the_public_ones():
    with pytest.raises(AttributeError, match=r"plaudit has no 'zzz'; its public names are Answer, "):
        vars(plaudit)["__getattr__"]("zzz")
    with pytest.raises(AttributeError, match=r"plaudit has no 'Comparisons'; did you mean Comparison\?$"):
        vars(plaudit)["__getattr__"]("Comparisons")
