"""Figures in words, as a person would say them; texts from elsewhere, as far as they can be shown."""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

Number = int | float
# Controls, marks that reverse or hide text, half surrogates, and what Unicode reserves as no character. Tab
# and line feed stay; so do the joiners that emoji, Arabic and Indic scripts are written with.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
MAX_NAME_LENGTH = 40


def number_text(value: Number) -> str:
    """A measured number as text, in about three digits.

    >>> [number_text(value) for value in (3.2149, 0.0612, 2e-05, 12345.6, 2.0, 0.03, -0.2, float("nan"))]
    ['3.21', '0.0612', '2e-5', '12,346', '2.00', '0.03', '−0.200', 'not finite']
    """
    size = abs(value)
    if math.isnan(value):
        return "not finite"
    if size >= 1e9 or 0 < size < 1e-3:
        return with_minus(trim_exponent(f"{value:.3g}"))
    if size >= 100 or size == 0:
        return with_minus(f"{value:,.0f}")
    digits = f"{value:.{2 - math.floor(math.log10(size))}f}"
    # Below 0.1 zeros at the end would make a number look longer than its neighbours, and no more exact.
    return with_minus(digits.rstrip("0") if size < 0.1 else digits)


def with_minus(number: str) -> str:
    """A written number with a minus sign in place of a hyphen, which lines break behind.

    >>> with_minus("-1.5"), with_minus("-2e-5"), with_minus("3")
    ('−1.5', '−2e-5', '3')
    """
    return f"\N{MINUS SIGN}{number[1:]}" if number.startswith("-") else number


def percent(value: Number) -> str:
    """A share as text, in per cent.

    >>> percent(0.6123)
    '61.2 %'
    """
    return with_minus(f"{100 * value:.1f} %") if not math.isnan(value) else "not finite"


def duration(seconds: Number) -> str:
    """A length of time in its two largest units.

    >>> duration(0.42), duration(75), duration(93784)
    ('0.42 s', '1 min 15 s', '1 d 2 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    parts = [(int(seconds // 86400), "d"), (int(seconds // 3600 % 24), "h")]
    parts += [(int(seconds // 60 % 60), "min"), (int(seconds % 60), "s")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def timestamp_text(when: datetime) -> str:
    """A point in time as text.

    >>> timestamp_text(datetime(2026, 11, 20, 9, 5))
    '2026-11-20 at 09:05 UTC'
    """
    return f"{when:%Y-%m-%d at %H:%M} UTC"


def counted(count: Number, noun: str) -> str:
    """A count with its noun, in the plural where it is one.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def names_text(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> names_text(["dpo", "grpo", "ppo"]), names_text(["ppo"])
    ('dpo, grpo and ppo', 'ppo')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def trim_exponent(text: str) -> str:
    """The exponent of a written number without its empty digits.

    >>> trim_exponent("2.5e-05"), trim_exponent("3e+09")
    ('2.5e-5', '3e9')
    """
    return re.sub(r"e([+-])0*(\d)", lambda found: f"e{found[1].replace('+', '')}{found[2]}", text)


def escape_invisible(text: str) -> str:
    """The text with characters that cannot be seen, or that turn others round, written by their numbers.

    >>> escape_invisible("tab\\tstays, \\x1b[1m and \\u202e do not")
    'tab\\tstays, ⟨U+001B⟩[1m and ⟨U+202E⟩ do not'
    """
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shortened(text: str, max_length: int) -> str:
    """At most so many characters of the text, and how many more there were.

    >>> shortened("a long answer", 6)
    'a long … (7 more characters)'
    """
    if len(text) <= max_length:
        return text
    return f"{text[:max_length]} … ({len(text) - max_length:,} more characters)"


def short_name(text: str) -> str:
    """A name as it has room in a sentence or a table."""
    return shortened(text, MAX_NAME_LENGTH)


def judge_name(name: str) -> str:
    """Who judged, as a page says it: the embedded world's own program knows what is true."""
    return "the world itself" if name == "gold" else short_name(name)


def unbroken(text: str) -> str:
    """The text with no number parted from its per cent."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def time_text(timestamp: str) -> str:
    """A time of day as it was written down, in words where it is one.

    >>> time_text("2026-11-21T12:03:00Z"), time_text("yesterday")
    ('2026-11-21 at 12:03 UTC', 'yesterday')
    """
    try:
        return timestamp_text(datetime.fromisoformat(timestamp).astimezone(UTC))
    except ValueError:
        return short_name(timestamp)
