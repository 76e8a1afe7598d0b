"""Names of people: how they are compared, what may stand in one, and which look like one another."""

import re
import unicodedata
from collections.abc import Iterable

from plaudit.collect.refusals import FieldError, checked_text

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
"""What a page shows as nothing, though it is a letter, a mark or unassigned: fillers, selectors, a blank."""
_JOINERS = re.compile("(?<=[\u0600-\u18af])[\u200c\u200d](?=[\u0600-\u18af])")
"""Persian and the scripts of India write with these two, between their own letters."""
_ALIKE = str.maketrans(
    "аАВеЕЅѕіІјЈкКМНһоОрРсСТуУүҮхХԁԛԜԝӏӀΑαΒΕΖΗΙιΚκΜΝνΟοΡρΤτυΥΧχօՕոսՍհցզԼᎪᎠᎡᎢᎥᎫᎳᎷᎻᏀᏃᏒᏚᏞᏟᏢᏦᏴıɑɡɩʏʟ",
    "aABeESsiIjJkKMHhoOpPcCTyYyYxXdqWwlIAaBEZHIiKkMNvOoPpTtuYXxoOnuUhgqLADRTiJWMHGZRSLCPKBiagiyl",
)
"""Letters of Cyrillic, Greek, Armenian, Cherokee and phonetics that look like a Latin one: before case is
folded, since one that looks alike small need not do so as a capital."""


def name_key(name: str) -> str:
    """A name as it is compared at sign-in: capitals, spaces and ways of writing a letter play no part.

    >>> name_key("  Ada  Lovelace ") == name_key("ada lovelace")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def skeleton(name: str) -> str:
    """What two names share that a reader could take for one another.

    >>> skeleton("\\u041elga") == skeleton("olga")
    True
    """
    letters = _JOINERS.sub("", unicodedata.normalize("NFKC", name)).translate(_ALIKE)
    return name_key(letters)


def checked_name(field: str, name: object) -> str:
    """A name that a page shows as it is written, or a refusal of the letter that hides or turns something."""
    words = checked_text(field, name, most=200, empty=False)
    for letter in _JOINERS.sub("", words):
        if unicodedata.category(letter) in ("Cc", "Cf", "Co", "Zl", "Zp") or _BLANK.match(letter):
            raise FieldError(
                field=field,
                found=f"U+{ord(letter):04X}, which is not seen",
                expected="letters that can be seen, in one line",
            )
    return words


def refuse_alike(name: str, others: Iterable[str]) -> None:
    """Complain about a name that could pass for one of the others, and is another.

    Two people may be called the same: pseudonyms tell them apart, and one at most signs in by the name.
    """
    like, key = skeleton(name), name_key(name)
    if any(skeleton(other) == like and name_key(other) != key for other in others):
        raise FieldError(
            field="name",
            found=repr(name),
            expected="a name that looks like nobody else's here; add your surname or a number",
        )
