"""Rewards that know: an answer is compared with the reference answer of its row, or with a form.

All of them give 1.0 for right and 0.0 for wrong. Where there is nothing to compare with, there is no verdict
(None, and a reason), which is never 0. Results may be marked as such by ``\\boxed{…}``, ``#### …`` or
``<answer>…</answer>``; without a mark each rule says what it reads.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.rewards.equivalence import equivalent
from plaudit.rewards.final import last_number, marked, result
from plaudit.rewards.rule import NO_TRUTH, Found, Rule, verdict


def exact() -> Rule:
    """1.0 where the answer, or its marked result, is the truth but for spaces and capitals.

    >>> exact().scores([Task(prompt="?", answers=("  the OWL", "owls"), ended=(True, True), truth="The owl")])
    ((1.0, 0.0),)
    """

    def check(said: str, task: Task) -> Found:
        if task.truth is None:
            return NO_TRUTH
        truth = plain(task.truth)
        return verdict(truth in (plain(said), plain(marked(said) or said)))

    return Rule(name="exact", check=check)


def number(tolerance: int | float = 1e-6) -> Rule:
    """1.0 where the marked result, or else the last number of the answer, is the truth's number.

    Thousands' commas, decimals, fractions, powers of ten and percent are read. ``tolerance`` is relative to
    the truth where that is above 1, absolute below. Where only one of the two has a percent sign, it may mean
    hundredths or be a mere unit: both readings are taken. An answer without a number is wrong.

    >>> asked = Task(prompt="?", answers=("It is 1,250.0", "1 or 2"), ended=(True, True), truth="1250")
    >>> number().scores([asked])
    ((1.0, 0.0),)
    """
    if not tolerance >= 0:
        raise UserError(f"number: a tolerance of {tolerance}; use 0 or more")

    def check(said: str, task: Task) -> Found:
        if task.truth is None:
            return NO_TRUTH
        truth = last_number(marked(task.truth) or task.truth)
        if truth is None:
            return "the reference answer holds no number"
        found = last_number(marked(said) or said)
        return verdict(found is not None and _close(found, truth, tolerance))

    return Rule(name="number", check=check)


def mathematics() -> Rule:
    r"""1.0 where the result is mathematically the same as the truth: ½, 0.5, \frac{2}{4} and \sqrt{1/4}.

    The result is what is marked, or stands after "the answer is", or is the last line. Nothing is rounded:
    1.41 is not √2 (`number` compares with a tolerance). An answer that cannot be read as mathematics is
    wrong; a truth that cannot be read gives a verdict only where both are the same text.

    >>> asked = Task(prompt="?", answers=(r"\boxed{\frac{1}{2}}", "x = 2"), ended=(True, True), truth="0.5")
    >>> mathematics().scores([asked])
    ((1.0, 0.0),)
    """

    def check(said: str, task: Task) -> Found:
        if task.truth is None:
            return NO_TRUTH
        truth, found = marked(task.truth) or task.truth, result(said)
        if plain(truth) == plain(found):
            return verdict(True)
        same = equivalent(found, truth)
        return "the reference answer cannot be read as mathematics" if same is None else verdict(same)

    return Rule(name="mathematics", check=check)


def sections(tags: Sequence[str]) -> Rule:
    """1.0 where the answer is exactly these tagged sections, in this order and none of them empty.

    Guo et al. 2025 (DeepSeek-R1, arXiv:2501.12948) reward thoughts and answer in sections of their own. A tag
    of the list that occurs again, inside or outside, makes it wrong.

    >>> asked = Task(prompt="?", answers=("<think>hm</think> <answer>4</answer>", "4"), ended=(True, True))
    >>> sections(("think", "answer")).scores([asked])
    ((1.0, 0.0),)
    """
    if not tags or len({*tags}) < len(tags) or not all(tag.isidentifier() for tag in tags):
        raise UserError(f"format:{','.join(tags)}: give different words for tags, as in format:think,answer")

    def check(said: str, _: Task) -> Found:
        rest = said.strip()
        for tag in tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            inside, _closed, behind = rest.removeprefix(opening).partition(closing)
            once = said.count(opening) == said.count(closing) == 1
            if not (once and rest.startswith(opening) and inside.strip()):
                return verdict(False)
            rest = behind.strip()
        return verdict(not rest)

    return Rule(name=f"format:{','.join(tags)}", check=check)


def length(least: int, most: int) -> Rule:
    """1.0 for an answer of at least ``least`` and at most ``most`` words, as spaces divide them.

    >>> length(1, 2).scores([Task(prompt="?", answers=("one two", "one two three"), ended=(True, True))])
    ((1.0, 0.0),)
    """
    if not 0 <= least <= most:
        raise UserError(f"length:{least}-{most}: give the fewest and the most words, as in length:10-50")

    def check(said: str, _: Task) -> Found:
        return verdict(least <= len(said.split()) <= most)

    return Rule(name=f"length:{least}-{most}", check=check)


def plain(text: str) -> str:
    """A text without what is mere writing: one space for any, no capitals, one form of each sign.

    >>> plain("  The\\n OWL ")
    'the owl'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _close(found: tuple[Fraction, bool], truth: tuple[Fraction, bool], tolerance: int | float) -> bool:
    (value, percent), (wanted, as_percent) = found, truth
    readings = [(value, wanted)]
    if percent and not as_percent:
        readings.append((value / 100, wanted))
    if as_percent and not percent:
        readings.append((value, wanted / 100))
    return any(abs(one - other) <= Fraction(tolerance) * max(1, abs(other)) for one, other in readings)
