"""Style-controlled win rates: what is counted, planted tastes, and faults of others that are not copied."""

import numpy as np
import pytest

from plaudit.errors import UserError
from plaudit.evaluation.policies import win_rate
from tests.evaluation.policies.duels import DRAWS, duel

CODE = "```python\n# a comment\n* 3\n**kwargs**\n```"


def styled(worth, tastes, *, habit, prompts=600, seed=0):
    """Duels of plain text against text with marks; a taste for each, and how often my answers have one."""
    chance = np.random.default_rng(seed)
    marks = {"headers": "# Title\n", "lists": "- item\n", "bold": "**this** "}
    found = []
    for n in range(prompts):
        mine = "".join(mark for name, mark in marks.items() if chance.random() < habit[name])
        theirs = "".join(mark for name, mark in marks.items() if chance.random() < 0.3)
        texts = [f"{mark}word word {'a' * int(chance.integers(1, 30))}" for mark in (mine, theirs)]
        gaps = {name: win_rate.density_gap(*texts, name) for name in marks} | {
            "length": win_rate.length_gap(*texts)
        }
        p = 1 / (1 + np.exp(-(worth + sum(taste * gaps[name] for name, taste in tastes.items()))))
        found.append(duel(float(chance.random() < p), prompt=f"q{n}", mine=texts[0], theirs=texts[1]))
    return found


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("# One\n## Two\n###three\nfour # five", {"headers": 2}),
        ("- one\n  * two\n1. three\n2) four\n-five\n3.14 is no item", {"lists": 4}),
        ("**one** and __two__, 2**3**4, ** not **, a__b__c", {"bold": 3}),
        (CODE, {}),
        (f"# One\n{CODE}\n- two", {"headers": 1, "lists": 1}),
        ("```\n# never closed", {}),
        ("~~~\n# tildes\n~~~\n# One", {"headers": 1}),
    ],
)
def test_marks_are_counted_outside_of_code(text, counts):
    from plaudit.evaluation.policies.win_rate import without_code_blocks

    words = len(without_code_blocks(text).split())
    for mark in ("headers", "lists", "bold"):
        assert win_rate.density(text, mark) == pytest.approx(counts.get(mark, 0) / (words + 1)), mark


def test_columns_are_antisymmetric_scaled_and_not_centred():
    duels = styled(0.0, {}, habit={"headers": 0.9, "lists": 0.9, "bold": 0.3}, prompts=80)
    x_BF = win_rate.style_differences(duels)
    assert win_rate.style_differences([one.swapped for one in duels]) == pytest.approx(-x_BF)
    assert (x_BF**2).mean(0) == pytest.approx(np.ones(4))
    assert (x_BF.mean(0) > 0.1)[1:3].all()


def test_a_taste_for_marks_wins_raw_and_not_at_equal_style():
    habit = {"headers": 0.9, "lists": 0.9, "bold": 0.9}
    duels = styled(0.0, {"headers": 8.0, "lists": 8.0, "bold": 8.0}, habit=habit)
    assert win_rate.verdict_array(duels).mean() > 0.65
    found = win_rate.style_controlled_win_rate(duels, DRAWS).value
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.3


def test_worth_is_left_when_style_is_taken_away():
    duels = styled(1.0, {"headers": 8.0}, habit={"headers": 0.9, "lists": 0.3, "bold": 0.3})
    found = win_rate.style_controlled_win_rate(duels, DRAWS).value
    assert found.low < 1 / (1 + np.exp(-1.0)) < found.high
    assert found.low > 0.55


def test_first_fault_of_others_repeated_rows_do_not_narrow_the_interval():
    """Arena-Hard counts a strong verdict as three rows and draws rows anew: half the honest width."""
    duels = styled(0.5, {"lists": 6.0}, habit={"headers": 0.5, "lists": 0.8, "bold": 0.5}, prompts=150)
    once, thrice = (win_rate.style_controlled_win_rate(some, DRAWS).value for some in (duels, duels * 3))
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high), abs=1e-9)


def test_second_fault_of_others_a_feature_is_chosen_by_its_name_not_by_its_place():
    duels = styled(0.0, {"lists": 9.0}, habit={"headers": 0.3, "lists": 0.95, "bold": 0.3})
    x_BF = win_rate.style_differences(duels, ("lists", "length"))
    assert x_BF == pytest.approx(win_rate.style_differences(duels)[:, [2, 0]])
    by_lists = win_rate.style_controlled_win_rate(duels, DRAWS, features=("lists",)).value
    by_bold = win_rate.style_controlled_win_rate(duels, DRAWS, features=("bold",)).value
    assert by_lists.low < 0.5 < by_lists.high
    assert by_bold.low > 0.5
    with pytest.raises(UserError, match="no feature of style is called lenght; there is length, headers"):
        win_rate.style_controlled_win_rate(duels, DRAWS, features=("lenght",))


def test_third_fault_of_others_one_look_takes_nothing_from_the_next():
    """Theirs narrows its table at each category; here the pairs are never touched."""
    duels = styled(0.5, {"lists": 6.0}, habit={"headers": 0.5, "lists": 0.8, "bold": 0.5}, prompts=150)
    before = list(duels)
    parts = [duels[:75], duels[75:]]
    together = [win_rate.style_controlled_win_rate(part, DRAWS) for part in parts]
    assert duels == before
    assert [win_rate.style_controlled_win_rate(part, DRAWS) for part in reversed(parts)] == together[::-1]
    assert all(one.value is not None for one in together)


def test_a_mark_that_nobody_uses_or_that_decides_a_few_pairs_does_not_spoil_the_rest():
    plain = styled(0.5, {}, habit={"headers": 0.0, "lists": 0.0, "bold": 0.0}, prompts=120)
    duels = [duel(one.forward, prompt=one.prompt, mine=one.mine, theirs="b" * 14) for one in plain]
    alone = win_rate.style_controlled_win_rate(duels, DRAWS).value
    rare = [duel(1.0, prompt=f"r{n}", mine="**so** " + "a" * 9, theirs="b" * 14) for n in range(3)]
    found = win_rate.style_controlled_win_rate(duels + rare, DRAWS).value
    assert found.n == alone.n == 120
    assert found.value == pytest.approx(alone.value, abs=1e-6)
    told = win_rate.contest_result(("a", "b", "j"), duels + rare, DRAWS, sees_order=False)
    assert told.style_controlled == found
    assert told.notes == ("style-controlled win rate: 3 pairs are left out, whose looks alone decide them",)


def test_where_nothing_differs_it_is_the_raw_rate_and_few_prompts_give_none():
    same = [duel(float(n % 4 > 0), prompt=f"q{n}", mine="abc", theirs="xyz") for n in range(40)]
    assert win_rate.style_controlled_win_rate(same, DRAWS).value.value == 0.75
    few = styled(0.0, {}, habit={"headers": 0.5, "lists": 0.5, "bold": 0.5}, prompts=45)
    why = win_rate.style_controlled_win_rate(few, DRAWS).reason
    assert why == "45 prompts are too few for 5 coefficients: it takes 50"
    assert win_rate.style_controlled_win_rate([], DRAWS).reason == "there is no verdict"
