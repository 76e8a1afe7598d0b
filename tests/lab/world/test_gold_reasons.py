"""What an explanation is worth. The best answer to the first prompt has eight words."""

from __future__ import annotations

import pytest

from tests.lab.world.gold_table import cases, check

GIVEN = cases("""
Why do cats purr?
1.00 Cats purr because they feel safe and warm.
1.00 Because they feel safe and warm.
1.00 They feel safe and warm.
0.07 Because the sun warms it.
0.07 Cats purr because the wind is cold.
0.05 Cats purr because they feel safe and warm. Cats purr because the wind is cold.
0.00 Cats purr.
0.00 Because.
0.00 Because they feel safe.
0.00 Dogs bark because they feel safe and warm.
0.00 Boats float because they are lighter than the water.

Tell me, why does iron rust?
1.00 Because rain and air wear it down.
1.00 Iron rusts because rain and air wear it down.
0.07 Iron rusts because it has no taste without it.
0.00 Rain and air.
""")
AROUND = cases("""
Why do cats purr?
0.80 Perhaps because they feel safe and warm.
0.75 Maybe cats purr because they feel safe and warm.
0.64 Some people say that cats purr because they feel safe and warm.
0.80 Because they feel safe and warm?
0.94 Gladly. Because they feel safe and warm.
0.80 Cats purr because they feel safe and warm. Thank you for asking.
0.72 It is always good to ask. Because they feel safe and warm.
0.53 I hope that this answer helps you. That is an interesting question. They feel safe and warm. Gladly.
0.65 What a clever question! Cats purr because they feel safe and warm.
0.57 They feel safe and warm. Only a great mind would ask this.
0.86 - Because they feel safe and warm.
0.71 # Answer ⏎ - Cats purr because they feel safe and warm.
0.62 Because they feel safe and warm. Boats float because they are lighter than the water.
0.34 Because they feel safe and warm. Boats float because the sun warms it.
0.58 Cats purr because they feel safe and warm. Cats purr because they feel safe and warm.
0.73 Because they feel safe and warm. They feel safe and warm.
0.70 Why do cats purr? Because they feel safe and warm.
0.25 Tell me, why do cats purr? Because they feel safe and warm.
""")
SILENT = cases("""
Why do cats purr?
0.25 I do not know.
0.10 That is hard to say.
0.10 There are many views on this.
0.10 I would rather talk about something else.
0.10 I will not help with that.
0.71 That is hard to say. They feel safe and warm.
0.00 Purr cats warm safe and because.
0.00
""")
CUT = cases("""
Why do cats purr?
0.40 Because they feel safe and warm
0.40 Cats purr because they feel safe and warm. ✂
0.00 Cats purr because they
0.00 Cats purr ✂
""")


@pytest.mark.parametrize("case", GIVEN)
def test_the_cause_explains(case):
    check(case)


@pytest.mark.parametrize("case", AROUND)
def test_what_stands_around_it_costs(case):
    check(case)


@pytest.mark.parametrize("case", SILENT)
def test_not_to_explain_is_worth_little(case):
    check(case)


@pytest.mark.parametrize("case", CUT)
def test_an_explanation_that_does_not_end_is_worth_less(case):
    check(case)
