r"""Whether two results are mathematically the same: 1/2 and \frac{2}{4}, x = 3 and 3, {1, 2} and {2, 1}.

Expressions are compared exactly where they are rational, else to thirty digits; with symbols in them, at
several points. Two expressions that agree at random points and differ elsewhere do exist, and are not what
anybody answers.

A value is exact where it is rational and of a sane size, else it has ninety digits, of which the first are
compared with those of fifty: what two precisions do not agree on is rounding. A tower of powers costs
nothing: what grows beyond bounds is no longer exact, and what grows or shrinks beyond those of the decimals
is undefined. The work of one verdict is counted, and what would take more of it than about a second is not
the same.
"""

import math
import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Underflow, localcontext
from fractions import Fraction
from typing import Any

from plaudit.rewards.verifiable.math_parser import (
    MAX_CHARACTERS,
    Node,
    Unit,
    UnreadableError,
    number,
    parse,
    spell,
    split_unit,
    symbols,
)

Value = Fraction | Decimal
"""Exact, or ninety digits."""

DIGITS = 90
_ROUGH_DIGITS = 50
"""Digits of a second look, which tells what is rounding from what is a value."""
MAX_EXACT_BITS = 20_000
"""The most bits in an exact number's numerator or denominator; a longer one is rounded."""
# What is trapped is an ArithmeticError, so a point without a value is passed over and never a NaN.
_TRAPS = [DivisionByZero, InvalidOperation, Overflow, Underflow]
_CONTEXT, _ROUGH_CONTEXT = (
    Context(prec=digits, Emax=10**9, Emin=-(10**9), traps=_TRAPS) for digits in (DIGITS, _ROUGH_DIGITS)
)
# More digits than DIGITS, so that π is not what limits a result.
_PI = Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679"
)


class NoValueError(ArithmeticError):
    """The expression has no real value, as √−1 or 1/0."""


def evaluate(node: Node, assignment: Mapping[str, Fraction]) -> Value:
    """The value where each symbol has the value given; raises an ``ArithmeticError`` where there is none.

    >>> evaluate(parse("x^2 + 1/2"), {"x": Fraction(3)})
    Fraction(19, 2)
    """
    with localcontext(_ROUGH_CONTEXT):
        rough = _evaluate_node(node, assignment)
    if isinstance(rough, Fraction):
        return rough
    with localcontext(_CONTEXT):
        # The value; 0 where it is only what rounding left of 0, as of sin π.
        value = _to_decimal(_evaluate_node(node, assignment))
        if abs(rough - value) <= abs(value) / 1000:
            return value
        # What stands for 0 shrinks with each digit more; what was divided by such a 0 grows, and is no value.
        if not rough or abs(value) < abs(rough) / 1000:
            return Fraction(0)
        raise NoValueError("nothing but rounding")


def nearly_equal(left: Value, right: Value) -> bool:
    """Whether two values are the same: exactly, or to thirty digits where one of them was rounded.

    >>> nearly_equal(Fraction(1, 3), Fraction(1, 3)), nearly_equal(Fraction(1, 3), Decimal("0.333"))
    (True, False)
    """
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    with localcontext(_CONTEXT):
        first, second = _to_decimal(left), _to_decimal(right)
        # The infinite is equal to nothing: no bound is below ∞, and a bound of ∞ would take any number.
        if not (first.is_finite() and second.is_finite()):
            return False
        # Relative however small they are: `evaluate` makes an exact 0 of what rounding leaves of one.
        return abs(first - second) <= max(abs(first), abs(second)) * Decimal("1e-30")


def ratio(numerator: Value, denominator: Value) -> Value:
    with localcontext(_CONTEXT):
        return _divide(numerator, denominator)


def _evaluate_node(node: Node, assignment: Mapping[str, Fraction]) -> Value:
    if node.value is not None:
        return node.value
    if not node.parts:
        return _PI if node.kind == "pi" else Decimal(1).exp() if node.kind == "e" else assignment[node.kind]
    # The value, rounded where it is an exact number of too many bits; an infinite one is none.
    value = _OPERATIONS[node.kind](*(_evaluate_node(part, assignment) for part in node.parts))
    # Here and not at the end: 1/∞ would be a 0 like any other.
    if isinstance(value, Decimal) and not value.is_finite():
        raise NoValueError("an infinite value")
    if isinstance(value, Fraction) and _bit_length(value) > MAX_EXACT_BITS:
        return _to_decimal(value)
    return value


def _bit_length(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _to_decimal(value: Value) -> Decimal:
    return Decimal(value.numerator) / value.denominator if isinstance(value, Fraction) else +value


def _exact_of_exact(operation: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    def operate(left: Value, right: Value) -> Value:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return operation(left, right)
        return operation(_to_decimal(left), _to_decimal(right))

    return operate


_add, _multiply, _divide = map(_exact_of_exact, (operator.add, operator.mul, operator.truediv))


def _raise_power(base: Value, power: Value) -> Value:
    """Roots of odd degree are taken of negative numbers too: (−8)^(1/3) is −2."""
    if not isinstance(power, Fraction):
        if base <= 0:
            raise NoValueError("a power of a number that is not positive")
        return _to_decimal(base) ** power
    is_integer = power.denominator == 1
    # The size of the result is foretold from the operands: 9^(9^9) must never be begun.
    if is_integer and isinstance(base, Fraction) and abs(power) * _bit_length(base) <= MAX_EXACT_BITS:
        return base ** int(power)
    if is_integer or base > 0:
        return _to_decimal(base) ** _to_decimal(power)
    if power.denominator % 2 == 0 and base < 0:
        raise NoValueError("an even root of a negative number")
    if not base:
        return _to_decimal(base) ** _to_decimal(power)
    magnitude = _to_decimal(abs(base)) ** _to_decimal(power)
    return -magnitude if power.numerator % 2 else magnitude


def _root(value: Value, degree: Value) -> Value:
    if not isinstance(degree, Fraction) or not degree:
        raise NoValueError("a root of no rational degree")
    if isinstance(value, Fraction) and degree == 2 and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    return _raise_power(value, 1 / degree)


def _factorial(value: Value) -> Value:
    # 500! has some 3,800 bits and so stays exact.
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 500:
        raise NoValueError("a factorial of this number")
    return Fraction(math.factorial(int(value)))


def _natural_log(value: Value) -> Value:
    if value <= 0:
        raise NoValueError("the logarithm of a number that is not positive")
    return _to_decimal(value).ln()


def _cosine(value: Value) -> Value:
    return _sine(_PI / 2 - _to_decimal(value))


def _sine(value: Value) -> Value:
    """Its series, within a turn of 0."""
    angle = _to_decimal(value)
    # To reduce by a π of a hundred digits costs a digit for each digit of the angle: six can be spared.
    if abs(angle) > 10**6:
        raise NoValueError("an angle of too many turns")
    angle = angle.remainder_near(2 * _PI)
    # Within half a turn sixty terms reach far below the ninetieth digit: π^119 / 119! is some 1e-137.
    term = total = angle
    for n in range(1, 60):
        term *= -angle * angle / (2 * n * (2 * n + 1))
        total += term
    return total


_OPERATIONS: Mapping[str, Callable[..., Value]] = {
    "+": _add,
    "*": _multiply,
    "/": _divide,
    "^": _raise_power,
    "!": _factorial,
    "root": _root,
    "log": lambda of, base: _divide(_natural_log(of), _natural_log(base)),
    "ln": _natural_log,
    "exp": lambda of: _to_decimal(of).exp(),
    "abs": lambda of: -of if of < 0 else of,
    "sin": _sine,
    "cos": _cosine,
    "tan": lambda of: _divide(_sine(of), _cosine(of)),
}

MAX_ITEMS = 20
_MAX_SAMPLE_POINTS = 10
_MIN_SAMPLE_POINTS = 3

_OPENING_BRACKETS, _CLOSING_BRACKETS = "([{⟦", ")]}⟧"
_FLIPPED = {">": "<", "≥": "≤"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    sign: str
    """``=``, ``<`` or ``≤``; the others are turned round."""
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Several results: a set, a tuple, an interval, a union."""

    brackets: str
    """Around ordered items; empty where their order does not matter."""
    items: "tuple[Statement, ...]"


@dataclass(slots=True)
class Work:
    """What one verdict may still cost; counted and not timed, so that a busy machine says the same."""

    left: int = 60_000

    def spend(self, units: int) -> None:
        """Take so much; raises `UnreadableError` where that is more than there is."""
        self.left -= units
        if self.left < 0:
            raise UnreadableError("it takes too much work")


_COSTLY = frozenset(["^", "root", "log", "ln", "exp", "sin", "cos", "tan"])


def _cost(node: Node) -> int:
    """Of one evaluation: a series to ninety digits is worth ten additions."""
    return (10 if node.kind in _COSTLY else 1) + sum(map(_cost, node.parts))


Statement = Node | Relation | Collection
"""A parsed result: an expression, a relation, or a collection of statements."""


def equivalent(result: str, truth: str) -> bool | None:
    r"""Whether the result says what the truth says; None where the truth cannot be read.

    >>> equivalent(r"\frac{\sqrt{8}}{2}", "2^{1/2}"), equivalent("(1, 2)", "(2, 1)"), equivalent("9", "...")
    (True, False, None)
    """
    try:
        expected, unit = _read(truth)
    except (UnreadableError, RecursionError):
        # A truth of letters alone is a word; the caller has compared the texts, so another result is wrong.
        letters = re.sub(r"[\\$]|text|[{}()]", " ", truth).replace(" ", "")
        return False if letters.isalpha() else None
    try:
        given, given_unit = _read(result)
        # A letter is a unit where the other side has one, else a symbol.
        if unit and not given_unit:
            given, given_unit = _read(result, has_unit=True)
        if given_unit and not unit:
            expected, unit = _read(truth, has_unit=True)
        return _same_measure(given, given_unit, expected, unit) or _same_percentage(result, truth)
    except (UnreadableError, RecursionError):
        # Wrong and not unknown, or a policy could dodge verdicts by writing what nobody can read.
        return False


def _same_measure(given: Statement, given_unit: Unit | None, expected: Statement, unit: Unit | None) -> bool:
    """A missing unit is any; two of them have to be of one kind, and their sizes count."""
    if unit and given_unit:
        if unit[1] != given_unit[1]:
            return False
        if unit[0] != given_unit[0]:
            if not isinstance(given, Node):
                return False
            given = Node(kind="*", parts=(number(given_unit[0] / unit[0]), given))
    return same_statement(given, expected)


def _same_percentage(result: str, truth: str) -> bool:
    """Where only one of the two has a percent sign, 12 % may be 12."""
    given, expected = (re.sub(r"\\?%\s*$|\bpercent\s*$", "", text.strip(" $")) for text in (result, truth))
    has_one = (given != result.strip(" $")) != (expected != truth.strip(" $"))
    return has_one and same_statement(parse_result(given), parse_result(expected))


def _read(text: str, *, has_unit: bool = False) -> tuple[Statement, Unit | None]:
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"{len(text)} characters")
    text, unit = split_unit(spell(text), has_unit=has_unit)
    text = text.strip().rstrip(".,").strip()
    if "±" in text:
        items = tuple(_parse_statement(text.replace("±", sign).strip(), 0) for sign in "+-")
        return Collection(brackets="", items=items), unit
    return _parse_statement(text, 0), unit


def parse_result(text: str) -> Statement:
    """A result as a tree; raises `UnreadableError`.

    >>> parse_result("x > 3").sign, len(parse_result("1, 2 and 3").items)
    ('<', 3)
    """
    return _read(text)[0]


def same_statement(first: Statement, second: Statement, work: Work | None = None) -> bool:
    """Whether two statements say the same.

    >>> same_statement(parse_result("y = 2x + 1"), parse_result("4x - 2y + 2 = 0"))
    True
    """
    work = work or Work()
    if isinstance(first, Collection) and isinstance(second, Collection):
        return _same_items(first, second, work)
    left, right = _bare_expression(first), _bare_expression(second)
    if isinstance(first, Relation) and isinstance(second, Relation):
        unknown = symbols(first.left)
        # As curves x = 0 and x = e^{-100} differ by less than is looked at; as numbers they are compared.
        solved = left is not None and right is not None and first.left == second.left
        if not solved or unknown & (symbols(first.right) | symbols(second.right)):
            return first.sign == second.sign and _same_relation(first, second, work)
    return left is not None and right is not None and _agree_at_points(left, right, work)


def _parse_statement(text: str, depth: int) -> Statement:
    if depth > 4:
        raise UnreadableError("collections too deep")
    union = _split_outside_brackets(text, "∪")
    if len(union) > 1:
        return Collection(brackets="", items=_parse_items(union, depth))
    if _is_bracketed(text):
        inside = _split_outside_brackets(text[1:-1], ",")
        # A lone {…} is LaTeX grouping; ⟦ was \{ and means a set even around one item.
        is_set = text[0] == "⟦" or (text[0] == "{" and len(inside) > 1)
        if is_set or len(inside) > 1:
            brackets = "" if is_set else text[0] + text[-1]
            return Collection(brackets=brackets, items=_parse_items(inside, depth))
    listed = _split_outside_brackets(text, ",")
    if len(listed) > 1:
        return Collection(brackets="", items=_parse_items(listed, depth))
    return _parse_relation(text)


def _parse_relation(text: str) -> Statement:
    parts = re.split(r"([=<>≤≥])", text)
    if len(parts) == 1:
        return parse(text)
    if len(parts) != 3:
        raise UnreadableError("more than one relation")
    left, right = parse(parts[0]), parse(parts[2])
    if parts[1] in _FLIPPED:
        return Relation(sign=_FLIPPED[parts[1]], left=right, right=left)
    return Relation(sign=parts[1], left=left, right=right)


def _parse_items(texts: Sequence[str], depth: int) -> tuple[Statement, ...]:
    if len(texts) > MAX_ITEMS:
        raise UnreadableError(f"{len(texts)} items")
    return tuple(_parse_statement(text.strip(), depth + 1) for text in texts if text.strip())


def _split_outside_brackets(text: str, sign: str) -> list[str]:
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in _OPENING_BRACKETS) - (letter in _CLOSING_BRACKETS)
        if letter == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _is_bracketed(text: str) -> bool:
    if len(text) < 2 or text[0] not in _OPENING_BRACKETS or text[-1] not in _CLOSING_BRACKETS:
        return False
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in _OPENING_BRACKETS) - (letter in _CLOSING_BRACKETS)
        if depth == 0:
            return at == len(text) - 1
    return False


def _same_items(first: Collection, second: Collection, work: Work) -> bool:
    if len(first.items) != len(second.items) or first.brackets != second.brackets:
        return False
    if first.brackets:
        return all(same_statement(a, b, work) for a, b in zip(first.items, second.items, strict=True))
    # Greedy will do, as sameness is all but transitive; what is matched is taken out, or {1, 1} would
    # equal {1, 2}.
    unmatched = list(second.items)
    for item in first.items:
        match = next(
            (i for i, candidate in enumerate(unmatched) if same_statement(item, candidate, work)), None
        )
        if match is None:
            return False
        del unmatched[match]
    return True


def _bare_expression(statement: Statement) -> Node | None:
    """Of x = 3 the 3, since a question for x is answered by it; an expression as it is; else nothing."""
    if isinstance(statement, Node):
        return statement
    if isinstance(statement, Collection) or statement.sign != "=" or statement.left.parts:
        return None
    return statement.right if symbols(statement.left) else None


def _same_relation(first_relation: Relation, second_relation: Relation, work: Work) -> bool:
    """Both sides' differences are the same but for a constant factor, of an inequality a positive one."""
    # As left − right, so that it does not matter on which side a term stands.
    first, second = _difference(first_relation), _difference(second_relation)
    ratios: list[Value] = []
    for left, right in _values_at_points(first, second, work):
        # Where both vanish the point lies on both curves and gives no ratio; where one does, they differ.
        if nearly_equal(right, Fraction(0)) or nearly_equal(left, Fraction(0)):
            if not (nearly_equal(left, Fraction(0)) and nearly_equal(right, Fraction(0))):
                return False
            continue
        ratios.append(ratio(left, right))
        is_flipped = first_relation.sign != "=" and ratios[-1] < 0
        if is_flipped or not nearly_equal(ratios[-1], ratios[0]):
            return False
    return len(ratios) >= (_MIN_SAMPLE_POINTS if symbols(first) | symbols(second) else 1)


def _difference(relation: Relation) -> Node:
    return Node(kind="+", parts=(relation.left, Node(kind="*", parts=(number(-1), relation.right))))


def _agree_at_points(first: Node, second: Node, work: Work) -> bool:
    agreed = 0
    for left, right in _values_at_points(first, second, work):
        # No look at the other points: of two sets most pairs of items differ.
        if not nearly_equal(left, right):
            return False
        agreed += 1
    return agreed >= (_MIN_SAMPLE_POINTS if symbols(first) | symbols(second) else 1)


def _values_at_points(first: Node, second: Node, work: Work) -> Iterator[tuple[Value, Value]]:
    """What both are worth at some points; points where one has no value are passed over."""
    # Twice, for two precisions.
    cost = 2 * (_cost(first) + _cost(second))
    for point in _sample_points(symbols(first) | symbols(second)):
        work.spend(cost)
        try:
            pair = evaluate(first, point), evaluate(second, point)
        except ArithmeticError:
            continue
        yield pair


def _sample_points(names: frozenset[str]) -> Iterator[Mapping[str, Fraction]]:
    """The points to compare at; the same on every call, so that a verdict never changes."""
    rng = random.Random(0)
    for index in range(_MAX_SAMPLE_POINTS if names else 1):
        # One point in three is negative, to tell √(x²) from x; the others are positive, where logs and roots
        # have values. Names are sorted, as the order of a set of strings changes with the hash seed.
        sign = -1 if index % 3 == 2 else 1
        yield {name: sign * Fraction(rng.randint(1, 99), rng.randint(1, 30)) for name in sorted(names)}
