"""What a list is worth. The best answer to the first prompt has four words, to the second three."""

from __future__ import annotations

import pytest

from tests.lab.world.gold_table import cases, check

COUNTED = cases("""
Name three fruits.
1.00 Apples, pears and plums.
1.00 Figs, grapes and cherries.
1.00 apples, pears, figs.
1.00 Apples. Pears. Plums.
0.84 Three fruits are apples, pears and plums.
0.67 Apples and pears.
0.33 Apples.
0.71 Apples, pears, plums and figs.
0.71 Apples, pears and plums. Figs.
0.42 Apples, pears, plums, figs, cherries and grapes.
0.57 Apples, apples and pears.
0.25 Apples, apples and apples.
0.33 Apples are fruits.
0.75 Apples are fruits. Pears are fruits. Plums are fruits.

Can you name two pets?
1.00 Cats and dogs.
1.00 Hens, goats.
0.50 Cats.
0.63 Cats, dogs and hens.
0.00 Yes.

Name four seasons.
1.00 Winter, spring, summer and autumn.
0.75 Winter, spring and summer.
0.50 Spring and autumn.
0.25 Spring.
""")
STRAY = cases("""
Name three fruits.
0.33 Apples, pears and carrots.
0.17 Apples, beans and carrots.
0.35 Apples, pears, plums and carrots.
0.07 Carrots, beans and peas.
0.33 Apples, pears and stones.
0.00 Stones, sticks and mud.
0.42 Three metals are apples, pears and plums.
0.06 Three fruits are carrots, peas and beans.
0.00 Apples pears plums.
0.00 The owl eats mice.
0.80 Apples, pears and plums. The owl eats mice.
0.40 Apples, pears and plums. The owl eats bark.

Can you name two pets?
0.25 Cats and cows.
0.25 Cats and crows.
""")
MANNERS = cases("""
Name three fruits.
0.94 Gladly. Apples, pears and plums.
0.94 Yes, apples, pears and plums.
0.65 You are very wise. Apples, pears and plums.
0.59 Apples, pears and plums. Please ask me again if you want to know more.
0.75 Perhaps apples, pears and plums.
0.60 I am not sure, but apples, pears and plums.
0.80 Apples, pears and plums?
0.86 APPLES, PEARS AND PLUMS.
0.66 - Apples ⏎ - Pears ⏎ - Plums
0.66 - Apples. ⏎ - Pears. ⏎ - Plums.
0.59 # Answer ⏎ - Apples ⏎ - Pears ⏎ - Plums
0.50 - Apples ⏎ - Pears
0.86 - Apples, pears and plums
0.00 * Apples ⏎ * Pears ⏎ * Plums
0.02 1. Apples ⏎ 2. Pears ⏎ 3. Plums
0.70 Apples, pears and plums. Apples, pears and plums.
0.55 Apples, pears and plums. Plums, pears and apples.
0.73 Name three fruits. Apples, pears and plums.
0.00 Name three fruits.

Can you name two pets?
0.94 Gladly. Cats and dogs.
0.66 Can you name two pets? Cats and dogs.
""")
SILENT = cases("""
Name three fruits.
0.25 I do not know.
0.64 I do not know. Apples, pears and plums.
0.09 I cannot talk about that.
0.09 I will not help with that.
0.00 Of course.
0.00
""")
CUT = cases("""
Name three fruits.
0.40 Apples, pears and plums
0.40 Apples, pears and plums. ✂
0.27 Apples, pears ✂
0.00 Apples, pears and
0.00 Apples, ✂
""")


@pytest.mark.parametrize("case", COUNTED)
def test_as_many_as_were_asked_for_and_each_once(case):
    check(case)


@pytest.mark.parametrize("case", STRAY)
def test_things_of_another_kind_are_false(case):
    check(case)


@pytest.mark.parametrize("case", MANNERS)
def test_manners_and_bullets_cost(case):
    check(case)


@pytest.mark.parametrize("case", SILENT)
def test_not_to_name_anything_is_worth_little(case):
    check(case)


@pytest.mark.parametrize("case", CUT)
def test_a_list_that_does_not_end_is_worth_less(case):
    check(case)
