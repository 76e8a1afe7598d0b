"""``plaudit train --list``: the algorithms of preference optimisation, from the table in the code."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.recipes.preference_table import PREFERENCES, Value

LEGEND = (
    "h = Δ_w − Δ_l, Δ = log π(y|x) − log π_ref(y|x), of a preferred answer w and another one l; without a",
    "reference Δ = log π(y|x). pairs: comparisons and rankings. thumbs: single answers, good or bad.",
    "Settings are given as --preference.beta 0.05; plaudit train NAME --help-all shows all of them.",
)
"""What stands under the table."""


def print_list() -> None:
    """The table, as wide as the terminal, and what its letters mean."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, keep in (
        ("name", True),
        ("data", True),
        ("cells", False),
        ("loss", False),
        ("settings", False),
    ):
        table.add_column(title, no_wrap=keep, overflow="fold")
    table.add_column("paper", overflow="fold")
    for facts in PREFERENCES.values():
        table.add_row(
            facts.name, facts.data, facts.cells, facts.formula, settings_in_words(facts.defaults), facts.paper
        )
    console.print(table)
    for line in LEGEND:
        console.print(line, soft_wrap=True)


def settings_in_words(defaults: Mapping[str, Value]) -> str:
    """A row's own settings with their values.

    >>> settings_in_words({"beta": 0.1, "mix": ("dpo=0.8", "bco-pair=0.2")})
    'beta 0.1, mix dpo=0.8 bco-pair=0.2'
    """
    return ", ".join(f"{name} {_value(value)}" for name, value in defaults.items())


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, int | float) else value
