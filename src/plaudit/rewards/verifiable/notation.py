r"""How results are written: many spellings made one, and units taken off.

>>> spell("½"), spell(r"0.\overline{3}"), split_unit("3 km/h")[0]
('\\frac{1}{2}', '\\frac{3}{9}', '3')
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

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
            return value, _measure(unit)
    match = _WORDS.match(text)
    return (match[1] or match[2] if match else text).replace("§", " "), None


def _measure(text: str) -> Unit:
    size, powers = Fraction(1), Counter[str]()
    for divides, power_word, name, exponent in _UNIT_PART.findall(text):
        power = int(exponent or {"": 1, "c": 3, "s": 2}[power_word[:1]]) * (-1 if divides else 1)
        kind, factor = _UNITS[name]
        size *= factor**power
        powers[kind] += power
    return size, frozenset(powers.items())


def _repeating_decimal(whole: str, start: str, repeated: str) -> str:
    top = int(whole + start + repeated) - int("0" + whole + start)
    return rf"\frac{{{top}}}{{{(10 ** len(repeated) - 1) * 10 ** len(start)}}}"


def _vulgar_fraction(sign: str) -> str:
    top, bottom = unicodedata.normalize("NFKC", sign).split("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}"
