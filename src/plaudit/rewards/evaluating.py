"""The value of an expression: exact where it is rational and of a sane size, else to fifty digits.

A tower of powers costs nothing: what grows beyond bounds is no longer exact, and what grows beyond those of
the decimals is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from fractions import Fraction

from plaudit.rewards.expressions import Node

Value = Fraction | Decimal
"""Exact, or fifty digits."""

DIGITS = 50
"""Digits of what is not exact."""
BITS = 20_000
"""Of an exact number's numerator and denominator; with more it is rounded."""
_CONTEXT = Context(prec=DIGITS, Emax=10**9, Emin=-(10**9), traps=[DivisionByZero, InvalidOperation, Overflow])
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


class NoValueError(ArithmeticError):
    """No real value."""


def evaluate(node: Node, at: Mapping[str, Fraction]) -> Value:
    """The value where each symbol has the value given; raises an ``ArithmeticError`` where there is none.

    >>> from plaudit.rewards.expressions import parse
    >>> evaluate(parse("x^2 + 1/2"), {"x": Fraction(3)})
    Fraction(19, 2)
    """
    with localcontext(_CONTEXT):
        return _value(node, at)


def near(one: Value, other: Value) -> bool:
    """Whether two values are the same: exactly, or to thirty digits where one of them was rounded.

    >>> near(Fraction(1, 3), Fraction(1, 3)), near(Fraction(1, 3), Decimal("0.333"))
    (True, False)
    """
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    with localcontext(_CONTEXT):
        first, second = _rounded(one), _rounded(other)
        scale = max(abs(first), abs(second), Decimal(1))
        return abs(first - second) <= scale * Decimal("1e-30")


def ratio(one: Value, other: Value) -> Value:
    """One divided by the other, which is not 0.

    >>> ratio(Fraction(1), Fraction(2))
    Fraction(1, 2)
    """
    with localcontext(_CONTEXT):
        return _divided(one, other)


def _value(node: Node, at: Mapping[str, Fraction]) -> Value:
    if node.value is not None:
        return node.value
    if not node.parts:
        return _PI if node.kind == "pi" else Decimal(1).exp() if node.kind == "e" else at[node.kind]
    return _held(_OPERATIONS[node.kind](*(_value(part, at) for part in node.parts)))


def _held(value: Value) -> Value:
    """What an exact number costs is bounded."""
    if isinstance(value, Fraction) and _bits(value) > BITS:
        return _rounded(value)
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _rounded(value: Value) -> Decimal:
    return Decimal(value.numerator) / value.denominator if isinstance(value, Fraction) else +value


def _added(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one + other
    return _rounded(one) + _rounded(other)


def _multiplied(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one * other
    return _rounded(one) * _rounded(other)


def _divided(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one / other
    return _rounded(one) / _rounded(other)


def _raised(base: Value, power: Value) -> Value:
    """Roots of odd degree are taken of negative numbers too: (−8)^(1/3) is −2."""
    if not isinstance(power, Fraction):
        if base <= 0:
            raise NoValueError("a power of a number that is not positive")
        return _rounded(base) ** power
    whole = power.denominator == 1
    if whole and isinstance(base, Fraction) and abs(power) * _bits(base) <= BITS:
        return base ** int(power)
    if whole or base > 0:
        return _rounded(base) ** _rounded(power)
    if power.denominator % 2 == 0 and base < 0:
        raise NoValueError("an even root of a negative number")
    if not base:
        return _rounded(base) ** _rounded(power)
    size = _rounded(abs(base)) ** _rounded(power)
    return -size if power.numerator % 2 else size


def _root(of: Value, degree: Value) -> Value:
    if not isinstance(degree, Fraction) or not degree:
        raise NoValueError("a root of no rational degree")
    if isinstance(of, Fraction) and degree == 2 and of >= 0:
        top, bottom = math.isqrt(of.numerator), math.isqrt(of.denominator)
        if top * top == of.numerator and bottom * bottom == of.denominator:
            return Fraction(top, bottom)
    return _raised(of, 1 / degree)


def _factorial(of: Value) -> Value:
    if not isinstance(of, Fraction) or of.denominator != 1 or not 0 <= of <= 500:
        raise NoValueError("a factorial of this number")
    return Fraction(math.factorial(int(of)))


def _natural(of: Value) -> Value:
    if of <= 0:
        raise NoValueError("the logarithm of a number that is not positive")
    return _rounded(of).ln()


def _logarithm(of: Value, base: Value) -> Value:
    return _divided(_natural(of), _natural(base))


def _cosine(of: Value) -> Value:
    return _sine(_PI / 2 - _rounded(of))


def _sine(of: Value) -> Value:
    """Its series, within a turn of 0."""
    angle = _rounded(of)
    if abs(angle) > 10**6:
        raise NoValueError("an angle of too many turns")
    angle = angle.remainder_near(2 * _PI)
    term = total = angle
    for n in range(1, 60):
        term *= -angle * angle / (2 * n * (2 * n + 1))
        total += term
    return total


def _size(of: Value) -> Value:
    return -of if of < 0 else of


def _tangent(of: Value) -> Value:
    return _divided(_sine(of), _cosine(of))


_OPERATIONS: Mapping[str, Callable[..., Value]] = {
    "+": _added,
    "*": _multiplied,
    "/": _divided,
    "^": _raised,
    "!": _factorial,
    "root": _root,
    "log": _logarithm,
    "ln": _natural,
    "exp": lambda of: _rounded(of).exp(),
    "abs": _size,
    "sin": _sine,
    "cos": _cosine,
    "tan": _tangent,
}
"""What each kind of node does to the values of its parts."""
