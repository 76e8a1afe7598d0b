"""Small faults put into the code that computes, and whether the quick tests nearest to it notice them.

``python -m tools.mutants --n 105 --seed 0`` draws faults, tries each in a copy of the tree, and prints those
that no test noticed as the lines that changed. Mutmut and cosmic-ray know nothing of masks, gradients and
sums, start a Python with torch anew for each fault or rewrite functions beneath the checker of shapes, and
choose no tests by imports; so this is written here.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.changed import imports, module_of
from tools.tree import FOLDERS, Source, sources

PARTS = ("losses", "advantages", "tokens", "rollouts", "methods/policy", "collect/quality", "feedback")
"""Where faults are drawn, as many of each."""
BORDERS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SIGNS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_PAIRS = (("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("mean", "sum"))
OTHERS = {
    **{a: b for pair in (*_PAIRS, ("any", "all"), ("floor", "ceil")) for a, b in (pair, pair[::-1])},
    "cumsum": "cumprod",
    "logsigmoid": "sigmoid",
    "sorted": "list",
}
"""Functions and methods, and what is called in their place."""
DROPPED = ("detach", "masked_fill", "where", "clamp", "clamp_min", "clamp_max", "abs", "flip")
"""Methods that are left out: what they are called of stands in their place."""
PLAIN = ("strict", "frozen", "slots", "kw_only", "repr", "eq", "init", "keepdim", "default_factory")
"""Keywords whose values are left alone: shape and form."""
UNORDERED = ("isinstance", "issubclass", "getattr", "hasattr", "cast", "zip", "TypeVar")
NEAREST = 6
"""Test files that are asked about one fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    path: Path
    """The file, relative to the root."""
    kind: str
    line: int
    start: int
    """Where the text that goes begins in the file, in characters."""
    end: int
    text: str
    """What stands in its place."""

    def applied(self, whole: str) -> str:
        return whole[: self.start] + self.text + whole[self.end :]

    def diff(self, whole: str) -> str:
        """The lines before and after."""
        first = whole.rfind("\n", 0, self.start) + 1
        last = whole.find("\n", self.end)
        after = whole[first : self.start] + self.text + whole[self.end : last]
        lines = [f"- {line}" for line in whole[first:last].splitlines()]
        return "\n".join([*lines, *(f"+ {line}" for line in after.splitlines())])


def mutants_of(source: Source) -> Iterator[Mutant]:
    """Every fault that can be put into a file; words, annotations and what is raised are left alone."""
    starts = [0]
    for line in source.text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.text.splitlines()

    def place(line: int, column: int) -> int:
        # Columns of a syntax tree count bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node, at_top in _nodes(source.tree):
        for kind, new in _changes(node, at_top=at_top):
            end = place(node.end_lineno or 0, node.end_col_offset or 0)
            start = place(node.lineno, node.col_offset)
            text = new if isinstance(new, str) else ast.unparse(new)
            # An expression within another one keeps its own place by parentheses.
            text = f"({text})" if isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.IfExp) else text
            yield Mutant(path=source.path, kind=kind, line=node.lineno, start=start, end=end, text=text)


def _nodes(tree: ast.Module) -> Iterator[tuple[Any, bool]]:
    waiting: list[tuple[ast.AST, bool]] = [(statement, True) for statement in tree.body]
    while waiting:
        node, at_top = waiting.pop()
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node, at_top
        below = at_top and not isinstance(node, ast.FunctionDef | ast.Lambda)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
                continue
            if isinstance(node, ast.keyword) and node.arg in PLAIN:
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [(child, below) for child in children if isinstance(child, ast.AST)]


def _changes(node: Any, *, at_top: bool) -> Iterator[tuple[str, ast.AST | str]]:
    """What may stand in the place of a node, each with its kind."""
    if isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Slice):
        yield from _slices(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.expr):
        yield from _operators(node, at_top=at_top)
    elif not at_top:
        yield from _statements(node)


def _constants(value: object) -> Iterator[tuple[str, ast.AST | str]]:
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 2 if value else 1.0)


def _operators(node: Any, *, at_top: bool) -> Iterator[tuple[str, ast.AST | str]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in BORDERS:
            yield "border", _with(node, ops=[BORDERS[type(operator)]()])
        case ast.BinOp(op=operator) if type(operator) in SIGNS and not at_top:
            yield "sign", _with(node, op=SIGNS[type(operator)]())
            if "mask" in ast.unparse(node.right).lower():
                yield "dropped mask", ast.unparse(node.left)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield "dropped sign", ast.unparse(operand)
        case ast.BoolOp(op=operator):
            yield "and/or", _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.IfExp():
            yield "branches", _with(node, body=node.orelse, orelse=node.body)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() if node.generators[0].ifs:
            first, *others = node.generators
            yield "dropped filter", _with(node, generators=[_with(first, ifs=[]), *others])
        case _:
            pass


def _statements(node: Any) -> Iterator[tuple[str, ast.AST | str]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "early return", "return"
    elif isinstance(node, ast.AugAssign):
        yield "dropped line", "pass"
    elif isinstance(node, ast.Continue):
        yield "break", "break"


def _slices(node: ast.Slice) -> Iterator[tuple[str, ast.AST | str]]:
    lower, upper = (ast.unparse(bound) if bound is not None else "" for bound in (node.lower, node.upper))
    if node.step is None:
        yield "slice", f"{lower}:{f'({upper}) - 1' if upper else '-1'}"
        yield "slice", f"{f'({lower}) + 1' if lower else '1'}:{upper}"


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST | str]]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    methods_only = isinstance(function, ast.Name) and (name == "sum" or node.keywords)
    if name in OTHERS and not methods_only:
        other = (
            _with(function, attr=OTHERS[name])
            if isinstance(function, ast.Attribute)
            else ast.Name(OTHERS[name])
        )
        yield f"{name} to {OTHERS[name]}", _with(node, func=other)
    if name in DROPPED and isinstance(function, ast.Attribute):
        of = ast.unparse(function.value)
        if of == "torch" and name == "where" and len(node.args) == 3:
            yield "dropped where", ast.unparse(node.args[1])
        elif of != "torch":
            yield f"dropped {name}", of
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    if len(node.args) >= 2 and plain and name not in UNORDERED:
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second):
            yield "swapped arguments", _with(node, args=[second, first, *rest])
    names = [keyword.arg for keyword in node.keywords]
    if name.startswith("clamp") and len(names) == 1 and names[0] in ("min", "max"):
        other_bound = ast.keyword({"min": "max", "max": "min"}[str(names[0])], node.keywords[0].value)
        yield "other bound", _with(node, keywords=[other_bound])


def _with(node: Any, **changes: Any) -> ast.AST:
    fields = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    return type(node)(**{**fields, **changes})


def drawn(files: Sequence[Source], count: int, seed: int, parts: Sequence[str]) -> list[Mutant]:
    """So many faults: of each part as many, of its kinds each as often as may be, none twice."""
    rng = random.Random(seed)
    pools: dict[str, dict[str, list[Mutant]]] = {}
    for part in parts:
        kinds = pools.setdefault(part, defaultdict(list))
        for source in files:
            if (Path("src/plaudit") / part) in source.path.parents:
                for mutant in mutants_of(source):
                    kinds[mutant.kind].append(mutant)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(pools.values()):
        part = parts[len(chosen) % len(parts)]
        kinds = pools[part]
        if not kinds:
            parts = [other for other in parts if pools[other]]
            continue
        kind = rng.choice(sorted(kinds))
        chosen.append(kinds[kind].pop(rng.randrange(len(kinds[kind]))))
        if not kinds[kind]:
            del kinds[kind]
    return chosen


def import_graph(files: Sequence[Source]) -> Mapping[str, AbstractSet[str]]:
    """Who imports each module."""
    modules = {module_of(source.path) for source in files}
    importers: dict[str, set[str]] = defaultdict(set)
    for source in files:
        for name in imports(source.tree, modules):
            importers[name].add(module_of(source.path))
    packages = {module_of(source.path) for source in files if source.path.name == "__init__.py"}
    # A package that finds its names when they are asked for imports none of its files by itself.
    for name in modules:
        importers[name] |= importers.get(name.rpartition(".")[0] if name not in packages else "", set())
    return importers


def nearest_tests(files: Sequence[Source], graph: Mapping[str, AbstractSet[str]], path: Path) -> list[Path]:
    """Test files whose imports lead to a file: by steps, and those first whose names are like its own."""
    places = {module_of(source.path): source.path for source in files}
    steps, waiting = {module_of(path): 0}, [module_of(path)]
    for name in waiting:
        for other in sorted(graph.get(name, ())):
            if other not in steps:
                steps[other] = steps[name] + 1
                waiting.append(other)
    own = {*path.parts[2:-1], *path.stem.split("_")}

    def order(name: str) -> tuple[int, str]:
        place = places[name]
        words = {*place.parts[1:-1], *place.stem.removeprefix("test_").split("_")}
        return (steps[name] - 2 * len(own & words), name)

    tests = [name for name in steps if name in places and places[name].name.startswith("test_")]
    return [places[name] for name in sorted(tests, key=order)][:NEAREST]


class Watch:
    """A plugin of pytest: ends a session after so many seconds of tests, and writes what failed."""

    def __init__(self, seconds: float, reported: Path) -> None:
        self.seconds = seconds
        self.reported = reported
        self.ends: float | None = None
        self.failed: list[str] = []
        self.run = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called of each part of each test."""
        self.run += report.when == "call"
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Called of each file that was collected."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Called before each test."""
        # From the first one on: on a busy machine it takes as long to collect them.
        self.ends = self.ends or time.monotonic() + self.seconds
        if time.monotonic() > self.ends:
            item.session.shouldstop = "the time is over"

    def pytest_sessionfinish(self) -> None:
        """Called at the end."""
        self.reported.write_text(json.dumps({"failed": self.failed, "run": self.run}), "utf-8")


def ask(folder: Path, tests: Sequence[str], seconds: float, left_out: Sequence[str]) -> dict[str, Any]:
    """What tests say, run by a fork of this process within the copy; ``failed`` names those that fail."""
    reported = folder / ".reported.json"
    reported.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        # Whatever happens, nothing of the parent's may run on in its child.
        try:
            _run_tests(
                folder, [*(word for name in left_out for word in ("--deselect", name)), *tests], seconds
            )
        finally:
            os._exit(1)
    ends = time.monotonic() + 2 * seconds + 120
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"failed": ["it hangs"], "run": 0}
        time.sleep(0.02)
    if not reported.exists():
        raise SystemExit(f"no tests were run: {(folder / '.output.log').read_text('utf-8')[-2000:]}")
    return json.loads(reported.read_text("utf-8"))


def _run_tests(folder: Path, words: Sequence[str], seconds: float) -> None:
    os.setpgid(0, 0)
    os.chdir(folder)
    log = os.open(folder / ".output.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # So that no bytecode of a fault is left.
    sys.dont_write_bytecode = True
    import pytest

    usual = ["-x", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not peer"]
    usual += ["--timeout=45", "--timeout-method=signal", "--tb=line"]
    # Of what was imported before the fork.
    usual += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*usual, *words], plugins=[Watch(seconds, folder / ".reported.json")])


def copied(root: Path) -> Path:
    """A copy of what git knows of the tree, and of what is new."""
    folder = Path(tempfile.mkdtemp(prefix="plaudit-mutants-"))
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, text=True, capture_output=True, check=True
    )
    for name in names.stdout.splitlines():
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def preload() -> None:
    """Import, once for all forks, the libraries that every test needs, and nothing of plaudit's own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import beartype  # noqa: F401
    import hypothesis  # noqa: F401
    import jaxtyping  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    import transformers.models.auto.modeling_auto
    import transformers.models.llama.modeling_llama  # noqa: F401


def try_all(root: Path, mutants: Sequence[Mutant], seconds: float) -> int:
    """Try each fault in a copy of the tree, and say what became of it; how many no test noticed."""
    folder = copied(root)
    files = sources(folder, FOLDERS)
    texts = {source.path: source.text for source in files}
    os.chdir(folder)
    graph = import_graph(files)
    sys.path[:] = [str(folder / "src"), str(folder), *(entry for entry in sys.path if str(root) not in entry)]
    os.environ["PYTHONPATH"] = f"{folder / 'src'}:{folder}"
    preload()
    red: list[str] = []
    green: set[str] = set()
    killed = 0
    try:
        for number, mutant in enumerate(mutants, 1):
            tests = [mutant.path, *nearest_tests(files, graph, mutant.path)]
            words = [str(test) for test in tests]
            whole, began = texts[mutant.path], time.monotonic()
            while True:
                _write(folder / mutant.path, mutant.applied(whole))
                found = ask(folder, words, seconds, red)
                _write(folder / mutant.path, whole)
                failed = found["failed"][:1]
                # A test that fails of itself kills nothing: it is left out from here on.
                if not failed or green.issuperset(failed) or "::" not in failed[0]:
                    break
                if not ask(folder, failed, seconds, [])["failed"]:
                    green.update(failed)
                    break
                red += failed
            killed += bool(failed)
            verdict = f"killed by {failed[0]}" if failed else f"SURVIVES {found['run']} tests"
            place = f"{number}/{len(mutants)} {mutant.path}:{mutant.line} [{mutant.kind}]"
            print(f"{place} {verdict} ({time.monotonic() - began:.0f} s)")
            if not failed:
                print(mutant.diff(whole), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{killed} of {len(mutants)} killed ({killed / max(1, len(mutants)):.0%}); red as they are: {red}")
    return len(mutants) - killed


def _write(path: Path, text: str) -> None:
    """A module, and nothing left of what it was compiled to: times of files are too coarse to tell."""
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        stale.unlink()
    path.write_text(text, "utf-8")


def main() -> int:
    """Draw, try, print; 1 when a fault survives."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--n", type=int, default=105, help="how many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=40.0, help="of tests for one fault")
    parser.add_argument("--parts", nargs="+", default=PARTS, help="folders of src/plaudit")
    parser.add_argument("--list", action="store_true", help="draw and print, and try none")
    args = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    files = sources(root, ("src",))
    mutants = drawn(files, args.n, args.seed, args.parts)
    texts = {source.path: source.text for source in files}
    if args.list:
        for mutant in mutants:
            print(f"{mutant.path}:{mutant.line} [{mutant.kind}]\n{mutant.diff(texts[mutant.path])}")
        return 0
    return 1 if try_all(root, mutants, args.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
