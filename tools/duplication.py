"""The share of code lines in src that stand inside a six-line passage which occurs elsewhere too.

Blank lines, comments, docstrings, imports and lines of brackets alone are left out before passages are
compared, and the spaces in a line do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.tree import Fault, Source, docstring_of, report, root_from_arguments, sources

WINDOW = 6
"""Lines of a passage."""
LIMIT = 0.05
"""The share of lines that may stand elsewhere too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of code.

    Example: ``Line(path=Path("src/plaudit/errors.py"), number=4, code="classUserError(ValueError):")``
    """

    path: Path
    """The file."""
    number: int
    """The line's number."""
    code: str
    """The code without spaces."""


def code_lines(source: Source) -> list[Line]:
    """The lines of a file that count."""
    left_out = _lines_of_docstrings_and_imports(source.tree)
    words: dict[int, str] = defaultdict(str)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE):
            for offset, part in enumerate(token.string.split("\n")):
                words[token.start[0] + offset] += "".join(part.split())
    return [
        Line(path=source.path, number=number, code=code)
        for number, code in sorted(words.items())
        if number not in left_out and any(character.isalnum() for character in code)
    ]


def repeated(files: Sequence[Sequence[Line]]) -> set[tuple[Path, int]]:
    """Path and number of each line inside a passage that occurs elsewhere without overlapping itself."""
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for f, lines in enumerate(files):
        for start in range(len(lines) - WINDOW + 1):
            places[tuple(line.code for line in lines[start : start + WINDOW])].append((f, start))
    marked: set[tuple[Path, int]] = set()
    for found in places.values():
        (first_file, first), (last_file, last) = found[0], found[-1]
        if first_file != last_file or last - first >= WINDOW:
            marked |= {(line.path, line.number) for f, at in found for line in files[f][at : at + WINDOW]}
    return marked


def main(root: Path) -> int:
    """Checks a repository; returns the exit code."""
    files = [code_lines(source) for source in sources(root, ("src",))]
    total = sum(map(len, files))
    marked = repeated(files)
    share = len(marked) / total if total else 0.0
    summary = f"{len(marked)} of {total} code lines ({share:.1%}) stand elsewhere too, limit {LIMIT:.0%}"
    message = "this line stands in a passage that occurs elsewhere; give the passage one home"
    faults = [Fault(path=path, line=line, message=message) for path, line in marked]
    return report(faults if share >= LIMIT else [], total, summary)


def _lines_of_docstrings_and_imports(tree: ast.Module) -> set[int]:
    left_out: set[int] = set()
    for node in ast.walk(tree):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_docstring = isinstance(node, ast.Expr) and docstring_of([node]) is not None
        if (is_import or is_docstring) and isinstance(node, ast.stmt) and node.end_lineno is not None:
            left_out |= set(range(node.lineno, node.end_lineno + 1))
    return left_out


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
