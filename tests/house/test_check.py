"""./check: each part finds a fault planted in a small repository, and none passes by looking at nothing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.check import Outcome, chosen, parts, run_part, tell
from tools.words import HEADINGS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("cli", "lab", "methods", "preflight", "collect", "evaluation", "engine", "rewards", "feedback"),
    *("feedback/judges", "runs", "rollouts", "models", "tokens", "data", "advantages", "losses"),
    *("tensors", "config", "files"),
)
MODULES = ("__init__", "__main__", "api", "bounds", "given", "index", "releases", "results", "wings")
RECORDS = ("records", "judging", "labels", "transforms", "generative_judging")
STATIC = ("format", "lint", "types", "imports", "budgets", "duplication", "words", "docs")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of the same shape with the project's own settings, in which all is well."""
    # Without what takes pictures of the app, which imports the whole of it.
    left_out = shutil.ignore_patterns("__pycache__", "pictures.py")
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=left_out)
    # Imports that are still to go are of modules that are not here, and one that is nowhere is a fault.
    settings = re.sub(
        r"^ignore_imports = \[[^]]*\]$", "", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1], target_is_directory=True)
    (tmp_path / "README.md").write_text("# Small\n\n[words](docs/glossary.md)\n")
    refused = "| not | say |\n|---|---|\n| `asked` | prompts |\n"
    tables = [f"## {heading}\n\n{refused}" for heading in HEADINGS.values()]
    write(tmp_path, "docs/glossary.md", "\n".join(["# Words\n", *tables]))
    packages = (f"{package}/__init__" for package in PACKAGES)
    for module in (*packages, *(f"data/{name}" for name in RECORDS), *MODULES):
        write(tmp_path, f"src/plaudit/{module}.py", '"""A module."""\n')
    write(tmp_path, "src/plaudit/errors.py", '"""A module."""\n\n_LIMIT = 3\n')
    write(tmp_path, "examples/hello.py", '"""An example."""\n\nprint("hello")\n')
    write(tmp_path, "benchmarks/hello.py", '"""A benchmark."""\n\nprint("hello")\n')
    write(tmp_path, "tests/test_one.py", "def test_one():\n    assert 1 + 1 == 2\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def check(root: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.check", *names]
    environment = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def verdicts(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(" s")]
    return {row[0]: row[1] for row in rows if len(row) == 4}


@pytest.mark.slow
def test_all_parts_pass_where_all_is_well(repository):
    done = check(repository, *STATIC, "tests")
    assert done.returncode == 0, done.stdout
    assert verdicts(done) == dict.fromkeys((*STATIC, "tests"), "ok")
    assert "slowest 10 durations" in done.stdout
    assert re.search(r"^(types|tests) took longest$", done.stdout, re.MULTILINE)


HEAD = '"""A module."""\n\nfrom __future__ import annotations\n\n'


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("part", "file", "text", "complaint"),
    [
        ("format", "src/plaudit/data/a.py", HEAD + "_x  =  1\n", "data/a.py"),
        ("lint", "src/plaudit/data/a.py", '"""A module."""\n\nimport os\n', "F401"),
        ("lint", "tools/long.py", f'"""A module."""\n\n_X = "{"x" * 120}"\n', "E501"),
        ("budgets", "tools/a.py", "_x = 1\n" * 601, "file of 601 lines"),
        ("duplication", "src/plaudit/a.py", "".join(f"_x = {i}\n" for i in range(6)) * 2, "elsewhere"),
        ("words", "src/plaudit/data/a.py", HEAD + "_asked = 1\n", "'_asked' is a private word: say prompts"),
        ("docs", "src/plaudit/data/a.py", "_x = 1\n", "the module needs a docstring"),
        ("docs", "docs/page.md", "# A page\n", "no link leads here from README.md or docs/README.md"),
        ("tests", "tests/test_two.py", "def test_two():\n    assert 1 + 1 == 3\n", "assert (1 + 1) == 3"),
        ("tests", "src/plaudit/models/a.py", '"""A module.\n\n>>> 1 + 1\n3\n"""\n', "Expected:"),
    ],
)
def test_a_planted_fault_fails_its_part(part, file, text, complaint, repository):
    write(repository, file, text)
    done = check(repository, part)
    assert done.returncode == 1
    assert verdicts(done) == {part: "FAILED"}
    assert complaint in done.stdout


@pytest.mark.slow
def test_types_are_checked_everywhere_and_strictly_where_it_is_pure(repository):
    untyped = HEAD + "def f(x):\n    return x\n"
    for module in ("data/records", "tensors/a", "losses/a", "advantages/a", "models/a"):
        write(repository, f"src/plaudit/{module}.py", untyped + ("\n\n_x: int = 'a'\n"))
    write(repository, "tools/a.py", HEAD + "_x: int = 'a'\n")
    done = check(repository, "types")
    assert (done.returncode, verdicts(done)) == (1, {"types": "FAILED"})
    assert done.stdout.count("(reportAssignmentType)") == 6
    assert done.stdout.count("(reportMissingParameterType)") == 4


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("models/a.py", "plaudit.engine"),
        ("tokens/a.py", "plaudit.models"),
        ("methods/a.py", "plaudit.runs.pipeline"),
        ("losses/a.py", "plaudit.tokens"),
        ("losses/a.py", "plaudit.data"),
        ("losses/a.py", "plaudit.errors"),
        ("losses/a.py", "transformers"),
        ("data/a.py", "torch"),
        ("files/a.py", "plaudit.tensors.uses_torch"),
        ("data/records.py", "plaudit.tensors.uses_torch"),
        ("data/records.py", "numpy"),
        ("errors.py", "plaudit.data"),
        ("unplaced/__init__.py", "os"),
    ],
)
def test_an_import_that_points_up_or_out_fails(file, imported, repository):
    write(repository, "src/plaudit/tensors/uses_torch.py", '"""A module."""\n\nimport torch\n')
    write(repository, f"src/plaudit/{file}", f'"""A module."""\n\nimport {imported}\n')
    done = check(repository, "imports")
    assert (done.returncode, verdicts(done)) == (1, {"imports": "FAILED"})


def test_only_the_parts_that_are_named_run_and_all_that_fail_are_told(repository):
    write(repository, "src/plaudit/data/a.py", "_x  =  1\n" * 601)
    done = check(repository, "docs", "format", "budgets", "lint")
    assert done.returncode == 1
    assert verdicts(done) == {"docs": "FAILED", "format": "FAILED", "budgets": "FAILED", "lint": "FAILED"}


def test_what_makes_two_environments_waits_to_be_asked_for():
    always = chosen((), parts(ROOT))
    assert [part.name for part in parts(ROOT) if part not in always] == ["versions"]
    assert [part.name for part in chosen(("versions",), parts(ROOT))] == ["versions"]


def test_the_slowest_tests_are_told_also_when_all_pass(capsys):
    (tests,) = (part for part in parts(ROOT) if part.name == "tests")
    output = (
        "....\n=== slowest 10 durations ===\n9.00s call a.py::test_a\n1.00s call b.py::test_b\n4 passed\n"
    )
    tell(Outcome(part=tests, passed=True, seconds=12.0, output=output))
    told = capsys.readouterr().out
    assert told.startswith("tests        ok        12.0 s\n=== slowest 10")
    assert "9.00s call a.py::test_a\n1.00s call b.py::test_b" in told
    assert "...." not in told


def test_an_unknown_part_is_refused_with_the_nearest(repository):
    done = check(repository, "typs")
    assert done.returncode == 1
    assert "there is no part 'typs'. Did you mean types?" in done.stderr


@pytest.mark.one_in(7)
@pytest.mark.parametrize("part", parts(ROOT), ids=lambda part: part.name)
def test_no_part_passes_by_looking_at_nothing(part, tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    write(tmp_path, "tools/__init__.py", "")
    for checker in ("budgets", "duplication", "words", "docs", "tree", "links", "ancestry"):
        shutil.copy(ROOT / "tools" / f"{checker}.py", tmp_path / "tools")
    for folder in ("src", "tests", "examples", "benchmarks"):
        (tmp_path / folder).mkdir()
    if part.name == "imports":
        write(tmp_path, "src/plaudit/__init__.py", "")
    if part.name in ("format", "lint", "types", "budgets", "words"):
        shutil.rmtree(tmp_path / "tools")
    assert not run_part(part, tmp_path).passed
