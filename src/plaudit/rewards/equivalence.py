r"""Whether two results are mathematically the same: 1/2 and \frac{2}{4}, x = 3 and 3, {1, 2} and {2, 1}.

Expressions are compared exactly where they are rational, else to thirty digits; with symbols in them, at
several points. Two expressions that agree at random points and differ elsewhere do exist, and are not what
anybody answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from plaudit.rewards.evaluating import Value, evaluate, near, ratio
from plaudit.rewards.expressions import LONGEST, Node, UnreadableError, number, parse, symbols

MOST_ITEMS = 20
"""Items of a set or a tuple."""
_POINTS = 10
"""Places where expressions with symbols are compared."""
_ENOUGH = 3
"""At so many of them both must have a value."""

_SPELLINGS = (
    (r"\\(?:left|right|displaystyle|limits|bigl?|bigr?|Bigl?|Bigr?)(?![A-Za-z])|\\[!,;:> ]|\$|~", " "),
    (r"\\q?quad(?![A-Za-z])|\\[()\[\]]", " "),
    (r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|°", ""),
    (r"\\(?:text|mathrm|textbf|mathbf|mbox|operatorname)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\{[^{}]*\})\s*(\d)", r"\\frac\1{\2}"),
    (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])|[×·⋅∗]|\*\*(?!\*)", lambda m: "^" if m[0] == "**" else "*"),
    (r"\\div(?![A-Za-z])|÷", "/"),
    (r"\\(?:le|leq|leqslant)(?![A-Za-z])|<=|≤", "≤"),
    (r"\\(?:ge|geq|geqslant)(?![A-Za-z])|>=|≥", "≥"),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\cup(?![A-Za-z])", "∪"),
    (r"\\pm(?![A-Za-z])", "±"),
    (r"\\infty(?![A-Za-z])|∞|\binfinity\b|\binf\b", " \\\\oo "),
    (r"\\pi(?![A-Za-z])|π", " \\\\pi "),
    (r"√\s*\(", "sqrt("),
    (r"√\s*(\d+(?:\.\d+)?|[A-Za-z])", r" sqrt(\1) "),
    (r"²", "^2"),
    (r"³", "^3"),
    (r"[−–]", "-"),
    (r"\\%", "%"),
    (r"\\\{", "⟦"),
    (r"\\\}", "⟧"),
    (r"(?<=\d)\{,\}(?=\d)", ","),
    (r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda m: m[0].replace(",", "")),
    (r"\b(?:and|or)\b|;", ","),
)
_UNIT = re.compile(
    r"^\s*([-+]?[\d.,/ ]*\d)\s*(?!(?:pi|sqrt|exp|sin|cos|tan|log|abs)\b)([A-Za-z]{2,}[.]?\s*)+$"
)
_OPEN, _CLOSE = "([{⟦", ")]}⟧"
_FLIPPED = {">": "<", "≥": "≤"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Two sides and what stands between them.

    Example: ``Relation(sign="=", left=Node(kind="x"), right=number(3))``
    """

    sign: str
    """``=``, ``<`` or ``≤``; the others are turned round."""
    left: Node
    """The one side."""
    right: Node
    """The other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Several results: a set, a tuple, an interval, a union.

    Example: ``Collection(brackets="()", items=(number(1), number(2)))``
    """

    brackets: str
    """Around ordered items; empty where their order does not matter."""
    items: tuple[Statement, ...]
    """What they are."""


Statement = Node | Relation | Collection
"""What a result can say."""


def equivalent(found: str, truth: str) -> bool | None:
    r"""Whether the result says what the truth says; None where the truth cannot be read.

    >>> equivalent(r"\frac{\sqrt{8}}{2}", "2^{1/2}"), equivalent("(1, 2)", "(2, 1)"), equivalent("9", "...")
    (True, False, None)
    """
    try:
        wanted = read(truth)
    except (UnreadableError, RecursionError):
        spoken = re.sub(r"[\\$]|text|[{}()]", " ", truth).replace(" ", "")
        return False if spoken.isalpha() else None
    try:
        return same(read(found), wanted)
    except (UnreadableError, RecursionError):
        return False


def read(text: str) -> Statement:
    """A result as a tree; raises `UnreadableError`.

    >>> read("x > 3").sign, len(read("1, 2 and 3").items)
    ('<', 3)
    """
    if len(text) > LONGEST:
        raise UnreadableError(f"{len(text)} characters")
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text)
    measured = _UNIT.match(text)
    text = (measured[1] if measured else text).strip().rstrip(".,").strip()
    if "±" in text:
        return Collection(
            brackets="", items=tuple(_statement(text.replace("±", sign).strip(), 0) for sign in "+-")
        )
    return _statement(text, 0)


def same(one: Statement, other: Statement) -> bool:
    """Whether two statements say the same.

    >>> same(read("y = 2x + 1"), read("4x - 2y + 2 = 0"))
    True
    """
    if isinstance(one, Collection) and isinstance(other, Collection):
        return _same_items(one, other)
    if isinstance(one, Relation) and isinstance(other, Relation):
        return one.sign == other.sign and _same_relation(one, other)
    left, right = _bare(one), _bare(other)
    return left is not None and right is not None and _agree(left, right)


def _statement(text: str, depth: int) -> Statement:
    if depth > 4:
        raise UnreadableError("collections too deep")
    union = _split(text, "∪")
    if len(union) > 1:
        return Collection(brackets="", items=_items(union, depth))
    if _wrapped(text):
        inside = _split(text[1:-1], ",")
        is_set = text[0] == "⟦" or (text[0] == "{" and len(inside) > 1)
        if is_set or len(inside) > 1:
            return Collection(brackets="" if is_set else text[0] + text[-1], items=_items(inside, depth))
    listed = _split(text, ",")
    if len(listed) > 1:
        return Collection(brackets="", items=_items(listed, depth))
    return _relation(text)


def _relation(text: str) -> Statement:
    parts = re.split(r"([=<>≤≥])", text)
    if len(parts) == 1:
        return parse(text)
    if len(parts) != 3:
        raise UnreadableError("more than one relation")
    left, right = parse(parts[0]), parse(parts[2])
    if parts[1] in _FLIPPED:
        return Relation(sign=_FLIPPED[parts[1]], left=right, right=left)
    return Relation(sign=parts[1], left=left, right=right)


def _items(texts: Sequence[str], depth: int) -> tuple[Statement, ...]:
    if len(texts) > MOST_ITEMS:
        raise UnreadableError(f"{len(texts)} items")
    return tuple(_statement(text.strip(), depth + 1) for text in texts if text.strip())


def _split(text: str, sign: str) -> list[str]:
    """The text at this sign, where it is in no brackets."""
    depth, found = 0, [""]
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == sign and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _wrapped(text: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    if len(text) < 2 or text[0] not in _OPEN or text[-1] not in _CLOSE:
        return False
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0:
            return at == len(text) - 1
    return False


def _same_items(one: Collection, other: Collection) -> bool:
    if len(one.items) != len(other.items) or one.brackets != other.brackets:
        return False
    if one.brackets:
        return all(same(a, b) for a, b in zip(one.items, other.items, strict=True))
    left = list(other.items)
    for item in one.items:
        at = next((i for i, wanted in enumerate(left) if same(item, wanted)), None)
        if at is None:
            return False
        del left[at]
    return True


def _bare(statement: Statement) -> Node | None:
    """Of x = 3 the 3, since a question for x is answered by it; an expression as it is; else nothing."""
    if isinstance(statement, Node):
        return statement
    if isinstance(statement, Collection) or statement.sign != "=" or statement.left.parts:
        return None
    return statement.right if symbols(statement.left) else None


def _same_relation(one: Relation, other: Relation) -> bool:
    """Both sides' differences are the same but for a constant factor, of an inequality a positive one."""
    first, second = _difference(one), _difference(other)
    ratios: list[Value] = []
    for left, right in _values(first, second):
        if near(right, Fraction(0)) or near(left, Fraction(0)):
            if not (near(left, Fraction(0)) and near(right, Fraction(0))):
                return False
            continue
        ratios.append(ratio(left, right))
    enough = len(ratios) >= (_ENOUGH if symbols(first) | symbols(second) else 1)
    turned = one.sign != "=" and any(value < 0 for value in ratios)
    return enough and not turned and all(near(value, ratios[0]) for value in ratios)


def _difference(relation: Relation) -> Node:
    return Node(kind="+", parts=(relation.left, Node(kind="*", parts=(number(-1), relation.right))))


def _agree(one: Node, other: Node) -> bool:
    values = list(_values(one, other))
    enough = len(values) >= (_ENOUGH if symbols(one) | symbols(other) else 1)
    return enough and all(near(left, right) for left, right in values)


def _values(one: Node, other: Node) -> Iterator[tuple[Value, Value]]:
    """What both are worth at some points; points where one has no value are passed over."""
    for point in _points(symbols(one) | symbols(other)):
        try:
            pair = evaluate(one, point), evaluate(other, point)
        except ArithmeticError:
            continue
        yield pair


def _points(names: frozenset[str]) -> Iterator[Mapping[str, Fraction]]:
    """Always the same ones: the verdict on an answer does not change."""
    chance = random.Random(0)
    for place in range(_POINTS if names else 1):
        sign = -1 if place % 3 == 2 else 1
        yield {name: sign * Fraction(chance.randint(1, 99), chance.randint(1, 30)) for name in sorted(names)}
