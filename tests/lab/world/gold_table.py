"""Hand-worked cases, as people write them down: a prompt, and under it what each answer is worth.

A line of a table is a utility to two decimals and an answer. ⏎ stands for a new line, and ✂ at the end for an
answer that was cut off before it said that it was done. A line without a utility is the next prompt.
"""

from __future__ import annotations

import re

import pytest

from plaudit.lab.world.gold import gold_of

_ROW = re.compile(r"(\d\.\d\d) ?(.*)")


def cases(text: str) -> list[tuple[str, str, bool, float]]:
    """Prompt, answer, whether it ended, and utility."""
    rows: list[tuple[str, str, bool, float]] = []
    prompt = ""
    for line in text.strip().splitlines():
        row = _ROW.fullmatch(line.strip())
        if row is None:
            prompt = line.strip().replace(" ⏎ ", "\n") or prompt
            continue
        answer = row[2].replace(" ⏎ ", "\n")
        rows.append((prompt, answer.removesuffix(" ✂"), not answer.endswith(" ✂"), float(row[1])))
    return rows


def check(case: tuple[str, str, bool, float]) -> None:
    """The utility agrees with the table, up to its last decimal."""
    prompt, answer, ended, expected = case
    gold = gold_of(prompt, answer, ended=ended)
    assert gold.utility == pytest.approx(expected, abs=0.0051), gold
