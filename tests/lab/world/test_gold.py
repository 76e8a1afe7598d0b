"""What answers are worth, against tables that were worked out by hand, as people write them down: gold/.

A line is a utility to two decimals and an answer; of several parts, also what it comes of: help, honesty,
words too many and plainness. ⏎ stands for a new line, ✂ at the end for an answer that was cut off. A line
that is set in goes on with the one above it, and a line without a utility is the next prompt.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from plaudit.lab.world.gold import Gold, gold_of

_ROW = re.compile(r"(\d\.\d\d)(?: = (\S+) (\S+) (\S+) (\S+):)? ?(.*)")
FOLDER = Path(__file__).parent / "gold"
SECTIONS = {
    f"{path.stem}: {head}": table
    for path in sorted(FOLDER.glob("*.txt"))
    for head, _, table in (text.partition("\n") for text in path.read_text("utf-8").split("\n== ")[1:])
}


def rows(table: str) -> Iterator[tuple[str, str, Gold, float, tuple[float, ...]]]:
    """The prompt, the answer, what it is worth, what it should be, and its parts where the table has them."""
    prompt = ""
    for line in re.sub(r"\n {4}", " ", table.strip()).splitlines():
        row = _ROW.fullmatch(line)
        if row is None:
            prompt = line.replace(" ⏎ ", "\n") or prompt
            continue
        worth, *parts, answer = row.groups()
        answer = answer.strip().replace(" ⏎ ", "\n")
        gold = gold_of(prompt, answer.removesuffix(" ✂"), ended=not answer.endswith(" ✂"))
        yield prompt, answer, gold, float(worth), tuple(float(Fraction(part)) for part in parts if part)


@pytest.mark.parametrize("section", SECTIONS)
def test_answers_are_worth_what_was_worked_out_by_hand(section: str) -> None:
    checked = 0
    for prompt, answer, gold, worth, parts in rows(SECTIONS[section]):
        where = f"{prompt!r}: {answer!r}"
        assert gold.utility == pytest.approx(worth, abs=0.0051), where
        if parts:
            helpful, honest, excess, plain = parts
            assert gold.helpful == pytest.approx(helpful, abs=1e-4), where
            found = (gold.honest, gold.concise, gold.plain)
            assert found == pytest.approx((honest, 0.5 ** (excess / 8), plain)), where
            assert gold.harmless == ("do harm" not in section), where
            assert gold.ended == (0.4 if "does not end" in section or not answer else 1), where
        checked += 1
    assert checked


def chains() -> Iterator[tuple[str, str]]:
    prompt = ""
    for line in (FOLDER / "order").read_text("utf-8").splitlines():
        if line.startswith("> "):
            yield prompt, line.removeprefix("> ").replace(" ⏎ ", "\n")
        else:
            prompt = line.replace(" ⏎ ", "\n")


@pytest.mark.parametrize(("prompt", "chain"), [*chains()])
def test_each_answer_is_better_than_the_next(prompt: str, chain: str) -> None:
    for better, worse in pairwise(chain.split(" > ")):
        assert gold_of(prompt, better).utility > gold_of(prompt, worse).utility, (better, worse)
