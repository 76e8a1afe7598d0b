"""Where in an answer the result stands: boxed, behind ####, between tags, or at its end."""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST = 20_000
"""Characters that are looked at, counted from the end: the result stands there."""
_DIGITS = 400
"""Digits of a number that is read; longer ones are no results and take long."""

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_PHRASE = re.compile(r"\b(?:final answer|answer|result)\s*(?:is|:|=)\s*:?\s*", re.IGNORECASE)
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>[-+−]?)\s?[$€£]?(?:\\[dt]?frac\{{(?P<over>\d+)\}}\{{(?P<under>\d+)\}}"
    rf"|(?P<top>{_UNSIGNED})(?:[eE](?P<power>[-+]?\d{{1,3}})(?!\w)|\s?/\s?(?P<bottom>\d+(?:\.\d+)?))?)"
    r"\s?(?P<percent>\\?%)?"
)


def marked(answer: str) -> str | None:
    r"""What the answer marks as its result: the last \boxed{…}, <answer>…</answer>, or the line after ####.

    >>> marked(r"So \boxed{\frac{1}{2}}."), marked("2 + 2 = 4\n#### 4"), marked("perhaps 4")
    ('\\frac{1}{2}', '4', None)
    """
    tail = answer[-LONGEST:]
    tagged = _TAGGED.findall(tail)
    tail = tagged[-1] if tagged else tail
    boxes = list(_BOXED.finditer(tail))
    if boxes:
        return _braced(tail, boxes[-1].end())
    if "####" in tail:
        behind = tail.rpartition("####")[2].strip()
        return behind.splitlines()[0].strip() if behind else None
    return tail.strip() if tagged else None


def result(answer: str) -> str:
    """The marked result; without a mark what stands after "the answer is", or else the last line.

    >>> result("First 3.\\nThe answer is 4."), result("4"), result("<answer> 5 </answer>")
    ('4', '4', '5')
    """
    found = marked(answer)
    if found is not None:
        return found
    lines = [line.strip() for line in answer[-LONGEST:].splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    named = list(_PHRASE.finditer(last))
    return (last[named[-1].end() :] if named else last).strip().rstrip(".").strip()


def last_number(text: str) -> tuple[Fraction, bool] | None:
    """The last number of a text, exactly, and whether a percent sign follows it.

    >>> last_number("of 1,200 it is -3/4"), last_number("12.5%"), last_number("none")
    ((Fraction(-3, 4), False), (Fraction(25, 2), True), None)
    """
    every = list(_NUMBER.finditer(text[-LONGEST:]))
    found = every[-1] if every else None
    if found is None or len(found.group()) > _DIGITS:
        return None
    top = Fraction((found["over"] or found["top"]).replace(",", ""))
    bottom = Fraction(found["under"] or found["bottom"] or 1)
    if not bottom:
        return None
    value = top / bottom * Fraction(10) ** int(found["power"] or 0)
    return (-value if found["sign"] in ("-", "−") else value), found["percent"] is not None


def _braced(text: str, start: int) -> str | None:
    """Up to the brace that closes the one before ``start``; None where there is none."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at].strip()
    return None
