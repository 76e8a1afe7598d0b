"""``plaudit train --list``: the algorithms that are rows of tables, from the tables in the code."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.recipes.loop_table import LOOPS
from plaudit.recipes.policy_table import POLICIES
from plaudit.recipes.preference_table import PREFERENCES

LEGEND = (
    "h = Δ_w − Δ_l, Δ = log π(y|x) − log π_ref(y|x), of a preferred answer w and another one l; without a",
    "reference Δ = log π(y|x). pairs: comparisons and rankings. thumbs: single answers, good or bad.",
    "Settings are given as --preference.beta 0.05; plaudit train NAME --help-all shows all of them.",
)
"""What stands under the table of preference optimisation."""
POLICY_LEGEND = (
    "Policy optimisation: draw answers, score them, move to those better than expected (docs/policy.md).",
    "r is π / π_old or the reward, A the advantage. Settings: --policy.beta 0.05, --draw.answers 8.",
)
"""What stands over the table of policy optimisation."""
LOOP_LEGEND = (
    "Loops that make their own rows: draw answers, score them, choose, train, and again (docs/loops.md).",
    "r is the reward. Settings are given as --loop.answers 8, a preference row's as --preference.beta 0.05.",
)
"""What stands over the table of loops."""
Value = int | float | str | tuple[str, ...] | tuple[float, ...]
"""What a setting of a row can be."""


def print_list() -> None:
    """Each algorithm with its loss, its data, its cells and where it is from; and what the letters mean."""
    for facts in PREFERENCES.values():
        _print_row(facts.name, facts.formula, f"{facts.data} · {facts.cells}", facts.defaults, facts.paper)
    print("\n" + "\n".join(LEGEND))
    print("\n" + "\n".join(POLICY_LEGEND) + "\n")
    for row in POLICIES.values():
        _print_row(row.name, row.formula, row.cells, row.defaults, row.paper)
    print("\n" + "\n".join(LOOP_LEGEND) + "\n")
    for loop in LOOPS.values():
        _print_row(loop.name, loop.formula, loop.cells, loop.defaults, loop.paper)


def settings_in_words(defaults: Mapping[str, Value]) -> str:
    """A row's own settings with their values.

    >>> settings_in_words({"beta": 0.1, "mix": ("dpo=0.8", "bco-pair=0.2")})
    'beta 0.1, mix dpo=0.8 bco-pair=0.2'
    """
    return ", ".join(f"{name} {_value(value)}" for name, value in defaults.items())


def _print_row(name: str, formula: str, cells: str, defaults: Mapping[str, Value], paper: str) -> None:
    print(f"{name:18} {formula}")
    print(f"{'':18} {cells} · {settings_in_words(defaults)}")
    print(f"{'':18} {paper}")


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(_value(one) for one in value)
    return f"{value:g}" if isinstance(value, int | float) else value
