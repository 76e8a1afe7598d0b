"""./check [part ...]: every check of the repository in one command; a part that looked at nothing fails.

Without a part all of them run but those that wait to be asked for: they make environments, or take long.
``./check --changed [commit]`` runs what a change needs while it is made: what reads the tree, types of the
files that changed, and the quick tests whose imports reach them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from tools.changed import Reach, reach
from tools.tree import FOLDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One check.

    Example: ``Part(name="lint", command=("ruff", "check", "src"), evidence="All checks passed")``
    """

    name: str
    """What the command line calls it."""
    command: tuple[str, ...]
    """What runs: a program of the environment and its arguments."""
    evidence: str
    """A pattern that stands in the output only when something was looked at."""
    counter_evidence: str = r"No Python files found"
    """A pattern that stands in the output when nothing was."""
    shown: str | None = None
    """A pattern of what is shown of the output also when all went well."""
    exclusive: bool = False
    """True for a part whose timings others would disturb."""
    on_request: bool = False
    """True for a part that runs where it is named, and only there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a part went.

    Example: ``Outcome(part=part, passed=True, seconds=0.4, output="All checks passed!")``
    """

    part: Part
    """The part."""
    passed: bool
    """Whether it is green."""
    seconds: float
    """How long it took."""
    output: str
    """What it said."""


_RUNNERS = (
    Part(
        name="tests",
        command=("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", "--durations=10"),
        evidence=r"[1-9]\d* passed",
        shown=r"^=+ slowest 10 durations =+\n(?:(?!=).*\n)*",
        exclusive=True,
    ),
    Part(
        name="install",
        command=("python", "-m", "tools.versions", "--quick"),
        evidence=r"every command ended well",
        shown=r"(?:^newest .*\n)+",
    ),
    Part(
        name="versions",
        command=("python", "-m", "tools.versions"),
        evidence=r"every command ended well",
        shown=r"(?:^(?:newest|oldest|  ) .*\n)+",
        exclusive=True,
        on_request=True,
    ),
)
"""Parts that run it: the tests, and an installation with other releases."""


def parts(root: Path) -> tuple[Part, ...]:
    """The parts in the order in which they are reported."""
    return (*_readers(root), *_RUNNERS)


def _readers(root: Path) -> tuple[Part, ...]:
    """Parts that read the tree and run nothing of it."""
    folders = tuple(folder for folder in FOLDERS if any((root / folder).rglob("*.py")))
    return (
        Part(
            name="format",
            command=("ruff", "format", "--check", *folders),
            evidence=r"[1-9]\d* files? already",
        ),
        Part(name="lint", command=("ruff", "check", "--output-format=concise", *folders), evidence=r"passed"),
        Part(name="types", command=("basedpyright", "--stats"), evidence=r"Total files checked: [1-9]"),
        Part(
            name="imports",
            command=("lint-imports", "--no-logo"),
            evidence=r"Analyzed [1-9](.|\n)*Contracts: [1-9]\d* kept, 0 broken",
        ),
        Part(name="budgets", command=("python", "-m", "tools.budgets"), evidence=r"[1-9]\d* files"),
        Part(
            name="duplication",
            command=("python", "-m", "tools.duplication"),
            evidence=r"of [1-9]\d* code lines",
        ),
        Part(
            name="words", command=("python", "-m", "tools.words"), evidence=r"[1-9]\d* files, 0 private names"
        ),
        Part(name="docs", command=("python", "-m", "tools.docs"), evidence=r"[1-9]\d* files, [1-9]\d* pages"),
    )


def parts_of_change(root: Path, change: Reach) -> list[Part]:
    """What reads the tree, and types and tests as far as a change reaches."""
    typed = [path for path in change.changed if path.suffix == ".py" and (root / path).exists()]
    typed = [str(path) for path in typed if path.parts[0] in ("src", "tools", "examples", "benchmarks")]
    readers = [
        replace(part, command=(*part.command, *typed)) if part.name == "types" else part
        for part in _readers(root)
        if typed or part.name != "types"
    ]
    if not change.tests:
        return readers
    quick = ("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-m", "not slow")
    command = (*quick, *map(str, change.tests))
    tests = Part(
        name="tests", command=command, evidence=r"[1-9]\d* (passed|skipped)|no tests ran", exclusive=True
    )
    return [*readers, tests]


def run_part(part: Part, root: Path) -> Outcome:
    """Runs one part to its end."""
    started = time.perf_counter()
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
        # This tree, whatever the environment has installed.
        "PYTHONPATH": str(root / "src"),
    }
    done = subprocess.run(
        part.command,
        cwd=root,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    looked = re.search(part.evidence, done.stdout) and not re.search(part.counter_evidence, done.stdout)
    output = done.stdout
    if done.returncode == 0 and not looked:
        output += "\nthis part ended well without having looked at anything\n"
    passed = done.returncode == 0 and bool(looked)
    return Outcome(part=part, passed=passed, seconds=time.perf_counter() - started, output=output)


def chosen(names: Sequence[str], known: Sequence[Part]) -> list[Part]:
    """The parts of these names, all that need no request without a name; an unknown one ends the program."""
    by_name = {part.name: part for part in known}
    for name in names:
        if name not in by_name:
            nearest = get_close_matches(name, by_name, n=1)
            hint = f" Did you mean {nearest[0]}?" if nearest else ""
            sys.exit(f"./check: there is no part {name!r}.{hint} Parts: {', '.join(by_name)}")
    return [by_name[name] for name in names] or [part for part in known if not part.on_request]


def tell(outcome: Outcome) -> None:
    """One line for a part, and its output when it failed."""
    verdict = "ok" if outcome.passed else "FAILED"
    print(f"{outcome.part.name:12} {verdict:7} {outcome.seconds:6.1f} s", flush=True)
    if not outcome.passed:
        print(outcome.output.strip(), end="\n\n", flush=True)
    elif outcome.part.shown and (shown := re.search(outcome.part.shown, outcome.output, re.MULTILINE)):
        print(shown[0].strip(), flush=True)


def main(names: Sequence[str], root: Path) -> int:
    """Runs the parts, the quick ones side by side; returns the exit code."""
    if names and names[0] == "--changed":
        change = reach(root, *names[1:2])
        print(change.sentence(), flush=True)
        selected = parts_of_change(root, change)
    else:
        selected = chosen(names, parts(root))
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for outcome in pool.map(lambda part: run_part(part, root), [p for p in selected if not p.exclusive]):
            tell(outcome)
            outcomes.append(outcome)
    for part in [p for p in selected if p.exclusive]:
        outcome = run_part(part, root)
        tell(outcome)
        outcomes.append(outcome)
    if len(outcomes) > 1:
        longest = max(outcomes, key=lambda outcome: outcome.seconds)
        print(f"{longest.part.name} took longest")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
