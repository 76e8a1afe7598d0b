"""./check versions: does plaudit work with the newest and the oldest releases that pyproject.toml allows?

    python -m tools.versions newest oldest     both environments whole: some ten minutes on two cores
    python -m tools.versions --quick           what a user gets by `pip install plaudit` today: two minutes

constraints.txt holds what `make test` and the demo install, so neither sees what a release of this morning
breaks. Here the built wheel goes into an environment made anew: without constraints (newest), or with every
requirement at its lower bound (oldest). Then commands run as a user types them: the main job made small,
and an answer of the model that came of it; of a whole environment a command of each chapter too, and the
tests of what asks transformers and torch most.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

FOLDER = ".versions"
"""Where the environments lie, of which each call makes its own anew."""
EXTRAS = ("all", "dev")
"""What a whole environment has beside what running needs."""
REPORTED = ("torch", "transformers", "tokenizers", "huggingface_hub", "numpy", "peft", "datasets")
"""Whose versions are said, where they are installed."""
FEW = {"demonstrations.n": 60, "prompts.n": 60, "comparisons.n": 60, "fresh.n": 40, "evaluation.n": 20}
FEW |= {"dpo.epochs": 1, "grpo.rounds": 2, "ppo.rounds": 2}
"""Settings of the default pipeline with which it takes half a minute."""
MAIN_JOB = (
    " ".join(["plaudit run --out small", *(f"--set {setting}={number}" for setting, number in FEW.items())]),
    # What was saved is loaded again, by this release too.
    "plaudit sample --model small/stages/grpo/run/model --prompt 'Where does Mira live?' --n 2",
)
"""All stages of the main job, and an answer of the model that GRPO leaves."""
CHAPTERS = (
    "plaudit world make demonstrations --n 40 --out demonstrations.jsonl",
    "plaudit world make comparisons --n 40 --out comparisons.jsonl",
    "plaudit world make prompts --n 40 --out prompts.jsonl",
    "plaudit data inspect comparisons.jsonl",
    "plaudit check dpo --model $BASE --data comparisons.jsonl --out checked",
    "plaudit plan sft --model $BASE --data demonstrations.jsonl --out planned",
    "plaudit train sft --model $BASE --data demonstrations.jsonl --out sft --steps 2 --lora.rank 4",
    "plaudit train reward --model $BASE --data comparisons.jsonl --out reward --steps 2",
    "plaudit train dpo --model $BASE --data comparisons.jsonl --out dpo --steps 2 --dtype bfloat16",
    "plaudit train rloo --model $BASE --prompts prompts.jsonl --reward reward/model --out rloo --rounds 2",
    "plaudit train rejection --model $BASE --prompts prompts.jsonl --reward reward/model --out rejection"
    " --loop.rounds 1",
    "plaudit eval reward reward/model --data comparisons.jsonl",
    "plaudit eval policy $BASE dpo/model --prompts prompts.jsonl --n 8 --judge reward/model",
)
"""Rows, looks before a run, a run of each chapter (with adapters, in half precision), and evaluations."""
MOST_PACKAGES = 45
"""How many packages `pip install plaudit` may bring, itself among them."""
TESTS = ("tests/models", "tests/rollouts", "tests/tokens", "tests/test_releases.py")
"""What asks most of transformers, tokenizers and torch."""


def oldest_constraints(project: Mapping[str, object]) -> list[str]:
    """Every requirement of running and of `all` at its lower bound; one without a bound ends the program.

    >>> oldest_constraints({"dependencies": ["torch>=2.11,<2.14"], "optional-dependencies": {}})
    ['torch==2.11']
    """
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    [names] = [Requirement(text).extras for text in extras.get("all", ["plaudit"])]
    needed = [*_texts(project["dependencies"]), *(text for name in sorted(names) for text in extras[name])]
    return [f"{(requirement := Requirement(text)).name}=={_lower_bound(requirement)}" for text in needed]


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _lower_bound(requirement: Requirement) -> str:
    bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
    if len(bounds) != 1:
        sys.exit(
            f"pyproject.toml: {requirement} has no lower bound, so nobody can say with what it was tried"
        )
    return bounds[0]


def build_wheel(root: Path, folder: Path) -> Path:
    """The wheel of this tree."""
    run(
        ("pip", "wheel", "-q", "--no-deps", "-w", str(folder), "."),
        root,
        programs=Path(sys.executable).parent,
    )
    [wheel] = folder.glob("plaudit-*.whl")
    return wheel


def make_environment(
    folder: Path,
    wheel: Path,
    *,
    extras: Sequence[str] = (),
    constraints: Sequence[str] = (),
    python: str = sys.executable,
) -> Path:
    """A new environment with the wheel and what it needs in it; returns the folder of its programs."""
    shutil.rmtree(folder, ignore_errors=True)
    run((python, "-m", "venv", str(folder)), folder.parent)
    file = folder / "constraints.txt"
    file.write_text("\n".join(constraints) + "\n", encoding="utf-8")
    what = f"plaudit[{','.join(extras)}] @ {wheel.as_uri()}" if extras else str(wheel)
    run(
        ("pip", "install", "-q", "--no-compile", "-c", str(file), what),
        folder.parent,
        programs=folder / "bin",
    )
    return folder / "bin"


def installed_in(programs: Path) -> dict[str, str]:
    """The version of each package that is installed there, without pip, which installed them."""
    listing = run(("pip", "list", "--format=freeze"), programs.parent, programs=programs)
    installed = dict(line.split("==") for line in listing.splitlines() if "==" in line)
    return {name: version for name, version in installed.items() if name != "pip"}


def described(installed: Mapping[str, str], *, bare: bool) -> str:
    """What there is of what matters most, for the record of a run; too many packages end the program.

    >>> described({"torch": "2.13.0", "click": "8.5"}, bare=True)
    '2 packages: torch 2.13.0'
    """
    if bare and len(installed) > MOST_PACKAGES:
        names = ", ".join(sorted(installed))
        sys.exit(f"pip install plaudit brings {len(installed)} packages, more than {MOST_PACKAGES}: {names}")
    named = ", ".join(f"{name} {installed[name]}" for name in REPORTED if name in installed)
    return f"{len(installed)} packages: {named}"


def check_environment(root: Path, name: str, programs: Path, commands: Sequence[str]) -> None:
    """Run commands in an empty folder, with the installed package alone."""
    with tempfile.TemporaryDirectory() as place:
        variables = {"XDG_CACHE_HOME": f"{place}/cache"}
        base = run(("plaudit", "world", "base"), Path(place), programs=programs, **variables).strip()
        for command in commands:
            words = [base if word == "$BASE" else word for word in shlex.split(command)]
            # A test runs where the tests are; it finds the package that is installed, and not this tree's.
            here = root if words[0] == "python" else Path(place)
            began = time.monotonic()
            output = run(words, here, programs=programs, **variables)
            print(f"{name:7} {time.monotonic() - began:6.1f} s  {command}", flush=True)
            for warning in sorted(set(re.findall(r".*(?:Deprecat|deprecated|FutureWarning).*", output))):
                print(f"        says: {warning.strip()}", flush=True)


def run(words: Sequence[str], folder: Path, *, programs: Path | None = None, **variables: str) -> str:
    """What a command prints; one that fails ends the program with all of it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if programs is not None:
        environment["PATH"] = os.pathsep.join([str(programs), environment.get("PATH", "")])
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment | variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout.strip()}\n\nthis command failed: {shlex.join(words)}")
    return done.stdout


def plan(quick: bool) -> Iterator[str]:
    """The commands that an environment has to stand."""
    yield from MAIN_JOB
    if not quick:
        yield from CHAPTERS
        yield f"python -m pytest -m 'not slow' -n auto --dist worksteal {' '.join(TESTS)}"


def main(words: Sequence[str], root: Path) -> int:
    """Make the environments that are named, and try each; returns 0, or ends the program with what failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.versions")
    parser.add_argument("environments", nargs="*", metavar="newest|oldest", help="default: both")
    parser.add_argument(
        "--quick", action="store_true", help="the newest, as a user installs it; the main job"
    )
    args = parser.parse_args(words)
    names = ["newest"] if args.quick else args.environments or ["newest", "oldest"]
    if unknown := {*names} - {"newest", "oldest"}:
        parser.error(f"{', '.join(sorted(unknown))}: there is newest, and oldest")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    (root / FOLDER).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(root, Path(folder))
        for name in names:
            began = time.monotonic()
            programs = make_environment(
                root / FOLDER / name,
                wheel,
                extras=() if args.quick else EXTRAS,
                constraints=oldest_constraints(project) if name == "oldest" else (),
            )
            taken = time.monotonic() - began
            packages = described(installed_in(programs), bare=args.quick)
            print(f"{name:7} {taken:6.1f} s  pip install: {packages}", flush=True)
            check_environment(root, name, programs, tuple(plan(args.quick)))
    print("every command ended well")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
