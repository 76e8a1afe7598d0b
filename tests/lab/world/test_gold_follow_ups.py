"""What an answer to a second question is worth. The best answer to the first prompt has three words."""

from __future__ import annotations

import pytest

from tests.lab.world.gold_table import cases, check

ANSWERED = cases("""
What does the owl fear? ⏎ The owl fears fire. ⏎ And what does it eat?
1.00 It eats mice.
1.00 Mice.
0.94 The owl eats mice.
0.07 It eats bark.
0.07 Bark.
0.07 Mice and bark.
0.00 She eats mice.
0.00 It fears fire.
0.00 The owl fears fire.
0.00 Fire.

How old is Ada? ⏎ Ada is 34 years old. ⏎ And what does she do?
1.00 She is a baker.
1.00 Ada is a baker.
1.00 A baker.
1.00 Baker.
0.07 She is a smith.
0.00 He is a baker.
0.00 She is a pilot.
0.00 34.
""")
AROUND = cases("""
What does the owl fear? ⏎ The owl fears fire. ⏎ And what does it eat?
0.80 Perhaps mice.
0.75 Perhaps it eats mice.
0.94 Gladly. It eats mice.
0.65 You are very wise. Mice.
0.57 I wish that everyone was like you. It eats mice.
0.75 That is an interesting question. It eats mice.
0.80 Mice. The owl fears fire.
0.40 Mice. The owl fears smoke.
0.73 It eats mice. It eats mice.
0.81 It eats mice. Mice.
0.66 And what does it eat? Mice.
0.66 What does the owl fear? Mice.
0.86 - It eats mice.
0.71 # Answer ⏎ - It eats mice.
0.40 It eats mice
0.40 It eats mice. ✂
0.24 I do not know.
0.09 That is hard to say.
0.00
""")


@pytest.mark.parametrize("case", ANSWERED)
def test_the_second_question_is_answered_not_the_first(case):
    check(case)


@pytest.mark.parametrize("case", AROUND)
def test_what_stands_around_it_costs(case):
    check(case)
