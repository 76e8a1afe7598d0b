"""The words of names: identifiers, metrics and options are called as in the field (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.tree import Fault, Source, name_of, report, root_from_arguments, sources

FOLDERS = ("src", "tools", "benchmarks", "examples")
"""Where names are looked at; in tests they may be sentences."""

PRIVATE_WORDS = {
    "said": "message, output or reported",
    "asked": "prompts, requested or queried",
    "told": "reported, given or result",
    "seen": "observed, visited or trained",
    "begun": "started or run",
    "nobody": "none, as in NoReference",
    "leap": "update_fn",
    "apart": "difference, distance or separate",
    "alone": "single, exclusive or unbatched",
    "opinion": "preference",
    "opinions": "preferences",
    "pursuit": "reward against KL",
    "manner": "format, mode or aggregation",
    "manners": "aggregation or retry policy",
    "chance": "probability, or generator for random numbers",
    "chances": "probabilities",
    "kept": "cached, selected or retained",
    "looker": "HeldOutEvaluator",
    "remark": "diagnostic",
    "remarks": "diagnostics",
    "companion": "Stateful",
    "companions": "Stateful",
    "watchers": "scoring models",
    "strangers": "mismatched",
    "beneath": "adapter off, or base",
    "beside": "matched, or next to",
    "worded": "generative",
    "teller": "sink or reporter",
}
"""Words that no name may have as a part, with what the field says."""

PRIVATE_NAMES = {
    "one": "what it is: row, answer, metric, …",
    "durable": "atomic",
    "choosing": "selection",
    "last_word": "distributed_errors",
}
"""Whole names that say nothing, or something private; as parts of a longer name they may be plain English."""

PRIVATE_METRICS = {
    "clipped_high": "clip_frac_high",
    "clipped_low": "clip_frac_low",
    "explained": "explained_variance",
    "flat": "frac_zero_std",
    "kl_old": "approx_kl",
    "kl_root": "sqrt_kl",
    "preferred": "win_prob",
    "undecided": "frac_no_verdict",
}
"""Words that are plain English in code and riddles as names of metrics."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_METRIC_MAKERS = {"mean_metric", "sum_metric", "max_metric"}
_METRIC_RECORDS = {"Metric"}


def fault_of_name(name: str) -> str | None:
    """What is wrong with a name and what would be right; None where nothing is.

    >>> fault_of_name("told_by")
    "'told_by' has the private word 'told': say reported, given or result"
    >>> fault_of_name("reward_mean"), fault_of_name("leave_one_out")
    (None, None)
    """
    plain = name.strip("_")
    if plain in PRIVATE_NAMES:
        return f"{name!r} is a private word: say {PRIVATE_NAMES[plain]}"
    for word in (part.lower() for part in _WORD.findall(plain)):
        if word in PRIVATE_WORDS:
            return f"{name!r} has the private word {word!r}: say {PRIVATE_WORDS[word]}"
    return None


def private_names(source: Source) -> list[Fault]:
    """Each name that is bound in a file, and each of its metrics and options, that has a private word."""
    metrics = list(metrics_named(source.tree))
    named = [(1, source.path.stem), *names_bound(source.tree), *options_named(source.tree), *metrics]
    faults = [(line, fault_of_name(name)) for line, name in named]
    faults += [
        (line, f"the metric {name!r} is a private word: say {PRIVATE_METRICS[name]}")
        for line, name in metrics
        if name in PRIVATE_METRICS
    ]
    return [
        Fault(path=source.path, line=line, message=message) for line, message in faults if message is not None
    ]


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
    files = sources(root, FOLDERS)
    faults = [fault for source in files for fault in private_names(source)]
    return report(faults, len(files), f"{len(files)} files, {len(faults)} private names")


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
