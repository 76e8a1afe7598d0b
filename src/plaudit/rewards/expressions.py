r"""Expressions as people and models write them, plain or in simple LaTeX, read into a tree.

Nothing is evaluated here and nothing is handed to Python's own ``eval``. Length and depth are bounded, so
reading takes at most a moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 500
"""Characters of an expression; longer ones are not read."""
DEEPEST = 24
"""Brackets within brackets."""
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
"""Letters with names, each a symbol."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\w))?|\.\d+)|(?P<name>\\?[A-Za-z]+)|(?P<sign>\S))"
)
_ROMAN = re.compile(r"sqrt|exp|ln|log|sin|cos|tan|abs|pi|oo|[A-Za-z]")


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
    """What it is done to."""
    value: Fraction | None = None
    """Of a number."""


def parse(text: str) -> Node:
    r"""One expression as a tree; raises `UnreadableError`. The text has gone through `prepared`.

    >>> parse("2x").kind, parse("-1").parts[0].value
    ('*', Fraction(-1, 1))
    """
    if len(text) > LONGEST:
        raise UnreadableError(f"{len(text)} characters")
    parser = _Parser(_tokens(text))
    node = parser.sum()
    if parser.here:
        raise UnreadableError(f"{parser.here!r} is not expected")
    return node


def symbols(node: Node) -> frozenset[str]:
    """The names that stand for any number.

    >>> sorted(symbols(parse("a + 2b + pi")))
    ['a', 'b']
    """
    own = frozenset[str]()
    if not node.parts and node.value is None and node.kind not in ("pi", "e"):
        own = frozenset([node.kind])
    return own.union(*map(symbols, node.parts))


def number(value: int | Fraction) -> Node:
    """A number as a node.

    >>> number(2).value
    Fraction(2, 1)
    """
    return Node(kind="number", value=Fraction(value))


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        assert match is not None
        at = match.end()
        name = match["name"]
        if name is None or name.startswith("\\"):
            found.append((match["number"] or match["sign"]) if name is None else name)
            continue
        words = _ROMAN.findall(name)
        # Letters side by side are a product; more of them are a word, and words are no mathematics.
        if sum(len(word) == 1 for word in words) > 3:
            raise UnreadableError(f"the word {name!r}")
        found.extend(words)
    return found


class _Parser:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._commands: Mapping[str, Callable[[], Node]] = {
            "\\frac": self._fraction,
            "\\sqrt": self._root,
            "sqrt": self._root,
            "\\log": self._logarithm,
            "log": self._logarithm,
            "(": lambda: self._within(")"),
            "{": lambda: self._within("}"),
            "[": lambda: self._within("]"),
            "|": lambda: Node(kind="abs", parts=(self._within("|"),)),
        }

    @property
    def here(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *wanted: str) -> str:
        """The next token, which has to be one of these where some are named; goes on behind it."""
        found = self.here
        if not found or (wanted and found not in wanted):
            raise UnreadableError(f"{found or 'the end'!r} in place of {wanted}")
        self._at += 1
        return found

    def sum(self) -> Node:
        """Terms with plus and minus between them."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise UnreadableError("brackets too deep")
        node = self._product()
        while self.here in ("+", "-"):
            minus = self.take() == "-"
            other = self._product()
            node = Node(kind="+", parts=(node, _negative(other) if minus else other))
        self._depth -= 1
        return node

    def _product(self) -> Node:
        node = self._signed()
        while True:
            if self.here in ("*", "/"):
                kind = self.take()
                node = Node(kind=kind, parts=(node, self._signed()))
            elif self._starts_factor():
                mixed = node.value is not None and self._tokens[self._at - 1][-1].isdigit()
                mixed = mixed and self.here == "\\frac"
                other = self._power()
                # 1\frac{1}{2} is one and a half, while x\frac{1}{2} is a product.
                kind = "+" if mixed and all(part.value is not None for part in other.parts) else "*"
                node = Node(kind=kind, parts=(node, other))
            else:
                return node

    def _signed(self) -> Node:
        minus = False
        while self.here in ("+", "-"):
            minus ^= self.take() == "-"
        node = self._power()
        return _negative(node) if minus else node

    def _power(self) -> Node:
        node = self._atom()
        while self.here in ("!", "%"):
            kind = self.take()
            node = Node(kind="!", parts=(node,)) if kind == "!" else Node(kind="/", parts=(node, number(100)))
        if self.here == "^":
            self.take()
            self._depth += 1
            if self._depth > DEEPEST:
                raise UnreadableError("powers too deep")
            node = Node(kind="^", parts=(node, self._signed()))
            self._depth -= 1
        return node

    def _starts_factor(self) -> bool:
        here = self.here
        return bool(here) and (here[0].isalnum() or here[0] in "\\({[.")

    def _atom(self) -> Node:
        token = self.take()
        if token in self._commands:
            return self._commands[token]()
        if token[0].isdigit() or token[0] == ".":
            return number(Fraction(token))
        name = token.removeprefix("\\")
        if name in FUNCTIONS:
            return self._function(name)
        if name.isalpha() and (len(name) == 1 or name in GREEK or name in ("pi", "oo")):
            return Node(kind=name + self._index())
        raise UnreadableError(f"{token!r} is not known")

    def _function(self, name: str) -> Node:
        """sin x, sin(x), sin^2 x."""
        above = None
        if self.here == "^":
            self.take()
            above = self._atom()
            if above.value is None or above.value < 1:
                raise UnreadableError("an inverse function")
        node = Node(kind=name, parts=(self._argument(),))
        return node if above is None else Node(kind="^", parts=(node, above))

    def _argument(self) -> Node:
        """Brackets, or the factors that follow: sin 2x is the sine of 2x."""
        if self.here in ("(", "{", "[", "|"):
            return self._atom()
        node = self._power()
        while self._starts_factor() and self.here.removeprefix("\\") not in ("(", "[", *FUNCTIONS):
            node = Node(kind="*", parts=(node, self._power()))
        return node

    def _fraction(self) -> Node:
        return Node(kind="/", parts=(self._atom(), self._atom()))

    def _root(self) -> Node:
        degree = number(2)
        if self.here == "[":
            self.take()
            degree = self._within("]")
        return Node(kind="root", parts=(self._atom(), degree))

    def _logarithm(self) -> Node:
        base = number(10)
        if self.here == "_":
            self.take()
            base = self._atom()
        return Node(kind="log", parts=(self._argument(), base))

    def _index(self) -> str:
        """x_1 and x_{10} are names."""
        if self.here != "_":
            return ""
        self.take()
        if self.here != "{":
            return f"_{self.take()}"
        self.take()
        inside = self.take()
        self.take("}")
        return f"_{inside}"

    def _within(self, closing: str) -> Node:
        node = self.sum()
        self.take(closing)
        return node


def _negative(node: Node) -> Node:
    return Node(kind="*", parts=(number(-1), node))
