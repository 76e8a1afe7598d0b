"""What a user installs: the wheel and the source archive, built from a clean copy, in each Python found here.

Nothing else is installed with them, and the network is asked for nothing but the build backend. In the
Python that runs the tests plaudit also works, on their libraries: all that only the package carries is read.
"""

import email
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
CALLED = frozenset({"HOME", "PATH", "LANG", "TMPDIR"})
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def call(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in CALLED or name.startswith("PIP_")}
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False, timeout=250
    )


def well(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What such a command prints, which must end well and say nothing on standard error."""
    done = call(*command, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@functools.cache
def pythons() -> Mapping[str, str]:
    """A working interpreter of each version that is found: on the path, or one that pyenv keeps."""
    kept = sorted(Path.home().glob(".pyenv/versions/3.1[123].*/bin/python"))
    found: dict[str, str] = {HERE: sys.executable}
    for name in [*(f"python{version}" for version in VERSIONS), *map(str, kept)]:
        try:
            said = call(name, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])", cwd=ROOT)
        except OSError:
            continue
        if said.returncode == 0 and (version := said.stdout.strip()) in VERSIONS:
            found.setdefault(version, name)
    return found


@dataclass(frozen=True)
class Built:
    source: Path
    wheel: Path
    archive: Path
    hatchling: Path

    @property
    def packed(self) -> dict[str, bytes]:
        """The package's files in the wheel, with their bytes."""
        with zipfile.ZipFile(self.wheel) as wheel:
            return {
                name: wheel.read(name)
                for name in wheel.namelist()
                if ".dist-info/" not in name and not name.endswith("/")
            }

    @property
    def about(self) -> zipfile.Path:
        (folder,) = (entry for entry in zipfile.Path(self.wheel).iterdir() if ".dist-info" in entry.name)
        return folder


def build_backend(folder: Path) -> Path:
    """Hatchling in a folder of its own: no environment of a developer needs it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    done = call(*PIP, "install", "-q", "--target", folder, *settings["build-system"]["requires"], cwd=folder)
    if done.returncode:
        pytest.skip(f"hatchling cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
    return folder


def files_of(root: Path) -> list[str]:
    done = call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    if done.returncode:
        pytest.skip("this is no checkout: only git says which files are the project's")
    return [name for name in done.stdout.split("\0") if (root / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both files, built from nothing but what git would commit."""
    place = tmp_path_factory.mktemp("wheel")
    source, backend = place / "plaudit", place / "hatchling"
    backend.mkdir()
    build_backend(backend)
    for name in files_of(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    done = call(
        *(sys.executable, "-m", "hatchling", "build", "-d", place / "dist"),
        cwd=source,
        PYTHONPATH=str(backend),
    )
    assert done.returncode == 0, done.stderr
    (wheel,), (archive,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
    return Built(source, wheel, archive, backend)


def python_of(environment: Path) -> Path:
    return environment / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(built: Built, environment: Path, what: Path) -> None:
    """Of the built file alone: no index is asked, and what plaudit needs is not there."""
    words = ("install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--force-reinstall", what)
    python = python_of(environment)
    done = call(*PIP, "--python", python, *words, cwd=environment, PYTHONPATH=str(built.hatchling))
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=VERSIONS)
def environment(request, built, tmp_path_factory):
    """A fresh virtual environment of one Python with the wheel in it and nothing else."""
    if request.param not in pythons():
        pytest.skip(f"there is no Python {request.param} on this machine")
    folder = tmp_path_factory.mktemp("fresh") / request.param
    done = call(pythons()[request.param], "-m", "venv", "--without-pip", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    install(built, folder, built.wheel)
    yield folder
    shutil.rmtree(folder)


def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    sources = built.source / "src"
    written = {
        path.relative_to(sources).as_posix(): path.read_bytes()
        for path in sources.rglob("*")
        if path.is_file()
    }
    packed = built.packed
    assert sorted(written.keys() ^ packed.keys()) == []
    assert [name for name in written if written[name] != packed[name]] == []
    files = ("lab/world/model/model.safetensors", "runs/pipeline/default.yaml", "runs/report/sentences.yaml")
    for name in (*files, "runs/report/templates/page.html.j2"):
        assert packed[f"plaudit/{name}"]


def test_the_archive_has_the_whole_project(built):
    with tarfile.open(built.archive) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed - {"PKG-INFO"} == {
        path.relative_to(built.source).as_posix() for path in built.source.rglob("*") if path.is_file()
    }


def test_the_metadata_says_what_the_project_says(built):
    said = email.message_from_bytes(built.about.joinpath("METADATA").read_bytes())
    assert (said["Name"], said["Version"]) == ("plaudit", PROJECT["version"])
    assert set(said["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert said["License-Expression"] == "Apache-2.0"
    licence = built.about.joinpath("licenses", "LICENSE").read_text("utf-8")
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert set(said.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    needed = [entry for entry in said.get_all("Requires-Dist", []) if "extra ==" not in entry]
    assert len(needed) == len(PROJECT["dependencies"])
    assert built.about.joinpath("entry_points.txt").read_text("utf-8").split() == [
        *("[console_scripts]", "plaudit", "=", "plaudit.cli.main:main")
    ]


def test_it_installs_and_starts_without_a_word_of_warning(environment, tmp_path):
    command = python_of(environment).with_name("plaudit")
    assert well(command, "--version", cwd=tmp_path) == f"plaudit {PROJECT['version']}\n"
    assert "\n    train " in well(command, "--help", cwd=tmp_path)
    assert "--learning-rate" in well(command, "train", "dpo", "--help", cwd=tmp_path)
    script = "import sys, plaudit; print('torch' in sys.modules, plaudit.__file__)"
    heavy, _, where = well(python_of(environment), "-W", "error", "-c", script, cwd=tmp_path).partition(" ")
    assert (heavy, Path(where.strip()).is_relative_to(environment)) == ("False", True)


def test_every_module_compiles_without_a_warning(environment, tmp_path):
    (package,) = environment.glob("lib/python3.*/site-packages/plaudit")
    well(python_of(environment), "-W", "error", "-m", "compileall", "-q", "-f", package, cwd=tmp_path)


def test_the_archive_installs_as_the_wheel_does(built, environment, tmp_path):
    install(built, environment, built.archive)
    assert well(python_of(environment), "-m", "plaudit", "--version", cwd=tmp_path).startswith("plaudit ")
    (packages,) = environment.glob("lib/python3.*/site-packages")
    for name, written in built.packed.items():
        assert (packages / name).read_bytes() == written, name


@pytest.mark.parametrize("environment", [HERE], indirect=True)
def test_what_the_package_carries_is_found_where_it_is_installed(environment, tmp_path):
    """With the libraries of the tests' own Python: base model, pipelines, tables, the page of a run."""

    def plaudit(*words: str, code: int = 0) -> str:
        found = {"PYTHONPATH": sysconfig.get_path("purelib"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = call(python_of(environment), "-m", "plaudit", *words, cwd=tmp_path, **found)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    base = plaudit("world", "base").strip()
    assert Path(base).is_relative_to(environment)
    assert "name: valley" in plaudit("run", "--show-default")
    assert "13 of 13 stages to run" in plaudit("run", "--dry-run")
    assert "here it is --epochs" in plaudit("train", "sft", "--num-train-epochs", "1", code=2)
    plaudit("world", "make", "demonstrations", "--n", "30", "--out", "rows.jsonl")
    plaudit("train", "sft", "--model", base, "--data", "rows.jsonl", "--out", "run", "--steps", "1")
    assert (tmp_path / "run" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
