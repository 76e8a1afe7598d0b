"""Passwords: which are taken, and what is stored of them (Argon2id, with the parameters of RFC 9106).

Length is the only rule about letters: rules of composition make passwords that are easy to guess and hard to
remember. Nothing is cut off.
"""

import re
import threading
import unicodedata
from collections.abc import Set
from functools import lru_cache
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from plaudit.collect.refusals import FieldError, checked_text

FEWEST = 8
MOST = 200
"""The most; a longer one is refused and never cut."""

GATE = threading.Lock()
"""Held from counting failures to writing the next one: many guesses at once would all be under the limit. It
also keeps a flood of sign-ins, or of people who join, from taking 64 MiB each."""
_HASHER = PasswordHasher()


def _plain(word: str) -> str:
    # A word without capitals, spaces and accents, as whoever guesses tries it.
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", word).casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter) and not letter.isspace())


_DECORATION = "0123456789!?.,;:*#+-_=@$%&/()<>"
_MOST_DECORATION = 6
_DISGUISES = ({}, str.maketrans("0134578@$!", "oieastbasi"), str.maketrans("0134578@$!", "oleastbasl"))
_LINES = (
    "abcdefghijklmnopqrstuvwxyz 01234567890 1357924680 qwertyuiop asdfghjkl zxcvbnm qwertzuiop yxcvbnm "
    "azertyuiop qsdfghjklm wxcvbn 1qaz2wsx3edc4rfv5tgb6yhn7ujm 1q2w3e4r5t6y7u8i9o0p q1w2e3r4t5y6u7i8o9p0 "
    "qazwsxedcrfvtgbyhnujm 147258369 741852963 159753 159357 789456123 1a2b3c4d5e6f7g8h a1b2c3d4e5f6g7h8 "
    "102030405060 !@#$%^&*() йцукенгшщзхъ фывапролджэ ячсмитьбю"
)
_ROWS = tuple(_plain(row)[::way] for row in _LINES.split() for way in (1, -1))
"""Keys and letters that lie or follow side by side, both ways."""
_MOST_PIECES = 4
_REPEATED = re.compile(r"(.)\1+")
_UNIT = re.compile(r"^(.+?)\1+$")


def checked_password(password: object, *names: str) -> str:
    """A new password, or a refusal that never repeats it; ``names`` are those of the person and project."""
    words = checked_text("password", password, most=MOST, empty=False)
    if len(words) < FEWEST:
        raise FieldError(
            field="password", found=f"{len(words)} characters", expected=f"{FEWEST} to {MOST} characters"
        )
    if is_common(words, *names):
        raise FieldError(
            field="password",
            found="one of those that are tried first",
            expected="no usual word, name, date or row of keys; three or four words of your own are good",
        )
    return words


def is_common(password: str, *names: str) -> bool:
    """Whether a password is among the first that anybody would try.

    These are usual words and names with something in front or behind, rows of keys, dates, and all of these
    written twice: far more than a list of thousands has, from rules and a list of words that fits on a page.

    >>> [is_common(word) for word in ("P4ssw0rd!!", "qwerty123456", "a horse in the rain")]
    [True, True, False]
    """
    plain = _plain(password)
    own = {_plain(part) for name in names for part in (*name.split(), name)}
    parts = {plain, _REPEATED.sub(r"\1", plain), *_UNIT.findall(plain)}
    return len(set(plain)) < 3 or any(_is_weak(part, own) for part in parts)


def _is_weak(word: str, own: set[str]) -> bool:
    if _is_walk(word) or _is_date(word):
        return True
    usual = _common_words() | own
    # As people do to please a rule: the year, a 1 or a ! at an end, or a row of digits.
    for core in {word.strip(_DECORATION), word.rstrip(_DECORATION)} - {""}:
        added = word.replace(core, "", 1)
        is_row = len(added) > 3 and _is_walk(added)
        if len(added) > _MOST_DECORATION and not is_row:
            continue
        if (len(core) < 3 and is_row) or (len(core) > 3 and _is_walk(core)):
            return True
        if any(_is_usual(core.translate(letters), usual) for letters in _DISGUISES):
            return True
    return False


def _is_usual(core: str, usual: Set[str]) -> bool:
    # Whether it is one of these words, or two of them: there are no more than a million of those.
    return core in usual or any(core[:at] in usual and core[at:] in usual for at in range(2, len(core) - 2))


def _is_walk(word: str) -> bool:
    # Whether a word is made of a few rows of neighbouring keys or letters.
    pieces, at = 0, 0
    while at < len(word):
        length = max(
            (n for n in range(3, len(word) - at + 1) if any(word[at : at + n] in row for row in _ROWS)),
            default=0,
        )
        if not length:
            return False
        pieces, at = pieces + 1, at + length
    return 0 < pieces <= _MOST_PIECES


def _is_date(word: str) -> bool:
    if len(word) != 8 or not word.isdecimal() or not word.isascii():
        return False
    orders = (word, word[4:] + word[2:4] + word[:2], word[4:] + word[:4])
    return any(
        1900 <= int(day[:4]) <= 2099 and 1 <= int(day[4:6]) <= 12 and 1 <= int(day[6:]) <= 31
        for day in orders
    )


@lru_cache(maxsize=1)
def _common_words() -> frozenset[str]:
    words = (Path(__file__).parent / "common_words.txt").read_text("utf-8").split()
    return frozenset(_plain(word) for word in words)


def hash_password(password: str) -> str:
    return _HASHER.hash(_one_spelling(password))


def fits(stored: str | None, password: str) -> bool:
    """Whether a password is the stored one; with nothing stored it takes just as long to say no."""
    # Made in both cases, as it is slow the first time.
    decoy = _decoy()
    try:
        return _HASHER.verify(stored or decoy, _one_spelling(password)) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


@lru_cache(maxsize=1)
def _decoy() -> str:
    return _HASHER.hash("")


def _one_spelling(password: str) -> bytes:
    # The same keys make an accented letter of one code point on one machine and of two on another.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "replace")
