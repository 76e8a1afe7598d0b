r"""Expressions as people and models write them, plain or in simple LaTeX, read into a tree.

Before that many spellings are made one (`spell`), and a unit is taken off (`split_unit`).

Nothing is evaluated here and nothing is handed to Python's own ``eval``. Length and depth are bounded, so
reading takes at most a moment.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 500
"""Characters of an expression; longer ones are not read."""
MAX_DEPTH = 24
FUNCTIONS = frozenset(["sqrt", "exp", "ln", "log", "sin", "cos", "tan", "abs"])
"""Functions that are read; ``log`` is to the base 10 where no other base is given."""
GREEK = frozenset(
    [
        *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda"),
        *("mu", "omega", "phi", "rho", "sigma", "tau"),
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
    """A number, a symbol, or an operation on other nodes."""

    kind: str
    """The operation: ``+ * / ^ ! root log`` and functions; ``number``; else the name of a symbol."""
    parts: "tuple[Node, ...]" = ()
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
            "\\frac": lambda: Node(kind="/", parts=(self._atom(), self._atom())),
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
                node = Node(kind=self.take(), parts=(node, self._signed(mixed=True)))
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


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
# Order counts: \dfrac is \frac before its digits are braced, and thousands lose their commas before a
# comma divides a list.
_SPELLINGS = (
    (r"\\!", ""),
    # Groups of thousands, with LaTeX's gaps or others between them.
    (
        r"(?<![\d,.])\d{1,3}(?:(?:\\[,;: ]|\{,\}|[ \u00a0\u2009\u202f])\d{3})+(?![\d/,])",
        lambda m: re.sub(r"\D", "", m[0]),
    ),
    (r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?", lambda m: _repeating_decimal(*m.groups())),
    (r"[¼-¾⅐-⅞]", lambda m: _vulgar_fraction(m[0])),
    (r"(?<![\w.^/\\}])(\d+)\s+(\d+)/(\d+)(?![\d.^])", r"\1\\frac{\2}{\3}"),
    (r"\\(?:left|right|displaystyle|limits|bigl?|bigr?|Bigl?|Bigr?)(?![A-Za-z])|\\[,;:> ]|\\?\$", " "),
    (r"[~€£\u00a0\u2009\u202f]", " "),
    (r"\bmph\b", "mi/h"),
    (r"\\q?quad(?![A-Za-z])|\\[()\[\]]", " "),
    (r"\^\s*(?:\\circ|\{\s*\\circ\s*\})", "°"),
    (r"(sin|cos|tan)(\s*[({]?\s*)(\d+(?:\.\d+)?)\s*°", r"\1\2\\frac{\3\\pi}{180}"),
    ("°", ""),
    (r"\bpercent\b", "%"),
    # What is marked as words is a unit, even where it is one letter.
    (r"\\(?:text|mbox)\s*\{([^{}]*)\}", r" § \1 "),
    (r"\\(?:mathrm|textbf|mathbf|operatorname)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\{\s*(\w+)\s*\\choose\s*(\w+)\s*\}", r"\\binom{\1}{\2}"),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\(frac|binom)\s*(\d)\s*(\d)", r"\\\1{\2}{\3}"),
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
    (r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^{" + m[0].translate(_RAISED) + "}"),
    (r"[−–]", "-"),
    (r"\\%", "%"),
    (r"\\\{", "⟦"),
    (r"\\\}", "⟧"),
    (r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda m: m[0].replace(",", "")),
    (r"\b(?:and|or)\b|;", ","),
)
# Words that are no unit of ours say nothing. Each has two letters or more, since 3x is a product, and is not
# the name of a function. It ends at a dot, a gap or the end, or there would be too many ways to divide it.
_WORDS = re.compile(
    r"^\s*([-+]?[\d.,/ ]*\d)\s*(?!(?:pi|sqrt|exp|sin|cos|tan|log|abs)\b)"
    r"(?:[A-Za-z]{2,}(?:[.]\s*|\s+|\^\S{1,3}\s*|$))+$|^(.*\S)\s*§[A-Za-z\d^{} .]*$"
)
_KINDS = {
    "m": "mm millimeter .001, cm centimeter .01, m meter 1, km kilometer 1000, in inch inche .0254, "
    "ft foot feet .3048, yd yard .9144, mi mile 1609.344",
    "s": "s sec second 1, min minute 60, h hr hour 3600, day 86400, week 604800",
    "g": "mg milligram .001, g gram 1, kg kilogram 1000, oz ounce 28.349523125, lb pound 453.59237",
    "dollar": "cent .01, dollar 1",
    "L": "mL ml milliliter .001, L liter 1",
}
Unit = tuple[Fraction, frozenset[tuple[str, int]]]
"""How large it is, and of which powers of which kinds: km/h is 1000/3600 of m and 1/s."""
_UNITS: Mapping[str, tuple[str, Fraction]] = {
    name.replace("meter", ending): (kind, Fraction(row.split()[-1]))
    for kind, rows in _KINDS.items()
    for row in rows.split(",")
    for name in row.split()[:-1]
    for ending in ("meter", "metre")
}
_NAMES = "|".join(sorted(_UNITS, key=len, reverse=True))
_ONE_UNIT = rf"(?:(square|sq\.?|cubic)\s+)?({_NAMES})s?(?![A-Za-z])\.?(?:\s*\^\s*\{{?(-?\d)\}}?)?"
_UNIT_PART = re.compile(rf"(/|\bper\b)?\s*{_ONE_UNIT}")
_UNIT = re.compile(
    rf"^(.*[\d)}}\]]|.*\\pi)(\s*)(§?)\s*((?:(?<![A-Za-z\\]){_ONE_UNIT})(?:(?:\s*[/*]\s*|\s+per\s+|\s+){_ONE_UNIT})*)\s*$"
)


def spell(text: str) -> str:
    """The text in the one spelling that is parsed; § stands before what was marked as words."""
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text)
    return text.strip()


def split_unit(text: str, *, has_unit: bool = False) -> tuple[str, Unit | None]:
    """What stands before a unit that ends the text, and the unit; ``has_unit``: a letter may be one.

    >>> split_unit("5 km")[0], split_unit("5 m"), split_unit("7 apples")
    ('5', ('5 m', None), ('7', None))
    """
    text = re.sub(r"^§\s*(?=[\d-])", "", text)
    match = _UNIT.match(text)
    if match:
        value, gap, mark, unit = match.groups()[:4]
        # m is a unit where it is marked as words, and m/s behind a gap.
        if mark or re.search(r"[A-Za-z]{2}", unit) or (gap and (has_unit or "/" in unit)):
            size, powers = Fraction(1), Counter[str]()
            for divides, power_word, name, exponent in _UNIT_PART.findall(unit):
                power = int(exponent or {"": 1, "c": 3, "s": 2}[power_word[:1]]) * (-1 if divides else 1)
                kind, factor = _UNITS[name]
                size *= factor**power
                powers[kind] += power
            return value, (size, frozenset(powers.items()))
    match = _WORDS.match(text)
    return (match[1] or match[2] if match else text).replace("§", " "), None


def _repeating_decimal(whole: str, start: str, repeated: str) -> str:
    top = int(whole + start + repeated) - int("0" + whole + start)
    return rf"\frac{{{top}}}{{{(10 ** len(repeated) - 1) * 10 ** len(start)}}}"


def _vulgar_fraction(sign: str) -> str:
    top, bottom = unicodedata.normalize("NFKC", sign).split("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}"
