"""The API reference: a page for each row of the tables of docs/python.md, from docstrings; nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from plaudit import bounds
from tools.docs import is_public, is_record
from tools.site.markdown import docstring_markdown, escaped
from tools.tree import docstring_of, name_of

PAGE = Path("docs/python.md")
"""The page whose tables say which name belongs where."""
CHAPTERS = ("losses", "advantages")
"""Packages that have an index of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicName:
    """A name that users import.

    Example: ``PublicName(package="plaudit", name="dpo", home="plaudit.methods.preference.algorithms")``
    """

    package: str
    """Where users import it from."""
    name: str
    """What it is called."""
    home: str
    """The module that it lives in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The names of one page.

    Example: ``Group(page="api/settings", title="settings", names=(public,))``
    """

    page: str
    """Its path in the site, without ``.md``."""
    title: str
    """What is over it."""
    names: tuple[PublicName, ...]
    """Its names in their order."""


def public_names(root: Path) -> dict[tuple[str, str], PublicName]:
    """Each public name by its package and its name, from the stubs that are the index."""
    found: dict[tuple[str, str], PublicName] = {}
    for chapter in ("", *CHAPTERS):
        package = f"plaudit.{chapter}".rstrip(".")
        stub = root / "src" / "plaudit" / chapter / "__init__.pyi"
        for node in ast.parse(stub.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module != "plaudit":
                for alias in node.names:
                    public = PublicName(package=package, name=alias.name, home=node.module or "")
                    found[package, alias.name] = public
    return found


def groups(root: Path) -> list[Group]:
    """The pages of the reference; a public name that the tables leave out is a fault."""
    known = public_names(root)
    left = dict(known)
    found: list[Group] = []
    for title, names in _table_rows((root / PAGE).read_text("utf-8")):
        chapter = title.strip("`").partition(".")[0]
        package = f"plaudit.{chapter}" if chapter in CHAPTERS else "plaudit"
        members = [left.pop((package, name)) for name in names if (package, name) in left]
        if members:
            page = "api/" + re.sub(r"[^a-z.]+", "-", title.lower()).strip("-")
            found.append(Group(page=page, title=title.strip("`"), names=tuple(members)))
    if left:
        missing = ", ".join(f"{package}.{name}" for package, name in left)
        raise SystemExit(f"{PAGE}: the tables of names leave out {missing}")
    return found


def _table_rows(text: str) -> Iterator[tuple[str, list[str]]]:
    for title, cell in re.findall(
        r"^\| ([^|]+) \| (`.*) \|$", text.partition("## The names")[2], re.MULTILINE
    ):
        yield title, re.findall(r"`(\w+)`", cell)


def api_pages(root: Path) -> dict[str, str]:
    """The pages of the reference by their paths, with the one that lists them."""
    modules: dict[str, ast.Module] = {}
    made = groups(root)
    pages = {group.page: _page(root, group, modules) for group in made}
    parts: list[str] = ["# API reference\n"]
    parts.append(
        "Every public name with its signature and what it says of itself. `import plaudit` is quick: torch\n"
        "is loaded by the first name that needs it. What is not here is not public, and may move. How they\n"
        "are used together: [From Python](/python.md).\n"
    )
    for group in made:
        parts.append(f"## [{_title(group)}](/{group.page}.md)\n")
        parts.append("| name | what it is |\n|---|---|")
        parts += [_summary_row(root, public, modules) for public in group.names]
        parts.append("")
    return pages | {"api/index": "\n".join(parts)}


def _title(group: Group) -> str:
    chapter, dot, rest = group.title.partition(".")
    words = rest.replace("_", " ")
    return f"{chapter.capitalize()}: {words}" if dot else group.title[:1].upper() + group.title[1:]


def _summary_row(root: Path, public: PublicName, modules: dict[str, ast.Module]) -> str:
    doc = _docstring(definition(root, public, modules))
    first = escaped(" ".join(doc.partition("\n\n")[0].split()))
    return f"| {reference(public)} | {first} |"


def reference(public: PublicName, *, of_package: bool = False) -> str:
    """A link to the entry of a name; ``of_package`` also says ``losses.`` where two names are alike."""
    full = f"{public.package}.{public.name}"
    return f"{{py:obj}}`{full.removeprefix('plaudit.') if of_package else public.name} <{full}>`"


def _page(root: Path, group: Group, modules: dict[str, ast.Module]) -> str:
    parts = [f"# {_title(group)}\n", f"```{{py:currentmodule}} {group.names[0].package}\n```\n"]
    parts += [_entry(public.name, definition(root, public, modules)) for public in group.names]
    return "\n".join(parts)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign
"""What a public name can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A definition, with the string that stands under it where it is an assignment.

    Example: ``Found(node=module.body[3], module=module, below="What A is.")``
    """

    node: Definition
    """The definition itself."""
    module: ast.Module
    """What stands around it."""
    below: str = ""
    """The string after an assignment."""


def definition(root: Path, public: PublicName, modules: dict[str, ast.Module]) -> Found:
    """Where a public name is defined; its home must define it and not import it."""
    if public.home not in modules:
        modules[public.home] = ast.parse(module_file(root, public.home).read_text("utf-8"))
    module = modules[public.home]
    for at, node in enumerate(module.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == public.name:
            return Found(node=node, module=module)
        if isinstance(node, ast.Assign) and public.name in [name_of(target) for target in node.targets]:
            return Found(node=node, module=module, below=_string(module.body, at + 1))
    raise SystemExit(f"{public.home} does not define {public.name}, which the index of {public.package} says")


def module_file(root: Path, module: str) -> Path:
    """The file of a module."""
    folder = root.joinpath("src", *module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _docstring(found: Found) -> str:
    if isinstance(found.node, ast.Assign):
        return found.below
    return ast.get_docstring(found.node) or ""


def _string(body: Sequence[ast.stmt], at: int) -> str:
    statement = docstring_of(body, at)
    return str(ast.literal_eval(statement.value)).strip() if statement else ""


def _entry(name: str, found: Found) -> str:
    node = found.node
    if isinstance(node, ast.ClassDef):
        return _class_entry(node, found.module.body)
    if isinstance(node, ast.Assign):
        value = " ".join(ast.unparse(node.value).split())
        return _directive("py:data", name, docstring_markdown(found.below), {"value": value})
    return _function_entry(node, "py:function")


def _function_entry(node: ast.FunctionDef | ast.AsyncFunctionDef, kind: str, colons: int = 4) -> str:
    decorators = {name_of(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    doc = docstring_markdown(ast.get_docstring(node) or "", _parameter_names(node.args))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if kind == "py:method" and decorators & {"property", "cached_property"}:
        options = {"type": ast.unparse(node.returns)} if node.returns else {}
        return _directive("py:property", node.name, doc, options, colons)
    flags = {flag: "" for flag in ("classmethod", "staticmethod") if flag in decorators}
    drop_first = kind == "py:method" and "staticmethod" not in decorators
    signature = f"{node.name}({_arguments(node.args, drop_first=drop_first)}){result}"
    return _directive(kind, signature, doc, flags, colons)


def _parameter_names(arguments: ast.arguments) -> list[str]:
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _arguments(arguments: ast.arguments, *, drop_first: bool) -> str:
    text = ast.unparse(arguments)
    return re.sub(r"^(self|cls)(, /)?(, |$)", "", text) if drop_first else text


def _class_entry(node: ast.ClassDef, siblings: Sequence[ast.stmt]) -> str:
    parts = [docstring_markdown(ast.get_docstring(node) or "")]
    bases = [name_of(base) for base in node.bases if name_of(base) not in ("Protocol", "Generic")]
    inherited = [f"{{py:obj}}`{base}`" for base in bases if is_public(base)]
    if inherited:
        parts.append(f"It has all that {' and '.join(inherited)} has.\n")
    if is_record(node):
        parts.append("A record; each field is given by its name:\n")
    # A base that is private is no name to look up: what it has is told here.
    classes = {each.name: each for each in siblings if isinstance(each, ast.ClassDef)}
    for owner in (*(classes[base] for base in bases if not is_public(base) and base in classes), node):
        parts += _member_entries(owner)
    made = [
        f"({_arguments(each.args, drop_first=True)})"
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    signature = node.name + "".join(made)
    return _directive("py:class", signature, "\n\n".join(parts), {}, 5)


def _member_entries(node: ast.ClassDef) -> Iterator[str]:
    for at, member in enumerate(node.body):
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_public(member.name) and not _is_variant(member):
                yield _function_entry(member, "py:method")
        elif isinstance(member, ast.AnnAssign) and is_public(name_of(member.target)):
            yield _field_entry(member, _string(node.body, at + 1))


def _is_variant(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = {name_of(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(decorators & {"overload", "setter", "deleter"})


def _field_entry(node: ast.AnnAssign, doc: str) -> str:
    written, numbers = _plain_type(" ".join(ast.unparse(node.annotation).split()))
    options = {"type": written}
    value = " ".join(ast.unparse(node.value).split()) if node.value else ""
    # A factory says how a default is made; what it is stands in the words beside it.
    if value and len(value) <= 40 and not value.startswith("field("):
        options["value"] = value
    content = "\n\n".join((docstring_markdown(doc), *numbers)).strip()
    return _directive("py:attribute", name_of(node.target), content, options)


def _plain_type(annotation: str) -> tuple[str, list[str]]:
    """A type without the names of `plaudit.bounds`, and what they say in words.

    >>> _plain_type("FromOne | None")
    ('int | None', ['A number at least 1.'])
    """
    words: list[str] = []

    def plain(name: re.Match[str]) -> str:
        hint = getattr(bounds, name[0], None)
        bound = bounds.bound_in(hint)
        if bound is None:
            return name[0]
        words.append(f"A number {bound.words.removeprefix('a number').strip()}.".replace(" .", "."))
        return get_args(hint)[0].__name__

    return re.sub(r"\w+", plain, annotation), words


def _directive(kind: str, signature: str, content: str, options: Mapping[str, str], colons: int = 4) -> str:
    marks = ":" * colons
    # Members would crowd the list of contents, and the navigation is made anew from that list on every page.
    if kind in ("py:attribute", "py:method", "py:property"):
        options = {**options, "no-contents-entry": ""}
    given = [f":{name}: {value}".rstrip() for name, value in options.items()]
    return "\n".join([f"{marks}{{{kind}}} {' '.join(signature.split())}", *given, "", content, marks, ""])
