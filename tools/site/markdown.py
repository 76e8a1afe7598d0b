"""From docstrings to Markdown, and links of Markdown to other places."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5}|[a-z-]+/\d{7})")
"""How the code writes where a paper is."""

_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
_SPECIAL = re.compile(r"([\\*_\[\]<>|$~{}#])")
_LINE_START = re.compile(r"^(\s*)([=+]|\d+[.)])(?=\s)")
_EXAMPLE = re.compile(r"^Example: ``(.+)``\.?$", re.DOTALL)
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_TARGET = re.compile(r"(\]\(\s*)([^)\s]+)(\s*\))|((?:href|src)=\")([^\"]+)(\")")


def escaped(text: str) -> str:
    """Prose in which nothing but code in backticks is markup; papers become links.

    >>> escaped("max(0, −Δ_w) of ``x_1``, arXiv:2305.18290")
    'max(0, −Δ\\\\_w) of ``x_1``, [arXiv:2305.18290](https://arxiv.org/abs/2305.18290)'
    """
    parts = _CODE.split(text)
    prose = (part if at % 2 else _SPECIAL.sub(r"\\\1", part) for at, part in enumerate(parts))
    return ARXIV.sub(r"[\g<0>](https://arxiv.org/abs/\1)", "".join(prose))


def docstring_markdown(doc: str, parameters: Collection[str] = ()) -> str:
    """A docstring as Markdown: examples and indented blocks as code, ``name: help`` as a list.

    >>> print(docstring_markdown("−log σ(βh).\\n\\nbeta: how dear.", ["beta"]))
    −log σ(βh).
    <BLANKLINE>
    - `beta`: how dear.
    """
    blocks = (_block(block, parameters) for block in re.split(r"\n[ \t]*\n", doc.strip("\n")))
    return "\n\n".join(_joined(blocks))


def _joined(blocks: Iterator[str]) -> Iterator[str]:
    """Blocks of code that only an empty line parts are one."""
    held = ""
    for block in blocks:
        seam = "\n```"
        if (
            held.endswith(seam)
            and block.startswith("```")
            and held.partition("\n")[0] == block.partition("\n")[0]
        ):
            held = held.removesuffix(seam) + "\n\n" + block.split("\n", 1)[1]
            continue
        if held:
            yield held
        held = block
    if held:
        yield held


def _block(block: str, parameters: Collection[str]) -> str:
    lines = block.splitlines()
    if block.lstrip().startswith(">>>"):
        return fenced(block, "pycon")
    if all(line.startswith("    ") for line in lines):
        return fenced("\n".join(line[4:] for line in lines), "text")
    example = _EXAMPLE.match(block)
    if example:
        code = re.sub(r"\s+", " ", example[1])
        return "Example:\n\n" + fenced(code, "text")
    return "\n".join(_prose_line(line, parameters) for line in escaped(block).splitlines())


def _prose_line(line: str, parameters: Collection[str]) -> str:
    name, colon, words = line.partition(":")
    plain = name.replace("\\", "")
    if colon and plain in parameters:
        return f"- `{plain}`:{words}"
    return _LINE_START.sub(r"\1\\\2", re.sub(r"::$", ":", line))


def fenced(code: str, language: str) -> str:
    """A block of code.

    >>> fenced("a", "text").splitlines()
    ['```text', 'a', '```']
    """
    marks = "```" if "```" not in code else "````"
    return f"{marks}{language}\n{code}\n{marks}"


def with_targets(text: str, change: Callable[[str], str]) -> str:
    """A page with each target of a link or a picture changed; code stays as it is.

    >>> with_targets("[a](b.md) `[c](d.md)`", str.upper)
    '[a](B.MD) `[c](d.md)`\\n'
    """

    def changed(match: re.Match[str]) -> str:
        before, target, after = [group for group in match.groups() if group is not None]
        return before + change(target) + after

    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if _FENCE.match(line):
            inside = not inside
        parts = re.split(r"(`[^`]*`(?!\]\())", line)
        if not inside:
            parts[::2] = [_TARGET.sub(changed, part) for part in parts[::2]]
        found.append("".join(parts))
    return "\n".join(found) + "\n"
