"""./check --changed: the tests that a change reaches through imports run, and what was left out is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.changed import reach
from tools.check import parts_of_change

FILES = {
    "src/plaudit/__init__.py": "",
    "src/plaudit/losses.py": "",
    "src/plaudit/page/__init__.py": "",
    "src/plaudit/page/style.css": "",
    "src/plaudit/run.py": "def run():\n    from plaudit import losses\n",
    "src/plaudit/named.py": "if TYPE_CHECKING:\n    from plaudit.losses import dpo\n",
    "tests/conftest.py": "",
    "tests/runs/conftest.py": "",
    "tests/runs/helper.py": "import plaudit.run\n",
    "tests/runs/test_run.py": "from tests.runs.helper import rows\n",
    "tests/runs/test_alone.py": "",
    "tests/test_named.py": "import plaudit.named\n",
    "tests/test_page.py": "import plaudit.page\n",
    "pyproject.toml": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("src/plaudit/losses.py", ["src/plaudit/losses.py", "tests/runs/test_run.py"]),
        ("src/plaudit/page/style.css", ["tests/test_page.py"]),
        ("tests/runs/helper.py", ["tests/runs/test_run.py"]),
        ("tests/runs/test_alone.py", ["tests/runs/test_alone.py"]),
        ("tests/runs/conftest.py", ["tests/runs/test_alone.py", "tests/runs/test_run.py"]),
        ("pyproject.toml", [name for name in sorted(FILES) if "/test_" in name]),
    ],
)
def test_a_change_reaches_what_imports_it_through_others(file, tests, repository):
    (repository / file).write_text("# changed\n" + FILES[file])
    change = reach(repository)
    assert [path.as_posix() for path in change.tests] == tests
    assert f"{change.left_out} of " in change.sentence()


def test_a_module_that_is_gone_still_reaches_those_who_import_it(repository):
    (repository / "src/plaudit/losses.py").unlink()
    assert [path.name for path in reach(repository).tests] == ["test_run.py"]


def test_where_all_is_committed_the_last_commit_is_the_change(repository):
    (repository / "src/plaudit/named.py").write_text("changed = True\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, "commit", "-qam", "second"], cwd=repository, check=True)
    change = reach(repository)
    assert [path.as_posix() for path in change.tests] == ["src/plaudit/named.py", "tests/test_named.py"]
    commands = {part.name: part.command for part in parts_of_change(repository, change)}
    assert commands["types"][-1] == "src/plaudit/named.py"
    assert commands["tests"][-2:] == ("src/plaudit/named.py", "tests/test_named.py")
