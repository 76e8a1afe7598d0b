"""The size of the house in figures: how much there is, and how far a reader walks from a command to a loss.

Each figure has a target, and a bound that it may not leave again: the bound is what was reached last, and is
lowered with every step towards the target.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from tools.changed import imports, module_of
from tools.tree import Source, name_of, root_from_arguments, sources
from tools.words import times_bound

SRC, TESTS = "src", "tests"
"""The folders that the figures are of."""
WINGS = frozenset({"collect", "feedback", "lab", "pictures", "runs", "serving"})
"""Folders of the package that are no part of the core."""
LONG = 540
"""From how many lines on a file is long; 600 is the most that one may have."""
CHAPTER_ROLES = frozenset(
    {"__init__", "run", "config", "data", "objective", "algorithms", "page", "sections", "wing"}
)
"""Names that every chapter has one file of: a reader who knows one chapter finds the same part of another."""
SAME_NAME = 3
"""How many files may share a name that is no chapter's role."""
VAGUE = {"found": 254, "own": 76, "shown": 87, "known": 78, "look": 52}
"""How often each vague name of the glossary may be bound: variables, parameters, functions and fields."""
FAMILY = 3
"""From how many files of a folder on a common prefix makes them a family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure.

    Example: ``Figure(name="files", value=383, target=330, bound=383)``
    """

    name: str
    """What is counted."""
    value: float
    """What was found."""
    target: float
    """What it should be."""
    bound: float
    """What it must not leave."""
    at_least: bool = False
    """True where more is better."""
    detail: str = ""
    """What is over, by name."""

    def reaches(self, wanted: float) -> bool:
        """Whether the figure is as good as this."""
        return self.value >= wanted if self.at_least else self.value <= wanted


def source_figures(files: Sequence[Source]) -> Iterator[Figure]:
    """What can be counted without running anything."""
    house = [source for source in files if source.path.parts[0] == SRC]
    core = [source for source in house if source.path.parts[2] not in WINGS]
    yield Figure(name="files of the core", value=len(core), target=270, bound=263)
    yield Figure(name="lines of the core", value=line_count(core), target=62_000, bound=66_560)
    yield Figure(name="files", value=len(house), target=470, bound=495)
    yield Figure(name="lines", value=line_count(house), target=108_000, bound=116_300)
    docstrings = sum(docstring_lines(source.tree) for source in house)
    yield Figure(name="lines of docstrings", value=docstrings, target=13_500, bound=13_720)
    comments = sum(comment_lines(source.text) for source in house)
    code = sum(code_lines(source.text) for source in house)
    share = round(100 * comments / max(code, 1), 2)
    yield Figure(name="comments in % of code lines", value=share, target=3, bound=3.0, at_least=True)
    records = sum(is_record(node) for source in core for node in ast.walk(source.tree))
    yield Figure(name="dataclasses in the core", value=records, target=380, bound=420)
    long = [source.path.name for source in house if len(source.text.splitlines()) >= LONG]
    yield Figure(
        name=f"files of {LONG} lines and more", value=len(long), target=8, bound=7, detail=", ".join(long)
    )
    families = prefix_families([source.path for source in house])
    yield Figure(name="prefix families", value=len(families), target=0, bound=0, detail=", ".join(families))
    names = shared_names([source.path for source in house])
    yield Figure(
        name="names of more than 3 files", value=len(names), target=0, bound=0, detail=", ".join(names)
    )
    knots = circles(imports_between(house))
    detail = "; ".join(" ".join(knot) for knot in knots)
    yield Figure(name="circles of imports", value=len(knots), target=0, bound=0, detail=detail)
    upward, across = wing_imports(imports_between(house))
    yield Figure(name="imports of a wing by the core", value=upward, target=0, bound=0)
    yield Figure(name="imports of a wing by another", value=across, target=0, bound=6)
    bound = times_bound(house)
    for name, most in VAGUE.items():
        yield Figure(name=f"times that a name is {name!r}", value=bound[name], target=0, bound=most)
    tests = [source for source in files if source.path.parts[0] == TESTS]
    yield Figure(name="lines of tests", value=test_lines(tests), target=70_000, bound=91_120)


def line_count(files: Sequence[Source]) -> int:
    """All their lines."""
    return sum(len(source.text.splitlines()) for source in files)


def test_lines(files: Sequence[Source]) -> int:
    """All their lines but those that only say when a test runs: ``@pytest.mark.slow`` and its like."""
    return sum(
        not re.match(r"\s*@pytest\.mark\.(slow|one_in\(\d+\))$", line)
        for source in files
        for line in source.text.splitlines()
    )


def is_record(node: ast.AST) -> bool:
    """Whether a node defines a dataclass."""
    decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
    return any(name_of(decorator).rpartition(".")[2] == "dataclass" for decorator in decorators)


def docstring_lines(tree: ast.Module) -> int:
    """Lines of strings that stand alone as statements: docstrings, of fields and constants too."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def imports_between(files: Sequence[Source]) -> dict[str, set[str]]:
    """What each module imports of the others, at its top or within functions."""
    modules = {module_of(source.path) for source in files}
    return {module_of(source.path): {*imports(source.tree, modules)} & modules for source in files}


def wing_imports(imported: Mapping[str, set[str]]) -> tuple[int, int]:
    """How many pairs of modules are a core's with a wing's that it imports, and one wing's with another's.

    >>> wing_imports({"plaudit.api": {"plaudit.lab.a"}, "plaudit.lab.a": {"plaudit.runs.b", "plaudit.lab.c"}})
    (1, 1)
    """
    homes = [
        (name.split(".")[1], other.split(".")[1])
        for name, others in imported.items()
        for other in others
        if name.count(".") and other.count(".")
    ]
    crossing = [(here, there) for here, there in homes if there in WINGS and here != there]
    across = sum(here in WINGS for here, _ in crossing)
    return len(crossing) - across, across


def circles(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each imports, through others, every other.

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})
    [['b', 'c']]
    """
    reached = {name: _reached(name, imported) for name in imported}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imported
        if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def _reached(name: str, imported: Mapping[str, set[str]]) -> set[str]:
    waiting, reached = [name], set[str]()
    while waiting:
        waiting += (more := imported[waiting.pop()] - reached)
        reached |= more
    return reached


def comment_lines(text: str) -> int:
    """Lines with a comment that is none for a tool."""
    marks = ("# type:", "# pyright:", "# noqa", "# ruff:", "#!")
    return sum(
        token.type == tokenize.COMMENT and not token.string.startswith(marks)
        for token in tokenize.generate_tokens(StringIO(text).readline)
    )


def code_lines(text: str) -> int:
    """Lines that hold code: neither empty, nor a comment, nor part of a docstring."""
    held: set[int] = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    begins = True
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            begins = True
        elif token.type not in skipped:
            # A string that begins a statement is a docstring, or stands for one.
            if not (begins and token.type == tokenize.STRING):
                held.update(range(token.start[0], token.end[0] + 1))
            begins = False
    return len(held)


def prefix_families(paths: Sequence[Path]) -> list[str]:
    """Prefixes, up to an underscore, that several files of a folder begin with."""
    counts = Counter(
        (path.parent, path.stem.partition("_")[0]) for path in paths if "_" in path.stem.strip("_")
    )
    return sorted(
        (folder / f"{prefix}_*").as_posix() for (folder, prefix), number in counts.items() if number >= FAMILY
    )


def shared_names(paths: Sequence[Path]) -> list[str]:
    """Names that too many files have."""
    counts = Counter(path.stem for path in paths)
    return sorted(
        f"{name} ({number})"
        for name, number in counts.items()
        if number > SAME_NAME and name not in CHAPTER_ROLES
    )


LOADED = """
import sys
import plaudit.methods.supervised.run
print(sum(name.partition(".")[0] == "plaudit" for name in sys.modules))
"""
"""A program that prints how many modules of plaudit the supervised chapter loads."""

EXECUTED = """
import contextlib, io, os, sys
import torch
from plaudit.cli.main import main
source, folder, method = sys.argv[1:]
os.chdir(folder)
found = set()

class Reached(BaseException):
    pass

def imports(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(source):
            return True
        frame = frame.f_back
    return False

def see(frame, event, argument):
    name = frame.f_code.co_filename
    # What runs while a module is imported, class bodies among it, is no step on the way to the gradient.
    if event == "call" and name not in found and name.startswith(source) and not imports(frame):
        found.add(name)

def stop():
    def reached(*arguments, **settings):
        raise Reached
    return reached

def command(words):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            main(words)
        except SystemExit as end:
            assert not end.code, end.code
    return output.getvalue().strip()

rows = "prompts" if method == "grpo" else "comparisons"
command(["world", "make", rows, "--n", "60", "--out", "rows.jsonl"])
settings = ["--model", command(["world", "base"]), "--out", "run"]
data = ["--data", "rows.jsonl"] if method == "dpo" else ["--prompts", "rows.jsonl", "--reward", "length:1-50"]
torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad = stop(), stop(), stop()
sys.setprofile(see)
try:
    main(["train", method, "--no-check", *settings, *data])
except Reached:
    sys.setprofile(None)
else:
    raise SystemExit("no gradient was computed")
print(*sorted(found), sep=chr(10))
print(sum(len(open(name, encoding="utf-8").readlines()) for name in found), len(found))
"""
"""A program that prints the lines, and the number, of files in which a function ran before the gradient."""


def counted(root: Path, program: str, *arguments: str, cache: str = "") -> list[int]:
    """The numbers that a program prints last, run on this tree."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(root / SRC), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": cache},
        cwd=root,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"a figure could not be measured:\n{done.stdout}{done.stderr}")
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def run_figures(root: Path) -> Iterator[Figure]:
    """What is counted by importing and by running, side by side: the programs mostly wait."""
    source = str((root / SRC).absolute())
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:

        def executed(method: str) -> list[int]:
            place = Path(folder) / method
            place.mkdir()
            return counted(root, EXECUTED, source, str(place), method, cache=folder)

        loaded = pool.submit(counted, root, LOADED)
        methods = {method: pool.submit(executed, method) for method in ("dpo", "grpo")}
        [modules] = loaded.result()
        yield Figure(name="modules loaded by methods.supervised", value=modules, target=120, bound=136)
        lines, files = methods["dpo"].result()
        yield Figure(name="files run to DPO's gradient", value=files, target=55, bound=71)
        yield Figure(name="lines of these files", value=lines, target=15_000, bound=22_610)
        lines, files = methods["grpo"].result()
        yield Figure(name="files run to GRPO's gradient", value=files, target=70, bound=91)
        yield Figure(name="lines of those files", value=lines, target=19_000, bound=28_505)


def main(root: Path) -> int:
    """Prints every figure beside its target; returns 1 where one is worse than what was reached before."""
    files = sources(root, (SRC, TESTS))
    if not files:
        print("nothing to check was found: is this the repository's root?")
        return 1
    status = 0
    for figure in (*source_figures(files), *run_figures(root)):
        left = not figure.reaches(figure.bound)
        status |= left
        verdict = "reached" if figure.reaches(figure.target) else f"target {figure.target:g}"
        verdict = f"WORSE than {figure.bound:g}" if left else verdict
        detail = f"  {figure.detail}" if figure.detail and (left or not figure.reaches(figure.target)) else ""
        print(f"{figure.name:38} {figure.value:8g}  {verdict}{detail}")
    print(f"figures of {len(files)} files")
    return status


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
