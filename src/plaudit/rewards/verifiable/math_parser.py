r"""Expressions as people and models write them, plain or in simple LaTeX, read into a tree.

Nothing is evaluated here and nothing is handed to Python's own ``eval``. Length and depth are bounded, so
reading takes at most a moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 500
"""Characters of an expression; longer ones are not read."""
MAX_DEPTH = 24
"""How deep brackets may be nested."""
FUNCTIONS = frozenset(["sqrt", "exp", "ln", "log", "sin", "cos", "tan", "abs"])
"""Functions that are read; ``log`` is to the base 10 where no other base is given."""
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "theta",
        "lambda",
        "mu",
        "omega",
        "phi",
        "rho",
        "sigma",
        "tau",
    ]
)

# Three digits of exponent: 1e999999999 would become a Fraction of a billion digits.
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\w))?|\.\d+)|(?P<name>\\?[A-Za-z]+)|(?P<sign>\S))"
)
# Longer names first, so that sinx is sin x and xy is x times y.
_NAME_PARTS = re.compile(r"sqrt|exp|ln|log|sin|cos|tan|abs|pi|oo|[A-Za-z]")


class UnreadableError(ValueError):
    """Not an expression of the kinds that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A number, a symbol, or an operation on other nodes.

    Example: ``Node(kind="+", parts=(Node(kind="number", value=Fraction(1)), Node(kind="x")))``
    """

    kind: str
    """The operation: ``+ * / ^ ! root log`` and functions; ``number``; else the name of a symbol."""
    parts: tuple[Node, ...] = ()
    value: Fraction | None = None


def parse(text: str) -> Node:
    r"""One expression as a tree; raises `UnreadableError`. The text is without LaTeX spacing and unit words.

    >>> parse("2x").kind, parse("-1").parts[0].value
    ('*', Fraction(-1, 1))
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"{len(text)} characters")
    parser = _Parser(_tokens(text))
    node = parser.sum()
    if parser.current:
        raise UnreadableError(f"{parser.current!r} is not expected")
    return node


def symbols(node: Node) -> frozenset[str]:
    """The names that stand for any number.

    >>> sorted(symbols(parse("a + 2b + pi")))
    ['a', 'b']
    """
    names = frozenset[str]()
    if not node.parts and node.value is None and node.kind not in ("pi", "e"):
        names = frozenset([node.kind])
    return names.union(*map(symbols, node.parts))


def number(value: int | Fraction) -> Node:
    """A number as a node.

    >>> number(2).value
    Fraction(2, 1)
    """
    return Node(kind="number", value=Fraction(value))


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        assert match is not None
        at = match.end()
        name = match["name"]
        if name is None or name.startswith("\\"):
            tokens.append((match["number"] or match["sign"]) if name is None else name)
            continue
        words = _NAME_PARTS.findall(name)
        # Letters side by side are a product; more of them are a word, and words are no mathematics.
        if sum(len(word) == 1 for word in words) > 3:
            raise UnreadableError(f"the word {name!r}")
        tokens.extend(words)
    return tokens


class _Parser:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._commands: Mapping[str, Callable[[], Node]] = {
            "\\frac": self._fraction,
            "\\binom": self._binomial,
            "\\sqrt": self._root,
            "sqrt": self._root,
            "\\log": self._logarithm,
            "log": self._logarithm,
            "(": lambda: self._until(")"),
            "{": lambda: self._until("}"),
            "[": lambda: self._until("]"),
            "|": lambda: Node(kind="abs", parts=(self._until("|"),)),
        }

    @property
    def current(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *expected: str) -> str:
        """The next token, which has to be one of these where some are named; goes on behind it."""
        token = self.current
        if not token or (expected and token not in expected):
            raise UnreadableError(f"{token or 'the end'!r} in place of {expected}")
        self._at += 1
        return token

    def sum(self) -> Node:
        """Terms with plus and minus between them."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableError("brackets too deep")
        node = self._product()
        while self.current in ("+", "-"):
            minus = self.take() == "-"
            other = self._product()
            node = Node(kind="+", parts=(node, _negative(other) if minus else other))
        self._depth -= 1
        return node

    def _product(self) -> Node:
        node = self._signed(mixed=True)
        while True:
            if self.current in ("*", "/"):
                kind = self.take()
                node = Node(kind=kind, parts=(node, self._signed(mixed=True)))
            elif self._starts_factor():
                node = Node(kind="*", parts=(node, self._mixed()))
            else:
                return node

    def _signed(self, *, mixed: bool = False) -> Node:
        minus = False
        while self.current in ("+", "-"):
            minus ^= self.take() == "-"
        # Looser than a power, so that -2^2 is -4; and than a mixed number, so that -1\frac{1}{2} is -1.5.
        node = self._mixed() if mixed else self._power()
        return _negative(node) if minus else node

    def _mixed(self) -> Node:
        r"""A power; and 1\frac{1}{2} is one and a half, while x\frac{1}{2} is a product."""
        node = self._power()
        # The digit stands right before it: (1)\frac{1}{2} is a product.
        is_digit = node.value is not None and self._tokens[self._at - 1][-1].isdigit()
        if not is_digit or self.current != "\\frac":
            return node
        other = self._power()
        kind = "+" if all(part.value is not None for part in other.parts) else "*"
        return Node(kind=kind, parts=(node, other))

    def _power(self) -> Node:
        node = self._atom()
        while self.current in ("!", "%"):
            kind = self.take()
            node = Node(kind="!", parts=(node,)) if kind == "!" else Node(kind="/", parts=(node, number(100)))
        if self.current == "^":
            self.take()
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise UnreadableError("powers too deep")
            # By _signed and so by _power again: 2^-1 is read, and 2^3^2 groups from the right.
            node = Node(kind="^", parts=(node, self._signed()))
            self._depth -= 1
        return node

    def _starts_factor(self) -> bool:
        token = self.current
        # Not |: it may open or close, so products of absolute values need a sign between them.
        return bool(token) and (token[0].isalnum() or token[0] in "\\({[.")

    def _atom(self) -> Node:
        token = self.take()
        if token in self._commands:
            return self._commands[token]()
        # Not isdigit, which takes ⁴ too; a dot alone is no number.
        if token[0].isdecimal() or (token[0] == "." and token != "."):
            return number(Fraction(token))
        name = token.removeprefix("\\")
        if name in FUNCTIONS:
            return self._function(name)
        if name.isalpha() and (len(name) == 1 or name in GREEK or name in ("pi", "oo")):
            return Node(kind=name + self._index())
        raise UnreadableError(f"{token!r} is not known")

    def _function(self, name: str) -> Node:
        """sin x, sin(x), sin^2 x."""
        exponent = None
        if self.current == "^":
            self.take()
            exponent = self._atom()
            # sin^{-1} is the arcsine and not 1/sin, so it is not read at all.
            if exponent.value is None or exponent.value < 1:
                raise UnreadableError("an inverse function")
        node = Node(kind=name, parts=(self._argument(),))
        return node if exponent is None else Node(kind="^", parts=(node, exponent))

    def _argument(self) -> Node:
        """Brackets, or the factors that follow: sin 2x is the sine of 2x."""
        if self.current in ("(", "{", "[", "|"):
            return self._atom()
        node = self._power()
        # It stops at a bracket or a function: sin x cos x is a product of two and not the sine of one.
        while self._starts_factor() and self.current.removeprefix("\\") not in ("(", "[", *FUNCTIONS):
            node = Node(kind="*", parts=(node, self._power()))
        return node

    def _fraction(self) -> Node:
        return Node(kind="/", parts=(self._atom(), self._atom()))

    def _binomial(self) -> Node:
        top, chosen = self._atom(), self._atom()
        if chosen.value is None or chosen.value.denominator != 1 or not 0 <= chosen.value <= 100:
            raise UnreadableError("a binomial of no number of things")
        node = number(1)
        # Factor by factor, as n may be a symbol: n (n - 1) / 2.
        for k in range(int(chosen.value)):
            factor = Node(kind="/", parts=(Node(kind="+", parts=(top, number(-k))), number(k + 1)))
            node = Node(kind="*", parts=(node, factor))
        return node

    def _root(self) -> Node:
        degree = number(2)
        if self.current == "[":
            self.take()
            degree = self._until("]")
        return Node(kind="root", parts=(self._atom(), degree))

    def _logarithm(self) -> Node:
        base = number(10)
        if self.current == "_":
            self.take()
            base = self._atom()
        return Node(kind="log", parts=(self._argument(), base))

    def _index(self) -> str:
        """x_1 and x_{10} are names."""
        if self.current != "_":
            return ""
        self.take()
        if self.current != "{":
            return f"_{self.take()}"
        self.take()
        inside = self.take()
        self.take("}")
        return f"_{inside}"

    def _until(self, closing: str) -> Node:
        node = self.sum()
        self.take(closing)
        return node


def _negative(node: Node) -> Node:
    return Node(kind="*", parts=(number(-1), node))
