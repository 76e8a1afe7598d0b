"""Two pages from the code: every algorithm with its settings, and every paper with what is made of it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.site.api import PublicName, public_names, reference
from tools.site.markdown import ARXIV, escaped
from tools.tree import Source, sources

_AUTHORS = re.compile(
    r"([^\W\d_a-z][\w'’\-]+(?: et al\.| and [^\W\d_][\w'’\-]+)?) (\d{4}[a-z]?)(?: \([^)]*\))?,?(?: \[)?$"
)
"""Who wrote it and when, in front of where it is."""


def algorithm_page(root: Path) -> str:
    """The table of algorithms, from the functions that they are; needs none of plaudit's libraries."""
    # Only here: everything else about the site reads the code and imports none of it.
    from plaudit.methods.registry import METHODS, TABLES

    public = public_names(root)
    parts = [
        "# Algorithms\n",
        "Built from the code, as `plaudit train --list` is. Each is `plaudit train NAME`, with its settings\n"
        "as options (`--beta 0.05`), and most are a function too (`plaudit.dpo(beta=0.05)`). What to take:\n"
        "[Which method?](/choosing.md). In the formulas h = Δ_w − Δ_l, Δ = log π(y\\|x) − log π_ref(y\\|x)\n"
        "of the preferred answer w and the other one l; A is the advantage, r the reward or π / π_old.\n",
    ]
    for table in TABLES:
        parts += [f"## {table.title}\n", "| name | minimises | settings | from |", "|---|---|---|---|"]
        parts += [_algorithm_row(name, facts, public) for name, facts in table.rows.items()]
        parts.append("")
    parts += ["## Methods without a table\n", "| name | what it is for |", "|---|---|"]
    parts += [f"| `{name}` | {escaped(words)} |" for name, (_, words, _) in METHODS.items()]
    return "\n".join([*parts, ""])


def _algorithm_row(name: str, facts: Any, public: Mapping[tuple[str, str], PublicName]) -> str:
    function = public.get(("plaudit", name.replace("-", "_")))
    label = f"{{py:obj}}`{name} <plaudit.{function.name}>`" if function else f"`{name}`"
    given = {setting: value for setting, value in facts.defaults.items() if value is not None}
    settings = ", ".join(f"`{setting}` {_value(value)}" for setting, value in given.items())
    return f"| {label} | {escaped(facts.formula)} | {settings} | {escaped(facts.paper)} |"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, int | float) else escaped(str(value))


def papers_page(root: Path, pages: Mapping[str, str]) -> str:
    """Every paper that the code or a page names, with where it is built and which pages speak of it."""
    authors: dict[str, Counter[str]] = defaultdict(Counter)
    places: dict[str, dict[str, None]] = defaultdict(dict)
    cited: dict[str, dict[str, None]] = defaultdict(dict)
    public = {(each.home, each.name): each for each in public_names(root).values()}
    for source in sources(root, ("src",)):
        for paper, who, line in _citations(source.text):
            authors[paper].update(who)
            places[paper][_place(source, _definition_at(source.tree.body, line), public)] = None
    for page, text in sorted(pages.items()):
        for paper, who, _ in _citations(text):
            authors[paper].update(who)
            cited[paper][f"[{_heading(text)}](/{page}.md)"] = None
    labels = {
        paper: max(found, key=lambda who: (found[who], who), default="") for paper, found in authors.items()
    }
    # Papers whose authors are not named where they are cited come last.
    rows = sorted(labels.items(), key=lambda row: (not row[1], row[1], row[0]))
    lines = [
        f"| {f'{who}, ' if who else ''}[arXiv:{paper}](https://arxiv.org/abs/{paper}) "
        f"| {_few(places[paper])} | {_few(cited[paper])} |"
        for paper, who in rows
    ]
    head = (
        "# Papers\n\n"
        f"{len(rows)} papers of arXiv that the code and these pages name, and what is made of each. Built\n"
        "from the docstrings, in which a formula stands beside its paper.\n\n"
        "| paper | in the code | on these pages |\n|---|---|---|\n"
    )
    return head + "\n".join(lines) + "\n"


def _few(places: Iterable[str], most: int = 8) -> str:
    found = list(places)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return " · ".join(found[:most]) + more


def _heading(text: str) -> str:
    return next((line[2:] for line in text.splitlines() if line.startswith("# ")), "page")


def _place(source: Source, name: str, public: Mapping[tuple[str, str], PublicName]) -> str:
    module = ".".join(source.path.with_suffix("").parts[1:]).removesuffix(".__init__")
    if (module, name) in public:
        return reference(public[module, name], of_package=True)
    return f"`{module.removeprefix('plaudit.')}`"


def _citations(text: str) -> Iterator[tuple[str, list[str], int]]:
    """Paper, authors where they are named, and the line."""
    for match in ARXIV.finditer(text):
        # Names are split over lines as any words are.
        found = _AUTHORS.search(" ".join(text[max(0, match.start() - 160) : match.start()].split()))
        yield match[1], [f"{found[1]} {found[2]}"] if found else [], text.count("\n", 0, match.start()) + 1


def _definition_at(body: Sequence[ast.stmt], line: int) -> str:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            return node.name
    return ""
