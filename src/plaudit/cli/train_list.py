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
    """Each algorithm with its loss, its data, its cells and where it is from; and what the letters mean."""
    for facts in PREFERENCES.values():
        print(f"{facts.name:18} {facts.formula}")
        print(f"{'':18} {facts.data} · {facts.cells} · {settings_in_words(facts.defaults)}")
        print(f"{'':18} {facts.paper}")
    print("\n" + "\n".join(LEGEND))


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
