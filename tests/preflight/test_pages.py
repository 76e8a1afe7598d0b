"""The pages of docs/checks/ say what the checks say."""

import re
from pathlib import Path

from plaudit.preflight.checks import CHECKS
from plaudit.preflight.report import check_page, checks_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
UNHEARD_OF = ("reward-order", "giveaway", "label-noise")
"""Faults that nobody seems to have reported in public."""
AGAIN = "make the pages again: python -m plaudit.preflight.report docs"


def test_every_check_has_its_page_and_its_row_and_names_where_it_would_have_helped() -> None:
    written = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "checks").glob("*.md")}
    assert written == {name: check_page(check) for name, check in CHECKS.items()}, AGAIN
    assert checks_table() in (DOCS / "checks.md").read_text(encoding="utf-8"), AGAIN
    for check in CHECKS.values():
        assert check.name in UNHEARD_OF or re.search(r"\w#\d+", check.texts["matters"]), check.name
        assert all(
            said.endswith(".")
            for said in (check.texts["proves"], check.texts["matters"], check.texts["mend"])
        ), check.name
