"""make release: build what is published, and try it as a stranger gets it.

Versions that agree (pyproject.toml, the package, CHANGELOG.md, CITATION.cff, this commit's tag); a wheel and
an sdist in ``dist/``, read by ``twine check``; the wheel in a new environment for every supported Python
on this machine, where the main job runs. Nothing is uploaded: docs/releasing.md says how.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.versions import FOLDER, MAIN_JOB, check_environment, make_environment, run

PYTHONS = ("python3.11", "python3.12", "python3.13")
"""Those that pyproject.toml supports."""


def stated_versions(root: Path) -> dict[str, str | None]:
    """The version that each file says, or None; of CHANGELOG.md the newest that has a date."""
    patterns = {
        "src/plaudit/__init__.py": r'^__version__ = "(.+)"$',
        "CHANGELOG.md": r"^## (\d+\.\d+\.\d+) — \d{4}-\d{2}-\d{2}$",
        "CITATION.cff": r"^version: (.+)$",
    }
    stated: dict[str, str | None] = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    }
    for name, pattern in patterns.items():
        match = re.search(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        stated[name] = match[1] if match else None
    return stated


def release_faults(root: Path, tags: list[str], changed: list[str]) -> Iterator[str]:
    """What keeps this commit, with what differs from it in the tree, from being the release that it says."""
    if changed:
        yield f"the tree is not what is committed, and it is what would be built: {', '.join(changed)}"
    stated = stated_versions(root)
    version = stated["pyproject.toml"]
    for name, other in stated.items():
        if other != version:
            yield f"{name} says version {other}, pyproject.toml says {version}"
    if f"v{version}" not in tags:
        yield f"this commit has no tag v{version}: git tag -a v{version} -m 'plaudit {version}'"


def build(root: Path) -> Path:
    """A wheel and an sdist in ``dist/``, both read by twine; returns the wheel."""
    programs = root / FOLDER / "release" / "bin"
    shutil.rmtree(programs.parent, ignore_errors=True)
    run((sys.executable, "-m", "venv", str(programs.parent)), root)
    run(("pip", "install", "-q", "build", "twine"), root, programs=programs)
    shutil.rmtree(root / "dist", ignore_errors=True)
    run(("python", "-m", "build", "--outdir", "dist", "."), root, programs=programs)
    files = sorted(str(path) for path in (root / "dist").iterdir())
    print(run(("twine", "check", "--strict", *files), root, programs=programs).strip(), flush=True)
    [wheel] = (root / "dist").glob("*.whl")
    return wheel


def main(root: Path) -> int:
    """Returns 0 where the release may go out; what keeps it from that is printed."""

    def lines(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, text=True, capture_output=True, check=True)
        return done.stdout.splitlines()

    # First, since all that follows takes minutes; what is built is tried all the same.
    faults = [*release_faults(root, lines("tag", "--points-at", "HEAD"), lines("status", "--porcelain"))]
    print(*faults, sep="\n", flush=True)
    (root / FOLDER).mkdir(exist_ok=True)
    wheel = build(root)
    for name in PYTHONS:
        python = shutil.which(name)
        if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
            print(f"{name}: not on this machine, so not tried", flush=True)
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            programs = make_environment(Path(folder) / name, wheel, python=python)
            print(f"{name}: installed in {time.monotonic() - began:.0f} s", flush=True)
            check_environment(root, name, programs, MAIN_JOB)
    print("this may not go out: see the first lines" if faults else "this may go out: docs/releasing.md")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
