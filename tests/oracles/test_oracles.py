"""plaudit's numbers against formulas that were restated from their papers, and against what was recorded.

The restated formulas are plain Python over lists, written from the papers named in their docstrings and not
from plaudit's code; the inputs come from Python's own generator. Values are recorded, so that a change of
either side shows, and a row that is added or taken away has to be recorded too:
``python -m tests.oracles.record``.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.oracles.comparison import Comparison
from tests.oracles.draws import SEED, drawn
from tests.oracles.figure_rows import ADVANTAGES, FIGURES, REWARDS
from tests.oracles.loss_rows import DIVERGENCE, POLICY, PREFERENCE

COMPARISONS = (*PREFERENCE, *POLICY, *DIVERGENCE, *ADVANTAGES, *REWARDS, *FIGURES)
VALUES = Path(__file__).with_name("values.json")


def flat(value: Any) -> list[float]:
    if isinstance(value, torch.Tensor):
        return [float(x) for x in value.detach().flatten()]
    if isinstance(value, float | int):
        return [float(value)]
    return [x for part in value for x in flat(part)]


def apart(one: list[float], other: list[float]) -> float:
    assert len(one) == len(other)
    assert all(math.isfinite(x) for x in (*one, *other))
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(VALUES.read_text("utf-8"))


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda comparison: comparison.name)
def test_a_formula_says_what_its_paper_says(comparison: Comparison, recorded: dict[str, Any]) -> None:
    inputs = drawn(comparison.name, comparison.draw)
    restated = flat(comparison.plain(inputs))
    assert apart(restated, recorded["values"][comparison.name]) < comparison.within, "not what was recorded"
    assert apart(restated, flat(comparison.ours(inputs))) < comparison.within


def test_every_comparison_is_recorded_once_and_there_are_many(recorded: dict[str, Any]) -> None:
    names = [comparison.name for comparison in COMPARISONS]
    assert len(names) == len(set(names)) >= 120
    assert set(recorded["values"]) == set(names)
    assert recorded["seed"] == SEED


def test_a_comparison_that_is_off_by_little_is_seen(recorded: dict[str, Any]) -> None:
    values = recorded["values"]["dpo"]
    assert apart(values, [values[0] + 1e-9, *values[1:]]) > 1e-12
