"""Sentences are said by somebody, and what stands in their fields is text."""

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

import plaudit.runs.report
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.parts import say

FOLDER = Path(next(iter(plaudit.runs.report.__path__)))


def names(entry: Any, above: str = "") -> Iterator[str]:
    """The names of all sentences; the three of a warning have one."""
    for name, below in entry.items():
        is_group = isinstance(below, dict) and "finding" not in below
        yield from names(below, f"{above}{name}.") if is_group else [above + name]


def patterns() -> Iterator[str]:
    """Every string of the package's code as a pattern; what is filled in may be anything."""
    # The pages of the exercises stand among the examples.
    for path in (*FOLDER.rglob("*.py"), *Path("examples/exercises").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    re.escape(one.value) if isinstance(one, ast.Constant) else ".*" for one in node.values
                ]
                yield from [] if parts[0] == ".*" else ["".join(map(str, parts))]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.escape(node.value)


def test_every_sentence_is_said_somewhere() -> None:
    written = yaml.safe_load(
        resources.files("plaudit.runs.report").joinpath("sentences.yaml").read_text("utf-8")
    )
    said = [re.compile(one) for one in set(patterns())]
    unsaid = [
        name
        for name in names(written)
        if not any(one.fullmatch(name) or one.fullmatch(name.removeprefix("doubts.")) for one in said)
    ]
    assert unsaid == []


def test_a_field_is_written_as_its_sentence_says_and_never_read_as_one() -> None:
    worth = Estimate(value=0.5, low=0.25, high=0.75, n=9, prompts=9)
    assert say("run.went", before=float("nan"), after=0.0612) == "went from not finite to 0.0612"
    assert say("reward.overlap", names="{accuracy} {0}").startswith(
        "Its interval overlaps with that of {accuracy} {0}:"
    )
    assert say("category_fell", name="x" * 60, before=worth, after=worth).startswith("x" * 40 + " … (20 more")
    with pytest.raises(KeyError, match="after"):
        say("run.went", before=1.0)
    with pytest.raises(KeyError, match="nothing"):
        say("run.nothing")
