"""The words of names: identifiers, metrics and options are called as in the field (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.tree import Fault, Source, name_of, report, root_from_arguments, sources

FOLDERS = ("src", "tools", "benchmarks", "examples")
"""Where names are looked at; in tests they may be sentences."""
PAGE = Path("docs/glossary.md")
"""Where the words stand, and those that names do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWords:
    """The words that names do not have, each with what the field says.

    Example: ``RefusedWords(parts={"told": "reported"}, names={}, metrics={}, vague={"own": "whose"})``
    """

    parts: Mapping[str, str]
    """Words that no name may have as a part."""
    names: Mapping[str, str]
    """Whole names; as parts of a longer name they may be plain English."""
    metrics: Mapping[str, str]
    """Words that are plain English in code and riddles as names of metrics."""
    vague: Mapping[str, str]
    """Whole names of which there are too many to refuse them."""


HEADINGS = {
    "parts": "As a part of a name",
    "names": "As a whole name",
    "metrics": "As a metric",
    "vague": "Vague, and only ever fewer",
}
"""What stands above the tables of the page."""


def refused_words(root: Path) -> RefusedWords:
    """What the page says; a table that is not there, or that is empty, is an error."""
    tables = dict(_tables((root / PAGE).read_text("utf-8")))
    missing = [heading for heading in HEADINGS.values() if not tables.get(heading)]
    if missing:
        raise ValueError(f"{PAGE}: no table of words under {missing[0]!r}")
    return RefusedWords(**{name: dict(tables[heading]) for name, heading in HEADINGS.items()})


def defined_words(page: str) -> list[str]:
    """The words that a page says the meaning of.

    >>> defined_words("## Learning\\n| word | what |\\n|---|---|\\n| chosen, rejected | The answers |\\n")
    ['chosen', 'rejected']
    """
    return [
        word
        for heading, table in _tables(page)
        if heading not in HEADINGS.values()
        for cell, _ in table
        for word in cell.split(", ")
    ]


def _tables(page: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The heading of each part of a page, and its table's first cells with the second ones."""
    for part in re.split(r"^#+ ", page, flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        rows = re.findall(r"^\| `?([^|`]+?)`? \| (.+) \|$", text, re.MULTILINE)
        yield heading, [(word, meaning.replace("`", "")) for word, meaning in rows[1:]]


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_METRIC_MAKERS = {"mean_metric", "sum_metric", "max_metric"}
_METRIC_RECORDS = {"Metric"}


def fault_of_name(name: str, refused: RefusedWords) -> str | None:
    """What is wrong with a name and what would be right; None where nothing is.

    >>> refused = RefusedWords(parts={"told": "reported"}, names={"one": "what it is"}, metrics={}, vague={})
    >>> fault_of_name("told_by", refused)
    "'told_by' has the private word 'told': say reported"
    >>> fault_of_name("reward_mean", refused), fault_of_name("leave_one_out", refused)
    (None, None)
    """
    plain = name.strip("_")
    if plain in refused.names:
        return f"{name!r} is a private word: say {refused.names[plain]}"
    for word in (part.lower() for part in _WORD.findall(plain)):
        if word in refused.parts:
            return f"{name!r} has the private word {word!r}: say {refused.parts[word]}"
    return None


def private_names(source: Source, refused: RefusedWords) -> list[Fault]:
    """Each name that is bound in a file, and each of its metrics and options, that has a private word."""
    metrics = list(metrics_named(source.tree))
    named = [(1, source.path.stem), *names_bound(source.tree), *options_named(source.tree), *metrics]
    faults = [(line, fault_of_name(name, refused)) for line, name in named]
    faults += [
        (line, f"the metric {name!r} is a private word: say {refused.metrics[name]}")
        for line, name in metrics
        if name in refused.metrics
    ]
    return [
        Fault(path=source.path, line=line, message=message) for line, message in faults if message is not None
    ]


def contradictions(root: Path, refused: RefusedWords) -> list[Fault]:
    """Words that the page explains twice, and those that it uses and refuses."""
    words = Counter(defined_words((root / PAGE).read_text("utf-8")))
    twice = [f"{word!r} is explained {number} times" for word, number in words.items() if number > 1]
    banned = [f"{word!r} is explained, and refused in names" for word in words if word in refused.parts]
    return [Fault(path=PAGE, line=1, message=message) for message in (*twice, *banned)]


def times_bound(files: Sequence[Source]) -> Counter[str]:
    """How often each name is bound, in all files together; underscores at its ends make no difference."""
    return Counter(name.strip("_") for source in files for _, name in names_bound(source.tree))


def names_bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and name of whatever is defined: classes, functions, arguments, attributes and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.lineno, node.asname
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name is not None:
            yield node.lineno, node.name


def metrics_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and name of each metric that is made or documented, without ``held_out/``."""
    for called, call in _calls(tree):
        texts = call.args[:1] if called in _METRIC_MAKERS else []
        if called in _METRIC_RECORDS:
            texts = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
        for line, text in _strings(texts):
            yield line, text.rpartition("/")[2]


def options_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and name of each option that a parser is given."""
    for called, call in _calls(tree):
        if called == "add_argument" and not _is_hidden(call):
            for line, text in _strings(call.args):
                yield line, text.lstrip("-").replace("-", "_")


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield name_of(node.func).rpartition(".")[2], node


def _strings(expressions: Sequence[ast.expr]) -> Iterator[tuple[int, str]]:
    for expression in expressions:
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            yield expression.lineno, expression.value


def _is_hidden(call: ast.Call) -> bool:
    """Whether it is an old name that is still taken: ``help=argparse.SUPPRESS``."""
    return any(
        keyword.arg == "help" and name_of(keyword.value).endswith("SUPPRESS") for keyword in call.keywords
    )


def main(root: Path) -> int:
    """Prints every private name; returns the exit code."""
    files, refused = sources(root, FOLDERS), refused_words(root)
    faults = contradictions(root, refused)
    faults += [fault for source in files for fault in private_names(source, refused)]
    return report(faults, len(files), f"{len(files)} files, {len(faults)} private names")


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
