"""The page of security: every row of the standard's first level, each with a test that is there."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
# Sections of ASVS 5.0.0 by how many of their requirements, from the first on, are of level 1.
COUNTS = {
    1: "1.5 2.1 2.3 3.3 4.1 4.4 6.1 8.1 8.3 9.2 11.4 12.1 13.4 14.2 14.3 15.1 15.2 15.3",
    2: "1.3 2.2 3.2 3.4 5.2 5.3 6.3 6.4 7.4 8.2 11.3 12.2",
    3: "3.5 9.1",
    4: "7.2",
    5: "1.2 10.4",
    8: "6.2",
}
LEVEL_1 = {
    f"V{section}.{number}"
    for count, sections in COUNTS.items()
    for section in sections.split()
    for number in range(1, count + 1)
}
_ROW = re.compile(r"^\| (V\d+\.\d+\.\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = _ROW.findall(PAGE)


def test_every_row_of_the_first_level_stands_on_the_page_once() -> None:
    assert len(LEVEL_1) == 70
    counts = Counter(row[0] for row in ROWS)
    assert set(LEVEL_1) - set(counts) == set()
    assert {name: count for name, count in counts.items() if count > 1} == {}
    # A row that the pattern does not read would be a row that nothing checks.
    assert len(ROWS) == len(re.findall(r"^\| V\d", PAGE, re.MULTILINE))


@pytest.mark.parametrize(("requirement", "here", "shown"), [(row[0], *row[2:]) for row in ROWS])
def test_a_row_is_shown_by_tests_or_says_why_it_does_not_apply(requirement, here, shown):
    assert _TEST.search(shown) or shown == "by hand" or here.startswith("does not apply:"), requirement


@pytest.mark.parametrize(("file", "name"), sorted({*_TEST.findall(PAGE)}))
def test_every_test_that_the_page_names_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_row_that_could_be_tested_is_only_said() -> None:
    """What is shown by hand is documents, and what lies outside the program: a list that does not grow."""
    said = {row[0] for row in ROWS if row[3] == "by hand"}
    assert said <= {
        *("V2.1.1", "V5.2.3", "V6.1.1", "V8.1.1", "V8.1.2", "V12.1.1", "V12.2.2", "V15.1.1", "V15.2.1"),
        "V16.1.1",
    }
