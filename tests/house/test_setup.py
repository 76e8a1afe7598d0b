"""tools/venv.sh: the set-up of ``make test`` and ``make demo``, with a real pip and a tiny wheel."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "tiny-1.0-py3-none-any.whl"
ARGUMENTS = ("--no-index", "-c", "constraints.txt", f"./{WHEEL}")


def setup(
    root: Path, python: str = sys.executable, arguments: tuple[str, ...] = ARGUMENTS
) -> subprocess.CompletedProcess[str]:
    command = [root / "tools" / "venv.sh", ".venv", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def tiny(root: Path) -> str:
    """What the environment's own Python says about the installed wheel."""
    python = root / ".venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import tiny; print(tiny.WORD)"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write_wheel(root: Path) -> None:
    with zipfile.ZipFile(root / WHEEL, "w") as wheel:
        wheel.writestr("tiny.py", "WORD = 'hello'\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "a folder"
    (root / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "venv.sh", root / "tools")
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "constraints.txt").write_text("tiny==1.0\n")
    write_wheel(root)
    return root


@pytest.mark.slow
def test_an_environment_is_made_once_and_then_reused(repository):
    first = setup(repository)
    assert (first.returncode, tiny(repository)) == (0, "hello"), first.stderr
    assert "making .venv with" in first.stderr
    again = setup(repository)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    settings = repository / "pyproject.toml"
    settings.write_text(settings.read_text().replace("line-length = 110", "line-length = 90"))
    assert setup(repository).stderr == ""
    (repository / "constraints.txt").write_text("tiny==1.0\nother==2.0\n")
    assert "installing into .venv" in (changed := setup(repository).stderr)
    assert "making .venv" not in changed
    wanted = repository / "wanted.txt"
    wanted.write_text(f"./{WHEEL}\n")
    from_file = ("--no-index", "-r", wanted.name)
    assert "installing into .venv" in setup(repository, arguments=from_file).stderr
    assert setup(repository, arguments=from_file).stderr == ""
    wanted.write_text(f"# another line\n./{WHEEL}\n")
    assert "installing into .venv" in setup(repository, arguments=from_file).stderr


@pytest.mark.slow
def test_a_set_up_that_was_cut_short_is_taken_up_again(repository):
    (repository / WHEEL).unlink()
    broken = setup(repository)
    assert broken.returncode == 1
    assert "the packages could not be installed; pip's own words stand above" in broken.stderr
    write_wheel(repository)
    assert setup(repository).returncode == 0
    assert tiny(repository) == "hello"


@pytest.mark.slow
def test_an_environment_without_pip_or_from_another_place_is_made_anew(repository):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repository / ".venv"], check=True)
    assert "making .venv with" in setup(repository).stderr
    assert tiny(repository) == "hello"
    moved = repository.with_name("moved")
    repository.rename(moved)
    assert "making .venv with" in setup(moved).stderr
    assert f"{moved}/.venv" in (moved / ".venv" / "bin" / "activate").read_text()


def test_an_environment_that_is_a_link_is_left_as_it_is(repository, tmp_path):
    """As in a second worktree: made anew it would be gone under the feet of the first."""
    shared = tmp_path / "shared"
    (shared / "bin").mkdir(parents=True)
    (shared / "bin" / "python").symlink_to(sys.executable)
    (repository / ".venv").symlink_to(shared)
    assert (setup(repository).returncode, setup(repository).stderr) == (0, "")
    assert [path.name for path in shared.iterdir()] == ["bin"]


def test_no_python_is_said_in_words(repository):
    done = setup(repository, python="/nowhere/python3")
    assert done.returncode == 1
    assert done.stderr == (
        "plaudit: Python 3.11, 3.12 or 3.13 is needed; no Python was found. "
        "Install one of them, or name it: make test PYTHON=/path/to/python3.12\n"
    )
    assert not (repository / ".venv").exists()


@pytest.mark.parametrize("version", ["2.7.18", "3.10.14", "3.14.0"])
def test_a_python_that_is_too_old_or_too_new_is_named(version, repository):
    other = repository / "other python"
    other.write_text(f"#!/bin/sh\necho {version}\n")
    other.chmod(0o755)
    done = setup(repository, python=str(other))
    assert done.returncode == 1
    assert f"3.11, 3.12 or 3.13 is needed; {other} is {version}. Install one" in done.stderr
    assert not (repository / ".venv").exists()


COLLECT = {"anyio", "argon2", "h11", "latex2mathml", "markdown_it", "nh3", "pygments", "sqlalchemy"}
COLLECT |= {"starlette", "uvicorn"}
"""What the store of labels needs, and nothing else."""
OPTIONAL = COLLECT | {
    *("deepspeed", "peft", "pg8000", "datasets", "pandas", "tensorboard", "PIL"),
    *("wandb", "mlflow", "trackio", "lm_eval", "readline"),
}
"""What is imported only where a user asks for it, and is said in words where it is not there."""
CALLED = {"pyyaml": "yaml", "huggingface_hub": "huggingface_hub"}
"""What a package is imported as, where that is not its name. markupsafe comes with jinja2, which needs it."""


def test_whatever_the_package_imports_is_installed_with_it():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    names = [re.split(r"[<>=\[]", entry)[0] for entry in settings["project"]["dependencies"]]
    installed = {CALLED.get(name, name) for name in names} | {"markupsafe", "plaudit"}
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "src").rglob("*.py")
        for name in _imported(ast.parse(path.read_text("utf-8")))
        if name not in installed | OPTIONAL | sys.stdlib_module_names
    }
    assert not missing


@pytest.mark.slow
def test_all_but_the_store_itself_works_without_the_packages_of_the_store():
    modules = (
        "api",
        "runs.pipeline.run",
        "collect.stage",
        "methods.iterative.rlhf",
        "lab.world.online",
        "collect.verbs",
    )
    lines = [
        "import sys",
        *(f"sys.modules[{name!r}] = None" for name in sorted(COLLECT)),
        *(f"import plaudit.{module}" for module in modules),
        "from plaudit.collect.client import LabelClient",
        "from plaudit.cli.main import main",
        "raise SystemExit(main(['collect', 'status']))",
    ]
    words = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert 'plaudit collect status needs sqlalchemy: pip install "plaudit[collect]"' in done.stderr


def _imported(tree: ast.Module) -> set[str]:
    nodes = [*ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}
