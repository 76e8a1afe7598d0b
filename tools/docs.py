"""Docs that cannot drift: docstrings of the public index, true examples of records, links that lead on."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from tools.links import link_faults, markdown_pages
from tools.tree import Fault, Source, docstring_of, name_of, report, root_from_arguments, sources

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
"""What has a docstring of its own."""


def indexed_names(root: Path) -> dict[str, set[str]]:
    """The names that the public index has, by the module that each comes from."""
    found: dict[str, set[str]] = {}
    for stub in sorted((root / "src").rglob("__init__.pyi")):
        for node in ast.parse(stub.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def docstring_faults(source: Source, indexed: Set[str]) -> Iterator[Fault]:
    """The names of a file that the public index has, and that say nothing about themselves."""
    body = source.tree.body
    if docstring_of(body) is None:
        yield Fault(path=source.path, line=1, message="the module needs a docstring")
    yield from _undocumented_definitions(source, [node for node in body if _name_in(node, indexed)])
    for at, name in _assigned_names(body):
        if name in indexed and docstring_of(body, at + 1) is None and not _says_itself(body[at]):
            yield _needs_docstring(source, body[at].lineno, name)
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name in indexed:
            yield from _undocumented_definitions(source, node.body, f"{node.name}.")
            if is_record(node):
                yield from _record_faults(source, node)


def _name_in(node: ast.stmt, names: Set[str]) -> bool:
    return isinstance(node, Definition) and node.name in names


def _says_itself(node: ast.stmt) -> bool:
    """Whether it is ``Name = Annotated[type, "what it is"]``: the text is the help of such settings."""
    value = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(value, ast.Subscript) or name_of(value.value) != "Annotated":
        return False
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else []
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts[1:])


def is_public(name: str) -> bool:
    """Whether a name is meant for other files."""
    return not name.startswith("_")


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass."""
    return any(name_of(decorator).rpartition(".")[2] == "dataclass" for decorator in node.decorator_list)


def _undocumented_definitions(source: Source, body: Sequence[ast.stmt], owner: str = "") -> Iterator[Fault]:
    for node in body:
        if not isinstance(node, Definition) or not is_public(node.name) or _speaks_through_another(node):
            continue
        if docstring_of(node.body) is None:
            yield _needs_docstring(source, node.lineno, owner + node.name)


def _speaks_through_another(node: Definition) -> bool:
    """Whether a property's setter or an overload's variant: the main definition has the docstring."""
    names = [name_of(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return bool({"overload", "setter", "deleter"} & set(names))


def _assigned_names(body: Sequence[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Index and name of each plain assignment."""
    for at, node in enumerate(body):
        if isinstance(node, ast.Assign):
            yield from ((at, target.id) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield at, node.target.id


def _record_faults(source: Source, node: ast.ClassDef) -> Iterator[Fault]:
    if "Example:" not in (ast.get_docstring(node) or ""):
        message = f"{node.name} is a record: its docstring needs one literal `Example:`"
        yield Fault(path=source.path, line=node.lineno, message=message)
    for at, name in _assigned_names(node.body):
        is_field = isinstance(node.body[at], ast.AnnAssign)
        if is_field and is_public(name) and docstring_of(node.body, at + 1) is None:
            yield _needs_docstring(source, node.body[at].lineno, f"{node.name}.{name}")


_EXAMPLE = re.compile(r"Example: ``(.+?)``", re.DOTALL)
"""The literal of an example."""


def example_faults(files: Sequence[Source]) -> Iterator[Fault]:
    """Examples of records that call what is not there, or give a record a field that it does not have."""
    known = known_names(files)
    fields = fields_of_records(files)
    for source in files:
        records = (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))
        for node in records:
            for call in _calls_of_examples(ast.get_docstring(node) or ""):
                for fault in _call_faults(call, known, fields):
                    message = f"the example of {node.name} {fault}"
                    yield Fault(path=source.path, line=node.lineno, message=message)


def _call_faults(call: ast.Call, known: frozenset[str], fields: Mapping[str, set[str]]) -> Iterator[str]:
    name = name_of(call.func)
    if "." not in name and name not in known:
        yield f"calls {name}, which is nowhere"
    for keyword in call.keywords:
        if name in fields and keyword.arg is not None and keyword.arg not in fields[name]:
            yield f"gives {name} a {keyword.arg}, which it does not have"


def known_names(files: Sequence[Source]) -> frozenset[str]:
    """All that is defined or imported somewhere, and what Python itself has."""
    found = set(dir(builtins))
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, Definition):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
    return frozenset(found)


def fields_of_records(files: Sequence[Source]) -> dict[str, set[str]]:
    """The fields of each record; those of records with a parent, or of one name, are not known here."""
    found: dict[str, set[str]] = {}
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and is_record(node) and not node.bases:
                found.setdefault(node.name, set()).update(name for _, name in _assigned_names(node.body))
    return found


def _calls_of_examples(docstring: str) -> Iterator[ast.Call]:
    for match in _EXAMPLE.finditer(docstring):
        # "…" stands for whatever else there is, which is no Python behind a named argument.
        code = re.sub(r",\s*…\s*([)\]}])", r"\1", match.group(1)).replace("…", "...")
        try:
            tree = ast.parse(" ".join(code.split()))
        except SyntaxError:
            continue
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _needs_docstring(source: Source, line: int, name: str) -> Fault:
    return Fault(path=source.path, line=line, message=f"{name} is public and needs a docstring")


def _module_of(path: Path) -> str:
    """The dotted name of a file below ``src``."""
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(root: Path) -> int:
    """Checks a repository; returns the exit code."""
    files, pages = sources(root, ("src",)), markdown_pages(root)
    indexed = indexed_names(root)
    faults = [
        fault
        for source in files
        for fault in docstring_faults(source, indexed.get(_module_of(source.path), frozenset()))
    ]
    faults += [*example_faults(files), *link_faults(root, pages)]
    return report(faults, min(len(files), len(pages)), f"{len(files)} files, {len(pages)} pages")


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
