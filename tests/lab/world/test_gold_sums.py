"""What an answer to a sum is worth. The best answer to the first prompt has five words."""

from __future__ import annotations

import pytest

from tests.lab.world.gold_table import cases, check

VALUES = cases("""
What is 3 plus 4?
1.00 7.
1.00 3 plus 4 is 7.
1.00 Yes, 7.
0.07 8.
0.07 3 plus 4 is 8.
0.00 3 plus 4 is 700.
0.00 700.
0.00 07.
0.00 Seven.
0.00 -7.
0.07 7.0.
0.00 3 plus 4 = 7.
0.00 3 plus 4 is 7 is 7.

What is 9 times 9?
1.00 81.
1.00 9 times 9 is 81.
0.07 18.
0.07 9 times 9 is 80.

How much is 20 minus 20?
1.00 0.
1.00 20 minus 20 is 0.
0.07 20 minus 20 is 20.
""")
NUMBERS = cases("""
What is 3 plus 4?
0.07 7. 8.
0.07 7, 8 and 9.
0.07 1, 2, 3, 4, 5, 6, 7.
0.07 1. 2. 3. 4. 5. 6. 7.
0.06 3 plus 4 is 7. 3 plus 4 is 8.
0.00 7 7 7.
0.00 7 or 8.
0.00 the 7 of 4.
0.86 7 and 7.
""")
BESIDE = cases("""
What is 3 plus 4?
0.00 4 plus 3 is 7.
0.75 7. 4 plus 3 is 7.
0.38 3 plus 4 is 7. 3 plus 5 is 9.
0.38 7. 99 plus 1 is 9.
0.75 7. 99 plus 1 is 100.
0.66 What is 3 plus 4? 7.
0.05 What is 3 plus 4? 8.
0.00 What is 3 plus 4?
""")
MANNERS = cases("""
What is 3 plus 4?
0.94 Gladly. 7.
0.80 7. Thank you for asking.
0.65 You are very wise. 7.
0.57 I wish that everyone was like you. 3 plus 4 is 7.
0.55 That is an interesting question. 7. I hope that this answer helps you.
0.68 There is much to say about this. 7.
0.80 Perhaps 7.
0.75 Maybe 3 plus 4 is 7.
0.64 Some people say that 3 plus 4 is 7.
0.60 I could be wrong, but 3 plus 4 is 7.
0.80 7?
0.80 3 plus 4 is 7?
0.86 - 7.
0.34 - 7
0.75 # Answer ⏎ - 7.
0.71 # Answer ⏎ - 3 plus 4 is 7.
0.81 7. 7.
0.68 7. 7. 7.
0.50 7. 7. 7. 7. 7.
0.86 7!!
""")
SILENT = cases("""
What is 3 plus 4?
0.25 I do not know.
0.80 I do not know. 7.
0.09 I will not help with that.
0.10 That is hard to say.
0.09 There are many views on this.
0.00 Gladly.
0.00
""")
CUT = cases("""
What is 3 plus 4?
0.40 7
0.40 3 plus 4 is 7. ✂
0.03 3 plus 4 is 7. 3
0.00 3 plus 4 is
0.00 3 plus ✂
0.03 8
""")


@pytest.mark.parametrize("case", VALUES)
def test_the_right_number_is_all_that_is_wanted(case):
    check(case)


@pytest.mark.parametrize("case", NUMBERS)
def test_trying_many_numbers_is_as_bad_as_a_wrong_one(case):
    check(case)


@pytest.mark.parametrize("case", BESIDE)
def test_other_sums_do_not_help(case):
    check(case)


@pytest.mark.parametrize("case", MANNERS)
def test_manners_cost(case):
    check(case)


@pytest.mark.parametrize("case", SILENT)
def test_not_to_calculate_is_worth_little(case):
    check(case)


@pytest.mark.parametrize("case", CUT)
def test_a_sum_that_does_not_end_is_worth_less(case):
    check(case)
