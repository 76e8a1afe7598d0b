"""Runs the command blocks of a page as its reader would, and compares what they print with what it shows.

A page's ```bash blocks run in order, in one temporary folder that holds a copy of ``examples/``, without a
network. ``<!-- not run: reason -->`` in front of a block leaves it out. ``<!-- output -->`` in front of a
```text block says that its lines must stand, in this order, in the output of the block before; ``...``
stands for any lines or, inside a line, for any characters.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<marks>`{3,}|~{3,})\s*(?P<language>\S*)")
_COMMENT = re.compile(r"^\s*<!--\s*(?P<what>not run|output)\b:?\s*(?P<reason>.*?)\s*-->\s*$")
_OTHER_NAMES_OF_BASH = ("sh", "shell", "console", "shell-session", "zsh")


class DocsError(Exception):
    """A page that cannot be run as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    """The word behind the fence."""
    text: str
    line: int
    mark: str
    """The comment in front of it: "not run", "output" or nothing."""
    reason: str
    """Why it is not run."""


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page with the comments in front of them; wrong markup is a `DocsError`."""
    blocks: list[Block] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    mark, reason = "", ""
    for number, line in lines:
        comment, fence = _COMMENT.match(line), _FENCE.match(line)
        if fence:
            body = _body(lines, fence, number)
            blocks.append(Block(language=fence["language"], text=body, line=number, mark=mark, reason=reason))
        elif mark and line.strip():
            raise DocsError(f"line {number}: a code block must follow <!-- {mark} -->")
        if fence or line.strip():
            mark, reason = (comment["what"], comment["reason"]) if comment else ("", "")
    if mark:
        raise DocsError(f"the page ends behind <!-- {mark} -->")
    for before, block in zip([None, *blocks], blocks, strict=False):
        _refuse_wrong_markup(block, before)
    return blocks


def run_page(text: str, examples: Path, folder: Path) -> int:
    """Runs a page's blocks inside an empty folder; returns how many were run."""
    if examples.exists():
        shutil.copytree(examples, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    output, count = "", 0
    for block in blocks_of(text):
        if block.language == "bash" and block.mark != "not run":
            output = _run(block, folder)
            count += 1
        elif block.mark == "output" and not shows(block.text, output):
            raise DocsError(f"line {block.line}: the page shows\n{block.text}\nbut this came out\n{output}")
    return count


def shows(wanted: str, output: str) -> bool:
    """Whether the lines of ``wanted`` stand in the output, in this order and without lines between them."""
    patterns = [
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else ".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n"
        for line in wanted.strip("\n").split("\n")
    ]
    tidy = "".join(line.rstrip() + "\n" for line in output.splitlines())
    return re.search("^" + "".join(patterns), tidy, re.MULTILINE) is not None


def _body(lines: Iterator[tuple[int, str]], fence: re.Match[str], start: int) -> str:
    body: list[str] = []
    for _, line in lines:
        if re.fullmatch(r"\s*" + fence["marks"][0] + "{" + str(len(fence["marks"])) + r",}\s*", line):
            return "\n".join(body) + "\n"
        body.append(line.removeprefix(fence["indent"]))
    raise DocsError(f"line {start}: this code block has no end")


def _refuse_wrong_markup(block: Block, before: Block | None) -> None:
    where = f"line {block.line}"
    if block.language in _OTHER_NAMES_OF_BASH:
        raise DocsError(f"{where}: call it bash, not {block.language}, so that it is run")
    if block.mark == "not run" and not block.reason:
        raise DocsError(f"{where}: say why: <!-- not run: reason -->")
    if block.mark == "not run" and block.language != "bash":
        raise DocsError(f"{where}: <!-- not run --> stands in front of {block.language or 'a plain block'}")
    if block.mark != "output":
        return
    if block.language != "text":
        raise DocsError(f"{where}: <!-- output --> must stand in front of a text block")
    if before is None or before.language != "bash" or before.mark == "not run":
        raise DocsError(f"{where}: no command that is run stands in front of this output")


def _run(block: Block, folder: Path) -> str:
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
        check=False,
    )
    if done.returncode != 0:
        raise DocsError(f"line {block.line}: exit code {done.returncode} of\n{block.text}\n{done.stdout}")
    return done.stdout
