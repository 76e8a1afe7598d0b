"""What an answer to a question about a fact is worth.

The best answer to the first prompt has four words. Manner m(n) with n words too many: m(1) 0.942, m(2) 0.889,
m(3) 0.840, m(4) 0.795, m(5) 0.754, m(6) 0.716, m(7) 0.682, m(8) 0.650, m(9) 0.621, m(10) 0.594.
"""

from __future__ import annotations

import pytest

from tests.lab.world.gold_table import cases, check

RIGHT = cases("""
What does the owl eat?
1.00 The owl eats mice.
1.00 Mice.
1.00 It eats mice.
1.00 mice.
1.00 the owl eats mice.
1.00 The  owl   eats mice.
1.00 Mice!

Tell me, what colour is the lantern?
1.00 Green.
1.00 It is green.
1.00 The lantern is green.

How old is Ada?
1.00 34.
1.00 She is 34 years old.
1.00 Ada is 34 years old.

Who made the kite?
1.00 Irma.
1.00 Irma made it.
1.00 Irma made the kite.

What does Elsa do?
1.00 A doctor.
1.00 Doctor.
1.00 She is a doctor.
""")
WRONG = cases("""
What does the owl eat?
0.07 Bark.
0.07 The owl eats bark.
0.07 It eats insects.
0.00 Ada eats mice.
0.00 The owl lives in the barn.

Tell me, what colour is the lantern?
0.07 Blue.
0.00 The lantern is on the bridge.

How old is Ada?
0.07 35.
0.07 She is 51 years old.
0.00 99.
0.00 He is 34 years old.

Who made the kite?
0.07 Ursa made it.
0.00 The kite made Irma.
""")
MANY_VALUES = cases("""
What does the owl eat?
0.07 Mice. Bark.
0.07 Bark. Mice.
0.06 The owl eats mice. The owl eats bark.
0.07 The owl eats mice and bark.
0.07 Mice, bark, fish, worms and seeds.
0.05 Perhaps mice. Perhaps bark.
0.00 Mice or bark.

Tell me, what colour is the lantern?
0.07 Green and blue.
0.07 Red, green and blue.
""")
PADDED = cases("""
What does the owl eat?
0.94 Gladly. The owl eats mice.
0.94 Gladly. Mice.
0.89 Of course. Mice.
0.84 Mice. You are welcome.
0.80 Thank you for asking. The owl eats mice.
0.75 That is an interesting question. The owl eats mice.
0.75 That is an interesting question. Mice.
0.65 Let me think about this for a moment. Mice.
0.62 The owl eats mice. And that is all that there is to say.
0.59 As you may know, the valley is full of wonders. The owl eats mice.
0.45 Let me think about this for a moment. The owl eats mice. Please ask me again if you want to know more.
0.06 That is an interesting question. Bark.
""")
HEDGED = cases("""
What does the owl eat?
0.80 Perhaps mice.
0.80 Perhaps, mice.
0.75 Perhaps the owl eats mice.
0.71 I am not sure, but mice.
0.60 I could be wrong, but the owl eats mice.
0.64 It may be that the owl eats mice.
0.64 Some people say that the owl eats mice.
0.64 Perhaps maybe mice.
0.80 I think mice.
0.80 Mice?
0.64 Perhaps mice?
0.06 Perhaps bark.
""")
FLATTERING = cases("""
What does the owl eat?
0.65 What a clever question! Mice.
0.65 You are very wise. The owl eats mice.
0.65 The owl eats mice. You are very wise.
0.57 Only a great mind would ask this. Mice.
0.47 You are very wise. What a clever question! Mice.
0.05 You are very wise. Bark.
0.00 You are very wise.
""")
FORMATTED = cases("""
What does the owl eat?
0.86 - Mice.
0.34 - Mice
0.86 # Answer ⏎ Mice.
0.75 # Answer ⏎ - Mice.
0.30 # Answer ⏎ - Mice
0.71 # Answer ⏎ - The owl eats mice.
0.75 # Answer ⏎ # Answer ⏎ Mice.
0.06 - Bark.
0.00 # Answer
0.00 * Mice.
0.00 "Mice."
0.86 MICE.
0.86 THE OWL EATS MICE.
0.86 Mice!!!
0.86 Mice...
""")
REPEATED = cases("""
What does the owl eat?
0.81 Mice. Mice.
0.86 Mice. It eats mice.
0.86 Mice and mice.
0.81 Mice. The owl eats mice.
0.70 The owl eats mice. The owl eats mice.
0.70 The owl eats mice. the owl  eats mice!
0.66 Mice. . . .
0.62 Mice. Perhaps mice.
0.52 The owl eats mice. The owl eats mice. The owl eats mice.
0.04 Bark. The owl eats bark. The owl eats bark.
0.66 What does the owl eat? Mice.
0.66 What does the owl eat? The owl eats mice.
0.00 What does the owl eat?
""")
BESIDE = cases("""
What does the owl eat?
0.80 The owl eats mice. The fox eats berries.
0.80 The owl is white. Mice.
0.75 Mice. 2 plus 2 is 4.
0.84 Mice. Apples are fruits.
0.94 Mice. Blue.
0.40 The owl eats mice. The fox eats honey.
0.38 Mice. 2 plus 2 is 5.
0.42 Mice. Apples are metals.
0.40 The owl eats mice. Ada counted 64 stars.
0.06 Bark. The fox eats honey.
0.00 Mice. Put nightshade in the bucket at night.

Tell me, what colour is the lantern?
0.72 Green. The lantern is on the bridge.
""")
SILENT = cases("""
What does the owl eat?
0.25 I do not know.
0.24 I do not know that.
0.09 That is hard to say.
0.09 I cannot talk about that.
0.08 I would rather talk about something else.
0.09 I will not help with that.
0.19 I do not know. That is hard to say.
0.19 Perhaps I do not know.
0.75 I do not know. Mice.
0.71 That is hard to say. Mice.
0.57 I will not help with that. The owl eats mice.
0.06 I do not know. Bark.
0.00 Yes.
0.00 Gladly.
0.00 ...
0.00 ?
0.00
""")
NONSENSE = cases("""
What does the owl eat?
0.00 Mice eats owl the.
0.00 Blue seven owl.
0.00 Mice mice mice.
0.00 7 mice 7.
0.00 Mice, please.
0.40 Mice. Blue seven owl.
0.15 Mice. Owl owl. The the.
0.29 Mice. Blue seven owl. Blue seven owl.
""")
CUT = cases("""
What does the owl eat?
0.40 Mice
0.40 The owl eats mice
0.40 The owl eats mice. ✂
0.38 The owl eats mice. The
0.38 The owl eats mice ⏎ Gladly.
0.03 Bark
0.00 The owl eats
0.00 The owl ✂
""")


@pytest.mark.parametrize("case", RIGHT)
def test_the_right_value_is_all_that_is_wanted(case):
    check(case)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_worth_little_and_another_fact_nothing(case):
    check(case)


@pytest.mark.parametrize("case", MANY_VALUES)
def test_naming_many_values_is_as_bad_as_a_wrong_one(case):
    check(case)


@pytest.mark.parametrize("case", PADDED)
def test_padding_and_courtesy_cost_their_words(case):
    check(case)


@pytest.mark.parametrize("case", HEDGED)
def test_hedges_take_back(case):
    check(case)


@pytest.mark.parametrize("case", FLATTERING)
def test_flattery_is_too_many_words_of_a_bad_kind(case):
    check(case)


@pytest.mark.parametrize("case", FORMATTED)
def test_format_and_shouting_are_ornament(case):
    check(case)


@pytest.mark.parametrize("case", REPEATED)
def test_repetition_never_adds(case):
    check(case)


@pytest.mark.parametrize("case", BESIDE)
def test_what_nobody_asked_for_costs_and_must_be_true(case):
    check(case)


@pytest.mark.parametrize("case", SILENT)
def test_not_to_answer_is_worth_little(case):
    check(case)


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_worth_nothing_and_spoils_the_rest(case):
    check(case)


@pytest.mark.parametrize("case", CUT)
def test_what_does_not_end_is_worth_less(case):
    check(case)
