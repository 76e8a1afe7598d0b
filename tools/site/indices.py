"""Two pages from the code: every algorithm with its formula and settings, and every paper with what is made of it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.site.api import PublicName, public_names, reference
from tools.site.markdown import ARXIV, escaped
from tools.tree import Source, sources

_AUTHORS = re.compile(r"([^\W\d_][\w'’\- ]*?(?:et al\.|and [^\W\d_][\w'’\-]+)?) (\d{4}[a-z]?)(?: \([^)]*\))?,? $")
"""Who wrote it and when, in front of where it is."""


def algorithm_page(root: Path) -> str:
    """The table of algorithms, from the functions that they are; needs none of plaudit's libraries."""
    from plaudit.methods.registry import METHODS, TABLES  # noqa: PLC0415

    public = public_names(root)
    parts = [
        "# Algorithms\n",
        "Built from the code, as `plaudit train --list` is. Each is `plaudit train NAME`, with its settings as options\n"
        "(`--beta 0.05`), and most are a function too (`plaudit.dpo(beta=0.05)`). What to take:\n"
        "[Which method](/choosing.md). In the formulas h = Δ_w − Δ_l with Δ = log π(y\\|x) − log π_ref(y\\|x) of the\n"
        "preferred answer w and the other one l, A is the advantage, r the reward or π / π_old.\n",
    ]
    for table in TABLES:
        parts += [f"## {table.title}\n", "| name | minimises | settings | from |", "|---|---|---|---|"]
        parts += [_algorithm_row(name, facts, public) for name, facts in table.rows.items()]
        parts.append("")
    parts += ["## Methods without a table\n", "| name | what it is for |", "|---|---|"]
    parts += [f"| `{name}` | {escaped(words)} |" for name, (_, words, _) in METHODS.items()]
    return "\n".join([*parts, ""])


def _algorithm_row(name: str, facts: object, public: Mapping[tuple[str, str], PublicName]) -> str:
    function = public.get(("plaudit", name.replace("-", "_")))
    label = f"{{py:obj}}`{name} <plaudit.{function.name}>`" if function else f"`{name}`"
    defaults = ", ".join(
        f"`{setting}` {_value(value)}" for setting, value in getattr(facts, "defaults").items() if value is not None
    )
    formula, paper = escaped(getattr(facts, "formula")), escaped(getattr(facts, "paper"))
    return f"| {label} | {formula} | {defaults} | {paper} |"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, int | float) else escaped(str(value))


def papers_page(root: Path, pages: Mapping[str, str]) -> str:
    """Every paper that the code names, with where it is built and which pages speak of it."""
    authors: dict[str, Counter[str]] = defaultdict(Counter)
    places: dict[str, dict[str, None]] = defaultdict(dict)
    public = {(each.home, each.name): each for each in public_names(root).values()}
    for source in sources(root, ("src",)):
        for paper, who, place in _citations(source):
            authors[paper].update([who] if who else [])
            places[paper][_place(source, place, public)] = None
    cited: dict[str, list[str]] = defaultdict(list)
    for page, text in sorted(pages.items()):
        for paper in dict.fromkeys(_papers_of(text)):
            authors[paper].update([])
            cited[paper].append(f"[{_heading(text)}](/{page}.md)")
            for match in re.finditer(ARXIV, text):
                who = _authors_before(re.sub(r"\[$", "", text[: match.start()]))
                authors[match[1]].update([who] if who else [])
    rows = sorted((_label(authors[paper]), paper) for paper in authors)
    lines = [f"| {_paper_cell(label, paper)} | {_few(places[paper])} | {_few(cited[paper])} |" for label, paper in rows]
    head = (
        "# Papers\n\n"
        f"The {len(rows)} papers that the code and these pages name, with what is made of each. Built from the docstrings:\n"
        "a formula stands beside its paper in the code, and tests compare the two.\n\n"
        "| paper | in the code | on these pages |\n|---|---|---|\n"
    )
    return head + "\n".join(lines) + "\n"


def _paper_cell(label: str, paper: str) -> str:
    link = f"[arXiv:{paper}](https://arxiv.org/abs/{paper})"
    return f"{label}, {link}" if label else link


def _label(found: Counter[str]) -> str:
    return max(found, key=lambda who: (found[who], -len(who), who)) if found else ""


def _few(places: Iterable[str], most: int = 8) -> str:
    found = list(places)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return " · ".join(found[:most]) + more


def _heading(text: str) -> str:
    return next((line[2:] for line in text.splitlines() if line.startswith("# ")), "page")


def _papers_of(text: str) -> Iterator[str]:
    yield from (match[1] for match in ARXIV.finditer(text))


def _place(source: Source, name: str, public: Mapping[tuple[str, str], PublicName]) -> str:
    module = ".".join(source.path.with_suffix("").parts[1:]).removesuffix(".__init__")
    first = name.partition(".")[0]
    if (module, first) in public:
        return reference(public[module, first], of_package=True)
    return f"`{module.removeprefix('plaudit.')}`"


def _citations(source: Source) -> Iterator[tuple[str, str, str]]:
    """Paper, authors and the definition that names it."""
    for match in ARXIV.finditer(source.text):
        line = source.text.count("\n", 0, match.start()) + 1
        yield match[1], _authors_before(source.text[: match.start()]), _definition_at(source.tree.body, line)


def _authors_before(text: str) -> str:
    # Names are split over lines as any words are.
    found = _AUTHORS.search(" ".join(text[-160:].split()) + " ")
    if not found:
        return ""
    names = re.split(r"(?:^|[.;:(] )", found[1])[-1].strip()
    return f"{names} {found[2]}" if names[:1].isupper() and len(names) < 60 else ""


def _definition_at(body: Sequence[ast.stmt], line: int) -> str:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            return node.name
    return ""
